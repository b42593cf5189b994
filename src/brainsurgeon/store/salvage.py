"""Copy the readable rows of a damaged database into a new one.

A scan of a damaged table may end early without an error. So every row id (or session id) is looked
up. Lost and wrong values become tombstones. Pages of an empty store replace a damaged schema.
"""

import os
import shutil
import sqlite3
from collections.abc import Generator, Iterable
from contextlib import closing, suppress
from typing import Any

from msgspec import Struct, field

from brainsurgeon.errors import BusyError, StoreDamagedError, StoreUnusableError
from brainsurgeon.store.backup import refuse_without_room
from brainsurgeon.store.database import (
    PAGE,
    connect,
    create_file,
    create_schema,
    database_path,
    explain,
    path_text,
    refuse_unknown,
)
from brainsurgeon.store.extractions import Blobs
from brainsurgeon.store.schema import ADDED

_BEYOND = 10_000  # row ids to try after the highest known one, if a query failed
_MOST = 100_000_000  # highest row id to try: a damaged row id may be any number
_INDEXES = {"path": "sqlite_autoindex_sessions_1", "identity": "sessions_identity"}
LOST = "lost with a damaged store"
# Replaces lost paths. An empty path would mean the working directory, and an agent that works there
# could see sessions of other agents.
NOWHERE = b"/lost-with-a-damaged-store"
# The next scan fills these again. Only the costs of deleted sessions are lost, and figures: what is
# padded, and how often a value stands.
_LEFT_OUT = frozenset({
    "files", "resumes", "row_columns", "spending", "counted_calls", *ADDED,
})  # fmt: skip
_TABLES = (
    "SELECT name, wr FROM pragma_table_list"
    " WHERE schema = 'main' AND type = 'table' AND substr(name, 1, 7) != 'sqlite_'"
)
_REFERENCES = (
    'SELECT t.name, r."from", r."table", c."notnull" OR c.pk FROM pragma_table_list t'
    ' JOIN pragma_foreign_key_list(t.name) r JOIN pragma_table_info(t.name) c ON c.name = r."from"'
    " WHERE t.schema = 'main'"
)
_SCHEMA_NAMES = "SELECT name, tbl_name FROM sqlite_schema WHERE rootpage > 0"
_POINTER_MAP = 2  # the page of the pointer map in a database with auto_vacuum
_Row = tuple[Any, ...]


def by_number(
    old: sqlite3.Connection, table: str, columns: str, column: str, highest: int
) -> Generator[_Row | None, None, None]:  # fmt: skip
    """Look up each number up to `highest` in a column; yield its rows, or None on an error."""
    query = f"SELECT {columns} FROM {table} WHERE {column} = ?"  # noqa: S608
    for number in range(1, highest + 1):
        try:
            yield from old.execute(query, (number,))
        except sqlite3.Error:
            yield None


def highest_row_id(old: sqlite3.Connection, table: str, references: Iterable[_Row] = ()) -> int:
    sources = [("rowid", table), *((row[1], row[0]) for row in references if row[2] == table)]
    known = [sequences(old).get(table, 0)]
    for column, source in sources:
        try:
            [(row_id,)] = old.execute(f'SELECT max("{column}") FROM {source}')  # noqa: S608
            known.append(row_id if isinstance(row_id, int) else 0)
        except sqlite3.Error:
            known.append(max(known) + _BEYOND)
    return min(max(known), _MOST)


def by_index(old: sqlite3.Connection, column: str) -> dict[int, bytes]:
    values: dict[int, bytes] = {}
    for direction in ("ASC", "DESC"):
        query = (
            f'SELECT id, CAST("{column}" AS BLOB) FROM sessions INDEXED BY {_INDEXES[column]}'  # noqa: S608
            f' WHERE "{column}" IS NOT NULL ORDER BY "{column}" {direction}'
        )
        with suppress(sqlite3.Error):
            values.update(row for row in old.execute(query) if type(row[0]) is int)
            break
    return values


def sequences(connection: sqlite3.Connection) -> dict[str, int]:
    try:
        return dict(connection.execute(
            "SELECT name, seq FROM sqlite_sequence"
            " WHERE typeof(name) = 'text' AND typeof(seq) = 'integer'"
        ))  # fmt: skip
    except sqlite3.Error:
        return {}


