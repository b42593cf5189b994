"""Rollback of a run: values and fields restored, and values that cannot be restored."""

import time

import pytest

from brainsurgeon.errors import NotFoundError
from brainsurgeon.operations.restore import CHANGED_SINCE, RESTORED_SINCE, note_answer
from brainsurgeon.operations.retention import retention
from building.file_moves import with_own_id
from building.turns import conversation_of_turns
from building.world import append, close_turn, entry_text, open_turn, pin, sql, write_two_turns

DAY = 86_400


@pytest.fixture
def original(world, pruned, conversation):
    return conversation.bytes()


def test_rollback_restores_every_byte_and_the_times(world, original, path):
    """A rollback restores the bytes and times of the file and leaves no temporary file."""
    before = path.stat().st_mtime_ns
    [outcome] = world.rollback(1).sessions

    assert (outcome.state, outcome.values_restored, outcome.missed) == ("rolled back", 1, ())
    assert path.read_bytes() == original
    assert path.stat().st_mtime_ns == before
    assert world.leftovers() == []


def test_rollback_is_recorded_as_a_run_and_an_event(world, original):
    """Both name the run that was rolled back."""
    number = world.rollback(1).run_id

    assert world.store.runs.by_id(number).command == "rollback"
    assert world.store.runs.by_id(number).facts == {"rolls_back": 1, "sessions": 1, "restored": 1}
    [event] = world.store.events.after(0, kinds=["rollback"])
    assert (event.run_id, event.facts["rolls_back"], event.facts["values"]) == (number, 1, 1)


def test_second_rollback_changes_nothing(world, original, path):
    """A second rollback of a run records no run and no event and leaves the file alone."""
    world.rollback(1)
    before = path.stat().st_ino, world.store.events.newest()
    second = world.rollback(1)

    assert (path.stat().st_ino, world.store.events.newest()) == before
    assert second.run_id is None
    [outcome] = second.sessions
    assert (outcome.state, outcome.reasons) == ("nothing to undo", {RESTORED_SINCE: 1})


def test_rolled_back_values_are_protected(world, original, path, clock):
    """Values of a rollback are protected for the same time as values of a restore."""
    world.rollback(1)
    clock.now += 60
    world.scan()
    assert path.read_bytes() == original

    clock.now += 600
    assert world.scan().values_extracted == 1


def test_rollback_keeps_the_extractions_of_other_runs(world, conversation, clock):
    """Of two runs in one session each rollback restores only its own values."""
    path = write_two_turns(world, conversation)
    world.scan(keep_recent=2)
    clock.now += 60
    first = path.read_bytes()
    world.scan(keep_recent=0)
    assert path.read_bytes() != first

    world.rollback(2)
    assert path.read_bytes() == first
    world.rollback(1)
    assert path.read_bytes() == conversation.bytes()


def test_rollback_of_a_pin_removes_its_field_only(world, original, path, pruned):
    """The field of the pin is removed; the value, which another run extracted, stays extracted."""
    before = path.read_bytes()
    pin(world, pruned, 7)
    [outcome] = world.rollback(2).sessions

    assert outcome.insertions_removed == (f"_extractable of {pruned}",)
    assert path.read_bytes() == before


def test_rollback_of_a_restore_removes_its_field_only(world, original, path, pruned):
    """The restored value stays in the file."""
    world.restore(pruned)
    world.rollback(2)

    assert path.read_bytes() == original


@pytest.fixture
def archived(world):
    """Return a session of four turns, two of which a scan has archived, and its original bytes."""
    conversation, _ = conversation_of_turns(4)
    path = world.put("s.jsonl", conversation.bytes())
    world.scan(archive={"enabled": True})
    return path, conversation.bytes()


@pytest.fixture
def redacted(world, pruned, path, conversation, clock):
    """Return the id of an answer to the agent's own restore call, which a scan has redacted."""
    open_turn(path, conversation, clock)
    conversation.call("purge_control", {"action": "restore", "entry": pruned, "x": 1}, "call_9")
    append(path, conversation.lines[-1:])
    answer = world.restore(pruned, quiet_seconds=10**6)
    text = f"here it is: {answer.answer_id}"
    note_answer(world.store, answer, text)
    conversation.result(text, "purge_control", "call_9")
    append(path, conversation.lines[-1:])
    close_turn(path, conversation, clock)
    world.scan()
    assert answer.answer_id.encode() not in path.read_bytes()
    return answer.answer_id.encode()


