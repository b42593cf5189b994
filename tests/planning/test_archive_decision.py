"""The decision whether a finished turn is archived: the first condition that holds."""

import pytest
from msgspec.structs import replace

from brainsurgeon.model.rules import ArchiveRules
from brainsurgeon.model.transcript import Entry
from brainsurgeon.model.turns import Sent
from brainsurgeon.planning.archiving import Size, Turn, TurnEntry, decide

ON, OFF = ArchiveRules(enabled=True), ArchiveRules()
LARGE = Turn(
    1, TurnEntry(0, Entry(0, ident="p", role="prompt")),
    TurnEntry(9, Entry(9, ident="c", role="reply")), after=9, position=99,
    size=Size(middle=12, removed=40_000, added=100, tokens=9000, calls=6),
)  # fmt: skip
SMALL = replace(LARGE, size=replace(LARGE.size, tokens=8000, calls=4))


def verdict_on(turn, rules=ON, *, cut_short=False, **changed):
    closing = replace(turn.closing, entry=replace(turn.closing.entry, cut_short=cut_short))
    sizes = {key: changed.pop(key) for key in Size.__struct_fields__ if key in changed}
    size = replace(turn.size, **sizes)
    return decide(replace(turn, **{"closing": closing, "size": size} | changed), rules)


def test_disabled_archive_archives_only_requested_turns():
    """Without `archive.enabled`, a large turn is kept and a requested one is archived."""
    large, requested = verdict_on(LARGE, OFF), verdict_on(SMALL, OFF, requested=True)

    assert (large.archived, large.reason) == (False, "off")
    assert (requested.archived, requested.reason) == (True, "requested")


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"malformed": "it contains a compaction"}, "format: it contains a compaction"),
        ({"open": "its last reply does not close it"},
         "open turn: its last reply does not close it"),
        ({"closing": None}, "open turn: it has no last answer"),
        ({"dead": "before the last compaction"}, "never sent: before the last compaction"),
        ({"held": "pinned: m"}, "pinned: m"),
        ({"referrer": "l"}, "referred to by l"),
        ({"middle": 0}, "no gain"),
        ({"added": 20_001}, "no gain"),
        ({"depth": 3}, "depth: 3"),
    ],
)  # fmt: skip
def test_each_condition_keeps_a_large_turn(changed, reason):
    """Each condition keeps a large turn, even if it is requested or was cut short."""
    assert verdict_on(LARGE, **changed).reason == reason
    assert not verdict_on(LARGE, **changed).archived
    assert verdict_on(LARGE, requested=True, cut_short=True, **changed).reason == reason


def test_first_condition_of_a_turn_gives_the_reason():
    """Of several conditions that hold, the first of the table is reported."""
    rows = [
        {"malformed": "none"}, {"after": 0}, {"open": "it is"}, {"dead": "gone"},
        {"held": "pinned"}, {"referrer": "l"}, {"middle": 0}, {"depth": 3},
    ]  # fmt: skip
    reasons = [
        "format",
        "recent",
        "open turn",
        "never sent",
        "pinned",
        "referred",
        "no gain",
        "depth",
    ]
    for first, reason in enumerate(reasons):
        together = {key: value for row in rows[first:] for key, value in row.items()}
        assert verdict_on(LARGE, **together).reason.startswith(reason)


@pytest.mark.parametrize(
    ("stays", "archives"),
    [
        ({"tokens": 8000}, {"tokens": 8001}),
        ({"calls": 4}, {"calls": 5}),
        ({"calls": 4}, {"cut_short": True}),
        ({"calls": 5, "after": 1}, {"calls": 5, "after": 2}),
        ({"calls": 5, "position": 2}, {"calls": 5, "position": 3}),
        ({"after": 0, "position": 0}, {"after": 0, "position": 0, "requested": True}),
        ({"calls": 5, "added": 20_001}, {"calls": 5, "added": 20_000}),
        ({"calls": 5, "depth": 3}, {"calls": 5, "depth": 2}),
    ],
    ids=lambda changed: " ".join(f"{key} {value}" for key, value in changed.items()),
)
def test_turn_is_archived_beyond_each_threshold(stays, archives):
    """A turn is archived beyond each threshold of tokens, calls, age, gain or depth."""
    assert not verdict_on(SMALL, **stays).archived
    assert verdict_on(SMALL, **archives).archived


def test_only_a_protection_gives_a_time():
    """Only the protection of a restored value gives the time until which a turn is kept."""
    assert verdict_on(LARGE, held="restored 5 s ago: m", until=7.0).until == 7.0
    assert verdict_on(LARGE, open="it is", held="restored 5 s ago: m", until=7.0).until == 7.0
    assert verdict_on(LARGE, until=None).until is None


def test_a_character_counts_a_third_of_a_token():
    """A character counts 0.33 tokens."""
    assert Sent(24_245).tokens() == 8001
