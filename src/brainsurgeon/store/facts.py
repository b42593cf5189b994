"""Single facts: when the last runs were, and what they found of each root."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from brainsurgeon.store.texts import path_text

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable


class Facts:
    """Single facts, as JSON."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def put(self, key: str, value: Any) -> None:
        """Set one fact."""
        self._connection.execute(
            "INSERT INTO meta (key, value) VALUES (?, ?)"
            " ON CONFLICT (key) DO UPDATE SET value = excluded.value",
            (key, json.dumps(value)),
        )

    def get(self, key: str) -> Any:
        """Give one fact, or None."""
        row = self._connection.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
        return json.loads(row[0]) if row else None

    def note_pass(self, now: float, clean: Iterable[str], *, enabled: bool = True) -> None:
        """Note that a whole pass was made, and which roots it saw without error."""
        self.put("last_run_at", now)
        self.put("enabled", enabled)
        seen = self.get("roots_seen") or {}
        seen.update({path_text(root): now for root in clean})
        self.put("roots_seen", seen)

    def roots_seen(self) -> dict[str, float]:
        """Give when each root (as text) was last seen whole and without error."""
        return dict(self.get("roots_seen") or {})
