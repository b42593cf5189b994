r"""Open one session once, read-only, and read its lines as bytes.

Everything is read, and later leased, through the one descriptor opened here: a second descriptor
of our own would defeat the lease. Lines end at LF only; `str.splitlines` would also cut at
U+2028 and U+0085, which stand unescaped inside JSON strings.
"""

from __future__ import annotations

import os
import stat
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING

from brainsurgeon import formats
from brainsurgeon.model.entries import Line
from brainsurgeon.model.sessions import Fingerprint
from brainsurgeon.sessions import attributes, leases

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from brainsurgeon.formats.base import Format
    from brainsurgeon.model.sessions import SessionFile

CHUNK = 1 << 20
# Bytes; a longer line is carried along without a look inside, so that memory stays bounded.
LONGEST_LINE = 32 << 20

_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


def carry_on() -> None:
    """Never stop."""


class RefusedError(Exception):
    """The session is left alone, for the reason given; `format` names one that is only read."""

    def __init__(self, reason: str, form: str | None = None) -> None:
        super().__init__(reason)
        self.format = form


class ObstacleError(RefusedError):
    """The file cannot be replaced as it is; what stands in the way may go without it changing."""


class RolledBackError(RefusedError):
    """The session is as it was again; for an instant the new content stood under its name."""


def refuse_if(reason: str | None) -> None:
    """Raise RefusedError where there is a reason to."""
    if reason:
        raise RefusedError(reason)


class OpenSession:
    """A session held by one read-only descriptor, and the directory that it stands in.

    `file` is its session file in the state in which it was opened. `check_stop` is called for every
    chunk that is read and may raise StoppedError.
    """

    def __init__(
        self, file: SessionFile, descriptor: int, directory: int, status: os.stat_result,
        check_stop: Callable[[], None],
    ) -> None:  # fmt: skip
        self.fingerprint = Fingerprint.of(status)
        self.file = replace(file, fingerprint=self.fingerprint)
        self.descriptor, self.directory, self.check_stop = descriptor, directory, check_stop
        self.mode = stat.S_IMODE(status.st_mode)
        self.owner = (status.st_uid, status.st_gid)
        self.sparse = status.st_blocks * 512 < status.st_size
        self.times_ns = (status.st_atime_ns, status.st_mtime_ns)
        self._begin = (0, 1)

    @property
    def lines(self) -> FileLines:
        return self.lines_from(*self._begin)

    def lines_from(self, offset: int, number: int) -> FileLines:
        """Return the lines from the one of this number on, which begins at this offset."""
        return FileLines(self.descriptor, self.fingerprint.size, self.check_stop, offset, number)

    def go_on(self, offset: int, number: int, form: Format, identity: str | None) -> None:
        """Take the lines from there on for all there are: what they go on from is known."""
        self._begin, self.format, self.identity = (offset, number), form, identity

    @cached_property
    def _beginning(self) -> tuple[Format, str | None]:
        said = formats.recognise(head(self.lines), self.file.hint)
        if said.form is None:
            raise RefusedError(said.reason, said.name)
        return said.form, said.identity

    @cached_property
    def format(self) -> Format:
        """The format of the file; raise RefusedError with the reason where there is none."""
        return self._beginning[0]

    @cached_property
    def identity(self) -> str | None:
        """Which conversation the file holds; raise RefusedError where it is of no known format."""
        return self._beginning[1]

    @property
    def obstacle(self) -> str | None:
        """Why this file is not to be replaced by us, or None; other than its content may tell."""
        return self.own_obstacle or leases.obstacle(self.directory, self.file.name)

    @property
    def own_obstacle(self) -> str | None:
        """The obstacle that shows in the file itself."""
        if os.fstat(self.descriptor).st_nlink != 1:
            return "the file has more than one name (hard links)"
        unproven = None if self.file.exclusive else leases.unproven(self.descriptor)
        if unproven:
            return leases.UNPROVEN.format(unproven)
        return attributes.lost(self.descriptor, self.directory)

    def differs(self, *, but_ctime: bool = False) -> str | None:
        """Return what changed since the session was opened; it was idle then, so: a new turn."""
        try:
            status = os.stat(self.file.name, dir_fd=self.directory, follow_symlinks=False)
        except FileNotFoundError:
            return "the file was deleted meanwhile"
        now, then = Fingerprint.of(status), self.fingerprint
        if (now.device, now.inode) != (then.device, then.inode):
            return "the file was replaced meanwhile"
        same = (now.size, now.mtime_ns) == (then.size, then.mtime_ns)
        if not same or not (but_ctime or now.ctime_ns == then.ctime_ns):
            return "the file changed meanwhile"
        return None

    def stream(self, start: int, end: int) -> Iterator[bytes]:
        """Yield the bytes from `start` to `end` a few at a time."""
        return read_range(self.descriptor, start, end)

    def read(self, start: int, end: int) -> bytes:
        """Read the bytes from `start` to `end`; fewer when the file has shrunk."""
        self.check_stop()
        return b"".join(read_range(self.descriptor, start, end))


