"""Which turns of a session archive, and into what, as the planner puts it together."""

import pytest
from msgspec.structs import replace

from brainsurgeon.formats import FORMATS
from brainsurgeon.model.records import Records
from brainsurgeon.model.rules import ArchiveRules, Rules
from brainsurgeon.planning.archive import Archiving
from brainsurgeon.planning.plan import plan
from brainsurgeon.planning.snapshot import Snapshot
from building.format_reading import WINDOW, open_lines
from building.turns import branch_roles, conversation_of_turns

FORM = FORMATS["openclaw"]
ON = ArchiveRules(enabled=True)


def planned(talk, archiving):
    with open_lines(talk.bytes()) as lines:
        rules = Rules((), max_messages=archiving.most)
        survey = FORM.survey(lines, max(WINDOW, rules.window))
        return plan(Snapshot(lines, FORM, survey, Records(), 0.0), rules, archiving=archiving)


def ends(made):
    """Give prompt, closing entry and depth of what is archived."""
    return [(one.prompt_id, one.entry_id, one.depth) for one in made.archives]


def test_a_turn_whose_line_cannot_be_edited_is_left_out():
    """The others are archived all the same."""
    talk, told = conversation_of_turns(4)
    made = planned(talk, Archiving(ON, refused=frozenset({told[0][1]})))

    assert ends(made) == [(*told[1], 1)]
    assert made.turns[0].reason == "format: its line cannot be edited"


@pytest.mark.parametrize("archiving", [Archiving(ON), Archiving(ArchiveRules(), most=40)])
def test_a_key_that_stands_twice_keeps_the_turn(archiving):
    """A closing line that says its link twice is never edited, and its turn stays whole."""
    talk, told = conversation_of_turns(4)
    line = talk.bytes().splitlines()[12]
    twice = line[:-1] + b',"parentId":"0000000b"}'
    data = talk.bytes().replace(line, twice)
    with open_lines(data) as lines:
        session = Snapshot(lines, FORM, FORM.survey(lines, WINDOW), Records(), 0.0)
        made = plan(session, Rules(()), archiving=archiving)

    assert told[0][1] not in [one.entry_id for one in made.archives]


def test_turns_that_archive_with_others_say_so():
    """A small turn that goes into an archive with others is not told as one that stays."""
    talk, _ = conversation_of_turns(6)
    messages = len(branch_roles(talk.bytes()))
    three = 3 * messages // 6
    made = planned(talk, Archiving(replace(ON, tool_call_threshold=99), most=three + 2))

    assert [one.archived for one in made.turns] == [True] * 3 + [False] * 3
    assert {one.reason for one in made.turns[:3]} == {"with 2 other turns"}
    (archive,) = made.archives
    assert (archive.turns, archive.calls, archive.failed) == (3, 15, 0)
    assert len(archive.prompts) == 3


def test_what_stands_before_a_compaction_is_never_sent_and_not_recent():
    """Turns that no request carries are no recent ones, however few came after."""
    talk, _ = conversation_of_turns(4)
    first = talk.user()
    talk.entry("compaction", summary="so it was", firstKeptEntryId=first, tokensBefore=9)
    talk.assistant()

    said = [one.reason for one in planned(talk, Archiving(ON)).turns]
    assert {one.partition(":")[0] for one in said[:4]} == {"never sent"}
