"""Copy a store to or from a backup file, replace its database, or remove the store."""

import glob
import json
import os
import secrets
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext, suppress
from itertools import count
from tempfile import TemporaryDirectory

from brainsurgeon.errors import StoreFullError, StoreUnusableError, UsageError
from brainsurgeon.model.reports import StoreCopy
from brainsurgeon.model.text import counted
from brainsurgeon.store import database
from brainsurgeon.store.extractions import Blobs, renumber
from brainsurgeon.store.schema import ADDED

# Values copied by one statement. Meanwhile, other processes cannot write to the store.
_BATCH = 100
# Seconds to wait for rewrites and for a store in use. SQLite tries only ten times a second, and may
# often miss the gaps between other processes' commits.
_BACKUP_LOCK_SECONDS = 60.0


def write_copy(directory: str, target: str, *, force: bool = False) -> StoreCopy:
    """Copy a store to a file, and check the copy.

    Raises BusyError if rewrites of sessions do not end within a minute.
    """
    _refuse_target(directory, target, force=force)
    path = database.database_path(directory)
    if not database.may_exist(directory):
        raise UsageError(
            f"{directory}: there is no store yet to copy; `brainsurgeon scan` begins it"
        )
    database.open_database(directory).close()
    fresh = f"{target}.{secrets.token_hex(8)}.new"
    try:
        with database.translated(directory):
            _copy_database(path, fresh, database.hold_sessions(directory, _BACKUP_LOCK_SECONDS))
            values = check_copy(fresh)
        _refuse_target(directory, target, force=force)  # again: copying takes time
        os.rename(fresh, target)
        database.sync_directory(os.path.dirname(target))
    finally:
        with suppress(FileNotFoundError, PermissionError):
            os.unlink(fresh)
    return StoreCopy(target, os.stat(target).st_size, values)


def refuse_source(source: str) -> None:
    """Raise UsageError if a backup cannot be a file that this user may read."""
    try:
        is_file = stat.S_ISREG(os.stat(source).st_mode)
    except FileNotFoundError:
        is_link = os.path.islink(source)
        why = "a link to a file that is not there" if is_link else "no such file"
    except OSError as error:
        why = error.strerror or type(error).__name__
    else:
        if is_file and os.access(source, os.R_OK, effective_ids=True):
            return
        why = "this user may not read it" if is_file else "not a regular file"
    raise UsageError(f"{source}: {why}; nothing was changed. Name another file")


def copy_backup(source: str, path: str) -> int:
    try:
        with closing(database.connect(source, "ro")) as opened:
            why, _ = database.why_unknown(opened) or ("", "")
        if not why:
            _copy_database(source, path, nullcontext())
            values, why = _checked(path)
            if not why:
                return values
    except sqlite3.OperationalError as error:
        raise StoreUnusableError(
            f"{source} cannot be copied ({_code(error)}): the store is as it was. If "
            "this is for lack of permission, run as the file's owner"
        ) from error
    except sqlite3.DatabaseError as error:
        why = f"is damaged or no backup ({_code(error)})"
    raise StoreUnusableError(
        f"{source} {why}: it is not used, and the store is as it was. Name another backup"
    )


def _code(error: sqlite3.Error) -> str:
    return getattr(error, "sqlite_errorname", str(error))  # Python's own errors have none


def _copy_database(source: str, path: str, no_rewrites: AbstractContextManager[None]) -> None:
    """Copy a store to a new file while other processes write to it.

    A value never changes, and its row id is never reused. So values are copied a few at a time. All
    other tables are then copied in one transaction inside `no_rewrites`, which takes about a second
    for a million rows. This transaction also adds new values and removes deleted ones.
    """
    refuse_without_room(os.path.dirname(path), os.stat(source).st_size)
    descriptor = database.create_file(path)
    try:
        with closing(database.connect(path, "rw")) as copy:
            copy.execute("PRAGMA journal_mode = OFF")
            copy.execute("PRAGMA synchronous = OFF")  # synced once, at the end
            copy.execute("PRAGMA foreign_keys = OFF")  # a row may precede a row it refers to
            copy.execute(f"PRAGMA busy_timeout = {_BACKUP_LOCK_SECONDS * 1000:.0f}")
            database.create_schema(copy)
            copy.execute("ATTACH ? AS old", (database.address(source, "ro"),))
            tables = copy.execute(  # without those that other programs added to the store
                "SELECT name FROM main.sqlite_schema WHERE type = 'table'"
                " AND name NOT IN ('blobs', 'sqlite_sequence')"
                " AND (name NOT IN (SELECT value FROM json_each(?))"
                " OR name IN (SELECT name FROM old.sqlite_schema))",
                (json.dumps(list(ADDED)),),
            ).fetchall()
            _copy_values(copy)
            with no_rewrites:
                copy.execute("BEGIN")
                for (table,) in tables:
                    copy.execute(f"INSERT INTO {table} SELECT * FROM old.{table}")  # noqa: S608
                _copy_values(copy)
                copy.execute("DELETE FROM blobs WHERE id NOT IN (SELECT id FROM old.blobs)")
                copy.execute("DELETE FROM sqlite_sequence")
                copy.execute("INSERT INTO sqlite_sequence SELECT * FROM old.sqlite_sequence")
                copy.execute("COMMIT")
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _copy_values(copy: sqlite3.Connection) -> None:
    added = _BATCH
    while added == _BATCH:
        # If this were a subquery, SQLite would copy the values to a temporary file first.
        newest = copy.execute("SELECT coalesce(max(id), 0) FROM main.blobs").fetchone()[0]
        added = copy.execute(
            "INSERT INTO blobs SELECT * FROM old.blobs WHERE id > ? ORDER BY id LIMIT ?",
            (newest, _BATCH),
        ).rowcount


