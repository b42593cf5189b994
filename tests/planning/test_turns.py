"""Which finished turns are archived into their last answer.

Every row of the decision, first match wins.
"""

import pytest
from msgspec.structs import replace

from brainsurgeon.model.rules import ArchiveRules
from brainsurgeon.model.turns import Sent, TurnStep
from brainsurgeon.planning.archive import Size, Stays, Turn, TurnEntry, decide

ON = ArchiveRules(enabled=True)
LARGE = Turn(
    1, TurnEntry(0, "p", TurnStep("prompt")), TurnEntry(9, "c", TurnStep("reply")), after=9,
    position=99, size=Size(middle=12, leaves=40_000, grows=100, tokens=9000, calls=6),
)  # fmt: skip
SMALL = replace(LARGE, size=replace(LARGE.size, tokens=8000, calls=4))


def verdict(turn, rules=ON, *, cut_short=False, **changed):
    closing = turn.closing._replace(step=replace(turn.closing.step, cut_short=cut_short))
    values = {"closing": closing}
    for name, part in (("size", turn.size), ("stays", Stays())):
        own = {key: changed.pop(key) for key in list(changed) if hasattr(part, key)}
        values[name] = replace(part, **own)
    return decide(replace(turn, **values | changed), rules)


def test_nothing_archives_while_it_is_off():
    """Without `archive.enabled` every turn stays, however large."""
    said = verdict(LARGE, ArchiveRules())

    assert (said.archived, said.reason) == (False, "off")


def test_what_is_asked_for_archives_while_it_is_off():
    """The switch speaks of what happens by itself: what somebody asks for archives."""
    said = verdict(SMALL, ArchiveRules(), asked=True)

    assert (said.archived, said.reason) == (True, "asked for")


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"unformed": "it contains a compaction"}, "format: it contains a compaction"),
        ({"open": "its last reply does not close it"},
         "open turn: its last reply does not close it"),
        ({"closing": None}, "open turn: it has no last answer"),
        ({"dead": "before the last compaction"}, "never sent: before the last compaction"),
        ({"held": "pinned: m"}, "pinned: m"),
        ({"referred": "l"}, "referred to by l"),
        ({"middle": 0}, "no gain"),
        ({"grows": 20_001}, "no gain"),
        ({"depth": 3}, "depth 3"),
    ],
)  # fmt: skip
def test_a_turn_stays_for_the_first_reason_that_holds(changed, reason):
    """Each condition keeps a turn that is large enough, asked for or not, and says why."""
    assert verdict(LARGE, **changed).reason == reason
    assert not verdict(LARGE, **changed).archived
    assert verdict(LARGE, asked=True, cut_short=True, **changed).reason == reason


def test_an_earlier_condition_is_said_before_a_later_one():
    """Of several reasons the first of the table is given."""
    rows = [
        {"unformed": "none"}, {"after": 0}, {"open": "it is"}, {"dead": "gone"}, {"held": "pinned"},
        {"referred": "l"}, {"middle": 0}, {"depth": 3},
    ]  # fmt: skip
    said = ["format", "recent", "open turn", "never sent", "pinned", "referred", "no gain", "depth"]
    for first, reason in enumerate(said):
        together = {key: value for row in rows[first:] for key, value in row.items()}
        assert verdict(LARGE, **together).reason.startswith(reason)


@pytest.mark.parametrize(
    ("stays", "archives"),
    [
        ({"tokens": 8000}, {"tokens": 8001}),
        ({"calls": 4}, {"calls": 5}),
        ({"calls": 4}, {"cut_short": True}),
        ({"calls": 5, "after": 1}, {"calls": 5, "after": 2}),
        ({"calls": 5, "position": 2}, {"calls": 5, "position": 3}),
        ({"after": 0, "position": 0}, {"after": 0, "position": 0, "asked": True}),
        ({"calls": 5, "grows": 20_001}, {"calls": 5, "grows": 20_000}),
        ({"calls": 5, "depth": 3}, {"calls": 5, "depth": 2}),
    ],
    ids=lambda changed: " ".join(f"{key} {value}" for key, value in changed.items()),
)
def test_a_turn_archives_from_its_borders_on(stays, archives):
    """More tokens, as many calls, cut short, old enough, asked for, worth it, not too deep."""
    assert not verdict(SMALL, **stays).archived
    assert verdict(SMALL, **archives).archived


def test_only_what_holds_a_turn_ends_by_time():
    """A protection says until when it lasts; no other reason ends by itself."""
    assert verdict(LARGE, held="restored 5 s ago: m", until=7.0).until == 7.0
    assert verdict(LARGE, open="it is", held="restored 5 s ago: m", until=7.0).until == 7.0
    assert verdict(LARGE, until=None).until is None


def test_a_third_of_the_characters_are_tokens():
    """A character counts 0.33 tokens."""
    assert Sent(24_245).tokens() == 8001
