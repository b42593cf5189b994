"""List the sessions in databases of their agents, and read them as lines."""

# Each event is one line. Its offset is the size of all lines before it, newlines included. Rows are
# fetched a few at a time: a long read transaction would keep the agent from truncating its
# write-ahead log.

import os
import sqlite3
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import cache, partial
from hashlib import blake2b
from itertools import chain
from types import MappingProxyType
from typing import NamedTuple, TypeVar

from msgspec.structs import replace

from brainsurgeon import interruption
from brainsurgeon.agents import ROW_FORMATS
from brainsurgeon.agents.openclaw import OPENCLAW
from brainsurgeon.agents.openclaw import database as openclaw_database
from brainsurgeon.agents.openclaw import gate as openclaw_gate
from brainsurgeon.agents.openclaw.database import (
    Database,
    DatabaseUse,
    Payload,
    Schema,
    open_database,
)
from brainsurgeon.agents.openclaw.format import is_bookkeeping, left_open
from brainsurgeon.agents.openclaw.gate import Gate, Window
from brainsurgeon.errors import BusyError
from brainsurgeon.files import leases, sqlite
from brainsurgeon.files.reading import CHUNK, LONGEST_LINE, Opened, RefusedError
from brainsurgeon.files.sqlite import AgentDatabaseError, DatabaseState
from brainsurgeon.model.entries import Line, parse
from brainsurgeon.model.sessions import Fingerprint, NotIdleError, Root, SessionFile, Unreadable

MOST_ROWS = 512
_Item = TypeVar("_Item")
UNTRIED = (
    "SQLite's locks were not tested on this filesystem ({}),"
    " and the session's root is not `exclusive`"
)


class RowSpan(NamedTuple):
    seq: int
    offset: int
    size: int


class RowIndex(list[RowSpan]):
    def __init__(self, sizes: Iterable[tuple[int, int]]) -> None:
        super().__init__()
        self.size = 0  # bytes of all lines, newlines included
        for seq, size in sizes:
            self.append(RowSpan(seq, self.size, size))
            self.size += size + 1

    def at(self, offset: int) -> int:
        if not 0 <= offset < self.size:
            raise ValueError("no line has this offset")
        return bisect_right(self, offset, key=lambda span: span.offset) - 1


class RowLines:
    def __init__(
        self, database: sqlite3.Connection, schema: Schema, session: str, index: RowIndex,
        check_stop: Callable[[], None] = interruption.check,
    ) -> None:  # fmt: skip
        self.database, self._schema, self._session = database, schema, session
        self.index, self._check_stop = index, check_stop
        # Hashes of the texts that `__iter__` read, by sequence number. Python's hash takes a fifth
        # of the time of a digest. Its key is random, so nobody can provoke collisions.
        self._seen: dict[int, int] = {}

    def __iter__(self) -> Iterator[Line]:
        return self.since(1)

    def since(self, first: int) -> Iterator[Line]:
        texts = chain.from_iterable(map(self._texts, self._runs(self.index[first - 1 :])))
        for number, (span, raw) in enumerate(texts, first):
            self._seen[span.seq] = hash(raw)
            yield Line(number, span.offset, raw if len(raw) <= LONGEST_LINE else None)

    def read(self, start: int, end: int) -> bytes:
        end = min(end, self.index.size)
        if start >= end:
            return b""
        spans = self.index[self.index.at(start) : self.index.at(end - 1) + 1]
        text = b"".join(raw + b"\n" for _, raw in self._texts(spans))
        return text[start - spans[0].offset : end - spans[0].offset]

    def row(self, span: RowSpan) -> Payload:
        """Fetch one row. Raises RefusedError if the row changed since its line was read."""
        self._check_stop()
        for _, payload in self._payloads(span.seq, span.seq):
            if self._seen.get(span.seq) in (None, hash(_event(payload))):
                return payload
        raise RefusedError("the session changed meanwhile")

    def _runs(self, spans: Iterable[RowSpan]) -> Iterator[list[RowSpan]]:
        return split(spans, lambda span: span.size, MOST_ROWS, CHUNK)

    def _payloads(self, first: int, last: int) -> list[tuple[int, Payload]]:
        return openclaw_database.payloads(self.database, self._schema, self._session, first, last)

    def _texts(self, spans: list[RowSpan]) -> list[tuple[RowSpan, bytes]]:
        self._check_stop()
        rows = self._payloads(spans[0].seq, spans[-1].seq)
        texts = [_event(payload) for _, payload in rows]
        sizes = [(seq, len(text)) for (seq, _), text in zip(rows, texts, strict=True)]
        if sizes != [(span.seq, span.size) for span in spans]:
            raise RefusedError("the session changed while it was read")
        return list(zip(spans, texts, strict=True))