def check_copy(path: str) -> int:
    """Return the number of values of a sound copy. Raises StoreUnusableError."""
    values, why = _checked(path)
    if why:
        raise StoreUnusableError(
            f"{path} {why}; it is not used. `brainsurgeon doctor` checks the store itself"
        )
    return values


def _checked(path: str) -> tuple[int, str]:
    """Return the number of values of a copy, and why it is not sound."""
    with closing(database.connect(path, "ro")) as connection:
        if connection.execute("PRAGMA integrity_check(1)").fetchone()[0] != "ok":
            return 0, "is damaged"
        if connection.execute("PRAGMA foreign_key_check").fetchone():
            return 0, "has rows that refer to missing rows"
        values, damaged = Blobs(connection).check_all()
        return values, f"has {counted(len(damaged), 'damaged value')}" if damaged else ""


def _refuse_target(directory: str, target: str, *, force: bool) -> None:
    parent = os.path.dirname(target)
    try:
        os.stat(os.path.join(parent, ""))
    except FileNotFoundError:
        why = f"{parent}: no such directory; make it, or name another file"
        raise UsageError(why) from None
    except OSError as error:
        raise UsageError(f"{parent}: {error.strerror}; name another file") from error
    if os.path.isdir(target):
        raise UsageError(f"{target} is a directory; name a file in it")
    if os.path.exists(target) and not os.path.isfile(target):
        raise UsageError(f"{target} is not a regular file; name another file")
    with suppress(OSError):
        if os.path.samefile(target, database.database_path(directory)):
            raise UsageError(f"{target} is the store itself; name another file")
    if os.path.lexists(target) and not force:
        raise UsageError(f"{target} is there already; --force replaces it")


def refuse_without_room(directory: str, needed: int) -> None:
    if not os.access(directory, os.W_OK | os.X_OK):
        raise UsageError(f"{directory}: cannot be written by this user; name another directory")
    left = database.free(directory)
    if left is not None and left < needed + database.NONE_LEFT:
        raise StoreFullError(
            f"{directory}: {needed:,} bytes are needed and {left:,} are left; make room"
        )


def staging(directory: str) -> TemporaryDirectory[str]:
    _remove_staged(directory)
    return TemporaryDirectory(prefix=database.STAGED, dir=directory, ignore_cleanup_errors=True)


def _remove_staged(directory: str) -> None:
    """Clean up after killed commands. The caller must have exclusive access to the store."""
    for place in glob.glob(os.path.join(glob.escape(directory), f"{database.STAGED}*")):
        with suppress(OSError):
            for path in glob.glob(os.path.join(glob.escape(place), "store.db*")):
                os.unlink(path)
            os.rmdir(place)


def put_in_place(directory: str, fresh: str, suffix: str) -> str | None:
    """Install a complete, synced database; return the new path of the old one, if there was one.

    An old database is replaced atomically. A process that has it open notices this in its next
    transaction, before it writes. The caller must have exclusive access to the store.
    """
    path = database.database_path(directory)
    with closing(database.connect(fresh, "rw")) as connection:
        renumber(connection)
    kept = None
    if os.path.lexists(path):
        names = (f"{path}.{suffix}" + (f"-{n}" if n > 1 else "") for n in count(1))
        kept = next(name for name in names if not os.path.lexists(name))
    with _writers_locked_out(directory):
        if kept:
            os.link(path, kept)
            if os.path.lexists(path + "-journal"):  # the database is too damaged to roll back
                os.rename(path + "-journal", kept + "-journal")
        os.rename(fresh, path)
        database.sync_directory(directory)
    return kept


def remove(directory: str) -> list[str]:
    """Remove the store's files from a directory not in use. Return the names of the rest."""
    _remove_staged(directory)
    with _writers_locked_out(directory):
        for name in sorted(os.listdir(directory)):
            if database.STORE_FILES.fullmatch(name):
                os.unlink(os.path.join(directory, name))
    left = sorted(os.listdir(directory))
    if not left:
        with suppress(OSError):
            os.rmdir(directory)
    return left


@contextmanager
def _writers_locked_out(directory: str) -> Iterator[None]:
    """Lock other processes out of the database, unless it is too damaged to be locked."""
    path = database.database_path(directory)
    held: sqlite3.Connection | None = None
    try:
        if os.path.exists(path):
            held = database.connect(path, "rw")
            held.execute("BEGIN EXCLUSIVE")
    except sqlite3.OperationalError as error:
        raise database.explain(error, directory) from error
    except sqlite3.DatabaseError:
        if held:
            held.close()
        held = None
    try:
        yield
    except OSError as error:
        raise StoreUnusableError(
            f"{directory} cannot be changed: {error.strerror}; remove the cause and try again"
        ) from error
    finally:
        if held:
            held.close()
