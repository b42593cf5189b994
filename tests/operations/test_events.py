"""Events: listed, followed and counted."""

import pytest

from brainsurgeon.errors import BusyError, NotFoundError, UsageError
from brainsurgeon.model.text import iso
from brainsurgeon.operations import store
from brainsurgeon.operations.history import LISTED, counts, events, follow
from building.world import add_two_values, append, open_turn

DAY = 86_400


def kinds(world, **wanted):
    return [event.kind for event in events(world.settings(), world.store, **wanted)]


def test_extraction_and_restore_are_recorded_as_events(world, pruned, clock):
    """Each event has its kind, session, run and number of values."""
    world.restore(pruned)
    first, second = events(world.settings(), world.store)

    assert (first.kind, first.session, first.run_id) == ("extraction", "main/s", 1)
    assert (second.kind, second.run_id, second.facts["values"]) == ("restoration", 2, 1)


def test_a_request_that_lapses_is_recorded_as_an_event(world, pruned, path, conversation, clock):
    """A pending restore that finds no idle moment in time lapses, with an event."""
    open_turn(path, conversation, clock)
    world.restore(pruned)
    for _ in range(4):  # the agent never rests
        clock.now += 200
        append(path, [{"type": "custom", "id": f"c{clock.now}", "data": 1}])
        world.scan(quiet_seconds=10**6)

    [lapse] = world.store.events.after(0, kinds=["lapse"])
    assert lapse.facts["entry_id"] == pruned
    assert lapse.session == "main/s"


def test_a_lasting_failure_is_recorded_once(world, pruned, path, clock, monkeypatch):
    """A session that fails again for the same reason adds no further event."""

    def broken(*_, **__):
        raise PermissionError(13, "no entry")

    monkeypatch.setattr("brainsurgeon.rewrite.inspect.examine_quiet", broken)
    path.write_bytes(path.read_bytes() + b"\n")
    for _ in range(3):
        clock.now += DAY
        world.scan()

    [failure] = world.store.events.after(0, kinds=["failure"])
    assert (failure.session, failure.facts["reason"]) == ("main/s", "no entry")


def test_events_are_selected_by_time_kind_and_session(world, pruned, clock):
    """`since` is an event id or a time."""
    clock.now += 60
    world.restore(pruned)

    assert kinds(world, since="1") == ["restoration"]
    assert kinds(world, since=iso(clock.now)) == ["restoration"]
    assert kinds(world, kinds=["extraction"]) == ["extraction"]
    assert kinds(world, session="main/s") == ["extraction", "restoration"]


def test_events_refuse_an_unknown_kind_time_or_session(world, pruned):
    """An unknown kind or time is a usage error, an unknown session is not found."""
    for wanted, error in (
        ({"kinds": ["extractions"]}, UsageError), ({"since": "yesterday"}, UsageError),
        ({"session": "nobody"}, NotFoundError),
    ):  # fmt: skip
        with pytest.raises(error):
            kinds(world, **wanted)


def test_events_lists_the_newest_unless_all_are_wanted(world, pruned):
    """Without `since` the newest LISTED events are returned, with `everything` all."""
    with world.store.transaction():
        for _ in range(LISTED):
            world.store.events.add(1.0, "expiry", None, {}, None)

    assert kinds(world) == ["expiry"] * LISTED
    assert len(kinds(world, everything=True)) == LISTED + 1


def test_follow_yields_each_event_once_in_order(world, pruned, clock):
    """It begins after the given id, and yields an empty page while nothing happens."""
    pages = follow(world.settings(), since="0", wait=lambda: True)
    first, idle = next(pages), next(pages)
    world.restore(pruned)
    later = next(pages)

    assert [[event.id for event in page] for page in (first, idle, later)] == [[1], [], [2]]


def test_follow_without_since_yields_new_events_only(world, pruned):
    """Only later events of the selected session and kind are yielded."""
    pages = follow(world.settings(), session="main/s", kinds=["restoration"], wait=lambda: True)
    assert next(pages) == []
    world.restore(pruned)

    assert [event.kind for event in next(pages)] == ["restoration"]


def test_follow_waits_for_the_store_to_be_created(world, conversation):
    """Without a store, the events of the first run are yielded first."""
    conversation.turn()
    conversation.turn("y" * 2000)
    world.put("s.jsonl", conversation.bytes())
    pages = follow(world.settings(), wait=lambda: True)
    assert next(pages) == []
    world.scan()

    assert [event.kind for event in next(pages)] == ["extraction"]


@pytest.mark.parametrize("removed", [False, True], ids=["replaced", "removed"])
def test_follow_ends_when_the_store_is_replaced(world, pruned, clock, tmp_path, removed):
    """Another store may use the same ids, so that events would be repeated or missed."""
    backup = str(tmp_path / "backup.db")
    store.back_up(world.settings(), backup)
    pages = follow(world.settings(), since="0", wait=lambda: True)
    assert [event.id for event in next(pages)] == [1]
    world.close()
    if removed:
        (world.state / "store.db").unlink()
    else:
        store.replace_store(world.settings(), backup, clock, lambda _: None)

    with pytest.raises(BusyError, match="the store was replaced"):
        next(pages)


def test_follow_ends_when_wait_returns_false(world, pruned):
    """The page before that is the last."""
    assert len(list(follow(world.settings(), since="0", wait=lambda: False))) == 1


def test_counts_sum_values_by_kind_and_tool(world, conversation, clock):
    """Extracted and restored values and characters are summed for each kind and tool."""
    ident = add_two_values(conversation)
    conversation.turn("z" * 600, "read")
    conversation.turn("short")
    world.put("s.jsonl", conversation.bytes())
    world.scan()
    world.restore(ident)

    listed = counts(events(world.settings(), world.store))
    assert [(row.kind, row.tool, row.values_extracted, row.values_restored) for row in listed] == [
        ("tool_result", "exec", 3, 3), ("tool_result", "read", 1, 0),
    ]  # fmt: skip
    assert listed[0].chars == listed[0].chars_restored == 7500
