"""Copy the readable rows of a damaged database into a new one.

A damaged page hides the rows on it and no others, so each table is read in ranges of row ids that
are halved around the pages that cannot be read. A value is kept only if its digest is right; the
record of a lost value stays as a tombstone. Lost rows that others refer to are re-created.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from brainsurgeon.errors import DamagedError, StoreUnusableError
from brainsurgeon.model.entries import unnumbered
from brainsurgeon.model.turns import LINK
from brainsurgeon.store.blobs import Blobs
from brainsurgeon.store.columns import key_path_text, path_text
from brainsurgeon.store.database import connect, create_schema, database_path, refuse_unknown

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


# How many row ids after the last readable one are tried where the highest is unknown.
_BEYOND = 100_000
_INDEXES = {
    "directory": "sqlite_autoindex_agents_1",
    "path": "sqlite_autoindex_sessions_1",
    "identity": "sessions_identity",
}
_Row = tuple[Any, ...]


def in_ranges(old: sqlite3.Connection, table: str, columns: str) -> Iterator[_Row | None]:
    """Yield the readable rows of a table, and None for each row id that may have been a row."""
    query = f"SELECT rowid, {columns} FROM {table}"  # noqa: S608
    last = 0
    try:
        for row in old.execute(f"{query} ORDER BY rowid"):
            last = row[0]
            yield row[1:]
    except sqlite3.Error:
        ranges = [(last + 1, _highest(old, table, last))]
    else:
        return
    while ranges:
        low, high = ranges.pop()
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
                ranges += [(middle + 1, high), (last + 1, middle)]


def _highest(old: sqlite3.Connection, table: str, last: int) -> int:
    """Return the highest row id that a table may have."""
    try:
        return int(old.execute(f"SELECT max(rowid) FROM {table}").fetchone()[0])  # noqa: S608
    except sqlite3.Error:
        return sequences(old).get(table) or last + _BEYOND


def from_both_ends(
    old: sqlite3.Connection, source: str, columns: str, key: Iterable[str]
) -> Iterator[_Row | None]:  # fmt: skip
    """Yield the rows before the first damaged page and after the last, and None for a gap."""
    for direction in ("ASC", "DESC"):
        order = ", ".join(f'"{column}" {direction}' for column in key)
        try:
            yield from old.execute(f"SELECT {columns} FROM {source} ORDER BY {order}")  # noqa: S608
        except sqlite3.Error:
            yield None
        else:
            return


def by_index(old: sqlite3.Connection, table: str, column: str) -> dict[int, bytes]:
    """Return the readable values of a column, by row id, from its index alone."""
    source, columns = f"{table} INDEXED BY {_INDEXES[column]}", f'id, CAST("{column}" AS BLOB)'
    rows = from_both_ends(old, source, columns, [column])
    return {row[0]: row[1] for row in rows if row and type(row[0]) is int and row[1] is not None}


def sequences(connection: sqlite3.Connection) -> dict[str, int]:
    """Return the highest row ids ever used, by table; empty if they cannot be read."""
    try:
        return dict(connection.execute("SELECT name, seq FROM sqlite_sequence"))
    except sqlite3.Error:
        return {}


# Why a value is gone, as its tombstone says.
LOST = "lost with a damaged store"
# Stands for lost paths. It is absolute since an empty path means the working directory, and an
# agent that works there could see the sessions of others.
_NOWHERE = b"/lost-with-a-damaged-store"
# Memories of the scan. Without them the next scan reads every file.
_LEFT_OUT = frozenset({"files", "resumes"})
_TABLES = (
    "SELECT name, wr FROM pragma_table_list"
    " WHERE schema = 'main' AND type = 'table' AND substr(name, 1, 7) != 'sqlite_'"
)
_REFERENCES = (
    'SELECT t.name, r."from", r."table", c."notnull" OR c.pk FROM pragma_table_list t'
    ' JOIN pragma_foreign_key_list(t.name) r JOIN pragma_table_info(t.name) c ON c.name = r."from"'
    " WHERE t.schema = 'main'"
)


@dataclass(slots=True)
class Salvaged:
    """Counts of a salvage: copied rows by table, and stored values.

    `unread` are the tables of which rows are missing, `sessions_made` the sessions whose rows were
    lost and re-created.
    """

    rows: dict[str, int] = field(default_factory=dict)
    unread: set[str] = field(default_factory=set)
    values: int = 0
    values_lost: int = 0
    sessions_made: int = 0


def salvage(directory: str, fresh: str, now: float) -> Salvaged:
    """Copy the readable rows of a directory's store into a new, synced database at `fresh`.

    Raises StoreUnusableError if the database is another program's or of another version, or if
    its list of tables cannot be read.
    """
    path = database_path(directory)
    saved = Salvaged()
    try:
        with closing(connect(path, "ro")) as old, closing(_create(fresh)) as new:
            refuse_unknown(old, path)
            new.execute("BEGIN")
            for table, without_rowid in new.execute(_TABLES).fetchall():
                if table not in _LEFT_OUT:
                    _copy(old, new, table, saved, ordered=without_rowid)
            _copy_sequences(old, new)
            saved.values_lost = _bury_lost_values(new, now)
            _complete_placeholders(new)
            saved.sessions_made = _recreate_sessions(old, new)
            _mend_references(new, saved)
            _complete_placements(new, harmed="placements" in saved.unread)
            saved.values = new.execute("SELECT count(*) FROM blobs").fetchone()[0]
            new.execute("COMMIT")
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorname", "") or "damaged"
        raise StoreUnusableError(
            f"{path}: nothing in it can be read any more ({code}): nothing was touched. "
            "`brainsurgeon store restore FILE` puts a backup in its place"
        ) from error
    return saved


def _create(path: str) -> sqlite3.Connection:
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    os.close(os.open(path, flags, 0o600))
    connection = connect(path, "rw")
    connection.execute("PRAGMA foreign_keys = OFF")  # rows may arrive before those they refer to
    create_schema(connection)
    return connection


def _copy(
    old: sqlite3.Connection, new: sqlite3.Connection, table: str, saved: Salvaged, *, ordered: bool
) -> None:  # fmt: skip
    """Copy the readable rows of a table; `ordered` if it has no row ids."""
    info = new.execute(f"PRAGMA table_info({table})").fetchall()
    columns = ", ".join(f'"{row[1]}"' for row in info)
    key = [row[1] for row in sorted(info, key=lambda row: int(row[5])) if row[5]]
    rows = from_both_ends(old, table, columns, key) if ordered else in_ranges(old, table, columns)
    put = f"INSERT OR IGNORE INTO {table} VALUES ({', '.join('?' * len(info))})"  # noqa: S608
    saved.rows[table] = 0
    for row in rows:
        try:
            added = 0 if row is None else new.execute(put, row).rowcount
        except sqlite3.Error:  # damage that looked like a row
            added = 0
        saved.rows[table] += added
        if not added:
            saved.unread.add(table)


def _copy_sequences(old: sqlite3.Connection, new: sqlite3.Connection) -> None:
    """Prevent that row ids of the old database are used again, also those of lost rows."""
    used = sequences(new)
    for table, highest in sequences(old).items():
        new.execute("DELETE FROM sqlite_sequence WHERE name = ?", (table,))
        seq = max(highest, used.get(table, 0))
        new.execute("INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?)", (table, seq))


def _bury_lost_values(new: sqlite3.Connection, now: float) -> int:
    """Delete damaged values, and turn the records of lost ones into tombstones; return how many."""
    blobs = Blobs(new)
    for ident, digest in blobs.named():
        try:
            blobs.get(ident, digest)
        except DamagedError:
            new.execute("DELETE FROM blobs WHERE id = ?", (ident,))
    lost = new.execute(
        "UPDATE extractions SET blob_id = NULL, expired_at = ?, expired_why = ?"  # noqa: S608
        f" WHERE {_dangling('blob_id', 'blobs')}",
        (now, LOST),
    )
    return lost.rowcount


def _complete_placeholders(new: sqlite3.Connection) -> None:
    """Re-create lost placeholders, so that none is given out again for another value.

    Call it while extractions still refer to lost archives.
    """
    named = new.execute(
        "SELECT name, path, digest FROM extractions"
        " WHERE replacement IS NULL OR (archive_id IS NOT NULL AND path != ?)",
        (key_path_text(LINK),),
    )
    new.executemany(
        "INSERT OR IGNORE INTO placeholders (id, number, path, digest) VALUES (?, ?, ?, ?)",
        ((*_id_and_number(name), path, digest) for name, path, digest in named),
    )


def _id_and_number(name: str) -> tuple[str, int]:
    ident = unnumbered(name)
    number = name[len(ident) + 1 :]
    return (ident, int(number)) if number.isdecimal() else (name, 1)


def _recreate_sessions(old: sqlite3.Connection, new: sqlite3.Connection) -> int:
    """Re-create lost sessions that other rows refer to, and lost agents; return how many sessions.

    Indexes lie on other pages and may still hold the path and the identity of a session, by which
    it is found again, and the directory of an agent. The next scan corrects names and roots.
    """
    new.executemany(
        "INSERT OR IGNORE INTO agents (id, directory, name) VALUES (?, ?, ?)",
        (
            (agent, directory, path_text(os.path.basename(os.fsdecode(directory))))
            for agent, directory in by_index(old, "agents", "directory").items()
        ),
    )
    agents = new.execute("SELECT directory, id FROM agents").fetchall()
    paths, identities = (by_index(old, "sessions", column) for column in ("path", "identity"))
    lost = _lost_sessions(new)
    for session in lost:
        path = paths.get(session)
        if new.execute("SELECT 1 FROM sessions WHERE path = ?", (path,)).fetchone():
            path = None  # the index is damaged, too
        last = path or b"%s/%d" % (_NOWHERE, session)
        around = ((len(one[0]), *one) for one in agents if last.startswith(one[0] + b"/"))
        _, directory, agent = max(around, default=(0, _NOWHERE, 0))
        name = os.path.basename(os.fsdecode(last).partition("\0")[0]).removesuffix(".jsonl")
        new.execute(
            "INSERT INTO sessions (id, agent_id, name, path, last_path, root, format, identity)"
            " VALUES (?, ?, ?, ?, ?, ?, '', CAST(? AS TEXT))",
            (session, agent, path_text(name), path, last, os.path.dirname(directory),
             identities.get(session)),
        )  # fmt: skip
    new.execute(
        "INSERT INTO agents SELECT DISTINCT agent_id, CAST(? || '/agent-' || agent_id AS BLOB),"
        " 'lost-' || agent_id FROM sessions WHERE agent_id NOT IN (SELECT id FROM agents)",
        (_NOWHERE.decode(),),
    )
    return len(lost)


def _lost_sessions(new: sqlite3.Connection) -> set[int]:
    return {
        session
        for table, column, parent, _ in new.execute(_REFERENCES).fetchall()
        if parent == "sessions"
        for (session,) in new.execute(
            f"SELECT {column} FROM {table} WHERE {_dangling(column, parent)}"  # noqa: S608
        )
    }


def _dangling(column: str, parent: str) -> str:
    return f"{column} IS NOT NULL AND {column} NOT IN (SELECT id FROM {parent})"  # noqa: S608


def _mend_references(new: sqlite3.Connection, saved: Salvaged) -> None:
    """Forget each reference to a lost row, or delete the row if it needs the lost one.

    A request that rolls back a run needs it: without the run it would restore everything.
    """
    for table, column, parent, needed in new.execute(_REFERENCES).fetchall():
        dangling = f"WHERE {_dangling(column, parent)}"
        if needed or column == "rolls_back":
            gone = new.execute(f"DELETE FROM {table} {dangling}").rowcount  # noqa: S608
            saved.rows[table] -= gone
            saved.unread |= {table} if gone else set()
        else:
            new.execute(f"UPDATE {table} SET {column} = NULL {dangling}")  # noqa: S608
    # When in doubt a rewrite counts, as in recovery: a record without a placeholder does no harm.
    unknown = f"WHERE {_dangling('journal_id', 'journal')}"
    new.execute(f"UPDATE extractions SET journal_id = NULL {unknown}")  # noqa: S608
    new.execute(f"UPDATE fields SET journal_id = NULL, state = 'standing' {unknown}")  # noqa: S608


def _complete_placements(new: sqlite3.Connection, *, harmed: bool) -> None:
    """Assume that values stand in their own sessions where it is not known in which they stand.

    Otherwise retention could delete them early; the next scan removes what is wrong. `harmed` if
    any placement may be missing: then a value may have lost some although others are there.
    """
    new.execute(
        "INSERT OR IGNORE INTO placements (session_id, extraction_id)"
        " SELECT session_id, id FROM extractions e"
        " WHERE blob_id IS NOT NULL AND journal_id IS NULL AND unplaced_at IS NULL"
        " AND (? OR NOT EXISTS (SELECT 1 FROM placements p WHERE p.extraction_id = e.id))",
        (harmed,),
    )
