"""The rewrites under way, and what becomes of their rows when one has happened or has not.

A row is open from the commit that shelves the originals until the old file is gone. Whoever finds
one and can take its session's lock knows that its writer died.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from brainsurgeon.model.records import Confirmation, OpenRewrite
from brainsurgeon.model.sessions import End
from brainsurgeon.store.archives import confirm_archives, forget_archives, ids_of, taken_back
from brainsurgeon.store.numbers import signed, unsigned
from brainsurgeon.store.passes import drop_empty
from brainsurgeon.store.telling import tell_rewrite

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Mapping

    from brainsurgeon.model.sessions import SessionFile


_ROW = (
    "SELECT id, session_id, root, directory, name, temporary, device, inode,"
    " new_inode, old_size, old_mark, new_size, new_mark, confirmed, note, moving_to, stays"
    " FROM journal"
)


_FRESH = (
    "EXISTS (SELECT 1 FROM extractions fresh WHERE fresh.journal_id = ?"
    " AND fresh.session_id = extractions.session_id"
    " AND fresh.entry_id = extractions.entry_id AND fresh.path = extractions.path"
)
"""A cut of this rewrite in the same place; whoever uses it closes the parenthesis."""


def _rewrite(row: tuple[Any, ...]) -> OpenRewrite:
    values = list(row)
    values[2:5] = (os.fsdecode(value) for value in row[2:5])
    values[6:8] = (unsigned(value) for value in row[6:8])
    values[8] = None if row[8] is None else unsigned(row[8])
    values[9:] = (
        (End(*row[9:11]), End(*row[11:13])),
        bool(row[13]),
        Confirmation(**json.loads(row[14])),
        None if row[15] is None else unsigned(row[15]),
        row[16],
    )
    return OpenRewrite(*values)


class Journal:
    """The rewrites under way."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def begin(
        self,
        session_id: int,
        file: SessionFile,
        temporary: str,
        confirmation: Confirmation,
    ) -> int:
        """Note that a file, in the state that it is in now, is about to be rewritten."""
        cursor = self._connection.execute(
            "INSERT INTO journal (session_id, root, directory, name, temporary, device, inode,"
            " note) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (session_id, os.fsencode(file.root), os.fsencode(file.directory),
             os.fsencode(file.name), temporary, signed(file.fingerprint.device),
             signed(file.fingerprint.inode), json.dumps(asdict(confirmation))),
        )  # fmt: skip
        return int(cursor.lastrowid or 0)

    def open_rewrites(self, session_id: int | None = None) -> list[OpenRewrite]:
        """Give the rewrites that nobody has finished or given up, of one session or of all."""
        which, values = ("", ()) if session_id is None else (" WHERE session_id = ?", (session_id,))
        rows = self._connection.execute(f"{_ROW}{which} ORDER BY id", values)
        return [_rewrite(row) for row in rows]

    def rewrite(self, journal_id: int) -> OpenRewrite:
        """Give one open rewrite."""
        return _rewrite(self._connection.execute(_ROW + " WHERE id = ?", (journal_id,)).fetchone())

    def confirm(self, journal_id: int, session_id: int, confirmation: Confirmation) -> None:
        """Make what was recorded for a rewrite count; part of the caller's transaction.

        The rewrite stays open until the old file is gone (`close`).
        """
        tell_rewrite(self._connection, journal_id, session_id, confirmation)
        made = ids_of(self._connection, journal_id)
        undone = taken_back(self._connection, confirmation.put_back)
        confirm_archives(self._connection, session_id, made, undone, confirmation.folded)
        self._confirm_cuts(journal_id, session_id)
        self._confirm_putbacks(session_id, confirmation)
        self._confirm_fields(journal_id, session_id, confirmation)
        self._connection.executemany(
            "UPDATE wishes SET state = 'done' WHERE id = ?", ((row,) for row in confirmation.wishes)
        )
        self._connection.execute("UPDATE journal SET confirmed = 1 WHERE id = ?", (journal_id,))

    def _confirm_cuts(self, journal_id: int, session_id: int) -> None:
        """Let the new cuts count; for a place that was cut before, only the newest one does.

        What says of it that another text stood there is kept: a fork may have copied that text.
        """
        self._connection.execute(
            "DELETE FROM extractions WHERE state IN ('standing', 'restored') AND session_id = ?"  # noqa: S608
            f" AND {_FRESH} AND fresh.digest = extractions.digest"
            " AND fresh.replacement IS extractions.replacement)",
            (session_id, journal_id),
        )
        self._connection.execute(
            "UPDATE extractions SET state = 'restored' WHERE state = 'standing' AND session_id = ?"  # noqa: S608
            f" AND {_FRESH})",
            (session_id, journal_id),
        )
        self._connection.execute(
            "UPDATE extractions SET state = 'standing', journal_id = NULL WHERE journal_id = ?",
            (journal_id,),
        )

    def _confirm_putbacks(self, session_id: int, confirmation: Confirmation) -> None:
        # Also where the value was put back into a fork: it is its parent's, and stands there still.
        self._connection.executemany(
            "UPDATE extractions SET restored_at = ?, sighted_at = max(sighted_at, ?),"
            " marked_at = NULL WHERE id = ?",
            ((confirmation.at, confirmation.at, row) for row in confirmation.put_back),
        )
        self._connection.executemany(
            "UPDATE extractions SET state = 'restored'"
            " WHERE id = ? AND session_id = ? AND state = 'standing'",
            ((row, session_id) for row in confirmation.put_back),
        )
        self._connection.executemany(
            "INSERT INTO restores (session_id, entry_id, restored_at) VALUES (?, ?, ?)"
            " ON CONFLICT DO UPDATE SET restored_at = max(restored_at, excluded.restored_at)",
            ((session_id, entry, confirmation.at) for entry in confirmation.restored),
        )

    def _confirm_fields(self, journal_id: int, session_id: int, confirmation: Confirmation) -> None:
        self._connection.execute(
            "DELETE FROM fields WHERE state = 'standing' AND session_id = ? AND EXISTS"
            " (SELECT 1 FROM fields fresh WHERE fresh.journal_id = ?"
            " AND fresh.session_id = fields.session_id AND fresh.entry_id = fields.entry_id"
            " AND fresh.name = fields.name)",
            (session_id, journal_id),
        )
        self._connection.execute(
            "UPDATE fields SET state = 'standing', journal_id = NULL WHERE journal_id = ?",
            (journal_id,),
        )
        self._connection.executemany(
            "DELETE FROM fields WHERE id = ?", ((row,) for row in confirmation.fields_gone)
        )

    def close(self, journal_id: int) -> None:
        """Close a rewrite: nothing of it stands beside the session any more."""
        self._connection.execute("DELETE FROM journal WHERE id = ?", (journal_id,))

    def filled(self, journal_id: int, inode: int, ends: tuple[End, End]) -> None:
        """Note that the new file is whole: from now on it may get the session's name."""
        self._connection.execute(
            "UPDATE journal SET new_inode = ? WHERE id = ?", (signed(inode), journal_id)
        )
        self.ended(journal_id, ends)

    def ended(self, journal_id: int, ends: tuple[End, End]) -> None:
        """Note where the old and the new file end, with what was moved over already."""
        old, new = ends
        self._connection.execute(
            "UPDATE journal SET old_size = ?, old_mark = ?, new_size = ?, new_mark = ?,"
            " moving_to = NULL WHERE id = ?",
            (old.size, old.digest, new.size, new.digest, journal_id),
        )

    def note(self, journal_id: int, ends: Mapping[int, End], moving_to: int | None) -> None:
        """Note where files (by inode) end, and to which of them lines are about to be moved."""
        for inode, end in ends.items():
            self._connection.execute(
                "UPDATE journal SET old_size = ?, old_mark = ? WHERE id = ? AND inode = ?",
                (end.size, end.digest, journal_id, signed(inode)),
            )
            self._connection.execute(
                "UPDATE journal SET new_size = ?, new_mark = ? WHERE id = ? AND new_inode = ?",
                (end.size, end.digest, journal_id, signed(inode)),
            )
        self._connection.execute(
            "UPDATE journal SET moving_to = ? WHERE id = ?",
            (None if moving_to is None else signed(moving_to), journal_id),
        )

    def stays(self, journal_id: int, why: str) -> None:
        """Note why the old file of a rewrite stays beside the session."""
        self._connection.execute("UPDATE journal SET stays = ? WHERE id = ?", (why, journal_id))

    def idle(self, journal_id: int) -> None:
        """Keep what was recorded for a rewrite that was undone, as of values that were restored.

        Its new content may have been seen for an instant, and whoever read it may write its stubs
        again: a row without a stub costs nothing, a stub without a row could not be filled again.
        """
        self._connection.execute(
            "UPDATE extractions SET state = 'restored', journal_id = NULL WHERE journal_id = ?",
            (journal_id,),
        )
        self._connection.execute("DELETE FROM fields WHERE journal_id = ?", (journal_id,))

    def forget(self, journal_id: int) -> None:
        """Forget what was recorded for a rewrite that nobody can have seen.

        The stored values stay until retention takes them, or are used again.
        """
        archives = ids_of(self._connection, journal_id)
        self._connection.execute("DELETE FROM extractions WHERE journal_id = ?", (journal_id,))
        forget_archives(self._connection, archives)
        self._connection.execute("DELETE FROM fields WHERE journal_id = ?", (journal_id,))
        drop_empty(self._connection, journal_id)

    def abandon(self, journal_id: int) -> None:
        """Give up a rewrite that nobody can have seen, and close it."""
        self.forget(journal_id)
        self.close(journal_id)
