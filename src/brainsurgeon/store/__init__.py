"""The SQLite store: extracted values, placeholders, sessions, requests and unfinished rewrites.

The store uses a rollback journal and `synchronous = EXTRA`: a commit is durable when it returns.
With `FULL`, a power cut could undo the last commit. WAL is not used: in this mode, SQLite up to
3.51.2 may corrupt a shared database. The directory has mode 0700, the database 0600.
"""

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Self

from brainsurgeon.errors import StoreDamagedError, StoreUnusableError
from brainsurgeon.model.records import OpenRewrite
from brainsurgeon.store import catalogue, database, expiry, extractions, journal, runs, searches


class Store:
    """An open store. As a context manager, it closes the store and translates SQLite errors."""

    def __init__(self, connection: sqlite3.Connection, directory: str, locks: int | None) -> None:
        self.directory = directory
        self.identity = database.identity(directory)
        self._connection = connection
        self._locks = locks
        self.archives = extractions.Archives(connection)
        self.blobs = extractions.Blobs(connection)
        self.calibrations = catalogue.Calibrations(connection)
        self.events = runs.Events(connection)
        self.expiry = expiry.Expiry(connection)
        self.extractions = extractions.Extractions(connection)
        self.facts = runs.Facts(connection, directory)
        self.fields = extractions.Fields(connection)
        self.files = catalogue.FileStates(connection)
        self.journal = journal.Journal(connection)
        self.placeholders = extractions.Placeholders(connection)
        self.placements = extractions.Placements(connection)
        self.requests = journal.Requests(connection)
        self.rows = catalogue.Rows(connection)
        self.runs = runs.Runs(connection)
        self.savings = catalogue.SavingsSoFar(connection)
        self.searches = searches.Searches(connection)
        self.sessions = catalogue.Sessions(connection)
        self.spending = catalogue.Spending(connection)
        self.sums = runs.Sums(connection)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.close()
        if isinstance(error, sqlite3.Error):
            raise database.explain(error, self.directory) from error

    def damage(self) -> str | None:
        try:
            with database.translated(self.directory):
                problems = [row[0] for row in self._connection.execute("PRAGMA quick_check(5)")]
        except StoreDamagedError:
            problems = []
        return None if problems == ["ok"] else "the database is damaged"

    def check_still_there(self) -> None:
        """Raise StoreUnusableError if the database was removed or replaced while it is open."""
        if database.identity(self.directory) != self.identity:
            path = database.database_path(self.directory)
            raise StoreUnusableError(
                f"{path} vanished or was replaced while it was in use: nothing more was done. "
                f"{database.NO_STORE}"
            )

    def count_dangling(self) -> int:
        return len(self._connection.execute("PRAGMA foreign_key_check").fetchall())

    def interrupted_rewrites(self) -> list[OpenRewrite]:
        """Return the open rewrites that no process is carrying out."""
        idle = {
            rewrite.id for rewrite in self.journal.open_rewrites()
            if not database.is_locked(self.directory, "locks", rewrite.session_id, 1)
        }  # fmt: skip
        # A process may have closed some of them and released the lock meanwhile.
        return [rewrite for rewrite in self.journal.open_rewrites() if rewrite.id in idle]

    @property
    def exists(self) -> bool:
        """False for the empty store of `open_to_read`."""
        return self.identity is not None

    @property
    def is_empty(self) -> bool:
        first = "SELECT 1 FROM extractions UNION ALL SELECT 1 FROM fields LIMIT 1"
        return self._connection.execute(first).fetchone() is None

    @property
    def size(self) -> int:
        if not self.exists:
            return 0
        size = "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size"
        return int(self._connection.execute(size).fetchone()[0])

    def close(self) -> None:
        self._connection.close()
        if self._locks is not None:
            os.close(self._locks)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Run a block as one transaction, which is durable when the block ends.

        The database cannot be replaced meanwhile: a process that replaces it locks it first.
        """
        with database.translated(self.directory):
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                self.check_still_there()
                database.refuse_unknown(self._connection, database.database_path(self.directory))
                yield
                self._connection.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):
                    self._connection.execute("ROLLBACK")
                raise

    def lock(
        self, session_id: int, patience: float = database.STORE_LOCK_SECONDS,
        check_stop: Callable[[], None] = lambda: None,
    ) -> AbstractContextManager[None]:  # fmt: skip
        """Hold the writer lock of one session; raise BusyError after `patience` seconds."""
        if self._locks is None:
            raise StoreUnusableError(
                f"{self.directory}: the store was opened for reading only; nothing was changed"
            )
        busy = "another brainsurgeon has locked this session; try again"
        return database.hold_bytes(self._locks, session_id, 1, busy, patience, check_stop)


def open_store(directory: str) -> Store:
    """Open the store, and create it if it is missing."""
    locks = database.open_locks(directory, "locks")
    try:
        return Store(database.open_database(directory, locks), directory, locks)
    except BaseException:
        os.close(locks)
        raise


def open_to_read(directory: str) -> Store:
    """Open the store for reading. If there is no store, return an empty one in memory."""
    if database.may_exist(directory):
        return Store(database.open_database(directory), directory, None)
    database.refuse_other_directory(directory)
    return Store(database.empty_database(), directory, None)
