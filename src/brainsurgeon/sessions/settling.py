"""After an exchange: what was written into the old file is moved over, then the old file goes.

The same motion finishes a rewrite, undoes one, and heals one that a crash interrupted.
"""

from __future__ import annotations

import errno
import os
import time
from contextlib import suppress

from brainsurgeon.sessions import leases
from brainsurgeon.sessions.reading import read_range

LOOK_BACK = 1.0
"""Seconds after the exchange at which the old file is looked at for the last time."""
LOOK_BACK_LONGEST = 2.0
"""Seconds after the exchange until which somebody may keep the old file open."""
OLD = ".old"
_CAREFULLY = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
"""Somebody may have put a link or a pipe in a file's place: nothing is followed or waited for."""


class StillOpenError(OSError):
    """Somebody keeps the old file open; it stays under its temporary name until recovery."""


def settle(
    directory: int,
    name: str,
    temporary: str,
    *,
    sizes: tuple[int, int],
    deadline: float,
    leased: int | None = None,
) -> int:
    """Remove the file under the temporary name once nobody has it open; return the bytes saved.

    What was written into it after the exchange (beyond `sizes[0]`, and not yet found beyond
    `sizes[1]` of the named file) is appended to the named file first. Raise StillOpenError when
    it is still open at `deadline` (a monotonic time). `leased` is a descriptor of ours on it.
    """
    descriptor = leased
    if descriptor is None:
        try:
            descriptor = os.open(temporary, os.O_RDONLY | _CAREFULLY, dir_fd=directory)
        except FileNotFoundError:
            return 0
    try:
        _wait_until_closed(descriptor, deadline)
        if _rewritten(descriptor, directory, name, sizes):
            raise StillOpenError(errno.EBUSY, "the old file was rewritten; it stays beside the new")
        late = _late_bytes(descriptor, directory, name, sizes)
        if late:
            _append(directory, name, late)
        os.unlink(temporary, dir_fd=directory)
        os.fsync(directory)
        return len(late)
    finally:
        leases.drop(descriptor)
        if leased is None:
            os.close(descriptor)


def _rewritten(descriptor: int, directory: int, name: str, sizes: tuple[int, int]) -> bool:
    """Tell whether the file was rewritten rather than appended to, as far as it shows.

    It is shorter than it was, or its tail no longer begins where a line did: both files ended in
    the same byte.
    """
    size = os.fstat(descriptor).st_size
    if size <= sizes[0]:
        return size < sizes[0]
    with suppress(FileNotFoundError):
        other = os.open(name, os.O_RDONLY | _CAREFULLY, dir_fd=directory)
        try:
            ends = os.pread(descriptor, 1, sizes[0] - 1), os.pread(other, 1, sizes[1] - 1)
        finally:
            os.close(other)
        return sizes[0] > 0 and sizes[1] > 0 and b"" not in ends and ends[0] != ends[1]
    return False


def remove(directory: int, temporary: str) -> None:
    """Remove a new file that was never whole; nobody can have written into it."""
    with suppress(FileNotFoundError):
        os.unlink(temporary, dir_fd=directory)
        os.fsync(directory)


def _wait_until_closed(descriptor: int, deadline: float) -> None:
    while True:
        try:
            if leases.take(descriptor):
                return
        except leases.LeaseUnsupportedError:
            time.sleep(max(0.0, min(LOOK_BACK, deadline - time.monotonic())))
            return
        if time.monotonic() > deadline:
            raise StillOpenError(errno.EBUSY, "somebody keeps the old file open")
        time.sleep(0.001)


def _late_bytes(descriptor: int, directory: int, name: str, sizes: tuple[int, int]) -> bytes:
    """Give what stands at the end of this file only; whole lines, where both ends differ."""
    late = b"".join(read_range(descriptor, sizes[0], os.fstat(descriptor).st_size))
    if not late:
        return b""
    with suppress(FileNotFoundError):
        other = os.open(name, os.O_RDONLY | _CAREFULLY, dir_fd=directory)
        try:
            there = b"".join(read_range(other, sizes[1], os.fstat(other).st_size))
        finally:
            os.close(other)
        shorter = min(len(late), len(there))
        common = next((i for i in range(shorter) if late[i] != there[i]), shorter)
        if common < shorter:  # both go on, each in its own way: whole lines
            common = late.rfind(b"\n", 0, common) + 1
        late = late[common:]
    return late


def _append(directory: int, name: str, data: bytes) -> None:
    """Append to the session as its agent would; a session that was deleted stays deleted."""
    with suppress(FileNotFoundError):
        descriptor = os.open(name, os.O_WRONLY | os.O_APPEND | _CAREFULLY, dir_fd=directory)
        try:
            write(descriptor, data)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def put_old_name_back(directory: int, temporary: str) -> None:
    """Undo a rename without leases that was stopped halfway, so that `settle` finds one shape."""
    kept = temporary + OLD
    if inode(directory, kept) is None:
        return
    if inode(directory, temporary) is None:
        os.rename(kept, temporary, src_dir_fd=directory, dst_dir_fd=directory)
    else:
        os.unlink(kept, dir_fd=directory)


def write(descriptor: int, data: bytes) -> None:
    """Write all of `data`."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def inode(directory: int, name: str) -> int | None:
    """Give which file a name stands for, or None."""
    try:
        return os.stat(name, dir_fd=directory, follow_symlinks=False).st_ino
    except FileNotFoundError:
        return None
