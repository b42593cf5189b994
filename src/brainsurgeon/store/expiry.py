"""Find and delete expired values, leave tombstones, and return the space to the filesystem.

There may be millions of candidates. So they are in a temporary table, which SQLite keeps on disk if
it is large. They are read in pages: a long read would delay the commits of other processes.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress

from brainsurgeon.model.records import Held
from brainsurgeon.store.database import Table
from brainsurgeon.store.extractions import Blobs
from brainsurgeon.store.sessions import Rows

PAGE = 1000  # largest number of values in a transaction; other processes wait for it
LARGE = 16 << 20  # largest uncompressed size of these values, unless there is only one
_ROWS = 5000  # rows that one statement reads
# KiB of SQLite's cache during deletions: enough for the changes of a transaction. With the default
# of 2,000, SQLite would write changes early, and lock out all other processes until the commit.
_CACHE, _USUAL_CACHE = 16_384, 2000
_PAGES = 1024  # database pages that one statement returns to the filesystem

# The value of an extraction `e` is stored, and its rewrite is complete.
_STORED = "e.blob_id IS NOT NULL AND e.journal_id IS NULL"
# A request or an unfinished rewrite may restore an extraction `e`.
_NEEDED = """
    EXISTS (SELECT 1 FROM requests w WHERE w.action = 'restore'
            AND coalesce(w.entry_id, e.entry_id) = e.entry_id
            AND (w.session_id = e.session_id OR w.session_id IN
                (SELECT session_id FROM placements WHERE extraction_id = e.id)))
    OR EXISTS (SELECT 1 FROM journal j WHERE j.session_id = e.session_id OR j.session_id IN
                (SELECT session_id FROM placements WHERE extraction_id = e.id))"""


# The id and root of a session, its last change if it exists, and since when it is missing if not.
# Both times are None if this is unknown.
Sight = tuple[int, str, float | None, float | None]


class Expiry(Table):
    @contextmanager
    def candidates(self) -> Iterator[Candidates]:
        drop = "DROP TABLE IF EXISTS temp.due; DROP TABLE IF EXISTS temp.sight;"
        self._connection.executescript(
            f"{drop} CREATE TEMP TABLE due (id INTEGER PRIMARY KEY, name TEXT);"
            "CREATE TEMP TABLE sight (session_id INTEGER PRIMARY KEY, root TEXT NOT NULL,"
            " activity REAL, missed_at REAL);"
        )
        try:
            yield Candidates(self._connection)
        finally:
            with suppress(sqlite3.Error):  # other statements report a failing store
                self._connection.executescript(f"PRAGMA cache_size = {-_USUAL_CACHE}; {drop}")

    def count_held(self) -> int:
        return int(self._first(f"SELECT count(*) FROM extractions e WHERE {_STORED}"))  # noqa: S608

    def missing(self, missed_before: float, held_back: Iterable[str]) -> tuple[int, float] | None:
        """Count the values whose last placeholder went missing before `missed_before`.

        Return the number and the earliest such time, or None. Values that are still needed, or have
        a placeholder below a root in `held_back`, are not counted.
        """
        count, first = self._execute(
            "SELECT count(*), min(missed) FROM"  # noqa: S608
            " (SELECT max(iif(CAST(s.root AS TEXT) IN (SELECT value FROM json_each(?2)), 9e999,"
            " coalesce(p.missed_at, s.missed_at, 9e999))) AS missed FROM extractions e"
            " JOIN placements p ON p.extraction_id = e.id JOIN sessions s ON s.id = p.session_id"
            f" WHERE {_STORED} AND NOT ({_NEEDED}) AND e.id IN"
            " (SELECT extraction_id FROM placements WHERE missed_at <= ?1"
            " UNION SELECT extraction_id FROM placements WHERE session_id IN"
            " (SELECT id FROM sessions WHERE missed_at <= ?1))"
            " GROUP BY e.id) WHERE missed <= ?1",
            (missed_before, json.dumps(list(held_back))),
        ).fetchone()
        return (count, first) if count else None

    def delete(self, expired: Iterable[tuple[int, str]], now: float) -> int:
        """Turn extractions into tombstones; return how many rows of `blobs` were deleted."""
        self._execute(f"PRAGMA cache_size = {-_CACHE}")
        values, entries = set(), set()
        for ident, why in expired:
            blob, *entry = self._execute(
                "SELECT blob_id, session_id, entry_id FROM extractions WHERE id = ?", (ident,)
            ).fetchone()
            self._execute(
                "UPDATE extractions SET expired_at = ?, expired_why = ?, blob_id = NULL"
                " WHERE id = ?",
                (now, why, ident),
            )
            values.add(blob)
            entries.add(tuple(entry))
        Rows(self._connection).release(entries)
        return Blobs(self._connection).release(sorted(values))

    def shrink(self) -> bool:
        """Return some free pages to the filesystem. Return True if there are more."""
        before = self._first("PRAGMA freelist_count")
        # `execute` would execute one step of the statement, which frees one page.
        self._connection.executescript(f"PRAGMA incremental_vacuum({_PAGES})")
        return bool(0 < self._first("PRAGMA freelist_count") < before)


class Candidates(Table):
    def add_sessions(self, sights: Iterable[Sight]) -> None:
        self._executemany("INSERT INTO temp.sight VALUES (?, ?, ?, ?)", sights)

    def roots(self) -> list[str]:
        return self._column("SELECT DISTINCT root FROM temp.sight")

    def gather(self, now: float, retention: float | None, standing: float | None) -> None:
        """Add every value that may have expired.

        A value is kept for `standing` seconds after the last change of a session with its
        placeholder, and for `retention` seconds without a placeholder. None means for ever.
        """
        if retention is not None:
            self._add(
                "SELECT unplaced_at, id FROM extractions"
                " WHERE unplaced_at <= ? AND blob_id IS NOT NULL AND (unplaced_at, id) > (?, ?)"
                " ORDER BY unplaced_at, id LIMIT ?", now - retention,
            )  # fmt: skip
        if standing is not None:
            self._add(
                "SELECT p.session_id, p.extraction_id FROM placements p"
                " CROSS JOIN temp.sight s USING (session_id)"
                " WHERE min(coalesce(p.missed_at, 9e999), coalesce(s.activity, s.missed_at, 9e999))"
                " <= ? AND (p.session_id, p.extraction_id) > (?, ?)"
                " ORDER BY p.session_id, p.extraction_id LIMIT ?", now - standing,
            )  # fmt: skip
        self._execute("CREATE INDEX temp.due_name ON due (name)")

    def _add(self, statement: str, until: float) -> None:
        """Add the values that a statement finds and that were extracted before `until`.

        The last column of the statement is the id of the extraction. Its parameters are `until`,
        the last row of the previous page, and the number of rows in a page.
        """
        last: tuple[float, int] = (-1, -1)
        while rows := self._execute(statement, (until, *last, _ROWS)).fetchall():
            self._execute(
                "INSERT OR IGNORE INTO temp.due"  # noqa: S608
                " SELECT e.id, iif(e.replacement IS NULL, e.name, NULL)"
                " FROM json_each(?) j CROSS JOIN extractions e ON e.id = j.value"
                f" WHERE {_STORED} AND e.extracted_at <= ?",
                (json.dumps([row[-1] for row in rows]), until),
            )
            last = rows[-1]

    def remove(self, names: Iterable[str]) -> None:
        listed = list(names)
        for at in range(0, len(listed), PAGE):
            self._execute(
                "DELETE FROM temp.due WHERE name IN (SELECT value FROM json_each(?))",
                (json.dumps(listed[at : at + PAGE]),),
            )

    def mark_unseen(self, root: str) -> None:
        self._execute(
            "UPDATE temp.sight SET activity = NULL, missed_at = NULL WHERE root = ?", (root,)
        )

    def page(self, after: int) -> list[Held]:
        page: list[Held] = []
        total = 0
        for row in self._execute(
            "SELECT e.id, e.session_id, e.size, e.extracted_at, e.restored_at, e.unplaced_at,"  # noqa: S608
            " max(iif(p.missed_at IS NULL, s.activity, NULL)),"
            " max(coalesce(p.missed_at, s.missed_at)),"
            " max(p.session_id IS NOT NULL AND s.activity IS NULL AND s.missed_at IS NULL)"
            " OR (own.activity IS NULL AND own.missed_at IS NULL)"
            " FROM temp.due d CROSS JOIN extractions e ON e.id = d.id"
            " LEFT JOIN placements p ON p.extraction_id = e.id"
            " LEFT JOIN temp.sight s ON s.session_id = p.session_id"
            " LEFT JOIN temp.sight own ON own.session_id = e.session_id"
            f" WHERE d.id > ? AND {_STORED} AND NOT ({_NEEDED})"
            " GROUP BY d.id ORDER BY d.id LIMIT ?",
            (after, PAGE),
        ):
            held = Held(*(*row[:-1], bool(row[-1])))
            total += held.size
            if page and total > LARGE:
                break
            page.append(held)
        return page

    def __iter__(self) -> Iterator[Held]:
        last = 0
        while page := self.page(last):
            yield from page
            last = page[-1].id
