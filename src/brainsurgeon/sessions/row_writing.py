"""The one place that changes the rows of a session in an agent's database.

What it owes: no row is changed that is not, column for column, what was read; the agent waits for
milliseconds at most; nothing is changed unless every sign that the session is idle holds once
more under the lock. It does what OpenClaw's own rewriter of rows does (openclaw 2026.9.6,
`rewriteSqliteTranscriptEventRowsInTransaction`): the columns of the rows, a new generation, and
the time of the transcript, in one transaction. No index holds what is changed here, and no
trigger fires.
"""

from __future__ import annotations

import errno
import os
import sqlite3
import time
import uuid
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from brainsurgeon.errors import BusyError, FailedError
from brainsurgeon.hosts import openclaw_database, openclaw_schema, sqlite
from brainsurgeon.hosts.openclaw_schema import Payload, plain
from brainsurgeon.hosts.processes import boot_clock
from brainsurgeon.model.plans import Cut, Putback
from brainsurgeon.sessions.reading import RefusedError
from brainsurgeon.sessions.row_listing import digest, readable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from brainsurgeon.model.plans import Edit
    from brainsurgeon.sessions.row_listing import RowIndex, RowPlace


# Seconds to wait for the agent; its own patience with us is five.
PATIENCE = 2.0
# Seconds after which a transaction is given up: then this process stood still inside it, and what
# was asked at its beginning may no longer be so.
LONGEST_HOLD = 1.0
# KiB of the database that are kept in memory, so that a row that was just read, up to the longest
# that is looked at, is not read from the disk again under the lock: comparing a row of 16 MB and
# letting go of its pages takes 64 ms then, not 166 (SQLite 3.40.1, whose default is 2 MB).
CACHE = 40 << 10
# Seconds between two transactions, in which the agent gets its turn.
PAUSE = 0.010


@dataclass(frozen=True, slots=True)
class Written:
    """A committed change: the time and the generation that it gave the session.

    `waited` and `held` are seconds before and under the lock.
    """

    at: int
    generation: str
    waited: float
    held: float


class RowWriter:
    """An agent's database that is open for changing rows."""

    def __init__(self, path: str, database: sqlite3.Connection) -> None:
        self.path, self.database = path, database

    def change(
        self, session: str, edits: Sequence[RowEdit],
        gate: Callable[[sqlite3.Connection], str | None],
        *, compressing: bool, durable: bool, clock: Callable[[], float] = time.time,
    ) -> Written:  # fmt: skip
        """Change some rows of a session in one transaction, or none of them.

        `gate` is asked under the lock; where it gives a reason, RefusedError is raised with that.
        `compressing` says that events may be stored compressed, with columns of their own. A cut
        need not be `durable`: where its commit is lost, the old row is back. A value that was put
        back must be, since its copy with us may go afterwards. Raise BusyError where the agent
        keeps the lock longer than we wait.
        """
        # Everything is prepared before: under the lock there is no file, digest or decoding.
        update = _UPDATE if compressing else _UPDATE_PLAIN
        values = [_values(session, edit, compressing=compressing) for edit in edits]
        generation = uuid.uuid4().hex
        with _explained(self.path):
            self.database.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
            begun = boot_clock()
            self.database.execute("BEGIN IMMEDIATE")
            locked = boot_clock()
            try:
                at = self._change_locked(session, update, values, generation, gate, clock)
                if boot_clock() - locked > LONGEST_HOLD:
                    raise RefusedError("this process stood still under the lock")
                self.database.execute("COMMIT")
            finally:
                if self.database.in_transaction:
                    self.database.execute("ROLLBACK")
        return Written(at, generation, locked - begun, boot_clock() - locked)

    def _change_locked(
        self, session: str, update: str, values: list[tuple[object, ...]], generation: str,
        gate: Callable[[sqlite3.Connection], str | None], clock: Callable[[], float],
    ) -> int:  # fmt: skip
        if reason := gate(self.database):
            raise RefusedError(reason)
        for row in values:
            if self.database.execute(update, row).rowcount != 1:
                raise RefusedError("a row changed meanwhile")
        return _mark(self.database, session, generation, int(clock() * 1000))


