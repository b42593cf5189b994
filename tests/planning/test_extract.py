"""Which value goes and which stays: the first rule that matches says so."""

import itertools
import time
from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

from brainsurgeon.model.entries import KINDS, OLD, Part
from brainsurgeon.model.rules import Rule, Rules
from brainsurgeon.model.sessions import BEFORE_COMPACTION, OFF_BRANCH
from brainsurgeon.planning.rules import (
    EntryState,
    Extract,
    Keep,
    extract,
    override_of,
    read_restored,
)

NOW = datetime(2026, 2, 20, 12, tzinfo=UTC).timestamp()
PLACEHOLDER = "[[extracted-a1]]"
RULES = Rules(
    rules=(Rule("tool_result", (), 500, 3), Rule("thinking", (), 500, 3)), keep_after_restore=600.0
)
PART = Part(("message", "content", 0, "text"), "tool_result", 501, tool="exec")
ENTRY = EntryState("a1", 3, placeholders=frozenset({PLACEHOLDER}))


def decide(part=PART, value="x" * 501, rules=RULES, now=NOW, **standing):
    """Decide about a value that goes unless something speaks against it."""
    return extract(part, value, replace(ENTRY, **standing), rules, now)


def test_what_nothing_speaks_against_goes():
    """A long old value of a trigger kind is extracted, and the reason says what it was."""
    assert decide() == Extract("tool_result of 501 characters, 3 messages back")
    assert decide(position=OLD) == Extract("tool_result of 501 characters, old")
    assert decide(replace(PART, chars=40_960), position=7) == Extract(
        "tool_result of 40,960 characters, 7 messages back"
    )


# What no model sees.

UNSENT = replace(PART, kind="assistant", tool=None, dead=True)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_never_sent_goes_whatever_its_kind(kind):
    """Only the agent's own screen shows it, so that no kind is spared."""
    part = replace(UNSENT, kind=kind)

    assert decide(part) == Extract(f"{kind} of 501 characters, never sent")
    assert decide(part, dead=BEFORE_COMPACTION) == decide(part)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"position": 2}, "recent"),
        ({"extractable": 5}, "recent by its _extractable"),
        ({"extractable": False}, "pinned"),
        ({"restored_at": NOW - 1}, "restored 1 s ago"),
        ({"part": replace(UNSENT, chars=500)}, "short"),
        ({"part": replace(UNSENT, locked="x")}, "not extractable: x"),
    ],
)
def test_what_is_never_sent_stays_for_every_other_reason(change, reason):
    """The screen shows recent values; pins, protection, lengths and locks hold as ever."""
    assert decide(**{"part": UNSENT, **change}).reason == reason


@pytest.mark.parametrize("why", [OFF_BRANCH, BEFORE_COMPACTION])
def test_a_dead_entry_is_in_no_window(why):
    """It may come alive again, so that only the kinds of the rules go, but at any position."""
    said = f"tool_result of 501 characters, {why}"

    assert decide(position=0, extractable=9, dead=why) == Extract(said)
    assert decide(replace(PART, kind="assistant"), dead=why).reason == "kind not among the triggers"
    assert decide(replace(PART, chars=500), dead=why).reason == "short"
    assert decide(extractable=False, dead=why).reason == "pinned"


def test_no_line_that_may_hold_an_unsent_value_is_passed_over():
    """Lines are taken apart from the shortest length at which anything may go."""
    assert RULES.shortest == 500
    assert replace(RULES, min_value_length=20).shortest == 20
    assert Rules(rules=()).shortest == 0


# The table, from the first row to the last. Each row can be had alone, and with any other.


def disabled(case):
    case["rules"] = replace(case["rules"], enabled=False)


def nameless(case):
    case["entry"] = replace(case["entry"], entry_id=None)


def locked(case):
    case["part"] = replace(case["part"], locked="thinking signed by its provider")


def extracted(case):
    case["value"] = PLACEHOLDER


def pinned(case):
    case["entry"] = replace(case["entry"], extractable=False)


def forced(case):
    case["entry"] = replace(case["entry"], extractable=True)


