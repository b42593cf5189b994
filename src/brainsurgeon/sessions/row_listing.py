"""List the sessions that lie in databases of their agents, below the roots."""

from __future__ import annotations

import errno
import os
import sqlite3
from array import array
from bisect import bisect_right
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from types import MappingProxyType
from typing import TYPE_CHECKING

from brainsurgeon.errors import BusyError
from brainsurgeon.hosts import openclaw_database, openclaw_gate, openclaw_schema, sqlite
from brainsurgeon.model.entries import Line
from brainsurgeon.model.sessions import Fingerprint, SessionFile, Unreadable
from brainsurgeon.sessions.reading import LONGEST_LINE, RefusedError, carry_on

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from brainsurgeon.hosts.openclaw_database import Database
    from brainsurgeon.hosts.openclaw_gate import Window
    from brainsurgeon.hosts.openclaw_schema import Payload, Schema
    from brainsurgeon.hosts.sqlite import DatabaseState
    from brainsurgeon.model.sessions import Root


# Each event is one line; its offset is where it would start in a file of all events, each ended by
# a newline. Rows are fetched a few at a time and never inside a long transaction of reading, which
# would keep the agent from cutting back its write-ahead log.


# Bytes of text that are fetched together.
CHUNK = 1 << 20
MOST_ROWS = 512
# Bytes by which the text of a row is known again.
_DIGEST = 16


@dataclass(frozen=True, slots=True)
class RowPlace:
    """Where one event stands: its number in the session, and its bytes among the lines."""

    seq: int
    offset: int
    size: int

    @property
    def end(self) -> int:
        """The offset of the newline that ends the line."""
        return self.offset + self.size


class RowIndex:
    """The places of all events of a session, in a few bytes each."""

    def __init__(self, sizes: Iterable[tuple[int, int]]) -> None:
        self._seqs, self._offsets = array("q"), array("q", [0])
        for seq, size in sizes:
            self._seqs.append(seq)
            self._offsets.append(self._offsets[-1] + size + 1)

    def __len__(self) -> int:
        return len(self._seqs)

    def __getitem__(self, number: int) -> RowPlace:
        """Return the place of the event with this number, counted from 0."""
        offset = self._offsets[number]
        return RowPlace(self._seqs[number], offset, self._offsets[number + 1] - offset - 1)

    @property
    def size(self) -> int:
        """The bytes of all lines together."""
        return self._offsets[-1]

    def at(self, offset: int) -> int:
        """Return the number of the event whose line holds the byte at `offset`."""
        if not 0 <= offset < self.size:
            raise ValueError("no line stands there")
        return bisect_right(self._offsets, offset) - 1


