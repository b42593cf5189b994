"""Runs, events, totals and single facts.

A run gets its row when its number is first needed: a run that changes nothing has none.
"""

import json
import os
import sqlite3
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple, TypeVar

from brainsurgeon import interruption
from brainsurgeon.model.reports import Event, EventKind, Run
from brainsurgeon.store.database import Table

KEPT_SECONDS = 30 * 86_400.0
KEPT_ROWS = 100_000
_BATCH = 1000  # the most rows that one transaction deletes
_EVENT = (
    "SELECT e.id, e.at, e.run_id, e.session_id, s.agent || '/' || s.name, e.kind, e.facts"
    " FROM events e LEFT JOIN sessions s ON s.id = e.session_id"
)
_RUN = "SELECT id, at, command, facts FROM runs"
_RUN_OF = "json_extract(rewrite, '$.confirmation.run_id')"  # of a rewrite in the journal
_Kind = TypeVar("_Kind", Event, Run)
# Extracted values, once for each session that contains their placeholder. Values that an archive
# replaced are left out: archives are counted separately.
_STANDING = (
    " FROM placements p JOIN extractions e ON e.id = p.extraction_id"
    " WHERE p.missed_at IS NULL AND e.archive_id IS NULL"
)


class Events(Table):
    def __init__(self, connection: sqlite3.Connection) -> None:
        super().__init__(connection)
        self._signals: list[int] = []

    def add(
        self, at: float, kind: EventKind, session_id: int | None, facts: Mapping[str, Any],
        run_id: int | None,
    ) -> None:  # fmt: skip
        """Record an event. Its `facts` contain no content of sessions."""
        row = {"at": at, "run_id": run_id, "session_id": session_id, "kind": kind}
        ident = self._insert("events", row | {"facts": json.dumps(facts)})
        if kind == "signal":
            self._signals.append(ident)

    def take_signals(self) -> list[Event]:
        taken, self._signals = self._signals, []
        return [
            event for ident in taken
            for event in self.after(ident - 1, kinds=("signal",), until=ident)
        ]  # fmt: skip

    def last_signal(self, session_id: int, **facts: str) -> Event | None:
        signals = self.after(0, kinds=("signal",), sessions=[session_id])
        same = (event for event in reversed(signals) if facts.items() <= event.facts.items())
        return next(same, None)

    def after(
        self, ident: int, *, kinds: Collection[str] = (),
        sessions: Collection[int] | None = None, until: int | None = None,
    ) -> list[Event]:  # fmt: skip
        """Return the events with ids above `ident`, up to and including `until`.

        `sessions` are ids of records.
        """
        listed = json.dumps(sorted(kinds)) if kinds else None
        ids = None if sessions is None else json.dumps(sorted(sessions))
        rows = self._execute(
            f"{_EVENT} WHERE e.id > ?1 AND e.id <= coalesce(?2, 9e999)"  # noqa: S608
            " AND (?3 IS NULL OR e.session_id IN (SELECT value FROM json_each(?3)))"
            " AND (?4 IS NULL OR e.kind IN (SELECT value FROM json_each(?4))) ORDER BY e.id",
            (ident, until, ids, listed),
        )
        return [_with_facts(Event, row) for row in rows]

    def newest(self) -> int:
        return self._first("SELECT max(id) FROM events") or 0

    def before(self, moment: float) -> int:
        first = self._first("SELECT min(id) FROM events WHERE at >= ?", moment)
        return self.newest() if first is None else first - 1

    def old(self, now: float) -> list[int]:
        return self._column(
            "SELECT id FROM events WHERE id <= ? OR at < ? ORDER BY id LIMIT ?",
            self.newest() - KEPT_ROWS, now - KEPT_SECONDS, _BATCH,
        )  # fmt: skip

    def drop(self, ids: Collection[int]) -> None:
        self._executemany("DELETE FROM events WHERE id = ?", ((ident,) for ident in ids))


