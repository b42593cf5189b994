"""Rewrites under way: what is pending, what becomes true when one is confirmed, what is undone.

A row is open from the commit that shelves the originals until the old file is gone. Whoever finds
one and can take its session's lock knows that its writer died.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from brainsurgeon.model import End

if TYPE_CHECKING:
    import sqlite3

    from brainsurgeon.model import Found


@dataclass(frozen=True, slots=True)
class Note:
    """What becomes true when the rewrite is confirmed: ids of rows, and entries restored."""

    put_back: list[int] = field(default_factory=list)
    fields_gone: list[int] = field(default_factory=list)
    wishes: list[int] = field(default_factory=list)
    restored: list[str] = field(default_factory=list)
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class Open:
    """An open row of the journal; `ends` are where the old and the new file ended."""

    id: int
    session_id: int
    root: str
    directory: str
    name: str
    temporary: str
    device: int
    inode: int
    new_inode: int | None
    ends: tuple[End, End]
    confirmed: bool
    note: Note


def begin(
    connection: sqlite3.Connection,
    session_id: int,
    found: Found,
    temporary: str,
    note: Note,
) -> int:
    """Open a row for a rewrite of this state of this file."""
    cursor = connection.execute(
        "INSERT INTO journal (session_id, root, directory, name, temporary, device, inode,"
        " note, begun_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (session_id, os.fsencode(found.root), os.fsencode(found.directory),
         os.fsencode(found.name), temporary, _signed(found.fingerprint.device),
         _signed(found.fingerprint.inode), json.dumps(asdict(note)), note.at),
    )  # fmt: skip
    return int(cursor.lastrowid or 0)


_ROW = (
    "SELECT id, session_id, root, directory, name, temporary, device, inode,"
    " new_inode, old_size, old_mark, new_size, new_mark, confirmed, note FROM journal"
)


def open_rows(connection: sqlite3.Connection) -> list[Open]:
    """Give the rewrites that nobody has finished or given up."""
    return [_open(row) for row in connection.execute(_ROW + " ORDER BY id")]


def row(connection: sqlite3.Connection, journal_id: int) -> Open:
    """Give one open rewrite."""
    return _open(connection.execute(_ROW + " WHERE id = ?", (journal_id,)).fetchone())


def _open(row: tuple[Any, ...]) -> Open:
    values = list(row)
    values[2:5] = (os.fsdecode(value) for value in row[2:5])
    values[6:8] = (_unsigned(value) for value in row[6:8])
    values[8] = None if row[8] is None else _unsigned(row[8])
    values[9:] = ((End(*row[9:11]), End(*row[11:13])), bool(row[13]), Note(**json.loads(row[14])))
    return Open(*values)


def confirm(connection: sqlite3.Connection, journal_id: int, session_id: int, note: Note) -> None:
    """Make the rewrite's rows count; part of the caller's transaction.

    The row stays open until the old file is gone (`close`).
    """
    # The same place may have been cut, restored and cut again: the newest row speaks for it.
    connection.execute(
        "DELETE FROM extractions WHERE state IN ('standing', 'restored') AND session_id = ?"
        " AND EXISTS (SELECT 1 FROM extractions fresh WHERE fresh.journal_id = ?"
        " AND fresh.session_id = extractions.session_id AND fresh.entry_id = extractions.entry_id"
        " AND fresh.path = extractions.path AND fresh.digest = extractions.digest)",
        (session_id, journal_id),
    )
    connection.execute(
        "UPDATE extractions SET state = 'restored' WHERE state = 'standing' AND session_id = ?"
        " AND EXISTS (SELECT 1 FROM extractions fresh WHERE fresh.journal_id = ?"
        " AND fresh.session_id = extractions.session_id AND fresh.entry_id = extractions.entry_id"
        " AND fresh.path = extractions.path)",
        (session_id, journal_id),
    )
    connection.execute(
        "UPDATE extractions SET state = 'standing', journal_id = NULL WHERE journal_id = ?",
        (journal_id,),
    )
    # Also where the value was put back into a fork: it is its parent's, and stands there still.
    connection.executemany(
        "UPDATE extractions SET restored_at = ?, sighted_at = max(sighted_at, ?), marked_at = NULL"
        " WHERE id = ?",
        ((note.at, note.at, row) for row in note.put_back),
    )
    connection.executemany(
        "UPDATE extractions SET state = 'restored'"
        " WHERE id = ? AND session_id = ? AND state = 'standing'",
        ((row, session_id) for row in note.put_back),
    )
    connection.execute(
        "DELETE FROM fields WHERE state = 'standing' AND session_id = ? AND EXISTS"
        " (SELECT 1 FROM fields fresh WHERE fresh.journal_id = ?"
        " AND fresh.session_id = fields.session_id AND fresh.entry_id = fields.entry_id"
        " AND fresh.name = fields.name)",
        (session_id, journal_id),
    )
    connection.execute(
        "UPDATE fields SET state = 'standing', journal_id = NULL WHERE journal_id = ?",
        (journal_id,),
    )
    connection.executemany("DELETE FROM fields WHERE id = ?", ((row,) for row in note.fields_gone))
    connection.executemany(
        "UPDATE wishes SET state = 'done', closed_at = ? WHERE id = ?",
        ((note.at, row) for row in note.wishes),
    )
    connection.executemany(
        "INSERT INTO restores (session_id, entry_id, restored_at) VALUES (?, ?, ?)"
        " ON CONFLICT DO UPDATE SET restored_at = max(restored_at, excluded.restored_at)",
        ((session_id, entry, note.at) for entry in note.restored),
    )
    connection.execute("UPDATE journal SET confirmed = 1 WHERE id = ?", (journal_id,))


def close(connection: sqlite3.Connection, journal_id: int) -> None:
    """Close a rewrite: nothing of it stands beside the session any more."""
    connection.execute("DELETE FROM journal WHERE id = ?", (journal_id,))


def filled(
    connection: sqlite3.Connection, journal_id: int, inode: int, ends: tuple[End, End]
) -> None:
    """Note that the new file is whole: from now on it may stand under the session's name."""
    connection.execute(
        "UPDATE journal SET new_inode = ? WHERE id = ?", (_signed(inode), journal_id)
    )
    ended(connection, journal_id, ends)


