"""The runs: one run of a command that changed something, and what of it still stands.

A run gets its number in the first transaction that needs one, so that a run which changes
nothing writes nothing. Every writer uses them alike:

    with store.runs.run("scan", now):          # around a whole run
        with store.transaction():
            ident = store.runs.number()        # where a row is to name its run
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from brainsurgeon.model.entries import placeholder_named
from brainsurgeon.model.reports import TOKENS_PER_CHAR, Event, Run

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Collection, Iterator, Mapping

    from brainsurgeon.model.reports import EventKind


# Facts are ids, counts, sizes and reasons, never content.

KEPT_SECONDS = 30 * 86_400.0
KEPT_ROWS = 100_000
# Rows that are trimmed in one transaction.
_EVENTS_TOGETHER = 1000
_EVENT = (
    "SELECT e.id, e.at, e.run_id, e.session_id, a.name || '/' || s.name, e.kind, e.facts"
    " FROM events e LEFT JOIN sessions s ON s.id = e.session_id"
    " LEFT JOIN agents a ON a.id = s.agent_id"
)


class Events:
    """What happened, in the order in which it was committed."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def add(
        self, at: float, kind: EventKind, session_id: int | None, facts: Mapping[str, Any],
        run_id: int | None,
    ) -> None:  # fmt: skip
        """Note that something happened; part of the transaction in which it does."""
        self._connection.execute(
            "INSERT INTO events (at, run_id, session_id, kind, facts) VALUES (?, ?, ?, ?, ?)",
            (at, run_id, session_id, kind, json.dumps(facts)),
        )

    def after(
        self, ident: int, *, kinds: Collection[str] = (), session_id: int | None = None,
        until: int | None = None,
    ) -> list[Event]:  # fmt: skip
        """Return the events behind one, up to another and with it, in their order."""
        wanted, values = ["e.id > ?"], [ident]
        if until is not None:
            wanted.append("e.id <= ?")
            values.append(until)
        if session_id is not None:
            wanted.append("e.session_id = ?")
            values.append(session_id)
        if kinds:
            wanted.append("e.kind IN (SELECT value FROM json_each(?))")
        rows = self._connection.execute(
            f"{_EVENT} WHERE {' AND '.join(wanted)} ORDER BY e.id",
            [*values, *([json.dumps(sorted(kinds))] if kinds else [])],
        )
        return [_event(row) for row in rows]

    def newest(self) -> int:
        """Return the id of the newest event; 0 without any."""
        return int(self._connection.execute("SELECT max(id) FROM events").fetchone()[0] or 0)

    def up_to(self, ident: int) -> Event | None:
        """Return the newest event that is no newer than one; None without any."""
        rows = self._connection.execute(
            f"{_EVENT} WHERE e.id <= ? ORDER BY e.id DESC LIMIT 1", (ident,)
        )
        return next(map(_event, rows), None)

    def before(self, moment: float) -> int:
        """Return the id behind which everything stands that happened at a moment or later."""
        row = self._connection.execute(
            "SELECT min(id) FROM events WHERE at >= ?", (moment,)
        ).fetchone()
        return self.newest() if row[0] is None else int(row[0]) - 1

    def old(self, now: float) -> list[int]:
        """Name some events that are kept no longer, the oldest first."""
        rows = self._connection.execute(
            "SELECT id FROM events WHERE id <= ? OR at < ? ORDER BY id LIMIT ?",
            (self.newest() - KEPT_ROWS, now - KEPT_SECONDS, _EVENTS_TOGETHER),
        )
        return [ident for (ident,) in rows]

    def drop(self, ids: Collection[int]) -> None:
        """Let go of events; part of a transaction."""
        self._connection.executemany("DELETE FROM events WHERE id = ?", ((one,) for one in ids))


def _event(row: tuple[Any, ...]) -> Event:
    ident, at, run_id, session_id, session, kind, facts = row
    return Event(ident, at, run_id, session_id, session, kind, json.loads(facts))


# Rows that are trimmed in one transaction.
_TOGETHER = 1000
_RUN = "SELECT id, at, command, facts FROM runs"
_Begun = tuple[str, float, dict[str, Any]]


