"""Find and delete expired values, leave tombstones, and return the space to the filesystem.

There may be millions of candidates. So they are in a temporary table, which SQLite keeps on disk if
it is large. They are read in pages: a long read would delay the commits of other processes.
"""

from __future__ import annotations

import json
import math
import os
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress

from msgspec.structs import replace

from brainsurgeon.model.records import Held
from brainsurgeon.store.database import Table
from brainsurgeon.store.extractions import Blobs
from brainsurgeon.store.schema import ADDED

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


# The id and root of a session, whether it is there, and since when it is missing if not. If it is
# neither, that is unknown.
Sight = tuple[int, str, bool, float | None]
_TABLES = ("due", "sight", "hit")
_DROP = "".join(f"DROP TABLE IF EXISTS temp.{table};" for table in _TABLES)


class Expiry(Table):
    @contextmanager
    def candidates(self, *, dry_run: bool, searching: bool = True) -> Iterator[Candidates]:
        """Yield the candidates of a run. With `dry_run`, changes of a search are temporary."""
        self._connection.executescript(
            f"{_DROP} CREATE TEMP TABLE due (id INTEGER PRIMARY KEY, name TEXT);"
            "CREATE TEMP TABLE sight (session_id INTEGER PRIMARY KEY, root TEXT NOT NULL,"
            " activity REAL, missed_at REAL);"
            "CREATE TEMP TABLE hit (name TEXT PRIMARY KEY, activity REAL NOT NULL) WITHOUT ROWID;"
        )
        drop = ""
        for name in ("searches", "vanished") if dry_run and searching else ():
            table = ADDED[name].replace("TABLE", "TABLE IF NOT EXISTS", 1)
            kept = self._first("SELECT count(*) FROM main.sqlite_master WHERE name = ?", name)
            self._connection.execute(f"CREATE TEMP {table}")
            if kept:
                self._execute(f"INSERT INTO temp.{name} SELECT * FROM main.{name}")  # noqa: S608
            drop += f"{'DROP TABLE' if kept else 'DELETE FROM'} temp.{name};"
        try:
            yield Candidates(self._connection)
        finally:
            with suppress(sqlite3.Error):  # other statements report a failing store
                self._connection.executescript(
                    f"PRAGMA cache_size = {-_USUAL_CACHE}; {_DROP} {drop}"
                )

    def count_held(self) -> int:
        return int(self._first(f"SELECT count(*) FROM extractions e WHERE {_STORED}"))  # noqa: S608

    def delete(self, expired: Iterable[tuple[int, str]], now: float) -> int:
        """Turn extractions into tombstones; return how many rows of `blobs` were deleted."""
        self._execute(f"PRAGMA cache_size = {-_CACHE}")
        values = set()
        for ident, why in expired:
            values.add(self._first("SELECT blob_id FROM extractions WHERE id = ?", ident))
            self._execute(
                "UPDATE extractions SET expired_at = ?, expired_why = ?, blob_id = NULL"
                " WHERE id = ?",
                (now, why, ident),
            )
        return Blobs(self._connection).release(sorted(values))

    def shrink(self) -> bool:
        """Return some free pages to the filesystem. Return True if there are more."""
        before = self._first("PRAGMA freelist_count")
        # `execute` would execute one step of the statement, which frees one page.
        self._connection.executescript(f"PRAGMA incremental_vacuum({_PAGES})")
        return bool(0 < self._first("PRAGMA freelist_count") < before)


