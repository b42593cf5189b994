"""Sessions in databases of agents: rows are read as lines, and a few change in one transaction.

Each row is one line. Its offset is the size of all lines before it, newlines included. Rows are
fetched a few at a time: a long read transaction would keep the agent from truncating its
write-ahead log.
"""

import os
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from functools import cached_property, partial
from hashlib import blake2b
from itertools import chain
from typing import Any, NamedTuple, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from brainsurgeon.files import leases, sqlite, transactions
from brainsurgeon.files.reading import CHUNK, LONGEST_LINE, Opened, RefusedError
from brainsurgeon.files.sqlite import AgentDatabaseError
from brainsurgeon.formats.base import Format
from brainsurgeon.model.entries import Line
from brainsurgeon.model.session_files import Fingerprint, SessionFile, Unreadable
from brainsurgeon.planning.row_steps import RowIndex, RowKey, RowPlan, RowSpan, split

MOST_ROWS_READ = 512  # at a time
PAUSE = 0.010  # seconds between two transactions, in which the agent may write
UNTRIED = (
    "SQLite's locks were not tested on this filesystem ({}),"
    " and the session's root is not `exclusive`"
)
_Item = TypeVar("_Item")


class Database(Struct, frozen=True):
    root: str
    agent: str  # its name in titles
    agent_directory: str
    path: str


class Layout(Struct, frozen=True):
    version: int
    cookie: int  # SQLite changes it with every change of the schema
    program: str | None  # the version of the agent that wrote it
    read_only_reason: str | None  # why it may not be written
    differences: tuple[str, ...] = ()  # from the known layouts: a name and its definition each
    empty: bool = False  # it has no tables for sessions

    def is_unchanged(self, connection: sqlite3.Connection) -> bool:
        return (  # only now is the journal mode known: with `immutable`, SQLite misreports it
            sqlite.pragma(connection, "schema_version") == self.cookie
            and sqlite.pragma(connection, "user_version") == self.version
            and sqlite.pragma(connection, "journal_mode") == "wal"
        )


class Recorded(Struct, frozen=True):
    """What a database says about a session, except its rows. Equal while nothing happens to it."""

    session: str  # its id
    key: str  # the agent's name for it

    @property
    def generation(self) -> str | None:
        """A hexadecimal number that the agent changes when it writes rows anew, if there is one."""
        return None

    def newest(self, own_ms: int | None) -> int:
        """Return the time (milliseconds) of the last change other than `own_ms`, ours."""
        raise NotImplementedError  # a Struct cannot have abstract methods


def fingerprint(path: str, recorded: Recorded, size: int, own_ms: int | None) -> Fingerprint:
    """Return a fingerprint that changes with every change of a session.

    Its modification time is the time of the newest activity. Its change time is the beginning of
    the generation.
    """
    status = os.stat(path, follow_symlinks=False)
    changed = 0
    with suppress(ValueError):
        changed = int((recorded.generation or "0")[:15], 16)  # fits into eight bytes, signed
    inode = int.from_bytes(short_digest(f"{status.st_ino}/{recorded.session}"))
    return Fingerprint(status.st_dev, inode, size, recorded.newest(own_ms) * 1_000_000, changed)


class RowsChangedError(RefusedError):
    """The agent changed the session while it was read."""


class UnreadableRowError(Exception):
    """A row is damaged."""


class Row(Struct, frozen=True, dict=True):
    """The columns of one row that hold a line, and what the line has of other rows."""

    def line(self) -> bytes:
        """Return the line. Raises UnreadableRowError."""
        raise NotImplementedError  # a Struct cannot have abstract methods

    @cached_property
    def digest(self) -> bytes:
        """Shows whether the row is the same, whatever became of the other rows."""
        return digest(self.line())


def short_digest(text: str) -> bytes:
    return blake2b(text.encode(), digest_size=8).digest()


def digest(line: bytes) -> bytes:
    return blake2b(line, digest_size=16).digest()


class RowEdit(Struct, frozen=True):
    key: RowKey
    before: Row
    after: Row


