"""Waiting for a cold prompt cache, and the prices that decide it."""

from datetime import UTC, datetime

import pytest

from brainsurgeon.formats import FORMATS
from brainsurgeon.model.plans import Plan
from brainsurgeon.model.records import Records
from brainsurgeon.model.rules import Price
from brainsurgeon.model.sessions import NO_SURVEY
from brainsurgeon.model.text import parse_time
from brainsurgeon.model.turns import ModelCall
from brainsurgeon.planning.budget import measure
from brainsurgeon.planning.cache import LIFE, LONG_LIFE, Break, Cache, Usage, due, price_of, read
from brainsurgeon.planning.calls import calls_in, load_of, newest_calls
from building.format_reading import open_lines
from building.world import Conversation

NOW, LATER = 1000.0, 1200.0
CLAUDE = Price()
# Three calls a turn: six calls ahead read a saved token for 0.6 of a token's price.
WARM = Cache(LATER, 3)
PAYS, DEAR = Break(20_000, 10_000), Break(20_000, 11_000)


@pytest.mark.parametrize(
    ("when", "cache", "change", "expected"),
    [
        ("pays", WARM, PAYS, None),  # 12,000 saved, 11,500 written again
        ("pays", WARM, DEAR, LATER),  # 12,650 written again
        ("pays", Cache(LATER, 6), DEAR, None),  # more calls to come
        ("pays", Cache(LATER, 3, hour=True), PAYS, LATER),  # writing costs 1.9 more
        ("pays", Cache(None, 3), DEAR, None),  # no caching
        ("pays", Cache(NOW, 3), DEAR, None),  # just cold
        ("pays", WARM, Break(20_000, 0), None),  # nothing follows the first change
        ("cold", WARM, PAYS, LATER),
        ("cold", WARM, Break(20_000, 0), None),
        ("cold", Cache(NOW, 3), DEAR, None),
        ("always", WARM, DEAR, None),
    ],
)  # fmt: skip
def test_due_waits_for_a_cold_cache_unless_the_change_pays(when, cache, change, expected):
    """The tokens saved in two turns are compared with those that have to be written again."""
    assert due(when, cache, change, CLAUDE, NOW) == expected


@pytest.mark.parametrize(
    ("model", "read", "write", "hour"),
    [
        ("claude-opus-5-5", 0.1, 1.25, 2.0), ("us.anthropic.Claude-sonnet-4-5", 0.1, 1.25, 2.0),
        ("gpt-5.3-codex", 0.1, 1.0, 1.0), ("gpt-4o-mini", 0.5, 1.0, 1.0),
        ("openai/gpt-4.1", 0.25, 1.0, 1.0), ("o3", 0.25, 1.0, 1.0),
        ("openai/o4-mini", 0.25, 1.0, 1.0), ("o3-mini-2025-01-31", 0.5, 1.0, 1.0),
        ("mock-1", 0.1, 1.25, 2.0), (None, 0.1, 1.25, 2.0),
    ],
)  # fmt: skip
def test_cache_price_depends_on_the_model(model, read, write, hour):
    """A read costs a share of an input token; only Claude's writes cost more than one."""
    price = price_of(model)

    assert (price.read, price.of_write(hour=False), price.of_write(hour=True)) == (
        read, write, hour
    )  # fmt: skip


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
    form = FORMATS["openclaw"]
    with open_lines(talk.bytes()) as lines:
        survey, records = form.survey(lines, 3), Records((), frozenset())
        cache, _ = read(lines, form, survey, Plan(), records, answered + 3600)
        measured = measure(lines, form, survey, records)

        assert cache.warm_until == answered + 9 * 60 + LIFE
        assert load_of(lines, form, survey) == 9210
        assert (measured.last.at, len(measured.calls)) == (answered, 1)
        assert len(list(calls_in(lines.backward(), form))) == 3


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


def test_a_configured_price_takes_precedence():
    """The price of the first glob that matches, in any case, replaces the built-in one."""
    house = Price(0.2, 1.0, 1.0, 3.0)

    assert price_of("HOUSE-claude-1", [("House-*", house)]) == house
    assert price_of("claude-1", [("House-*", house)]) == CLAUDE


def test_newest_calls_stops_after_fifty_replies_without_usage():
    """A session whose agent records no usage is not read to its beginning."""
    talk = Conversation()
    talk.turn()
    talk.lines[-1]["message"]["usage"] = {"input": 9, "output": 1}
    for _ in range(60):
        talk.turn()
    read_lines = []

    def newest_first(lines):
        for line in lines.backward():
            read_lines.append(line)
            yield line

    with open_lines(talk.bytes()) as lines:
        assert list(newest_calls(newest_first(lines), FORMATS["openclaw"])) == []
        assert len(read_lines) < len(talk.lines)
        assert load_of(lines, FORMATS["openclaw"], NO_SURVEY) == 0
