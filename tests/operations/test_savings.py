"""What extracting has saved so far, by the calls that sessions recorded afterwards."""

import pytest

from brainsurgeon.model.reports import Bill
from brainsurgeon.operations.status import status
from brainsurgeon.render import runs as render
from brainsurgeon.render.estimate import saved_so_far
from brainsurgeon.store import scan_memory
from building.cached_conversation import CachedConversation
from building.world import append, set_mtime


def so_far(world):
    """Give tokens not sent, input tokens not paid, and dollars."""
    total = world.store.savings.total()
    return total.tokens_sent, total.tokens_paid, total.dollars


@pytest.fixture
def talk(world, clock):
    """Give a session with an old result of 3,300 tokens, and a cache that is cold."""
    talk = CachedConversation(clock.now - 3600)
    talk.turn("x" * 10_000)
    talk.turn("short")
    world.put("s.jsonl", talk.bytes(), age=3600)
    return talk


def call(world, path, talk, clock, read, tokens):
    before = len(talk.lines)
    clock.now += 60
    talk.at = clock.now
    talk.user()
    talk.assistant()
    talk.lines[-1]["message"]["usage"] = {
        "input": 0, "output": 1, "cacheRead": read, "cacheWrite": tokens - read,
    }  # fmt: skip
    append(path, talk.lines[before:])
    set_mtime(path, clock.now)
    clock.now += 60


def test_each_call_after_a_run_saves_what_was_extracted(world, clock, path, talk):
    """Nothing before a call; then the tokens at the price at which each call had them."""
    world.scan()
    assert so_far(world) == (0, 0, None)
    off = world.store.savings.of(1).off
    assert off == pytest.approx(3_290, abs=30)

    call(world, path, talk, clock, 0, 10_000)  # cold: they would have been written
    world.scan()
    assert so_far(world) == (off, round(1.25 * off), None)
    call(world, path, talk, clock, 10_000, 10_100)  # warm: they would have been read
    world.scan()
    assert so_far(world)[:2] == (2 * off, round(1.35 * off))
    world.scan()
    assert so_far(world)[0] == 2 * off


def test_savings_count_however_many_sessions_a_run_reads(world, clock, talk, monkeypatch):
    """A session that waits for others is rewritten before its records are stored."""
    monkeypatch.setattr(scan_memory, "_MOST", 1)
    world.scan()

    assert world.store.savings.of(1).off == pytest.approx(3_290, abs=30)


def test_a_cache_that_was_broken_is_taken_off(world, clock, path, talk):
    """The first call after a run in a warm session writes again what it would have read."""
    call(world, path, talk, clock, 0, 13_300)
    world.scan(when="always")
    off = world.store.savings.of(1).off
    call(world, path, talk, clock, 9_000, 10_100)
    world.scan()

    # Without the run 13,300 tokens would have been read, and the rest written.
    without = 0.1 * 13_300 + 1.25 * (10_100 + off - 13_300)
    assert so_far(world)[1] == pytest.approx(without - 0.1 * 9_000 - 1.25 * 1_100, abs=1)
    assert so_far(world)[1] < 0


def test_a_cache_that_a_restore_broke_is_taken_off(world, clock, path, talk):
    """As by a run: the next call writes again what it would have read."""
    world.scan()
    call(world, path, talk, clock, 0, 10_000)
    world.scan()
    off, saved = world.store.savings.of(1).off, so_far(world)[1]
    world.restore_all()
    call(world, path, talk, clock, 9_000, 13_500)
    world.scan()

    without = 0.1 * (10_000 + off) + 1.25 * (3_500 - off)
    assert so_far(world)[1] - saved == pytest.approx(without - 0.1 * 9_000 - 1.25 * 4_500, abs=1)


def test_a_restored_value_saves_nothing_more(world, clock, path, talk):
    """What counts is what requests carry less when they are made."""
    world.scan()
    call(world, path, talk, clock, 0, 10_000)
    world.scan()
    saved = so_far(world)[0]
    world.restore_all()
    world.scan()
    call(world, path, talk, clock, 10_000, 13_400)
    world.scan()

    assert so_far(world)[0] == saved


def test_status_says_what_was_saved_and_that_it_is_an_estimate(world, clock, path, talk):
    """With dollars where a price is known."""
    world.scan()
    assert "\nso far" not in render.status(status(world.settings(), world.store, clock.now), 0)
    prices = {"*": {"input": 5, "cache_read": 0.5, "cache_write": 6.25, "output": 25}}
    call(world, path, talk, clock, 0, 10_000)
    world.scan(prices=prices)
    now = status(world.settings(), world.store, clock.now)

    assert now.saved_so_far.dollars == pytest.approx(1.25 * now.saved_so_far.tokens_sent * 5 / 1e6)
    [line] = [
        line for line in render.status(now, clock.now).splitlines() if line.startswith("so far")
    ]
    assert "an estimate" in line
    assert "$0.02" in line


def test_a_compaction_that_was_seen_ends_no_later_savings(world, clock, path, talk):
    """What is still extracted after it is saved by each call from then on."""
    world.scan()
    call(world, path, talk, clock, 0, 10_000)
    world.scan()
    saved = so_far(world)[0]
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
    call(world, path, talk, clock, 0, 10_000)
    world.scan()

    assert so_far(world)[0] == 2 * saved


def test_dollars_have_a_sign_of_their_own():
    """Tokens may be saved while the calls with a known price cost more."""
    line = saved_so_far(Bill(9_000, 0, 5_000, -0.5))

    assert "5,000 input tokens less ($0.50 more)" in line
