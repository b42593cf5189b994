"""What was appended to the two files of a rewrite after their names were exchanged.

Which of two tails was written first, and how much of one was moved to the other before a crash.
Nothing here writes, and nothing is guessed.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from brainsurgeon.formats.base import parse, usable_id
from brainsurgeon.model.sessions import End, Fingerprint
from brainsurgeon.model.times import moment_said
from brainsurgeon.sessions.reading import FileLines, open_plain, read_range

if TYPE_CHECKING:
    from collections.abc import Iterator

    from brainsurgeon.model.entries import Entry

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


def first(one: Tail, other: Tail) -> Tail | None:
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