class RowLines:
    """The lines of one session in a database, from either end."""

    def __init__(
        self, database: sqlite3.Connection, schema: Schema, session: str, index: RowIndex,
        check_stop: Callable[[], None] = carry_on,
    ) -> None:  # fmt: skip
        self._database, self._schema, self._session = database, schema, session
        self.index, self._check_stop = index, check_stop
        self._seen = bytearray(_DIGEST * len(index))

    def over(self, database: sqlite3.Connection) -> RowLines:
        """Return the same lines over another connection, with what was seen of them."""
        lines = RowLines(database, self._schema, self._session, self.index, self._check_stop)
        lines._seen = self._seen
        return lines

    def __iter__(self) -> Iterator[Line]:
        for first, last in self._batches(range(len(self.index))):
            for number, raw in self._texts(first, last):
                self._seen[number * _DIGEST : (number + 1) * _DIGEST] = digest(raw)
                yield self._line(number, raw, number + 1)

    def backward(self) -> Iterator[Line]:
        """Yield the lines from the last to the first; their number is 0, not known."""
        for first, last in self._batches(reversed(range(len(self.index)))):
            for number, raw in reversed(list(self._texts(min(first, last), max(first, last)))):
                yield self._line(number, raw, 0)

    def read(self, start: int, end: int) -> bytes:
        """Read the bytes from `start` to `end`, newlines included; fewer where the lines end."""
        end = min(end, self.index.size)
        if start >= end:
            return b""
        first, last = self.index.at(start), self.index.at(end - 1)
        text = b"".join(raw + b"\n" for _, raw in self._texts(first, last))
        offset = self.index[first].offset
        return text[start - offset : end - offset]

    def stream(self, start: int, end: int) -> Iterator[bytes]:
        """Yield the bytes from `start` to `end` a few at a time."""
        while start < min(end, self.index.size):
            number = self.index.at(start)
            upto = number
            while upto + 1 < len(self.index) and self.index[upto + 1].end - start < CHUNK:
                upto += 1
            stop = min(end, self.index[upto].end + 1)
            yield self.read(start, stop)
            start = stop

    def row(self, place: RowPlace) -> Payload:
        """Fetch one row, or raise RefusedError where it is not as it was when its line was read."""
        self._check_stop()
        rows = self._payloads(place.seq, place.seq)
        number = self.index.at(place.offset)
        seen = bytes(self._seen[number * _DIGEST : (number + 1) * _DIGEST])
        if len(rows) != 1 or seen not in (digest(_event(rows[0][1])), bytes(_DIGEST)):
            raise RefusedError("the session changed meanwhile")
        return rows[0][1]

    def _line(self, number: int, raw: bytes, counted: int) -> Line:
        return Line(counted, self.index[number].offset, raw if len(raw) <= LONGEST_LINE else None)

    def _batches(self, numbers: Iterable[int]) -> Iterator[tuple[int, int]]:
        """Yield runs of neighbours, as first and last number, that are worth one fetch."""
        run: list[int] = []
        weight = 0
        for number in numbers:
            size = self.index[number].size
            if run and (weight + size > CHUNK or len(run) >= MOST_ROWS):
                yield run[0], run[-1]
                run, weight = [], 0
            run.append(number)
            weight += size
        if run:
            yield run[0], run[-1]

    def _payloads(self, first: int, last: int) -> list[tuple[int, Payload]]:
        with readable():
            return openclaw_schema.payloads(
                self._database, self._schema, self._session, first, last
            )

    def _texts(self, first: int, last: int) -> Iterator[tuple[int, bytes]]:
        """Fetch the events from number `first` to `last`; raise RefusedError where they differ."""
        self._check_stop()
        rows = self._payloads(self.index[first].seq, self.index[last].seq)
        if len(rows) != last - first + 1:
            raise RefusedError("the session changed while it was read")
        for number, (seq, payload) in enumerate(rows, first):
            text = _event(payload)
            place = self.index[number]
            if (seq, len(text)) != (place.seq, place.size):
                raise RefusedError("the session changed while it was read")
            yield number, text


@contextmanager
def readable() -> Iterator[None]:
    """Turn what SQLite says of a database that cannot be read into an OSError."""
    try:
        yield
    except sqlite3.Error as error:
        why = getattr(error, "sqlite_errorname", None) or "SQLITE_ERROR"
        raise OSError(errno.EIO, f"its database cannot be read ({why})") from error


def digest(text: bytes) -> bytes:
    """Digest an event's text, to know it again."""
    return blake2b(text, digest_size=_DIGEST).digest()


def _event(payload: Payload) -> bytes:
    try:
        text = payload.event()
    except openclaw_schema.UnreadableEventError as error:
        raise RefusedError("one of its events is damaged") from error
    if b"\n" in text:
        raise RefusedError("one of its events spans several lines")
    return text


def mark_of(state: DatabaseState) -> Fingerprint:
    """Reduce the state of a database and of its log to what a scan can remember."""
    main, log = state.main, state.log
    told = repr((main.mtime_ns, log)).encode()
    turned = int.from_bytes(blake2b(told, digest_size=8).digest(), signed=True)
    newest = max(main.mtime_ns, log.mtime_ns if log else 0)
    return Fingerprint(main.device, main.inode, main.size, newest, turned)


NOTHING_OWN: Mapping[str, int] = MappingProxyType({})
# Hexadecimal digits of a generation that fit into a signed integer of eight bytes.
_GENERATION_DIGITS = 15


def never_rests(_path: str, _state: DatabaseState) -> bool:
    """Remember nothing: look into every database."""
    return False


