"""What retention asks of the store and does to it: candidates, tombstones, bytes really gone.

A run may have to decide about millions of values. So the candidates lie in a temporary table,
which SQLite spools to disk where it is large, and everything is read and written a page at a time:
whoever reads holds a lock that makes a commit of others wait. A page is whole by itself.
"""

from __future__ import annotations

import json
import sqlite3
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple, Self

from brainsurgeon.model.records import Held
from brainsurgeon.store.blobs import Blobs
from brainsurgeon.store.rows import Rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

# Values that are decided and deleted together: another writer waits for no more than these.
PAGE = 1000
# Bytes of values, as they were, that are deleted together, unless it is a single one.
LARGE = 16 << 20
# Rows that are read together: others may write meanwhile, but wait to commit.
_LOOK = 5000
# KiB of the database in memory: what a page of deletions touches fits, or else SQLite would spill
# it, and keep everybody out until the end.
_CACHE = 16_384
# Pages of the database that are given back together.
_PAGES = 1024

_HELD = "e.blob_id IS NOT NULL AND e.journal_id IS NULL"
# What is true of an extraction `e` that somebody asked for, or that a rewrite may be about to put
# back: one that is under way in a session where it stands.
_WANTED = """
    EXISTS (SELECT 1 FROM requests w WHERE w.state = 'open' AND w.action = 'restore'
            AND w.entry_id IN ('', e.entry_id) AND (w.session_id = e.session_id OR w.session_id IN
                (SELECT session_id FROM placements WHERE extraction_id = e.id)))
    OR EXISTS (SELECT 1 FROM journal j WHERE j.session_id = e.session_id OR j.session_id IN
                (SELECT session_id FROM placements WHERE extraction_id = e.id))"""


class Sight(NamedTuple):
    """What a run found of one session, in seconds since 1970 (UTC).

    `activity` is when it last changed, `missed_at` when it was first missed. Neither is known of
    one that cannot be seen in this run.
    """

    session_id: int
    root: str
    activity: float | None
    missed_at: float | None


