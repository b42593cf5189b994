"""What one retention run has to decide about, kept by SQLite beside the store and not in memory.

A run may have to decide about millions of values, and each stub in each file may be one of them.
So they lie in a temporary table, which is spooled to disk where it is large, and are read and
written a page at a time: whoever reads holds a lock that makes a commit of others wait.
"""

from __future__ import annotations

import json
import os
import sqlite3
from bisect import bisect_right
from contextlib import suppress
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Self

from brainsurgeon.model.records import HeldValue

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

PAGE = 1000
"""Rows that are decided and written together: another writer waits for no more than these."""
LARGE = 16 << 20
"""Bytes of values, as they were, that are deleted together, unless it is a single one."""
_LOOK = 5000
"""Rows that are read together: others may write meanwhile, but wait to commit."""

_CACHE = 16_384
"""KiB of the database in memory: what a page of deletions touches fits, or else SQLite would spill
it, and keep everybody out until the end."""

Age = tuple[int, int | None, float, float]
"""A session, the newest value of it that is held (None: there is none), and two moments: no value
was cut out before the first, and none was last seen before the second."""
HELD = "e.blob_id IS NOT NULL AND e.state IN ('standing', 'restored')"
"""What is true of an extraction `e` whose value is held, and is not of a rewrite under way."""
_EXPIRED = (
    "(e.marked_at IS NOT NULL OR max(e.extracted_at, e.sighted_at) + :keep <= :now"
    " OR (:silent AND max(e.extracted_at, coalesce(e.restored_at, 0.0)) + :standing <= :now))"
)
"""What is true of one that can have expired, whether its stub stands or not."""
_VALUE = (
    "e.id, e.session_id, e.stub, e.size, e.extracted_at, e.sighted_at, e.restored_at, e.marked_at,"
    " s.root, s.path, a.directory, e.replacement IS NOT NULL"
)


def _held_value(row: tuple[Any, ...]) -> HeldValue:
    """Read a value that is held from its row."""
    values = list(row)
    values[8:11] = (os.fsdecode(place).partition("\0")[0] for place in row[8:11])
    values[11] = bool(row[11])
    return HeldValue(*values)


