"""Waiting for a cold prompt cache, and the prices that decide it."""

from datetime import UTC, datetime

import pytest

from brainsurgeon.agents import FORMATS
from brainsurgeon.model.plans import Plan
from brainsurgeon.model.providers import LIFE, LONG_LIFE, Price, known
from brainsurgeon.model.records import Records
from brainsurgeon.model.text import parse_time
from brainsurgeon.model.turns import ModelCall
from brainsurgeon.planning.budget import measure
from brainsurgeon.planning.cache import Break, Cache, Usage, due, read
from brainsurgeon.planning.calls import calls_in, last_call, newest_calls
from building.format_reading import Reading
from building.world import Conversation

NOW, LATER = 1000.0, 1200.0
CLAUDE = Price()
# Fifteen calls ahead read a saved token for 1.5 of a token's price.
WARM = Cache(LATER, 15)
PAYS, DEAR = Break(8_000, 10_000), Break(8_000, 11_000)


@pytest.mark.parametrize(
    ("when", "cache", "change", "expected"),
    [
        ("pays", WARM, PAYS, None),  # 12,000 saved, 11,500 written again
        ("pays", WARM, DEAR, LATER),  # 12,650 written again
        ("pays", Cache(LATER, 16), DEAR, None),  # warm for longer
        ("pays", Cache(LATER, 14), PAYS, LATER),
        ("pays", Cache(LATER, 15, hour=True), PAYS, LATER),  # writing costs 1.9 more
        ("pays", Cache(None, 15), DEAR, None),  # no caching
        ("pays", Cache(NOW, 15), DEAR, None),  # just cold
        ("pays", WARM, Break(8_000, 0), None),  # nothing follows the first change
        ("cold", WARM, PAYS, LATER),
        ("cold", WARM, Break(8_000, 0), None),
        ("cold", Cache(NOW, 15), DEAR, None),
        ("always", WARM, DEAR, None),
    ],
)  # fmt: skip
def test_due_waits_for_a_cold_cache_unless_the_change_pays(when, cache, change, expected):
    """A change must pay within as many calls as were made since the cache was cold."""
    assert due(when, cache, change, CLAUDE, NOW) == expected


@pytest.mark.parametrize(
    ("read", "rewritten"), [(0.1, 10_434), (0.05, 2_500), (0.025, 612), (0.5, 80_000)]
)
def test_the_cheaper_reads_are_the_sooner_a_change_must_pay(read, rewritten):
    """It must pay within half of the calls if a read costs 0.05, and a quarter at 0.025."""
    assert due("pays", WARM, Break(8_000, rewritten - 1), Price(read), NOW) is None
    assert due("pays", WARM, Break(8_000, rewritten + 1), Price(read), NOW) == LATER


def test_a_prompt_is_brought_below_the_line_above_which_it_is_dearer():
    """Above 100,000 tokens, Haiku 5.5 costs five times as much: a small saving pays then."""
    haiku = known("claude-haiku-5-5").price

    assert due("pays", WARM, Break(2_000, 30_000, 101_000), haiku, NOW) is None
    assert due("pays", WARM, Break(2_000, 30_000, 102_001), haiku, NOW) == LATER
    assert due("pays", WARM, Break(2_000, 30_000, 99_000), haiku, NOW) == LATER


def warmed(*minutes):
    """Return pi's session of one turn whose cache was kept warm, and the time of its answer."""
    talk = Conversation()
    talk.user("go on")
    talk.assistant("done")
    usage = {"input": 10, "output": 200, "cacheRead": 0, "cacheWrite": 9000}
    talk.lines[-1]["message"] |= {"usage": usage, "model": "claude-opus-4-5"}
    answered = parse_time(talk.lines[-1]["timestamp"])
    for minute in minutes:
        talk.entry("usage", provider="anthropic", model="claude-opus-4-5")
        talk.lines[-1] |= {
            "kind": "cache_warm",
            "timestamp": datetime.fromtimestamp(answered + 60 * minute, UTC).isoformat(),
            "usage": {"input": 10, "output": 1, "cacheRead": 9000, "cacheWrite": 0,
                      "cost": {"total": 0.01}},
        }  # fmt: skip
    return talk, answered


def test_calls_that_keep_the_cache_warm_count_for_warmth_and_money_alone():
    """The cache lives on after the newest; load and last answer are those of the turn."""
    talk, answered = warmed(4.5, 9)
    session, records = Reading(FORMATS["openclaw"], talk.bytes()), Records((), frozenset())
    transcript = session.transcript
    cache, _ = read(transcript, Plan(), records, answered + 3600)
    measured = measure(transcript, records, session.parsed)

    assert cache.warm_until == answered + 9 * 60 + LIFE
    assert last_call(transcript).load == 9210
    assert (measured.last.at, len(measured.calls)) == (answered, 1)
    assert len(list(calls_in(transcript.entries, transcript.form))) == 3


def test_calls_are_counted_since_the_cache_was_cold():
    """A pause longer than the cache's life begins the count anew; without calls it is 0."""
    usage, counts = Usage(), [Usage().cache(NOW).calls]
    for at in (0.0, 60.0, 120.0, 121.0 + LIFE, 180.0 + LIFE):
        usage.called(ModelCall(None, "m", 100, at, cached=90, written=9))
        counts.append(usage.cache(at).calls)

    assert counts == [0, 1, 2, 3, 1, 2]


@pytest.mark.parametrize(
    ("hours", "expected"),
    [([True, False], LIFE), ([False, True], LONG_LIFE), ([True, None], LONG_LIFE)],
)
def test_life_of_a_cache_is_that_of_its_newest_record(hours, expected):
    """Five minutes and an hour mix within a session; reading alone does not change the life."""
    usage = Usage()
    for hour in hours:
        usage.called(ModelCall(None, "m", 100, 5.0, cached=90, written=9 if hour is not None else 0,
                               hour=bool(hour)))  # fmt: skip

    assert usage.cache(5.0).warm_until == 5.0 + expected


def test_newest_calls_stops_after_fifty_replies_without_usage():
    """A session whose agent records no usage is not read to its beginning."""
    talk = Conversation()
    talk.turn()
    talk.lines[-1]["message"]["usage"] = {"input": 9, "output": 1}
    for _ in range(60):
        talk.turn()
    transcript = Reading(FORMATS["openclaw"], talk.bytes()).transcript
    newest_first = reversed(transcript.entries)

    assert list(newest_calls(newest_first)) == []
    assert next(newest_first).line > 0
    assert last_call(transcript) is None