@contextmanager
def writing(path: str) -> Iterator[RowWriter]:
    """Open an agent's database for changing rows.

    What is written is moved from the log into the database by the agent, or by the last one that
    closes it.
    """
    with ExitStack() as held:
        with _explained(path):
            database = held.enter_context(sqlite.opened(path, "rw", PATIENCE))
            if os.path.realpath(path) != path:
                raise RefusedError("a link was put into its path meanwhile")
            database.execute("PRAGMA foreign_keys = ON")
            database.execute("PRAGMA wal_autocheckpoint = 0")
            database.execute(f"PRAGMA cache_size = -{CACHE}")
            # The table's constraint calls a function.
            database.execute("PRAGMA trusted_schema = ON")
        yield RowWriter(path, database)  # outside: an error of our own store is not its agent's


_WHERE = " WHERE session_id = ? AND seq = ? AND event_json IS CAST(? AS TEXT)"
_UPDATE_PLAIN = "UPDATE transcript_events SET event_json = CAST(? AS TEXT)" + _WHERE  # noqa: S608
# What changes a row only where it holds, column for column, what was read.
_UPDATE = (
    "UPDATE transcript_events SET event_json = CAST(? AS TEXT), event_zstd = ?,"  # noqa: S608
    " event_utf8_bytes = ?, navigation_json = CAST(? AS TEXT)" + _WHERE
    + " AND event_zstd IS ? AND event_utf8_bytes IS ? AND navigation_json IS CAST(? AS TEXT)"
)  # fmt: skip


def _values(session: str, edit: RowEdit, *, compressing: bool) -> tuple[object, ...]:
    old, new = edit.before, edit.after
    if not compressing:
        return new.text, session, edit.seq, old.text
    columns = (new.text, new.packed, new.size, new.navigation)
    return (*columns, session, edit.seq, old.text, old.packed, old.size, old.navigation)


def _mark(connection: sqlite3.Connection, session: str, generation: str, now: int) -> int:
    """Return the agent that the transcript was rewritten, and return the time noted for it."""
    rotated = connection.execute(
        "UPDATE transcript_rewrite_watermarks SET generation = ?, updated_at = ?"
        " WHERE session_id = ?",
        (generation, now, session),
    ).rowcount
    touched = connection.execute(
        "UPDATE session_windows SET transcript_updated_at = max(?,"
        " coalesce(transcript_updated_at, 0) + 1, coalesce(transcript_observed_at, 0) + 1)"
        " WHERE session_id = ?",
        (now, session),
    ).rowcount
    if (rotated, touched) != (1, 1):
        raise RefusedError("the session was deleted meanwhile")
    row = connection.execute(
        "SELECT transcript_updated_at FROM session_windows WHERE session_id = ?", (session,)
    ).fetchone()
    return int(row[0])


@contextmanager
def _explained(path: str) -> Iterator[None]:
    """Turn what SQLite says into what a person can act on; never its message about content."""
    try:
        yield
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorname", None) or "SQLITE_ERROR"
        if code.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
            raise BusyError(f"{path}: its agent is writing to it; try again") from error
        if code.startswith("SQLITE_FULL"):
            raise FailedError(f"{path}: the disk is full; this step changed nothing") from error
        told = f"{path}: it cannot be written ({code}); this step changed nothing"
        raise FailedError(told) from error


MOST_ROWS = 64
# The most that one transaction changes: the agent waits for no more than milliseconds.
MOST_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class RowEdit:
    """One row, the columns that it must still hold, and those that it shall hold."""

    seq: int
    before: Payload
    after: Payload


