"""The fields of ours that stand in session files, with what undoing each of them puts back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from brainsurgeon.model.records import FieldRecord

if TYPE_CHECKING:
    import sqlite3


class Fields:
    """The fields of ours that stand in session files."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def add(
        self,
        session_id: int,
        journal_id: int,
        entry_id: str,
        name: str,
        before: bytes | None,
        after: bytes,
        value: str,
        pass_id: int | None = None,
    ) -> None:
        """Note a field that a rewrite is about to set; `before` is what undoing puts back."""
        self._connection.execute(
            "INSERT INTO fields (session_id, entry_id, name, before, after, value, state,"
            " journal_id, pass_id) VALUES (?, ?, ?, ?, ?, ?, 'pending', ?, ?)",
            (session_id, entry_id, name, before, after, value, journal_id, pass_id),
        )

    def of_session(self, session_id: int) -> list[FieldRecord]:
        """Give the fields of ours that stand in a session's file."""
        rows = self._connection.execute(
            "SELECT id, entry_id, name, before, after, value, pass_id FROM fields"
            " WHERE session_id = ? AND state = 'standing' ORDER BY id",
            (session_id,),
        )
        return [FieldRecord(*row) for row in rows]

    def sessions_of_pass(self, pass_id: int) -> set[int]:
        """Give the sessions in which fields stand that a pass set."""
        rows = self._connection.execute(
            "SELECT session_id FROM fields WHERE pass_id = ? AND state = 'standing'", (pass_id,)
        )
        return {session for (session,) in rows}
