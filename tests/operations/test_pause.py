"""`pause`: scans extract nothing, of all sessions or of one, until the pause ends."""

import pytest

from brainsurgeon.errors import UsageError
from brainsurgeon.operations.pause import end, pause, pauses
from brainsurgeon.operations.status import check, status
from building.world import close_turn, entry_text, open_turn


@pytest.fixture
def ident(world, conversation):
    """Write two sessions with values that no scan has extracted yet; return an entry's id."""
    ident = conversation.turn()
    conversation.turn("short")
    for name in ("s.jsonl", "t.jsonl"):
        world.put(name, conversation.bytes())
    return ident


def paused(world, **options):
    return pause(world.settings(), world.store, world.clock(), **options)


@pytest.mark.usefixtures("ident")
def test_paused_scans_extract_nothing_until_the_pause_is_ended(world):
    """Also sessions that were looked at during the pause are extracted after it."""
    paused(world)
    report = world.scan()
    assert (report.values_extracted, len(report.pauses)) == (0, 1)

    assert end(world.settings(), world.store, world.clock()) == ()
    assert world.scan().values_extracted > 0


@pytest.mark.usefixtures("ident")
def test_pause_ends_by_itself_at_its_time(world, clock):
    """A pause with an end needs nobody to end it."""
    paused(world, until=world.clock() + 3600)
    assert world.scan().values_extracted == 0

    clock.now += 3601
    assert pauses(world.store, world.clock()).listed() == ()
    assert world.scan().values_extracted > 0


@pytest.mark.usefixtures("ident")
def test_pause_of_one_session_leaves_the_others(world):
    """Only the named session keeps its values."""
    [one] = paused(world, sessions=["main/s"])
    report = world.scan()

    assert one.session == "main/s"
    assert [item.session for item in report.sessions if item.outcome == "changed"] == ["main/t"]


def test_requests_are_carried_out_during_a_pause(world, conversation, ident, path, clock):
    """A pause concerns only what scans do by themselves: a restore that waited is done."""
    world.scan()
    paused(world)
    open_turn(path, conversation, clock)
    assert world.restore(ident, session="main/s").pending
    close_turn(path, conversation, clock)
    world.scan()

    assert entry_text(path, ident) == "x" * 2000


def test_pause_that_would_be_over_is_refused(world):
    """A time in the past pauses nothing."""
    with pytest.raises(UsageError, match="in the past"):
        paused(world, until=world.clock() - 1)
    assert pauses(world.store, world.clock()).listed() == ()


def test_forgotten_pause_is_a_trouble_after_seven_days(world, clock):
    """Until then, status shows it, and monitors stay quiet."""
    paused(world)
    states = []
    for days in (6.9, 0.2):
        clock.now += days * 86_400
        state = status(world.settings(), world.store, world.clock())
        assert [one.ends_at for one in state.pauses] == [None]
        states.append("\n".join(check(state, world.clock())))

    assert ["paused for more than seven days" in text for text in states] == [False, True]
