"""Sessions in OpenClaw's databases: listed, read as lines, and changed."""

import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import Any, TypeVar

from msgspec.structs import astuple, replace

from brainsurgeon.agents.openclaw import database, gate, writing
from brainsurgeon.agents.openclaw.database import DatabaseUse, Payload, Schema
from brainsurgeon.agents.openclaw.format import OpenClawRows, is_bookkeeping, left_open
from brainsurgeon.agents.openclaw.gate import Gate, Window
from brainsurgeon.agents.rows import (
    Columns,
    Databases,
    OpenRows,
    Row,
    RowEdit,
    RowIndex,
    RowKey,
    RowSession,
    UnreadableRowError,
    short_digest,
)  # fmt: skip
from brainsurgeon.files import sqlite
from brainsurgeon.files.reading import RefusedError
from brainsurgeon.files.sqlite import AgentDatabaseError
from brainsurgeon.model.entries import parse
from brainsurgeon.model.sessions import Fingerprint, NotIdleError, SessionFile

_Item = TypeVar("_Item")


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


def fingerprint(path: str, window: Window, size: int, own: int | None) -> Fingerprint:
    """Return a fingerprint that changes with every change of the session.

    Its modification time is the time of the newest activity. Its change time is the beginning of
    `generation`, an id that every rewrite of the session's events replaces.
    """
    status = os.stat(path, follow_symlinks=False)
    changed = 0
    with suppress(ValueError):
        changed = int((window.events.generation or "0")[:15], 16)  # fits into eight bytes, signed
    inode = int.from_bytes(short_digest(f"{status.st_ino}/{window.session}"))
    return Fingerprint(status.st_dev, inode, size, window.times.newest(own) * 1_000_000, changed)


class OpenWindow(OpenRows):
    def __init__(
        self, databases: Databases, file: SessionFile, connection: sqlite3.Connection,
        presence: DatabaseUse, check_stop: Callable[[], None], held: ExitStack,
    ) -> None:  # fmt: skip
        self.path, self.database, self.presence = file.directory, connection, presence
        self.schema = database.examine(connection)
        self.read_only_reason = self.schema.read_only_reason
        try:
            window = gate.window(connection, file.name)
            sizes = database.sizes(connection, self.schema, file.name)
        except AgentDatabaseError as error:
            if self.read_only_reason:
                raise RefusedError(self.read_only_reason) from error
            raise
        if window is None:
            raise RefusedError("there is no such session in the database any more")
        self.window = window
        super().__init__(databases, file, window.key, sizes, check_stop, held)

    def fetch(self, keys: Sequence[RowKey]) -> list[tuple[RowKey, Payload]]:
        return database.payloads(self.database, self.schema, self.window.session, keys)

    @property
    def generation(self) -> str | None:
        return self.window.events.generation

    @property
    def context_tokens(self) -> int | None:
        return gate.context_tokens(self.database, self.window.session)

    def fingerprint_of(self, size: int) -> Fingerprint:
        return fingerprint(self.path, self.window, size, self.own_ms)

    def check_turn(self, open_turn: str | None, quiet: float, now: float) -> None:
        # An old open turn counts as closed in a file, but here only if its process was killed.
        gate = Gate(quiet, self.presence, self.own_ms)
        gate.check(self.window, now)
        if not gate.is_killed(self.window, now) and (left := self._left_open() or open_turn):
            raise NotIdleError(left, in_database=True)

    def _left_open(self) -> str | None:
        events = database.messages_backward(self.database, self.schema, self.window.session)
        try:
            for entry in map(parse, events):
                if not is_bookkeeping(entry):
                    left = left_open(entry)
                    return (
                        "the last turn is open: no answer from the assistant"
                        if left is None
                        else left
                    )
        except UnreadableRowError:
            return "its last message cannot be read"
        return "it has no message yet"

    def kept(self, row: Row) -> Columns | None:
        plain = database.plain(row.line(), compressing=self.schema.compressing)
        return None if row == plain else astuple(row)[1:]

    def row_with(self, before: Row, text: bytes, kept: Columns | None) -> Payload:  # noqa: ARG002
        if kept is not None:
            own = Payload(text if kept[0] is None else None, *kept)
            if own.line() == text:
                return own
        return database.plain(text, compressing=self.schema.compressing)

    def change(
        self, edits: Sequence[RowEdit], quiet: float, clock: Callable[[], float], *, durable: bool
    ) -> None:
        at, generation = writing.change(
            self.path, self.database, self.window.session, edits, self._fence(quiet, clock),
            durable=durable, clock=clock, compressing=self.schema.compressing,
        )  # fmt: skip
        # Any other state that the next change finds is the agent's work.
        self.own_ms = at
        self.window = replace(
            self.window, times=replace(self.window.times, transcript=at),
            events=replace(self.window.events, generation=generation),
        )  # fmt: skip

    def _fence(
        self, quiet: float, clock: Callable[[], float]
    ) -> Callable[[sqlite3.Connection], str | None]:
        """Look up the agent's processes. Return the check to make once the database is locked."""
        seen, now = self.presence, database.presence(self.path, open_here=True)
        maintained = max(seen.maintained, now.maintained)  # 0 if it could not be read
        # None means that there may be a process that we cannot see.
        opened_at = None if seen.opened_at is None else now.opened_at
        now = replace(now, opened_at=opened_at, maintained=maintained)
        return gate.fence(Gate(quiet, now, self.own_ms), self.window, self.schema, clock)


