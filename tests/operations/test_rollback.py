"""A run is taken back: what it cut and set goes back, and what cannot is named."""

import pytest

from brainsurgeon.errors import NotFoundError
from brainsurgeon.hosts import processes as clocks
from brainsurgeon.operations.restore import CHANGED_SINCE, RESTORED_SINCE, note_answer
from brainsurgeon.operations.retention import retention
from building.file_moves import with_own_id
from building.turns import conversation_of_turns
from building.world import append, close_turn, entry_text, open_turn, pin, sql, write_two_turns

DAY = 86_400


@pytest.fixture
def original(world, pruned, conversation):
    return conversation.bytes()


def test_a_run_is_taken_back_to_the_byte(world, original, path):
    """What a scan cut stands there again, with the file's times, and nothing of ours beside it."""
    before = path.stat().st_mtime_ns
    [one] = world.rollback(1).sessions

    assert (one.state, one.values, one.missed) == ("rolled back", 1, ())
    assert path.read_bytes() == original
    assert path.stat().st_mtime_ns == before
    assert world.leftovers() == []


def test_a_rollback_is_a_run_and_an_event(world, original):
    """It has a number of its own and says which run it undid."""
    made = world.rollback(1).made

    assert world.store.runs.named(made).command == "rollback"
    assert world.store.runs.named(made).facts == {"rolls_back": 1, "sessions": 1, "restored": 1}
    [event] = [one for one in world.store.events.after(0) if one.kind == "rollback"]
    assert (event.run_id, event.facts["rolls_back"], event.facts["values"]) == (made, 1, 1)


def test_taking_a_run_back_twice_changes_nothing(world, original, path):
    """The second time there is nothing to undo: no run, no event, the same file."""
    world.rollback(1)
    before = path.stat().st_ino, world.store.events.newest()
    again = world.rollback(1)

    assert (path.stat().st_ino, world.store.events.newest()) == before
    assert again.made is None
    assert [(one.state, one.since) for one in again.sessions] == [
        ("nothing to undo", {RESTORED_SINCE: 1})
    ]


def test_the_next_scan_leaves_what_a_rollback_put_back(world, original, path, clock):
    """It is protected as after any restore, and goes again when that time is over."""
    world.rollback(1)
    clock.now += 60
    world.scan()
    assert path.read_bytes() == original

    clock.now += 600
    assert world.scan().values_extracted == 1


def test_only_that_run_is_taken_back(world, conversation, clock):
    """What another run cut stays cut, and goes back with that one."""
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


def test_a_field_is_taken_back_with_its_run(world, original, path, pruned):
    """A pin goes with the run that set it; the value that another run cut stays cut."""
    before = path.read_bytes()
    pin(world, pruned, 7)
    [one] = world.rollback(2).sessions

    assert one.insertions_removed == (f"_extractable of {pruned}",)
    assert path.read_bytes() == before


def test_what_a_run_put_back_is_not_taken_away(world, original, path, pruned):
    """Of a restore only the field goes: the value stays."""
    world.restore(pruned)
    world.rollback(2)

    assert path.read_bytes() == original


@pytest.fixture
def shortened(world, pruned, path, conversation, clock):
    """Let the agent restore an entry itself and a scan shorten its call and the answer."""
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


def test_the_agents_own_call_comes_back_with_its_run(world, path, shortened):
    """What was shortened stands there as it was said."""
    [scan] = world.store.runs.newest(1)
    assert scan.facts["redacted"] == 2

    [one] = world.rollback(scan.id).sessions
    assert one.values == scan.facts["redacted"] + scan.facts["extracted"]
    assert shortened in path.read_bytes()
    assert b"_redacted" not in path.read_bytes()


