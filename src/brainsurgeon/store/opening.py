"""Open the database: create it whole, refuse what is not ours or of another version."""

from __future__ import annotations

import fcntl
import os
import sqlite3
import stat
from contextlib import closing, contextmanager, suppress
from typing import TYPE_CHECKING

from brainsurgeon.errors import (
    BrainsurgeonError,
    BusyError,
    StoreDamagedError,
    StoreFullError,
    StoreUnusableError,
)
from brainsurgeon.store.place import why_not_opened
from brainsurgeon.store.schema import SCHEMA, VERSION

if TYPE_CHECKING:
    from collections.abc import Iterator

PATIENCE = 10.0
"""Seconds to wait for another process of ours."""

DatabaseError = sqlite3.Error
"""What SQLite raises: the store as a whole is in trouble."""

PAGE = 4096
"""Bytes. Values of some kilobytes leave part of a page unused: with 8192 a store of values of 40 KB
was 7 % larger, one of 8 KB 12 %, and deleting took longer; scans took the same."""

ADVICE = (
    "`brainsurgeon store restore FILE` puts a backup in its place; without one"
    " `brainsurgeon doctor --repair` saves what can still be read"
)
"""What can be done about a damaged store."""

APPLICATION_ID = 0x62737267
_PLAIN = frozenset(b"/-._~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")
_PRAGMAS = (
    "journal_mode = DELETE", "synchronous = EXTRA", "secure_delete = ON", "foreign_keys = ON",
    "trusted_schema = OFF", "cell_size_check = ON", "mmap_size = 0",
)  # fmt: skip


def database_path(directory: str) -> str:
    """Give the path of the database in a state directory."""
    return os.path.join(directory, "store.db")


def make_directory(directory: str) -> None:
    """Make the state directory, 0700 and nobody else's."""
    try:
        os.makedirs(directory, mode=0o700, exist_ok=True)
        status = os.lstat(directory)
    except OSError as error:
        raise StoreUnusableError(
            f"{directory}: the state directory cannot be made: {error.strerror}; make it writable "
            "for this user, or set state_dir"
        ) from error
    if stat.S_ISLNK(status.st_mode) or status.st_uid != os.geteuid():
        raise StoreUnusableError(
            f"{directory}: the state directory is not this user's own directory; run as the user "
            "that it belongs to, or set state_dir"
        )
    if status.st_mode & 0o077:
        os.chmod(directory, 0o700)


def open_database(directory: str, locks: int) -> sqlite3.Connection:
    """Open the database for writing; create it where there is none."""
    path = database_path(directory)
    with translated(directory):
        if not os.path.lexists(path):
            _create(directory, path, locks)
        refuse_foreign(directory)
        connection = connect(path, "rw")
        try:
            refuse_unknown(connection, path)
        except BaseException:
            connection.close()
            raise
        return connection


def _create(directory: str, path: str, locks: int) -> None:
    """Build the database under another name and move it into place: never half a schema."""
    fcntl.flock(locks, fcntl.LOCK_EX)
    try:
        if os.path.lexists(path):
            return
        fresh = path + ".new"
        with suppress(FileNotFoundError):
            os.unlink(fresh)
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        os.close(os.open(fresh, flags, 0o600))
        connection = connect(fresh, "rw")
        try:
            create_schema(connection)
        finally:
            connection.close()
        os.rename(fresh, path)
        sync_directory(directory)
    finally:
        fcntl.flock(locks, fcntl.LOCK_UN)


def create_schema(connection: sqlite3.Connection) -> None:
    """Create every table in an empty database."""
    from sqlite_utils import Database  # noqa: PLC0415  a third of a second, needed once a store

    connection.execute(f"PRAGMA page_size = {PAGE}")
    connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    Database(connection).executescript(SCHEMA)
    connection.execute(f"PRAGMA user_version = {VERSION}")


def sync_directory(directory: str) -> None:
    """Make the names in a directory durable."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_database(directory: str) -> sqlite3.Connection | None:
    """Open the database read-only; None where there is none."""
    path = database_path(directory)
    if not os.path.exists(path):
        return None
    with translated(directory):
        refuse_foreign(directory)
        roll_back_crash(path)
        connection = connect(path, "ro")
        try:
            refuse_unknown(connection, path)
        except BaseException:
            connection.close()
            raise
        return connection


def _address(path: str) -> str:
    """Write a path as SQLite's URIs have it; `urllib` would take longer than opening the store."""
    return "file:" + "".join(
        chr(byte) if byte in _PLAIN else f"%{byte:02X}" for byte in os.fsencode(path)
    )