def _with_facts(kind: type[_Kind], row: tuple[Any, ...]) -> _Kind:
    return kind(*[*row[:-1], json.loads(row[-1])])


class Standing(NamedTuple):
    """The recorded sessions that the current run found at their paths."""

    up_to: dict[str, int]  # by session id: all records with ids up to this one
    ids: set[int]


class Runs(Table):
    def __init__(self, connection: sqlite3.Connection) -> None:
        super().__init__(connection)
        self._run: tuple[str, float, dict[str, Any]] | None = None
        self._number: int | None = None
        self.command_hung = False  # the summary command hung in the current run
        self.standing = Standing({}, set())

    @contextmanager
    def run(self, command: str, at: float, **facts: Any) -> Iterator[None]:
        before = self._run, self._number, self.command_hung
        self._run, self._number, self.command_hung = (command, at, facts), None, False
        self.standing = Standing({}, set())
        try:
            with interruption.deferred():
                yield
        finally:
            self._run, self._number, self.command_hung = before
            self.standing = Standing({}, set())

    @property
    def in_run(self) -> bool:
        return self._run is not None

    def number(self) -> int | None:
        """Return the id of the current run, creating its row if needed."""
        if self._run is None:
            return None
        if self.current is None:
            command, at, facts = self._run
            row = {"at": at, "command": command, "facts": json.dumps(facts)}
            self._number = self._insert("runs", row)
        return self._number

    @property
    def current(self) -> int | None:
        """The number of the current run; None outside of a run, or if its row does not exist."""
        if self._run is None:
            return None
        # If the transaction was rolled back, another process may have used the number for its run.
        same = "SELECT id FROM runs WHERE id = ? AND command = ? AND at = ?"
        number: int | None = self._first(same, self._number, *self._run[:2])
        return number

    def add(self, run_id: int | None, **counts: int) -> None:
        text = self._first("SELECT facts FROM runs WHERE id = ?", run_id)
        if text is None:
            return
        facts = json.loads(text)
        for name, count in counts.items():
            if count:
                facts[name] = facts.get(name, 0) + count
        self._execute("UPDATE runs SET facts = ? WHERE id = ?", (json.dumps(facts), run_id))

    def by_id(self, run_id: int | None) -> Run | None:
        rows = self._execute(f"{_RUN} WHERE id = ?", (run_id,))
        return next((_with_facts(Run, row) for row in rows), None)

    def newest(self, most: int | None) -> list[Run]:
        rows = self._execute(f"{_RUN} ORDER BY id DESC LIMIT coalesce(?, -1)", (most,))
        return [_with_facts(Run, row) for row in rows][::-1]

    @property
    def last(self) -> int:
        return self._first("SELECT seq FROM sqlite_sequence WHERE name = 'runs'") or 0

    def old(self, now: float) -> list[int]:
        """Return ids of old runs, oldest first, that no event, rollback or recovery needs."""
        return self._column(
            "SELECT id FROM runs WHERE at < ? AND id NOT IN"  # noqa: S608
            " (SELECT run_id FROM fields WHERE run_id IS NOT NULL"
            " UNION SELECT rolls_back FROM requests WHERE rolls_back IS NOT NULL"
            f" UNION SELECT {_RUN_OF} FROM journal WHERE {_RUN_OF} IS NOT NULL)"
            " AND NOT EXISTS (SELECT 1 FROM events WHERE run_id = runs.id)"
            " AND NOT EXISTS (SELECT 1 FROM extractions WHERE run_id = runs.id"
            " AND blob_id IS NOT NULL) ORDER BY id LIMIT ?",
            now - KEPT_SECONDS, _BATCH,
        )  # fmt: skip

    def drop(self, ids: Collection[int]) -> None:
        listed = (json.dumps(list(ids)),)
        is_listed = "IN (SELECT value FROM json_each(?))"
        self._execute(f"UPDATE extractions SET run_id = NULL WHERE run_id {is_listed}", listed)  # noqa: S608
        self._execute(f"UPDATE archives SET run_id = NULL WHERE run_id {is_listed}", listed)  # noqa: S608
        self._execute(f"DELETE FROM runs WHERE id {is_listed}", listed)  # noqa: S608

    def drop_empty(self, journal_id: int) -> None:
        """Delete the run of an abandoned rewrite, unless the run has other changes or rewrites."""
        self._execute(
            "DELETE FROM runs"  # noqa: S608
            f" WHERE id = (SELECT {_RUN_OF} FROM journal WHERE id = ?1)"
            " AND json_extract(facts, '$.sessions') IS NULL"
            " AND NOT EXISTS (SELECT 1 FROM events WHERE run_id = runs.id)"
            " AND NOT EXISTS (SELECT 1 FROM requests WHERE rolls_back = runs.id)"
            " AND NOT EXISTS (SELECT 1 FROM extractions WHERE run_id = runs.id)"
            f" AND NOT EXISTS (SELECT 1 FROM journal WHERE id != ?1 AND {_RUN_OF} = runs.id)",
            (journal_id,),
        )


