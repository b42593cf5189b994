"""The lock that lets one daemon run on a state directory, and tells who holds it."""

from __future__ import annotations

import fcntl
import os
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from brainsurgeon.errors import BusyError
from brainsurgeon.store.opening import make_directory

if TYPE_CHECKING:
    from collections.abc import Iterator

_LOOKERS = 0.2
"""Seconds for which somebody who only asks for the holder may have the daemon's lock."""


@contextmanager
def hold_daemon_lock(directory: str) -> Iterator[None]:
    """Hold the daemon's lock for a life; raise BusyError with the holder's pid when it is taken."""
    make_directory(directory)
    descriptor = os.open(
        os.path.join(directory, "daemon.lock"),
        os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600,
    )  # fmt: skip
    try:
        _lock_daemon(descriptor, directory)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)


def _lock_daemon(descriptor: int, directory: str) -> None:
    deadline = time.monotonic() + _LOOKERS
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                holder = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip()
                told = f"a daemon is already running here (pid {holder or 'unknown'}): {directory}"
                raise BusyError(told) from None
            time.sleep(0.02)
        else:
            return


def daemon_holder(directory: str) -> int | None:
    """Give the pid of the daemon that runs on a state directory, or None."""
    try:
        descriptor = os.open(os.path.join(directory, "daemon.lock"), os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(descriptor, 32, 0).strip()
        return int(holder) if holder.isdigit() else None
    finally:
        os.close(descriptor)
    return None