@contextmanager
def open_session(
    file: SessionFile, check_stop: Callable[[], None] = carry_on
) -> Iterator[OpenSession]:
    """Open a session for reading; raise RefusedError where it is no regular file."""
    directory = open_below(file.root, file.directory)
    try:
        descriptor = open_plain(file.name, directory)
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise RefusedError("not a regular file")
            yield OpenSession(file, descriptor, directory, status, check_stop)
        finally:
            os.close(descriptor)
    finally:
        os.close(directory)


def stands_before(session: OpenSession, end: int, texts: Sequence[bytes]) -> bool:
    """Check whether any of some texts stands in front of a place in a session."""
    longest, last = max(map(len, texts)), b""
    for piece in session.stream(0, end):
        session.check_stop()
        edge = last + piece[:longest]
        if any(text in piece or text in edge for text in texts):
            return True
        last = piece[-longest:]
    return False


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


def open_plain(name: str, directory: int) -> int:
    """Open a file for reading, without changing its access time where that is allowed."""
    try:
        return os.open(name, _OPEN | getattr(os, "O_NOATIME", 0), dir_fd=directory)
    except PermissionError:
        return os.open(name, _OPEN, dir_fd=directory)


def head(lines: Iterable[Line]) -> list[bytes]:
    """Return the first lines, by which a format is known, without those too long to look at."""
    return [line.raw for line in islice(lines, formats.HEAD_LINES) if line.raw is not None]


def format_name(descriptor: int, hint: str) -> str | None:
    """Name the format of an open file, or give None where it is not known."""
    return formats.recognise(head(FileLines(descriptor, os.fstat(descriptor).st_size)), hint).name


class FileLines:
    """The lines of the first `size` bytes of an open file, from either end.

    With a `start`, only those from there on, where the line of a `number` begins.
    """

    def __init__(
        self, descriptor: int, size: int, check_stop: Callable[[], None] = carry_on,
        start: int = 0, number: int = 1,
    ) -> None:  # fmt: skip
        self._descriptor = descriptor
        self._size = size
        self._check = check_stop
        self._start, self._number = start, number

    def __iter__(self) -> Iterator[Line]:
        number, offset, pending, lost = self._number, self._start, bytearray(), 0
        for chunk in read_range(self._descriptor, self._start, self._size, CHUNK >> 4 or 1):
            self._check()
            pieces = chunk.split(b"\n")
            last = pieces.pop()
            for piece in pieces:
                length = lost + len(pending) + len(piece)
                if length > LONGEST_LINE:
                    yield Line(number, offset, None)
                else:
                    yield Line(number, offset, bytes(pending) + piece if pending else piece)
                number, offset, lost = number + 1, offset + length + 1, 0
                pending.clear()
            pending += last
            if lost + len(pending) > LONGEST_LINE:
                lost += len(pending)
                pending.clear()
        if lost or pending:
            yield Line(number, offset, None if lost else bytes(pending), terminated=False)

    def backward(self) -> Iterator[Line]:
        """Yield the lines from the last to the first; their number is 0, not known."""
        at, pending, lost = self._size, b"", 0
        first = True
        while at > self._start:
            self._check()
            start = max(self._start, at - CHUNK)
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
        if pending or lost or (self._size > self._start and not first):
            yield Line(0, self._start, None if lost else pending, terminated=not first)


def read_range(descriptor: int, start: int, end: int, chunk: int = CHUNK) -> Iterator[bytes]:
    """Yield the bytes from `start` to `end` by position, in chunks; stop where the file ends.

    The first is as long as said, the next ones are longer.
    """
    while start < end:
        piece = os.pread(descriptor, min(chunk, end - start), start)
        if not piece:
            return
        yield piece
        start += len(piece)
        chunk = CHUNK
