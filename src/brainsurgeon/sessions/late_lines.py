"""How files end, and what was appended to the old file of a rewrite since."""

from __future__ import annotations

import errno
import hashlib
import os
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from brainsurgeon.formats.base import parse, usable_id
from brainsurgeon.model.sessions import End, Fingerprint
from brainsurgeon.sessions import leases
from brainsurgeon.sessions.reading import FileLines, open_plain, read_range

if TYPE_CHECKING:
    from collections.abc import Mapping


_MARK = 4096
# Where agents name an entry; one that has a name is written once.
_NAMES = ("id", "__id", "uuid")


def end_of(descriptor: int, size: int) -> End:
    """Return how a file of this size ends: its size, and a digest of its last bytes."""
    last = os.pread(descriptor, min(size, _MARK), max(0, size - _MARK))
    return End(size, hashlib.blake2b(last, digest_size=16).digest())


def end_now(descriptor: int) -> End:
    return end_of(descriptor, os.fstat(descriptor).st_size)


def goes_on(descriptor: int, end: End) -> bool:
    """Check whether a file still says what it said there, with or without more behind it."""
    return os.fstat(descriptor).st_size >= end.size and end_of(descriptor, end.size) == end


def mark_of(descriptor: int, offset: int, size: int) -> bytes:
    """Return a digest of how a file begins, and of its bytes in front of an offset and of an end.

    One of which these are as they were, and which is no shorter, was at most appended to: agents
    that write a session anew change its length, or its beginning.
    """
    told = hashlib.blake2b(os.pread(descriptor, min(offset, _MARK), 0), digest_size=16)
    for end in (offset, size):
        told.update(os.pread(descriptor, min(end, _MARK), max(0, end - _MARK)))
    return told.digest()


def mark_at(directory: int, name: str, seen: Fingerprint, offset: int) -> bytes | None:
    """Return the mark of a file by its name; None where it is not any more as it was seen."""
    try:
        descriptor = open_plain(name, directory)
    except OSError:
        return None
    try:
        return mark_as_seen(descriptor, offset, seen)
    finally:
        os.close(descriptor)


def mark_as_seen(descriptor: int, offset: int, seen: Fingerprint) -> bytes | None:
    """Return the mark of an open file; None where anything was written to it since it was seen.

    The mark would be that of what was written then, and offsets be taken for true that never were.
    """
    mark = mark_of(descriptor, offset, seen.size)
    return mark if Fingerprint.of(os.fstat(descriptor)) == seen else None


def tail_of(descriptor: int, end: End) -> bytes:
    """Read what was appended to an open file since it ended so."""
    return b"".join(read_range(descriptor, end.size, os.fstat(descriptor).st_size))


def moved_before(late: bytes, there: bytes) -> int | None:
    """Count the bytes of `late` that were moved before a crash; None where nothing shows it.

    `there` is what stands where the moving began. Another line may stand behind the half of one
    that was moved: that half is counted. Lines without a name may be somebody else's.
    """
    pairs = enumerate(zip(late, there, strict=False))
    common = next((at for at, (one, other) in pairs if one != other), min(len(late), len(there)))
    start = late.rfind(b"\n", 0, common) + 1
    if not all(map(_is_named, late[:start].splitlines())):
        return None
    glued, behind = there[start:].split(b"\n")[0], there[common:].split(b"\n")[0]
    torn = parse(glued) is None and parse(behind) is not None
    return common if torn or common == min(len(late), len(there)) else start


def _is_named(line: bytes) -> bool:
    entry = parse(line) or {}
    return any(usable_id(entry.get(key)) for key in _NAMES)


def missing_lines(late: bytes, old: int, named: int) -> bytes:
    """Return the lines of `late` that a file lacks which an agent wrote anew.

    Lines that are alike are counted, in the old file too. What is returned begins and ends with a
    line of its own, so that it joins no line that is there.
    """
    lines = [line + b"\n" for line in late.splitlines()]
    here, there = _count(old, lines), _count(named, lines)
    missing = []
    for line in lines:
        if there[line] >= here[line] > 0:
            continue
        there[line] += 1
        missing.append(line)
    size = os.fstat(named).st_size
    ended = size == 0 or os.pread(named, 1, size - 1) == b"\n"
    return b"\n" * (bool(missing) and not ended) + b"".join(missing)


def _count(descriptor: int, lines: list[bytes]) -> Counter[bytes]:
    """Count how often each of these lines stands in a file."""
    asked = set(lines)
    size = os.fstat(descriptor).st_size
    whole = (one.raw + b"\n" for one in FileLines(descriptor, size) if one.raw is not None)
    return Counter(line for line in whole if line in asked)


# Somebody may have put a link or a pipe in a file's place: nothing is followed or waited for.
CAREFULLY = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


class StaysError(OSError):
    """The old file cannot go now, for the reason given; it stays under its temporary name.

    `ended` says that no later try could change that.
    """

    ended = False


def stays(why: str, *, ended: bool = False) -> StaysError:
    """Return the error that says why the old file stays."""
    error = StaysError(errno.EBUSY, why)
    error.ended = ended
    return error


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
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def inode(directory: int, name: str) -> int | None:
    """Return which file a name stands for, or None."""
    try:
        return os.stat(name, dir_fd=directory, follow_symlinks=False).st_ino
    except FileNotFoundError:
        return None
