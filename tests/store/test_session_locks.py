"""Locks of sessions."""

import pytest

from brainsurgeon.errors import BusyError


@pytest.fixture
def holder(other_process):
    """Return another process that holds the lock of session 7."""
    other_process.evaluate("globals().update(held=store.lock(7))")
    other_process.evaluate("held.__enter__()")
    return other_process


def test_session_lock_excludes_another_process(store, holder):
    """The lock is refused at the end of the patience; the locks of other sessions are free."""
    with pytest.raises(BusyError, match="another brainsurgeon"), store.lock(7, patience=0.06):
        pass
    with store.lock(8, patience=0):
        pass
    holder.evaluate("held.__exit__(None, None, None)")
    with store.lock(7, patience=0):
        pass


def test_session_lock_waits_for_its_release(store, holder):
    """A lock that is released in time is granted."""
    holder.send("time.sleep(0.15) or held.__exit__(None, None, None)")
    with store.lock(7):
        pass
    holder.receive()


def test_session_lock_of_a_killed_process_is_free(store, holder):
    """The lock of a killed process is free at once."""
    holder.kill()
    with store.lock(7, patience=0):
        pass