class OpenClawDatabases(Databases):
    form = OpenClawRows()

    def has(self, path: str) -> bool:
        return os.path.basename(path) == database.NAME

    below = staticmethod(database.databases)
    opened = staticmethod(database.open_database)
    layout = staticmethod(database.examine)
    misplaced = staticmethod(database.misplaced)

    def sessions(
        self, connection: sqlite3.Connection, layout: Any, path: str, own: Mapping[str, int]
    ) -> tuple[list[RowSession], dict[str, AgentDatabaseError]]:
        unread: dict[str, AgentDatabaseError] = {}
        try:
            windows = gate.windows(connection)
        except AgentDatabaseError:  # a damaged page hides only the sessions on it
            read = partial(gate.window, connection)
            found, unread = _one_by_one(gate.names(connection), read)
            windows = [window for window in found.values() if window]
        sizes = _sizes(connection, layout, windows)
        return [
            RowSession(window.session, window.key, fingerprint(
                path, window, sizes.get(window.session, 0),
                own.get(f"{path}/{window.session}"),
            ))
            for window in windows
        ], unread  # fmt: skip

    @contextmanager
    def session(self, file: SessionFile, check_stop: Callable[[], None]) -> Iterator[OpenWindow]:
        presence = database.presence(file.directory)
        with ExitStack() as held:
            reading = sqlite.reading(file.directory, in_use=not presence.is_closed)
            yield OpenWindow(self, file, held.enter_context(reading), presence, check_stop, held)

    def engine(self, path: str) -> tuple[str, str] | None:
        selected = database.selected(path)
        if selected.unreadable:
            return selected.unreadable, "skips this check"
        if selected.engine:
            return f"the context engine {selected.engine} is selected", "includes it"
        return None

    def archives(self, connection: sqlite3.Connection) -> Iterator[tuple[str, bytes]]:
        for table, here in (
            ("session_transcript_archives", "1"),
            ("session_transcript_cold_archives", "storage = 'sqlite'"),
        ):
            if not sqlite.has_table(connection, table):
                continue
            if connection.execute(f"SELECT 1 FROM {table} WHERE NOT ({here}) LIMIT 1").fetchone():  # noqa: S608
                raise RefusedError("events were archived outside of the database")
            count = connection.execute(f"SELECT max(rowid) FROM {table}").fetchone()[0] or 0  # noqa: S608
            for number in range(1, count + 1):  # one at a time: an archive is a whole session
                row = connection.execute(
                    f"SELECT session_id, archive_blob FROM {table} WHERE rowid = ?",  # noqa: S608
                    (number,),
                ).fetchone()
                if row:
                    yield row

    def rows(
        self, path: str, session: str, keys: Iterable[RowKey]
    ) -> Iterator[tuple[RowKey, Payload]]:
        with database.open_database(path) as connection:
            schema = database.examine(connection)
            for key in keys:
                yield from database.payloads(connection, schema, session, [key])


def _sizes(
    connection: sqlite3.Connection, schema: Schema, windows: Iterable[Window]
) -> dict[str, int]:
    """Return the size of each session; the database's, if events of a session cannot be read."""
    try:
        return database.totals(connection, schema)
    except AgentDatabaseError:
        read_rows = partial(database.sizes, connection, schema)
        rows, damaged = _one_by_one([window.session for window in windows], read_rows)
        sizes = {session: RowIndex(of_session).size for session, of_session in rows.items()}
        size = "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size"
        return sizes | dict.fromkeys(damaged, connection.execute(size).fetchone()[0])
