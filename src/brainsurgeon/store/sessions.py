"""The sessions that the store knows, and the agents that own them.

The file is the truth and this is a catalogue: a record authorises putting a value back only into
its own session (or a fork of it), entry and path, and only where exactly its stub stands.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from brainsurgeon.model.records import SessionRecord
from brainsurgeon.store.texts import path_text, storable

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator

    from brainsurgeon.model.sessions import SessionFile

_SESSION = (
    "SELECT s.id, s.agent_id, a.name, a.directory, s.name, s.path, s.root, s.format, s.parent "
    "FROM sessions s JOIN agents a ON a.id = s.agent_id"
)


def _session(
    row: tuple[int, int, str, bytes, str, bytes, bytes, str, str | None],
) -> SessionRecord:
    ident, agent_id, agent, directory, name, path, root, form, parent = row
    return SessionRecord(
        ident, agent_id, agent, os.fsdecode(directory), name, os.fsdecode(path), os.fsdecode(root),
        form, parent,
    )  # fmt: skip


class Sessions:
    """The sessions that the store knows."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def note(self, file: SessionFile, format_name: str, parent: str | None) -> SessionRecord:
        """Record a session, or where its file is now and what that says of it; give the record."""
        directory = os.fsencode(file.agent_directory)
        self._connection.execute(
            "INSERT INTO agents (directory, name) VALUES (?, ?) ON CONFLICT DO NOTHING",
            (directory, path_text(file.agent)),
        )
        self._connection.execute(
            "INSERT INTO sessions (agent_id, name, path, root, format, parent)"
            " SELECT id, ?, ?, ?, ?, ? FROM agents WHERE directory = ?"
            " ON CONFLICT (path) DO UPDATE SET format = excluded.format, parent = excluded.parent,"
            " root = excluded.root",
            (path_text(file.session), os.fsencode(file.path), os.fsencode(file.root),
             format_name, parent and storable(parent), directory),
        )  # fmt: skip
        record = self.at(file.path)
        assert record is not None  # noqa: S101  it was written above
        return record

    def at(self, path: str) -> SessionRecord | None:
        """Give the session of a file, or None."""
        row = self._connection.execute(
            _SESSION + " WHERE s.path = ?", (os.fsencode(path),)
        ).fetchone()
        return _session(row) if row else None

    def all(self) -> Iterator[SessionRecord]:
        """Yield every session that the store knows."""
        for row in self._connection.execute(_SESSION + " ORDER BY a.name, s.name"):
            yield _session(row)

    def family(self, session: SessionRecord) -> list[int]:
        """Give the ids of a session and of those that it was forked from, within its agent."""
        ids = [] if session.id is None else [session.id]
        parent = session.parent
        while parent:
            name = os.path.basename(parent).removesuffix(".jsonl")
            row = self._connection.execute(
                _SESSION + " WHERE s.agent_id = ? AND (s.name = ? OR s.path = ?)",
                (session.agent_id, storable(name), os.fsencode(storable(parent))),
            ).fetchone()
            if row is None or row[0] in ids:
                break
            ids.append(row[0])
            parent = _session(row).parent
        return ids

    def unnoted(
        self, file: SessionFile, format_name: str, parent: str | None
    ) -> SessionRecord | None:
        """Give the record that a session would get; None where nothing of its agent is known."""
        agent = self._connection.execute(
            "SELECT id, name FROM agents WHERE directory = ?", (os.fsencode(file.agent_directory),)
        ).fetchone()
        if agent is None:
            return None
        name = path_text(file.session)
        ident, label = agent
        return SessionRecord(
            None, ident, label, file.agent_directory, name, file.path, file.root, format_name,
            parent and storable(parent),
        )  # fmt: skip
