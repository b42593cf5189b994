"""Thinking of a model that answers no more: what the next request, and so every report, omits."""

import pytest

from brainsurgeon.operations.estimate import estimate
from brainsurgeon.operations.sessions import context
from building.cached_conversation import CachedConversation

HOUR = 3600
THINKING = 30_000  # characters


def write(world, clock, changes):
    """Write a session with thinking, and a last answer of the same model or of another one."""
    talk = CachedConversation(clock.now - 2 * HOUR)
    talk.user()
    block = {"type": "thinking", "thinking": "t" * THINKING, "thinkingSignature": "c2ln"}
    talk.assistant([block, {"type": "text", "text": "done."}], api="anthropic-messages")
    talk.turn("x" * 3000)
    for _ in range(2):
        talk.turn("short")
    for line in talk.lines:
        line.get("message", {})["provider"] = "anthropic"
    if changes:
        talk.lines[-1]["message"] |= {"provider": "bedrock"}
    world.put("s.jsonl", talk.bytes(), age=2 * HOUR)


@pytest.mark.parametrize("changes", [False, True], ids=["same model", "other account"])
def test_omitted_thinking_is_neither_load_nor_saving(world, clock, changes):
    """Shares, load, savings and estimate count it only if the next request contains it."""
    write(world, clock, changes)
    settings = world.settings(min_reclaim=0)
    shown = context(settings, world.no_store, "main/s", clock.now)
    tokens = {removal.kind: removal.tokens for removal in shown.plan.removals}
    bills = estimate(settings, world.no_store, (), clock.now).policies
    saved = bills["raw"].tokens_sent - bills["always"].tokens_sent

    [sent] = (one.live_chars for one in shown.filling if one.kind == "thinking")
    assert sent == (0 if changes else THINKING)
    assert (shown.full.load > 10_000) is not changes
    assert (tokens["thinking"] > 8_000) is not changes
    assert (tokens["thinking"] == 0) is changes
    assert 0 < tokens["tool_result"] < 2_000
    assert (saved > 20_000) is not changes
    report = world.scan(min_reclaim=0)
    [session] = report.sessions
    assert sum(removal.tokens for removal in session.plan.removals) == sum(tokens.values())
