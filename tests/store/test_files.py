"""Locks: one writer for a session."""

import pytest

from brainsurgeon.errors import BusyError


def test_a_session_is_one_writers_at_a_time(store, neighbour):
    """The lock of a session that another process holds is refused when patience ends."""
    neighbour.evaluate("globals().update(held=store.lock(7))")
    neighbour.evaluate("held.__enter__()")
    with pytest.raises(BusyError, match="another brainsurgeon"), store.lock(7, patience=0.06):
        pass
    with store.lock(8, patience=0):
        others = True
    neighbour.evaluate("held.__exit__(None, None, None)")
    with store.lock(7, patience=0):
        ours = True

    assert others
    assert ours


def test_a_lock_is_waited_for(store, neighbour):
    """A lock that is let go in time is got."""
    neighbour.evaluate("globals().update(held=store.lock(7))")
    neighbour.evaluate("held.__enter__()")
    neighbour.send("time.sleep(0.15) or held.__exit__(None, None, None)")
    with store.lock(7):
        got = True

    neighbour.receive()

    assert got


def test_the_lock_of_a_dead_holder_is_free(store, neighbour):
    """A holder that is killed leaves nothing to clean up."""
    neighbour.evaluate("globals().update(held=store.lock(7))")
    neighbour.evaluate("held.__enter__()")
    neighbour.kill()
    with store.lock(7, patience=0):
        got = True

    assert got