def split(
    items: Iterable[_Item], weight_of: Callable[[_Item], int], most: int, heaviest: int
) -> Iterator[list[_Item]]:
    """Split into lists of limited length and weight. An item that is too heavy is alone."""
    part: list[_Item] = []
    weight = 0
    for item in items:
        if part and (len(part) >= most or weight + weight_of(item) > heaviest):
            yield part
            part, weight = [], 0
        part.append(item)
        weight += weight_of(item)
    if part:
        yield part


def _event(payload: Payload) -> bytes:
    try:
        text = payload.event()
    except openclaw_database.UnreadableEventError as error:
        raise RefusedError("one of its events is damaged") from error
    if b"\n" in text:
        raise RefusedError("one of its events spans several lines")
    return text


def database_fingerprint(state: DatabaseState) -> Fingerprint:
    main, log = state.main, state.log
    changed = int.from_bytes(_short_digest(repr((main.mtime_ns, log))), signed=True)
    newest = max(main.mtime_ns, log.mtime_ns if log else 0)
    return Fingerprint(main.device, main.inode, main.size, newest, changed)


def _short_digest(text: str) -> bytes:
    return blake2b(text.encode(), digest_size=8).digest()


def list_rows(
    roots: Iterable[Root],
    own_writes: Mapping[str, int] = MappingProxyType({}),
    is_resting: Callable[[str, DatabaseState], bool] = lambda _path, _state: False,
    only_path: str | None = None,
) -> Iterator[SessionFile | Unreadable]:
    """Yield the sessions in the databases below the roots, and every unreadable database.

    `own_writes` are the times (milliseconds) of our last writes, by path of the session. Databases
    for which `is_resting` returns true are left out. `only_path` is the path of a
    database, or of a session in it: no other database is listed.
    """
    seen: set[tuple[int, int]] = set()
    for root in roots:
        outside = only_path and not only_path.startswith(os.path.realpath(root.path) + "/")
        if outside or not root.databases:
            continue
        for item in openclaw_database.databases(root.path):
            if only_path and not f"{only_path}/".startswith(f"{item.path}/"):
                continue
            if isinstance(item, Unreadable):
                yield item
                continue
            try:
                state = sqlite.state_of(item.path)
            except OSError:
                continue  # deleted since the listing
            if state.main.file_id not in seen and not is_resting(item.path, state):
                yield from _sessions(item, root, own_writes)
            seen.add(state.main.file_id)


def databases_below(roots: Iterable[Root]) -> Iterator[Database]:
    items = chain.from_iterable(openclaw_database.databases(root.path) for root in roots)
    return (item for item in items if not isinstance(item, Unreadable))


def out_of_sight(roots: Iterable[Root]) -> Callable[[str], bool]:
    seen = {database.agent_directory for database in databases_below(roots)}

    @cache
    def hidden(agent_directory: str) -> bool:
        return agent_directory not in seen and OPENCLAW.home.superseded(agent_directory)

    return hidden


def layout_of(database: Database) -> Schema:
    """Return the layout of a database. Raises OSError or BusyError if it cannot be read."""
    with open_database(database.path) as opened:
        schema = openclaw_database.examine(opened)
        if not (schema.empty or schema.read_only_reason):
            _listed(opened, schema)
        return schema


class _Listed(NamedTuple):
    windows: list[Window]
    sizes: dict[str, int]  # by session; the database's, if events of a session cannot be read
    unread: dict[str, AgentDatabaseError]  # by session: windows that cannot be read