def test_rollback_of_a_pin_whose_field_was_lost(world, conversation, path, clock):
    """A pin ends by a rollback of its run, even if the agent dropped `_extractable`."""
    ident = conversation.turn()
    conversation.turn("short")
    world.put("s.jsonl", conversation.bytes())
    pin(world, ident, False)
    [run] = world.store.runs.newest(1)
    path.write_bytes(conversation.bytes())
    clock.now = int(time.time()) + 60
    [outcome] = world.rollback(run.id).sessions

    assert (outcome.state, outcome.missed) == ("rolled back", ())
    clock.now += 10_000
    assert world.scan().values_extracted == 1


def test_rollback_restores_redacted_calls(world, path, redacted):
    """A rollback of a scan restores the agent's own restore call and the answer to it."""
    [scan] = world.store.runs.newest(1)
    assert scan.facts["redacted"] == 2

    [outcome] = world.rollback(scan.id).sessions
    assert outcome.values_restored == scan.facts["redacted"] + scan.facts["extracted"]
    assert redacted in path.read_bytes()
    assert b"_redacted" not in path.read_bytes()


@pytest.mark.parametrize("everything", [False, True], ids=["its run", "everything"])
def test_expired_redacted_answer_keeps_its_field(world, path, redacted, everything):
    """The answer whose value expired keeps `_redacted`; the call is restored without it."""
    sql(
        world,
        "UPDATE extractions SET blob_id = NULL, expired_at = 1.0,"
        " expired_why = 'test' WHERE replacement IS NOT NULL AND kind = 'tool_result'",
    )
    [scan] = world.store.runs.newest(1)
    assert path.read_bytes().count(b'"_redacted":true') == 2

    [outcome] = world.restore_all(pristine=True) if everything else world.rollback(scan.id).sessions

    [left] = [line for line in path.read_bytes().splitlines() if b'"_redacted":true' in line]
    assert b'"toolResult"' in left
    assert redacted not in left
    assert any(missed.endswith("expired") for missed in outcome.missed)


def test_rollback_of_a_busy_session_is_carried_out_by_a_scan(
    world, pruned, path, conversation, clock
):
    """In an open turn a rollback is pending, with one request, until a scan after the turn."""
    open_turn(path, conversation, clock)
    before = path.read_bytes()
    [outcome] = world.rollback(1).sessions
    [second] = world.rollback(1).sessions

    assert (outcome.state, second.state) == ("pending", "pending")
    assert path.read_bytes() == before
    assert world.store.requests.count_open() == 1
    close_turn(path, conversation, clock)
    clock.now += 2 * DAY
    world.scan()
    assert world.store.requests.count_open() == 0
    assert entry_text(path, pruned) == "x" * 2000
    facts = [event.facts for event in world.store.events.after(0, kinds=["rollback"])]
    assert [fact.get("pending") for fact in facts] == [True, None]
    assert [fact["rolls_back"] for fact in facts] == [1, 1]


def test_rollback_can_be_limited_to_a_session(world, original, path, conversation):
    """The other sessions of the run stay unchanged."""
    other = world.put("t.jsonl", conversation.bytes().replace(b"000000000001", b"000000000002"))
    world.rollback(1)
    sql(world, "DELETE FROM restores")
    world.scan()
    before = other.read_bytes()
    number = world.store.runs.newest(1)[0].id

    [outcome] = world.rollback(number, ["main/s"]).sessions
    assert outcome.session == "main/s"
    assert path.read_bytes() == original
    assert other.read_bytes() == before


@pytest.mark.parametrize("reason", [RESTORED_SINCE, CHANGED_SINCE], ids=["restored", "changed"])
def test_rollback_counts_values_restored_or_changed_since(world, original, path, pruned, reason):
    """A value restored, or whose placeholder was replaced, since the run is only counted."""
    if reason == RESTORED_SINCE:
        world.restore(pruned, pristine=True)
    else:
        placeholder = b"[[extracted-" + pruned.encode() + b"]]"
        path.write_bytes(path.read_bytes().replace(placeholder, b"something else"))
    before = path.read_bytes()
    [outcome] = world.rollback(1).sessions

    assert (outcome.state, outcome.reasons) == ("nothing to undo", {reason: 1})
    assert path.read_bytes() == before


def test_rollback_reports_a_deleted_session(world, original, path):
    """A session whose file was deleted is reported as gone."""
    path.unlink()

    assert [outcome.state for outcome in world.rollback(1).sessions] == ["gone"]


def test_rollback_fails_for_a_session_in_a_missing_root(world, original):
    """The session is reported as failed, not as gone: its file may still contain placeholders."""
    world.root.rename(world.base / "away")
    [outcome] = world.rollback(1).sessions

    assert (outcome.state, outcome.unfinished) == ("failed", True)
    assert "may still contain placeholders" in outcome.reason