class Runs:
    """The runs, and the one that is being made."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._run: _Begun | None = None
        self._number: int | None = None
        self._unsure = False

    @contextmanager
    def run(self, command: str, at: float, **facts: Any) -> Iterator[None]:
        """Let everything that a block changes name one run, which begins with these facts."""
        before = self._run, self._number
        self._run, self._number = (command, at, facts), None
        try:
            yield
        finally:
            self._run, self._number = before

    def number(self) -> int | None:
        """Return the number of the run that is being made; None where nobody said which it is.

        Part of a transaction.
        """
        if self._run is None:
            return None
        if self.so_far is None:
            command, at, facts = self._run
            made = self._connection.execute(
                "INSERT INTO runs (at, command, facts) VALUES (?, ?, ?)",
                (at, command, json.dumps(facts)),
            )
            self._number, self._unsure = made.lastrowid, True
        return self._number

    @property
    def so_far(self) -> int | None:
        """The number of the run that is being made, if it has changed anything yet.

        Where its only rewrite was given up, it has none any more.
        """
        known = self._number is not None and self.named(self._number)
        return self._number if known else None

    def keep(self) -> None:
        """Take in that the transaction was committed."""
        self._unsure = False

    def forget_unsure(self) -> None:
        """Take in that the transaction was not committed."""
        if self._unsure:
            self._number, self._unsure = None, False

    def add(self, run_id: int | None, **counts: int) -> None:
        """Add to what a run did; part of a transaction."""
        add_up(self._connection, run_id, **counts)

    def named(self, run_id: int) -> Run | None:
        """Return one run."""
        found = self._connection.execute(f"{_RUN} WHERE id = ?", (run_id,)).fetchone()
        return None if found is None else _run(found)

    def newest(self, most: int | None) -> list[Run]:
        """Return the newest runs, at most so many, the newest last."""
        rows = self._connection.execute(
            f"{_RUN} ORDER BY id DESC LIMIT ?", (-1 if most is None else most,)
        )
        return [_run(row) for row in rows][::-1]

    @property
    def last(self) -> int:
        """The highest number that any run ever had; 0 before the first."""
        row = self._connection.execute(
            "SELECT seq FROM sqlite_sequence WHERE name = 'runs'"
        ).fetchone()
        return int(row[0]) if row else 0

    def old(self, now: float) -> list[int]:
        """Name some runs that are kept no longer, the oldest first.

        They are as old as events get, no event names them, and nothing of them is left that could
        be taken back: no value of theirs is held, no field stands, and nothing is under way.
        """
        rows = self._connection.execute(
            "SELECT id FROM runs WHERE at < ? AND id NOT IN"
            " (SELECT run_id FROM fields WHERE run_id IS NOT NULL"
            " UNION SELECT rolls_back FROM requests WHERE rolls_back IS NOT NULL AND state = 'open'"
            " UNION SELECT json_extract(note, '$.run_id') FROM journal"
            " WHERE json_extract(note, '$.run_id') IS NOT NULL)"
            " AND NOT EXISTS (SELECT 1 FROM events WHERE run_id = runs.id)"
            " AND NOT EXISTS (SELECT 1 FROM extractions WHERE run_id = runs.id"
            " AND blob_id IS NOT NULL) ORDER BY id LIMIT ?",
            (now - KEPT_SECONDS, _TOGETHER),
        )
        return [ident for (ident,) in rows]

    def drop(self, ids: Collection[int]) -> None:
        """Let go of runs: tombstones of theirs name none then. Part of a transaction."""
        those = json.dumps(list(ids))
        for table, column in (
            ("extractions", "run_id"), ("archives", "run_id"), ("requests", "rolls_back"),
        ):  # fmt: skip
            self._connection.execute(
                f"UPDATE {table} SET {column} = NULL"  # noqa: S608
                f" WHERE {column} IN (SELECT value FROM json_each(?))",
                (those,),
            )
        self._connection.execute(
            "DELETE FROM runs WHERE id IN (SELECT value FROM json_each(?))", (those,)
        )


def add_up(connection: sqlite3.Connection, run_id: int | None, **counts: int) -> None:
    row = connection.execute("SELECT facts FROM runs WHERE id = ?", (run_id,)).fetchone()
    if row is None:
        return
    facts = json.loads(row[0])
    for name, count in counts.items():
        if count:
            facts[name] = facts.get(name, 0) + count
    connection.execute("UPDATE runs SET facts = ? WHERE id = ?", (json.dumps(facts), run_id))


def drop_empty(connection: sqlite3.Connection, journal_id: int) -> None:
    """Forget the run of a rewrite that did not happen, unless it did or may do something else."""
    row = connection.execute(
        "SELECT json_extract(note, '$.run_id') FROM journal WHERE id = ?", (journal_id,)
    ).fetchone()
    if row is None or row[0] is None:
        return
    connection.execute(
        "DELETE FROM runs WHERE id = ?1 AND json_extract(facts, '$.sessions') IS NULL"
        " AND NOT EXISTS (SELECT 1 FROM events WHERE run_id = ?1)"
        " AND NOT EXISTS (SELECT 1 FROM requests WHERE rolls_back = ?1)"
        " AND NOT EXISTS (SELECT 1 FROM extractions WHERE run_id = ?1)"
        " AND NOT EXISTS (SELECT 1 FROM journal"
        " WHERE id != ?2 AND json_extract(note, '$.run_id') = ?1)",
        (row[0], journal_id),
    )


def _run(row: tuple[Any, ...]) -> Run:
    ident, at, command, facts = row
    return Run(ident, at, command, json.loads(facts))


# The text and the link that an archived turn replaced are no values that left: turns are counted.


DAY = 86_400
# Values that stand extracted, once for each session that holds them.
_STANDING = (
    " FROM placements p JOIN extractions e ON e.id = p.extraction_id"
    " WHERE p.missed_at IS NULL AND e.archive_id IS NULL"
)
# How the paths begin of values that were for a screen: no request ever carried them.
_UNSENT = ('["message", "details"', '["toolUseResult"')


class Sums:
    """What stands extracted, added up; sizes are bytes as the values stood in their lines."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def by_day(self) -> list[tuple[int, int, int]]:
        """Return each day (its number since 1970, UTC) with its values and their size, in order."""
        return self._connection.execute(
            f"SELECT CAST(e.extracted_at / ? AS INTEGER), count(*), sum(e.size){_STANDING}"
            " GROUP BY 1 ORDER BY 1",
            (DAY,),
        ).fetchall()

    def by_kind(self) -> list[tuple[str, str | None, int, int]]:
        """Return each kind and tool with its values and their size, the largest first."""
        return self._connection.execute(
            f"SELECT e.kind, e.tool, count(*), sum(e.size){_STANDING}"
            " GROUP BY e.kind, e.tool ORDER BY 4 DESC, 1, 2"
        ).fetchall()

    def standing(self) -> tuple[int, int]:
        """Return how many values stand extracted, and their size."""
        row = self._connection.execute(
            f"SELECT count(*), coalesce(sum(e.size), 0){_STANDING}"
        ).fetchone()
        return int(row[0]), int(row[1])

    def archived(self) -> int:
        """Return how many turns stand folded into their last answers."""
        row = self._connection.execute(
            "SELECT count(DISTINCT e.archive_id) FROM placements p"
            " JOIN extractions e ON e.id = p.extraction_id WHERE p.missed_at IS NULL"
        ).fetchone()
        return int(row[0])

    def tokens(self) -> int:
        """Estimate the tokens of what stands extracted and was sent.

        A character counts as its session's calls were seen to take, else as is usual.
        """
        row = self._connection.execute(
            "SELECT total(max(0, e.chars - coalesce(length(e.replacement), length(e.name) + ?))"
            " * coalesce(c.rate, ?)) FROM placements p JOIN extractions e"
            " ON e.id = p.extraction_id LEFT JOIN calibration c ON c.session_id = p.session_id"
            " WHERE p.missed_at IS NULL AND e.archive_id IS NULL"
            " AND substr(e.path, 1, ?) != ? AND substr(e.path, 1, ?) != ?",
            (
                len(placeholder_named("")),
                TOKENS_PER_CHAR,
                *(value for start in _UNSENT for value in (len(start), start)),
            ),
        ).fetchone()
        return round(float(row[0]))

    def ever(self) -> int:
        """Return how many values were ever extracted: ids are never used again."""
        row = self._connection.execute(
            "SELECT seq - (SELECT count(archive_id) FROM extractions)"
            " FROM sqlite_sequence WHERE name = 'extractions'"
        ).fetchone()
        return int(row[0]) if row else 0

    def outcomes(self) -> list[tuple[str, int]]:
        """Return how many files the last look at them came to which outcome."""
        return self._connection.execute(
            "SELECT outcome, count(*) FROM files GROUP BY outcome ORDER BY outcome"
        ).fetchall()
