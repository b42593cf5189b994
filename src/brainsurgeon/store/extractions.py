"""What was swapped where: agents, sessions, extractions, fields of ours, the memory of restores.

The file is the truth and this is a catalogue: a row authorises putting a value back only into
its own session (or a fork of it), entry and path, and only where exactly its stub stands.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from brainsurgeon.errors import Busy, Damaged
from brainsurgeon.store import blobs

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Iterator, Sequence

    from brainsurgeon.model import Cut, Found, KeyPath


@dataclass(frozen=True, slots=True)
class SessionRow:
    """A session that the store knows."""

    id: int
    agent_id: int
    agent: str
    agent_directory: str
    name: str
    path: str
    root: str
    format: str
    parent: str | None

    @property
    def title(self) -> str:
        """The session as people address it."""
        return f"{self.agent}/{self.name}"


@dataclass(frozen=True, slots=True)
class Extraction:
    """One swap. `size` is in bytes as stored in the line, `chars` in characters."""

    id: int
    session_id: int
    entry_id: str
    stub: str
    path: KeyPath
    kind: str
    tool: str | None
    block: bool
    chars: int
    size: int
    blob_id: int | None
    state: str
    extracted_at: float
    sighted_at: float
    restored_at: float | None
    expired_at: float | None
    expired_why: str | None
    digest: bytes
    replacement: str | None
    anchor: str | None
    exact: bool
    damaged: bool = False


@dataclass(frozen=True, slots=True)
class FieldRow:
    """A field of ours that stands in a file, with the exact bytes before and after."""

    id: int
    entry_id: str
    name: str
    before: bytes | None
    after: bytes
    value: str


_SESSION = (
    "SELECT s.id, s.agent_id, a.name, a.directory, s.name, s.path, s.root, s.format, s.parent "
    "FROM sessions s JOIN agents a ON a.id = s.agent_id"
)
_EXTRACTION = (
    "SELECT id, session_id, entry_id, stub, path, kind, tool, block, chars, size, blob_id, state,"
    " extracted_at, sighted_at, restored_at, expired_at, expired_why, digest,"
    " replacement, anchor, exact FROM extractions"
)


def printable(text: str) -> str:
    """Make a file name storable as text, whatever bytes it is made of."""
    return os.fsencode(text).decode("utf-8", "backslashreplace")


def note_session(
    connection: sqlite3.Connection, found: Found, format_name: str, parent: str | None
) -> SessionRow:
    """Find or make the row of a session."""
    directory = os.fsencode(found.agent_directory)
    connection.execute(
        "INSERT INTO agents (directory, name) VALUES (?, ?) ON CONFLICT DO NOTHING",
        (directory, printable(found.agent)),
    )
    connection.execute(
        "INSERT INTO sessions (agent_id, name, path, root, format, parent)"
        " SELECT id, ?, ?, ?, ?, ? FROM agents WHERE directory = ?"
        " ON CONFLICT (path) DO UPDATE SET format = excluded.format, parent = excluded.parent,"
        " root = excluded.root",
        (printable(found.session), os.fsencode(found.path), os.fsencode(found.root),
         format_name, _storable(parent), directory),
    )  # fmt: skip
    row = session_at(connection, found.path)
    assert row is not None  # noqa: S101  it was written above
    return row


def unnoted(
    connection: sqlite3.Connection, found: Found, format_name: str, parent: str | None
) -> SessionRow | None:
    """Describe a session that has no row yet (its id is 0), if its agent has other sessions."""
    agent = connection.execute(
        "SELECT id, name FROM agents WHERE directory = ?", (os.fsencode(found.agent_directory),)
    ).fetchone()
    if agent is None:
        return None
    name = printable(found.session)
    ident, label = agent
    return SessionRow(
        0, ident, label, found.agent_directory, name, found.path, found.root, format_name,
        _storable(parent),
    )  # fmt: skip


def session_at(connection: sqlite3.Connection, path: str) -> SessionRow | None:
    """Give the session of a file, or None."""
    row = connection.execute(_SESSION + " WHERE s.path = ?", (os.fsencode(path),)).fetchone()
    return _session(row) if row else None


def sessions(connection: sqlite3.Connection) -> Iterator[SessionRow]:
    """Yield every session that the store knows."""
    for row in connection.execute(_SESSION + " ORDER BY a.name, s.name"):
        yield _session(row)


def family(connection: sqlite3.Connection, session: SessionRow) -> list[int]:
    """Give the ids of a session and of those that it was forked from, within its agent."""
    ids, parent = [session.id], session.parent
    while parent:
        name = os.path.basename(parent).removesuffix(".jsonl")
        row = connection.execute(
            _SESSION + " WHERE s.agent_id = ? AND (s.name = ? OR s.path = ?)",
            (session.agent_id, _storable(name), os.fsencode(_storable(parent) or "")),
        ).fetchone()
        if row is None or row[0] in ids:
            break
        ids.append(row[0])
        parent = _session(row).parent
    return ids


def of_sessions(connection: sqlite3.Connection, ids: Iterable[int]) -> list[Extraction]:
    """Give the extractions of some sessions, oldest first; pending ones are nobody's yet."""
    listed = list(ids)
    marks = ",".join("?" * len(listed))
    return _extractions(connection, f"session_id IN ({marks}) AND state != 'pending'", listed)