def restored(case):
    case["entry"] = replace(case["entry"], restored_at=NOW - 60)


def windowed(case):
    case["entry"] = replace(case["entry"], extractable=4)


def recent(case):
    case["entry"] = replace(case["entry"], position=2)


def unasked(case):
    case["part"] = replace(case["part"], kind="assistant", tool=None)


def short(case):
    case["part"] = replace(case["part"], chars=500)


TABLE = {
    disabled: "disabled",
    nameless: "not extractable: the entry has no usable id",
    locked: "not extractable: thinking signed by its provider",
    extracted: "already extracted",
    pinned: "pinned",
    forced: None,
    restored: "restored 60 s ago",
    windowed: "recent by its _extractable",
    recent: "recent",
    unasked: "kind not among the triggers",
    short: "short",
}
# One field cannot say two things.
CANNOT_MEET = {pinned, forced, windowed}


def outcome(*rows):
    """Decide about a value of which all these rows are true."""
    case = {"part": PART, "value": "x" * 501, "entry": ENTRY, "rules": RULES}
    for row in rows:
        row(case)
    return extract(case["part"], case["value"], case["entry"], case["rules"], NOW)


def reason(decision):
    return None if isinstance(decision, Extract) else decision.reason


@pytest.mark.parametrize("number", range(1, len(TABLE) + 1))
def test_of_any_rows_the_first_decides(number):
    """Of the rows that are true together, of all sets of so many, the first one decides."""
    for rows in itertools.combinations(TABLE, number):
        if len(CANNOT_MEET.intersection(rows)) < 2:
            assert reason(outcome(*rows)) == TABLE[rows[0]]
            assert isinstance(outcome(*rows), Extract) is (rows[0] is forced)


def test_forcing_is_marked_and_says_so():
    """A forced cut carries the mark that overrides the gain, and its reason names the field."""
    decision = decide(replace(PART, chars=1), position=0, extractable=True)

    assert decision == Extract(
        "tool_result of 1 characters, 0 messages back, forced by _extractable", forced=True
    )


# Boundaries.


@pytest.mark.parametrize(
    ("chars", "position", "why"),
    [(499, 3, "short"), (500, 3, "short"), (501, 3, None), (501, 0, "recent"), (501, 2, "recent"),
     (501, OLD, None)],
)  # fmt: skip
def test_longer_means_longer_and_recent_means_newer(chars, position, why):
    """A value of exactly `min_value_length` stays; with `keep_recent` 3 so do positions 0 to 2."""
    assert reason(decide(replace(PART, chars=chars), position=position)) == why


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
def test_an_own_window_replaces_the_common_one_both_ways(window, position, why):
    """`_extractable: N` keeps N messages, fewer than `keep_recent` as well as more."""
    assert reason(decide(extractable=window, position=position)) == why


@pytest.mark.parametrize("number", [0, 1])
def test_a_number_is_never_a_switch(number):
    """0 and 1 are windows, although Python takes them for False and True."""
    inside = decide(extractable=number, position=0)

    assert reason(inside) == ("recent by its _extractable" if number else None)
    assert getattr(inside, "forced", False) is False
    assert reason(decide(replace(PART, chars=1), extractable=number, position=5)) == "short"


@pytest.mark.parametrize(
    ("ago", "decision"),
    [
        (0, Keep("restored 0 s ago", until=NOW + 600)),
        (599, Keep("restored 599 s ago", until=NOW + 1)),
        (599.5, Keep("restored 600 s ago", until=NOW + 0.5)),
        (600, Extract("tool_result of 501 characters, 3 messages back")),
        (601, Extract("tool_result of 501 characters, 3 messages back")),
        (-30, Keep("restored 0 s ago", until=NOW + 630)),
    ],
)
def test_the_protection_ends_at_its_boundary(ago, decision):
    """After exactly `keep_after_restore_seconds` it is over; until then the keep says when."""
    assert decide(restored_at=NOW - ago) == decision


