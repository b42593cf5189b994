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
    """Decide about a turn that was changed in some ways."""
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


def test_the_borders_of_what_is_recent():
    """The last two live turns stay, and a turn whose answer is among the newest messages."""
    assert verdict(LARGE, after=2, position=3).archived
    assert not verdict(LARGE, after=1, position=3).archived
    assert not verdict(LARGE, after=2, position=2).archived


def test_a_turn_that_was_asked_for_may_be_the_newest():
    """A task that its agent closed does not wait for later turns."""
    assert verdict(SMALL, asked=True, after=0, position=0).reason == "asked for"


def test_the_text_may_grow_by_half_of_what_leaves():
    """A summary is worth it while it grows by no more than half of what it stands for."""
    assert verdict(LARGE, grows=20_000).archived
    assert not verdict(LARGE, grows=20_001).archived


def test_a_turn_that_was_cut_short_archives_whatever_its_size():
    """Length, error, aborted and `[Max turns reached]` archive a turn."""
    assert verdict(SMALL, cut_short=True).reason == "it was cut short"


def test_8000_tokens_stay_and_8001_archive():
    """More than the threshold archives, the threshold itself does not."""
    assert verdict(SMALL, tokens=8000).reason == "small"
    assert verdict(SMALL, tokens=8001).archived


def test_4_calls_stay_and_5_archive():
    """As many calls as the threshold says archive a turn."""
    assert verdict(SMALL, calls=4).reason == "small"
    assert verdict(SMALL, calls=5).archived


def test_depth_2_archives_once_more_and_depth_3_does_not():
    """An archive of archives is taken in as long as its depth is below the cap."""
    assert verdict(LARGE, depth=2).archived
    assert not verdict(LARGE, depth=3).archived


def test_only_what_holds_a_turn_ends_by_time():
    """A protection says until when it lasts; no other reason ends by itself."""
    assert verdict(LARGE, held="restored 5 s ago: m", until=7.0).until == 7.0
    assert verdict(LARGE, open="it is", held="restored 5 s ago: m", until=7.0).until == 7.0
    assert verdict(LARGE, until=None).until is None


def test_a_third_of_the_characters_are_tokens():
    """A character counts 0.33 tokens."""
    assert Sent(24_245).tokens() == 8001
