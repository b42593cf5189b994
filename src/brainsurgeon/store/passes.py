"""The passes: one run of a command that changed something, and what of it still stands.

A pass gets its number in the first transaction that needs one, so that a run which changes
nothing writes nothing. Every writer uses them alike:

    with store.passes.run("scan", now):          # around a whole run
        with store.transaction():
            ident = store.passes.number()        # where a row is to name its pass
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from brainsurgeon.model.events import Pass
from brainsurgeon.store.events import KEPT_SECONDS

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Collection, Iterator

_TOGETHER = 1000
"""Rows that are trimmed in one transaction."""
_PASS = "SELECT id, at, command, facts FROM passes"  # noqa: S105  no password
Run = tuple[str, float, dict[str, Any]]


class Passes:
    """The passes, and the one that is being made."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._run: Run | None = None
        self._number: int | None = None
        self._unsure = False

    @contextmanager
    def run(self, command: str, at: float, **facts: Any) -> Iterator[None]:
        """Let everything that a block changes name one pass, which begins with these facts."""
        before = self._run, self._number
        self._run, self._number = (command, at, facts), None
        try:
            yield
        finally:
            self._run, self._number = before

    def number(self) -> int | None:
        """Give the number of the pass that is being made; None where nobody said which it is.

        Part of a transaction.
        """
        if self._run is None:
            return None
        if self.so_far is None:
            command, at, facts = self._run
            made = self._connection.execute(
                "INSERT INTO passes (at, command, facts) VALUES (?, ?, ?)",
                (at, command, json.dumps(facts)),
            )
            self._number, self._unsure = made.lastrowid, True
        return self._number

    @property
    def so_far(self) -> int | None:
        """The number of the pass that is being made, if it has changed anything yet.

        Where its only rewrite was given up, it has none any more.
        """
        known = self._number is not None and self.named(self._number)
        return self._number if known else None

    def keep(self) -> None:
        """Take in that the transaction was committed."""
        self._unsure = False

    def forget_unsure(self) -> None:
        """Take in that the transaction was not committed."""
        if self._unsure:
            self._number, self._unsure = None, False

    def add(self, pass_id: int | None, **counts: int) -> None:
        """Add to what a pass did; part of a transaction."""
        add_up(self._connection, pass_id, **counts)

    def named(self, pass_id: int) -> Pass | None:
        """Give one pass."""
        found = self._connection.execute(f"{_PASS} WHERE id = ?", (pass_id,)).fetchone()
        return None if found is None else _pass(found)

    def newest(self, most: int | None) -> list[Pass]:
        """Give the newest passes, at most so many, the newest last."""
        rows = self._connection.execute(
            f"{_PASS} ORDER BY id DESC LIMIT ?", (-1 if most is None else most,)
        )
        return [_pass(row) for row in rows][::-1]

    @property
    def last(self) -> int:
        """The highest number that any pass ever had; 0 before the first."""
        row = self._connection.execute(
            "SELECT seq FROM sqlite_sequence WHERE name = 'passes'"
        ).fetchone()
        return int(row[0]) if row else 0

    def old(self, now: float) -> list[int]:
        """Name some passes that are kept no longer, the oldest first.

        They are as old as events get, no event names them, and nothing of them is left that could
        be taken back: no value of theirs is held, no field stands, and nothing is under way.
        """
        rows = self._connection.execute(
            "SELECT id FROM passes WHERE at < ? AND id NOT IN"
            " (SELECT pass_id FROM fields WHERE pass_id IS NOT NULL"
            " UNION SELECT rolls_back FROM wishes WHERE rolls_back IS NOT NULL AND state = 'open'"
            " UNION SELECT json_extract(note, '$.pass_id') FROM journal"
            " WHERE json_extract(note, '$.pass_id') IS NOT NULL)"
            " AND NOT EXISTS (SELECT 1 FROM events WHERE pass_id = passes.id)"
            " AND NOT EXISTS (SELECT 1 FROM extractions WHERE pass_id = passes.id"
            " AND blob_id IS NOT NULL) ORDER BY id LIMIT ?",
            (now - KEPT_SECONDS, _TOGETHER),
        )
        return [ident for (ident,) in rows]

    def drop(self, ids: Collection[int]) -> None:
        """Let go of passes: tombstones of theirs name none then. Part of a transaction."""
        those = json.dumps(list(ids))
        for table, column in (
            ("extractions", "pass_id"), ("archives", "pass_id"), ("wishes", "rolls_back"),
        ):  # fmt: skip
            self._connection.execute(
                f"UPDATE {table} SET {column} = NULL"  # noqa: S608
                f" WHERE {column} IN (SELECT value FROM json_each(?))",
                (those,),
            )
        self._connection.execute(
            "DELETE FROM passes WHERE id IN (SELECT value FROM json_each(?))", (those,)
        )


def add_up(connection: sqlite3.Connection, pass_id: int | None, **counts: int) -> None:
    """Add to the counts of a pass."""
    row = connection.execute("SELECT facts FROM passes WHERE id = ?", (pass_id,)).fetchone()
    if row is None:
        return
    facts = json.loads(row[0])
    for name, count in counts.items():
        if count:
            facts[name] = facts.get(name, 0) + count
    connection.execute("UPDATE passes SET facts = ? WHERE id = ?", (json.dumps(facts), pass_id))


def drop_empty(connection: sqlite3.Connection, journal_id: int) -> None:
    """Forget the pass of a rewrite that did not happen, unless it did or may do something else."""
    row = connection.execute(
        "SELECT json_extract(note, '$.pass_id') FROM journal WHERE id = ?", (journal_id,)
    ).fetchone()
    if row is None or row[0] is None:
        return
    connection.execute(
        "DELETE FROM passes WHERE id = ?1 AND json_extract(facts, '$.sessions') IS NULL"
        " AND NOT EXISTS (SELECT 1 FROM events WHERE pass_id = ?1)"
        " AND NOT EXISTS (SELECT 1 FROM wishes WHERE rolls_back = ?1)"
        " AND NOT EXISTS (SELECT 1 FROM extractions WHERE pass_id = ?1)"
        " AND NOT EXISTS (SELECT 1 FROM journal"
        " WHERE id != ?2 AND json_extract(note, '$.pass_id') = ?1)",
        (row[0], journal_id),
    )


def _pass(row: tuple[Any, ...]) -> Pass:
    ident, at, command, facts = row
    return Pass(ident, at, command, json.loads(facts))
