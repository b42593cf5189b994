"""The catalogue of sessions, and the agents that own them.

One row a path, for names, savings, pending requests and ownership. No value is chosen by a row.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from brainsurgeon.model.records import SessionRecord
from brainsurgeon.store.columns import path_text

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Iterator

    from brainsurgeon.model.sessions import SessionFile

_SESSION = (
    "SELECT s.id, s.agent_id, a.name, a.directory, s.name, s.last_path, s.root, s.format,"
    " s.identity, s.path IS NULL, s.missed_at FROM sessions s JOIN agents a ON a.id = s.agent_id"
)


def _session(row: tuple[Any, ...]) -> SessionRecord:
    ident, agent_id, agent, directory, name, path, root, form, identity, displaced, missed = row
    return SessionRecord(
        ident, agent_id, agent, os.fsdecode(directory), name, os.fsdecode(path), os.fsdecode(root),
        form, identity, bool(displaced), missed,
    )  # fmt: skip


class Sessions:
    """The sessions that the store knows."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def fitting(self, path: str, identity: str | None) -> SessionRecord | None:
        """Return the row of a path, or None if it belongs to a session with another id."""
        here = self.at(path)
        fits = here and (here.identity == identity or None in (here.identity, identity))
        return here if fits else None

    def note(
        self, file: SessionFile, format_name: str, identity: str | None = None,
        record: SessionRecord | None = None,
    ) -> SessionRecord:  # fmt: skip
        """Record where a session lies, in its row or in a new one; part of a transaction.

        `record` is its row if that is of another path. A session with another id that was last
        seen at the path is displaced.
        """
        record, holder = record or self.fitting(file.path, identity), self.at(file.path)
        if holder and (record is None or holder.id != record.id):
            self._connection.execute("UPDATE sessions SET path = NULL WHERE id = ?", (holder.id,))
        path = os.fsencode(file.path)
        values = (
            self._agent(file), path_text(file.session), path, path, os.fsencode(file.root),
            format_name, identity,
        )  # fmt: skip
        if record is None:
            cursor = self._connection.execute(
                "INSERT INTO sessions (agent_id, name, path, last_path, root, format, identity)"
                " VALUES (?, ?, ?, ?, ?, ?, ?)",
                values,
            )
            return self.known(int(cursor.lastrowid or 0))
        self._connection.execute(
            "UPDATE sessions SET agent_id = ?, name = ?, path = ?, last_path = ?, root = ?,"
            " format = ?, identity = coalesce(?, identity), missed_at = NULL WHERE id = ?",
            (*values, record.id),
        )
        return self.known(record.id)

    def _agent(self, file: SessionFile) -> int:
        directory = os.fsencode(file.agent_directory)
        self._connection.execute(
            "INSERT INTO agents (directory, name) VALUES (?, ?)"
            " ON CONFLICT DO UPDATE SET name = excluded.name",
            (directory, path_text(file.agent)),
        )
        row = self._connection.execute("SELECT id FROM agents WHERE directory = ?", (directory,))
        return int(row.fetchone()[0])

    def known(self, ident: int) -> SessionRecord:
        """Return a session by the id of its row."""
        return _session(self._connection.execute(_SESSION + " WHERE s.id = ?", (ident,)).fetchone())

    def at(self, path: str) -> SessionRecord | None:
        """Return the session that was last seen at a path, or None."""
        row = self._connection.execute(
            _SESSION + " WHERE s.path = ?", (os.fsencode(path),)
        ).fetchone()
        return _session(row) if row else None

    def of_identity(self, identity: str) -> list[SessionRecord]:
        """Return the sessions with this id, the newest first."""
        rows = self._connection.execute(
            _SESSION + " WHERE s.identity = ? ORDER BY s.id DESC", (identity,)
        )
        return [_session(row) for row in rows]

    def alike(self, identity: str | None) -> frozenset[int]:
        """Return the rows of the sessions with this id; none where a file names no session."""
        if identity is None:
            return frozenset()
        rows = self._connection.execute("SELECT id FROM sessions WHERE identity = ?", (identity,))
        return frozenset(row[0] for row in rows)

    def miss(self, missed: Iterable[tuple[int, float | None]]) -> None:
        """Record since when sessions are missed (None: they are there); part of a transaction."""
        self._connection.executemany(
            "UPDATE sessions SET missed_at = ?2 WHERE id = ?1 AND missed_at IS NOT ?2", missed
        )

    def is_below(self, path: str) -> bool:
        """Check whether a session was last seen at a path, or somewhere below it."""
        name = os.fsencode(path)
        row = self._connection.execute(
            "SELECT 1 FROM sessions WHERE path = ? OR (path >= ? AND path < ?) LIMIT 1",
            (name, name + b"/", name + b"0"),
        ).fetchone()
        return row is not None

    def all(self) -> Iterator[SessionRecord]:
        """Yield every session of the catalogue."""
        for row in self._connection.execute(_SESSION + " ORDER BY a.name, s.name"):
            yield _session(row)
