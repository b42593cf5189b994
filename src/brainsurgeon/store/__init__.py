"""The hand that touches SQLite: what was cut and where it stood, requests, scan state, journal.

What it owes: a commit is durable when it returns (rollback journal, `synchronous=EXTRA`; with
`FULL` the last commit of rollback mode may vanish in a power cut, and WAL shared by several
processes has corrupted databases in SQLite up to 3.51.2); a store of another version, or a database
that is no store, is refused and left as it is; directory 0700, database 0600 from birth.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import struct
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Self

from brainsurgeon.errors import BusyError, StoreUnusableError
from brainsurgeon.store.archives import Archives
from brainsurgeon.store.blobs import Blobs
from brainsurgeon.store.calibrations import Calibrations
from brainsurgeon.store.database import (
    PATIENCE,
    database_path,
    explain,
    make_directory,
    open_database,
    read_database,
    refuse_unknown,
    translated,
)
from brainsurgeon.store.expiry import Expiry
from brainsurgeon.store.extractions import Extractions
from brainsurgeon.store.facts import Facts
from brainsurgeon.store.fields import Fields
from brainsurgeon.store.files import FileStates, Resumes
from brainsurgeon.store.history import Events, Runs, Sums
from brainsurgeon.store.journal import Journal
from brainsurgeon.store.placeholders import Placeholders, Placements
from brainsurgeon.store.requests import Requests
from brainsurgeon.store.rows import Rows
from brainsurgeon.store.sessions import Sessions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Store:
    """One open store; as a context it closes at the end, and errors of SQLite come out as ours.

    What it holds is asked of its parts (`extractions`, `requests`, `journal`, ...), which take and
    give values; the connection stays inside.
    """

    def __init__(self, connection: sqlite3.Connection, directory: str, locks: int | None) -> None:
        self.directory = directory
        self.archives = Archives(connection)
        self.blobs = Blobs(connection)
        self.events = Events(connection)
        self.calibrations = Calibrations(connection)
        self.expiry = Expiry(connection)
        self.extractions = Extractions(connection)
        self.facts = Facts(connection, directory)
        self.fields = Fields(connection)
        self.files = FileStates(connection)
        self.journal = Journal(connection)
        self.runs = Runs(connection)
        self.placeholders = Placeholders(connection)
        self.placements = Placements(connection)
        self.resumes = Resumes(connection)
        self.rows = Rows(connection)
        self.sessions = Sessions(connection)
        self.sums = Sums(connection)
        self.requests = Requests(connection)
        self._connection = connection
        self._locks = locks
        self.identity = _identity(directory)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.close()
        if isinstance(error, sqlite3.Error):
            raise explain(error, self.directory) from error

    def damage(self) -> str | None:
        """Return what is wrong with the database itself, or None."""
        try:
            with translated(self.directory):
                problems = [row[0] for row in self._connection.execute("PRAGMA quick_check(5)")]
        except StoreUnusableError:
            problems = []
        return None if problems == ["ok"] else "the database is damaged"

    def check_still_there(self) -> None:
        """Raise StoreUnusableError where the database was removed or replaced while it is open."""
        if _identity(self.directory) != self.identity:
            raise StoreUnusableError(
                f"{database_path(self.directory)} vanished or was replaced while it was in use: "
                "nothing more is done. Start this again"
            )

    def dangling(self) -> int:
        """Count the rows that lead to what is not there."""
        return len(self._connection.execute("PRAGMA foreign_key_check").fetchall())

    def compact(self) -> None:
        """Write the database anew, without the pages that were freed in it.

        SQLite's copy of it lies in the state directory meanwhile, not where others put theirs.
        """
        with translated(self.directory):
            place = self.directory.replace("'", "''")
            self._connection.execute(f"PRAGMA temp_store_directory = '{place}'")
            try:
                self._connection.execute("VACUUM")
            finally:
                self._connection.execute("PRAGMA temp_store_directory = ''")

    @property
    def size(self) -> int:
        """The size of the database in bytes."""
        pages = self._connection.execute("PRAGMA page_count").fetchone()[0]
        page = self._connection.execute("PRAGMA page_size").fetchone()[0]
        return int(pages * page)

    def close(self) -> None:
        """Close the database and let go of every lock."""
        self._connection.close()
        if self._locks is not None:
            os.close(self._locks)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Run a block as one transaction that is durable when the block ends.

        Whoever puts another database in its place keeps all others out meanwhile: after the
        beginning it is this one, or another one stands there.
        """
        with translated(self.directory):
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                self.check_still_there()
                refuse_unknown(self._connection, database_path(self.directory))
                yield
                self._connection.execute("COMMIT")
            except BaseException:
                self.runs.forget_unsure()
                with suppress(sqlite3.Error):
                    self._connection.execute("ROLLBACK")
                raise
            self.runs.keep()

    @contextmanager
    def lock(
        self, session_id: int, patience: float = PATIENCE,
        check_stop: Callable[[], None] = lambda: None,
    ) -> Iterator[None]:  # fmt: skip
        """Hold the writer lock of one session; raise BusyError when another process keeps it.

        It is one byte of one file, locked by open file description: the kernel frees it when its
        holder dies, and nothing needs to be cleaned up. `check_stop` may raise to end the waiting.
        """
        deadline = time.monotonic() + patience
        while not self._lock_byte(session_id, fcntl.F_WRLCK):
            if time.monotonic() > deadline:
                raise BusyError("another brainsurgeon is rewriting this session; try again")
            check_stop()
            time.sleep(0.05)
        try:
            yield
        finally:
            self._lock_byte(session_id, fcntl.F_UNLCK)

    def _lock_byte(self, at: int, kind: int) -> bool:
        if self._locks is None:
            raise StoreUnusableError(f"{self.directory}: the store was opened for reading only")
        record = struct.pack("hhqqi4x", kind, os.SEEK_SET, at, 1, 0)
        command = getattr(fcntl, "F_OFD_SETLK", None)
        try:
            if command is None:  # not Linux: by process instead
                kind = fcntl.LOCK_UN if kind == fcntl.F_UNLCK else fcntl.LOCK_EX | fcntl.LOCK_NB
                fcntl.lockf(self._locks, kind, 1, at)
            else:
                fcntl.fcntl(self._locks, command, record)
        except (BlockingIOError, PermissionError):
            return False
        return True


