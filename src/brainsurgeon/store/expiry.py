"""What retention asks of the store and does to it: marks, tombstones, bytes really gone.

Whatever it asks or does is bounded: it reads and writes a page, and others have their turn. A page
is whole by itself, so that whoever is stopped between two has done less, and nothing wrong.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from brainsurgeon.store.blobs import Blobs
from brainsurgeon.store.due import HELD, Due
from brainsurgeon.store.rows import Rows

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable

    from brainsurgeon.store.due import Age

ORPHAN_GRACE = 86_400.0
"""Seconds a value may wait for the row that names it (a rewrite shelves values first)."""
_COUNT = 1_000_000
"""Values that are counted together: nobody can commit meanwhile."""
_PAGES = 1024
"""Pages of the database that are given back together."""
_FEW = 200
"""Orphans that are deleted together, however large they are."""


class Expiry:
    """What retention asks of the store and does to it."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def due(self) -> Due:
        """Return what is to hold the values that a run has to decide about."""
        return Due(self._connection)

    def count_held(self) -> int:
        """Count the values that are held."""
        newest = self._one("SELECT coalesce(max(blob_id), 0) FROM extractions")
        named = sum(
            self._one(
                "SELECT count(*) FROM extractions WHERE blob_id > ? AND blob_id <= ?",
                first, first + _COUNT,
            )
            for first in range(0, newest, _COUNT)
        )  # fmt: skip
        under_way = self._one(
            "SELECT count(*) FROM extractions WHERE journal_id IS NOT NULL AND blob_id IS NOT NULL"
        )
        return named - under_way

    def roots_held(self) -> set[str]:
        """Give the roots below which the sessions were last seen of which values are held."""
        rows = self._connection.execute(
            "SELECT DISTINCT s.root FROM ages a JOIN sessions s ON s.id = a.session_id"  # noqa: S608
            f" WHERE EXISTS (SELECT 1 FROM extractions e WHERE e.session_id = s.id AND {HELD})"
        )
        return {os.fsdecode(root) for (root,) in rows}

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

    def delete(self, graves: Iterable[tuple[int, str]], now: float) -> tuple[list[int], int]:
        """Leave tombstones of extractions, and delete the values that nothing names any more.

        Part of the caller's transaction; returns which extractions went, and how many values. Those
        are none while a rewrite is open that may be about to put one back.
        """
        gone, values, entries = [], set(), set()
        for row, why in graves if self._may_delete() else ():
            named = self._connection.execute(
                "SELECT blob_id, session_id, entry_id FROM extractions"
                " WHERE id = ? AND blob_id IS NOT NULL"
                " AND marked_at IS NOT NULL",  # somebody may have asked for it just now
                (row,),
            ).fetchone()
            if named:
                self._connection.execute(
                    "UPDATE extractions SET state = 'expired', expired_at = ?, expired_why = ?,"
                    " blob_id = NULL WHERE id = ?",
                    (now, why, row),
                )
                gone.append(row)
                values.add(named[0])
                entries.add(named[1:])
        Rows(self._connection).release(entries)
        return gone, Blobs(self._connection).release(sorted(values))

    def orphans(self, now: float, after: int = 0) -> list[int]:
        """Name a page of values that rewrites shelved which never happened, those above an id."""
        return Blobs(self._connection).orphans(now - ORPHAN_GRACE, after, _FEW)

    def sweep(self, orphans: Iterable[int], now: float) -> int:
        """Delete orphans, but not while a rewrite is open; return how many values went.

        Part of the caller's transaction.
        """
        if not self._may_delete():
            return 0
        return Blobs(self._connection).sweep(orphans, now - ORPHAN_GRACE)

    def release(self, entries: Iterable[tuple[int, str]]) -> None:
        """Let go of the columns of entries of which nothing is held, but not during a rewrite.

        Part of the caller's transaction.
        """
        if self._may_delete():
            Rows(self._connection).release(entries)

    def note_ages(self, found: Iterable[Age], now: float) -> None:
        """Note how old the values of sessions are of which all were looked at just now.

        One of which something was added meanwhile is left as it is. Part of the caller's
        transaction.
        """
        for session, newest, extracted, sighted in found:
            self._connection.execute(
                "DELETE FROM ages WHERE session_id = ?1 AND NOT EXISTS (SELECT 1 FROM extractions"
                " WHERE session_id = ?1 AND blob_id IS NOT NULL)",
                (session,),
            )
            self._connection.execute(
                "UPDATE ages SET extracted_at = ?, sighted_at = ? WHERE session_id = ?"
                " AND ? = (SELECT id FROM extractions WHERE session_id = ages.session_id"
                " AND blob_id IS NOT NULL ORDER BY id DESC LIMIT 1)",
                (min(extracted, now), min(sighted, now), session, newest),
            )

    def shrink(self) -> bool:
        """Give freed pages back to the filesystem, some; tell whether there are more.

        `secure_delete` has zeroed them.
        """
        # As a script: `execute` would step once, and each step frees a single page.
        before = self._one("PRAGMA freelist_count")
        self._connection.executescript(f"PRAGMA incremental_vacuum({_PAGES})")
        return 0 < self._one("PRAGMA freelist_count") < before

    def count_marked(self) -> int:
        """Count the values that a later run will let go."""
        return self._one(  # by the index of these alone, as its first column is asked for
            "SELECT count(*) FROM extractions"
            " WHERE session_id > 0 AND marked_at IS NOT NULL AND blob_id IS NOT NULL"
        )

    def _may_delete(self) -> bool:
        return not self._one("SELECT count(*) FROM journal")

    def _one(self, statement: str, *values: int) -> int:
        return int(self._connection.execute(statement, values).fetchone()[0])