def _listed(database: sqlite3.Connection, schema: Schema) -> _Listed:
    """Read what lists the sessions of a database. A damaged page hides only the sessions on it."""
    unread: dict[str, AgentDatabaseError] = {}
    try:
        windows = openclaw_gate.windows(database)
    except AgentDatabaseError:
        read = partial(openclaw_gate.window, database)
        found, unread = _one_by_one(openclaw_gate.names(database), read)
        windows = [window for window in found.values() if window]
    try:
        sizes = openclaw_database.totals(database, schema)
    except AgentDatabaseError:
        read_rows = partial(openclaw_database.sizes, database, schema)
        rows, damaged = _one_by_one([window.session for window in windows], read_rows)
        sizes = {session: RowIndex(of_session).size for session, of_session in rows.items()}
        size = "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size"
        sizes |= dict.fromkeys(damaged, database.execute(size).fetchone()[0])
    return _Listed(windows, sizes, unread)


def _one_by_one(
    sessions: Iterable[str], read: Callable[[str], _Item]
) -> tuple[dict[str, _Item], dict[str, AgentDatabaseError]]:
    """Return what can be read, and the errors. Raises AgentDatabaseError if nothing can be read."""
    found: dict[str, _Item] = {}
    errors: dict[str, AgentDatabaseError] = {}
    for session in sessions:
        try:
            found[session] = read(session)
        except AgentDatabaseError as error:
            errors[session] = error
    if errors and not found:
        raise next(iter(errors.values()))
    return found, errors


def list_rows_at(
    roots: Iterable[Root], path: str, own: Mapping[str, int] = MappingProxyType({})
) -> list[SessionFile]:
    return [
        item for item in list_rows(roots, own, only_path=path)
        if isinstance(item, SessionFile) and path in (item.path, item.directory)
    ]  # fmt: skip


def _sessions(
    database: Database, root: Root, own: Mapping[str, int]
) -> Sequence[SessionFile | Unreadable]:
    read_only_reason = None
    files: list[SessionFile | Unreadable] = []
    try:
        with open_database(database.path) as opened:
            schema = openclaw_database.examine(opened)
            if schema.empty:
                return []
            if why := openclaw_database.misplaced(database.path):
                return [Unreadable(database.root, database.path, why, failed=False)]
            read_only_reason = schema.read_only_reason
            listed = _listed(opened, schema)
        for session, error in listed.unread.items():
            why = f"it cannot be read ({error.code})"
            files.append(Unreadable(database.root, f"{database.path}/{session}", why))
        for window in listed.windows:
            own_ms = own.get(f"{database.path}/{window.session}")
            mark = fingerprint(database.path, window, listed.sizes.get(window.session, 0), own_ms)
            files.append(SessionFile(
                database.root, database.path, window.session, database.agent,
                database.agent_directory, root.format, mark, root.exclusive, window.key, own_ms,
            ))  # fmt: skip
    except AgentDatabaseError as error:
        why = read_only_reason or f"it cannot be read ({error.code})"
        return [Unreadable(database.root, database.path, why, failed=read_only_reason is None)]
    except (OSError, BusyError) as error:
        return [Unreadable(database.root, database.path, str(error), failed=False)]
    except Exception as error:  # noqa: BLE001  the other databases are still listed
        why = read_only_reason or f"unexpected {type(error).__name__}"
        return [Unreadable(database.root, database.path, why, failed=read_only_reason is None)]
    return files


def fingerprint(path: str, window: Window, size: int, own: int | None) -> Fingerprint:
    """Return a fingerprint that changes with every change of the session.

    Its modification time is the time of the newest activity. Its change time is the beginning of
    `generation`, an id that every rewrite of the session's events replaces.
    """
    status = os.stat(path, follow_symlinks=False)
    changed = 0
    with suppress(ValueError):
        changed = int((window.events.generation or "0")[:15], 16)  # fits into eight bytes, signed
    inode = int.from_bytes(_short_digest(f"{status.st_ino}/{window.session}"))
    return Fingerprint(status.st_dev, inode, size, window.times.newest(own) * 1_000_000, changed)


