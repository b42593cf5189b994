"""Move what was appended to the old file of a rewrite into the one under the session's name.

Whole, once, and in the order in which it was written; where that is not known nothing is moved.
"""

from __future__ import annotations

import errno
import os
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from brainsurgeon.sessions import leases, tails

if TYPE_CHECKING:
    from collections.abc import Mapping

    from brainsurgeon.model.sessions import End

CAREFULLY = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
"""Somebody may have put a link or a pipe in a file's place: nothing is followed or waited for."""
_TO_WRITE = os.O_RDWR | os.O_APPEND | CAREFULLY
_A_MOMENT = 0.05
"""Seconds for which a lease is tried where it is not needed."""


class StaysError(OSError):
    """The old file cannot go now, for the reason given; it stays under its temporary name."""


def stays(why: str) -> StaysError:
    """Say why the old file cannot go now."""
    return StaysError(errno.EBUSY, why)


class Ledger:
    """Takes down what is moved, so that after a crash nothing is moved twice; this one does not.

    `begun` is what was taken down before a crash: the inode of the file to which lines were being
    moved.
    """

    begun: int | None = None

    def note(self, ends: Mapping[int, End], moving_to: int | None = None) -> None:
        """Note how files (by inode) end, and to which of them lines are about to be moved."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where two files stand that have exchanged their names: the old one is the temporary one."""

    directory: int
    name: str
    temporary: str
    ledger: Ledger = field(default_factory=Ledger)

    def exchange_names(self) -> None:
        """Let the two files change their names, durably."""
        leases.exchange(self.directory, self.temporary, self.name)
        os.fsync(self.directory)


@dataclass(frozen=True, slots=True)
class Moved:
    """How many bytes were moved, and how the old file and the named one end then.

    `turned` says that they have changed places: the old file got the session's name back.
    """

    size: int
    ends: tuple[End, End]
    turned: bool = False


@dataclass(frozen=True, slots=True)
class Move:
    """The way of what was appended to the old file into the one under the session's name.

    `old` is a descriptor of ours on the old file, `ends` are how both ended before. `shared` says
    that somebody keeps the named file open: the lines of two programs have no order.
    """

    place: Place
    old: int
    ends: tuple[End, End]
    deadline: float
    shared: bool = False

    def make(self) -> Moved:
        """Move it; nothing where the session was deleted."""
        mine = tails.Tail.of(self.old, self.ends[0])
        if not mine.data:
            return Moved(0, self.ends)
        try:
            named = os.open(self.place.name, _TO_WRITE, dir_fd=self.place.directory)
        except FileNotFoundError:
            return Moved(0, self.ends)
        try:
            if not tails.goes_on(named, self.ends[1]):  # its agent wrote it anew
                return self._append(named, mine, tails.not_said(mine, self.old, named))
            return self._move(named, mine)
        finally:
            leases.drop(named)
            os.close(named)

    def _move(self, named: int, mine: tails.Tail) -> Moved:
        """Move it to a file that was at most appended to."""
        grew = os.fstat(named).st_size > self.ends[1].size
        leased = self._lease(named, needed=grew and not self.shared)
        theirs = tails.Tail.of(named, self.ends[1])
        done = self._moved_before(named, mine, theirs)
        if self.shared or done == min(len(mine.data), len(theirs.data)):
            return self._append_noted(named, mine, done)
        first = mine if done else tails.first(mine, theirs)
        if first is theirs:
            return self._append_noted(named, mine, done)
        if first is None:
            raise stays("which of the last lines was written first is not known")
        if not leased:
            raise stays("its lines were first, and without a lease nobody can be kept away")
        return self._turn(named, mine, theirs.data[done:])

    def _lease(self, named: int, *, needed: bool) -> bool:
        """Keep everybody else away from the named file; tell whether that worked.

        It is not needed where nothing was appended there: what is moved is first in any case.
        """
        patience = self.deadline if needed else min(self.deadline, time.monotonic() + _A_MOMENT)
        try:
            while not leases.take(named):
                if time.monotonic() > patience:
                    if needed:
                        raise stays("somebody has the session open, with lines of its own in it")
                    return False
                time.sleep(0.001)
        except leases.LeaseUnsupportedError:
            return False
        return True

    def _moved_before(self, named: int, mine: tails.Tail, theirs: tails.Tail) -> int:
        """Tell how many bytes were moved before a crash."""
        if self.place.ledger.begun != os.fstat(named).st_ino:
            return 0
        try:
            return tails.moved(mine.data, theirs.data)
        except tails.UncertainError as why:
            raise stays(f"a crash left it open whether lines were moved: {why}") from why

    def _append_noted(self, named: int, mine: tails.Tail, done: int) -> Moved:
        """Append what is not there yet, once, whatever happens meanwhile."""
        rest = mine.data[done:]
        if rest:
            self._note(named, done, os.fstat(named).st_ino)
        return self._append(named, mine, rest)

    def _append(self, named: int, mine: tails.Tail, data: bytes) -> Moved:
        append(named, data)
        return Moved(len(data), self._note(named, len(mine.data)))

    def _note(self, named: int, done: int, moving_to: int | None = None) -> tuple[End, End]:
        """Take down how both files end when so many bytes of the tail have been moved."""
        os.fsync(self.old)  # a tail that a power cut takes away would look like a file written anew
        ends = tails.end_of(self.old, self.ends[0].size + done), tails.end_now(named)
        inodes = os.fstat(self.old).st_ino, os.fstat(named).st_ino
        self.place.ledger.note(dict(zip(inodes, ends, strict=True)), moving_to)
        return ends

    def _turn(self, named: int, mine: tails.Tail, theirs: bytes) -> Moved:
        """Give the old file its name back, since its lines were first; the others follow them."""
        self._open_to_write()
        if not leases.take(self.old) or tails.Tail.of(self.old, self.ends[0]) != mine:
            raise stays("somebody opens the old file just now")
        os.fsync(self.old)
        self.place.exchange_names()
        old, there = os.fstat(self.old).st_ino, os.fstat(named).st_ino
        self.place.ledger.note({old: tails.end_now(self.old)}, moving_to=old)
        append(self.old, theirs)
        ends = tails.end_now(named), tails.end_now(self.old)
        self.place.ledger.note(dict(zip((there, old), ends, strict=True)))
        return Moved(len(theirs), ends, turned=True)

    def _open_to_write(self) -> None:
        """Open the old file anew, to write; while our lease stands nobody could, ourselves too."""
        leases.drop(self.old)
        writing = os.open(self.place.temporary, _TO_WRITE, dir_fd=self.place.directory)
        os.dup2(writing, self.old, inheritable=False)
        os.close(writing)


def append(descriptor: int, data: bytes) -> None:
    """Append durably; what came by half is taken back where nobody can have written behind it."""
    size = os.fstat(descriptor).st_size
    try:
        write(descriptor, data)
    except BaseException:
        if leases.held(descriptor):
            os.ftruncate(descriptor, size)
        raise
    os.fsync(descriptor)


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
