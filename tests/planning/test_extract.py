"""The decision about one value: extract it or keep it, by the first rule that applies."""

import itertools
import time
from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

from brainsurgeon.agents import FORMATS
from brainsurgeon.formats.marks import marks_in, placeholder_at
from brainsurgeon.model.entries import KINDS, OLD, Value
from brainsurgeon.model.rules import Rule, Rules
from brainsurgeon.model.session_files import BEFORE_COMPACTION, OFF_BRANCH
from brainsurgeon.model.transcript import Entry
from brainsurgeon.planning.rules import (
    EntryState,
    Extract,
    Keep,
    decision_on,
    read_restored,
    state_of,
)
from building.format_reading import snapshot
from building.world import dump

NOW = datetime(2026, 2, 20, 12, tzinfo=UTC).timestamp()
PLACEHOLDER = "[[extracted-a1]]"
RECORDED = "b3"  # the id in a placeholder of the entry that has another entry's id
RULES = Rules(
    rules=(Rule("tool_result", (), 500, 3), Rule("thinking", (), 500, 3)), keep_after_restore=600.0
)
PART = Value(("message", "content", 0, "text"), "tool_result", 501, tool="exec")
ENTRY = EntryState("a1", 3, names=frozenset({RECORDED}))


def decide(part=PART, name=None, rules=RULES, now=NOW, **state):
    """Decide about a value that is extracted by default."""
    return decision_on(part, name, replace(ENTRY, **state), rules, now)


def test_old_long_value_of_a_trigger_kind_is_extracted():
    """An old, long value of a trigger kind is extracted; the reason gives length and position."""
    assert decide() == Extract("tool_result of 501 characters, 3 messages back")
    assert decide(position=OLD) == Extract("tool_result of 501 characters, old")
    assert decide(replace(PART, chars=40_960), position=7) == Extract(
        "tool_result of 40,960 characters, 7 messages back"
    )


# Dead parts and entries.

UNSENT = replace(PART, kind="assistant", tool=None, dead=True)


@pytest.mark.parametrize("kind", KINDS)
def test_dead_part_of_any_kind_is_extracted(kind):
    """A part that only the agent's screen shows needs no rule for its kind."""
    part = replace(UNSENT, kind=kind)

    assert decide(part) == Extract(f"{kind} of 501 characters, never sent")
    assert decide(part, dead=BEFORE_COMPACTION) == decide(part)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"position": 2}, "recent"),
        ({"extractable": 5}, "recent by its _extractable"),
        ({"extractable": False}, "pinned"),
        ({"restored_at": NOW - 1}, "restored, and kept until 2026-02-20T12:10Z"),
        ({"part": replace(UNSENT, chars=500)}, "short"),
        ({"part": replace(UNSENT, locked="x")}, "not extractable: x"),
    ],
)
def test_dead_part_is_kept_for_every_reason_but_its_kind(changes, reason):
    """The screen shows recent values; pins, protection, lengths and locks apply as always."""
    assert decide(**{"part": UNSENT, **changes}).reason == reason


@pytest.mark.parametrize("why", [OFF_BRANCH, BEFORE_COMPACTION])
def test_value_of_a_dead_entry_is_extracted_at_any_position(why):
    """The entry may become live again, so only kinds with a rule are extracted."""
    reason_dead = f"tool_result of 501 characters, {why}"

    assert decide(position=0, extractable=9, dead=why) == Extract(reason_dead)
    assert (
        decide(replace(PART, kind="assistant"), dead=why).reason == "no rule for this kind or tool"
    )
    assert decide(replace(PART, chars=500), dead=why).reason == "short"
    assert decide(extractable=False, dead=why).reason == "pinned"


def test_shortest_is_the_least_length_that_is_extractable():
    """`shortest` is the length up to which no rule extracts a value."""
    assert RULES.shortest == 500
    assert replace(RULES, min_value_length=20).shortest == 20
    assert replace(RULES, giant=90).shortest == 90
    assert Rules(rules=()).shortest == 0


