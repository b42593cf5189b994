"""What rows in an agent's database held before we changed them, and when we wrote to them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Iterator

# An event as its agent packed it, the length of its text in bytes, its digest for navigation.
Columns = tuple[bytes | None, int | None, bytes | None]
# Entries that are looked at together.
_PAGE = 1000


class Rows:
    """What rows held, and when we wrote to them."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def keep(self, session_id: int, entry_id: str, digest: bytes, columns: Columns) -> None:
        """Keep the columns of an event whose text has this digest."""
        self._connection.execute(
            "INSERT INTO row_columns (session_id, entry_id, digest, packed, size, navigation)"
            " VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
            (session_id, entry_id, digest, *columns),
        )

    def columns(self, digest: bytes) -> Columns | None:
        """Return the columns in which an agent kept a text, in whichever session."""
        row = self._connection.execute(
            "SELECT packed, size, navigation FROM row_columns WHERE digest = ? LIMIT 1", (digest,)
        ).fetchone()
        return (row[0], row[1], row[2]) if row else None

    def wrote(self, session_id: int, noted_ms: int) -> None:
        """Note the time (milliseconds) that our last write gave a session."""
        self._connection.execute(
            "INSERT INTO row_writes VALUES (?, ?)"
            " ON CONFLICT DO UPDATE SET noted_ms = excluded.noted_ms",
            (session_id, noted_ms),
        )

    def own_times(self) -> dict[str, int]:
        """Return, by path, the time (milliseconds) that we noted in a session ourselves."""
        rows = self._connection.execute(
            "SELECT s.path, w.noted_ms FROM row_writes w JOIN sessions s ON s.id = w.session_id"
            " WHERE s.path IS NOT NULL"
        )
        return {os.fsdecode(path): noted for path, noted in rows}

    def unneeded(self) -> Iterator[list[tuple[int, str]]]:
        """Yield pages of the entries of which columns are kept, and no value is held any more."""
        last: tuple[int, str] = (-1, "")
        while rows := self._connection.execute(
            "SELECT session_id, entry_id, EXISTS (SELECT 1 FROM extractions e"
            " WHERE e.session_id = c.session_id AND e.entry_id = c.entry_id"
            " AND e.blob_id IS NOT NULL) FROM (SELECT DISTINCT session_id, entry_id"
            " FROM row_columns WHERE (session_id, entry_id) > (?, ?)"
            " ORDER BY session_id, entry_id LIMIT ?) c",
            (*last, _PAGE),
        ).fetchall():
            yield [(session, entry) for session, entry, held in rows if not held]
            last = rows[-1][:2]

    def release(self, entries: Iterable[tuple[int, str]]) -> None:
        """Let go of the columns of entries of which no value is held any more."""
        self._connection.executemany(
            "DELETE FROM row_columns WHERE session_id = ?1 AND entry_id = ?2"
            " AND NOT EXISTS (SELECT 1 FROM extractions e"
            " WHERE e.session_id = ?1 AND e.entry_id = ?2 AND e.blob_id IS NOT NULL)",
            entries,
        )
