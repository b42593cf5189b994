"""Open a session read-only, and read its lines as bytes."""

# A session file is read and leased through one descriptor: a second would prevent the lease. Lines
# end at LF only: `str.splitlines` also splits at U+2028 and U+0085, which occur in JSON strings.

import hashlib
import os
import stat
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import cached_property
from itertools import islice
from zlib import crc32

from msgspec.structs import replace

from brainsurgeon import interruption
from brainsurgeon.files import attributes, leases
from brainsurgeon.formats.base import Format, ParsedLine
from brainsurgeon.formats.recognition import HEAD_LINES, Beginning, recognise
from brainsurgeon.formats.splice import parsed_entry
from brainsurgeon.formats.transcript import Transcript
from brainsurgeon.model.entries import Line
from brainsurgeon.model.session_files import Fingerprint, NotIdleError, SessionFile

CHUNK = 1 << 20
LONGEST_LINE = 32 << 20  # bytes; to limit the memory, `raw` of a longer line is None

_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class RefusedError(Exception):
    """The session must not be changed. `format` is its format, if that is known."""

    def __init__(self, reason: str, format_name: str | None = None) -> None:
        super().__init__(reason)
        self.format = format_name


class ObstacleError(RefusedError):
    """The file cannot be replaced now. The obstacle may disappear without a change to the file."""


class LineChangedError(NotIdleError):
    """A line is not the one that was read before."""

    def __init__(self) -> None:
        super().__init__("the file changed while it was read")


class Opened(ABC):
    """A session that is open for reading: an OpenFile, or OpenRows of a database."""

    file: SessionFile
    fingerprint: Fingerprint
    check_stop: Callable[[], None]  # called at every read; may raise StoppedError
    lines: Iterable[Line]
    hint = "auto"
    # Returns the transcript, of which only new lines may be read.
    keeper: Callable[["Opened"], Transcript] | None = None
    forms: Mapping[str, Format]  # among which its own is, by their names
    # The last line that was read for an entry within it, and where it is.
    _last_line: tuple[int, int, bytes] = (-1, -1, b"")

    @cached_property
    def _beginning(self) -> tuple[Format, str | None]:
        beginning = recognise(head(self.lines), self.forms, self.hint)
        if beginning.form is None:
            raise RefusedError(beginning.reason, beginning.name)
        return beginning.form, beginning.identity

    @cached_property
    def form(self) -> Format:
        """Raises RefusedError if it is unknown or unsupported."""
        return self._beginning[0]

    @cached_property
    def identity(self) -> str | None:
        """The id of the conversation. Raises RefusedError like `form`."""
        return self._beginning[1]

    @cached_property
    def transcript(self) -> Transcript:
        """Raises RefusedError like `form`."""
        keeper = self.keeper
        return keeper(self) if keeper else Transcript.read(self.form, self.lines)

    def parsed(self, index: int) -> ParsedLine:
        """Read the line of an entry again. Raises LineChangedError if it is no longer the same.

        Of a line that is too long to be read, nothing is known: an object without keys is returned.
        """
        start, end = self.transcript.span(index)
        entry = self.transcript.entries[index]
        if (start, end) == self._last_line[:2]:
            return parsed_entry(entry, start, self._last_line[2])
        raw = self.read(start, end) if end - start <= LONGEST_LINE else b""
        if crc32(raw) != self.transcript.sums[entry.line]:
            raise LineChangedError
        if entry.at:
            self._last_line = start, end, raw
        return parsed_entry(entry, start, raw)

    def check_lines(self) -> None:
        """Raise LineChangedError if the lines are not those that were read before."""
        if not self.transcript.describes(self.lines):
            raise LineChangedError

    @abstractmethod
    def lines_from(self, offset: int, number: int) -> Iterable[Line]:
        """Return the lines from an offset on, at which the line with this number begins."""

    @abstractmethod
    def mark(self, end: int, lines: int) -> object:
        """Return what stays the same while lines are added behind `end`, and these lines.

        None: the session has changed since it was opened.
        """

    @abstractmethod
    def read(self, start: int, end: int) -> bytes:
        """Return the bytes from `start` to `end`; fewer if the session has shrunk."""

    def stream(self, start: int, end: int) -> Iterator[bytes]:
        return (self.read(at, min(at + CHUNK, end)) for at in range(start, end, CHUNK))


class OpenFile(Opened):
    """A session's file, open through one descriptor."""

    def __init__(
        self, file: SessionFile, forms: Mapping[str, Format], descriptor: int, directory: int,
        check_stop: Callable[[], None],
    ) -> None:  # fmt: skip
        self.status = os.fstat(descriptor)
        if not stat.S_ISREG(self.status.st_mode):
            raise RefusedError("not a regular file")
        self.fingerprint = Fingerprint.of(self.status)
        self.file = replace(file, fingerprint=self.fingerprint)
        self.descriptor, self.directory, self.check_stop = descriptor, directory, check_stop
        self.forms, self.hint = forms, file.hint
        self.sparse = self.status.st_blocks * 512 < self.status.st_size
        self.lines: FileLines = self.lines_from(0, 1)

    def lines_from(self, offset: int, number: int) -> "FileLines":
        return FileLines(self.descriptor, self.fingerprint.size, self.check_stop, offset, number)

    def begin_at(self, offset: int, number: int) -> None:
        """Make `lines` and the transcript begin at a later line."""
        self.lines = self.lines_from(offset, number)
        self.__dict__.pop("transcript", None)

    def mark(self, end: int, lines: int) -> bytes | None:  # noqa: ARG002
        mark = mark_of(self.descriptor, end)
        return mark if Fingerprint.of(os.fstat(self.descriptor)) == self.fingerprint else None

    @property
    def mounted(self) -> str | None:
        """Why mounts prevent an exchange of the file, or None. Slow: examines every process."""
        return leases.obstacle(self.directory, self.file.name)

    @property
    def obstacle(self) -> str | None:
        """Why the file cannot be replaced, or None. Checks neither content nor mounts."""
        if os.fstat(self.descriptor).st_nlink != 1:
            return "the file has more than one name (hard links)"
        unproven = None if self.file.exclusive else leases.unproven(self.descriptor)
        if unproven:
            return leases.UNPROVEN.format(unproven)
        return attributes.lost(self.descriptor, self.directory)

    def differs(self) -> str | None:
        try:
            status = os.stat(self.file.name, dir_fd=self.directory, follow_symlinks=False)
        except FileNotFoundError:
            return "the file was deleted meanwhile"
        now = Fingerprint.of(status)
        if now.file_id != self.fingerprint.file_id:
            return "the file was replaced meanwhile"
        return None if now == self.fingerprint else "the file changed meanwhile"

    def read(self, start: int, end: int) -> bytes:
        self.check_stop()
        return b"".join(read_range(self.descriptor, start, end))