# The table of conditions in order, each with the fields that make it true.

SIGNED = "thinking signed by its provider"
TABLE = (
    ("rules", {"enabled": False}, "disabled"),
    ("entry", {"entry_id": None}, "not extractable: the entry has no usable id"),
    ("part", {"locked": SIGNED}, f"not extractable: {SIGNED}"),
    ("name", "a1", "already extracted"),
    ("entry", {"extractable": False}, "pinned"),
    ("entry", {"extractable": True}, None),
    ("entry", {"restored_at": NOW - 60}, "restored, and kept until 2026-02-20T12:09Z"),
    ("entry", {"extractable": 4}, "recent by its _extractable"),
    ("entry", {"position": 2}, "recent"),
    ("part", {"kind": "assistant", "tool": None}, "no rule for this kind or tool"),
    ("part", {"chars": 500}, "short"),
)


def outcome(rows):
    case = {"part": PART, "name": None, "entry": ENTRY, "rules": RULES}
    for name, change, _ in rows:
        case[name] = change if name == "name" else replace(case[name], **change)
    return decision_on(case["part"], case["name"], case["entry"], case["rules"], NOW)


def reason(decision):
    return None if isinstance(decision, Extract) else decision.reason


@pytest.mark.parametrize("number", range(1, len(TABLE) + 1))
def test_first_condition_of_the_table_decides(number):
    """For every set of conditions that hold together, the first one gives the reason."""
    for rows in itertools.combinations(TABLE, number):
        if sum("extractable" in change for _, change, _ in rows) < 2:
            (_, _, expected), decision = rows[0], outcome(rows)
            assert reason(decision) == expected
            assert isinstance(decision, Extract) is (expected is None)


def test_forced_extraction_is_marked_and_names_its_field():
    """`_extractable: true` overrides position, length and gain."""
    decision = decide(replace(PART, chars=1), position=0, extractable=True)

    assert decision == Extract(
        "tool_result of 1 characters, 0 messages back, forced by _extractable", forced=True
    )


# Windows.


@pytest.mark.parametrize(
    ("window", "position", "why"),
    [
        (0, 0, None),
        (1, 0, "recent by its _extractable"),
        (1, 1, None),
        (5, 3, "recent by its _extractable"),
        (5, 4, "recent by its _extractable"),
        (5, 5, None),
        (5, OLD, None),
    ],
)
def test_extractable_number_replaces_keep_recent(window, position, why):
    """`_extractable: N` keeps N messages instead of `keep_recent`; 0 and 1 are no booleans."""
    decision = decide(extractable=window, position=position)

    assert reason(decision) == why
    assert getattr(decision, "forced", False) is False
    assert reason(decide(replace(PART, chars=1), extractable=window, position=5)) == "short"


@pytest.mark.parametrize(
    ("ago", "decision"),
    [
        (0, Keep("restored, and kept until 2026-02-20T12:10Z", until=NOW + 600)),
        (599, Keep("restored, and kept until 2026-02-20T12:01Z", until=NOW + 1)),
        (599.5, Keep("restored, and kept until 2026-02-20T12:01Z", until=NOW + 0.5)),
        (600, Extract("tool_result of 501 characters, 3 messages back")),
        (601, Extract("tool_result of 501 characters, 3 messages back")),
        (-30, Keep("restored, and kept until 2026-02-20T12:11Z", until=NOW + 630)),
    ],
)
def test_protection_of_a_restored_value_ends_on_time(ago, decision):
    """A restored value is kept for exactly `keep_after_restore_seconds`, and `until` says so."""
    assert decide(restored_at=NOW - ago) == decision


def test_zero_keep_after_restore_protects_nothing():
    """With `keep_after_restore_seconds = 0` a restored value is extracted at once."""
    rules = replace(RULES, keep_after_restore=0.0)

    assert isinstance(decide(rules=rules, restored_at=NOW), Extract)


