"""`estimate`: what the recorded calls of sessions would have cost under each policy."""

import json

import pytest

from brainsurgeon.model.reports import POLICIES
from brainsurgeon.operations.estimate import estimate
from brainsurgeon.render import estimate as render
from building import cached_conversation
from building.cached_conversation import CachedConversation
from building.world import SAMPLES, copy_tree, file_states


def estimate_policies(world, *names, **keys):
    return estimate(world.settings(**keys), world.no_store, names, world.clock())


def test_estimate_raw_equals_the_recorded_usage(world):
    """`raw` has the recorded tokens and dollars; other policies cost less; nothing is written."""
    world.copy("pi", "large-session.derived-v3.jsonl", name="s.jsonl")
    before = file_states(world.base, directories=True)
    report = estimate_policies(world)

    lines = map(json.loads, (world.directory / "s.jsonl").read_bytes().splitlines())
    usages = [
        line["message"]["usage"] for line in lines
        if line.get("message", {}).get("role") == "assistant"
        and line["message"]["stopReason"] not in ("error", "aborted")
    ]  # fmt: skip
    raw = report.policies["raw"]
    assert raw.tokens_sent == sum(
        usage[key] for usage in usages for key in ("input", "cacheRead", "cacheWrite")
    )
    assert raw.tokens_cached == sum(usage["cacheRead"] for usage in usages)
    assert raw.cost_dollars == pytest.approx(sum(
        usage["cost"][key] for usage in usages for key in ("input", "cacheRead", "cacheWrite")
    ))  # fmt: skip
    assert file_states(world.base, directories=True) == before
    for name in POLICIES[1:]:
        assert report.policies[name].cost_dollars < raw.cost_dollars * 0.6


def test_estimate_counts_a_session_once_that_is_named_twice(world):
    """Its names may differ."""
    world.copy("pi", "large-session.derived-v3.jsonl", name="s.jsonl")

    assert estimate_policies(world, "main/s", "s") == estimate_policies(world, "main/s")


def test_estimate_leaves_out_sessions_without_usage(world, conversation, clock):
    """Sessions left out are counted; without prices the report has no dollars."""
    left_out = "1 session left out: without usage, gone, or unreadable"
    assert "no session" in render.estimate(estimate_policies(world))
    conversation.turn()
    world.put("one.jsonl", conversation.bytes())
    assert render.estimate(estimate_policies(world)) == f"no estimate; {left_out}"
    for name in ("two", "three"):
        talk = CachedConversation(clock.now, session=name)
        talk.user()
        talk.assistant()
        talk.lines[-1]["message"]["model"] = "house-1"
        world.put(f"{name}.jsonl", talk.bytes())
    report = estimate_policies(world)

    assert report.sessions_left_out == 1
    assert [session.calls for session in report.sessions] == [1, 1]
    text = render.estimate(report)
    assert f"2 calls of 2 sessions; {left_out}" in text
    assert "dollars" not in text
    assert render.estimate_json(report)["policies"][0]["cost_dollars"] is None
    assert len(estimate_policies(world, "main/two").sessions) == 1


def test_estimate_uses_configured_prices(world, clock):
    """`[prices]` yields dollars where the agent recorded none."""
    talk = CachedConversation(clock.now)
    talk.user()
    talk.assistant()
    world.put("s.jsonl", talk.bytes())
    price = {"input": 4, "cache_read": 0.4, "cache_write": 6, "output": 20}

    raw = estimate_policies(world, prices={"claude-*": price}).policies["raw"]
    assert raw.cost_dollars == pytest.approx(raw.tokens_sent * 6 / 1e6)


def test_estimate_takes_tokens_from_the_growth_of_prompts(world, clock, monkeypatch):
    """A value's tokens are not derived from its length: here a token has six characters."""
    monkeypatch.setattr(cached_conversation, "RATE", 6)
    talk = CachedConversation(clock.now)
    talk.turn("v" * 9_000)
    talk.turn("w" * 100)
    talk.at += 1_000
    talk.turn("w" * 100)
    world.put("s.jsonl", talk.bytes())
    bills = estimate_policies(world, min_reclaim=0).policies

    calls_after = 2
    saved = (bills["raw"].tokens_sent - bills["configured"].tokens_sent) / calls_after
    assert saved == pytest.approx(9_000 / 6, rel=0.1)


@pytest.mark.parametrize("agent", ["claude-code", "openclaw", "pi"])
def test_estimate_of_real_sessions_shows_no_dearer_policy(world, agent):
    """Over the samples `cold` never costs more than `raw`, `pays` at most 1 % more."""
    report = estimate(
        world.settings(roots=[{"path": str(SAMPLES / agent)}], quiet="30s"), world.no_store, (),
        world.clock(),
    )  # fmt: skip

    assert report.sessions
    for session in report.sessions:
        raw = session.policies["raw"].tokens_paid
        assert session.policies["cold"].tokens_paid <= raw, session.session
        assert session.policies["configured"].tokens_paid <= 1.01 * raw, session.session


@pytest.mark.parametrize("sample", ["pi/large-session.derived-v3.jsonl", "claude-code", "openclaw"])
@pytest.mark.parametrize("profile", [None, "lean"])
def test_estimate_is_the_same_before_and_after_a_scan(world, sample, profile):
    """Extracted values count with their sizes, even if no request contained them any more."""
    source = SAMPLES / sample
    if source.is_file():
        world.copy(*sample.split("/"), name="s.jsonl")
    else:
        copy_tree(source, world.root)
    keys = {"profile": profile} if profile else {}
    before = estimate(world.settings(**keys), world.store, (), world.clock())
    assert world.scan(when="always", **keys).values_extracted > 0
    after = estimate(world.settings(**keys), world.store, (), world.clock())

    assert before.sessions
    assert after == before


def test_values_before_a_compaction_count_after_a_scan(world, clock):
    """They were sent until the compaction, and have no recorded size: no request has them now."""
    talk = CachedConversation(clock.now - 9_000)
    for number in range(12):
        talk.turn("x" * 9_000, call=f"call_{number}")
        talk.at += 600
    kept = talk.user("go on")
    talk.entry("compaction", summary="so it was", firstKeptEntryId=kept, tokensBefore=9)
    talk.assistant()
    world.put("s.jsonl", talk.bytes())
    before = estimate(world.settings(), world.store, (), world.clock())
    world.scan(when="always")
    after = estimate(world.settings(), world.store, (), world.clock())
    raw, configured = (before.policies[name].tokens_sent for name in ("raw", "configured"))

    assert configured < 0.9 * raw
    assert {value.tokens for value in world.store.extractions.contained_in(1)} == {0}
    assert after == before
