"""After an exchange: what was written into the old file is moved over, then the old file goes.

The same is done to finish a rewrite, to undo one, and to heal one that a crash interrupted; the
"old" file is always the one under the temporary name.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from brainsurgeon.sessions import late_lines, leases
from brainsurgeon.sessions.late_lines import CAREFULLY, Place, append, inode, stays

if TYPE_CHECKING:
    from brainsurgeon.model.sessions import End

# Seconds after the exchange at which the old file is looked at for the last time.
LOOK_BACK = 1.0
# Seconds after the exchange until which somebody may keep the old file open.
LOOK_BACK_LONGEST = 2.0


_TO_WRITE = os.O_RDWR | os.O_APPEND | CAREFULLY
# Seconds for which a lease is tried where it is not needed.
_A_MOMENT = 0.05
_NO_SESSION = "lines came to the old file, and the session is not there any more"
_TWO_HISTORIES = "the old file was written anew, and so was the session"


@dataclass(frozen=True, slots=True)
class Moved:
    """How many bytes were moved, and how the old file and the named one end then.

    `turned` says that they have changed places: the old file got the session's name back.
    """

    size: int
    ends: tuple[End, End]
    turned: bool = False


def retire(
    place: Place,
    *,
    ends: tuple[End, End],
    deadline: float,
    leased: int | None = None,
    mate: int | None = None,
    shared: bool = False,
    crashed: bool = False,
    synced: bool = True,
) -> int:
    """Remove the old file, under its temporary name, once nobody can write it any more.

    `ends` are how the old file and the one under the session's name ended. What was appended to
    the old one since is moved over first; return how many bytes that were. Of a session that was
    written anew only what it lacks. Where the old one was written anew, or lines were appended to
    both, it gets its name back, and the lines of the other are moved behind: whoever writes an old
    file had opened it before the exchange. A session that was deleted stays deleted; where a crash
    came in between, it may have been moved, and lines of the old file are kept.

    Raise StaysError where somebody can still write either file at `deadline` (a moment of the
    monotonic clock), and with `ended` where both were written anew, or nothing shows what a crash
    moved. `leased` is a
    descriptor of ours on the old file; `mate` is the inode of the file that `ends[1]` is about;
    `shared` says that somebody keeps the named file open: the lines of two programs have no order.
    Where it is not `synced`, the caller sees to it that the removal is durable before the journal
    forgets the old file.
    """
    descriptor = leased
    if descriptor is None:
        try:
            descriptor = os.open(place.temporary, os.O_RDONLY | CAREFULLY, dir_fd=place.directory)
        except FileNotFoundError:
            return 0
    try:
        done = _bring_together(
            place, descriptor, ends, deadline, mate, shared=shared, crashed=crashed
        )
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
    crashed: bool,
) -> Moved:
    """Move what came late, until nobody can write the old file any more."""
    size = 0
    while True:
        certain = _wait_until_closed(old, deadline)
        if inode(place.directory, place.temporary) != os.fstat(old).st_ino:
            raise stays("the old file was replaced; that one stays beside", ended=True)
        moved = _Move(place, old, ends, deadline, mate, shared, crashed).make()
        size, ends = size + moved.size, moved.ends
        if moved.turned or not (certain and leases.broken(old)):
            return Moved(size, ends, moved.turned)
        leases.drop(old)  # a writer waits to open it: let it through, look again


@dataclass(frozen=True, slots=True)
class _Move:
    """One look at what came late to the old file; the parameters are those of `retire`."""

    place: Place
    old: int
    ends: tuple[End, End]
    deadline: float
    mate: int | None
    shared: bool
    crashed: bool

    def make(self) -> Moved:
        """Move it over; nothing where there is nothing, or where the session was deleted."""
        appended = late_lines.goes_on(self.old, self.ends[0])
        late = late_lines.tail_of(self.old, self.ends[0]) if appended else None
        if late == b"":
            return Moved(0, self.ends)
        try:
            named = os.open(self.place.name, _TO_WRITE, dir_fd=self.place.directory)
        except FileNotFoundError:
            if self.crashed:
                raise stays(_NO_SESSION, ended=True) from None
            return Moved(0, self.ends)
        try:
            kept = late_lines.goes_on(named, self.ends[1]) and self._is_mate(named)
            if late is None:
                return self._give_name_back(kept=kept)
            if kept:
                return self._move(named, late)
            missing = late_lines.missing_lines(late, self.old, named)
            append(named, missing)
            return Moved(len(missing), self._note(named, len(late)))
        finally:
            leases.drop(named)
            os.close(named)

    def _is_mate(self, named: int) -> bool:
        return self.mate in (None, os.fstat(named).st_ino)

    def _move(self, named: int, late: bytes) -> Moved:
        """Append it to a file that was at most appended to itself."""
        if not self.shared:
            self._lease(named, time.monotonic() + _A_MOMENT)
        theirs = late_lines.tail_of(named, self.ends[1])
        done = 0
        if self.place.ledger.begun == os.fstat(named).st_ino:
            known = late_lines.moved_before(late, theirs)
            if known is None:
                raise stays("a crash left it open whether lines were moved", ended=True)
            done = known
        if theirs[done:] and late[done:] and not self.shared:
            return self._turn(named, late, done)
        if late[done:]:
            self._note(named, done, os.fstat(named).st_ino)
            append(named, late[done:])
        return Moved(len(late) - done, self._note(named, len(late)))

    def _lease(self, named: int, patience: float) -> bool:
        """Keep everybody else away from the named file; return whether that worked."""
        try:
            while not leases.take(named):
                if time.monotonic() > patience:
                    return False
                time.sleep(0.001)
        except leases.LeaseUnsupportedError:
            return False
        return True

    def _note(self, named: int, done: int, moving_to: int | None = None) -> tuple[End, End]:
        """Record how both files end when so many bytes of the tail have been moved."""
        os.fsync(self.old)  # a tail that a power cut takes away would look like a file written anew
        ends = late_lines.end_of(self.old, self.ends[0].size + done), late_lines.end_now(named)
        inodes = os.fstat(self.old).st_ino, os.fstat(named).st_ino
        self.place.ledger.note(dict(zip(inodes, ends, strict=True)), moving_to)
        return ends

    def _give_name_back(self, *, kept: bool) -> Moved:
        """Let an old file that was written anew be the session; what came to the other follows."""
        if not kept:
            raise stays(_TWO_HISTORIES, ended=True)
        self.place.exchange_names()
        return Moved(0, (self.ends[1], late_lines.end_now(self.old)), turned=True)

    def _turn(self, named: int, late: bytes, done: int) -> Moved:
        """Return the old file its name back and move the lines of the other one behind its own.

        The first `done` bytes of these came from the old file. Both are leased meanwhile, so that
        nobody sees one without the other.
        """
        if not self._lease(named, self.deadline):
            raise stays("somebody has the session open, with lines of its own in it")
        theirs = late_lines.tail_of(named, self.ends[1])[done:]
        self._open_to_write()
        if not leases.take(self.old) or late_lines.tail_of(self.old, self.ends[0]) != late:
            raise stays("somebody opens the old file just now")
        os.fsync(self.old)
        self.place.exchange_names()
        old, there = os.fstat(self.old).st_ino, os.fstat(named).st_ino
        self.place.ledger.note({old: late_lines.end_now(self.old)}, moving_to=old)
        append(self.old, theirs)
        ends = late_lines.end_now(named), late_lines.end_now(self.old)
        self.place.ledger.note(dict(zip((there, old), ends, strict=True)))
        return Moved(len(theirs), ends, turned=True)

    def _open_to_write(self) -> None:
        """Open the old file anew, to write; while our lease stands nobody could, ourselves too."""
        leases.drop(self.old)
        writing = os.open(self.place.temporary, _TO_WRITE, dir_fd=self.place.directory)
        os.dup2(writing, self.old, inheritable=False)
        os.close(writing)


def _remove(directory: int, temporary: str, *, synced: bool = True) -> None:
    os.unlink(temporary, dir_fd=directory)
    if synced:
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
            raise stays("somebody keeps the old file open")
        time.sleep(0.001)
