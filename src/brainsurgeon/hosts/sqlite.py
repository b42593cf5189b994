"""Open another program's SQLite database so that looking leaves nothing behind.

SQLite creates a write-ahead log and its index as soon as a database in WAL mode is opened for
reading, and leaves both there (seen with SQLite 3.40.1). Where nobody has the database open and
no log holds anything, the file alone is the truth and `immutable` reads it without a trace. Where
there is a log, `immutable` would miss what stands in it, so the database is opened read-only;
the index of the log may change then.

One thread of a process has a database open at a time: closing any descriptor of a file lets go of
all locks that the process holds on it, and SQLite knows only its own. That thread may open it for
reading once more, by SQLite, which knows those.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import stat
import struct
import threading
from collections import defaultdict
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from brainsurgeon.errors import BusyError

if TYPE_CHECKING:
    from collections.abc import Iterator


# What the name of a write-ahead log ends with.
LOG = "-wal"
# Seconds to wait for another process while reading.
PATIENCE = 1.0

# Held by the one thread of this process that has the database at a path open.
_OURS: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
# Which thread that is, and the mode in which it has the database open.
_holders: dict[str, tuple[int, str]] = {}
# Seconds to wait for another thread of this process.
_TURN = 10.0
# The byte of the log's index on which every open connection holds a lock (SQLite `os_unix.c`).
_DEAD_MAN_SWITCH = 128
_LOCK = "hhqqi4x"


@dataclass(frozen=True, slots=True)
class FileState:
    """Which file it was and in what state, by `stat` alone."""

    device: int
    inode: int
    size: int
    mtime_ns: int


@dataclass(frozen=True, slots=True)
class DatabaseState:
    """The state of a database and of its write-ahead log; None where there is no log."""

    main: FileState
    log: FileState | None

    @property
    def logged(self) -> bool:
        """Whether the log holds anything that the database does not."""
        return self.log is not None and self.log.size > 0


def state_of(path: str) -> DatabaseState:
    """Look at a database with two calls of `stat` and without opening it.

    Raise FileNotFoundError where it is gone, and IsADirectoryError for what is not a plain file.
    """
    return DatabaseState(_file_state(path), _log_state(path + LOG))


def _file_state(path: str) -> FileState:
    status = os.stat(path, follow_symlinks=False)
    if not stat.S_ISREG(status.st_mode):
        raise IsADirectoryError(path)
    return FileState(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


def _log_state(path: str) -> FileState | None:
    try:
        return _file_state(path)
    except FileNotFoundError:
        return None


def held_open(path: str) -> bool:
    """Return whether another process has the database open, in whatever container it runs.

    Every connection to a database in WAL mode holds a lock on one byte of the log's index. Never
    call it from a thread that has the database open itself.
    """
    with _turn(path):
        try:
            descriptor = os.open(path + "-shm", os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            question = struct.pack(_LOCK, fcntl.F_WRLCK, os.SEEK_SET, _DEAD_MAN_SWITCH, 1, 0)
            answer = fcntl.fcntl(descriptor, fcntl.F_GETLK, question)
            return bool(struct.unpack(_LOCK, answer)[0] != fcntl.F_UNLCK)
        finally:
            os.close(descriptor)


def mode_of(path: str) -> str | None:
    """Return the mode in which this very thread has the database open, or None."""
    thread, mode = _holders.get(path, (0, ""))
    return mode if thread == threading.get_ident() else None


@contextmanager
def _turn(path: str, mode: str = "") -> Iterator[None]:
    if mode_of(path) is not None or not _OURS[path].acquire(timeout=_TURN):
        raise BusyError(f"{path}: this process has it open already; try again")
    _holders[path] = threading.get_ident(), mode
    try:
        yield
    finally:
        del _holders[path]
        _OURS[path].release()


@contextmanager
def reading(path: str, *, owned: bool) -> Iterator[sqlite3.Connection]:
    """Open a database for looking; `owned` tells whether another process has it open.

    Raise BusyError when it was read without locks and changed meanwhile.
    """
    if (outer := mode_of(path)) is not None:
        with closing(_connected(path, "ro" if outer == "rw" else outer, PATIENCE)) as connection:
            yield connection
        return
    before = state_of(path)
    alone = not owned and not before.logged
    with opened(path, "ro&immutable=1" if alone else "ro") as connection:
        yield connection
    if alone and state_of(path) != before:
        raise BusyError(f"{path}: its agent began to use it while it was read; try again")


@contextmanager
def opened(path: str, mode: str, timeout: float = PATIENCE) -> Iterator[sqlite3.Connection]:
    """Connect in a mode that never creates a database; statements commit by themselves."""
    with _turn(path, mode), closing(_connected(path, mode, timeout)) as connection:
        yield connection


def _connected(path: str, mode: str, timeout: float) -> sqlite3.Connection:
    connection = sqlite3.connect(
        f"file:{_quoted(path)}?mode={mode}", uri=True, timeout=timeout, isolation_level=None
    )
    if sqlite3.sqlite_version_info < (3, 43):
        # OpenClaw's table calls it in a constraint; older SQLite does not have it.
        connection.create_function("octet_length", 1, _octet_length, deterministic=True)
    return connection


def _octet_length(value: object) -> int | None:
    if value is None:
        return None
    return len(value if isinstance(value, bytes) else str(value).encode())


def _quoted(path: str) -> str:
    return "".join(
        chr(byte) if (chr(byte).isalnum() and byte < 128) or chr(byte) in "/._-" else f"%{byte:02X}"  # noqa: PLR2004
        for byte in os.fsencode(path)
    )
