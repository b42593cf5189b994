"""What the recorded calls of sessions would have cost under each policy."""

import json

import pytest

from brainsurgeon.model.reports import POLICIES
from brainsurgeon.operations.estimate import estimate
from brainsurgeon.render import estimate as render
from building import cached_conversation
from building.cached_conversation import CachedConversation
from building.world import SAMPLES, file_states


def estimated(world, *names, **keys):
    return estimate(world.settings(**keys), world.no_store, names, world.clock())


def test_raw_is_what_the_sessions_recorded(world):
    """Tokens and dollars are the sums of the usage; nothing is written."""
    world.copy("pi", "large-session.derived-v3.jsonl", name="s.jsonl")
    before = file_states(world.base, directories=True)
    found = estimated(world)

    lines = map(json.loads, (world.directory / "s.jsonl").read_bytes().splitlines())
    usages = [
        line["message"]["usage"] for line in lines
        if line.get("message", {}).get("role") == "assistant"
        and line["message"]["stopReason"] not in ("error", "aborted")
    ]  # fmt: skip
    raw = found.policies["raw"]
    assert raw.tokens_sent == sum(
        usage[key] for usage in usages for key in ("input", "cacheRead", "cacheWrite")
    )
    assert raw.tokens_cached == sum(usage["cacheRead"] for usage in usages)
    assert raw.dollars == pytest.approx(sum(
        usage["cost"][key] for usage in usages for key in ("input", "cacheRead", "cacheWrite")
    ))  # fmt: skip
    assert file_states(world.base, directories=True) == before
    for name in POLICIES[1:]:
        assert found.policies[name].dollars < raw.dollars * 0.6


def test_a_session_without_usage_is_left_out(world, conversation, clock):
    """It is counted, and shown as left out; one with usage has a line of its own."""
    conversation.turn()
    world.put("one.jsonl", conversation.bytes())
    assert "no session" in render.estimate(estimated(world))
    for name in ("two", "three"):
        talk = CachedConversation(clock.now, session=name)
        talk.user()
        talk.assistant()
        world.put(f"{name}.jsonl", talk.bytes())
    found = estimated(world)

    assert found.left_out == 1
    assert [one.calls for one in found.sessions] == [1, 1]
    text = render.estimate(found)
    assert (
        "2 calls of 2 sessions; 1 session without usage, or only read (as those of Codex), left out"
        in text
    )
    assert "dollars" not in text
    assert render.estimate_json(found)["policies"][0]["cost_dollars"] is None
    assert len(estimated(world, "main/two").sessions) == 1


def test_a_configured_price_gives_dollars(world, clock):
    """`[prices]` names dollars where the agent records none."""
    talk = CachedConversation(clock.now)
    talk.user()
    talk.assistant()
    world.put("s.jsonl", talk.bytes())
    price = {"input": 4, "cache_read": 0.4, "cache_write": 6, "output": 20}

    raw = estimated(world, prices={"claude-*": price}).policies["raw"]
    assert raw.dollars == pytest.approx(raw.tokens_sent * 6 / 1e6)


def test_a_value_has_the_tokens_by_which_the_prompt_grew(world, clock, monkeypatch):
    """Not those of its length: here a token has six characters."""
    monkeypatch.setattr(cached_conversation, "RATE", 6)
    talk = CachedConversation(clock.now)
    talk.turn("v" * 9_000)
    talk.turn("w" * 100)
    talk.at += 1_000
    talk.turn("w" * 100)
    world.put("s.jsonl", talk.bytes())
    bills = estimated(world, min_reclaim=0).policies

    calls_after = 2
    saved = (bills["raw"].tokens_sent - bills["configured"].tokens_sent) / calls_after
    assert saved == pytest.approx(9_000 / 6, rel=0.1)


@pytest.mark.parametrize("agent", ["claude-code", "openclaw", "pi"])
def test_no_policy_makes_a_real_session_dearer(world, agent):
    """Over the samples, waiting for a cold cache never costs more; `pays` at most 1 % more."""
    found = estimate(
        world.settings(roots=[{"path": str(SAMPLES / agent)}], quiet="30s"), world.no_store, (),
        world.clock(),
    )  # fmt: skip

    assert found.sessions
    for one in found.sessions:
        raw = one.policies["raw"].tokens_paid
        assert one.policies["cold"].tokens_paid <= raw, one.session
        assert one.policies["configured"].tokens_paid <= 1.01 * raw, one.session
