"""The sessions that the store knows, and the agents that own them.

The file is the truth and this is a catalogue: a record authorises putting a value back only into
its own session (or a fork of it), entry and path, and only where exactly its stub stands.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from brainsurgeon.model.records import SessionRecord
from brainsurgeon.store.numbers import signed, unsigned
from brainsurgeon.store.texts import identity_read, identity_text, path_text, storable

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Iterator

    from brainsurgeon.model.sessions import Identity, Place, SessionFile

_SESSION = (
    "SELECT s.id, s.agent_id, a.name, a.directory, s.name, s.path, s.root, s.format, s.parent,"
    " s.parent_id, s.identity, s.device, s.inode"
    " FROM sessions s JOIN agents a ON a.id = s.agent_id"
)
_HOMELESS = b"\0"
"""What the path of a session goes on with whose place another session has taken: no file's does."""


_NO_AGENT = 0
"""The `agent_id` of a session whose agent has no row yet: rows count from one."""


def _session(row: tuple[Any, ...]) -> SessionRecord:
    ident, agent_id, agent, directory, name, path, root, form, parent, parent_id = row[:10]
    path, homeless, _ = path.partition(_HOMELESS)
    identity, device, inode = row[10:]
    return SessionRecord(
        ident, agent_id, agent, os.fsdecode(directory), name, os.fsdecode(path), os.fsdecode(root),
        form, parent, parent_id, identity_read(identity),
        None if inode is None else (unsigned(device), unsigned(inode)), bool(homeless),
    )  # fmt: skip


