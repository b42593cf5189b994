"""Savings so far, by the calls that sessions recorded after an extraction."""

import pytest

from brainsurgeon.model.reports import Bill
from brainsurgeon.operations.status import status
from brainsurgeon.render import runs as render
from brainsurgeon.render.estimate import saved_so_far
from brainsurgeon.store import scan_memory
from building.cached_conversation import CachedConversation
from building.world import append, appending, set_mtime


def total_savings(world):
    """Return the tokens not sent, the input tokens not paid for, and the dollars."""
    total = world.store.savings.total()
    return total.tokens_sent, total.tokens_paid, total.cost_dollars


@pytest.fixture
def talk(world, clock):
    """Write a session with an old result of 3,300 tokens and an expired cache."""
    talk = CachedConversation(clock.now - 3600)
    talk.turn("x" * 10_000)
    talk.turn("short")
    world.put("s.jsonl", talk.bytes(), age=3600)
    return talk


def call_and_scan(world, path, talk, clock, read, tokens, **settings):
    """Append a call with a number of cached and of all input tokens a minute later, and scan."""
    clock.now += 60
    talk.at = clock.now
    with appending(path, talk):
        talk.user()
        talk.assistant()
        usage = {"input": 0, "output": 1, "cacheRead": read, "cacheWrite": tokens - read}
        talk.lines[-1]["message"]["usage"] = usage
    set_mtime(path, clock.now)
    clock.now += 60
    world.scan(**settings)


def test_each_call_after_a_scan_saves_the_extracted_tokens(world, clock, path, talk):
    """Each later call saves the tokens at the price of its cache; without a call none are saved."""
    world.scan()
    assert total_savings(world) == (0, 0, None)
    off = world.store.savings.of(1).off
    assert off == pytest.approx(3_290, abs=30)

    call_and_scan(world, path, talk, clock, 0, 10_000)  # cold: they would have been written
    # Five dollars for a million tokens.
    assert total_savings(world) == (off, round(1.25 * off), pytest.approx(1.25 * off * 5e-6))
    call_and_scan(world, path, talk, clock, 10_000, 10_100)  # warm: they would have been read
    assert total_savings(world)[:2] == (2 * off, round(1.35 * off))
    world.scan()
    assert total_savings(world)[0] == 2 * off


def test_savings_of_a_scan_whose_records_exceed_its_memory(world, clock, talk, monkeypatch):
    """A session that waits for others is rewritten before its records are stored."""
    monkeypatch.setattr(scan_memory, "_MOST", 1)
    world.scan()

    assert world.store.savings.of(1).off == pytest.approx(3_290, abs=30)


def test_savings_subtract_a_cache_invalidated_by_a_scan(world, clock, path, talk):
    """The call after a scan of a cached session pays again for what it would have read."""
    call_and_scan(world, path, talk, clock, 0, 13_300, when="always")
    off = world.store.savings.of(1).off
    call_and_scan(world, path, talk, clock, 9_000, 10_100)

    # Without the run 13,300 tokens would have been read, and the rest written.
    without = 0.1 * 13_300 + 1.25 * (10_100 + off - 13_300)
    assert total_savings(world)[1] == pytest.approx(without - 0.1 * 9_000 - 1.25 * 1_100, abs=1)
    assert total_savings(world)[1] < 0


def test_savings_subtract_a_cache_invalidated_by_a_restore(world, clock, path, talk):
    """The call after a restore pays again for what it would have read from the cache."""
    world.scan()
    call_and_scan(world, path, talk, clock, 0, 10_000)
    off, saved = world.store.savings.of(1).off, total_savings(world)[1]
    world.restore_all()
    call_and_scan(world, path, talk, clock, 9_000, 13_500)

    without = 0.1 * (10_000 + off) + 1.25 * (3_500 - off)
    expected = without - 0.1 * 9_000 - 1.25 * 4_500
    assert total_savings(world)[1] - saved == pytest.approx(expected, abs=1)


def test_restored_value_saves_nothing_more(world, clock, path, talk):
    """Calls after a restore add nothing to the savings."""
    world.scan()
    call_and_scan(world, path, talk, clock, 0, 10_000)
    saved = total_savings(world)[0]
    world.restore_all()
    world.scan()
    call_and_scan(world, path, talk, clock, 10_000, 13_400)

    assert total_savings(world)[0] == saved


def test_status_shows_the_savings_as_an_estimate(world, clock, path, talk):
    """After a call `status` shows the savings as an estimate, in dollars if a price is known."""
    world.scan()
    assert "\nso far" not in render.status(status(world.settings(), world.store, clock.now), 0)
    prices = {"*": {"input": 5, "cache_read": 0.5, "cache_write": 6.25, "output": 25}}
    call_and_scan(world, path, talk, clock, 0, 10_000, prices=prices)
    now = status(world.settings(), world.store, clock.now)

    assert now.tokens.saved_so_far.cost_dollars == pytest.approx(
        1.25 * now.tokens.saved_so_far.tokens_sent * 5 / 1e6
    )
    lines = render.status(now, clock.now).splitlines()
    [line] = [line for line in lines if line.startswith("so far")]
    assert "an estimate" in line
    assert "$0.02" in line


def test_savings_continue_after_a_compaction(world, clock, path, talk):
    """Values still extracted after a compaction are saved by each later call."""
    world.scan()
    call_and_scan(world, path, talk, clock, 0, 10_000)
    saved = total_savings(world)[0]
    talk.at = clock.now
    talk.entry(
        "compaction",
        firstKeptEntryId=next(line["id"] for line in talk.lines if line["type"] == "message"),
        summary="short",
        tokensBefore=1,
    )
    append(path, talk.lines[-1:])
    set_mtime(path, clock.now)
    clock.now += 60
    world.scan()
    call_and_scan(world, path, talk, clock, 0, 10_000)

    assert total_savings(world)[0] == 2 * saved


def test_saved_tokens_may_cost_more_dollars():
    """Tokens may be saved while the calls with a known price cost more."""
    line = saved_so_far(Bill(9_000, 0, 5_000, -0.5))

    assert "5,000 input tokens less ($0.50 more)" in line
