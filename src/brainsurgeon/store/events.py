"""What happened, as rows that are written in the transaction of what they tell of.

    store.events.add(now, "expiry", session_id, {"values": 3}, store.passes.number())

Facts are ids, counts, sizes and reasons, never content.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from brainsurgeon.model.events import Event

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Collection, Mapping

    from brainsurgeon.model.events import EventKind

KEPT_SECONDS = 30 * 86_400.0
KEPT_ROWS = 100_000
_TOGETHER = 1000
"""Rows that are trimmed in one transaction."""
_EVENT = (
    "SELECT e.id, e.at, e.pass_id, e.session_id, a.name || '/' || s.name, e.kind, e.facts"
    " FROM events e LEFT JOIN sessions s ON s.id = e.session_id"
    " LEFT JOIN agents a ON a.id = s.agent_id"
)


class Events:
    """What happened, in the order in which it was committed."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def add(
        self, at: float, kind: EventKind, session_id: int | None, facts: Mapping[str, Any],
        pass_id: int | None,
    ) -> None:  # fmt: skip
        """Note that something happened; part of the transaction in which it does."""
        self._connection.execute(
            "INSERT INTO events (at, pass_id, session_id, kind, facts) VALUES (?, ?, ?, ?, ?)",
            (at, pass_id, session_id, kind, json.dumps(facts)),
        )

    def after(
        self, ident: int, *, kinds: Collection[str] = (), session_id: int | None = None,
        until: int | None = None,
    ) -> list[Event]:  # fmt: skip
        """Give the events behind one, up to another and with it, in their order."""
        wanted, values = ["e.id > ?"], [ident]
        if until is not None:
            wanted.append("e.id <= ?")
            values.append(until)
        if session_id is not None:
            wanted.append("e.session_id = ?")
            values.append(session_id)
        if kinds:
            wanted.append("e.kind IN (SELECT value FROM json_each(?))")
        rows = self._connection.execute(
            f"{_EVENT} WHERE {' AND '.join(wanted)} ORDER BY e.id",
            [*values, *([json.dumps(sorted(kinds))] if kinds else [])],
        )
        return [_event(row) for row in rows]

    def newest(self) -> int:
        """Give the id of the newest event; 0 without any."""
        return int(self._connection.execute("SELECT max(id) FROM events").fetchone()[0] or 0)

    def up_to(self, ident: int) -> Event | None:
        """Give the newest event that is no newer than one; None without any."""
        rows = self._connection.execute(
            f"{_EVENT} WHERE e.id <= ? ORDER BY e.id DESC LIMIT 1", (ident,)
        )
        return next(map(_event, rows), None)

    def before(self, moment: float) -> int:
        """Give the id behind which everything stands that happened at a moment or later."""
        row = self._connection.execute(
            "SELECT min(id) FROM events WHERE at >= ?", (moment,)
        ).fetchone()
        return self.newest() if row[0] is None else int(row[0]) - 1

    def old(self, now: float) -> list[int]:
        """Name some events that are kept no longer, the oldest first."""
        rows = self._connection.execute(
            "SELECT id FROM events WHERE id <= ? OR at < ? ORDER BY id LIMIT ?",
            (self.newest() - KEPT_ROWS, now - KEPT_SECONDS, _TOGETHER),
        )
        return [ident for (ident,) in rows]

    def drop(self, ids: Collection[int]) -> None:
        """Let go of events; part of a transaction."""
        self._connection.executemany("DELETE FROM events WHERE id = ?", ((one,) for one in ids))


def _event(row: tuple[Any, ...]) -> Event:
    ident, at, pass_id, session_id, session, kind, facts = row
    return Event(ident, at, pass_id, session_id, session, kind, json.loads(facts))