class OpenRows(Opened):
    forms = ROW_FORMATS

    def __init__(
        self, file: SessionFile, database: sqlite3.Connection, presence: DatabaseUse,
        check_stop: Callable[[], None], held: ExitStack,
    ) -> None:  # fmt: skip
        self.presence, self.check_stop = presence, check_stop
        self._database, self._held = database, held
        self.schema = openclaw_database.examine(database)
        try:
            window = openclaw_gate.window(database, file.name)
            sizes = openclaw_database.sizes(database, self.schema, file.name)
        except AgentDatabaseError as error:
            if self.schema.read_only_reason:
                raise RefusedError(self.schema.read_only_reason) from error
            raise
        if window is None:
            raise RefusedError("there is no such session in the database any more")
        self.window = window
        index = RowIndex(sizes)
        self.lines: RowLines = RowLines(database, self.schema, file.name, index, check_stop)
        mark = fingerprint(file.directory, window, index.size, file.own_ms)
        self.file, self.fingerprint = replace(file, fingerprint=mark, key=window.key), mark

    def read(self, start: int, end: int) -> bytes:
        return self.lines.read(start, end)

    def lines_from(self, _offset: int, number: int) -> Iterator[Line]:
        return self.lines.since(number)

    def mark(self, _end: int, lines: int) -> object:
        # The generation changes when the agent writes events anew.
        rows = self.lines.index[:lines]
        return self.window.events.generation, len(rows), hash(tuple(rows))

    def stream(self, start: int, end: int) -> Iterator[bytes]:
        while start < end:  # a read fetches whole events, so each piece has at least one
            span = self.lines.index[self.lines.index.at(start)]
            stop = min(end, max(start + CHUNK, span.offset + span.size + 1))
            yield self.read(start, stop)
            start = stop

    @property
    def engine(self) -> str | None:
        """Why a context engine may store turns of this session elsewhere, or None."""
        selected = openclaw_database.selected(self.file.directory)
        if selected.unreadable:
            return f'{selected.unreadable}; databases = "engines" skips this check'
        if selected.engine:
            why = f"the context engine {selected.engine} is selected"
            return f'{why}; databases = "engines" includes it'
        return None

    @property
    def context_tokens(self) -> int | None:
        return openclaw_gate.context_tokens(self._database, self.file.name)

    @property
    def obstacle(self) -> str | None:
        if self.schema.read_only_reason:
            return self.schema.read_only_reason
        path = self.file.directory
        unproven = None if self.file.exclusive else leases.unproven_at(os.path.dirname(path))
        return (
            openclaw_database.misplaced(path)
            or openclaw_database.unwritable(path)
            or (unproven and UNTRIED.format(unproven))
        )

    def check_turn(self, open_turn: str | None, quiet: float, now: float) -> None:
        # An old open turn counts as closed in a file, but here only if its process was killed.
        gate = Gate(quiet, self.presence, self.file.own_ms)
        gate.check(self.window, now)
        if not gate.is_killed(self.window, now) and (left := self._left_open() or open_turn):
            raise NotIdleError(left, in_database=True)

    def _left_open(self) -> str | None:
        events = openclaw_database.messages_backward(self._database, self.schema, self.file.name)
        try:
            for entry in map(parse, events):
                if not is_bookkeeping(entry):
                    left = left_open(entry)
                    return (
                        "the last turn is open: no answer from the assistant"
                        if left is None
                        else left
                    )
        except openclaw_database.UnreadableEventError:
            return "its last message cannot be read"
        return "it has no message yet"

    def release(self) -> None:
        """Close the database. Raises BusyError if it was open as immutable, but was written to."""
        self._held.close()


@contextmanager
def open_rows(
    file: SessionFile, check_stop: Callable[[], None] = interruption.check
) -> Iterator[OpenRows]:
    presence = openclaw_database.presence(file.directory)
    with ExitStack() as held:
        reading = sqlite.reading(file.directory, in_use=not presence.is_closed)
        yield OpenRows(file, held.enter_context(reading), presence, check_stop, held)
