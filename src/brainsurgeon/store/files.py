"""The scan's memory of each file: a cache that may be lost at the cost of time only."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from brainsurgeon.model import Fingerprint

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable


@dataclass(frozen=True, slots=True)
class Seen:
    """A file as it was last looked at, under which rules, and when something falls due."""

    fingerprint: Fingerprint
    rules: str
    format: str | None
    outcome: str
    reason: str
    first_seen: float
    due_at: float | None
    looked_at: float


_COLUMNS = (
    "device, inode, size, mtime_ns, ctime_ns, rules, format, outcome, reason, first_seen, due_at,"
    " looked_at"
)


def remembered(connection: sqlite3.Connection) -> dict[bytes, Seen]:
    """Give everything remembered, by path; one query a pass."""
    rows = connection.execute(f"SELECT path, {_COLUMNS} FROM files")  # noqa: S608
    return {row[0]: _seen(row) for row in rows}


def _seen(row: tuple[Any, ...]) -> Seen:
    return Seen(Fingerprint(row[1] % (1 << 64), row[2] % (1 << 64), *row[3:6]), *row[6:])


def remember(connection: sqlite3.Connection, path: str, seen: Seen) -> None:
    """Remember a file as it was just looked at."""
    mark = seen.fingerprint
    connection.execute(
        f"INSERT INTO files (path, {_COLUMNS})"  # noqa: S608
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
        " ON CONFLICT (path) DO UPDATE SET device = excluded.device, inode = excluded.inode,"
        " size = excluded.size, mtime_ns = excluded.mtime_ns, ctime_ns = excluded.ctime_ns,"
        " rules = excluded.rules, format = excluded.format, outcome = excluded.outcome,"
        " reason = excluded.reason, first_seen = excluded.first_seen, due_at = excluded.due_at,"
        " looked_at = excluded.looked_at",
        (os.fsencode(path), _signed(mark.device), _signed(mark.inode), mark.size, mark.mtime_ns,
         mark.ctime_ns, seen.rules, seen.format, seen.outcome, seen.reason, seen.first_seen,
         seen.due_at, seen.looked_at),
    )  # fmt: skip


def _signed(number: int) -> int:
    return number - (1 << 64) if number >= 1 << 63 else number


def remembered_one(connection: sqlite3.Connection, path: str) -> Seen | None:
    """Give what is remembered of one file, or None."""
    row = connection.execute(
        f"SELECT path, {_COLUMNS} FROM files WHERE path = ?",  # noqa: S608
        (os.fsencode(path),),
    ).fetchone()
    return _seen(row) if row else None


def forget(connection: sqlite3.Connection, paths: Iterable[bytes]) -> None:
    """Forget files that are gone."""
    connection.executemany("DELETE FROM files WHERE path = ?", ((path,) for path in paths))