@contextmanager
def open_session(
    file: SessionFile, forms: Mapping[str, Format],
    check_stop: Callable[[], None] = interruption.check,
) -> Iterator[OpenFile]:  # fmt: skip
    with ExitStack() as held:
        directory = open_below(file.root, file.directory)
        held.callback(os.close, directory)
        descriptor = held.enter_context(plain_file(file.name, directory))
        yield OpenFile(file, forms, descriptor, directory, check_stop)


def open_below(root: str, directory: str) -> int:
    at = os.open(root, _DIRECTORY)
    for name in filter(None, directory[len(root) :].split("/")):
        try:
            inner = os.open(name, _DIRECTORY | os.O_NOFOLLOW, dir_fd=at)
        finally:
            os.close(at)
        at = inner
    return at


@contextmanager
def plain_file(name: str, directory: int | None = None) -> Iterator[int]:
    try:
        descriptor = os.open(name, _OPEN | getattr(os, "O_NOATIME", 0), dir_fd=directory)
    except PermissionError:  # only the owner may use O_NOATIME
        descriptor = os.open(name, _OPEN, dir_fd=directory)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def head(lines: Iterable[Line]) -> list[bytes]:
    return [line.raw for line in islice(lines, HEAD_LINES) if line.raw is not None]


def recognise_at(descriptor: int, forms: Mapping[str, Format], hint: str) -> Beginning:
    # Recovery calls this even after a signal to stop, so it must not check for one.
    lines = FileLines(descriptor, os.fstat(descriptor).st_size, check_stop=lambda: None)
    return recognise(head(lines), forms, hint)


_MARK = 4096  # bytes read at each end


def mark_of(descriptor: int, end: int) -> bytes:
    """Return a digest of a file's first bytes, and of the bytes before `end`.

    It stays the same if the agent appends lines. It changes if the agent rewrites the file, since
    this changes the beginning or shifts the lines.
    """
    digest = hashlib.blake2b(os.pread(descriptor, min(end, _MARK), 0), digest_size=16)
    digest.update(os.pread(descriptor, min(end, _MARK), max(0, end - _MARK)))
    return digest.digest()


class FileLines:
    def __init__(
        self, descriptor: int, size: int, check_stop: Callable[[], None] = interruption.check,
        start: int = 0, number: int = 1,
    ) -> None:  # fmt: skip
        self._descriptor, self._size, self._check = descriptor, size, check_stop
        self._start, self._number = start, number

    def __iter__(self) -> Iterator[Line]:
        number, offset, pending, lost = self._number, self._start, bytearray(), 0
        for chunk in read_range(self._descriptor, self._start, self._size, CHUNK >> 4 or 1):
            self._check()
            begin = 0
            while (end := chunk.find(b"\n", begin)) >= 0:  # faster than `split`
                length = lost + len(pending) + end - begin
                raw = bytes(pending) + chunk[begin:end] if pending else chunk[begin:end]
                yield Line(number, offset, None if length > LONGEST_LINE else raw)
                number, offset, lost, begin = number + 1, offset + length + 1, 0, end + 1
                pending.clear()
            pending += chunk[begin:]
            if lost + len(pending) > LONGEST_LINE:
                lost += len(pending)
                pending.clear()
        if lost or pending:
            yield Line(number, offset, None if lost else bytes(pending), terminated=False)

    def backward(self) -> Iterator[Line]:
        """Yield the lines from the last to the first, with `number` 0 (unknown)."""
        pending, lost, first = b"", 0, True
        for end in range(self._size, self._start, -CHUNK):
            self._check()
            start = max(self._start, end - CHUNK)
            chunk = b"".join(read_range(self._descriptor, start, end))
            stop = len(chunk)
            while (before := chunk.rfind(b"\n", 0, stop)) >= 0:
                length = lost + stop - before - 1 + len(pending)
                raw = None if length > LONGEST_LINE else chunk[before + 1 : stop] + pending
                if raw != b"" or not first:
                    yield Line(0, start + before + 1, raw, terminated=not first)
                pending, lost, first, stop = b"", 0, False, before
            pending = chunk[:stop] + pending
            if lost + len(pending) > LONGEST_LINE:
                lost, pending = lost + len(pending), b""
        if pending or lost or not first:
            yield Line(0, self._start, None if lost else pending, terminated=not first)


def read_range(descriptor: int, start: int, end: int, chunk: int = CHUNK) -> Iterator[bytes]:
    """`chunk` limits the first piece only."""
    while start < end:
        piece = os.pread(descriptor, min(chunk, end - start), start)
        if not piece:
            return
        yield piece
        start += len(piece)
        chunk = CHUNK
