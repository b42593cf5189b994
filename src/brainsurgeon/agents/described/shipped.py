"""The descriptions that come with this program. The first that recognises a file is used."""

from typing import Any

_KINDS = ["thinking", "tool_call", "tool_result", "assistant", "user", "system", "custom"]
_ENTRIES = (("prompt", "user"), ("reply", "assistant"), ("aside", "system"))


def _roles(at: str, results: Any, *, closes: bool = False, **more: str) -> list[dict[str, Any]]:
    """Return tables of entries whose role is at a path. With `closes`, an aside ends the turn."""
    names = (*_ENTRIES, ("result", results))
    return [
        {"role": role, "when": {**more, at: name}, "closes": closes and role == "aside"}
        for role, name in names
    ]


_HUMAN, _AI = ["human", "HumanMessageChunk"], ["ai", "AIMessageChunk"]
_OPENAI = {"at": "tool_calls.*", "tool": "function.name", "arguments": "function.arguments"}

SHIPPED: dict[str, dict[str, Any]] = {
    "goose": {
        "recognise": [{"role": ["user", "assistant"], "created": "*", "content.*.type": "*"}],
        "entries": _roles("role", "tool"),
        "id": "id",
        "time": "created",
        "texts": "content",
        "calls": [{"at": "content.*[type=toolRequest]", "tool": "toolCall.value.name",
                   "arguments": "toolCall.value.arguments"}],
        "results": [{"at": "content.*[type=toolResponse]",
                     "texts": ["toolResult.value.*[type=text].text", "toolResult.value.content",
                               "toolResult.value.*[type=image]",
                               "toolResult.value.*[type=resource].resource.text",
                               "toolResult.error"],
                     "failed": [{"toolResult.status": "error"},
                                {"toolResult.value.isError": True}]}],
    },
    "langchain": {
        "recognise": [{f"{at}type": [*_HUMAN, *_AI], f"{inner}content": "*"}
                      for at, inner in (("", ""), ("", "data."), ("kwargs.", "kwargs."))],
        "entries": [{"role": role, "when": {f"{at}type": name}} for at in ("kwargs.", "")
                    for role, name in (("prompt", _HUMAN), ("reply", _AI),
                                       ("result", ["tool", "function", "ToolMessageChunk"]),
                                       ("aside", ["system", "SystemMessageChunk"]))],
        "within": ["", "data", "kwargs"],
        "session": "thread_id",
        "id": ["kwargs.id", "data.id", "id"],
        "texts": "content",
        "unsent": [f"{at}artifact" for at in ("", "data.", "kwargs.")],
        "call_id": [f"{at}tool_call_id" for at in ("", "data.", "kwargs.")],
        "tool": "name",
        "calls": [{"at": [f"{at}tool_calls.*" for at in ("", "data.", "kwargs.")],
                   "arguments": "args"}],
        "failed": [{f"{at}status": "error"} for at in ("", "data.", "kwargs.")],
        "model": [f"{at}response_metadata.model_name" for at in ("", "data.", "kwargs.")],
        "usage": {"at": [f"{at}usage_metadata" for at in ("", "data.", "kwargs.")],
                  "prompt": "input_tokens", "cached": "input_token_details.cache_read",
                  "output": "output_tokens"},
    },
    "kimi-cli": {
        "recognise": [{"role": ["_checkpoint", "_system_prompt", "_usage"]}],
        "entries": _roles("role", "tool"),
        "texts": "content",
        "thinking": "content.*[type=think].think",
        "signatures": ["encrypted"],
        "call_id": "tool_call_id",
        "calls": [_OPENAI],
    },
    "kimi-code": {
        "recognise": [{"type": "metadata", "protocol_version": "*"}],
        "entries": [
            {"role": "prompt", "when": {"type": "context.append_message",
                                        "message.origin.kind": "user"}},
            {"role": "aside", "when": {"type": "context.append_message"}},  # a reminder
            {"role": "reply", "kind": "tool_call", "when": {"event.type": "tool.call"}},
            {"role": "result", "when": {"event.type": "tool.result"}},
            {"role": "reply", "when": {"event.type": "content.part"}},
            {"role": "note", "closes": True, "when": {"type": ["turn.ended", "prompt.completed"]}},
        ],
        "id": ["message.id", "event[type=tool.call].uuid", "event[type=content.part].uuid"],
        "time": "time",
        "texts": ["message.content", "event.part.text", "event.result.output"],
        "thinking": "event.part.think",
        "signatures": ["encrypted", "signature"],
        "unsent": ["[type=agent.message.appended].message.message.content.*.text",
                   "[type=agent.message.appended].message.message.content.*.think",
                   "[type=llm.tools_snapshot].tools.*.description"],
        "call_id": "event.toolCallId",
        "tool": "event.name",
        "arguments": "event.args",
        "failed": [{"event.result.isError": True}],
        "model": "model",
        "usage": {"at": "[type=usage.record].usage", "input": "inputOther", "output": "output",
                  "cached": "inputCacheRead", "written": "inputCacheCreation"},
    },
    "qwen-code": {
        "recognise": [{"uuid": "*", "sessionId": "*", "message.parts": "*"}],
        "entries": [table for table in _roles("type", "tool_result") if table["role"] != "aside"],
        "session": "sessionId",
        "id": "uuid",
        "time": "timestamp",
        "texts": "message.parts.*.text",
        "thinking": "message.parts.*[thought=true].text",
        "unsent": ["toolCallResult.resultDisplay", "systemPayload.uiEvent.response_text"],
        "calls": [{"at": "message.parts.*.functionCall", "arguments": "args"}],
        "results": [{"at": "message.parts.*.functionResponse",
                     "texts": ["response.output", "response.error"]}],
        "failed": [{"toolCallResult.status": "error"}],
        "model": "model",
        "usage": {"at": "usageMetadata", "prompt": "promptTokenCount",
                  "cached": "cachedContentTokenCount", "output": "candidatesTokenCount"},
    },
    "oh-my-pi": {
        "recognise": [{"type": "title", "v": 1}],
        "entries": [*_roles("message.role", "toolResult", type="message"),
                    {"role": "aside", "when": {"type": ["message", "custom_message"]}}],
        "within": ["", "message"],
        "session": "[type=session].id",
        "id": "id",
        "time": "timestamp",
        "texts": "content",
        "unsent": "message.details",
        "call_id": "message.toolCallId",
        "tool": "message.toolName",
        "failed": [{"message.isError": True}],
        "model": "message.model",
        "usage": {"at": "message.usage"},
    },
    "openai-chat": {
        "recognise": [{"role": ["user", "assistant", "system", "developer"], "content": "*",
                       "type": "-"}],
        "entries": [*_roles("role", ["tool", "function"]),
                    {"role": "aside", "when": {"role": "developer"}}],
        "session": "session_id",
        "id": "id",
        "time": ["timestamp", "created_at"],
        "texts": "content",
        "thinking": ["reasoning_content", "reasoning", "reasoning_details.*.text"],
        "call_id": "tool_call_id",
        "tool": "name",
        "calls": [_OPENAI, {"at": "function_call"}],
        "model": "model",
        "usage": {"at": "usage"},
    },
    "generic": {
        "newest": 0,
        "recognise": [{"__id": "*", "type": ["message", *_KINDS]}],
        "entries": [
            {"role": "prompt", "when": {"type": "user"}},
            {"role": "reply", "when": {"type": "assistant"}},
            {"role": "result", "when": {"type": "tool_result"}},
            {"role": "reply", "kind": "tool_call", "when": {"type": "tool_call"}},
            *({"role": "aside", "closes": True, "kind": kind, "when": {"type": kind}}
              for kind in ("system", "custom", "thinking")),
            *_roles("message.role", ["tool", "toolResult"], closes=True, type="message"),
            *_roles("role", ["tool", "toolResult"], closes=True, type="message"),
        ],
        "within": ["", "message"],
        "session": ["session_id", "sessionId", "conversation_id", "thread_id"],
        "id": ["__id", "id"],
        "time": "timestamp",
        "texts": ["output", "content", "text", "result", "data", "message"],
        "thinking": "thinking",
        "call_id": ["call_id", "tool_call_id", "toolCallId", "tool_use_id"],
        "tool": ["name", "tool", "tool_name", "toolName"],
        "arguments": ["arguments", "input"],
        "calls": [_OPENAI],
        "failed": [{"isError": True}, {"is_error": True}, {"error": True}],
        "model": ["model", "message.model"],
        "usage": {"at": ["usage", "message.usage"]},
    },
}  # fmt: skip