class Due:
    """The values that one retention run has to decide about; as a context it cleans up."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._looked: list[int] = []
        self._cache = 0

    def __enter__(self) -> Self:
        (self._cache,) = self._connection.execute("PRAGMA cache_size").fetchone()
        self._connection.execute(f"PRAGMA cache_size = {-_CACHE}")
        self._connection.execute("DROP TABLE IF EXISTS temp.due")
        self._connection.execute(
            "CREATE TEMP TABLE due (id INTEGER PRIMARY KEY, stub TEXT, session_id INTEGER NOT NULL,"
            " marked INTEGER NOT NULL, activity REAL)"
        )
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(sqlite3.Error):  # a store in trouble says so by itself
            self._connection.execute(f"PRAGMA cache_size = {self._cache}")
            self._connection.execute("DROP TABLE temp.due")

    def gather(
        self,
        keep: float | None,
        standing: float | None,
        now: float,
        changed: Callable[[str], float],
    ) -> None:
        """Take up what is marked, and what can have expired.

        `keep` and `standing` are the seconds for which values are kept whose stub does not stand,
        or does; None is for ever. `changed` tells when the file at a path changed, 0.0 where there
        is none.
        """
        for session, path, extracted, sighted in self._sessions():
            silent = standing is not None and changed(path) + standing <= now
            expired = keep is not None and sighted + keep <= now
            if expired or (silent and standing is not None and extracted + standing <= now):
                self._look_at(session, {
                    "keep": keep, "standing": standing, "now": now, "silent": silent,
                })  # fmt: skip
        self._take_marked()
        self._connection.execute("CREATE INDEX temp.due_stub ON due (stub, session_id)")

    def _sessions(self) -> Iterator[tuple[int, str, float, float]]:
        """Yield the sessions of which something is held, with moments that no value is older than.

        Those are when the oldest was cut out, and when the one was seen that nobody saw for the
        longest time.
        """
        last = -1
        while rows := self._connection.execute(
            "SELECT a.session_id, s.path, a.extracted_at, a.sighted_at"
            " FROM ages a JOIN sessions s ON s.id = a.session_id"
            " WHERE a.session_id > ? ORDER BY a.session_id LIMIT ?",
            (last, _LOOK),
        ).fetchall():
            for session, path, extracted, sighted in rows:
                yield session, os.fsdecode(path).partition("\0")[0], extracted, sighted
            last = rows[-1][0]

    def _look_at(self, session: int, terms: dict[str, object]) -> None:
        """Take up what can have expired of one session."""
        self._looked.append(session)
        for first, last in self._pages(session):
            self._connection.execute(
                "INSERT INTO temp.due (id, stub, session_id, marked)"  # noqa: S608
                " SELECT e.id, iif(e.replacement IS NULL, e.stub, NULL), e.session_id,"
                " e.marked_at IS NOT NULL"
                f" FROM extractions e WHERE e.session_id = :session AND {HELD}"
                f" AND e.id BETWEEN :first AND :last AND {_EXPIRED}",
                {**terms, "session": session, "first": first, "last": last},
            )

    def _pages(self, session: int) -> Iterator[tuple[int, int]]:
        """Yield the first and the last id of each page of what a session holds."""
        last = 0
        while True:
            first, last = self._connection.execute(
                "SELECT min(id), max(id) FROM (SELECT id FROM extractions WHERE session_id = ?"
                " AND blob_id IS NOT NULL AND id > ? ORDER BY id LIMIT ?)",
                (session, last, _LOOK),
            ).fetchone()
            if last is None:
                return
            yield first, last

    def _take_marked(self) -> None:
        """Take up what an earlier run has marked, whatever the settings say now."""
        at = (-1, -1)
        while rows := self._connection.execute(
            "SELECT e.session_id, e.id, iif(e.replacement IS NULL, e.stub, NULL)"  # noqa: S608
            f" FROM extractions e WHERE e.marked_at IS NOT NULL AND {HELD}"
            " AND (e.session_id, e.id) > (?, ?) ORDER BY e.session_id, e.id LIMIT ?",
            (*at, _LOOK),
        ).fetchall():
            self._connection.execute("BEGIN")
            self._connection.executemany(
                "INSERT OR IGNORE INTO temp.due (session_id, id, stub, marked) VALUES (?, ?, ?, 1)",
                rows,
            )
            self._connection.execute("COMMIT")
            at = rows[-1][:2]

    def __bool__(self) -> bool:
        """Tell whether there is anything to decide about."""
        return self._connection.execute("SELECT 1 FROM temp.due LIMIT 1").fetchone() is not None

    def see(self, stubs: Iterable[str], sessions: Iterable[int], changed: float) -> None:
        """Note that stubs stand in a file, which may be one of some sessions, and when it changed.

        A stub that none of them explains counts for every value of its text: a session that was
        moved, or one whose agent is called otherwise now, loses nothing.
        """
        family, listed = json.dumps(list(sessions)), list(stubs)
        for at in range(0, len(listed), PAGE):
            some = listed[at : at + PAGE]
            here = self._ask(
                "SELECT DISTINCT stub FROM temp.due WHERE stub IN (SELECT value FROM json_each(?))",
                json.dumps(some),
            )
            own = self._ask(
                "SELECT DISTINCT stub FROM extractions"
                " WHERE stub IN (SELECT value FROM json_each(?))"
                " AND session_id IN (SELECT value FROM json_each(?))",
                json.dumps(sorted(here)), family,
            ) if here else here  # fmt: skip
            for stands, of in ((own, family), (here - own, None)):
                if not stands:
                    continue
                self._connection.execute(
                    "UPDATE temp.due SET activity = max(coalesce(activity, ?1), ?1)"
                    " WHERE stub IN (SELECT value FROM json_each(?2))"
                    " AND (?3 IS NULL OR session_id IN (SELECT value FROM json_each(?3)))",
                    (changed, json.dumps(sorted(stands)), of),
                )

    def _ask(self, statement: str, *values: str) -> set[str]:
        return {row[0] for row in self._connection.execute(statement, values)}

    def values(self) -> Iterator[list[tuple[HeldValue, float | None]]]:
        """Yield pages of what is still held, as it is now, with when a file with its stub changed.

        That is None where its stub was seen nowhere, and for a redaction, which leaves none. What
        was marked and is no more is left out: somebody asked for it since the run began.
        """
        last = 0
        while rows := self._connection.execute(
            f"SELECT {_VALUE}, d.activity FROM temp.due d CROSS JOIN extractions e ON e.id = d.id"  # noqa: S608
            " CROSS JOIN sessions s ON s.id = e.session_id CROSS JOIN agents a ON a.id = s.agent_id"
            f" WHERE d.id > ? AND {HELD} AND (NOT d.marked OR e.marked_at IS NOT NULL)"
            " ORDER BY d.id LIMIT ?",
            (last, PAGE),
        ).fetchall():
            page = [(_held_value(row[:-1]), row[-1]) for row in rows]
            total = list(accumulate(value.size for value, _ in page))
            del page[max(1, bisect_right(total, LARGE)) :]
            yield page
            last = page[-1][0].id

    def ages(self) -> Iterator[Age]:
        """Yield how old the values of each session are that was looked at."""
        for session in self._looked:
            newest, extracted, sighted = None, float("inf"), float("inf")
            for first, last in self._pages(session):
                row = self._connection.execute(
                    "SELECT min(extracted_at), min(max(extracted_at, sighted_at)) FROM extractions"
                    " WHERE session_id = ? AND blob_id IS NOT NULL AND id BETWEEN ? AND ?",
                    (session, first, last),
                ).fetchone()
                if row[0] is not None:
                    newest, extracted, sighted = last, min(extracted, row[0]), min(sighted, row[1])
            yield session, newest, extracted, sighted
