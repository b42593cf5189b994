"""Read rows from a damaged database, around the pages that cannot be read."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_BEYOND = 100_000
"""How many row ids after the last readable one are tried where the highest is unknown."""
_INDEXES = {
    "directory": "sqlite_autoindex_agents_1",
    "path": "sqlite_autoindex_sessions_1",
    "identity": "sessions_identity",
}
_Row = tuple[Any, ...]


def in_ranges(old: sqlite3.Connection, table: str, columns: str) -> Iterator[_Row | None]:
    """Yield the readable rows of a table, and None for each row id that may have been a row."""
    query = f"SELECT rowid, {columns} FROM {table}"  # noqa: S608
    last = 0
    try:
        for row in old.execute(f"{query} ORDER BY rowid"):
            last = row[0]
            yield row[1:]
    except sqlite3.Error:
        ranges = [(last + 1, _highest(old, table, last))]
    else:
        return
    while ranges:
        low, high = ranges.pop()
        last = low - 1
        try:
            for row in old.execute(f"{query} WHERE rowid BETWEEN ? AND ?", (low, high)):
                last = row[0]
                yield row[1:]
        except sqlite3.Error:
            if last + 1 >= high:
                yield None
            else:
                middle = (last + 1 + high) // 2
                ranges += [(middle + 1, high), (last + 1, middle)]


def _highest(old: sqlite3.Connection, table: str, last: int) -> int:
    """Return the highest row id that a table may have."""
    try:
        return int(old.execute(f"SELECT max(rowid) FROM {table}").fetchone()[0])  # noqa: S608
    except sqlite3.Error:
        return sequences(old).get(table) or last + _BEYOND


def from_both_ends(
    old: sqlite3.Connection, source: str, columns: str, key: Iterable[str]
) -> Iterator[_Row | None]:  # fmt: skip
    """Yield the rows before the first damaged page and after the last, and None for a gap."""
    for direction in ("ASC", "DESC"):
        order = ", ".join(f'"{column}" {direction}' for column in key)
        try:
            yield from old.execute(f"SELECT {columns} FROM {source} ORDER BY {order}")  # noqa: S608
        except sqlite3.Error:
            yield None
        else:
            return


def by_index(old: sqlite3.Connection, table: str, column: str) -> dict[int, bytes]:
    """Return the readable values of a column, by row id, from its index alone."""
    source, columns = f"{table} INDEXED BY {_INDEXES[column]}", f'id, CAST("{column}" AS BLOB)'
    rows = from_both_ends(old, source, columns, [column])
    return {row[0]: row[1] for row in rows if row and type(row[0]) is int and row[1] is not None}


def sequences(connection: sqlite3.Connection) -> dict[str, int]:
    """Return the highest row ids ever used, by table; empty if they cannot be read."""
    try:
        return dict(connection.execute("SELECT name, seq FROM sqlite_sequence"))
    except sqlite3.Error:
        return {}
