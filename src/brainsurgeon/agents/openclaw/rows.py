"""Sessions in OpenClaw's databases: listed, read as lines, and changed."""

import os
import sqlite3
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

from msgspec.structs import astuple, replace

from brainsurgeon.agents.openclaw import database, gate
from brainsurgeon.agents.openclaw.database import DatabaseUse, Payload, Schema
from brainsurgeon.agents.openclaw.format import OpenClawRows, is_bookkeeping, left_open
from brainsurgeon.agents.openclaw.gate import Gate, Window
from brainsurgeon.agents.rows import (
    Databases,
    OpenRows,
    Row,
    RowEdit,
    UnreadableRowError,
)  # fmt: skip
from brainsurgeon.files import sqlite
from brainsurgeon.files.reading import RefusedError
from brainsurgeon.model.entries import parse
from brainsurgeon.model.session_files import NotIdleError, SessionFile

_WHERE = " WHERE session_id = ? AND seq = ? AND event_json IS CAST(? AS TEXT)"
_UPDATE = {
    False: "UPDATE transcript_events SET event_json = CAST(? AS TEXT)" + _WHERE,  # noqa: S608
    True: "UPDATE transcript_events SET event_json = CAST(? AS TEXT), event_zstd = ?,"  # noqa: S608
          " event_utf8_bytes = ?, navigation_json = CAST(? AS TEXT)" + _WHERE
          + " AND event_zstd IS ? AND event_utf8_bytes IS ? AND navigation_json IS CAST(? AS TEXT)",
}  # fmt: skip


class OpenWindow(OpenRows):
    layout: Schema
    recorded: Window

    def __init__(
        self, databases: Databases, file: SessionFile, database: sqlite3.Connection,
        presence: DatabaseUse, check_stop: Callable[[], None], held: ExitStack,
    ) -> None:  # fmt: skip
        super().__init__(databases, file, database, check_stop, held)
        self._presence = presence

    @property
    def context_tokens(self) -> int | None:
        return gate.context_tokens(self.database, self.recorded.session)

    def check_turn(self, open_turn: str | None, quiet: float, now: float) -> None:
        # An old open turn counts as closed in a file, but here only if its process was killed.
        gate = Gate(quiet, self._presence, self.own_ms)
        gate.check(self.recorded, now)
        if not gate.is_killed(self.recorded, now) and (left := self._left_open() or open_turn):
            raise NotIdleError(left, in_database=True)

    def _left_open(self) -> str | None:
        events = database.messages_backward(self.database, self.layout, self.recorded.session)
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

    def row_with(self, before: Row, text: bytes) -> Payload:  # noqa: ARG002
        return database.plain(text, compressing=self.layout.compressing)

    def fence(
        self, quiet: float, clock: Callable[[], float]
    ) -> Callable[[sqlite3.Connection], str | None]:
        """Look up the agent's processes. Return the check to make once the database is locked."""
        seen, now = self._presence, database.presence(self.file.directory, open_here=True)
        maintained = max(seen.maintained, now.maintained)  # 0 if it could not be read
        # None means that there may be a process that we cannot see.
        opened_at = None if seen.opened_at is None else now.opened_at
        now = replace(now, opened_at=opened_at, maintained=maintained)
        return gate.fence(Gate(quiet, now, self.own_ms), self.recorded, clock)

    def write(self, edits: Sequence[RowEdit], now_ms: int) -> tuple[Window, int]:
        """Also mark the transcript as rewritten, as the agent itself does.

        Like OpenClaw's `rewriteSqliteTranscriptEventRowsInTransaction` (openclaw 2026.9.6). No
        index contains the changed columns, and no trigger fires.
        """
        window, compressing, generation = self.recorded, self.layout.compressing, uuid.uuid4().hex
        columns = 4 if compressing else 1
        for edit in edits:
            after, before = astuple(edit.after)[:columns], astuple(edit.before)[:columns]
            row = *after, window.session, edit.key, *before
            if self.database.execute(_UPDATE[compressing], row).rowcount != 1:
                raise RefusedError("a row changed meanwhile")
        rotated = self.database.execute(
            "UPDATE transcript_rewrite_watermarks SET generation = ?, updated_at = ?"
            " WHERE session_id = ?",
            (generation, now_ms, window.session),
        ).rowcount
        touched = self.database.execute(
            "UPDATE session_windows SET transcript_updated_at = max(?,"
            " coalesce(transcript_updated_at, 0) + 1, coalesce(transcript_observed_at, 0) + 1)"
            " WHERE session_id = ? RETURNING transcript_updated_at",
            (now_ms, window.session),
        ).fetchall()
        if (rotated, len(touched)) != (1, 1):
            raise RefusedError("the session was deleted meanwhile")
        at = int(touched[0][0])
        times, events = replace(window.times, transcript=at), window.events
        return replace(window, times=times, events=replace(events, generation=generation)), at


class OpenClawDatabases(Databases):
    form = OpenClawRows()
    note = (
        "pruning a database saves context, not disk: the file shrinks only when OpenClaw compacts"
        " it. Nor does pruning remove secrets: OpenClaw keeps copies of recent values in its"
        " trajectory file (up to 10 MiB)"
    )

    def has(self, path: str) -> bool:
        return os.path.basename(path) == database.NAME

    below = staticmethod(database.databases)
    opened = staticmethod(database.open_database)
    layout = staticmethod(database.examine)
    misplaced = staticmethod(database.misplaced)
    sessions = staticmethod(gate.windows)
    names = staticmethod(gate.names)
    recorded = staticmethod(gate.window)
    totals = staticmethod(database.totals)
    sizes = staticmethod(database.sizes)
    fetch = staticmethod(database.payloads)

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
