"""Move what was appended to the old file of a rewrite into the one under the session's name.

Whole, once, and in the order in which it was written; where that is not known nothing is moved.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from brainsurgeon.formats.base import parse, usable_id
from brainsurgeon.model.sessions import End, Fingerprint
from brainsurgeon.model.text import moment_said
from brainsurgeon.sessions import leases
from brainsurgeon.sessions.reading import FileLines, open_plain, read_range

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from brainsurgeon.model.entries import Entry


# Which of two tails was written first, and how much of one was moved to the other before a crash.
# Nothing here writes, and nothing is guessed.


_MARK = 4096
_LINE = re.compile(rb"[^\n]*\n|[^\n]+")
_NAMES = ("id", "__id", "uuid")
"""Where agents name an entry; one that has a name is written once."""


class UncertainError(Exception):
    """It cannot be told which lines a crash left where they are, and which were moved there."""


def end_of(descriptor: int, size: int) -> End:
    """Say how a file of this size ends: its size, and a digest of its last bytes."""
    last = os.pread(descriptor, min(size, _MARK), max(0, size - _MARK))
    return End(size, hashlib.blake2b(last, digest_size=16).digest())


def end_now(descriptor: int) -> End:
    """Say how a file ends now."""
    return end_of(descriptor, os.fstat(descriptor).st_size)


def goes_on(descriptor: int, end: End) -> bool:
    """Tell whether a file still says what it said there, with or without more behind it."""
    return os.fstat(descriptor).st_size >= end.size and end_of(descriptor, end.size) == end


def mark_of(descriptor: int, offset: int, size: int) -> bytes:
    """Give a digest of how a file begins, and of its bytes in front of an offset and of an end.

    One of which these are as they were, and which is no shorter, was at most appended to: agents
    that write a session anew change its length, or its beginning.
    """
    told = hashlib.blake2b(os.pread(descriptor, min(offset, _MARK), 0), digest_size=16)
    for end in (offset, size):
        told.update(os.pread(descriptor, min(end, _MARK), max(0, end - _MARK)))
    return told.digest()


def mark_at(directory: int, name: str, seen: Fingerprint, offset: int) -> bytes | None:
    """Give the mark of a file by its name; None where it is not any more as it was seen."""
    try:
        descriptor = open_plain(name, directory)
    except OSError:
        return None
    try:
        return mark_as_seen(descriptor, offset, seen)
    finally:
        os.close(descriptor)


def mark_as_seen(descriptor: int, offset: int, seen: Fingerprint) -> bytes | None:
    """Give the mark of an open file; None where anything was written to it since it was seen.

    The mark would be that of what was written then, and offsets be taken for true that never were.
    """
    mark = mark_of(descriptor, offset, seen.size)
    return mark if Fingerprint.of(os.fstat(descriptor)) == seen else None


@dataclass(frozen=True, slots=True)
class Tail:
    """What was appended to a file, and when it was last written (nanoseconds since 1970)."""

    data: bytes
    written_ns: int

    @classmethod
    def of(cls, descriptor: int, end: End) -> Tail:
        """Read what stands in an open file behind where it ended."""
        status = os.fstat(descriptor)
        return cls(b"".join(read_range(descriptor, end.size, status.st_size)), status.st_mtime_ns)

    @property
    def lines(self) -> list[bytes]:
        """Its lines, with their newlines; the last may lack one."""
        return _LINE.findall(self.data)


def written_first(one: Tail, other: Tail) -> Tail | None:
    """Give which of two tails was written first; None where nothing shows it, or two signs differ.

    The signs are when the files were last written, and the times that the lines name.
    """
    if one.data == other.data:
        return other  # it makes no difference
    signs = {
        before
        for sign in (_written_before, _said_before)
        for before, after in ((one, other), (other, one))
        if sign(before, after)
    }
    return signs.pop() if len(signs) == 1 else None


def _written_before(before: Tail, after: Tail) -> bool:
    """Compare when both files were last written.

    When that was says something about the last line of a file; of the lines before it nothing.
    """
    return len(after.lines) == 1 and before.written_ns < after.written_ns


def _said_before(before: Tail, after: Tail) -> bool:
    """Compare the times that the lines name, where every line names one."""
    earlier, later = list(_moments(before)), list(_moments(after))
    known = [moment for moment in (*earlier, *later) if moment is not None]
    if len(known) < len(earlier) + len(later):
        return False
    return max(known[: len(earlier)]) < min(known[len(earlier) :])


def _moments(tail: Tail) -> Iterator[float | None]:
    return (moment_said(entry.get("timestamp")) for entry in _entries(tail.data))


def _entries(data: bytes) -> Iterator[Entry]:
    return ((parse(line) or {}) for line in _LINE.findall(data))


def moved(late: bytes, there: bytes) -> int:
    """Tell how many bytes of `late` were moved before a crash came.

    `there` is what stands where the moving began. Another line may stand behind the half of one
    that was moved: that half is counted. Raise UncertainError where somebody else may have written
    the same lines, or where others stand between those that were moved and those that were not.
    """
    shorter = min(len(late), len(there))
    common = next((at for at in range(shorter) if late[at] != there[at]), shorter)
    whole = late[: late.rfind(b"\n", 0, common) + 1]
    if common < shorter and not _torn(late, there, common):
        if whole:
            raise UncertainError("other lines stand behind some of the last ones")
        return 0  # another line, which only begins alike
    if not all(any(usable_id(entry.get(key)) for key in _NAMES) for entry in _entries(whole)):
        raise UncertainError("lines without a name stand at the end of both files")
    return common


def _torn(late: bytes, there: bytes, common: int) -> bool:
    """Tell whether half of the last line was moved, and another line stands right behind it."""
    start = late.rfind(b"\n", 0, common) + 1
    glued, theirs = there[start:].split(b"\n")[0], there[common:].split(b"\n")[0]
    last = b"\n" not in late[common:-1]
    return start < common and last and parse(glued) is None and parse(theirs) is not None


def not_said(late: Tail, descriptor: int, other: int) -> bytes:
    """Leave out the lines that stand in the other file, which an agent wrote anew.

    What is left begins and ends with a line of its own, so that it joins no line that is there.
    """
    lines = [line if line.endswith(b"\n") else line + b"\n" for line in late.lines]
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
        mine = Tail.of(self.old, self.ends[0])
        if not mine.data:
            return Moved(0, self.ends)
        try:
            named = os.open(self.place.name, _TO_WRITE, dir_fd=self.place.directory)
        except FileNotFoundError:
            return Moved(0, self.ends)
        try:
            if not goes_on(named, self.ends[1]):  # its agent wrote it anew
                return self._append(named, mine, not_said(mine, self.old, named))
            return self._move(named, mine)
        finally:
            leases.drop(named)
            os.close(named)

    def _move(self, named: int, mine: Tail) -> Moved:
        """Move it to a file that was at most appended to."""
        grew = os.fstat(named).st_size > self.ends[1].size
        leased = self._lease(named, needed=grew and not self.shared)
        theirs = Tail.of(named, self.ends[1])
        done = self._moved_before(named, mine, theirs)
        if self.shared or done == min(len(mine.data), len(theirs.data)):
            return self._append_noted(named, mine, done)
        first = mine if done else written_first(mine, theirs)
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

    def _moved_before(self, named: int, mine: Tail, theirs: Tail) -> int:
        """Tell how many bytes were moved before a crash."""
        if self.place.ledger.begun != os.fstat(named).st_ino:
            return 0
        try:
            return moved(mine.data, theirs.data)
        except UncertainError as why:
            raise stays(f"a crash left it open whether lines were moved: {why}") from why

    def _append_noted(self, named: int, mine: Tail, done: int) -> Moved:
        """Append what is not there yet, once, whatever happens meanwhile."""
        rest = mine.data[done:]
        if rest:
            self._note(named, done, os.fstat(named).st_ino)
        return self._append(named, mine, rest)

    def _append(self, named: int, mine: Tail, data: bytes) -> Moved:
        append(named, data)
        return Moved(len(data), self._note(named, len(mine.data)))

    def _note(self, named: int, done: int, moving_to: int | None = None) -> tuple[End, End]:
        """Take down how both files end when so many bytes of the tail have been moved."""
        os.fsync(self.old)  # a tail that a power cut takes away would look like a file written anew
        ends = end_of(self.old, self.ends[0].size + done), end_now(named)
        inodes = os.fstat(self.old).st_ino, os.fstat(named).st_ino
        self.place.ledger.note(dict(zip(inodes, ends, strict=True)), moving_to)
        return ends

    def _turn(self, named: int, mine: Tail, theirs: bytes) -> Moved:
        """Give the old file its name back, since its lines were first; the others follow them."""
        self._open_to_write()
        if not leases.take(self.old) or Tail.of(self.old, self.ends[0]) != mine:
            raise stays("somebody opens the old file just now")
        os.fsync(self.old)
        self.place.exchange_names()
        old, there = os.fstat(self.old).st_ino, os.fstat(named).st_ino
        self.place.ledger.note({old: end_now(self.old)}, moving_to=old)
        append(self.old, theirs)
        ends = end_now(named), end_now(self.old)
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