class Sessions:
    """The sessions that the store knows."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def note(
        self, file: SessionFile, format_name: str, parent: str | None,
        identity: Identity | None = None, record: SessionRecord | None = None,
    ) -> SessionRecord:  # fmt: skip
        """Find or make the row of a session, and say where and as which file it was seen.

        `record` is what is known of it, maybe under another path, or, without an `id`, what it was
        copied from. Whoever says nothing of its identity means the session that was seen at this
        path. Any other that was seen there is homeless from now on.
        """
        agent_id = self._agent(file)
        holder = self.at(file.path)
        ident = record.id if record else None
        if ident is None and identity is None and holder:
            ident = holder.id
        if holder and holder.id != ident:
            self._move(holder, _homeless(holder))
        older = ident is not None and self.known(ident).identity is None
        if ident is None:
            ident = self._add(agent_id, file, format_name)
        elif holder is None or holder.id != ident:
            self._move(self.known(ident), os.fsencode(file.path))
        self._describe(ident, agent_id, file, format_name, parent, identity, record, older=older)
        return self.known(ident)

    def _agent(self, file: SessionFile) -> int:
        directory = os.fsencode(file.agent_directory)
        self._connection.execute(
            "INSERT INTO agents (directory, name) VALUES (?, ?)"
            " ON CONFLICT DO UPDATE SET name = excluded.name",
            (directory, path_text(file.agent)),
        )
        row = self._connection.execute("SELECT id FROM agents WHERE directory = ?", (directory,))
        return int(row.fetchone()[0])

    def _add(self, agent_id: int, file: SessionFile, format_name: str) -> int:
        cursor = self._connection.execute(
            "INSERT INTO sessions (agent_id, name, path, root, format) VALUES (?, ?, ?, ?, ?)",
            (agent_id, path_text(file.session), os.fsencode(file.path), os.fsencode(file.root),
             format_name),
        )  # fmt: skip
        return int(cursor.lastrowid or 0)

    def _move(self, record: SessionRecord, path: bytes) -> None:
        self._connection.execute(
            "INSERT INTO places (path, session_id) VALUES (?, ?) ON CONFLICT DO NOTHING",
            (os.fsencode(record.path), record.id),
        )
        self._connection.execute("UPDATE sessions SET path = ? WHERE id = ?", (path, record.id))

    def _describe(
        self, ident: int, agent_id: int, file: SessionFile, format_name: str, parent: str | None,
        identity: Identity | None, record: SessionRecord | None, *, older: bool,
    ) -> None:  # fmt: skip
        mark = file.fingerprint
        self._connection.execute(
            "UPDATE sessions SET agent_id = ?, name = ?, root = ?, format = ?, parent = ?,"
            " identity = coalesce(?, identity), device = ?, inode = ? WHERE id = ?",
            (agent_id, path_text(file.session), os.fsencode(file.root), format_name,
             parent and storable(parent), identity_text(identity), signed(mark.device),
             signed(mark.inode), ident),
        )  # fmt: skip
        source = record.parent_id if record else None
        if source is None and older and parent:
            source = next((one.id for one in self._named(agent_id, parent)), None)
        if source is not None:
            self._connection.execute(
                "UPDATE sessions SET parent_id = ? WHERE id = ? AND id != ? AND parent_id IS NULL",
                (source, ident, source),
            )

    def stands_as(self, session_id: int, place: Place) -> None:
        """Note as which file a session stands since it was rewritten."""
        self._connection.execute(
            "UPDATE sessions SET device = ?, inode = ? WHERE id = ?",
            (signed(place[0]), signed(place[1]), session_id),
        )

    def known(self, ident: int) -> SessionRecord:
        """Give a session by the id of its record."""
        return _session(self._connection.execute(_SESSION + " WHERE s.id = ?", (ident,)).fetchone())

    def at(self, path: str) -> SessionRecord | None:
        """Give the session that was last seen at a path, or None."""
        row = self._connection.execute(
            _SESSION + " WHERE s.path = ?", (os.fsencode(path),)
        ).fetchone()
        return _session(row) if row else None

    def of_identity(self, identity: Identity, after: int = 0) -> list[SessionRecord]:
        """Give the sessions that say the same of themselves, the newest first.

        With `after` only those whose records have larger ids.
        """
        rows = self._connection.execute(
            _SESSION + " WHERE s.identity = ? AND s.id > ? ORDER BY s.id DESC",
            (identity_text(identity), after),
        )
        return [_session(row) for row in rows]

    def seen_as(self, identity: Identity, place: Place) -> list[SessionRecord]:
        """Give those of `of_identity` that were last seen as one and the same file."""
        rows = self._connection.execute(
            _SESSION + " WHERE s.identity = ? AND s.device = ? AND s.inode = ? ORDER BY s.id DESC",
            (identity_text(identity), signed(place[0]), signed(place[1])),
        )
        return [_session(row) for row in rows]

    def is_shared(self, identity: Identity, record: SessionRecord | None) -> bool:
        """Tell whether any session but one says this of itself."""
        row = self._connection.execute(
            "SELECT 1 FROM sessions WHERE identity = ? AND id IS NOT ? LIMIT 1",
            (identity_text(identity), record and record.id),
        )
        return row.fetchone() is not None

    def unidentified(self, name: str) -> list[SessionRecord]:
        """Give the sessions of a name that no program that knows identities has seen yet."""
        rows = self._connection.execute(
            _SESSION + " WHERE s.identity IS NULL AND s.name = ?", (path_text(name),)
        )
        return [_session(row) for row in rows]

    def all(self) -> Iterator[SessionRecord]:
        """Yield every session that the store knows, with the places where it was seen before."""
        earlier: dict[int, list[str]] = defaultdict(list)
        for path, ident in self._connection.execute("SELECT path, session_id FROM places"):
            earlier[ident].append(os.fsdecode(path))
        for row in self._connection.execute(_SESSION + " ORDER BY a.name, s.name"):
            yield replace(_session(row), earlier=tuple(earlier.get(row[0], ())))

    def family(self, session: SessionRecord) -> list[int]:
        """Give the ids of a session and of those that it was forked or copied from."""
        ids = [] if session.id is None else [session.id]
        at: SessionRecord | None = session
        while at and (at := self._origin(at)) and at.id not in ids:
            ids.append(at.id or 0)
        return ids

    def _origin(self, session: SessionRecord) -> SessionRecord | None:
        if session.parent_id is not None:
            return self.known(session.parent_id)
        if session.id is None or session.identity or not session.parent:
            return None
        return next(iter(self._named(session.agent_id, session.parent)), None)

    def _named(self, agent_id: int, parent: str) -> list[SessionRecord]:
        """Find the sessions of an agent that a fork may mean, also where they stood before."""
        name = os.path.basename(parent).removesuffix(".jsonl")
        path = os.fsencode(storable(parent))
        rows = self._connection.execute(
            _SESSION + " WHERE s.agent_id = ? AND (s.path = ? OR s.name = ? OR EXISTS"  # noqa: S608
            " (SELECT 1 FROM places p WHERE p.session_id = s.id AND p.path = ?))"
            " ORDER BY s.path != ?, s.name != ?",
            (agent_id, path, storable(name), path, path, storable(name)),
        )
        return [_session(row) for row in rows]

    def named(self, agent_directory: str, parent: str) -> list[SessionRecord]:
        """Find the sessions of an agent that a fork may mean, also where they stood before."""
        agent = self._agent_of(agent_directory)
        return self._named(agent[0], parent) if agent else []

    def _agent_of(self, directory: str) -> tuple[int, str] | None:
        row = self._connection.execute(
            "SELECT id, name FROM agents WHERE directory = ?", (os.fsencode(directory),)
        ).fetchone()
        return (int(row[0]), str(row[1])) if row else None

    def origin(self, agent_directory: str, path: str, entries: Iterable[str]) -> str | None:
        """Name the session of an agent that most of these entries were extracted from.

        It is asked for a session that holds their stubs and has no record of them: a fork that
        does not say what it was forked from. The session at `path` itself does not count.
        """
        rows = self._connection.execute(
            "SELECT s.name, count(DISTINCT e.entry_id) FROM extractions e"
            " JOIN sessions s ON s.id = e.session_id JOIN agents a ON a.id = s.agent_id"
            " WHERE a.directory = ? AND s.path != ? AND e.state != 'pending'"
            " AND e.entry_id IN (SELECT value FROM json_each(?))"
            " GROUP BY s.id ORDER BY 2 DESC, s.id LIMIT 1",
            (os.fsencode(agent_directory), os.fsencode(path), json.dumps(sorted(entries))),
        ).fetchone()
        return rows[0] if rows else None

    def unnoted(
        self, file: SessionFile, format_name: str, parent: str | None,
        identity: Identity | None = None, source: int | None = None,
    ) -> SessionRecord | None:  # fmt: skip
        """Describe a session that has no record yet, if its agent has other sessions.

        `source` is the session that it was forked or copied from. Where that is known, the agent
        has one, although its directory may be called otherwise since.
        """
        agent = self._agent_of(file.agent_directory)
        if agent is None and source is None:
            return None
        name = path_text(file.session)
        ident, label = agent or (_NO_AGENT, path_text(file.agent))
        return SessionRecord(
            None, ident, label, file.agent_directory, name, file.path, file.root, format_name,
            parent and storable(parent), source, identity, file.fingerprint.place,
        )  # fmt: skip


def _homeless(record: SessionRecord) -> bytes:
    return os.fsencode(record.path) + _HOMELESS + str(record.id).encode()