class Sums(Table):
    """Totals of extracted values and of files. A value's size is its length in its line."""

    def by_day(self) -> list[tuple[int, int, int]]:
        """Return days since 1970 (UTC), and the number and size of the values extracted on each."""
        return self._execute(
            f"SELECT CAST(e.extracted_at / 86400 AS INTEGER), count(*), sum(e.size){_STANDING}"
            " GROUP BY 1 ORDER BY 1"
        ).fetchall()

    def by_kind(self) -> list[tuple[str, str | None, int, int]]:
        return self._execute(
            f"SELECT e.kind, e.tool, count(*), sum(e.size){_STANDING}"
            " GROUP BY e.kind, e.tool ORDER BY 4 DESC, 1, 2"
        ).fetchall()

    def current(self) -> tuple[int, int, int]:
        """Return the numbers of values, of bytes, and of archives."""
        row: tuple[int, int, int] = self._execute(
            "SELECT count(*) - count(e.archive_id),"
            " coalesce(sum(iif(e.archive_id IS NULL, e.size, 0)), 0),"
            " count(DISTINCT e.archive_id)"
            " FROM placements p JOIN extractions e ON e.id = p.extraction_id"
            " WHERE p.missed_at IS NULL"
        ).fetchone()
        return row

    def ever(self) -> int:
        """Estimate, by the highest id, how many values were ever extracted: no id is used twice."""
        return self._first(
            "SELECT seq - (SELECT count(archive_id) FROM extractions)"
            " FROM sqlite_sequence WHERE name = 'extractions'"
        ) or 0  # fmt: skip

    def outcomes(self) -> list[tuple[str, int]]:
        return self._execute(
            "SELECT outcome, count(*) FROM files GROUP BY outcome ORDER BY outcome"
        ).fetchall()


class Facts(Table):
    """Single facts, as JSON, and the time of the last run over all sessions.

    The time is the mtime of a file that is never synced, so that an idle daemon syncs nothing.
    """

    def __init__(self, connection: sqlite3.Connection, directory: str = "") -> None:
        super().__init__(connection)
        self._last_run = os.path.join(directory, "last_run")

    def put(self, key: str, value: Any) -> None:
        self._insert("meta", {"key": key, "value": json.dumps(value)}, "REPLACE")

    def get(self, key: str) -> Any:
        text = self._first("SELECT value FROM meta WHERE key = ?", key)
        return None if text is None else json.loads(text)

    def note_run(self, now: float) -> None:
        flags = os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC
        if self.get("last_run_at") is None:
            self.put("last_run_at", now)  # the file is created by the second run
        else:
            flags |= os.O_CREAT
        with suppress(OSError):
            descriptor = os.open(self._last_run, flags, 0o600)
            try:
                os.utime(descriptor, (now, now))
            finally:
                os.close(descriptor)

    def last_run_at(self) -> float | None:
        first: float | None = self.get("last_run_at")
        with suppress(OSError):
            return first and os.stat(self._last_run).st_mtime
        return first
