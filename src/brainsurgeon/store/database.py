"""Open the database: create it whole, refuse what is not ours or of another version."""

from __future__ import annotations

import fcntl
import os
import sqlite3
import stat
import struct
import time
from contextlib import closing, contextmanager, suppress
from typing import TYPE_CHECKING

from brainsurgeon.errors import (
    BrainsurgeonError,
    BusyError,
    StoreDamagedError,
    StoreFullError,
    StoreUnusableError,
)
from brainsurgeon.store.schema import SCHEMA, VERSION

if TYPE_CHECKING:
    from collections.abc import Iterator


# Bytes of free disk below which a rewrite may soon find no room.
SCARCE = 64 << 20
# Bytes of free disk below which nothing can be stored.
NONE_LEFT = 1 << 20


def why_not_writable(directory: str) -> str | None:
    """Return why a state directory can neither be made nor written by this user, or None."""
    above = directory
    while not os.path.lexists(above) and above != os.path.dirname(above):
        above = os.path.dirname(above)
    if _may(above, os.W_OK | os.X_OK):
        return None
    if above == directory:
        return f"{directory} cannot be written by this user"
    return f"{directory} cannot be made: {above} cannot be written by this user"


def why_not_opened(database: str) -> str | None:
    """Say that this user has no right to open a database that is there, or None."""
    if os.path.lexists(database) and not _may(database, os.R_OK | os.W_OK):
        return "this user may not open it (Permission denied)"
    return None


def free(place: str) -> int | None:
    """Return the free bytes of the disk that a place lies on or would lie on.

    None where unknown.
    """
    while not os.path.lexists(place) and place != os.path.dirname(place):
        place = os.path.dirname(place)
    try:
        seen = os.statvfs(place)
    except OSError:
        return None
    return 0 if seen.f_files and not seen.f_favail else seen.f_bavail * seen.f_frsize


def _may(path: str, how: int) -> bool:
    effective = os.access in os.supports_effective_ids
    return os.access(path, how, effective_ids=effective)


# Seconds to wait for another process of ours.
PATIENCE = 10.0

# What SQLite raises: the store as a whole is in trouble.
DatabaseError = sqlite3.Error

# Bytes. Values of some kilobytes leave part of a page unused: with 8192 a store of values of 40 KB
# was 7 % larger, one of 8 KB 12 %, and deleting took longer; scans took the same.
PAGE = 4096

# What can be done about a damaged store.
ADVICE = (
    "`brainsurgeon store restore FILE` puts a backup in its place; without one"
    " `brainsurgeon doctor --repair` saves what can still be read"
)

APPLICATION_ID = 0x62737267
_PLAIN = frozenset(b"/-._~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")
_PRAGMAS = (
    "journal_mode = DELETE", "synchronous = EXTRA", "secure_delete = ON", "foreign_keys = ON",
    "trusted_schema = OFF", "cell_size_check = ON", "mmap_size = 0",
)  # fmt: skip


def database_path(directory: str) -> str:
    """Return the path of the database in a state directory."""
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
            "touched. Stop its daemon and run its `brainsurgeon restore --all --pristine` until "
            "nothing waits; then move the file away"
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
    """Return what an error of SQLite means for whoever runs us."""
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


# Seconds for which somebody who only asks for the holder may have the daemon's lock.
_LOOKERS = 0.2


@contextmanager
def hold_daemon_lock(directory: str) -> Iterator[None]:
    """Hold the daemon's lock for a life; raise BusyError with the holder's pid when it is taken."""
    make_directory(directory)
    descriptor = os.open(
        os.path.join(directory, "daemon.lock"),
        os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600,
    )  # fmt: skip
    try:
        _lock_daemon(descriptor, directory)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)


def _lock_daemon(descriptor: int, directory: str) -> None:
    deadline = time.monotonic() + _LOOKERS
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                holder = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip()
                told = f"a daemon is already running here (pid {holder or 'unknown'}): {directory}"
                raise BusyError(told) from None
            time.sleep(0.02)
        else:
            return


def daemon_holder(directory: str) -> int | None:
    """Return the pid of the daemon that runs on a state directory, or None."""
    try:
        descriptor = os.open(os.path.join(directory, "daemon.lock"), os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(descriptor, 32, 0).strip()
        return int(holder) if holder.isdigit() else None
    finally:
        os.close(descriptor)
    return None


# The length of a lock that goes on for ever: each session's lock is one byte of the same file.
_EVERY_SESSION = 0


@contextmanager
def hold_store(directory: str) -> Iterator[None]:
    """Hold the daemon's lock and those of all sessions; raise BusyError where somebody has one."""
    if pid := daemon_holder(directory):
        raise BusyError(
            f"the daemon (pid {pid}) is at work on this store: stop it, then run this again"
        )
    with hold_daemon_lock(directory), hold_sessions(directory):
        yield


@contextmanager
def hold_sessions(directory: str) -> Iterator[None]:
    """Hold the writer locks of all sessions, so that no rewrite is under way in the store."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(os.path.join(directory, "locks"), flags, 0o600)
    try:
        deadline = time.monotonic() + PATIENCE
        while not _taken(descriptor):
            if time.monotonic() > deadline:
                raise BusyError("another brainsurgeon is rewriting a session; try again")
            time.sleep(0.05)
        yield
    finally:
        os.close(descriptor)


def _taken(descriptor: int) -> bool:
    command = getattr(fcntl, "F_OFD_SETLK", None)
    try:
        if command is None:  # not Linux: by process instead
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, _EVERY_SESSION, 0)
        else:
            record = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, _EVERY_SESSION, 0)
            fcntl.fcntl(descriptor, command, record)
    except (BlockingIOError, PermissionError):
        return False
    return True
