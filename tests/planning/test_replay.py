"""A session replayed under other policies, compared with figures calculated by hand."""

import itertools
import sys

import pytest

from brainsurgeon.agents import FORMATS
from brainsurgeon.model.providers import Price
from brainsurgeon.model.records import Records
from brainsurgeon.model.rules import Rule, Rules
from brainsurgeon.model.turns import Compaction, ModelCall
from brainsurgeon.planning.calls import dollars_of
from brainsurgeon.planning.reasoning import lost
from brainsurgeon.planning.replay import (
    Prompted,
    Replay,
    ReplayedValue,
    Thought,
    bill,
    history,
    unpruned,
)
from building.format_reading import Reading
from building.world import Conversation


def call(at, tokens, cached, **more):
    written = more.pop("written", tokens - cached)
    return ModelCall(None, "claude", tokens, at, cached=cached, written=written, **more)


# Two calls; after a break of 80 s a third, to a warm cache; after 15 minutes a fourth.
VALUE = ReplayedValue(1, 3, 6_000)
CALLS = [
    call(10, 10_000, 0), call(20, 17_000, 10_000), call(110, 17_200, 17_000), call(1010, 17_400, 0),
]  # fmt: skip


def session(calls=CALLS, value=VALUE):
    first, second, third, fourth = calls
    return [
        Prompted(0, 0), first, value, second, Prompted(100, 10), third, Prompted(1000, 12), fourth,
    ]  # fmt: skip


def replay(when, events=None, rules=None, full=1e9):
    """Return the calls under a policy."""
    events = session() if events is None else events
    replayed = Replay(rules or Rules(()), when, Price(), quiet=30, full=full)
    return list(replayed.run(unpruned(events)))


def sizes(calls):
    return [(call.tokens, call.cached) for call in calls]


AT_ONCE = [(10_000, 0), (17_000, 10_000), (11_200, 10_000), (11_400, 0)]
WHEN_COLD = [(10_000, 0), (17_000, 10_000), (17_200, 17_000), (11_400, 0)]
# Written at 1.25, read at 0.1.
PAID = {None: 45_950, "always": 39_000, "pays": 39_000, "cold": 38_450}


@pytest.mark.parametrize(
    ("when", "expected"),
    [(None, sizes(CALLS)), ("always", AT_ONCE), ("pays", AT_ONCE), ("cold", WHEN_COLD)],
)
def test_extraction_breaks_the_cache_once_and_shortens_calls(when, expected):
    """The next call reads nothing after the value from the cache, unless the cache is cold."""
    calls = replay(when)

    assert sizes(calls) == expected
    assert bill(calls, Price(), None).tokens_paid == PAID[when]


@pytest.mark.parametrize(("written", "cached"), [((190, 300), 17_190), ((0, 0), 17_100)])
def test_second_call_after_an_extraction_reads_what_the_first_sent(written, cached):
    """That a few tokens at the end of a prompt are not cached is no reason to read less."""
    third = call(110, 17_200, 17_000, written=written[0])
    fourth = call(120, 17_500, cached, written=written[1])
    calls = replay("always", [*session()[:5], third, fourth])

    assert sizes(calls)[2:] == [(11_200, 10_000), (11_500, cached - 6_000)]
    assert [call.tokens - call.cached - call.written for call in calls[2:]] == [
        one.tokens - one.cached - one.written if one.written else new
        for one, new in ((third, 1_200), (fourth, 400))
    ]  # fmt: skip


def test_change_that_does_not_pay_waits_for_a_cold_cache():
    """With "pays", a small value before a long rest is extracted early only near the limit."""
    events = session(value=ReplayedValue(1, 3, 600))

    assert sizes(replay("pays", events))[2] == (17_200, 17_000)
    assert sizes(replay("pays", events))[3] == (16_800, 0)
    assert sizes(replay("pays", events, full=16_000))[2] == (16_600, 10_000)


@pytest.mark.parametrize(("written", "read"), [(200, 10_000), (0, 11_000)])
def test_call_reads_the_longest_unchanged_prefix(written, read):
    """A provider that counts cache writes caches whole prompts; others cache any prefix."""
    third, fourth = call(110, 18_000, 17_000), call(210, 18_200, 18_000, written=written)
    events = [*session([*CALLS[:2], third, fourth])[:-2], Prompted(200, 20), fourth]
    events.insert(4, ReplayedValue(3, 10, 500))

    assert sizes(replay("always", events)) == [
        (10_000, 0), (17_000, 10_000), (12_000, 10_000), (11_700, read),
    ]  # fmt: skip


def test_a_prompt_from_before_a_compaction_is_no_cached_prefix():
    """After a compaction that keeps the cached instructions, only newer prompts are prefixes."""
    long = [call(at, 10_000 * at, 10_000 * (at - 1)) for at in (2, 3, 4)]
    first, second = call(40, 9_000, 2_000), call(50, 16_000, 9_000)
    events = [
        Prompted(0, 0), *long, Compaction(), first, VALUE, second, Prompted(100, 10),
        call(110, 16_200, 16_000),
    ]  # fmt: skip

    assert sizes(replay("always", events))[-1] == (10_200, 9_000)


