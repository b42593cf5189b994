"""Change rows in a database of an agent. Only modules that know its tables import this one."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from brainsurgeon.errors import BusyError, FailedError
from brainsurgeon.files import sqlite
from brainsurgeon.files.processes import boot_clock
from brainsurgeon.files.reading import RefusedError
from brainsurgeon.files.sqlite import AgentDatabaseError

AGENT_LOCK_SECONDS = 2.0  # to wait for the agent's lock; the agent waits five seconds for ours
# Seconds after which a transaction is rolled back: this process was probably stopped meanwhile, and
# the checks at the beginning may be out of date.
LONGEST_HOLD = 1.0
# In another mode, nothing shows whether the agent has the database open (`sqlite.held_open`), and
# readers and writers block each other.
NOT_WAL = "the database is not in WAL mode, as a copy may be; its agent sets this when it opens it"
# KiB of SQLite's cache. The longest row fits, and is not read from the disk again under the lock:
# comparing 16 MB takes 64 ms, with the default cache of 2 MB 166 ms (SQLite 3.40.1).
CACHE = 40 << 10


def unwritable(path: str) -> str | None:
    # Side files that SQLite creates would belong to this user, and the agent could not open them.
    owner = os.stat(path, follow_symlinks=False).st_uid
    if os.geteuid() not in (0, owner):
        return "the database belongs to another user"
    return None if sqlite.in_wal_mode(path) else NOT_WAL


@contextmanager
def writing(path: str) -> Iterator[sqlite3.Connection]:
    """Open an agent's database for writing. A running agent checkpoints the changes."""
    with ExitStack() as held:
        with _explained(path):
            database = held.enter_context(sqlite.opened(path, "rw", AGENT_LOCK_SECONDS))
            if os.path.realpath(path) != path:
                raise RefusedError("a link was put into its path meanwhile")
            database.execute("PRAGMA foreign_keys = ON")
            database.execute("PRAGMA wal_autocheckpoint = 0")
            database.execute(f"PRAGMA cache_size = -{CACHE}")
            # A constraint of the table calls a function, which needs a trusted schema.
            database.execute("PRAGMA trusted_schema = ON")
        yield database  # not in `_explained`: the block also uses our own store


@contextmanager
def transaction(path: str, database: sqlite3.Connection, *, durable: bool) -> Iterator[None]:
    """Hold the database's lock, and commit after the block.

    Raises RefusedError if this process was stopped meanwhile, BusyError if the agent keeps the lock
    for AGENT_LOCK_SECONDS, FailedError if SQLite fails.
    """
    with _explained(path):
        database.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
        database.execute("BEGIN IMMEDIATE")
        locked = boot_clock()
        try:
            yield
            if boot_clock() - locked > LONGEST_HOLD:
                raise RefusedError("this process was stopped while it held the lock")
            database.execute("COMMIT")
        finally:
            if database.in_transaction:
                database.execute("ROLLBACK")
        database.execute("PRAGMA shrink_memory")


@contextmanager
def _explained(path: str) -> Iterator[None]:
    try:
        yield
    except AgentDatabaseError as error:
        if error.code.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
            raise BusyError(f"{path}: its agent is writing to it; try again") from error
        full = error.code.startswith("SQLITE_FULL")
        why = "the disk is full" if full else f"it cannot be written ({error.code})"
        raise FailedError(f"{path}: {why}; this step changed nothing") from error