def of_entry(connection: sqlite3.Connection, entry_id: str) -> list[Extraction]:
    """Give the extractions of an entry, named by its own id or by the one in its stub."""
    where = "(entry_id = ? OR stub = ?) AND state != 'pending'"
    return _extractions(connection, where, [entry_id, f"[[extracted-{entry_id}]]"])


def _extractions(
    connection: sqlite3.Connection, where: str, values: Sequence[object]
) -> list[Extraction]:
    rows = connection.execute(f"{_EXTRACTION} WHERE {where} ORDER BY id", values)
    return [_extraction(row) for row in rows]


def _extraction(row: tuple[Any, ...]) -> Extraction:
    values = list(row)
    values[4] = tuple(json.loads(row[4]))
    values[7] = bool(row[7])
    values[-1] = bool(row[-1])
    return Extraction(*values)


def add(
    connection: sqlite3.Connection,
    session_id: int,
    journal_id: int,
    shelved: Iterable[tuple[Cut, int, bytes, int]],
    now: float,
) -> None:
    """Note swaps that a rewrite is about to make; they count once the rewrite is confirmed."""
    connection.executemany(
        "INSERT INTO extractions (session_id, entry_id, stub, path, kind, tool, block,"
        " replacement, anchor, exact, chars, size, digest, blob_id, reason, state, journal_id,"
        " extracted_at, sighted_at)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 'pending', ?, ?, ?)",
        (
            (session_id, cut.entry_id, cut.stub, json.dumps(cut.path), cut.kind,
             _storable(cut.tool), cut.block, cut.new.decode() if cut.redacts else None,
             _storable(cut.anchor), cut.exact, cut.chars, size, digest, blob_id, cut.reason,
             journal_id, now, now)
            for cut, blob_id, digest, size in shelved
        ),
    )  # fmt: skip


def sight(connection: sqlite3.Connection, ids: Iterable[int], now: float) -> None:
    """Note that the stubs of these extractions were seen standing in a file."""
    connection.executemany(
        "UPDATE extractions SET sighted_at = ?,"
        " state = CASE state WHEN 'restored' THEN 'standing' ELSE state END WHERE id = ?",
        ((now, row) for row in ids),
    )


def add_field(
    connection: sqlite3.Connection,
    session_id: int,
    journal_id: int,
    entry_id: str,
    name: str,
    before: bytes | None,
    after: bytes,
    value: str,
    now: float,
) -> None:
    """Note a field that a rewrite is about to set; `before` is what undoing puts back."""
    connection.execute(
        "INSERT INTO fields (session_id, entry_id, name, before, after, value, state, journal_id,"
        " set_at) VALUES (?, ?, ?, ?, ?, ?, 'pending', ?, ?)",
        (session_id, entry_id, name, before, after, value, journal_id, now),
    )


def value(connection: sqlite3.Connection, extraction_id: int) -> bytes:
    """Read the value of an extraction; raise Busy when it expired meanwhile, or Damaged."""
    row = connection.execute(
        "SELECT blob_id, digest FROM extractions WHERE id = ? AND blob_id IS NOT NULL",
        (extraction_id,),
    ).fetchone()
    if row is None:
        raise Busy("a value expired while it was about to be put back; nothing was touched")
    try:
        return blobs.get(connection, *row)
    except Damaged as damaged:
        raise Damaged(str(damaged), extraction_id) from damaged


def fields(connection: sqlite3.Connection, session_id: int) -> list[FieldRow]:
    """Give the fields of ours that stand in a session's file."""
    rows = connection.execute(
        "SELECT id, entry_id, name, before, after, value FROM fields"
        " WHERE session_id = ? AND state = 'standing' ORDER BY id",
        (session_id,),
    )
    return [FieldRow(*row) for row in rows]


def restores(connection: sqlite3.Connection, session_id: int) -> dict[str, float]:
    """Give when each entry of a session was last restored, as the store remembers it."""
    return dict(
        connection.execute(
            "SELECT entry_id, restored_at FROM restores WHERE session_id = ?", (session_id,)
        )
    )


def _storable(text: str | None) -> str | None:
    return None if text is None else text.encode("utf-8", "replace").decode()


def _session(row: tuple[int, int, str, bytes, str, bytes, bytes, str, str | None]) -> SessionRow:
    ident, agent_id, agent, directory, name, path, root, form, parent = row
    return SessionRow(
        ident, agent_id, agent, os.fsdecode(directory), name, os.fsdecode(path), os.fsdecode(root),
        form, parent,
    )  # fmt: skip


def totals(connection: sqlite3.Connection) -> dict[int, tuple[int, int]]:
    """Give, by session, how many values stand extracted and how many bytes that saves."""
    rows = connection.execute(
        "SELECT session_id, count(*), sum(size - coalesce("
        "length(replacement), length(stub) + 2 + 27 * block)) FROM extractions"
        " WHERE state = 'standing' GROUP BY session_id"
    )
    return {session: (count, saved) for session, count, saved in rows}
