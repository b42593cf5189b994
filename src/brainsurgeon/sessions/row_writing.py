"""Change the rows of a session in an agent's database. No other module does.

A row is changed only if its columns still have the values that were read, and only if the session
is idle under the lock. One transaction changes the rows, and the generation and time of the
transcript, like OpenClaw's `rewriteSqliteTranscriptEventRowsInTransaction` (openclaw 2026.9.6).
No index contains the changed columns, and no trigger fires.
"""

import errno
import os
import sqlite3
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress

from msgspec import Struct
from msgspec.structs import astuple

from brainsurgeon.agents.openclaw import database as openclaw_database
from brainsurgeon.agents.openclaw.database import Payload, open_database, plain
from brainsurgeon.errors import BusyError, FailedError
from brainsurgeon.files import sqlite
from brainsurgeon.files.processes import boot_clock
from brainsurgeon.files.reading import RefusedError
from brainsurgeon.files.sqlite import AgentDatabaseError
from brainsurgeon.model.plans import Edit, Removal, Restoration, bytes_after, gain
from brainsurgeon.sessions.row_listing import RowIndex, RowSpan, split

PATIENCE = 2.0  # seconds to wait for the agent's lock; the agent waits five seconds for ours
# Seconds after which a transaction is rolled back: this process was probably stopped meanwhile, and
# the checks at the beginning may be out of date.
LONGEST_HOLD = 1.0
# KiB of SQLite's cache. The longest row fits, and is not read from the disk again under the lock:
# comparing 16 MB takes 64 ms, with the default cache of 2 MB 166 ms (SQLite 3.40.1).
CACHE = 40 << 10
PAUSE = 0.010  # seconds between two transactions, in which the agent may write
# Limits of one transaction, so that the agent waits for milliseconds only.
MOST_ROWS = 64
MOST_BYTES = 4 << 20

_WHERE = " WHERE session_id = ? AND seq = ? AND event_json IS CAST(? AS TEXT)"
_UPDATE_PLAIN = "UPDATE transcript_events SET event_json = CAST(? AS TEXT)" + _WHERE  # noqa: S608
_UPDATE = (
    "UPDATE transcript_events SET event_json = CAST(? AS TEXT), event_zstd = ?,"  # noqa: S608
    " event_utf8_bytes = ?, navigation_json = CAST(? AS TEXT)" + _WHERE
    + " AND event_zstd IS ? AND event_utf8_bytes IS ? AND navigation_json IS CAST(? AS TEXT)"
)  # fmt: skip


class RowEdit(Struct, frozen=True):
    seq: int
    before: Payload
    after: Payload


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


class RowPlan(Struct, frozen=True):
    span: RowSpan
    edits: tuple[Edit, ...]

    @property
    def weight(self) -> int:
        return 2 * self.span.size - gain(self.edits)

    def text_after(self, text: bytes, value_of: Callable[[int], bytes]) -> bytes:
        pieces, done = [], 0
        for edit in self.edits:
            begin, stop = edit.start - self.span.offset, edit.end - self.span.offset
            new = bytes_after(edit, value_of)
            if not done <= begin <= stop <= len(text) or b"\n" in new:
                raise ValueError("edits out of order, or not within one line")
            pieces += [text[done:begin], new]
            done = stop
        return b"".join((*pieces, text[done:]))


def by_row(index: RowIndex, edits: Iterable[Edit]) -> list[RowPlan]:
    rows: dict[RowSpan, list[Edit]] = {}
    for edit in sorted(edits, key=lambda edit: (edit.start, edit.end)):
        span = index[index.at(edit.start)]
        if edit.end > span.offset + span.size:
            raise ValueError("an edit crosses the end of its line")
        rows.setdefault(span, []).append(edit)
    return [RowPlan(span, tuple(of_row)) for span, of_row in rows.items()]


def rewritten(
    before: Payload, row: RowPlan, value_of: Callable[[int], bytes],
    original: Callable[[bytes], Payload | None], *, compressing: bool,
) -> RowEdit:  # fmt: skip
    """Return the edit of a row. `original` returns the columns that the agent stored for a text."""
    text = row.text_after(before.event(), value_of)
    own = original(text)
    after = own if own and own.event() == text else plain(text, compressing=compressing)
    return RowEdit(row.span.seq, before, after)


def chunks(rows: Sequence[RowPlan]) -> Iterator[list[RowPlan]]:
    # Each commit must leave a history that the provider accepts. A signature of thinking may cover
    # everything before it, so it must be removed first and restored last. So extractions go from
    # the newest row to the oldest, then restorations from the oldest to the newest.
    def order(row: RowPlan) -> tuple[bool, int]:
        kinds = {type(edit) for edit in row.edits}
        restores = Restoration in kinds and Removal not in kinds
        return restores, row.span.seq if restores else -row.span.seq

    return split(sorted(rows, key=order), lambda row: row.weight, MOST_ROWS, MOST_BYTES)


Digests = dict[int, str]  # digests (hexadecimal) of the texts of events, by sequence number


def digests(path: str, session: str, seqs: Iterable[int]) -> Digests:
    """Return the digests of the rows that exist, "" for a damaged one. Raises OSError."""
    current: Digests = {}
    try:
        with open_database(path) as database:
            schema = openclaw_database.examine(database)
            for seq in seqs:
                for _, payload in openclaw_database.payloads(database, schema, session, seq, seq):
                    current[seq] = ""
                    with suppress(openclaw_database.UnreadableEventError):
                        current[seq] = payload.digest.hex()
    except BusyError as error:
        raise OSError(errno.EBUSY, "its agent is using it") from error
    return current
