"""After an exchange: what was written into the old file is moved over, then the old file goes.

The same is done to finish a rewrite, to undo one, and to heal one that a crash interrupted; the
"old" file is always the one under the temporary name.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import time
from collections import Counter
from contextlib import suppress

from brainsurgeon.model.sessions import End
from brainsurgeon.sessions import leases
from brainsurgeon.sessions.reading import FileLines, read_range

LOOK_BACK = 1.0
"""Seconds after the exchange at which the old file is looked at for the last time."""
LOOK_BACK_LONGEST = 2.0
"""Seconds after the exchange until which somebody may keep the old file open."""
OLD = ".old"
"""Behind the temporary name: a second name that the old file has during a rename without leases."""
_TAIL = 4096
_LINE = re.compile(rb"[^\n]*\n|[^\n]+")
CAREFULLY = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
"""Somebody may have put a link or a pipe in a file's place: nothing is followed or waited for."""


class StillOpenError(OSError):
    """Somebody keeps the old file open; it stays under its temporary name until recovery."""


def retire(
    directory: int,
    name: str,
    temporary: str,
    *,
    ends: tuple[End, End],
    deadline: float,
    leased: int | None = None,
    mate: int | None = None,
) -> int:
    """Remove the old file, under its temporary name, once nobody can write it any more.

    `ends` are how the old file and the one under the session's name ended. What was appended to
    the old one since, and does not stand in the other yet, is moved over first; return how many
    bytes that were. An old file that was written anew, while the other was at most appended to,
    is the newer history: it gets its name back, and the other is removed in its place. A session
    that was deleted stays deleted.

    Raise StillOpenError where somebody can still write the old file at `deadline` (a moment of
    the monotonic clock), or where both files were written anew. `leased` is a descriptor of ours
    on the old file; `mate` is the inode of the file that `ends[1]` is about.
    """
    descriptor = leased
    if descriptor is None:
        try:
            descriptor = os.open(temporary, os.O_RDONLY | CAREFULLY, dir_fd=directory)
        except FileNotFoundError:
            return 0
    moved = 0
    try:
        while True:
            certain = _wait_until_closed(descriptor, deadline)
            if not goes_on(descriptor, ends[0]):
                break
            moved += _move_late_bytes(descriptor, directory, name, temporary, ends)
            if not (certain and leases.broken(descriptor)):
                _remove(directory, temporary)
                return moved
            leases.drop(descriptor)  # a writer waits to open it: let it through, look again
        if inode(directory, name) is None:  # deleted: so is what stood under that name
            _remove(directory, temporary)
            return moved
        _give_its_name_back(descriptor, directory, name, temporary, ends[1], mate)
        rewritten = end_of(descriptor, os.fstat(descriptor).st_size)
    finally:
        leases.drop(descriptor)
        if leased is None:
            os.close(descriptor)
    other_ends = (ends[1], rewritten)
    return moved + retire(directory, name, temporary, ends=other_ends, deadline=deadline)


def _move_late_bytes(
    descriptor: int, directory: int, name: str, temporary: str, ends: tuple[End, End]
) -> int:
    """Move over what was appended to the old file after the exchange; give how many bytes."""
    if inode(directory, temporary) != os.fstat(descriptor).st_ino:
        raise StillOpenError(errno.EBUSY, "the old file was replaced; that one stays beside")
    late = _late_bytes(descriptor, directory, name, ends)
    if late:
        _append(directory, name, late)
    return len(late)


def _remove(directory: int, temporary: str) -> None:
    os.unlink(temporary, dir_fd=directory)
    os.fsync(directory)


def end_of(descriptor: int, size: int) -> End:
    """Say how a file of this size ends: its size, and a digest of its last bytes."""
    tail = os.pread(descriptor, min(size, _TAIL), max(0, size - _TAIL))
    return End(size, hashlib.blake2b(tail, digest_size=16).digest())


def goes_on(descriptor: int, end: End) -> bool:
    """Tell whether a file still says what it said there, with or without more behind it."""
    return os.fstat(descriptor).st_size >= end.size and end_of(descriptor, end.size) == end


