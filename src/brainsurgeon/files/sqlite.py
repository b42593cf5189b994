"""Open another program's SQLite database.

If SQLite opens a database in WAL mode for reading, it creates a write-ahead log and its index, and
leaves both behind (seen with SQLite 3.40.1). With the option `immutable`, it creates no files, but
ignores the log. So this option is used if no process has the database open and the log is empty.
Otherwise the database is opened read-only: this may change the index of the log, or create it.

If a process closes any descriptor of a file, it loses all its locks on the file. SQLite prevents
this only for descriptors that it opened itself, but `held_open` opens one. So only one thread may
use a database at a time. This thread may open it again through SQLite, for reading.
"""

import errno
import fcntl
import os
import sqlite3
import stat
import struct
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext, suppress
from typing import Any
from urllib.parse import quote

from msgspec import Struct

from brainsurgeon.errors import BusyError
from brainsurgeon.model.session_files import Fingerprint

LOG = "-wal"  # suffix of the write-ahead log
READ_LOCK_SECONDS = 1.0  # to wait for another process while reading
_THREAD_LOCK_SECONDS = 10.0  # to wait for another thread of this process

# By path, the lock of the thread that has the database open.
_LOCKS = defaultdict[str, threading.Lock](threading.Lock)
# By path, the id of this thread, and the mode of the database.
_holders: dict[str, tuple[int, str]] = {}
# Every open connection holds a lock on this byte of the log's index (SQLite `os_unix.c`).
_DEAD_MAN_SWITCH = 128
_LOCK = "hhqqi4x"
_FORMAT_VERSIONS = 18  # offset in the file, for writing and for reading: 1, or 2 in WAL mode
_NO_TEXT = "text that is not UTF-8"


class AgentDatabaseError(OSError):
    """An agent's database cannot be used. Omits SQLite's message, which may quote content."""

    def __init__(self, code: str) -> None:
        super().__init__(errno.EIO, f"its database cannot be read ({code})")
        self.code = code  # SQLite's name of the error


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorname", None)
        # Python's own errors have no code. OperationalError then means text that is not UTF-8.
        text = _NO_TEXT if isinstance(error, sqlite3.OperationalError) else "SQLITE_ERROR"
        raise AgentDatabaseError(code or text) from error
    except UnicodeDecodeError as error:  # a message of SQLite quotes text that is not UTF-8
        raise AgentDatabaseError(_NO_TEXT) from error


class _Cursor(sqlite3.Cursor):
    execute = _translated()(sqlite3.Cursor.execute)
    fetchone = _translated()(sqlite3.Cursor.fetchone)
    fetchall = _translated()(sqlite3.Cursor.fetchall)
    __next__ = _translated()(sqlite3.Cursor.__next__)


class _Connection(sqlite3.Connection):
    def execute(self, *arguments: Any) -> _Cursor:
        return self.cursor(_Cursor).execute(*arguments)


class DatabaseState(Struct, frozen=True):
    main: Fingerprint
    log: Fingerprint | None


def state_of(path: str) -> DatabaseState:
    """Return the state without opening the database. Raises OSError if it is no plain file."""
    main = os.stat(path, follow_symlinks=False)
    if not stat.S_ISREG(main.st_mode):
        raise IsADirectoryError(path)
    log = None
    with suppress(FileNotFoundError):
        log = Fingerprint.of(os.stat(path + LOG, follow_symlinks=False))
    return DatabaseState(Fingerprint.of(main), log)


def held_open(path: str) -> bool:
    """Check whether another process (in any container) has a database open.

    Raises BusyError if this process has it open.
    """
    with _exclusive(path):
        try:
            descriptor = os.open(path + "-shm", os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            request = struct.pack(_LOCK, fcntl.F_WRLCK, os.SEEK_SET, _DEAD_MAN_SWITCH, 1, 0)
            answer = fcntl.fcntl(descriptor, fcntl.F_GETLK, request)
            return bool(struct.unpack(_LOCK, answer)[0] != fcntl.F_UNLCK)
        finally:
            os.close(descriptor)


def mode_in_this_thread(path: str) -> str | None:
    thread, mode = _holders.get(path, (0, ""))
    return mode if thread == threading.get_ident() else None


def in_wal_mode(path: str) -> bool:
    """Check whether a database is in WAL mode, which SQLite misreports with `immutable`."""
    mode = mode_in_this_thread(path)
    if mode in ("ro", "rw"):  # closing a descriptor would lose the locks
        with closing(connected(path, "ro")) as connection:
            return pragma(connection, "journal_mode") == "wal"
    with _exclusive(path) if mode is None else nullcontext():
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            return os.pread(descriptor, 2, _FORMAT_VERSIONS) == b"\2\2"
        finally:
            os.close(descriptor)


@contextmanager
def _exclusive(path: str, mode: str = "") -> Iterator[None]:
    if mode_in_this_thread(path) is not None or not _LOCKS[path].acquire(
        timeout=_THREAD_LOCK_SECONDS
    ):
        raise BusyError(f"{path}: this process has it open already; try again")
    _holders[path] = threading.get_ident(), mode
    try:
        yield
    finally:
        del _holders[path]
        _LOCKS[path].release()


@contextmanager
def reading(path: str, *, in_use: bool) -> Iterator[sqlite3.Connection]:
    """Open a database for reading; `in_use` means that another process has it open.

    Raises BusyError after the block if the database was opened as `immutable` and has changed.
    """
    if (outer := mode_in_this_thread(path)) is not None:
        with closing(connected(path, "ro" if outer == "rw" else outer)) as connection:
            yield connection
        return
    before = state_of(path)
    immutable = not (in_use or (before.log and before.log.size))
    with opened(path, "ro&immutable=1" if immutable else "ro") as connection:
        yield connection
    if immutable and state_of(path) != before:
        raise BusyError(f"{path}: its agent began to use it while it was read; try again")


@contextmanager
def opened(
    path: str, mode: str, timeout: float = READ_LOCK_SECONDS
) -> Iterator[sqlite3.Connection]:
    """Open a database in autocommit mode; `mode` is `ro`, `ro&immutable=1` or `rw`."""
    with _exclusive(path, mode), closing(connected(path, mode, timeout)) as connection:
        yield connection


def connected(path: str, mode: str, timeout: float = READ_LOCK_SECONDS) -> sqlite3.Connection:
    uri = f"file:{quote(os.fsencode(path))}?mode={mode}"
    with _translated():
        connection = sqlite3.connect(
            uri, uri=True, timeout=timeout, isolation_level=None, factory=_Connection
        )
    if sqlite3.sqlite_version_info < (3, 43):
        # A constraint of OpenClaw's table calls this function, which older SQLite does not have.
        connection.create_function("octet_length", 1, _octet_length, deterministic=True)
    return connection


def pragma(connection: sqlite3.Connection, name: str) -> int | str:
    value: int | str = connection.execute(f"PRAGMA {name}").fetchone()[0]
    return value


def has_table(connection: sqlite3.Connection, name: str) -> bool:
    query = "SELECT 1 FROM sqlite_master WHERE name = ?"
    return connection.execute(query, (name,)).fetchone() is not None


def _octet_length(value: object) -> int | None:
    text = value if isinstance(value, bytes) else str(value).encode()
    return None if value is None else len(text)