def test_unpruned_restores_the_calls_of_a_pruned_session():
    """The calls are those that the session would have made without extraction."""
    pruned = session(replay("always"), ReplayedValue(1, 3, 6_000, taken_at=50))

    assert [event for event in unpruned(pruned) if isinstance(event, ModelCall)] == CALLS


def test_replay_applies_recency_and_min_reclaim():
    """A replay extracts neither recent values nor less than `min_reclaim`."""
    recent = session(value=ReplayedValue(8, 3, 6_000))

    assert sizes(replay("always", recent))[2:] == [(17_200, 17_000), (11_400, 0)]
    assert sizes(replay("always", rules=Rules((), min_reclaim=0.4))) == sizes(CALLS)


@pytest.mark.parametrize(
    ("rules", "between", "keep"),
    [((), 10, 13), ((), 0, 3), ((Rule("tool_result", (), 500, 5),), 10, 5),
     ((Rule("tool_result", (), 500, 5),), 0, 3), ((Rule("tool_result", (), 500, 1),), 0, 1)],
)  # fmt: skip
def test_value_is_superseded_only_after_the_later_entry(rules, between, keep):
    """Before the later entry, a value is extracted as one that is not superseded."""
    talk, form = Conversation(), FORMATS["openclaw"]
    for call in "12":
        talk.call("exec", {"command": "ls"}, call)
        talk.result(call * 2000, "exec", call)
        talk.assistant()
        for _ in range(between):
            talk.user()
    session = Reading(form, talk.bytes())
    all_rules = Rules(rules, keep_recent=20, superseded=True)
    events = history(session.transcript, Records(), all_rules, session.parsed)

    assert next(event.keep for event in events if isinstance(event, ReplayedValue)) == keep


def test_thinking_waits_for_the_next_prompt():
    """Thinking of the last turn is not extracted right after it, however many messages follow."""
    events = session(value=ReplayedValue(1, 3, 6_000, fresh=True))

    assert sizes(replay("always", events)) == WHEN_COLD


@pytest.mark.parametrize(("third", "tokens"), [(17_200, 500), (15_000, 0)])
def test_reasoning_that_a_step_back_removed_is_not_lost_again(third, tokens):
    """A change loses the reasoning behind it, but not what a shorter prompt left out before."""
    first, second, _, fourth = CALLS
    events = [
        Prompted(0, 0), first, ReplayedValue(1, 11, 3_000), second, Thought(500),
        Prompted(100, 10), call(110, third, 10_000), Prompted(1000, 20), fourth,
    ]  # fmt: skip
    replayed = Replay(Rules(()), "always", Price(), quiet=30, full=1e9)
    replayed.run(unpruned(events))

    assert replayed.reasoning_lost == tokens


def test_reasoning_of_the_changed_line_itself_is_not_lost():
    """Only the reasoning in lines behind a change is lost."""
    assert lost([(100, 5), (200, 7), (300, 9)], 200) == 9


def busy(turns):
    """Return a session whose cache stays warm while each turn adds a value that is due."""
    events = []
    for turn in range(turns):
        tokens = 1_000 * (turn + 2)
        events += [ReplayedValue(turn, 1, 900), call(100 * turn, tokens, tokens - 1_000)]
        events += [Thought(20, tokens), Prompted(100 * turn + 50, turn)]
    return events


def steps(work):
    """Return how many calls of functions and steps of generators `work` takes."""
    counted = itertools.count()
    sys.setprofile(lambda *_: next(counted))
    try:
        work()
    finally:
        sys.setprofile(None)
    return next(counted)


def test_waiting_values_cost_no_time_at_each_prompt():
    """A replay of four times as many turns, whose values wait, takes four times as long."""
    short, long = ([*unpruned(busy(turns))] for turns in (200, 800))
    rules = Rules((), min_reclaim=0)

    assert steps(lambda: replay("cold", long, rules)) < 5 * steps(
        lambda: replay("cold", short, rules)
    )


def test_replay_forgets_extractions_at_a_new_context():
    """Nothing is subtracted after a compaction, or after the prompt shrank by itself."""
    short = call(1010, 5_000, 0)
    for events in ([*session()[:-1], Compaction(), short], [*session()[:-1], short]):
        assert sizes(replay("always", events))[-1] == (5_000, 0)


def test_price_is_recorded_or_known_or_unknown():
    """Recorded costs of prompts give dollars per input token, else the price of the model does."""
    priced = [call(1, 1_000, 1_000, cost=0.0003)]

    assert dollars_of(CALLS, Price()) is None
    assert dollars_of([*CALLS, *priced], Price()) == pytest.approx(3 / 1e6)
    assert dollars_of(priced, Price(input=5)) == pytest.approx(3 / 1e6)
    assert dollars_of(CALLS, Price(input=5)) == 5 / 1e6
    assert bill(priced, Price(), 3 / 1e6).cost_dollars == pytest.approx(0.0003)
    assert bill(priced, Price(), None).cost_dollars is None