def connect(path: str, mode: str) -> sqlite3.Connection:
    """Connect with every setting that the promises of this room need."""
    uri = f"{_address(path)}?mode={mode}"
    connection = sqlite3.connect(
        uri, uri=True, timeout=PATIENCE, isolation_level=None, check_same_thread=False
    )
    try:
        for pragma in _PRAGMAS:
            connection.execute(f"PRAGMA {pragma}")
    except BaseException:
        connection.close()
        raise
    return connection


def refuse_unknown(connection: sqlite3.Connection, path: str) -> None:
    """Raise StoreUnusableError where a database is no store, or of a version that we do not know.

    Called again in every transaction: another process may have brought the store to a newer
    version while this one had it open.
    """
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    if application != APPLICATION_ID:
        raise StoreUnusableError(
            f"{path} is not a brainsurgeon store (empty, damaged or another program's): nothing "
            "was touched. `brainsurgeon store restore FILE` puts a backup in its place; without "
            "one move it away to start anew, and restoring old values needs the right file back"
        )
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if version > VERSION:
        raise StoreUnusableError(
            f"{path} was written by a newer brainsurgeon (version {version} of the store, this "
            f"program knows {VERSION}): nothing was touched. Install that version again"
        )
    if version < VERSION:
        raise StoreUnusableError(
            f"{path} was written by brainsurgeon 0.1, which this version cannot read: nothing was "
            "touched. Run `brainsurgeon restore --all` with the version that wrote it, then move "
            "the file away"
        )


def refuse_foreign(directory: str) -> None:
    """Refuse what is no store of ours before it is really opened, which might change it.

    SQLite would move another program's write-ahead log into its database. This look takes no
    lock and leaves no trace; where it cannot tell, the real opening will. It is SQLite's own, as
    closing a descriptor of ours would let go of the locks of all connections of this process.
    """
    path = database_path(directory)
    uri = f"{_address(path)}?mode=ro&immutable=1"
    with suppress(sqlite3.DatabaseError), closing(sqlite3.connect(uri, uri=True)) as looking:
        refuse_unknown(looking, path)


def roll_back_crash(path: str) -> None:
    """Let SQLite undo a transaction that a crash cut off; nobody can read before that is done.

    Only where its journal stands: a store in order is not opened for writing.
    """
    if os.path.exists(path + "-journal"):
        with suppress(sqlite3.OperationalError), closing(connect(path, "rw")) as connection:
            connection.execute("SELECT 1 FROM sqlite_master").fetchone()


@contextmanager
def translated(directory: str) -> Iterator[None]:
    """Turn what SQLite says into what a person can act on; never its message about content."""
    try:
        yield
    except sqlite3.Error as error:
        raise explain(error, directory) from error


def explain(error: sqlite3.Error, directory: str) -> BrainsurgeonError:
    """Say what an error of SQLite means for whoever runs us."""
    path = database_path(directory)
    code = getattr(error, "sqlite_errorname", "") or ""
    if code.startswith("SQLITE_FULL"):
        return StoreFullError(f"{path}: the disk is full; make room and run again")
    if code.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return BusyError(f"{path}: another process is writing to the store; try again")
    if code.startswith(("SQLITE_CANTOPEN", "SQLITE_READONLY", "SQLITE_PERM", "SQLITE_AUTH")):
        why = why_not_opened(path) or code
        return StoreUnusableError(
            f"{path} cannot be opened for this: {why}; nothing was touched. Run as the user that "
            "it belongs to, and make it writable for that user"
        )
    if code.startswith("SQLITE_IOERR"):
        return StoreUnusableError(
            f"{path}: the disk fails ({code}); what had begun, the next command finishes or undoes."
            " Look at the disk first, then run `brainsurgeon doctor`"
        )
    return StoreDamagedError(
        f"{path} is unusable ({code or 'damaged'}): nothing was touched. {ADVICE}"
    )
