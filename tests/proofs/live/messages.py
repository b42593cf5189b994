"""A scripted model on loopback with the Messages API of Anthropic, and its refusals.

It answers 400 as the provider does: to unknown keys in a block, empty texts, calls without
results in the next message and the reverse, signatures that it did not issue or whose text was
changed, missing thinking of the open round, invalid images.
"""

import base64
import hashlib
import json
import re
from http.server import BaseHTTPRequestHandler

from proofs.live.served import MARK, Scripted, Streaming

KEYS = {
    "text": {"text", "citations"},
    "image": {"source"},
    "document": {"source", "title", "context", "citations"},
    "tool_use": {"id", "name", "input", "caller"},
    "tool_result": {"tool_use_id", "content", "is_error"},
    "tool_reference": {"tool_name"},
    "thinking": {"thinking", "signature"},
    "redacted_thinking": {"data"},
}
INSIDE_RESULTS = ("text", "image", "document", "tool_reference")
SUMMARY = re.compile(r"detailed summary|TEXT ONLY", re.IGNORECASE)
CHUNK = 8192


class RefusedError(Exception):
    """The provider would answer with status 400."""

    status, kind = 400, "invalid_request_error"


class TooLargeError(RefusedError):
    status, kind = 413, "request_too_large"


class Messages(Scripted):
    """Answers a prompt by the plan that it names: rounds of tool calls, then a text."""

    def __init__(self):
        super().__init__(_Handler)
        self.refused, self.during = [], None
        self._issued, self._thought = {}, {}

    def usage(self, request, size):
        """Return the token counts for a request of `size` characters, without a cache."""
        del request
        return {"input_tokens": size // 4, "output_tokens": 20,
                "cache_read_input_tokens": 0, "cache_creation_input_tokens": 0}  # fmt: skip

    def answer(self, request):
        self._check(request)
        if SUMMARY.search(_text(_last_user(request)["content"])):
            return [{"type": "text", "text": "<summary>What was said so far, in short.</summary>"}]
        plan, calls = self._next(request)
        if plan is None or not request.get("tools"):
            return [{"type": "text", "text": "a few words"}]
        self.requests.append((plan, request))
        if self.during:
            self.during(plan, len(self.of(plan)))
        number = len(self.requests)
        blocks = [{"type": "text", "text": "one moment" if calls else self.plans[plan][1]}]
        blocks += [
            {"type": "tool_use", "id": f"toolu_{self.port}_{number}_{index}", "name": name,
             "input": arguments}
            for index, (name, arguments) in enumerate(calls)
        ]  # fmt: skip
        return self._thinking(request, blocks) + blocks

    def _next(self, request):
        """Return the plan that the newest prompt names, and the calls of its current round."""
        messages = request["messages"]
        for index in range(len(messages) - 1, -1, -1):
            marks = MARK.findall(_text(messages[index]["content"]))
            if messages[index]["role"] == "user" and marks and int(marks[-1]) in self.plans:
                plan = int(marks[-1])
                rounds = self.plans[plan][0]
                past = sum(
                    bool(_ids(message, "tool_use", "id")) for message in messages[index + 1 :]
                )
                return plan, rounds[past] if past < len(rounds) else []
        return None, []

    def _thinking(self, request, blocks):
        """Return a signed thinking block before the answer if the request asks for thinking."""
        wanted = request.get("thinking") or {}
        if wanted.get("type") not in ("enabled", "adaptive"):
            return []
        number = len(self.requests)
        shown = "" if wanted.get("display") == "omitted" else f"thought {number} " + "so " * 300
        seed = hashlib.sha512(f"{self.port} {number}".encode()).digest()
        signature = base64.b64encode(seed * 4).decode()
        self._issued[signature] = shown
        self._thought |= {block["id"]: signature for block in blocks if block["type"] == "tool_use"}
        return [{"type": "thinking", "thinking": shown, "signature": signature}]

    def _check(self, request):
        messages = _joined(request.get("messages") or [])
        if not messages or messages[0]["role"] != "user":
            raise RefusedError("first message must use the user role")
        marks = json.dumps([request.get(key) for key in ("system", "tools", "messages")])
        if marks.count('"cache_control"') > 4:
            raise RefusedError("more than 4 blocks with cache_control")
        seen, open_calls = set(), []
        for message in messages:
            for block in message["content"] or [{"type": "nothing"}]:
                self._check_block(block, message["role"])
            calls = _ids(message, "tool_use", "id")
            if seen & set(calls):
                raise RefusedError("tool_use ids must be unique")
            seen |= set(calls)
            _check_pairs(message, open_calls)
            open_calls = calls
        if open_calls:
            raise RefusedError("tool_use without tool_result")
        self._check_open_round(request, messages)

    def _check_open_round(self, request, messages):
        """Check that the thinking of the open round was sent as it was issued.

        With adaptive thinking, a message may leave out all of its thinking.
        """
        thinks = (request.get("thinking") or {}).get("type") in ("enabled", "adaptive")
        if thinks and len(messages) > 1 and _ids(messages[-1], "tool_result", "tool_use_id"):
            wanted = {self._thought.get(call) for call in _ids(messages[-2], "tool_use", "id")}
            sent = _ids(messages[-2], "thinking", "signature")
            sent += _ids(messages[-2], "redacted_thinking", "data")
            left_out = request["thinking"]["type"] == "adaptive" and not sent
            if wanted - {None} - set(sent) and not left_out:
                raise RefusedError("thinking blocks in the latest message cannot be modified")

    def _check_block(self, block, role):
        kind = block.get("type")
        if kind not in KEYS:
            raise RefusedError(f"unknown block {kind}")
        if extra := set(block) - KEYS[kind] - {"type", "cache_control"}:
            raise RefusedError(f"{kind}.{min(extra)}: extra inputs are not permitted")
        if kind in ("tool_use", "thinking", "redacted_thinking") and role != "assistant":
            raise RefusedError(f"{kind} in a message of the {role}")
        if kind == "thinking" and self._issued.get(block["signature"]) != block["thinking"]:
            raise RefusedError("Invalid `signature` in `thinking` block")
        for inner in _blocks(block.get("content") or []) if kind == "tool_result" else ():
            if inner.get("type") not in INSIDE_RESULTS:
                raise RefusedError(f"{inner.get('type')} inside a tool_result")
            self._check_block(inner, role)
        _check_value(kind, block)