@pytest.mark.parametrize("whole", [False, True], ids=["its run", "everything"])
def test_what_was_shortened_and_cannot_come_back_goes_on_saying_so(world, path, shortened, whole):
    """The answer whose value expired keeps its field; that of the call goes with its value."""
    sql(
        world,
        "UPDATE extractions SET blob_id = NULL, expired_at = 1.0,"
        " expired_why = 'test' WHERE replacement IS NOT NULL AND kind = 'tool_result'",
    )
    [scan] = world.store.runs.newest(1)
    assert path.read_bytes().count(b'"_redacted":true') == 2

    [one] = world.restore_all(pristine=True) if whole else world.rollback(scan.id).sessions

    [left] = [line for line in path.read_bytes().splitlines() if b'"_redacted":true' in line]
    assert b'"toolResult"' in left
    assert shortened not in left
    assert any(missed.endswith("expired") for missed in one.missed)


def test_a_session_at_work_gets_its_values_when_it_is_idle(
    world, pruned, path, conversation, clock
):
    """Until then it waits, is noted once, and says so; the next scan carries it out."""
    open_turn(path, conversation, clock)
    before = path.read_bytes()
    [one] = world.rollback(1).sessions
    [again] = world.rollback(1).sessions

    assert (one.state, again.state) == ("pending", "pending")
    assert path.read_bytes() == before
    assert world.store.requests.count_open() == 1
    close_turn(path, conversation, clock)
    clock.now += 2 * DAY
    world.scan()
    assert world.store.requests.count_open() == 0
    assert entry_text(path, pruned) == "x" * 2000
    told = [one.facts for one in world.store.events.after(0, kinds=["rollback"])]
    assert [one.get("pending") for one in told] == [True, None]
    assert [one["rolls_back"] for one in told] == [1, 1]


def test_one_session_of_a_run_can_be_taken_back(world, original, path, conversation):
    """The others stay as the run left them."""
    other = world.put("t.jsonl", conversation.bytes().replace(b"000000000001", b"000000000002"))
    world.rollback(1)
    sql(world, "DELETE FROM restores")
    world.scan()
    before = other.read_bytes()
    number = world.store.runs.newest(1)[0].id

    assert [one.session for one in world.rollback(number, ["main/s"]).sessions] == ["main/s"]
    assert path.read_bytes() == original
    assert other.read_bytes() == before


def test_what_was_put_back_since_is_counted(world, original, path, pruned):
    """A value that somebody restored is not the rollback's to undo."""
    world.restore(pruned, pristine=True)
    [one] = world.rollback(1).sessions

    assert (one.state, one.since) == ("nothing to undo", {RESTORED_SINCE: 1})


def test_what_the_agent_changed_since_is_counted(world, original, path, pruned):
    """Where the placeholder stands no more, nothing is guessed."""
    text = path.read_bytes().replace(b"[[extracted-" + pruned.encode() + b"]]", b"something else")
    path.write_bytes(text)
    [one] = world.rollback(1).sessions

    assert (one.state, one.since) == ("nothing to undo", {CHANGED_SINCE: 1})
    assert path.read_bytes() == text


def test_a_file_that_is_gone_is_named(world, original, path):
    """Of a session that only the store knows there is nothing to take back."""
    path.unlink()

    assert [one.state for one in world.rollback(1).sessions] == ["gone"]


def test_a_file_that_cannot_be_looked_for_is_not_called_gone(world, original):
    """Where its root is away, the session is unfinished: its placeholders may still be there."""
    world.root.rename(world.base / "away")
    [one] = world.rollback(1).sessions

    assert (one.state, one.unfinished) == ("failed", True)
    assert "may still contain placeholders" in one.reason


def test_a_run_that_is_none_is_not_found(world, original):
    """Neither is a session in which the run did nothing."""
    with pytest.raises(NotFoundError, match="there is no run 77"):
        world.rollback(77)
    with pytest.raises(NotFoundError, match="no session is called"):
        world.rollback(1, ["main/other"])


def test_retention_lets_a_rollback_be(world, original, path, clock, monkeypatch):
    """What a rollback restored expires as anything that was restored, with its event."""
    monkeypatch.setattr(clocks, "boot_clock", lambda: clock.now)
    world.rollback(1)
    for _ in range(3):
        retention(world.settings(), world.store, clock=world.clock)
        clock.now += 2 * DAY
        world.scan(enabled=False)

    [event] = world.store.events.after(0, kinds=["expiry"])
    assert event.facts["values"] == 1
    assert world.store.runs.named(event.run_id).command == "retention"
    assert path.read_bytes() == original


