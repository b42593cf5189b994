"""Change the rows of a session in OpenClaw's database. No other module does.

A row is changed only if its columns still have the values that were read, and only if the session
is idle under the lock. One transaction changes the rows, and the generation and time of the
transcript, like OpenClaw's `rewriteSqliteTranscriptEventRowsInTransaction` (openclaw 2026.9.6).
No index contains the changed columns, and no trigger fires.
"""

import os
import sqlite3
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

from msgspec.structs import astuple

from brainsurgeon.agents.rows import RowEdit
from brainsurgeon.errors import BusyError, FailedError
from brainsurgeon.files import sqlite
from brainsurgeon.files.processes import boot_clock
from brainsurgeon.files.reading import RefusedError
from brainsurgeon.files.sqlite import AgentDatabaseError

PATIENCE = 2.0  # seconds to wait for the agent's lock; the agent waits five seconds for ours
# Seconds after which a transaction is rolled back: this process was probably stopped meanwhile, and
# the checks at the beginning may be out of date.
LONGEST_HOLD = 1.0
# KiB of SQLite's cache. The longest row fits, and is not read from the disk again under the lock:
# comparing 16 MB takes 64 ms, with the default cache of 2 MB 166 ms (SQLite 3.40.1).
CACHE = 40 << 10

_WHERE = " WHERE session_id = ? AND seq = ? AND event_json IS CAST(? AS TEXT)"
_UPDATE_PLAIN = "UPDATE transcript_events SET event_json = CAST(? AS TEXT)" + _WHERE  # noqa: S608
_UPDATE = (
    "UPDATE transcript_events SET event_json = CAST(? AS TEXT), event_zstd = ?,"  # noqa: S608
    " event_utf8_bytes = ?, navigation_json = CAST(? AS TEXT)" + _WHERE
    + " AND event_zstd IS ? AND event_utf8_bytes IS ? AND navigation_json IS CAST(? AS TEXT)"
)  # fmt: skip


def change(
    path: str, database: sqlite3.Connection, session: str, edits: Sequence[RowEdit],
    gate: Callable[[sqlite3.Connection], str | None],
    *, compressing: bool, durable: bool, clock: Callable[[], float] = time.time,
) -> tuple[int, str]:  # fmt: skip
    """Change all rows in `edits` in one transaction, or none of them.

    Returns the time (milliseconds) and the generation that the change gave the session. `gate` is
    called under the lock. Raises RefusedError if it returns a reason or the session changed,
    BusyError if the agent keeps the lock for PATIENCE, FailedError if SQLite fails.
    """
    # Prepared before the lock is taken.
    update = _UPDATE if compressing else _UPDATE_PLAIN
    columns = 4 if compressing else 1
    values = [
        (*astuple(edit.after)[:columns], session, edit.seq, *astuple(edit.before)[:columns])
        for edit in edits
    ]
    generation = uuid.uuid4().hex
    with _explained(path):
        database.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
        database.execute("BEGIN IMMEDIATE")
        locked = boot_clock()
        try:
            if reason := gate(database):
                raise RefusedError(reason)
            for row in values:
                if database.execute(update, row).rowcount != 1:
                    raise RefusedError("a row changed meanwhile")
            at = _mark(database, session, generation, int(clock() * 1000))
            if boot_clock() - locked > LONGEST_HOLD:
                raise RefusedError("this process was stopped while it held the lock")
            database.execute("COMMIT")
        finally:
            if database.in_transaction:
                database.execute("ROLLBACK")
        database.execute("PRAGMA shrink_memory")
    return at, generation


@contextmanager
def writing(path: str) -> Iterator[sqlite3.Connection]:
    """Open an agent's database for writing. A running agent checkpoints the changes."""
    with ExitStack() as held:
        with _explained(path):
            database = held.enter_context(sqlite.opened(path, "rw", PATIENCE))
            if os.path.realpath(path) != path:
                raise RefusedError("a link was put into its path meanwhile")
            database.execute("PRAGMA foreign_keys = ON")
            database.execute("PRAGMA wal_autocheckpoint = 0")
            database.execute(f"PRAGMA cache_size = -{CACHE}")
            # A constraint of the table calls a function, which needs a trusted schema.
            database.execute("PRAGMA trusted_schema = ON")
        yield database  # not in `_explained`: the block also uses our own store


def _mark(connection: sqlite3.Connection, session: str, generation: str, now: int) -> int:
    """Mark the transcript as rewritten, as the agent itself does. Return the time of the mark."""
    rotated = connection.execute(
        "UPDATE transcript_rewrite_watermarks SET generation = ?, updated_at = ?"
        " WHERE session_id = ?",
        (generation, now, session),
    ).rowcount
    touched = connection.execute(
        "UPDATE session_windows SET transcript_updated_at = max(?,"
        " coalesce(transcript_updated_at, 0) + 1, coalesce(transcript_observed_at, 0) + 1)"
        " WHERE session_id = ? RETURNING transcript_updated_at",
        (now, session),
    ).fetchall()
    if (rotated, len(touched)) != (1, 1):
        raise RefusedError("the session was deleted meanwhile")
    return int(touched[0][0])


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
