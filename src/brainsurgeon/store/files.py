"""The scan's memory of each file: a cache that may be lost at the cost of time only."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from brainsurgeon.model.records import FileState
from brainsurgeon.model.sessions import Fingerprint
from brainsurgeon.store.numbers import signed, unsigned
from brainsurgeon.store.table import FileTable

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable


_COLUMNS = (
    "device, inode, size, mtime_ns, ctime_ns, rules, format, outcome, reason, first_seen, due_at,"
    " looked_at"
)


def _state(row: tuple[Any, ...]) -> FileState:
    mark = Fingerprint(unsigned(row[1]), unsigned(row[2]), *row[3:6])
    return FileState(mark, *row[6:])


class FileStates:
    """The scan's memory of each file."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self.table = FileTable(connection)

    def all(self) -> dict[bytes, FileState]:
        """Give everything remembered, by path; one query a pass."""
        rows = self._connection.execute(f"SELECT path, {_COLUMNS} FROM files")  # noqa: S608
        return {row[0]: _state(row) for row in rows}

    def remember(self, path: str, state: FileState) -> None:
        """Remember a file as it was just looked at."""
        seen = state.fingerprint
        self._connection.execute(
            f"INSERT INTO files (path, {_COLUMNS})"  # noqa: S608
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
            " ON CONFLICT (path) DO UPDATE SET device = excluded.device, inode = excluded.inode,"
            " size = excluded.size, mtime_ns = excluded.mtime_ns, ctime_ns = excluded.ctime_ns,"
            " rules = excluded.rules, format = excluded.format, outcome = excluded.outcome,"
            " reason = excluded.reason, first_seen = excluded.first_seen, due_at = excluded.due_at,"
            " looked_at = excluded.looked_at",
            (os.fsencode(path), signed(seen.device), signed(seen.inode), seen.size, seen.mtime_ns,
             seen.ctime_ns, state.rules, state.format, state.outcome, state.reason,
             state.first_seen, state.due_at, state.looked_at),
        )  # fmt: skip
        self.table.remember(path, state)

    def at(self, path: str) -> FileState | None:
        """Give what is remembered of one file, or None."""
        row = self._connection.execute(
            f"SELECT path, {_COLUMNS} FROM files WHERE path = ?",  # noqa: S608
            (os.fsencode(path),),
        ).fetchone()
        return _state(row) if row else None

    def forget(self, paths: Iterable[bytes]) -> None:
        """Forget files that are gone."""
        for path in paths:
            self._connection.execute("DELETE FROM files WHERE path = ?", (path,))
            self.table.forget(path)