def test_a_run_that_archived_turns_is_taken_back(world):
    """Links and texts go back to the byte, the archives say so, and the turns are told of."""
    talk, _ = conversation_of_turns(4)
    path = world.put("s.jsonl", talk.bytes())
    world.scan(archive={"enabled": True})
    made = world.store.runs.newest(1)[0]
    world.rollback(made.id)
    events = [one for one in world.store.events.after(0) if "archive" in one.kind]
    rows = sql(world, "SELECT run_id FROM archives")

    assert path.read_bytes() == talk.bytes()
    assert (made.facts["archived"], made.facts.get("redacted")) == (2, None)
    assert rows == [(made.id,)] * 2
    assert [(one.kind, one.facts["archives"]) for one in events] == [
        ("archive", 2),
        ("unarchive", 2),
    ]
    assert events[0].facts["tokens_before"] > events[0].facts["tokens_after"]
    assert world.store.runs.newest(1)[0].facts["unarchived"] == 2


def test_a_run_of_which_nothing_can_be_taken_back_is_let_go_of(
    world, pruned, path, clock, monkeypatch
):  # fmt: skip
    """Once its values expired and its events are old, retention releases it, and that is said."""
    monkeypatch.setattr(clocks, "boot_clock", lambda: clock.now)
    retention(world.settings(), world.store, clock=clock)
    path.unlink()
    for _ in range(17):
        clock.now += 2 * DAY
        retention(world.settings(), world.store, clock=clock)
    world.scan()
    assert [one.command for one in world.store.runs.newest(None)] == ["retention"]
    clock.now += 31 * DAY
    retention(world.settings(), world.store, clock=clock)

    assert world.store.runs.newest(None) == []
    with pytest.raises(NotFoundError, match="run 1 is no longer recorded"):
        world.rollback(1)
    with pytest.raises(NotFoundError, match="there is no run 9"):
        world.rollback(9)


def test_a_run_whose_values_are_held_can_be_taken_back_after_years(
    world, pruned, clock, monkeypatch
):
    """As long as a value is held, its run is."""
    monkeypatch.setattr(clocks, "boot_clock", lambda: clock.now)
    for _ in range(3):
        clock.now += 365 * DAY
        world.scan()
        retention(world.settings(retention_standing="never"), world.store, clock=clock)

    assert world.store.events.after(0) == []
    [done] = world.rollback(1).sessions
    assert done.values == 1


def test_a_rollback_counts_turns_apart_from_values(world):
    """What it says agrees with its run: archived turns are no values, there and once more."""
    talk, _ = conversation_of_turns(4)
    world.put("s.jsonl", talk.bytes())
    world.scan(archive={"enabled": True})
    [one] = world.rollback(1).sessions
    facts = world.store.runs.named(2).facts
    [again] = world.rollback(1).sessions

    assert (one.values, one.turns) == (facts.get("restored", 0), facts["unarchived"])
    assert again.since[f"archived turn, {RESTORED_SINCE}"] == one.turns
    assert sum(again.since.values()) == one.values + one.turns


def test_sessions_that_changed_places_are_taken_back_at_once(world):
    """The first rollback finds each session by its own id, so that a second one finds nothing."""
    paths = [world.put(f"{name}.jsonl", with_own_id(name)) for name in ("one", "two")]
    said = [path.read_bytes() for path in paths]
    for path in paths:
        world.scan(only=[str(path)], named=True, keep_recent=0)
    between = paths[0].with_name("between")
    paths[0].rename(between)
    paths[1].rename(paths[0])
    between.rename(paths[1])
    first, second = world.rollback(1), world.rollback(1)

    assert [one.state for one in first.sessions] == ["rolled back"]
    assert not any(one.state == "rolled back" for one in second.sessions)
    assert paths[1].read_bytes() == said[0]
