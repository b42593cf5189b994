"""After an exchange: what was written into the old file is moved over, then the old file goes.

The same is done to finish a rewrite, to undo one, and to heal one that a crash interrupted; the
"old" file is always the one under the temporary name.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from brainsurgeon.sessions import late_lines, leases
from brainsurgeon.sessions.late_lines import CAREFULLY, Move, Moved, Place, inode, stays

if TYPE_CHECKING:
    from brainsurgeon.model.sessions import End

LOOK_BACK = 1.0
"""Seconds after the exchange at which the old file is looked at for the last time."""
LOOK_BACK_LONGEST = 2.0
"""Seconds after the exchange until which somebody may keep the old file open."""


def retire(
    place: Place,
    *,
    ends: tuple[End, End],
    deadline: float,
    leased: int | None = None,
    mate: int | None = None,
    shared: bool = False,
    synced: bool = True,
) -> int:
    """Remove the old file, under its temporary name, once nobody can write it any more.

    `ends` are how the old file and the one under the session's name ended. What was appended to
    the old one since, and does not stand in the other yet, is moved over first; return how many
    bytes that were. Where lines were appended to both and those of the old file were first, it
    gets its name back, and the others are moved behind them. An old file that was written anew,
    while the other was at most appended to, is the newer history: it gets its name back, too. A
    session that was deleted stays deleted.

    Raise StaysError where somebody can still write the old file at `deadline` (a moment of the
    monotonic clock), where both files were written anew, or where nothing shows which lines were
    first. `leased` is a descriptor of ours on the old file; `mate` is the inode of the file that
    `ends[1]` is about; `shared` is that of `Move`. Where it is not `synced`, the caller sees to it
    that the removal is durable before the journal forgets the old file.
    """
    descriptor = leased
    if descriptor is None:
        try:
            descriptor = os.open(place.temporary, os.O_RDONLY | CAREFULLY, dir_fd=place.directory)
        except FileNotFoundError:
            return 0
    try:
        done = _bring_together(place, descriptor, ends, deadline, mate, shared=shared)
        if not done.turned:
            _remove(place.directory, place.temporary, synced=synced)
    finally:
        leases.drop(descriptor)
        if leased is None:
            os.close(descriptor)
    if not done.turned:
        return done.size
    return done.size + retire(place, ends=done.ends, deadline=deadline, synced=synced)


def _bring_together(
    place: Place,
    old: int,
    ends: tuple[End, End],
    deadline: float,
    mate: int | None,
    *,
    shared: bool,
) -> Moved:
    """Move what came late, until nobody can write the old file any more."""
    size = 0
    while True:
        certain = _wait_until_closed(old, deadline)
        if not late_lines.goes_on(old, ends[0]):
            turned = _turn_back(place, old, ends[1], mate)
            done = Moved(size, (ends[1], late_lines.end_now(old)), turned)
            break
        if inode(place.directory, place.temporary) != os.fstat(old).st_ino:
            raise stays("the old file was replaced; that one stays beside")
        moved = Move(place, old, ends, deadline, shared).make()
        size, ends = size + moved.size, moved.ends
        done = Moved(size, ends, moved.turned)
        if moved.turned or not (certain and leases.broken(old)):
            break
        leases.drop(old)  # a writer waits to open it: let it through, look again
    return done


def turns_back(place: Place, ends: tuple[End, End]) -> bool:
    """Tell whether `retire` would give the old file its name back since its lines were first."""
    opened: list[int] = []
    try:
        opened.extend(
            os.open(name, os.O_RDONLY | CAREFULLY, dir_fd=place.directory)
            for name in (place.temporary, place.name)
        )
        if not all(map(late_lines.goes_on, opened, ends)):
            return False
        mine = late_lines.Tail.of(opened[0], ends[0])
        if not mine.data or place.ledger.begun == os.fstat(opened[1]).st_ino:
            return False
        theirs = late_lines.Tail.of(opened[1], ends[1])
        return bool(theirs.data) and late_lines.written_first(mine, theirs) is mine
    except FileNotFoundError:
        return False
    finally:
        for descriptor in opened:
            os.close(descriptor)


def _remove(directory: int, temporary: str, *, synced: bool = True) -> None:
    os.unlink(temporary, dir_fd=directory)
    if synced:
        os.fsync(directory)


def _turn_back(place: Place, descriptor: int, end: End, mate: int | None) -> bool:
    """Give an old file that was written anew the session's name back: it is the newer history.

    Whoever wrote it had opened it before the exchange. The file that has the name now gives way
    if it is the other of our two (`mate`) and was at most appended to since `end`, which can be
    moved over; or if it changed earlier than the old one. Raise StaysError otherwise; tell
    whether there is a session at all.
    """
    try:
        named = os.open(place.name, os.O_RDONLY | CAREFULLY, dir_fd=place.directory)
    except FileNotFoundError:  # deleted: so is what stood under that name
        return False
    try:
        grew = os.fstat(named).st_ino == mate and late_lines.goes_on(named, end)
        before = os.fstat(named).st_mtime_ns < os.fstat(descriptor).st_mtime_ns
    finally:
        os.close(named)
    if not (grew or before):
        raise stays("the old file was rewritten; it stays beside the new")
    place.exchange_names()
    return True


def remove(directory: int, temporary: str) -> None:
    """Remove a new file that was never whole; nobody can have written into it."""
    with suppress(FileNotFoundError):
        _remove(directory, temporary)


def move(directory: int, temporary: str, there: int) -> None:
    """Move an old file to the directory that its session is in now; what writes it goes on."""
    os.rename(temporary, temporary, src_dir_fd=directory, dst_dir_fd=there)
    os.fsync(there)
    os.fsync(directory)


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
            raise stays("somebody keeps the old file open")
        time.sleep(0.001)
