"""Copy a store to or from a single file, and check every value of the copy."""

from __future__ import annotations

import os
import secrets
import shutil
import sqlite3
from contextlib import closing, contextmanager, suppress
from itertools import count
from typing import TYPE_CHECKING

from brainsurgeon.errors import (
    DamagedError,
    StoreDamagedError,
    StoreFullError,
    StoreUnusableError,
    UsageError,
)
from brainsurgeon.model.reports import StoreCopy
from brainsurgeon.store import database
from brainsurgeon.store.blobs import Blobs
from brainsurgeon.store.database import (
    connect,
    database_path,
    explain,
    hold_sessions,
    read_database,
    refuse_unknown,
    sync_directory,
    translated,
)
from brainsurgeon.store.placeholders import renumber

if TYPE_CHECKING:
    from collections.abc import Iterator


# Pages copied at a time. If another process writes in between, the copy starts again.
_STEP = 4096
# EPERM, ENOSYS, EOPNOTSUPP: errors of filesystems without hard links.
_NO_LINKS = (1, 38, 95)


def write_copy(directory: str, target: str, *, force: bool = False) -> StoreCopy:
    """Copy the store of a directory to a file and check the copy; on failure leave no file behind.

    No rewrite is under way in the copy. An existing file is replaced only with `force`.
    """
    _refuse_target(directory, target, force=force)
    opened = read_database(directory)
    if opened is None:
        raise UsageError(f"{directory}: there is no store yet, so nothing to copy")
    fresh = f"{target}.{secrets.token_hex(8)}.new"
    with closing(opened) as source, hold_sessions(directory):
        try:
            with translated(directory):
                copy_database(source, fresh)
                values = check_copy(fresh)
            _put(fresh, target, force=force)
        finally:
            with suppress(FileNotFoundError):
                os.unlink(fresh)
    return StoreCopy(target, os.stat(target).st_size, values)


def take_copy(source: str, path: str) -> int:
    """Copy a backup to a new file and return the number of its values.

    Raises StoreUnusableError if it is damaged, no store or one of another version, UsageError if
    there is no such file.
    """
    if not os.path.isfile(source):
        raise UsageError(f"{source}: no such file")
    try:
        with closing(connect(source, "ro")) as opened:
            refuse_unknown(opened, source)
            copy_database(opened, path)
        return check_copy(path)
    except StoreUnusableError as why:
        told = str(why).replace(path, source).partition("; it is not used")[0]
        raise StoreUnusableError(
            f"{told.partition(': nothing')[0]}: it is not used, and the store is as it was. Name "
            "another backup"
        ) from why
    except sqlite3.OperationalError as error:
        raise StoreUnusableError(
            f"{source} cannot be read ({error.sqlite_errorname}): the store is as it was. Run as "
            "the user that it belongs to"
        ) from error
    except sqlite3.DatabaseError as error:
        raise StoreUnusableError(
            f"{source} is no sound store ({error.sqlite_errorname}): it is not used, and the store "
            "is as it was. Name another backup"
        ) from error


def is_damaged(directory: str) -> bool:
    """Check whether a directory has a store of this version whose database is damaged."""
    try:
        opened = read_database(directory)
        if opened is None:
            return False
        with closing(opened) as connection, translated(directory):
            return [row[0] for row in connection.execute("PRAGMA quick_check(1)")] != ["ok"]
    except StoreDamagedError:
        return True
    except StoreUnusableError:
        return False  # another program's, of another version, or not accessible


def copy_database(source: sqlite3.Connection, path: str) -> None:
    """Copy a database to a new file that only its owner can read, and sync it."""
    _refuse_without_room(source, os.path.dirname(path))
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o600)
    try:
        with closing(sqlite3.connect(path, isolation_level=None)) as target:
            target.execute("PRAGMA synchronous = OFF")  # it is synced once, when it is whole
            source.backup(target, pages=_STEP, sleep=0.01)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def check_copy(path: str) -> int:
    """Read a whole copy and return the number of its values.

    Raises StoreUnusableError if it is damaged, no store or one of another version.
    """
    with closing(connect(path, "ro")) as connection:
        refuse_unknown(connection, path)
        for wrong in problems(connection):
            raise StoreUnusableError(
                f"{path}: {wrong}; it is not used. `brainsurgeon doctor` looks at the store itself"
            )
        return int(connection.execute("SELECT count(*) FROM blobs").fetchone()[0])


def problems(connection: sqlite3.Connection) -> Iterator[str]:
    """Yield what is wrong with the pages, the rows and the values of a store."""
    if connection.execute("PRAGMA integrity_check(1)").fetchone()[0] != "ok":
        yield "the database is damaged"
        return
    if connection.execute("PRAGMA foreign_key_check").fetchone():
        yield "rows lead to what is not there"
    blobs, broken = Blobs(connection), 0
    for ident, name in blobs.named():
        try:
            blobs.get(ident, name)
        except DamagedError:
            broken += 1
    if broken:
        yield f"{broken} of its values are damaged"