def test_redacted_entry_is_not_extracted():
    """A redacted entry is kept, even with `_extractable: true`."""
    assert reason(decide(redacted=True, extractable=True)) == "not extractable: redacted"


@pytest.mark.parametrize(
    ("value", "own"),
    [
        (PLACEHOLDER, True),
        ({"type": "text", "text": PLACEHOLDER}, True),
        (f"{PLACEHOLDER} ", False),
        (f"it says {PLACEHOLDER}", False),
        ("[[extracted-a1~2]]", True),
        ("[[extracted-b2]]", False),
        (f"[[extracted-{RECORDED}]]", True),
        ({"type": "text", "text": "[[extracted-b2]]"}, False),
        ({"type": "text", "text": PLACEHOLDER, "more": 1}, False),
        ({"type": "text"}, False),
        ([PLACEHOLDER], False),
        (None, False),
        ("", False),
    ],
)
def test_only_the_entrys_own_placeholder_counts_as_extracted(value, own):
    """The whole value is the placeholder, as a string or as a text block."""
    line = {"x": value}
    entry = Entry(0, marks=marks_in(dump(line), line, (), has_emptied=False))
    name = placeholder_at(entry, ("x",))

    assert reason(decide(name=name)) == ("already extracted" if own else None)


# The entry's own fields.


def state_with(**fields):
    """Return the state of an entry with these fields."""
    line = {"type": "message", "id": "a1", "message": {"role": "user", "content": "x"}, **fields}
    return state_of(snapshot(FORMATS["openclaw"], dump(line)), RULES, 0)


@pytest.mark.parametrize("value", [True, False, 0, 1, 3, 10**18])
def test_extractable_accepts_booleans_and_whole_numbers(value):
    """`_extractable` is returned unchanged if it is a boolean or a whole number."""
    state = state_with(_extractable=value)

    assert repr(state.extractable) == repr(value)
    assert state.warnings == ()


@pytest.mark.parametrize("value", ["true", "3", "", -1, 1.0, 0.5, None, [], {}, [True]])
def test_other_extractable_is_ignored_with_a_warning(value):
    """A string, a negative number, a fraction, null or a structure has no effect."""
    state = state_with(_extractable=value)

    assert state.extractable is None
    assert state.warnings == (
        "entry a1: _extractable is ignored: it must be true, false or a whole number of at least 0",
    )


def test_absent_fields_give_no_override_and_no_warning():
    """An entry without `_extractable` and `_restored` is decided by the rules."""
    state = state_with()

    assert (state.extractable, state.warnings) == (None, ())
    assert read_restored({}, RULES, NOW) == (None, None)


@pytest.mark.parametrize(
    ("text", "ago"),
    [
        ("2026-02-20T11:55:00Z", 300),
        ("2026-02-20T11:55:00", 300),
        ("2026-02-20 11:55:00+00:00", 300),
        ("2026-02-20T12:55:00+01:00", 300),
        ("2026-02-20T11:54:59.500Z", 300.5),
        ("20260220T115500Z", 300),
        ("2026-02-20", 43_200),
        ("2026-02-20T12:10:00Z", -600),
        ("0001-01-01T00:00:00Z", NOW - datetime(1, 1, 1, tzinfo=UTC).timestamp()),
    ],
)
def test_restored_accepts_iso_times(text, ago):
    """A time without a zone is UTC; a future time counts within the protection's length."""
    assert read_restored({"_restored": text}, RULES, NOW) == (NOW - ago, None)


