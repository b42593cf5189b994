"""What was asked for and waits until its session is settled."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable

    from brainsurgeon.model import KeyPath

LONGEST_WAIT = 600.0
"""Seconds a put-back waits at least before it lapses: its value was delivered when asked for."""


@dataclass(frozen=True, slots=True)
class Wish:
    """One open wish; `paths` of None means every value of the entry."""

    id: int
    session_id: int
    entry_id: str
    action: str
    paths: tuple[KeyPath, ...] | None
    value: Any
    pristine: bool
    asked_at: float
    lapses_at: float | None
    answer: bytes | None = None


def add_redact(
    connection: sqlite3.Connection, session_id: int, entry_id: str, answer: bytes, now: float
) -> None:
    """Note that the call whose answer has this digest is to be redacted; it does not lapse."""
    connection.execute(
        "INSERT INTO wishes (session_id, entry_id, action, asked_at, answer)"
        " VALUES (?, ?, 'redact', ?, ?)",
        (session_id, entry_id, now, answer),
    )


def add_restore(
    connection: sqlite3.Connection,
    session_id: int,
    entry_id: str,
    paths: Iterable[KeyPath] | None,
    now: float,
    lapses_at: float,
    *,
    pristine: bool = False,
) -> None:
    """Note that values are to be put back."""
    narrowed = None if paths is None else json.dumps(list(paths))
    connection.execute(
        "INSERT INTO wishes (session_id, entry_id, action, paths, pristine, asked_at, lapses_at)"
        " VALUES (?, ?, 'restore', ?, ?, ?, ?)",
        (session_id, entry_id, narrowed, pristine, now, lapses_at),
    )


def add_set(
    connection: sqlite3.Connection, session_id: int, entry_id: str, value: Any, now: float
) -> None:
    """Note that `_extractable` is to be set; a newer word on the same entry replaces an older."""
    connection.execute(
        "UPDATE wishes SET state = 'done', closed_at = ?, why = 'replaced by a newer one'"
        " WHERE session_id = ? AND entry_id = ? AND action = 'set' AND state = 'open'",
        (now, session_id, entry_id),
    )
    connection.execute(
        "INSERT INTO wishes (session_id, entry_id, action, value, asked_at)"
        " VALUES (?, ?, 'set', ?, ?)",
        (session_id, entry_id, json.dumps(value), now),
    )


def open_wishes(connection: sqlite3.Connection, session_id: int) -> list[Wish]:
    """Give the open wishes of a session, oldest first."""
    rows = connection.execute(
        "SELECT id, session_id, entry_id, action, paths, value, pristine, asked_at, lapses_at,"
        " answer FROM wishes WHERE session_id = ? AND state = 'open' ORDER BY id",
        (session_id,),
    )
    return [_wish(row) for row in rows]


def _wish(row: tuple[Any, ...]) -> Wish:
    values = list(row)
    values[4] = None if row[4] is None else tuple(tuple(path) for path in json.loads(row[4]))
    values[5] = None if row[5] is None else json.loads(row[5])
    values[6] = bool(row[6])
    return Wish(*values)


def sessions_waiting(connection: sqlite3.Connection) -> dict[bytes, float]:
    """Give the paths of the sessions with open wishes, and when the newest was made."""
    rows = connection.execute(
        "SELECT s.path, max(w.asked_at) FROM wishes w JOIN sessions s ON s.id = w.session_id"
        " WHERE w.state = 'open' GROUP BY s.path"
    )
    return dict(rows)


def close(
    connection: sqlite3.Connection, ids: Iterable[int], state: str, why: str, now: float
) -> None:
    """Close wishes as done or lapsed, with the reason."""
    connection.executemany(
        "UPDATE wishes SET state = ?, why = ?, closed_at = ? WHERE id = ?",
        ((state, why, now, wish) for wish in ids),
    )


def lapse(connection: sqlite3.Connection, now: float) -> None:
    """Let the put-backs go that found no settled moment in time; their values were delivered."""
    connection.execute(
        "UPDATE wishes SET state = 'lapsed', closed_at = ?, why = 'no settled moment in time;"
        " the value was delivered when it was asked for'"
        " WHERE state = 'open' AND lapses_at IS NOT NULL AND lapses_at <= ?",
        (now, now),
    )


def newest(connection: sqlite3.Connection, session_id: int) -> int:
    """Give the id of the newest wish of a session, closed ones too; 0 without any."""
    row = connection.execute(
        "SELECT max(id) FROM wishes WHERE session_id = ?", (session_id,)
    ).fetchone()
    return int(row[0] or 0)
