"""Sessions that agents' own readers look at, and what stands in the requests they build."""

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
    """Give what a provider verifies or looks up: each signature with what it stands beside."""
    listed = []
    for found in dicts_in(request["messages"]):
        if found.get("type") in ("thinking", "redacted_thinking", "reasoning"):
            listed.append(found)
        elif "thoughtSignature" in found:
            beside = found.get("functionCall", {}).get("name") or found.get("text")
            listed.append((beside, found["thoughtSignature"]))
    return listed


def call_and_result_ids(request):
    """Give the ids of the calls of a request and of their results, each in its order."""
    calls, results = [], []
    for found in dicts_in(request["messages"]):
        calls += [found["id"]] if found.get("type") in ("tool_use", "function") else []
        calls += [found["call_id"]] if found.get("type") == "function_call" else []
        calls += [found["functionCall"]["name"]] if "functionCall" in found else []
        results += [found["functionResponse"]["name"]] if "functionResponse" in found else []
        results += [found["tool_use_id"]] if "tool_use_id" in found else []
        results += [found["tool_call_id"]] if "tool_call_id" in found else []
        results += [found["call_id"]] if found.get("type") == "function_call_output" else []
    assert sorted(calls) == sorted(results), request["api"]
    return calls, results


def add_answer(conversation, content, api, stop="stop"):
    """Add an answer of a model, with all that tells a provider whether it is its own."""
    usage = {"input": 1, "output": 1, "cacheRead": 0, "cacheWrite": 0, "totalTokens": 2}
    return conversation.entry(message={
        "role": "assistant", "content": content, "api": api, "provider": "its-provider",
        "model": "its-model", "usage": usage, "stopReason": stop, "timestamp": 1,
    })  # fmt: skip


def thinking_block(tag, signature, **more):
    text = f"thinking about {tag}, at length. " * 40
    return {"type": "thinking", "thinking": text, "thinkingSignature": signature, **more}