class Expiry:
    """What retention asks of the store and does to it."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def candidates(self) -> Candidates:
        """Return what is to hold the values that a run has to decide about."""
        return Candidates(self._connection)

    def count_held(self) -> int:
        (count,) = self._connection.execute(
            f"SELECT count(*) FROM extractions e WHERE {_HELD}"  # noqa: S608
        ).fetchone()
        return int(count)

    def out_of_sight(
        self, missed_before: float, held_back: Iterable[str]
    ) -> tuple[int, float] | None:
        """Count the held values that were last in sight before a moment, in all their sessions.

        Those below a root that is `held_back` are kept, and so are those that somebody asked for.
        Return also when the first of them was missed; None where there is none. Times are seconds
        since 1970 (UTC).
        """
        count, first = self._connection.execute(
            "SELECT count(*), min(missed) FROM"  # noqa: S608
            " (SELECT max(iif(CAST(s.root AS TEXT) IN (SELECT value FROM json_each(?2)), 9e999,"
            " coalesce(p.missed_at, s.missed_at, 9e999))) AS missed FROM extractions e"
            " JOIN placements p ON p.extraction_id = e.id JOIN sessions s ON s.id = p.session_id"
            f" WHERE {_HELD} AND NOT ({_WANTED}) AND e.id IN"
            " (SELECT extraction_id FROM placements WHERE missed_at <= ?1"
            " UNION SELECT extraction_id FROM placements WHERE session_id IN"
            " (SELECT id FROM sessions WHERE missed_at <= ?1))"
            " GROUP BY e.id) WHERE missed <= ?1",
            (missed_before, json.dumps(list(held_back))),
        ).fetchone()
        return (count, first) if count else None

    def delete(self, expired: Iterable[tuple[int, str]], now: float) -> int:
        """Leave tombstones of extractions, each with the reason; return how many values went.

        A value goes with the last extraction that names it. Part of the caller's transaction.
        """
        values, entries = set(), set()
        for ident, why in expired:
            blob, *entry = self._connection.execute(
                "SELECT blob_id, session_id, entry_id FROM extractions WHERE id = ?", (ident,)
            ).fetchone()
            self._connection.execute(
                "UPDATE extractions SET expired_at = ?, expired_why = ?, blob_id = NULL"
                " WHERE id = ?",
                (now, why, ident),
            )
            values.add(blob)
            entries.add(tuple(entry))
        Rows(self._connection).release(entries)
        return Blobs(self._connection).release(sorted(values))

    def shrink(self) -> bool:
        """Return freed pages back to the filesystem, some; return whether there are more.

        `secure_delete` has zeroed them.
        """
        # As a script: `execute` would step once, and each step frees a single page.
        before = self._free_pages()
        self._connection.executescript(f"PRAGMA incremental_vacuum({_PAGES})")
        return 0 < self._free_pages() < before

    def _free_pages(self) -> int:
        return int(self._connection.execute("PRAGMA freelist_count").fetchone()[0])


class Candidates:
    """The values that one retention run has to decide about; as a context it cleans up."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._cache = 0

    def __enter__(self) -> Self:
        (self._cache,) = self._connection.execute("PRAGMA cache_size").fetchone()
        self._connection.execute(f"PRAGMA cache_size = {-_CACHE}")
        self._connection.executescript(
            "DROP TABLE IF EXISTS temp.due; DROP TABLE IF EXISTS temp.sight;"
            "CREATE TEMP TABLE due (id INTEGER PRIMARY KEY, name TEXT);"
            "CREATE TEMP TABLE sight (session_id INTEGER PRIMARY KEY, root TEXT NOT NULL,"
            " activity REAL, missed_at REAL);"
        )
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(sqlite3.Error):  # a store in trouble says so by itself
            self._connection.execute(f"PRAGMA cache_size = {self._cache}")
            self._connection.executescript("DROP TABLE temp.due; DROP TABLE temp.sight;")

    def gather(
        self, sights: Iterable[Sight], now: float, retention: float | None, standing: float | None
    ) -> bool:
        """Take up every value that can have expired by what a run found; return whether any has.

        `retention` and `standing` are the seconds for which values are kept whose placeholder
        stands in no session, or in one; None is for ever.
        """
        self._connection.executemany("INSERT INTO temp.sight VALUES (?, ?, ?, ?)", sights)
        if retention is not None:
            self._take_unplaced(now - retention)
        if standing is not None:
            self._take_missed(now - standing)
            for session in self._silent(now - standing):
                self._take_session(session)
        self._connection.execute("CREATE INDEX temp.due_name ON due (name)")
        found = self._connection.execute("SELECT 1 FROM temp.due LIMIT 1").fetchone()
        return found is not None

    def _take_unplaced(self, until: float) -> None:
        at = (-1.0, -1)
        while rows := self._connection.execute(
            "SELECT unplaced_at, id FROM extractions WHERE unplaced_at IS NOT NULL"
            " AND blob_id IS NOT NULL AND unplaced_at <= ? AND (unplaced_at, id) > (?, ?)"
            " ORDER BY unplaced_at, id LIMIT ?",
            (until, *at, _LOOK),
        ).fetchall():
            self._take(ident for _, ident in rows)
            at = rows[-1]

    def _take_missed(self, until: float) -> None:
        at = (-1.0, -1, -1)
        while rows := self._connection.execute(
            "SELECT missed_at, session_id, extraction_id FROM placements"
            " WHERE missed_at IS NOT NULL AND missed_at <= ?"
            " AND (missed_at, session_id, extraction_id) > (?, ?, ?)"
            " ORDER BY missed_at, session_id, extraction_id LIMIT ?",
            (until, *at, _LOOK),
        ).fetchall():
            self._take(row[-1] for row in rows)
            at = rows[-1]

    def _silent(self, until: float) -> list[int]:
        """Return the sessions in which something can have been silent, or missed, for so long."""
        sessions = self._connection.execute(
            "SELECT session_id FROM temp.sight WHERE coalesce(activity, missed_at) <= ?", (until,)
        ).fetchall()
        return [session for (session,) in sessions if self._oldest(session) <= until]

    def _oldest(self, session: int) -> float:
        """Return when the oldest value of a session was extracted that is held."""
        row = self._connection.execute(
            "SELECT e.extracted_at FROM placements p CROSS JOIN extractions e"
            " ON e.id = p.extraction_id WHERE p.session_id = ? AND e.blob_id IS NOT NULL"
            " ORDER BY p.extraction_id LIMIT 1",
            (session,),
        ).fetchone()
        return float(row[0]) if row else float("inf")

    def _take_session(self, session: int) -> None:
        last = 0
        while rows := self._connection.execute(
            "SELECT extraction_id FROM placements WHERE session_id = ? AND extraction_id > ?"
            " ORDER BY extraction_id LIMIT ?",
            (session, last, _LOOK),
        ).fetchall():
            self._take(ident for (ident,) in rows)
            last = rows[-1][0]

    def _take(self, idents: Iterable[int]) -> None:
        self._connection.execute(
            "INSERT OR IGNORE INTO temp.due SELECT e.id, iif(e.replacement IS NULL, e.name, NULL)"  # noqa: S608
            " FROM json_each(?) j CROSS JOIN extractions e ON e.id = j.value"
            f" WHERE {_HELD}",
            (json.dumps(list(idents)),),
        )

    def spare(self, names: Iterable[str]) -> None:
        """Leave out the values whose placeholder was read somewhere; `names` are their ids."""
        listed = list(names)
        for at in range(0, len(listed), PAGE):
            self._connection.execute(
                "DELETE FROM temp.due WHERE name IN (SELECT value FROM json_each(?))",
                (json.dumps(listed[at : at + PAGE]),),
            )

    def hold_back(self, root: str) -> None:
        """Leave the sessions below a root as not seen: something there cannot be read."""
        self._connection.execute(
            "UPDATE temp.sight SET activity = NULL, missed_at = NULL WHERE root = ?", (root,)
        )

    def page(self, after: int) -> list[Held]:
        """Return the next candidates behind an id, as they are now; the id after which to go on.

        Those that somebody asked for since, or that are held no more, are left out.
        """
        page: list[Held] = []
        total = 0
        for row in self._connection.execute(
            "SELECT e.id, e.session_id, e.size, e.extracted_at, e.restored_at, e.unplaced_at,"  # noqa: S608
            " max(iif(p.missed_at IS NULL, s.activity, NULL)),"
            " max(coalesce(p.missed_at, s.missed_at)),"
            " max(p.session_id IS NOT NULL AND s.activity IS NULL AND s.missed_at IS NULL)"
            " OR (own.activity IS NULL AND own.missed_at IS NULL)"
            " FROM temp.due d CROSS JOIN extractions e ON e.id = d.id"
            " LEFT JOIN placements p ON p.extraction_id = e.id"
            " LEFT JOIN temp.sight s ON s.session_id = p.session_id"
            " LEFT JOIN temp.sight own ON own.session_id = e.session_id"
            f" WHERE d.id > ? AND {_HELD} AND NOT ({_WANTED})"
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
