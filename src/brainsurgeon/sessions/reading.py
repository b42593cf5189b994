r"""Open one session once, read-only, and read its lines as bytes.

Everything is read, and later leased, through the one descriptor opened here: a second descriptor
of our own would defeat the lease. Lines end at `\\n` only; `str.splitlines` would also cut at
U+2028 and U+0085, which stand unescaped inside JSON strings.
"""

from __future__ import annotations

import os
import stat
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING

from brainsurgeon.model import Line
from brainsurgeon.sessions.discover import fingerprint_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from brainsurgeon.model import Fingerprint, Found

CHUNK = 1 << 20
LONGEST_LINE = 64 << 20
"""Bytes; a longer line is carried along without a look inside, so that memory stays bounded."""

_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


def carry_on() -> None:
    """Never stop."""


class Refused(Exception):  # noqa: N818  a verdict on the session, not a failure of ours
    """The session is left alone, for the reason given."""


class RolledBack(Refused):
    """The session is as it was, but for an instant the new content stood under its name."""


@dataclass(frozen=True, slots=True)
class Opened:
    """A session held by one read-only descriptor, and the directory that it stands in."""

    found: Found
    descriptor: int
    directory: int
    fingerprint: Fingerprint
    mode: int
    owner: tuple[int, int]
    times_ns: tuple[int, int]
    check: Callable[[], None]

    @property
    def lines(self) -> FileLines:
        """The lines of the file as it was when it was opened."""
        return FileLines(self.descriptor, self.fingerprint.size, self.check)

    def head(self, count: int) -> list[bytes]:
        """Give the first `count` lines that are not too long to be looked at."""
        return [line.raw for line in islice(self.lines, count) if line.raw is not None]

    def read(self, start: int, end: int) -> bytes:
        """Read the bytes from `start` to `end`; fewer when the file has shrunk."""
        self.check()
        return b"".join(read_range(self.descriptor, start, end))


@contextmanager
def open_session(found: Found, check: Callable[[], None] = carry_on) -> Iterator[Opened]:
    """Open a session for reading; raise Refused for what is not plainly a session of ours.

    `check` is called for every chunk that is read and may raise Stopped.
    """
    directory = open_below(found.root, found.directory)
    try:
        descriptor = _open_plain(found.name, directory)
        try:
            yield _opened(found, descriptor, directory, check)
        finally:
            os.close(descriptor)
    finally:
        os.close(directory)


def open_below(root: str, directory: str) -> int:
    """Open a directory below a root, component by component, following no link."""
    at = os.open(root, _DIRECTORY)
    for name in directory[len(root) :].strip("/").split("/"):
        if name:
            try:
                inner = os.open(name, _DIRECTORY | os.O_NOFOLLOW, dir_fd=at)
            finally:
                os.close(at)
            at = inner
    return at


def _open_plain(name: str, directory: int) -> int:
    """Open by name without touching the access time where that is allowed."""
    try:
        return os.open(name, _OPEN | getattr(os, "O_NOATIME", 0), dir_fd=directory)
    except PermissionError:
        return os.open(name, _OPEN, dir_fd=directory)


def _opened(found: Found, descriptor: int, directory: int, check: Callable[[], None]) -> Opened:
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        raise Refused("not a regular file")
    fingerprint = fingerprint_of(status)
    return Opened(
        found=replace(found, fingerprint=fingerprint),
        descriptor=descriptor,
        directory=directory,
        fingerprint=fingerprint,
        mode=stat.S_IMODE(status.st_mode),
        owner=(status.st_uid, status.st_gid),
        times_ns=(status.st_atime_ns, status.st_mtime_ns),
        check=check,
    )


def writable(session: Opened) -> str | None:
    """Say why this file is never to be replaced by us, or None."""
    if os.fstat(session.descriptor).st_nlink != 1:
        return "the file has more than one name (hard links)"
    if os.geteuid() not in (0, session.owner[0]):
        return "the file belongs to another user"
    return None


class FileLines:
    """The lines of the first `size` bytes of an open file, from either end."""

    def __init__(self, descriptor: int, size: int, check: Callable[[], None] = carry_on) -> None:
        self._descriptor = descriptor
        self._size = size
        self._check = check

    def __iter__(self) -> Iterator[Line]:
        """Yield the lines from the first to the last."""
        number, offset, pending, lost = 1, 0, bytearray(), 0
        for chunk in read_range(self._descriptor, 0, self._size):
            self._check()
            pieces = chunk.split(b"\n")
            for piece in pieces[:-1]:
                length = lost + len(pending) + len(piece)
                raw = None if length > LONGEST_LINE else bytes(pending) + piece
                yield Line(number, offset, raw)
                number, offset, lost = number + 1, offset + length + 1, 0
                pending.clear()
            pending += pieces[-1]
            if lost + len(pending) > LONGEST_LINE:
                lost += len(pending)
                pending.clear()
        if lost or pending:
            yield Line(number, offset, None if lost else bytes(pending), terminated=False)

    def backward(self) -> Iterator[Line]:
        """Yield the lines from the last to the first; their number is 0, not known."""
        at, pending, lost = self._size, b"", 0
        first = True
        while at > 0:
            self._check()
            start = max(0, at - CHUNK)
            chunk = b"".join(read_range(self._descriptor, start, at))
            *pieces, tail = chunk.split(b"\n")
            pieces, head = ([tail, *pieces[:0:-1]], pieces[0]) if pieces else ([], tail)
            end = at
            for piece in pieces:
                offset = end - len(piece)
                raw = None if lost + len(piece) + len(pending) > LONGEST_LINE else piece + pending
                if raw != b"" or not first:
                    yield Line(0, offset, raw, terminated=not first)
                first, pending, lost = False, b"", 0
                end = offset - 1
            pending = head + pending
            if lost + len(pending) > LONGEST_LINE:
                lost, pending = lost + len(pending), b""
            at = start
        if pending or lost or (self._size and not first):
            yield Line(0, 0, None if lost else pending, terminated=not first)


def read_range(descriptor: int, start: int, end: int) -> Iterator[bytes]:
    """Yield the bytes from `start` to `end` in chunks, by position; stop where the file ends."""
    while start < end:
        chunk = os.pread(descriptor, min(CHUNK, end - start), start)
        if not chunk:
            return
        yield chunk
        start += len(chunk)
