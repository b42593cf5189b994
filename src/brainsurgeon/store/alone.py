"""Have the store to oneself: no daemon runs on it, and nobody is in the middle of a rewrite."""

from __future__ import annotations

import fcntl
import os
import struct
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from brainsurgeon.errors import BusyError
from brainsurgeon.store.daemon_lock import daemon_holder, hold_daemon_lock
from brainsurgeon.store.opening import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Iterator

_EVERY_SESSION = 0
"""The length of a lock that goes on for ever: each session's lock is one byte of the same file."""


@contextmanager
def hold_store(directory: str) -> Iterator[None]:
    """Hold the daemon's lock and those of all sessions; raise BusyError where somebody has one."""
    if pid := daemon_holder(directory):
        raise BusyError(
            f"the daemon (pid {pid}) is at work on this store: stop it, then run this again"
        )
    with hold_daemon_lock(directory), hold_sessions(directory):
        yield


@contextmanager
def hold_sessions(directory: str) -> Iterator[None]:
    """Hold the writer locks of all sessions, so that no rewrite is under way in the store."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(os.path.join(directory, "locks"), flags, 0o600)
    try:
        deadline = time.monotonic() + PATIENCE
        while not _taken(descriptor):
            if time.monotonic() > deadline:
                raise BusyError("another brainsurgeon is rewriting a session; try again")
            time.sleep(0.05)
        yield
    finally:
        os.close(descriptor)


def _taken(descriptor: int) -> bool:
    command = getattr(fcntl, "F_OFD_SETLK", None)
    try:
        if command is None:  # not Linux: by process instead
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, _EVERY_SESSION, 0)
        else:
            record = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, _EVERY_SESSION, 0)
            fcntl.fcntl(descriptor, command, record)
    except (BlockingIOError, PermissionError):
        return False
    return True