def _refuse_target(directory: str, target: str, *, force: bool) -> None:
    around = os.path.dirname(target)
    if not os.path.isdir(around):
        raise UsageError(f"{around}: no such directory; make it, or name another file")
    if os.path.isdir(target):
        raise UsageError(f"{target} is a directory; name a file in it")
    if os.path.lexists(target):
        if _same(target, database_path(directory)):
            raise UsageError(f"{target} is the store itself; name another file")
        if not force:
            raise UsageError(f"{target} is there already; --force replaces it")


def _same(one: str, other: str) -> bool:
    try:
        return os.path.samefile(one, other)
    except OSError:
        return False


def _refuse_without_room(source: sqlite3.Connection, directory: str) -> None:
    pages = source.execute("PRAGMA page_count").fetchone()[0]
    refuse_without_room(directory, pages * source.execute("PRAGMA page_size").fetchone()[0])


def refuse_without_room(directory: str, needed: int) -> None:
    """Raise StoreFullError if fewer than `needed` bytes are free on the disk of a directory."""
    left = database.free(directory)
    if left is not None and left < needed + database.NONE_LEFT:
        raise StoreFullError(
            f"{directory}: {needed:,} bytes of room are needed and {left:,} are left; make room"
        )


def _put(fresh: str, target: str, *, force: bool) -> None:
    """Rename a file; an existing file of that name is replaced only with `force`."""
    if not force:
        try:
            os.link(fresh, target)  # unlike rename(2) it never replaces a file
        except FileExistsError:
            raise UsageError(f"{target} is there already; --force replaces it") from None
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            force = not os.path.lexists(target)
    if force:
        os.rename(fresh, target)
    sync_directory(os.path.dirname(target))


# The old database is kept beside it under another name. A process that still has it open notices at
# its next transaction (`Store.transaction`), before it writes.


JOURNAL = "-journal"
# Files of ours in a state directory besides the database and its predecessors.
OWN = ("locks", "daemon.lock", "last_run", "report.html")


@contextmanager
def staging(directory: str) -> Iterator[str]:
    """Create a temporary state directory inside that of the store; it is deleted afterwards."""
    place = os.path.join(directory, f"new-{secrets.token_hex(8)}")
    os.mkdir(place, 0o700)
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


def put_in_place(directory: str, fresh: str, word: str) -> str | None:
    """Replace the store's database by a whole, synced one; return where the old one is kept.

    At every moment one of the two has the name. The caller has exclusive access to the store.
    """
    path = database_path(directory)
    with closing(connect(fresh, "rw")) as connection:
        renumber(connection)
    kept = _free_name(f"{path}.{word}") if os.path.lexists(path) else None
    with _nobody_writing(directory):
        if kept:
            os.link(path, kept)
            if os.path.lexists(path + JOURNAL):  # of a database that cannot even be rolled back
                os.rename(path + JOURNAL, kept + JOURNAL)
        os.rename(fresh, path)
        sync_directory(directory)
    return kept


def _free_name(name: str) -> str:
    """Return the name, or the first of name-2, name-3, ... that no file has."""
    given = (name if number == 1 else f"{name}-{number}" for number in count(1))
    return next(one for one in given if not os.path.lexists(one))


def remove(directory: str) -> list[str]:
    """Remove the store, its predecessors, and the directory if nothing else is in it.

    Return the names of other files. The caller has exclusive access to the store.
    """
    path = database_path(directory)
    name = os.path.basename(path)
    with _nobody_writing(directory):
        for one in sorted(os.listdir(directory)):
            if one == name or one.startswith((name + ".", name + "-")) or one in OWN:
                os.unlink(os.path.join(directory, one))
    left = sorted(os.listdir(directory))
    if not left:
        with suppress(OSError):
            os.rmdir(directory)
    return left


@contextmanager
def _nobody_writing(directory: str) -> Iterator[None]:
    """Keep other processes from writing to the database; to a damaged one they cannot write."""
    path = database_path(directory)
    held: sqlite3.Connection | None = None
    try:
        if os.path.exists(path):
            held = connect(path, "rw")
            held.execute("BEGIN EXCLUSIVE")
    except sqlite3.OperationalError as error:
        raise explain(error, directory) from error
    except sqlite3.DatabaseError:
        if held:
            held.close()
        held = None
    try:
        yield
    except OSError as error:
        raise StoreUnusableError(
            f"{directory} cannot be changed: {error.strerror}; the store is as it was"
        ) from error
    finally:
        if held:
            held.close()