class Candidates(Table):
    def add_sessions(self, sights: Iterable[Sight]) -> None:
        """Add sessions. Those that are there and were not searched count as unknown."""
        self._executemany(
            "INSERT INTO temp.sight VALUES (?1, ?2, iif(?3, (SELECT q.active_at FROM sessions s"
            " JOIN searches q ON q.path = s.path WHERE s.id = ?1), NULL), ?4)",
            sights,
        )

    def roots(self) -> list[str]:
        return self._column("SELECT DISTINCT root FROM temp.sight")

    def gather(
        self, unplaced_until: float | None, missed_until: float | None, active_until: float | None
    ) -> bool:
        """Add every value that may have expired, and return whether there is any.

        These are values in no session, values of missing sessions or entries, and values in
        sessions, since such a time (counted) or earlier.
        """
        if unplaced_until is not None:
            self._add(
                "SELECT unplaced_at, id FROM extractions"
                " WHERE unplaced_at <= ? AND blob_id IS NOT NULL AND (unplaced_at, id) > (?, ?)"
                " ORDER BY unplaced_at, id LIMIT ?", unplaced_until,
            )  # fmt: skip
        for since, until in (("missed_at", missed_until), ("activity", active_until)):
            if until is not None:
                self._add(
                    "SELECT s.session_id, p.extraction_id FROM temp.sight s"  # noqa: S608
                    " CROSS JOIN placements p ON p.session_id = s.session_id"
                    f" WHERE s.{since} <= ? AND (s.session_id, p.extraction_id) > (?, ?)"
                    " ORDER BY s.session_id, p.extraction_id LIMIT ?", until,
                )  # fmt: skip
        if missed_until is not None:
            self._add(
                "SELECT missed_at, session_id, extraction_id FROM placements WHERE missed_at <= ?"
                " AND (missed_at, session_id, extraction_id) > (?, ?, ?)"
                " ORDER BY missed_at, session_id, extraction_id LIMIT ?", missed_until,
            )  # fmt: skip
            self._add(
                "SELECT v.rowid, e.id FROM vanished v JOIN extractions e ON e.name = v.name"
                " WHERE v.missed_at <= ? AND (v.rowid, e.id) > (?, ?)"
                " ORDER BY v.rowid, e.id LIMIT ?", missed_until,
            )  # fmt: skip
        if active_until is not None:  # it may be in an archive, whose session is missing
            self._add(
                "SELECT q.id, e.id FROM searches q, json_each(q.names) j"
                " JOIN extractions e ON e.name = j.value"
                " WHERE q.active_at <= ? AND (q.id, e.id) > (?, ?) ORDER BY q.id, e.id LIMIT ?",
                active_until,
            )
        if not self._first("SELECT EXISTS (SELECT 1 FROM temp.due)"):
            return False
        self._execute("CREATE INDEX temp.due_name ON due (name)")
        self._execute(
            "INSERT INTO temp.hit SELECT j.value, max(q.active_at)"
            " FROM searches q, json_each(q.names) j"
            " WHERE j.value IN (SELECT name FROM temp.due WHERE name IS NOT NULL) GROUP BY 1"
        )
        return True

    def _add(self, statement: str, until: float) -> None:
        """Add the values that a statement finds and that can be deleted.

        The last column of the statement is the id of the extraction. Its parameters are `until`,
        the last row of the previous page, and the number of rows in a page.
        """
        last: tuple[float, ...] = (-math.inf,) * (statement.count("?") - 2)
        while rows := self._execute(statement, (until, *last, _ROWS)).fetchall():
            self._execute(
                "INSERT OR IGNORE INTO temp.due"  # noqa: S608
                " SELECT e.id, iif(e.replacement IS NULL, e.name, NULL)"
                " FROM json_each(?) j CROSS JOIN extractions e ON e.id = j.value"
                f" WHERE {_STORED}",
                (json.dumps([row[-1] for row in rows]),),
            )
            last = rows[-1]

    def remove(self, names: Iterable[str], *, unless_hit: bool = False) -> None:
        listed = list(names)
        spared = " AND name NOT IN (SELECT name FROM temp.hit)" if unless_hit else ""
        for at in range(0, len(listed), PAGE):
            self._execute(
                f"DELETE FROM temp.due WHERE name IN (SELECT value FROM json_each(?)){spared}",  # noqa: S608
                (json.dumps(listed[at : at + PAGE]),),
            )

    def hit_paths(self) -> list[str]:
        """Return where the placeholders of these values were found."""
        paths = self._column(
            "SELECT path FROM searches q WHERE EXISTS"
            " (SELECT 1 FROM json_each(q.names) WHERE value IN (SELECT name FROM temp.due))"
        )
        return [os.fsdecode(path) for path in paths]

    def names_at(self, path: str) -> list[str]:
        return self._column(
            "SELECT j.value FROM searches q, json_each(q.names) j WHERE q.path = ?",
            os.fsencode(path),
        )

    def sessions(self) -> list[int]:
        """Return the sessions that are there, and concern any of these values."""
        return self._column(
            "SELECT session_id FROM temp.sight WHERE activity IS NOT NULL AND (session_id IN"
            " (SELECT e.session_id FROM temp.due d JOIN extractions e ON e.id = d.id)"
            " OR session_id IN (SELECT p.session_id FROM temp.due d"
            " JOIN placements p ON p.extraction_id = d.id))"
        )

    def mark_unseen(self, session_id: int) -> None:
        self._execute(
            "UPDATE temp.sight SET activity = NULL, missed_at = NULL WHERE session_id = ?",
            (session_id,),
        )

    def page(self, after: int) -> list[tuple[Held, list[tuple[str, float]]]]:
        """Return values, each with the roots and marks of what it is missed in."""
        page: list[tuple[Held, list[tuple[str, float]]]] = []
        total = 0
        for *row, unseen, missed, root, at in self._execute(
            "SELECT e.id, e.session_id, e.size, e.unplaced_at,"  # noqa: S608
            " iif(d.name IS NULL, max(iif(p.missed_at IS NULL, s.activity, NULL)), h.activity),"
            # The tables say that it is in a session, but the search did not find it there.
            " max(d.name IS NOT NULL AND h.name IS NULL AND p.session_id IS NOT NULL"
            " AND p.missed_at IS NULL AND s.activity IS NOT NULL)"
            " OR max(p.session_id IS NOT NULL AND s.activity IS NULL AND s.missed_at IS NULL)"
            " OR (own.activity IS NULL AND own.missed_at IS NULL),"
            " json_group_array(json_array(s.root, coalesce(p.missed_at, s.missed_at))),"
            " v.root, v.missed_at"
            " FROM temp.due d CROSS JOIN extractions e ON e.id = d.id"
            " LEFT JOIN temp.hit h ON h.name = d.name"
            " LEFT JOIN vanished v ON v.name = d.name"
            " LEFT JOIN placements p ON p.extraction_id = e.id"
            " LEFT JOIN temp.sight s ON s.session_id = p.session_id"
            " LEFT JOIN temp.sight own ON own.session_id = e.session_id"
            f" WHERE d.id > ? AND {_STORED} AND NOT ({_NEEDED})"
            " GROUP BY d.id ORDER BY d.id LIMIT ?",
            (after, PAGE),
        ):
            held = replace(Held(*row), unseen=bool(unseen))
            total += held.size
            if page and total > LARGE:
                break
            marks = [*json.loads(missed), (root, at)]
            page.append((held, [(root, at) for root, at in marks if at is not None]))
        return page

    def __iter__(self) -> Iterator[tuple[Held, list[tuple[str, float]]]]:
        last = 0
        while page := self.page(last):
            yield from page
            last = page[-1][0].id
