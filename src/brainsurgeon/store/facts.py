"""Single facts: when the last runs were, and what they found.

A run that found everything as the one before did changes nothing here but the moment. That goes
into a file of its own which nobody waits for: a daemon has nothing to sync while nothing happens.
Where a power cut takes it, the moment is an older one.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import sqlite3


class Facts:
    """Single facts, as JSON."""

    def __init__(self, connection: sqlite3.Connection, directory: str) -> None:
        self._connection = connection
        self._same_since = os.path.join(directory, "last_run")

    def put(self, key: str, value: Any) -> None:
        self._connection.execute(
            "INSERT INTO meta (key, value) VALUES (?, ?)"
            " ON CONFLICT (key) DO UPDATE SET value = excluded.value",
            (key, json.dumps(value)),
        )

    def get(self, key: str) -> Any:
        row = self._connection.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
        return json.loads(row[0]) if row else None

    def note_run(self, now: float, *, enabled: bool = True) -> None:
        """Note that a whole run was made."""
        noted, latest = self.get("last_run_at"), self.last_run_at()
        if latest and latest <= now and self.get("enabled") is enabled:
            with suppress(OSError):
                self._note_same(noted, now)
                return
        self.put("last_run_at", now)
        self.put("enabled", enabled)

    def last_run_at(self) -> float | None:
        """Return when the last whole run was made, or None."""
        noted = self.get("last_run_at")
        return self._same_until(noted) or noted

    def _note_same(self, noted: float, now: float) -> None:
        """Write down that a run found everything as the one that was noted did."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(self._same_since, flags, 0o600)
        try:
            os.write(descriptor, json.dumps([noted, now]).encode())
        finally:
            os.close(descriptor)

    def _same_until(self, noted: float | None) -> float | None:
        """Return when a run last found everything as the one that was noted did, if one did."""
        try:
            with open(self._same_since, "rb") as file:
                since, until = json.load(file)
        except (OSError, ValueError, TypeError):
            return None
        return float(until) if since == noted else None