def test_without_protection_a_restored_value_goes_at_once():
    """With `keep_after_restore_seconds = 0` rule 6 never holds."""
    rules = replace(RULES, keep_after_restore=0.0)

    assert isinstance(decide(rules=rules, restored_at=NOW), Extract)


def test_redactions_are_never_extracted():
    """An entry that we redacted has nothing left that is worth a placeholder."""
    assert reason(decide(redacted=True, extractable=True)) == "not extractable: redacted"


@pytest.mark.parametrize(
    ("value", "own"),
    [
        (PLACEHOLDER, True),
        ({"type": "text", "text": PLACEHOLDER}, True),
        (f"{PLACEHOLDER} ", False),
        (f"it says {PLACEHOLDER}", False),
        ("[[extracted-b2]]", False),
        ({"type": "text", "text": "[[extracted-b2]]"}, False),
        ({"type": "text", "text": PLACEHOLDER, "more": 1}, False),
        ({"type": "text"}, False),
        ([PLACEHOLDER], False),
        (None, False),
        ("", False),
    ],
)
def test_only_the_own_placeholder_is_one(value, own):
    """A value is this entry's placeholder when all of it is, as a string or as a text block."""
    assert reason(decide(value=value)) == ("already extracted" if own else None)


# What an entry says about itself.


@pytest.mark.parametrize("value", [True, False, 0, 1, 3, 10**30])
def test_true_false_and_whole_numbers_are_understood(value):
    """`_extractable` is read as it is written, booleans as booleans."""
    read, warning = override_of({"_extractable": value}, None, {}, {})

    assert read is value
    assert warning is None


@pytest.mark.parametrize("value", ["true", "3", "", -1, 1.0, 0.5, None, [], {}, [True]])
def test_any_other_extractable_is_ignored_with_a_warning(value):
    """A string, a negative number, a fraction, null or a structure says nothing."""
    read, warning = override_of({"_extractable": value}, None, {}, {})

    assert read is None
    assert (
        warning == "_extractable is ignored: it must be true, false or a whole number of at least 0"
    )


def test_absent_fields_say_nothing():
    """An entry without fields of ours neither says nor warns of anything."""
    assert override_of({}, None, {}, {}) == (None, None)
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
def test_iso_times_are_understood(text, ago):
    """`_restored` is read with its zone, as UTC without one, up to the protection ahead of us."""
    assert read_restored({"_restored": text}, RULES, NOW) == (NOW - ago, None)


def test_a_time_without_a_zone_is_utc_everywhere(monkeypatch):
    """The zone of the machine says nothing about a time without one."""
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
def test_any_other_restored_is_ignored_with_a_warning(value, warning):
    """What is no time, or lies further ahead than the protection is long, protects nothing."""
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
def test_the_first_rule_that_matches_decides(kind, tool, length, window):
    """Length and window are those of the first rule whose kind and globs fit the tool."""
    part = replace(PART, kind=kind, tool=tool)

    def why(chars, position):
        return reason(decide(replace(part, chars=chars), rules=LONG_FORM, position=position))

    assert why(length, window) == "short"
    assert why(length + 1, window) is None
    assert why(length + 1, window - 1) == "recent"


def test_where_no_rule_matches_the_common_window_holds_first():
    """A value of no rule is recent within `keep_recent`, and beyond that of no trigger kind."""
    part = replace(PART, kind="user", tool=None)

    assert reason(decide(part, rules=LONG_FORM, position=4)) == "recent"
    assert reason(decide(part, rules=LONG_FORM, position=5)) == "kind not among the triggers"


def test_the_window_is_the_largest_of_all():
    """The survey looks as far back as any rule, or the common window, keeps."""
    assert LONG_FORM.window == 8
    assert Rules((), keep_recent=4).window == 4
    assert Rules((Rule("user", (), 1, 2),), keep_recent=0).window == 2


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
def test_excluded_tools_are_left_alone(globs, tool, why):
    """A tool that is excluded keeps its values, whatever the entry says."""
    rules = replace(RULES, exclude_tools=globs)
    part = replace(PART, tool=tool)

    assert reason(decide(part, rules=rules)) == why
    assert reason(decide(part, rules=rules, extractable=True)) == why