@dataclass(frozen=True, slots=True)
class RowPlan:
    """The edits that fall on one row, in order and still by offset among the lines."""

    place: RowPlace
    edits: tuple[Edit, ...]

    @property
    def weight(self) -> int:
        """How many bytes the row says before and afterwards, together."""
        return 2 * self.place.size - sum(edit.gain for edit in self.edits)

    def text_after(self, text: bytes, value_of: Callable[[int], bytes]) -> bytes:
        """Return the row's text with its edits done; `value_of` gives the values put back."""
        pieces, done = [], 0
        for edit in self.edits:
            begin, stop = edit.start - self.place.offset, edit.end - self.place.offset
            new = edit.bytes_after(value_of)
            if not done <= begin <= stop <= len(text) or b"\n" in new:
                raise ValueError("edits out of order, or beyond their line")
            pieces += [text[done:begin], new]
            done = stop
        return b"".join((*pieces, text[done:]))


def by_row(index: RowIndex, edits: Iterable[Edit]) -> list[RowPlan]:
    """Sort edits by the row that they fall on; each lies within one line."""
    found: dict[int, list[Edit]] = {}
    for edit in edits:
        number = index.at(edit.start)
        if edit.end > index[number].end:
            raise ValueError("an edit crosses the end of its line")
        found.setdefault(number, []).append(edit)
    return [
        RowPlan(index[number], tuple(sorted(found[number], key=lambda one: (one.start, one.end))))
        for number in sorted(found)
    ]


def rewritten(
    before: Payload, row: RowPlan, value_of: Callable[[int], bytes],
    original: Callable[[bytes], Payload | None], *, compressing: bool,
) -> RowEdit:  # fmt: skip
    """Return the edit of one row: its new text in the columns that held it once, or as it is.

    `original` gives the columns in which the agent itself kept a text, where they are known;
    `compressing` says that events may be stored compressed.
    """
    text = row.text_after(before.event(), value_of)
    known = original(text)
    after = known if known and known.event() == text else plain(text, compressing=compressing)
    return RowEdit(row.place.seq, before, after)


def chunks(rows: Sequence[RowPlan]) -> Iterator[list[RowPlan]]:
    """Yield the rows in the order of their commits, as many at a time as one transaction takes.

    What leaves goes first, from the newest row to the oldest; then what comes back, from the
    oldest to the newest. So each commit leaves a history that its provider accepts, also where
    thinking is sealed together with everything before it: a seal leaves before anything in front
    of it changes, and comes back after everything in front of it did.
    """
    chunk: list[RowPlan] = []
    weight = 0
    for row in sorted(rows, key=_turn):
        if chunk and (len(chunk) >= MOST_ROWS or weight + row.weight > MOST_BYTES):
            yield chunk
            chunk, weight = [], 0
        chunk.append(row)
        weight += row.weight
    if chunk:
        yield chunk


def _turn(row: RowPlan) -> tuple[bool, int]:
    kinds = {type(edit) for edit in row.edits}
    comes_back = Putback in kinds and Cut not in kinds
    return comes_back, row.place.seq if comes_back else -row.place.seq


# The number of an event to the digest (as hexadecimal text) of its text.
Digests = dict[int, str]


def digests(database: sqlite3.Connection, session: str, seqs: Iterable[int]) -> Digests:
    """Return what these rows say now; those that are gone are left out."""
    schema = openclaw_schema.examine(database)
    said: Digests = {}
    for seq in seqs:
        for _, payload in openclaw_schema.payloads(database, schema, session, seq, seq):
            try:
                said[seq] = digest(payload.event()).hex()
            except openclaw_schema.UnreadableEventError:
                said[seq] = ""
    return said


def digests_at(root: str, path: str, session: str, seqs: Iterable[int]) -> Digests:
    """Return what these rows of the database at `path` say now; raise OSError where it hides.

    `root` is the directory of agents that it lies below.
    """
    presence = openclaw_database.presence(os.path.dirname(root), path)
    try:
        with readable(), sqlite.reading(path, owned=not presence.nobody) as database:
            return digests(database, session, seqs)
    except BusyError as error:
        raise OSError(errno.EBUSY, "its agent is using it") from error