def _identity(directory: str) -> tuple[int, int] | None:
    try:
        status = os.stat(database_path(directory))
    except OSError:
        return None
    return status.st_dev, status.st_ino


def open_store(directory: str) -> Store:
    """Open the store for writing; create it where there is none."""
    make_directory(directory)
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        locks = os.open(os.path.join(directory, "locks"), flags, 0o600)
    except OSError as error:
        raise StoreUnusableError(
            f"{directory}: the state directory cannot be written: {error.strerror}; nothing was "
            "touched. Make it writable for this user, or set state_dir"
        ) from error
    try:
        connection = _open_what_stands_there(directory, locks)
    except BaseException:
        os.close(locks)
        raise
    return Store(connection, directory, locks)


def _open_what_stands_there(directory: str, locks: int) -> sqlite3.Connection:
    """Open the database, and once more where another took its place while that was waited for.

    Whoever puts another there keeps it locked meanwhile: one that was opened before and read only
    afterwards is not the store any more.
    """
    while True:
        before = _identity(directory)
        connection = open_database(directory, locks)
        if before is None or _identity(directory) == before:
            return connection
        connection.close()


def open_to_read(directory: str) -> Store | None:
    """Open the store without ever writing to it; None where there is none yet."""
    while True:
        before, connection = _identity(directory), read_database(directory)
        if connection is None:
            return None
        if before is None or _identity(directory) == before:
            return Store(connection, directory, None)
        connection.close()  # another took its place meanwhile