def _check_value(kind, block):
    """Check the content of a text, a call or an image."""
    if kind == "text" and not block["text"].strip():
        raise RefusedError("text content blocks must be non-empty")
    if kind == "tool_use" and not isinstance(block["input"], dict):
        raise RefusedError("tool_use.input must be an object")
    if kind == "image" and block["source"]["type"] == "base64":
        base64.b64decode(block["source"]["data"], validate=True)


def _check_pairs(message, open_calls):
    """Check that every call is answered in the next message, and nothing else is."""
    answered = _ids(message, "tool_result", "tool_use_id")
    if message["role"] == "assistant":
        if message["content"][-1]["type"] in ("thinking", "redacted_thinking"):
            raise RefusedError("the final block cannot be thinking")
    elif sorted(answered) != sorted(open_calls):
        raise RefusedError("tool_use and tool_result do not fit together")
    elif any(block["type"] != "tool_result" for block in message["content"][: len(answered)]):
        raise RefusedError("tool_result blocks must come first")


def _blocks(content):
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _text(content):
    return "\n".join(block["text"] for block in _blocks(content) if block.get("type") == "text")


def _ids(message, kind, key):
    return [block[key] for block in _blocks(message["content"]) if block.get("type") == kind]


def _last_user(request):
    return [message for message in request["messages"] if message["role"] == "user"][-1]


def _joined(messages):
    """Join consecutive messages of one role, as the provider does, without system messages."""
    joined = []
    for message in messages:
        if message["role"] == "system":
            continue
        blocks = _blocks(message["content"])
        if joined and joined[-1]["role"] == message["role"]:
            joined[-1]["content"] += blocks
        else:
            joined.append({"role": message["role"], "content": list(blocks)})
    return joined


class _Handler(Streaming, BaseHTTPRequestHandler):
    def do_HEAD(self):
        self.whole({})

    def do_GET(self):
        self.whole({"type": "error", "error": {"type": "not_found_error", "message": "no"}}, 404)

    def do_POST(self):
        body = self.body()
        if not self.path.startswith("/v1/messages"):
            return self.do_GET()
        request = json.loads(body)
        if "count_tokens" in self.path:
            return self.whole({"input_tokens": len(body) // 4})
        try:
            blocks = self.model.answer(request)
        except (RefusedError, KeyError, TypeError, ValueError) as error:
            self.model.refused.append(f"{type(error).__name__}: {error}")
            known = error if isinstance(error, RefusedError) else RefusedError
            problem = {"type": known.kind, "message": str(error)}
            return self.whole({"type": "error", "error": problem}, known.status)
        stop = "tool_use" if blocks[-1]["type"] == "tool_use" else "end_turn"
        number = len(self.model.requests)
        message = {
            "id": f"msg_{self.model.port}_{number}_{id(request)}", "type": "message",
            "role": "assistant", "model": request.get("model"), "stop_sequence": None,
        }  # fmt: skip
        usage = self.model.usage(request, len(body))
        if request.get("stream"):
            return self._stream(message, blocks, stop, usage)
        return self.whole({**message, "content": blocks, "stop_reason": stop, "usage": usage})

    def _stream(self, message, blocks, stop, usage):
        self.begin()
        start = {**message, "content": [], "stop_reason": None, "usage": usage}
        self.say("message_start", message=start)
        empty = {"text": {"text": ""}, "thinking": {"thinking": "", "signature": ""},
                 "tool_use": {"input": {}}, "redacted_thinking": {}}  # fmt: skip
        for index, block in enumerate(blocks):
            opening = {**block, **empty[block["type"]]}
            self.say("content_block_start", index=index, content_block=opening)
            for delta in _deltas(block):
                self.say("content_block_delta", index=index, delta=delta)
            self.say("content_block_stop", index=index)
        self.say("message_delta", delta={"stop_reason": stop, "stop_sequence": None}, usage=usage)
        self.say("message_stop")


def _deltas(block):
    if block["type"] == "text":
        yield {"type": "text_delta", "text": block["text"]}
    elif block["type"] == "thinking":
        if block["thinking"]:
            yield {"type": "thinking_delta", "thinking": block["thinking"]}
        yield {"type": "signature_delta", "signature": block["signature"]}
    elif block["type"] == "tool_use":
        whole = json.dumps(block["input"])
        for at in range(0, len(whole), CHUNK):
            yield {"type": "input_json_delta", "partial_json": whole[at : at + CHUNK]}
