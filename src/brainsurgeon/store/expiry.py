"""What retention asks of the store and does to it: marks, tombstones, bytes really gone."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from brainsurgeon.model.records import HeldValue
from brainsurgeon.store.blobs import Blobs
from brainsurgeon.store.rows import Rows

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable

ORPHAN_GRACE = 86_400.0
"""Seconds a value may wait for the row that names it (a rewrite shelves values first)."""


def _held(row: tuple[Any, ...]) -> HeldValue:
    values = list(row)
    values[8:11] = (os.fsdecode(place).partition("\0")[0] for place in row[8:11])
    values[11] = bool(row[11])
    return HeldValue(*values)


class Expiry:
    """What retention asks of the store and does to it."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def held(self) -> list[HeldValue]:
        """Give every extraction whose value is still held."""
        rows = self._connection.execute(
            "SELECT e.id, e.session_id, e.stub, e.size, e.extracted_at, e.sighted_at,"
            " e.restored_at, e.marked_at, s.root, s.path, a.directory, e.replacement IS NOT NULL"
            " FROM extractions e JOIN sessions s ON s.id = e.session_id"
            " JOIN agents a ON a.id = s.agent_id"
            " WHERE e.blob_id IS NOT NULL AND e.state IN ('standing', 'restored')"
        )
        return [_held(row) for row in rows]

    def mark(self, ids: Iterable[int], now: float | None) -> None:
        """Mark extractions as expired, or with None as not expired any more."""
        self._connection.executemany(
            "UPDATE extractions SET marked_at = ? WHERE id = ?", ((now, row) for row in ids)
        )

    def unmark(self, session_id: int, entry_id: str | None) -> None:
        """Unmark the values of an entry, without `entry_id` those of all: somebody wants them."""
        self._connection.execute(
            "UPDATE extractions SET marked_at = NULL"
            " WHERE session_id = ? AND (? IS NULL OR entry_id = ?)",
            (session_id, entry_id, entry_id),
        )

    def delete(
        self,
        graves: Iterable[tuple[int, str]],
        now: float,
        *,
        orphans: bool,
    ) -> int | None:
        """Leave tombstones of extractions, and delete the values that nothing names any more.

        Part of the caller's transaction; returns how many values went. None means that nothing was
        deleted, since a rewrite is open that may be about to put one of them back. `orphans` of
        rewrites that never happened go too, unless the clock is not to be believed.
        """
        if self._connection.execute("SELECT count(*) FROM journal").fetchone()[0]:
            return None
        self._connection.executemany(
            "UPDATE extractions SET state = 'expired', expired_at = ?, expired_why = ?"
            " WHERE id = ? AND marked_at IS NOT NULL",  # somebody may have asked for it just now
            ((now, why, row) for row, why in graves),
        )
        buried = self._connection.execute(
            "SELECT DISTINCT blob_id FROM extractions"
            " WHERE state = 'expired' AND blob_id IS NOT NULL"
        ).fetchall()
        self._connection.execute("UPDATE extractions SET blob_id = NULL WHERE state = 'expired'")
        Rows(self._connection).release()
        blobs = Blobs(self._connection)
        swept = blobs.sweep(now - ORPHAN_GRACE) if orphans else 0
        return blobs.release(buried) + swept

    def shrink(self) -> None:
        """Give the freed pages back to the filesystem; `secure_delete` has zeroed them."""
        # As a script: `execute` would step once, and each step frees a single page.
        self._connection.executescript("PRAGMA incremental_vacuum")

    def count_marked(self) -> int:
        """Count the values that a later run will let go."""
        row = self._connection.execute(
            "SELECT count(*) FROM extractions WHERE marked_at IS NOT NULL AND blob_id IS NOT NULL"
        ).fetchone()
        return int(row[0])