class RowLines:
    def __init__(
        self, fetch: Callable[[Sequence[RowKey]], Sequence[tuple[RowKey, Row]]], index: RowIndex,
        check_stop: Callable[[], None],
    ) -> None:  # fmt: skip
        self._fetch, self.index, self._check_stop = fetch, index, check_stop
        # Hashes of the texts that `__iter__` read. Python's hash takes a fifth of the time of a
        # digest. Its key is random, so nobody can provoke collisions.
        self._seen: dict[RowKey, int] = {}

    def __iter__(self) -> Iterator[Line]:
        return self.since(1)

    def since(self, first: int) -> Iterator[Line]:
        runs = split(self.index[first - 1 :], lambda span: span.size, MOST_ROWS_READ, CHUNK)
        texts = chain.from_iterable(map(self._texts, runs))
        for number, (span, raw) in enumerate(texts, first):
            self._seen[span.key] = hash(raw)
            yield Line(number, span.offset, raw if len(raw) <= LONGEST_LINE else None)

    def read(self, start: int, end: int) -> bytes:
        end = min(end, self.index.size)
        if start >= end:
            return b""
        spans = self.index[self.index.at(start) : self.index.at(end - 1) + 1]
        text = b"".join(raw + b"\n" for _, raw in self._texts(spans))
        return text[start - spans[0].offset : end - spans[0].offset]

    def row(self, span: RowSpan) -> Row:
        """Fetch one row. Raises RefusedError if the row changed since its line was read."""
        self._check_stop()
        for _, row in self._fetch([span.key]):
            if self._seen.get(span.key) in (None, hash(_text(row))):
                return row
        raise RowsChangedError("the session changed meanwhile")

    def _texts(self, spans: list[RowSpan]) -> list[tuple[RowSpan, bytes]]:
        self._check_stop()
        rows = self._fetch([span.key for span in spans])
        texts = [_text(row) for _, row in rows]
        sizes = [(key, len(text)) for (key, _), text in zip(rows, texts, strict=True)]
        if sizes != [(span.key, span.size) for span in spans]:
            raise RowsChangedError("the session changed while it was read")
        return list(zip(spans, texts, strict=True))


def _text(row: Row) -> bytes:
    try:
        text = row.line()
    except UnreadableRowError as error:
        raise RefusedError("one of its events is damaged") from error
    if b"\n" in text:
        raise RefusedError("one of its events spans several lines")
    return text


