"""Single facts: when the last runs were, and what they found of each root."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from brainsurgeon.store.extractions import printable

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable


def put(connection: sqlite3.Connection, key: str, value: Any) -> None:
    """Set one fact."""
    connection.execute(
        "INSERT INTO meta (key, value) VALUES (?, ?)"
        " ON CONFLICT (key) DO UPDATE SET value = excluded.value",
        (key, json.dumps(value)),
    )


def get(connection: sqlite3.Connection, key: str) -> Any:
    """Give one fact, or None."""
    row = connection.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
    return json.loads(row[0]) if row else None


def note_pass(connection: sqlite3.Connection, now: float, clean: Iterable[str]) -> None:
    """Note that a whole pass was made, and which roots it saw without error."""
    put(connection, "last_run_at", now)
    seen = get(connection, "roots_seen") or {}
    seen.update({printable(root): now for root in clean})
    put(connection, "roots_seen", seen)


def roots_seen(connection: sqlite3.Connection) -> dict[str, float]:
    """Give when each root (as text) was last seen whole and without error."""
    return dict(get(connection, "roots_seen") or {})


def count_open_wishes(connection: sqlite3.Connection) -> int:
    """Count what was asked for and still waits."""
    row = connection.execute("SELECT count(*) FROM wishes WHERE state = 'open'").fetchone()
    return int(row[0])
