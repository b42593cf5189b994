"""What happened is listed, followed and counted."""

import pytest

from brainsurgeon.errors import BusyError, NotFoundError, UsageError
from brainsurgeon.model.text import iso
from brainsurgeon.operations import store
from brainsurgeon.operations.history import LISTED, counts, events, follow
from building.world import add_two_values, append, open_turn

DAY = 86_400


def kinds(world, **wanted):
    return [one.kind for one in events(world.settings(), world.store, **wanted)]


def test_what_a_run_does_is_told(world, pruned, clock):
    """A cut and a put-back are told, with their session, their run, and what they were."""
    world.restore(pruned)
    one, two = events(world.settings(), world.store)

    assert (one.kind, one.session, one.run_id) == ("extraction", "main/s", 1)
    assert (two.kind, two.run_id, two.facts["values"]) == ("restoration", 2, 1)


def test_a_request_that_nobody_could_carry_out_is_told(world, pruned, path, conversation, clock):
    """A put-back that found no idle moment in time lapses, with an event."""
    open_turn(path, conversation, clock)
    world.restore(pruned)
    for _ in range(4):  # the agent never rests
        clock.now += 200
        append(path, [{"type": "custom", "id": f"c{clock.now}", "data": 1}])
        world.scan(quiet_seconds=10**6)

    [lapse] = [one for one in world.store.events.after(0) if one.kind == "lapse"]
    assert lapse.facts["entry_id"] == pruned
    assert lapse.session == "main/s"


def test_a_failure_is_told_once(world, pruned, path, clock, monkeypatch):
    """A session that goes on failing for the same reason is told when it begins to."""

    def broken(*_, **__):
        raise PermissionError(13, "no entry")

    monkeypatch.setattr("brainsurgeon.rewrite.inspect.examine_quiet", broken)
    path.write_bytes(path.read_bytes() + b"\n")
    for _ in range(3):
        clock.now += DAY
        world.scan()

    [event] = [one for one in world.store.events.after(0) if one.kind == "failure"]
    assert (event.session, event.facts["reason"]) == ("main/s", "no entry")


def test_events_are_chosen_by_time_kind_and_session(world, pruned, clock):
    """Since an id or a moment, of some kinds, of one session."""
    clock.now += 60
    world.restore(pruned)

    assert kinds(world, since="1") == ["restoration"]
    assert kinds(world, since=iso(clock.now)) == ["restoration"]
    assert kinds(world, kinds=["extraction"]) == ["extraction"]
    assert kinds(world, session="main/s") == ["extraction", "restoration"]


def test_what_is_no_event_and_no_moment_is_refused(world, pruned):
    """A wrong kind, moment or session is named."""
    for wanted, error in (
        ({"kinds": ["extractions"]}, UsageError), ({"since": "yesterday"}, UsageError),
        ({"session": "nobody"}, NotFoundError),
    ):  # fmt: skip
        with pytest.raises(error):
            kinds(world, **wanted)


def test_without_a_moment_the_newest_are_listed(world, pruned):
    """Of many events the newest are given, unless all are asked for."""
    with world.store.transaction():
        for _ in range(LISTED):
            world.store.events.add(1.0, "expiry", None, {}, None)

    assert kinds(world) == ["expiry"] * LISTED
    assert len(kinds(world, everything=True)) == LISTED + 1


def test_who_follows_sees_each_event_once(world, pruned, clock):
    """From an id on, and then whatever comes, in its order; nothing comes twice."""
    looks = follow(world.settings(), since="0", wait=lambda: True)
    first, idle = next(looks), next(looks)
    world.restore(pruned)
    later = next(looks)

    assert [[one.id for one in some] for some in (first, idle, later)] == [[1], [], [2]]


def test_who_follows_from_now_on_sees_what_comes(world, pruned):
    """Without a beginning only what happens from now on is seen, of the session that is meant."""
    looks = follow(world.settings(), session="main/s", kinds=["restoration"], wait=lambda: True)
    assert next(looks) == []
    world.restore(pruned)

    assert [one.kind for one in next(looks)] == ["restoration"]


def test_who_follows_waits_for_a_store(world, conversation):
    """Where there is no store yet, what the first run does is the first that is seen."""
    conversation.turn()
    conversation.turn("y" * 2000)
    world.put("s.jsonl", conversation.bytes())
    looks = follow(world.settings(), wait=lambda: True)
    assert next(looks) == []
    world.scan()

    assert [one.kind for one in next(looks)] == ["extraction"]


@pytest.mark.parametrize("removed", [False, True])
def test_following_ends_when_another_store_takes_the_place(
    world, pruned, clock, tmp_path, removed
):  # fmt: skip
    """Another store may use the same ids, so that following it would tell some twice or never."""
    kept = str(tmp_path / "kept.db")
    store.back_up(world.settings(), kept)
    looks = follow(world.settings(), since="0", wait=lambda: True)
    assert [one.id for one in next(looks)] == [1]
    world.close()
    if removed:
        (world.state / "store.db").unlink()
    else:
        with store.replacing_store(world.settings(), kept) as (_, carry_out):
            carry_out(clock())

    with pytest.raises(BusyError, match="the store was replaced"):
        next(looks)


def test_following_ends_when_nobody_waits(world, pruned):
    """It ends after the look behind which nobody wants another."""
    assert len(list(follow(world.settings(), since="0", wait=lambda: False))) == 1


def test_what_went_and_came_back_is_counted_by_kind_and_tool(world, conversation, clock):
    """Values and characters, out and back, for each kind and tool."""
    ident = add_two_values(conversation)
    conversation.turn("z" * 600, "read")
    conversation.turn("short")
    world.put("s.jsonl", conversation.bytes())
    world.scan()
    world.restore(ident)

    listed = counts(events(world.settings(), world.store))
    assert [(one.kind, one.tool, one.extracted, one.restored) for one in listed] == [
        ("tool_result", "exec", 3, 3), ("tool_result", "read", 1, 0),
    ]  # fmt: skip
    assert listed[0].extracted_chars == listed[0].restored_chars == 7500
