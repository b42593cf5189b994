"""The fields of ours that stand in session files, with what undoing each of them puts back."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from brainsurgeon.model.records import FieldRecord

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Sequence


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
        run_id: int | None = None,
        rest: bytes | None = None,
    ) -> None:
        """Note a field that a rewrite is about to set; `before` is what undoing puts back."""
        self._connection.execute(
            "INSERT INTO fields (session_id, entry_id, name, before, after, value, rest, state,"
            " journal_id, run_id) VALUES (?, ?, ?, ?, ?, ?, ?, 'pending', ?, ?)",
            (session_id, entry_id, name, before, after, value, rest, journal_id, run_id),
        )

    def of_entries(self, session_id: int | None, entries: Iterable[str]) -> list[FieldRecord]:
        """Return the fields of ours that stand in a session, and what we ever set on `entries`.

        The latter in any session: forks and copies carry fields along. Where an entry has records
        of its own session, those of others are left out.
        """
        own = self._fields("session_id = ? AND state = 'standing'", [session_id])
        known = {(one.entry_id, one.name) for one in own}
        others = self._fields(
            "entry_id IN (SELECT value FROM json_each(?)) AND state != 'pending'",
            [json.dumps(sorted(entries))],
        )
        return own + [one for one in others if (one.entry_id, one.name) not in known]

    @property
    def is_empty(self) -> bool:
        """Whether no field was ever set."""
        return self._connection.execute("SELECT 1 FROM fields LIMIT 1").fetchone() is None

    def of_session(self, session_id: int) -> list[FieldRecord]:
        """Return the fields of ours that stand in a session's file."""
        return self._fields("session_id = ? AND state = 'standing'", [session_id])

    def _fields(self, where: str, values: Sequence[object]) -> list[FieldRecord]:
        rows = self._connection.execute(
            "SELECT id, session_id, entry_id, name, before, after, value, run_id, rest"  # noqa: S608
            f" FROM fields WHERE {where} ORDER BY id",
            values,
        )
        return [FieldRecord(*row) for row in rows]

    def sessions_of_run(self, run_id: int) -> set[int]:
        """Return the sessions in which fields stand that a run set."""
        rows = self._connection.execute(
            "SELECT session_id FROM fields WHERE run_id = ? AND state = 'standing'", (run_id,)
        )
        return {session for (session,) in rows}