class Salvaged(Struct):
    rows: int = 0  # except those of stored values
    unread: set[str] = field(default_factory=set)  # tables with missing rows
    values: int = 0
    values_lost: int = 0
    sessions_made: int = 0


def salvage(directory: str, fresh: str, now: float) -> Salvaged:
    """Copy the readable rows of a directory's store into a new, synced database at `fresh`.

    Raises StoreFullError if the disk is full, BusyError if another process is writing, and
    StoreUnusableError if the disk fails, the database has another version, or no value of a damaged
    schema can be read.
    """
    path, mended = database_path(directory), f"{fresh}.mended"
    code = "damaged"
    try:
        with closing(sqlite3.connect(":memory:", isolation_level=None)) as empty:
            create_schema(empty)
            refuse_without_room(os.path.dirname(fresh), os.stat(path).st_size)
            names = {row for row in empty.execute(_SCHEMA_NAMES) if row[1] not in ADDED}
            if _has_schema(path, names):
                return _copy_rows(path, fresh, now)
            refuse_without_room(os.path.dirname(fresh), 2 * os.stat(path).st_size)
            _mend_schema(path, mended, empty)
        saved = _copy_rows(mended, fresh, now)
        if saved.values:
            return saved
    except sqlite3.Error as error:
        why = explain(error, directory)
        if not isinstance(why, StoreDamagedError):
            raise why from error  # a full disk, for example
        code = getattr(error, "sqlite_errorname", "") or code
    finally:
        with suppress(FileNotFoundError):
            os.unlink(mended)
    raise StoreUnusableError(
        f"{path}: no stored value in it can be read any more ({code}); nothing was touched. "
        "`brainsurgeon store restore FILE` puts a backup in its place"
    )


def _has_schema(path: str, names: set[_Row]) -> bool:
    try:
        with closing(connect(path, "ro")) as old:
            refuse_unknown(old, path)
            return names <= set(old.execute(_SCHEMA_NAMES))
    except sqlite3.Error as error:
        if isinstance(explain(error, os.path.dirname(path)), BusyError):
            raise
        return False