def test_restored_without_a_zone_is_utc_in_any_local_zone(monkeypatch):
    """`_restored` without a zone is UTC, whatever the time zone of the machine."""
    monkeypatch.setenv("TZ", "Pacific/Auckland")
    time.tzset()
    try:
        assert read_restored({"_restored": "2026-02-20T11:55:00"}, RULES, NOW) == (NOW - 300, None)
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize(
    ("value", "warning"),
    [
        ("yesterday", "_restored is not an ISO 8601 time: ignored"),
        ("", "_restored is not an ISO 8601 time: ignored"),
        ("2026-02-30T00:00:00Z", "_restored is not an ISO 8601 time: ignored"),
        (None, "_restored is not an ISO 8601 time: ignored"),
        (1_771_588_800, "_restored is not an ISO 8601 time: ignored"),
        (True, "_restored is not an ISO 8601 time: ignored"),
        (["2026-02-20T11:55:00Z"], "_restored is not an ISO 8601 time: ignored"),
        ("2026-02-20T12:10:01Z", "_restored lies in the future: ignored"),
        ("9999-12-31T23:59:59-23:59", "_restored lies in the future: ignored"),
    ],
)
def test_other_restored_is_ignored_with_a_warning(value, warning):
    """An invalid `_restored`, or one beyond the protection's length ahead, protects nothing."""
    assert read_restored({"_restored": value}, RULES, NOW) == (None, warning)


# Rules.


LONG_FORM = Rules(
    rules=(
        Rule("tool_result", ("read",), 10_000, 8),
        Rule("tool_result", ("web_*", "exec?"), 100, 1),
        Rule("tool_result", (), 500, 3),
        Rule("tool_result", ("exec",), 1, 0),
        Rule("thinking", ("*",), 50, 2),
    ),
    keep_recent=5,
)


@pytest.mark.parametrize(
    ("kind", "tool", "length", "window"),
    [
        ("tool_result", "read", 10_000, 8),
        ("tool_result", "web_fetch", 100, 1),
        ("tool_result", "exec2", 100, 1),
        ("tool_result", "exec", 500, 3),
        ("tool_result", "READ", 500, 3),
        ("tool_result", "reader", 500, 3),
        ("tool_result", None, 500, 3),
        ("thinking", None, 50, 2),
    ],
)
def test_first_matching_rule_gives_length_and_window(kind, tool, length, window):
    """A rule matches by its kind and the globs for the tool, in exact case."""
    part = replace(PART, kind=kind, tool=tool)

    def why(chars, position):
        return reason(decide(replace(part, chars=chars), rules=LONG_FORM, position=position))

    assert why(length, window) == "short"
    assert why(length + 1, window) is None
    assert why(length + 1, window - 1) == "recent"


def test_value_without_a_rule_is_recent_or_not_a_trigger():
    """A value without a rule is recent within `keep_recent`, and beyond that not a trigger."""
    part = replace(PART, kind="user", tool=None)

    assert reason(decide(part, rules=LONG_FORM, position=4)) == "recent"
    assert reason(decide(part, rules=LONG_FORM, position=5)) == "no rule for this kind or tool"


def test_window_of_the_rules_is_the_largest_of_all():
    """The survey looks as far back as the largest `keep_recent` of the rules."""
    assert LONG_FORM.kept_messages == 8
    assert Rules((), keep_recent=4).kept_messages == 4
    assert Rules((Rule("user", (), 1, 2),), keep_recent=0).kept_messages == 2


@pytest.mark.parametrize(
    ("globs", "tool", "why"),
    [
        (("exec",), "exec", "excluded tool"),
        (("web_*", "ex*"), "exec", "excluded tool"),
        (("exec",), "execute", None),
        (("Exec",), "exec", None),
        (("*",), None, None),
        ((), "exec", None),
    ],
)
def test_excluded_tool_keeps_its_values(globs, tool, why):
    """Values of an excluded tool are kept, even with `_extractable: true`."""
    rules = replace(RULES, exclude_tools=globs)
    part = replace(PART, tool=tool)

    assert reason(decide(part, rules=rules)) == why
    assert reason(decide(part, rules=rules, extractable=True)) == why
