"""Processes of this machine: whether one lives, when it began, and who started it."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


_MOST_ANCESTORS = 64
# Fields 3, 4 and 22 of /proc/<pid>/stat, counted after the command name (proc_pid_stat(5)).
_STATE_FIELD, _PARENT_FIELD, _START_FIELD = 0, 1, 19


def lives(pid: int, started: object = None) -> bool:
    """Check whether a process lives and began at `started`.

    In ticks since boot where that is known.

    What the system does not tell counts as yes. One that has ended and waits to be collected by
    its parent does not live.
    """
    if not exists(pid):
        return False
    fields = _status_of(pid)
    if fields and fields[_STATE_FIELD] in (b"Z", b"X"):
        return False
    return not fields or not isinstance(started, int) or int(fields[_START_FIELD]) == started


def exists(pid: int) -> bool:
    """Check whether a process has this number, also one of somebody else."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass  # somebody else's process may have got the number, which its start time tells
    return True


def start_of(pid: int) -> int | None:
    """Return when a process began, in ticks since boot; None where the system does not tell."""
    fields = _status_of(pid)
    return int(fields[_START_FIELD]) if fields else None


def ancestors() -> Iterator[int]:
    """Yield this process, the one that started it, and so on, as far as the system tells."""
    pid = os.getpid()
    for _ in range(_MOST_ANCESTORS):
        yield pid
        fields = _status_of(pid)
        pid = int(fields[_PARENT_FIELD]) if fields else 0
        if pid <= 1:
            return


def _status_of(pid: int) -> list[bytes]:
    """Return what the kernel says of a process, from after its name on.

    Nothing where it does not.
    """
    try:
        with open(f"/proc/{pid}/stat", "rb") as handle:
            fields = handle.read().rsplit(b")", 1)[-1].split()
    except OSError:
        return []
    return fields if len(fields) > _START_FIELD else []


def boot_clock() -> float:
    """Return the seconds since boot, sleep included."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def boot_id() -> str:
    """Name this boot, as far as the system tells."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as handle:
            return handle.read().strip()
    except OSError:
        return ""