def list_rows(
    roots: Iterable[Root],
    own: Mapping[str, int] = NOTHING_OWN,
    rests: Callable[[str, DatabaseState], bool] = never_rests,
    only: str | None = None,
) -> Iterator[SessionFile | Unreadable]:
    """Yield the sessions in the databases below the roots, and every database that stays shut.

    `own` are the times (milliseconds) that we noted in sessions ourselves, by path. `rests` tells
    that nothing happened in a database, so that it need not be opened and its sessions are left
    out. `only` is the path of one database, or of a session in it.
    """
    met: set[tuple[int, int]] = set()
    for root in roots:
        if not root.databases:
            continue
        for item in openclaw_database.databases(root.path):
            if only is not None and only != item.path and not only.startswith(item.path + "/"):
                continue
            if isinstance(item, Unreadable):
                yield item
                continue
            try:
                state = sqlite.state_of(item.path)
            except OSError:
                continue  # it went away between the listing and the look
            key = (state.main.device, state.main.inode)
            if key not in met:
                met.add(key)
                if not rests(item.path, state):
                    yield from _sessions(item, root, own)


def layout_of(database: Database) -> Schema:
    """Examine the layout of a database; raise OSError or BusyError where it cannot be read."""
    presence = openclaw_database.presence(database.state_directory, database.path)
    owned = not presence.nobody
    with readable(), sqlite.reading(database.path, owned=owned) as opened:
        return openclaw_schema.examine(opened)


def list_rows_at(
    roots: Iterable[Root], path: str, own: Mapping[str, int] = NOTHING_OWN
) -> list[SessionFile]:
    """List what lies at one path: the sessions of a database, or the one session of that path."""
    found = list_rows(_above(roots, path), own, only=path)
    files = (item for item in found if isinstance(item, SessionFile))
    return [file for file in files if path in (file.path, file.directory)]


def row_at(roots: Iterable[Root], path: str) -> SessionFile | Unreadable | None:
    """Return the session of one path, why its database stays shut, or None where neither is."""
    if not os.path.isfile(os.path.dirname(path)):
        return None
    for item in list_rows(_above(roots, path), only=path):
        if isinstance(item, Unreadable) or item.path == path:
            return item
    return None


def _above(roots: Iterable[Root], path: str) -> list[Root]:
    return [root for root in roots if path.startswith(os.path.realpath(root.path) + "/")]


def _sessions(
    database: Database, root: Root, own: Mapping[str, int]
) -> Iterator[SessionFile | Unreadable]:
    unknown = None
    try:
        if why := openclaw_database.misplaced(database):
            yield Unreadable(database.root, database.path, why, failed=False)
            return
        presence = openclaw_database.presence(database.state_directory, database.path)
        with sqlite.reading(database.path, owned=not presence.nobody) as opened:
            schema = openclaw_schema.examine(opened)
            unknown = schema.unknown
            windows = openclaw_gate.windows(opened)
            sizes = openclaw_schema.totals(opened, schema)
        files = [_session(database, root, one, sizes.get(one.session, 0), own) for one in windows]
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorname", None) or "SQLITE_ERROR"
        why = unknown or f"it cannot be read ({code})"
        yield Unreadable(database.root, database.path, why, failed=unknown is None)
        return
    except (OSError, BusyError) as error:
        yield Unreadable(database.root, database.path, str(error), failed=False)
        return
    except Exception as error:  # noqa: BLE001  one odd database must not stop the rest
        why = unknown or f"unexpected {type(error).__name__}"
        yield Unreadable(database.root, database.path, why, failed=unknown is None)
        return
    yield from files


def _session(
    database: Database, root: Root, window: Window, size: int, own: Mapping[str, int]
) -> SessionFile:
    noted = own.get(f"{database.path}/{window.session}")
    return SessionFile(
        database.root, database.path, window.session, database.agent, database.agent_directory,
        root.format, fingerprint(database.path, window, size, noted), root.exclusive, window.key,
        noted,
    )  # fmt: skip


def fingerprint(path: str, window: Window, size: int, own: int | None) -> Fingerprint:
    """Draw from a session's description what tells two states of it apart.

    Its place is its own in its database, its modification time that of its newest activity, its
    change time the generation, which every rewrite of its events replaces.
    """
    status = os.stat(path, follow_symlinks=False)
    generation = (window.extent.generation or "0")[:_GENERATION_DIGITS]
    try:
        turned = int(generation, 16)
    except ValueError:
        turned = 0
    named = f"{status.st_ino}/{window.session}".encode()
    inode = int.from_bytes(blake2b(named, digest_size=8).digest())
    return Fingerprint(status.st_dev, inode, size, window.times.newest(own) * 1_000_000, turned)
