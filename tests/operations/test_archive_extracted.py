"""Values that are replaced a second time: what the agent wrote is kept, not what stood there."""

import json
import os

import pytest

from brainsurgeon.operations.archive import archive
from brainsurgeon.operations.relieve import relieve
from brainsurgeon.operations.restore import How, restore
from brainsurgeon.operations.retention import retention
from brainsurgeon.operations.show import show_turn
from brainsurgeon.render.formatting import document
from brainsurgeon.render.sessions import restored_json
from brainsurgeon.rewrite.relief import Wanted
from building.turns import text_blocks
from building.world import Conversation, append, note_answered, pin

DAY = 86_400
ANSWERS = {"trigger_types": ["thinking", "tool_result", "assistant"], "min_value_length": 200}
EPHEMERAL = {"budget": {"max_messages": 40}, "archive": {"enabled": True}}
KEPT = {"retention": "1h", "retention_standing": "never"}


def add_turn(talk, answer):
    """Add a turn that an archive makes shorter even if its results are extracted."""
    prompt = talk.user()
    for number in range(8):
        talk.call(call=f"{prompt}-{number}", arguments={"command": f"{number}" * 150})
        talk.result("x" * 900, call=f"{prompt}-{number}")
    return prompt, talk.assistant(answer)


@pytest.fixture
def session(world, clock):
    """Return a session whose long answers can be extracted, its conversation and its turns' ends.

    The clock of the world and the time since the system started go on together.
    """
    talk = Conversation()
    ends = [add_turn(talk, f"Answer {number}. {'y' * 240}") for number in range(6)]
    return world.put("s.jsonl", talk.bytes()), talk, ends


def pass_days(world, days):
    for _ in range(days):
        world.clock.now += DAY
        world.scan(**KEPT)
        retention(world.settings(**KEPT), world.store, clock=world.clock)


def by_trigger(world, path, ends):
    world.scan(**ANSWERS)


def by_pin(world, path, ends):
    for _, closing in ends[:5]:
        pin(world, closing, True)
    world.scan()
    for _, closing in ends[:5]:
        pin(world, closing, None)


def ephemeral(world, path):
    world.scan(**EPHEMERAL)


def relieved(world, path):
    relieve(world.settings(), world.store, "main/s", Wanted(to=1200.0), clock=world.clock)


def requested(world, path):
    archive(world.settings(), world.store, "main/s", clock=world.clock)


@pytest.mark.parametrize("extract", [by_trigger, by_pin])
@pytest.mark.parametrize("make", [ephemeral, relieved, requested])
def test_an_archive_takes_over_the_extracted_answer(world, session, extract, make):
    """Its summary quotes the answer, and answer and turn come back after the value's retention."""
    path, talk, ends = session
    extract(world, path, ends)
    for _, closing in ends[:5]:
        assert text_blocks(path.read_bytes(), closing) == [f"[[extracted-{closing}]]"]
    os.utime(path, (1, 1))
    make(world, path)
    data = path.read_bytes()
    archives = {
        closing: text for _, closing in ends for text in text_blocks(data, closing)
        if text.startswith("[archived turn]")
    }  # fmt: skip
    assert not any("[[extracted-" in text for text in archives.values())
    assert "Answer 0. yyy" in "".join(archives.values())
    last = list(archives)[-1]
    assert last in [closing for _, closing in ends[:5]]
    os.utime(path, (1, 1))
    pass_days(world, 3)
    turn = show_turn(world.settings(), world.store, last, "main/s", world.clock.now)
    lines = talk.bytes().splitlines()
    number = next(number for number, line in enumerate(lines) if f'"id":"{last}"'.encode() in line)
    assert list(turn.lines) == lines[number + 1 - len(turn.lines) : number + 1]

    [answer] = world.restore_all(pristine=True)
    assert not answer.unfinished
    assert path.read_bytes() == talk.bytes()


