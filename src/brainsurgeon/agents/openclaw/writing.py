"""Change the rows of a session in OpenClaw's database. No other module does.

A row is changed only if its columns still have the values that were read, and only if the session
is idle under the lock. One transaction changes the rows, and the generation and time of the
transcript, like OpenClaw's `rewriteSqliteTranscriptEventRowsInTransaction` (openclaw 2026.9.6).
No index contains the changed columns, and no trigger fires.
"""

import sqlite3
import time
import uuid
from collections.abc import Callable, Sequence

from msgspec.structs import astuple

from brainsurgeon.agents.rows import RowEdit
from brainsurgeon.files.reading import RefusedError
from brainsurgeon.files.transactions import transaction

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
    called under the lock. Raises RefusedError if it returns a reason or the session changed, and as
    `transaction`.
    """
    # Prepared before the lock is taken.
    update = _UPDATE if compressing else _UPDATE_PLAIN
    columns = 4 if compressing else 1
    values = [
        (*astuple(edit.after)[:columns], session, edit.key, *astuple(edit.before)[:columns])
        for edit in edits
    ]
    generation = uuid.uuid4().hex
    with transaction(path, database, durable=durable):
        if reason := gate(database):
            raise RefusedError(reason)
        for row in values:
            if database.execute(update, row).rowcount != 1:
                raise RefusedError("a row changed meanwhile")
        at = _mark(database, session, generation, int(clock() * 1000))
    return at, generation


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
