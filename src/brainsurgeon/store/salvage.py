"""Save what a damaged database still holds into a new one, row by row.

A damaged page hides the rows on it and nothing else, so each table is read in ranges of row ids
that are halved around what cannot be read. What the scan only remembers is left out: it costs time
to lose. A value is taken only with the right digest; where one is lost, its stub gets a tombstone.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from brainsurgeon.errors import DamagedError, StoreUnusableError
from brainsurgeon.store.blobs import Blobs
from brainsurgeon.store.opening import PAGE, database_path, refuse_unknown
from brainsurgeon.store.salvage_sessions import copy_sessions

if TYPE_CHECKING:
    from collections.abc import Iterator

LOST = "lost with a damaged store"
"""Why a value is gone, as its tombstone says."""
_LEFT_OUT = frozenset({"files", "resumes", "ages", "loose"})
_MAY_LACK = (
    ("sessions", "parent_id", "sessions"), ("extractions", "pass_id", "passes"),
    ("fields", "pass_id", "passes"), ("events", "pass_id", "passes"),
    ("extractions", "archive_id", "archives"), ("archives", "pass_id", "passes"),
)  # fmt: skip
"""What means as much without the row that it leads to, and goes on without it. Not the pass that a
wish rolls back: without that it would put everything back."""
_BEYOND = 100_000
"""Row ids behind the last one that could be read which are tried, where no more is known."""
_OURS = (
    "SELECT type, name, sql FROM sqlite_master"
    " WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite^_%' ESCAPE '^'"
)


@dataclass(slots=True)
class Salvaged:
    """What was saved: rows by table, and the tables of which some were not; values by number.

    `sessions_made` are sessions whose rows were put together from an index, `sessions_lost` those
    of which something was cut and nothing else is left.
    """

    rows: dict[str, int] = field(default_factory=dict)
    unread: set[str] = field(default_factory=set)
    values: int = 0
    values_lost: int = 0
    sessions_made: int = 0
    sessions_lost: int = 0


def salvage(directory: str, fresh: str, now: float) -> Salvaged:
    """Save what the store of a directory still holds into a new database, whole and synced.

    Raise StoreUnusableError where not even its tables can be told.
    """
    path = database_path(directory)
    saved = Salvaged()
    try:
        with closing(_open(path)) as old, closing(_create(fresh)) as new:
            refuse_unknown(old, path)
            later = _make_tables(old, new)
            new.execute("BEGIN")
            for table in _tables(new):
                _copy(old, new, table, saved)
            _copy_agents(old, new)
            saved.sessions_made, saved.sessions_lost = copy_sessions(old, new)
            saved.rows["sessions"] += saved.sessions_made
            _drop_broken(new)
            _mend(new, saved, now)
            saved.values = new.execute("SELECT count(*) FROM blobs").fetchone()[0]
            for statement in later:
                new.execute(statement)
            _age(new, now)
            new.execute("COMMIT")
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorname", "") or "damaged"
        raise StoreUnusableError(
            f"{path}: nothing in it can be read any more ({code}): nothing was touched. "
            "`brainsurgeon store restore FILE` puts a backup in its place"
        ) from error
    descriptor = os.open(fresh, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return saved


def _open(path: str) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None)
    for pragma in ("query_only = ON", "trusted_schema = OFF", "cell_size_check = ON"):
        connection.execute(f"PRAGMA {pragma}")
    return connection


def _create(path: str) -> sqlite3.Connection:
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    os.close(os.open(path, flags, 0o600))
    connection = sqlite3.connect(path, isolation_level=None)
    for pragma in (f"page_size = {PAGE}", "auto_vacuum = INCREMENTAL", "synchronous = OFF"):
        connection.execute(f"PRAGMA {pragma}")
    return connection


def _make_tables(old: sqlite3.Connection, new: sqlite3.Connection) -> list[str]:
    """Make the tables as the old database has them; give what is to be made when they are full."""
    new.execute(f"PRAGMA application_id = {old.execute('PRAGMA application_id').fetchone()[0]}")
    later = []
    for kind, _, statement in old.execute(_OURS).fetchall():
        if kind == "table":
            new.execute(statement)
        else:
            later.append(statement)
    return later


def _tables(new: sqlite3.Connection) -> list[str]:
    names = [name for kind, name, _ in new.execute(_OURS) if kind == "table"]
    return [name for name in names if name not in _LEFT_OUT]


def _copy(
    old: sqlite3.Connection, new: sqlite3.Connection, table: str, saved: Salvaged
) -> None:  # fmt: skip
    columns = [row[1] for row in new.execute(f'PRAGMA table_info("{table}")')]
    listed = ", ".join(f'"{name}"' for name in columns)
    slots = ", ".join("?" * len(columns))
    put = f'INSERT OR IGNORE INTO "{table}" ({listed}) VALUES ({slots})'  # noqa: S608
    saved.rows[table] = 0
    for row in _rows(old, table, listed):
        try:
            took = 0 if row is None else new.execute(put, row).rowcount
        except sqlite3.Error:  # damage that looked like a row
            took = 0
        saved.rows[table] += took
        if not took:
            saved.unread.add(table)
    if saved.rows[table] and _sequence(new, table):
        new.execute(
            "UPDATE sqlite_sequence SET seq = max(seq, ?) WHERE name = ?",
            (_sequence(old, table), table),
        )


def _copy_agents(old: sqlite3.Connection, new: sqlite3.Connection) -> None:
    """Save the agents that could not be read by the index of their directories.

    Few pages hold all of them, and all else leads to one. What one is called is said again when
    one of its sessions is next seen.
    """
    named = "SELECT id, directory FROM agents INDEXED BY sqlite_autoindex_agents_1"
    with suppress(sqlite3.Error):
        new.executemany(
            "INSERT OR IGNORE INTO agents (id, directory, name) VALUES (?1, ?2, ?3)",
            [(ident, where, os.path.basename(os.fsdecode(where)))
             for ident, where in old.execute(named)],
        )  # fmt: skip


def _rows(old: sqlite3.Connection, table: str, columns: str) -> Iterator[tuple[Any, ...] | None]:
    """Yield the rows of a table, and None for each row id that may have been one."""
    last = 0
    query = f'SELECT rowid, {columns} FROM "{table}"'  # noqa: S608
    try:
        for row in old.execute(f"{query} ORDER BY rowid"):
            last = row[0]
            yield row[1:]
    except sqlite3.Error:
        spans = [(last + 1, _highest(old, table, last))]
    else:
        return
    while spans:
        low, high = spans.pop()
        last = low - 1
        try:
            for row in old.execute(f"{query} WHERE rowid BETWEEN ? AND ?", (low, high)):
                last = row[0]
                yield row[1:]
        except sqlite3.Error:
            if last + 1 >= high:
                yield None
            else:
                middle = (last + 1 + high) // 2
                spans += [(middle + 1, high), (last + 1, middle)]


def _highest(old: sqlite3.Connection, table: str, last: int) -> int:
    """Give the highest row id that a table may have."""
    try:
        return int(old.execute(f'SELECT max(rowid) FROM "{table}"').fetchone()[0])  # noqa: S608
    except sqlite3.Error:
        return _sequence(old, table) or last + _BEYOND


def _sequence(connection: sqlite3.Connection, table: str) -> int:
    """Give the highest row id that was ever used in a table, or 0 where that is not kept."""
    try:
        row = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = ?", (table,))
        return int((row.fetchone() or (0,))[0])
    except sqlite3.Error:
        return 0


def _drop_broken(new: sqlite3.Connection) -> None:
    """Let go of values that are not what was stored."""
    blobs = Blobs(new)
    for ident, name in blobs.named():
        try:
            blobs.get(ident, name)
        except DamagedError:
            new.execute("DELETE FROM blobs WHERE id = ?", (ident,))


def _mend(new: sqlite3.Connection, saved: Salvaged, now: float) -> None:
    """Make every row lead to what is there: tombstones for lost values, nothing for lost parents.

    What a lost session or agent had leads nowhere, and goes; what a lost pass made stays.
    """
    lost = new.execute(
        "UPDATE extractions SET blob_id = NULL, state = 'expired', expired_at = ?, expired_why = ?"
        " WHERE blob_id IS NOT NULL AND blob_id NOT IN (SELECT id FROM blobs)",
        (now, LOST),
    )
    saved.values_lost = lost.rowcount
    for table, column, others in _MAY_LACK:
        if column in {row[1] for row in new.execute(f"PRAGMA table_info({table})")}:
            new.execute(
                f"UPDATE {table} SET {column} = NULL"  # noqa: S608
                f" WHERE {column} NOT IN (SELECT id FROM {others})"
            )
    while broken := new.execute("PRAGMA foreign_key_check").fetchall():
        for table, row, *_ in broken:
            gone = new.execute(f'DELETE FROM "{table}" WHERE rowid = ?', (row,))  # noqa: S608
            saved.rows[table] -= gone.rowcount
            saved.unread.add(table)


def _age(new: sqlite3.Connection, now: float) -> None:
    """Say again what retention is found by, where this store has that."""
    if {"ages", "loose"} <= {name for _, name, _ in new.execute(_OURS)}:
        new.execute(
            "INSERT INTO ages SELECT session_id, min(extracted_at),"
            " min(max(extracted_at, sighted_at))"
            " FROM extractions WHERE blob_id IS NOT NULL GROUP BY session_id"
        )
        new.execute(
            "INSERT INTO loose SELECT id, ? FROM blobs"
            " WHERE NOT EXISTS (SELECT 1 FROM extractions WHERE blob_id = blobs.id)",
            (now,),
        )
