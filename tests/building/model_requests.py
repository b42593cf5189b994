"""Sessions read by agents' own readers, and the requests these build."""

SESSIONS = {
    "pi": ("pi", "large-session.derived-v3.jsonl"),
    **{
        f"{version}-{agent}-{number}": (
            "openclaw", version, "agents", agent, "sessions",
            f"{name}-0000-4000-8000-{number:012}.jsonl",
        )
        for version, agent, name, number in (
            ("2026.2.19", "main", "c3c3c3c3", 4),
            ("2026.7.35", "main", "a1a1a1a1", 1),
            ("2026.7.35", "main", "a1a1a1a1", 2),
            ("2026.7.35", "thinker", "b2b2b2b2", 3),
        )
    },
}  # fmt: skip


def dicts_in(value):
    if isinstance(value, dict):
        yield value
    for inner in value.values() if isinstance(value, dict) else value:
        if isinstance(inner, dict | list):
            yield from dicts_in(inner)


def signed_blocks(request):
    """Return each signature of a request with the block that it signs."""
    signed = []
    for block in dicts_in(request["messages"]):
        if block.get("type") in ("thinking", "redacted_thinking", "reasoning"):
            signed.append(block)
        elif "thoughtSignature" in block:
            beside = block.get("functionCall", {}).get("name") or block.get("text")
            signed.append((beside, block["thoughtSignature"]))
    return signed


def call_and_result_ids(request):
    """Return the ids of a request's calls and of its results, in order."""
    calls, results = [], []
    for block in dicts_in(request["messages"]):
        calls += [block["id"]] if block.get("type") in ("tool_use", "function") else []
        calls += [block["call_id"]] if block.get("type") == "function_call" else []
        calls += [block["functionCall"]["name"]] if "functionCall" in block else []
        results += [block["functionResponse"]["name"]] if "functionResponse" in block else []
        results += [block["tool_use_id"]] if "tool_use_id" in block else []
        results += [block["tool_call_id"]] if "tool_call_id" in block else []
        results += [block["call_id"]] if block.get("type") == "function_call_output" else []
    assert sorted(calls) == sorted(results), request["api"]
    return calls, results


def add_answer(conversation, content, api, stop="stop", model="its-model"):
    """Add a model's answer with all fields by which a provider recognises its own."""
    usage = {"input": 1, "output": 1, "cacheRead": 0, "cacheWrite": 0, "totalTokens": 2}
    return conversation.entry(message={
        "role": "assistant", "content": content, "api": api, "provider": "its-provider",
        "model": model, "usage": usage, "stopReason": stop, "timestamp": 1,
    })  # fmt: skip


def thinking_block(tag, signature, **more):
    text = f"thinking about {tag}, at length. " * 40
    return {"type": "thinking", "thinking": text, "thinkingSignature": signature, **more}