def _mend_schema(path: str, target: str, empty: sqlite3.Connection) -> None:
    data = empty.serialize()
    roots = {row[0] for row in empty.execute("SELECT rootpage FROM sqlite_schema")}
    with open(create_file(target), "r+b") as mended, open(path, "rb") as damaged:
        shutil.copyfileobj(damaged, mended)
        for page in range(1, len(data) // PAGE + 1):
            if page not in roots and page != _POINTER_MAP:
                mended.seek((page - 1) * PAGE)
                mended.write(data[(page - 1) * PAGE : page * PAGE])
        # The header now has the page count of the empty store. SQLite ignores this count and uses
        # the size of the file if these four bytes differ from the change counter.
        mended.seek(92)
        mended.write(b"\xff" * 4)


def _copy_rows(path: str, fresh: str, now: float) -> Salvaged:
    saved = Salvaged()
    os.close(create_file(fresh))
    with closing(connect(path, "ro")) as old, closing(connect(fresh, "rw")) as new:
        new.execute("PRAGMA foreign_keys = OFF")  # a row may precede a row it refers to
        create_schema(new)
        refuse_unknown(old, path)
        new.execute("BEGIN")
        references = new.execute(_REFERENCES).fetchall()
        sessions = highest_row_id(old, "sessions", references)
        for table, without_rowid in new.execute(_TABLES).fetchall():
            if table in _LEFT_OUT:
                continue
            info = new.execute(f"PRAGMA table_info({table})")
            columns = ", ".join(f'"{row[1]}"' for row in info)
            column, highest = "session_id", sessions
            if not without_rowid:
                column, highest = "rowid", highest_row_id(old, table, references)
            with closing(by_number(old, table, columns, column, highest)) as rows:
                _insert(new, table, rows, saved)
        # The row ids of the old database must never be reused, not even those of lost rows.
        used = sequences(new)
        for table, highest in sequences(old).items():
            new.execute("DELETE FROM sqlite_sequence WHERE name = ?", (table,))
            seq = max(highest, used.get(table, 0))
            new.execute("INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?)", (table, seq))
        saved.values_lost = _bury_lost_values(new, now)
        saved.sessions_made = _recreate_sessions(old, new)
        _mend_references(new, saved)
        _complete_placements(new, incomplete="placements" in saved.unread)
        saved.values = new.execute("SELECT count(*) FROM blobs").fetchone()[0]
        new.execute("COMMIT")
    return saved


def _insert(
    new: sqlite3.Connection, table: str, rows: Iterable[_Row | None], saved: Salvaged
) -> None:  # fmt: skip
    for row in rows:
        try:
            if row is None:
                saved.unread.add(table)
                continue
            put = f"INSERT OR IGNORE INTO {table} VALUES ({', '.join('?' * len(row))})"  # noqa: S608
            copied = new.execute(put, row).rowcount
            saved.rows += copied if table != "blobs" else 0
        except (sqlite3.IntegrityError, sqlite3.DataError):  # the row is damaged
            saved.unread.add(table)


def _bury_lost_values(new: sqlite3.Connection, now: float) -> int:
    for ident in Blobs(new).check_all()[1]:
        new.execute("DELETE FROM blobs WHERE id = ?", (ident,))
    lost = new.execute(
        "UPDATE extractions SET blob_id = NULL, expired_at = ?, expired_why = ?"  # noqa: S608
        f" WHERE {_dangling('blob_id', 'blobs')}",
        (now, LOST),
    )
    return lost.rowcount


def _recreate_sessions(old: sqlite3.Connection, new: sqlite3.Connection) -> int:
    """Create the lost sessions to which other rows refer.

    Paths and identities are read from indexes, on other pages than the rows. The next scan corrects
    names, roots and agents.
    """
    paths, identities = (by_index(old, column) for column in ("path", "identity"))
    lost = {
        session
        for table, column, parent, _ in new.execute(_REFERENCES).fetchall()
        if parent == "sessions"
        for (session,) in new.execute(
            f"SELECT {column} FROM {table} WHERE {_dangling(column, parent)}"  # noqa: S608
        )
    }
    for session in lost:
        path = paths.get(session)
        if new.execute("SELECT 1 FROM sessions WHERE path = ?", (path,)).fetchone():
            path = None  # the index is damaged, too
        last = path or b"%s/%d" % (NOWHERE, session)
        name = os.path.basename(os.fsdecode(last).partition("\0")[0]).removesuffix(".jsonl")
        new.execute(
            "INSERT INTO sessions (id, agent, agent_directory, name, path, last_path, root, format,"
            " identity) VALUES (?, 'lost', ?, ?, ?, ?, ?, '', CAST(? AS TEXT))",
            (session, NOWHERE, path_text(name), path, last, NOWHERE, identities.get(session)),
        )
    return len(lost)


def _dangling(column: str, parent: str) -> str:
    return f"{column} IS NOT NULL AND {column} NOT IN (SELECT id FROM {parent})"  # noqa: S608


def _mend_references(new: sqlite3.Connection, saved: Salvaged) -> None:
    """Clear references to lost rows. Delete rows that need such a reference.

    A request to roll back a lost run is deleted: without the run, it would restore everything.
    """
    for table, column, parent, needed in new.execute(_REFERENCES).fetchall():
        dangling = f"WHERE {_dangling(column, parent)}"
        if needed or column == "rolls_back":
            gone = new.execute(f"DELETE FROM {table} {dangling}").rowcount  # noqa: S608
            saved.rows -= gone
            saved.unread |= {table} if gone else set()
        else:
            new.execute(f"UPDATE {table} SET {column} = NULL {dangling}")  # noqa: S608
    # A rewrite whose journal row is lost counts as completed: that does no harm.
    unknown = f"WHERE {_dangling('journal_id', 'journal')}"
    new.execute(f"UPDATE extractions SET journal_id = NULL {unknown}")  # noqa: S608
    new.execute(f"UPDATE fields SET journal_id = NULL, state = 'standing' {unknown}")  # noqa: S608


def _complete_placements(new: sqlite3.Connection, *, incomplete: bool) -> None:
    """Place each value in its own session if it has no placement, or if some are lost.

    A value without a placement could expire too early. The next scan corrects placements.
    """
    new.execute(
        "INSERT OR IGNORE INTO placements (session_id, extraction_id)"
        " SELECT session_id, id FROM extractions e"
        " WHERE blob_id IS NOT NULL AND journal_id IS NULL AND unplaced_at IS NULL"
        " AND (? OR NOT EXISTS (SELECT 1 FROM placements p WHERE p.extraction_id = e.id))",
        (incomplete,),
    )