class OpenRows(Opened):
    """A session in a database. Its agent has a subclass."""

    layout: Layout
    recorded: Recorded

    def __init__(
        self, databases: "Databases", file: SessionFile, database: sqlite3.Connection,
        check_stop: Callable[[], None], held: ExitStack,
    ) -> None:  # fmt: skip
        self.databases, self.forms = databases, {databases.form.name: databases.form}
        self.database, self.own_ms = database, file.own_ms
        self.check_stop, self._held = check_stop, held
        self.layout = databases.layout(database)
        try:
            recorded = databases.recorded(database, file.name)
            sizes = databases.sizes(database, self.layout, file.name)
        except AgentDatabaseError as error:
            if self.layout.read_only_reason:
                raise RefusedError(self.layout.read_only_reason) from error
            raise
        if recorded is None:
            raise RefusedError("there is no such session in the database any more")
        self.recorded, self.file = recorded, file
        if not sizes and (why := self.only_restores):
            raise RefusedError(why, databases.form.name)
        self.lines: RowLines = RowLines(self._fetch, RowIndex(sizes), check_stop)
        self.fingerprint = self.fingerprint_of(self.lines.index.size)
        self.file = replace(file, fingerprint=self.fingerprint, key=recorded.key)

    @abstractmethod
    def check_turn(self, open_turn: str | None, quiet: float, now: float) -> None:
        """Raise NotIdleError if the agent is at work on the session."""

    def fence(
        self, quiet: float, clock: Callable[[], float],  # noqa: ARG002
    ) -> Callable[[sqlite3.Connection], str | None]:  # fmt: skip
        """Return a check to make under the lock. It returns why rows must not be changed.

        This one finds any change of the session.
        """
        seen, recorded = self.recorded, self.databases.recorded
        changed = "the session changed meanwhile"
        return lambda database: None if recorded(database, seen.session) == seen else changed

    def fence_of_restore(self) -> Callable[[sqlite3.Connection], str | None]:
        """Like `fence`, for a change that only restores values, if the agent rereads its rows."""
        name, recorded = self.file.name, self.databases.recorded
        gone = "the session was deleted meanwhile"
        return lambda database: None if recorded(database, name) else gone

    @abstractmethod
    def write(self, edits: Sequence[RowEdit], now_ms: int) -> tuple[Recorded, int | None]:
        """Change rows within a transaction. Raises RefusedError if a row is not as it was.

        Returns what the database then says about the session, and the time (milliseconds) that the
        change gave it, if any.
        """

    @abstractmethod
    def row_with(self, before: Row, text: bytes) -> Row:
        """Return the row to be stored for a line.

        Raises RefusedError if that would change more than the row `before`.
        """

    @property
    def model(self) -> str | None:
        """The model that answers the newest prompt, if the agent states it."""
        return None

    @property
    def context_tokens(self) -> int | None:
        """The size of the context window, if the agent states it."""
        return None

    def change(
        self, edits: Sequence[RowEdit], fence: Callable[[sqlite3.Connection], str | None],
        clock: Callable[[], float], *, durable: bool,
    ) -> None:  # fmt: skip
        """Change all rows in one transaction, or none.

        Raises RefusedError if the session changed or is not idle, BusyError or FailedError.
        """
        with transactions.transaction(self.file.directory, self.database, durable=durable):
            if not self.layout.is_unchanged(self.database):
                raise RefusedError("the layout of the database changed meanwhile")
            if reason := fence(self.database):
                raise RefusedError(reason)
            result = self.write(edits, int(clock() * 1000))
        self.recorded, self.own_ms = result  # any other state that is found is the agent's work

    def fingerprint_of(self, size: int) -> Fingerprint:
        return fingerprint(self.file.directory, self.recorded, size, self.own_ms)

    def _fetch(self, keys: Sequence[RowKey]) -> Sequence[tuple[RowKey, Row]]:
        return self.databases.fetch(self.database, self.layout, self.file.name, keys)

    def read(self, start: int, end: int) -> bytes:
        return self.lines.read(start, end)

    def lines_from(self, _offset: int, number: int) -> Iterator[Line]:
        return self.lines.since(number)

    def mark(self, _end: int, lines: int) -> object:
        rows = self.lines.index[:lines]
        return self.recorded.generation, len(rows), hash(tuple(rows))

    def stream(self, start: int, end: int) -> Iterator[bytes]:
        while start < end:  # a read fetches whole rows, so each piece has at least one
            span = self.lines.index[self.lines.index.at(start)]
            stop = min(end, max(start + CHUNK, span.offset + span.size + 1))
            yield self.read(start, stop)
            start = stop

    @property
    def obstacle(self) -> str | None:
        path = self.file.directory
        if self.layout.read_only_reason:
            return self.layout.read_only_reason
        unproven = None if self.file.exclusive else leases.unproven_at(os.path.dirname(path))
        return self.databases.obstacle(path) or (unproven and UNTRIED.format(unproven))

    @property
    def only_restores(self) -> str | None:
        """Why values may come back, if the agent rereads its rows, but nothing else may change."""
        return None

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Open the database for writing.

        Raises BusyError if it was open as immutable, but was written to.
        """
        self._held.close()
        with transactions.writing(self.file.directory) as self.database:
            yield

    def edit_of(self, row: RowPlan, before: Row, value_of: Callable[[int], bytes]) -> RowEdit:
        text = row.text_after(before.line(), value_of)
        return RowEdit(row.span.key, before, self.row_with(before, text))


class Listed(NamedTuple):
    sessions: Sequence[Recorded]
    sizes: dict[str, int]  # by session; the database's, if rows of a session cannot be read
    unread: dict[str, AgentDatabaseError]  # by session: those that cannot be read


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


class Databases(ABC):
    """How an agent keeps sessions in databases."""

    form: Format  # of the lines
    open_rows: type[OpenRows]  # of one of its sessions
    note = ""  # about pruning them, for the user
    # The agent reads rows again before each request: it need not be idle when values come back.
    rereads = False

    def has(self, path: str) -> bool:
        """Check, by its path alone, whether a file may be one of these databases."""
        return self.name(path) is not None

    def name(self, path: str) -> str | None:  # noqa: ARG002
        """Return the agent's name in titles of sessions in a database in a root itself."""
        return None

    def below(self, root: str) -> Iterator[Database | Unreadable]:
        """Yield each database below a root, or Unreadable if it is no file. Follows no links."""
        top = os.path.realpath(root)
        with suppress(OSError), os.scandir(top) as listing:  # the walk for files reports the root
            for item in sorted(listing, key=lambda item: item.name):
                if not self.has(item.path):
                    continue
                if item.is_file(follow_symlinks=False):
                    yield Database(top, self.name(item.path) or "", top, item.path)
                else:
                    yield Unreadable(top, item.path, "not a plain file")

    def opened(self, path: str) -> AbstractContextManager[sqlite3.Connection]:
        """Open a database for reading. Raises OSError or BusyError."""
        return sqlite.reading(path, in_use=sqlite.held_open(path))

    # What this returns is the argument `layout` of other methods.
    @abstractmethod
    def layout(self, connection: sqlite3.Connection) -> Layout: ...

    @abstractmethod
    def sessions(self, connection: sqlite3.Connection) -> Sequence[Recorded]: ...

    @abstractmethod
    def names(self, connection: sqlite3.Connection) -> list[str]:
        """Return the ids of the sessions, although a damaged page may hide more about some."""

    @abstractmethod
    def recorded(self, connection: sqlite3.Connection, session: str) -> Recorded | None: ...

    def totals(self, connection: sqlite3.Connection, layout: Any) -> dict[str, int]:
        """Return the bytes of all lines of each session, newlines included."""
        names, sizes = self.names(connection), partial(self.sizes, connection, layout)
        return {name: sum(size + 1 for _, size in sizes(name)) for name in names}

    @abstractmethod
    def sizes(
        self, connection: sqlite3.Connection, layout: Any, session: str
    ) -> Sequence[tuple[RowKey, int]]:
        """Return the keys of all rows of a session and the bytes of their lines, in order."""

    @abstractmethod
    def fetch(
        self, connection: sqlite3.Connection, layout: Any, session: str, keys: Sequence[RowKey]
    ) -> Sequence[tuple[RowKey, Row]]:
        """Return those rows that exist, and any that came between them, in order."""

    @contextmanager
    def session(self, file: SessionFile, check_stop: Callable[[], None]) -> Iterator[OpenRows]:
        """Open a session. Raises RefusedError, BusyError or OSError."""
        with ExitStack() as held:
            database = held.enter_context(self.opened(file.directory))
            yield self.open_rows(self, file, database, check_stop, held)

    def listed(self, connection: sqlite3.Connection, layout: Layout) -> Listed:
        """Return what lists the sessions. A damaged page hides only the sessions on it."""
        unread: dict[str, AgentDatabaseError] = {}
        sessions: Sequence[Recorded]
        try:
            sessions = self.sessions(connection)
        except AgentDatabaseError:
            found, unread = _one_by_one(self.names(connection), partial(self.recorded, connection))
            sessions = [session for session in found.values() if session]
        try:
            sizes = self.totals(connection, layout)
        except AgentDatabaseError:
            names = [session.session for session in sessions]
            rows, damaged = _one_by_one(names, partial(self.sizes, connection, layout))
            sizes = {session: RowIndex(of_session).size for session, of_session in rows.items()}
            size = "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size"
            sizes |= dict.fromkeys(damaged, connection.execute(size).fetchone()[0])
        return Listed(sessions, sizes, unread)

    def misplaced(self, path: str) -> str | None:  # noqa: ARG002
        """Return why its agent's sessions may be elsewhere, or others' sessions here, or None."""
        return None

    def obstacle(self, path: str) -> str | None:
        """Return why a database of a known layout may not be written, or None."""
        return self.misplaced(path) or transactions.unwritable(path)

    def engine(self, path: str) -> tuple[str, str] | None:  # noqa: ARG002
        """Return why turns may be stored elsewhere, and what `databases = "engines"` does then."""
        return None

    def archives(self, connection: sqlite3.Connection) -> Iterator[tuple[str, bytes]]:  # noqa: ARG002
        """Yield ids and texts of archived sessions, perhaps compressed. Raises RefusedError."""
        yield from ()
