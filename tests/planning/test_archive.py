"""Archives that the planner makes from the turns of a session."""

import pytest
from msgspec.structs import replace

from brainsurgeon.agents import FORMATS
from brainsurgeon.model.rules import ArchiveRules, Rule, Rules
from brainsurgeon.planning.archiving import Archiving
from building.claude import ClaudeConversation
from building.format_reading import entries, plan, snapshot
from building.turns import add_long_turn, branch_roles, conversation_of_turns
from building.world import Conversation, dump

FORM = FORMATS["openclaw"]
ON = ArchiveRules(enabled=True)


def planned(talk, archiving):
    rules = Rules((), max_messages=archiving.most)
    return plan(snapshot(FORM, talk.bytes()), rules, archiving=archiving)


def archived_turns(result):
    """Return prompt id, closing entry id and depth of each archive."""
    return [(archive.prompt_id, archive.entry_id, archive.depth) for archive in result.archives]


def test_turn_whose_line_cannot_be_edited_is_not_archived():
    """A turn whose closing line cannot be edited stays, and the others are archived."""
    talk, ids = conversation_of_turns(4)
    result = planned(talk, Archiving(ON, refused=frozenset({ids[0][1]})))

    assert archived_turns(result) == [(*ids[1], 1)]
    assert result.turns[0].reason == "format: its last answer cannot be replaced"


def test_text_that_an_archive_replaces_is_not_extracted_as_well():
    """A rule for the agent's texts leaves the last answer of an archived turn to the archive."""
    talk, ids = conversation_of_turns(4)
    [last] = [line for line in talk.lines if line.get("id") == ids[0][1]]
    last["message"]["content"][-1]["text"] = "Done. " * 400
    rules = Rules((Rule("assistant", (), 0, 0),))
    result = plan(snapshot(FORM, talk.bytes()), rules, archiving=Archiving(ON))
    closing = [removal.how for removal in result.removals if removal.entry_id == ids[0][1]]

    assert archived_turns(result)[0] == (*ids[0], 1)
    assert closing.count("archive") == len(closing) > 0


def test_turn_without_an_answer_is_reported_as_such():
    """A prompt that got no answer, but another prompt after it, has no last answer."""
    talk = Conversation()
    talk.user()
    for _ in range(3):
        add_long_turn(talk)
    result = planned(talk, Archiving(ON))

    assert result.turns[0].reason == "open turn: it has no last answer"


@pytest.mark.parametrize("archiving", [Archiving(ON), Archiving(ArchiveRules(), most=40)])
def test_turn_with_a_duplicate_key_is_not_archived(archiving):
    """A closing line with two `parentId` keys is never edited."""
    talk, ids = conversation_of_turns(4)
    line = talk.bytes().splitlines()[12]
    twice = line[:-1] + b',"parentId":"0000000b"}'
    data = talk.bytes().replace(line, twice)
    result = plan(snapshot(FORM, data), Rules(()), archiving=archiving)

    assert ids[0][1] not in [archive.entry_id for archive in result.archives]


@pytest.mark.parametrize(("count", "reason"), [(2, "with 1 other turn"), (3, "with 2 other turns")])
def test_turns_archived_together_name_the_number_of_turns(count, reason):
    """A turn too small to be archived alone is reported as archived with the others."""
    talk, _ = conversation_of_turns(6)
    most = (6 - count) * len(branch_roles(talk.bytes())) // 6 + 2
    result = planned(talk, Archiving(replace(ON, tool_call_threshold=99), most=most))

    assert [turn.archived for turn in result.turns] == [True] * count + [False] * (6 - count)
    assert {turn.reason for turn in result.turns[:count]} == {reason}
    (archive,) = result.archives
    assert (archive.turns, archive.calls, archive.failed) == (count, 5 * count, 0)
    assert len(archive.prompts) == count


def test_newest_prompt_stays_in_the_request():
    """The newest turn is archived alone, however long it is: its prompt stays a message."""
    talk = Conversation()
    plain = [(talk.user(f"question {number}"), talk.assistant()) for number in range(5)]
    newest = add_long_turn(talk, "the newest question", calls=40)
    result = planned(talk, Archiving(ON, most=50))

    assert branch_roles(talk.bytes()).count("user") == 6
    assert archived_turns(result) == [(plain[0][0], plain[4][1], 2), (*newest, 1)]


@pytest.mark.parametrize("name", ["generic", "claude-code"])
def test_newest_prompt_stays_where_messages_only_lose_their_values(name):
    """Beyond `max_messages`, an older prompt of the same length is extracted."""
    talk, form = ClaudeConversation() if name == "claude-code" else Conversation(), FORMATS[name]
    for _ in range(2):
        talk.user("a question, " * 60)
        for number in range(10):
            talk.call(call=f"call_{number}")
            talk.result("x" * 50, call=f"call_{number}")
        talk.assistant()
    lines = talk.lines
    if name == "generic":
        lines = [{"type": "message", "__id": line["id"], **line["message"]} for line in lines[1:]]
    data = b"".join(map(dump, lines))
    prompts = [offset for offset, raw, _, _ in entries(data) if b"a question" in raw]
    result = plan(snapshot(form, data), Rules((), max_messages=5))
    taken = {prompt for prompt in prompts for one in result.removals
             if prompt < one.start < prompt + 700}  # fmt: skip

    assert len(prompts) == 2
    assert taken == {prompts[0]}


def test_turns_that_cannot_be_archived_may_lose_their_values():
    """Messages that no archive can take count as too many: their values are extracted."""
    talk, ids = conversation_of_turns(6)
    most = len(branch_roles(talk.bytes())) // 2
    refused = frozenset(closing for _, closing in ids)
    result = planned(talk, Archiving(ArchiveRules(), most=most, refused=refused))

    assert result.archives == ()
    assert len(result.removals) == 15


def test_compaction_right_before_a_prompt_does_not_keep_its_turn():
    """A turn begins with its prompt: the first one after a compaction is archived."""
    talk = Conversation()
    kept = talk.user("the first question")
    talk.assistant()
    talk.entry("compaction", summary="so it was", firstKeptEntryId=kept, tokensBefore=9)
    ids = [add_long_turn(talk) for _ in range(4)]
    result = planned(talk, Archiving(ON))

    assert archived_turns(result)[0] == (*ids[0], 1)


def test_turns_before_a_compaction_are_never_sent():
    """Turns before a compaction stay as never sent, not as recent, however few follow."""
    talk, _ = conversation_of_turns(4)
    first = talk.user()
    talk.entry("compaction", summary="so it was", firstKeptEntryId=first, tokensBefore=9)
    talk.assistant()

    reasons = [turn.reason for turn in planned(talk, Archiving(ON)).turns]
    assert {reason.partition(":")[0] for reason in reasons[:4]} == {"never sent"}