def _give_its_name_back(
    descriptor: int, directory: int, name: str, temporary: str, end: End, mate: int | None
) -> None:
    """Give an old file that was written anew the session's name back: it is the newer history.

    Whoever wrote it had opened it before the exchange. The file that has the name now gives way
    if it is the other of our two (`mate`) and was at most appended to since `end`, which can be
    moved over; or if it changed earlier than the old one. Raise StillOpenError otherwise.
    """
    with suppress(FileNotFoundError):
        named = os.open(name, os.O_RDONLY | CAREFULLY, dir_fd=directory)
        try:
            grew = os.fstat(named).st_ino == mate and goes_on(named, end)
            before = os.fstat(named).st_mtime_ns < os.fstat(descriptor).st_mtime_ns
        finally:
            os.close(named)
        if grew or before:
            exchange_names(directory, temporary, name)
            return
    raise StillOpenError(errno.EBUSY, "the old file was rewritten; it stays beside the new")


def exchange_names(directory: int, one: str, other: str) -> None:
    """Let two files change their names, durably."""
    leases.exchange(directory, one, other)
    os.fsync(directory)


def remove(directory: int, temporary: str) -> None:
    """Remove a new file that was never whole; nobody can have written into it."""
    with suppress(FileNotFoundError):
        _remove(directory, temporary)


def _wait_until_closed(descriptor: int, deadline: float) -> bool:
    """Wait until nobody can write the file; tell whether a lease says so."""
    while True:
        try:
            if leases.no_writers(descriptor):
                return True
        except leases.LeaseUnsupportedError:
            time.sleep(max(0.0, min(LOOK_BACK, deadline - time.monotonic())))
            return False
        if time.monotonic() > deadline:
            raise StillOpenError(errno.EBUSY, "somebody keeps the old file open")
        time.sleep(0.001)


def _late_bytes(descriptor: int, directory: int, name: str, ends: tuple[End, End]) -> bytes:
    """Give what was appended to this file and not to the named one.

    Where something else was appended there, it is whole lines.
    """
    late = b"".join(read_range(descriptor, ends[0].size, os.fstat(descriptor).st_size))
    if not late:
        return b""
    with suppress(FileNotFoundError):
        other = os.open(name, os.O_RDONLY | CAREFULLY, dir_fd=directory)
        try:
            if not goes_on(other, ends[1]):
                return _not_said(late, descriptor, other)
            there = b"".join(read_range(other, ends[1].size, os.fstat(other).st_size))
        finally:
            os.close(other)
        shorter = min(len(late), len(there))
        common = next((i for i in range(shorter) if late[i] != there[i]), shorter)
        if common < shorter:  # both go on, each in its own way: whole lines
            common = late.rfind(b"\n", 0, common) + 1
            return _not_moved(late[common:], there[common:])
        late = late[common:]
    return late


def _not_moved(late: bytes, there: bytes) -> bytes:
    """Leave out the lines that stand there already: a crash came after they had been moved over."""
    moved, wanted = Counter(_LINE.findall(there)), []
    for line in _LINE.findall(late):
        if moved[line]:
            moved[line] -= 1
        else:
            wanted.append(line)
    return b"".join(wanted)


def _not_said(late: bytes, descriptor: int, other: int) -> bytes:
    """Leave out the lines that stand in the other file, which an agent wrote anew.

    What is left begins and ends with a line of its own, so that it joins no line that is there.
    """
    lines = [line if line.endswith(b"\n") else line + b"\n" for line in _LINE.findall(late)]
    here, there = _count(descriptor, lines), _count(other, lines)
    wanted = []
    for line in lines:
        if there[line] >= here[line] > 0:
            continue
        there[line] += 1
        wanted.append(line)
    size = os.fstat(other).st_size
    ended = size == 0 or os.pread(other, 1, size - 1) == b"\n"
    return b"\n" * (bool(wanted) and not ended) + b"".join(wanted)


def _count(descriptor: int, lines: list[bytes]) -> Counter[bytes]:
    """Count how often each of these lines stands in a file."""
    asked = set(lines)
    whole = (
        line.raw + b"\n"  # a last line without its newline counts, too
        for line in FileLines(descriptor, os.fstat(descriptor).st_size)
        if line.raw is not None
    )
    return Counter(line for line in whole if line in asked)


def _append(directory: int, name: str, data: bytes) -> None:
    """Append to the session as its agent would; a session that was deleted stays deleted."""
    with suppress(FileNotFoundError):
        descriptor = os.open(name, os.O_WRONLY | os.O_APPEND | CAREFULLY, dir_fd=directory)
        try:
            write(descriptor, data)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def put_old_name_back(directory: int, temporary: str) -> None:
    """Undo a rename without leases that was stopped halfway: one file a name, as after others."""
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
