"""One daemon for a store."""

import fcntl
import os
import threading

from brainsurgeon.store.database import daemon_holder, hold_daemon_lock


def test_asking_for_the_daemon_never_keeps_it_from_starting(tmp_path):
    """A look at who holds the daemon's lock takes it for a moment; starting waits that long."""
    with hold_daemon_lock(str(tmp_path)):
        pass
    looking = os.open(tmp_path / "daemon.lock", os.O_RDONLY)
    fcntl.flock(looking, fcntl.LOCK_SH)
    threading.Timer(0.05, os.close, (looking,)).start()

    with hold_daemon_lock(str(tmp_path)):
        assert daemon_holder(str(tmp_path)) == os.getpid()
