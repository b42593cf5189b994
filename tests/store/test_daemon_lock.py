"""One daemon for a store."""

import os

import pytest

from brainsurgeon.errors import BusyError
from brainsurgeon.store.database import daemon_holder, hold_daemon_lock


def test_the_daemons_lock_is_held_by_one_and_shows_its_pid(tmp_path):
    """A second daemon is refused, and whoever asks learns who runs, until it ends."""
    directory = str(tmp_path)
    with hold_daemon_lock(directory):
        with pytest.raises(BusyError, match=f"pid {os.getpid()}"), hold_daemon_lock(directory):
            pass
        running = daemon_holder(directory)

    assert running == os.getpid()
    assert daemon_holder(directory) is None