@pytest.mark.parametrize("lost", ["expired", "damaged"])
def test_a_turn_with_a_lost_answer_is_not_archived(world, session, lost):
    """It stays as it is; the summary of an archive around it says that the answer is lost."""
    path, _, ends = session
    world.scan(**ANSWERS)
    of_answers = "WHERE entry_id = ? AND kind = 'assistant'"
    lost_prompt, lost_closing = ends[1]
    if lost == "expired":
        gone = "blob_id = NULL, expired_at = 1, expired_why = 'x'"
        change = f"UPDATE extractions SET {gone} {of_answers}"
    else:
        change = (
            "UPDATE blobs SET data = zeroblob(length(data)) WHERE id IN"
            f" (SELECT blob_id FROM extractions {of_answers})"
        )
    world.store._connection.execute(change, [lost_closing])
    world.store._connection.commit()
    verdicts = requested_verdicts(world)

    assert [verdicts[prompt].archived for prompt, _ in ends[:4]] == [True, False, True, True]
    assert "original" in verdicts[lost_prompt].reason
    os.utime(path, (1, 1))
    world.scan(**EPHEMERAL)
    data = path.read_bytes()
    assert b"[no longer available]" in data
    assert text_blocks(data, lost_closing) == [f"[[extracted-{lost_closing}]]"]


def requested_verdicts(world):
    answer = archive(world.settings(), world.store, "main/s", clock=world.clock)
    return {verdict.prompt_id: verdict for verdict in (*answer.archived, *answer.kept)}


def test_a_copied_placeholder_as_answer_is_not_archived(world, session):
    """The value belongs to the entry that it came from, which is still in the file."""
    path, talk, ends = session
    world.scan(**ANSWERS)
    owner, since = ends[0][1], len(talk.lines)
    prompt, copy = add_turn(talk, f"[[extracted-{owner}]]")
    for _ in range(3):
        add_turn(talk, "So.")
    append(path, talk.lines[since:])
    os.utime(path, (1, 1))

    assert not requested_verdicts(world)[prompt].archived
    assert text_blocks(path.read_bytes(), copy) == [f"[[extracted-{owner}]]"]
    os.utime(path, (1, 1))
    world.restore_all(pristine=True)
    assert path.read_bytes() == talk.bytes()


def test_a_placeholder_inside_a_stored_value_is_restored_too(world, session):
    """A store may hold an archive of a placeholder: the answer of the agent comes back."""
    path, talk, ends = session
    world.scan(**ANSWERS)
    os.utime(path, (1, 1))
    requested(world, path)
    closing = ends[0][1]
    text = json.dumps(f"[[extracted-{closing}]]").encode()
    with world.store.transaction():
        blob, digest, _ = world.store.blobs.put(text)
        world.store._connection.execute(
            "UPDATE extractions SET blob_id = ?, digest = ?, size = ?"
            " WHERE entry_id = ? AND archive_id IS NOT NULL AND path LIKE '%text%'",
            (blob, digest, len(text), closing),
        )
    os.utime(path, (1, 1))
    answers = world.restore_all(pristine=True)

    assert not any(answer.unfinished for answer in answers)
    assert path.read_bytes() == talk.bytes()


def test_a_result_that_was_shortened_twice_comes_back(world, clock):
    """The second answer is known only after a scan shortened the first one in the same text."""
    talk = Conversation()
    idents = [talk.turn(letter * 2000) for letter in "ab"]
    for _ in range(3):
        talk.turn("short")
    path, keys = world.put("s.jsonl", talk.bytes()), KEPT | {"keep_after_restore_seconds": 10**6}
    world.scan(**keys)
    settings, how = world.settings(**keys), How(by_tool=True)
    answers = [
        restore(settings, world.store, ident, clock=clock, session="main/s", how=how)
        for ident in idents
    ]
    texts = [document(restored_json(answer)) for answer in answers]
    since = len(talk.lines)
    talk.turn("\n".join(texts), call="call_9")
    talk.turn("short")
    append(path, talk.lines[since:])
    for answer in answers:
        note_answered(world, answer)
        os.utime(path, (1, 1))
        assert world.scan(**keys).sessions_changed == 1
    assert not any(json.dumps(text)[1:-1].encode() in path.read_bytes() for text in texts)
    pass_days(world, 3)

    world.restore_all(pristine=True)
    assert path.read_bytes() == talk.bytes()