def test_rollback_of_an_unknown_run_or_session_is_an_error(world, original):
    """A run number that does not exist and a session outside the run are both not found."""
    with pytest.raises(NotFoundError, match="there is no run 77"):
        world.rollback(77)
    with pytest.raises(NotFoundError, match="no session is called"):
        world.rollback(1, ["main/other"])


def test_values_of_a_rollback_expire_like_restored_ones(world, original, path, clock):
    """Retention expires values that a rollback restored, with an event, and changes no session."""
    world.rollback(1)
    for _ in range(3):
        retention(world.settings(), world.store, clock=world.clock)
        clock.now += 2 * DAY
        world.scan(enabled=False)

    [event] = world.store.events.after(0, kinds=["expiry"])
    assert event.facts["values"] == 1
    assert world.store.runs.by_id(event.run_id).command == "retention"
    assert path.read_bytes() == original


def test_rollback_restores_archived_turns(world, archived):
    """Turns are restored byte for byte, and events and runs count the archives."""
    path, original = archived
    run = world.store.runs.newest(1)[0]
    world.rollback(run.id)
    events = [event for event in world.store.events.after(0) if "archive" in event.kind]
    rows = sql(world, "SELECT run_id FROM archives")

    assert path.read_bytes() == original
    assert (run.facts["archived"], run.facts.get("redacted")) == (2, None)
    assert rows == [(run.id,)] * 2
    assert [event.kind for event in events] == ["archive", "unarchive"]
    assert [event.facts["archives"] for event in events] == [2, 2]
    assert events[0].facts["tokens_before"] > events[0].facts["tokens_after"]
    assert world.store.runs.newest(1)[0].facts["unarchived"] == 2


def test_retention_deletes_runs_that_cannot_be_rolled_back(world, pruned, path, clock):
    """A run is deleted once its values expired and its events are old; a rollback says so."""
    retention(world.settings(), world.store, clock=clock)
    path.unlink()
    for _ in range(17):
        clock.now += 2 * DAY
        retention(world.settings(), world.store, clock=clock)
    world.scan()
    assert [run.command for run in world.store.runs.newest(None)] == ["retention"]
    clock.now += 31 * DAY
    retention(world.settings(), world.store, clock=clock)

    assert world.store.runs.newest(None) == []
    with pytest.raises(NotFoundError, match="run 1 is no longer recorded"):
        world.rollback(1)
    with pytest.raises(NotFoundError, match="there is no run 9"):
        world.rollback(9)


def test_run_is_kept_as_long_as_its_values(world, pruned, clock):
    """A run whose values are stored can be rolled back after years, without its events."""
    for _ in range(3):
        clock.now += 365 * DAY
        world.scan()
        retention(world.settings(retention_standing="never"), world.store, clock=clock)

    assert world.store.events.after(0) == []
    [outcome] = world.rollback(1).sessions
    assert outcome.values_restored == 1


def test_rollback_counts_archived_turns_apart_from_values(world, archived):
    """The outcome, its run and a second rollback agree on the numbers of values and turns."""
    [outcome] = world.rollback(1).sessions
    facts = world.store.runs.by_id(2).facts
    [second] = world.rollback(1).sessions

    assert (outcome.values_restored, outcome.turns_unarchived) == (
        facts.get("restored", 0),
        facts["unarchived"],
    )
    assert second.reasons[f"archived turn, {RESTORED_SINCE}"] == outcome.turns_unarchived
    assert sum(second.reasons.values()) == outcome.values_restored + outcome.turns_unarchived


def test_rollback_finds_sessions_whose_files_were_exchanged(world):
    """A session whose file was exchanged is found by its own id, and is rolled back only once."""
    paths = [world.put(f"{name}.jsonl", with_own_id(name)) for name in ("one", "two")]
    contents = [path.read_bytes() for path in paths]
    for path in paths:
        world.scan(only=[str(path)], named=True, keep_recent=0)
    between = paths[0].with_name("between")
    paths[0].rename(between)
    paths[1].rename(paths[0])
    between.rename(paths[1])
    first, second = world.rollback(1), world.rollback(1)

    assert [outcome.state for outcome in first.sessions] == ["rolled back"]
    assert not any(outcome.state == "rolled back" for outcome in second.sessions)
    assert paths[1].read_bytes() == contents[0]


def test_rollback_finds_a_session_whose_path_a_new_session_took(world):
    """The session is rolled back at its new path, although no scan has seen it there."""
    path = world.put("one.jsonl", with_own_id("one"))
    content = path.read_bytes()
    world.scan(keep_recent=0)
    moved = path.rename(path.with_name("moved.jsonl"))
    world.put("one.jsonl", with_own_id("two"))

    assert [outcome.state for outcome in world.rollback(1).sessions] == ["rolled back"]
    assert moved.read_bytes() == content