def ended(connection: sqlite3.Connection, journal_id: int, ends: tuple[End, End]) -> None:
    """Note where the old and the new file end, with what was moved over already."""
    old, new = ends
    connection.execute(
        "UPDATE journal SET old_size = ?, old_mark = ?, new_size = ?, new_mark = ? WHERE id = ?",
        (old.size, old.mark, new.size, new.mark, journal_id),
    )


def idle(connection: sqlite3.Connection, journal_id: int) -> None:
    """Let the rows of a rewrite that did not happen stay, idle.

    Its new content may have been seen for an instant, and whoever read it may write its stubs
    again: an idle row costs nothing, a stub without a row would be lost.
    """
    connection.execute(
        "UPDATE extractions SET state = 'restored', journal_id = NULL WHERE journal_id = ?",
        (journal_id,),
    )
    connection.execute("DELETE FROM fields WHERE journal_id = ?", (journal_id,))


def forget(connection: sqlite3.Connection, journal_id: int) -> None:
    """Forget the rows of a rewrite that nobody can have seen.

    Its blobs stay for retention or for reuse.
    """
    connection.execute("DELETE FROM extractions WHERE journal_id = ?", (journal_id,))
    connection.execute("DELETE FROM fields WHERE journal_id = ?", (journal_id,))


def abandon(connection: sqlite3.Connection, journal_id: int) -> None:
    """Give up a rewrite that nobody can have seen, and close it."""
    forget(connection, journal_id)
    close(connection, journal_id)


def _signed(number: int) -> int:
    """Fit an unsigned 64-bit number (btrfs and others use the top bit) into SQLite's integer."""
    return number - (1 << 64) if number >= 1 << 63 else number


def _unsigned(number: int) -> int:
    return number + (1 << 64) if number < 0 else number
