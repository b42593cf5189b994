"""The base class for tables, and conversions between values and columns."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from brainsurgeon.model.entries import KeyPath

if TYPE_CHECKING:
    import sqlite3

_WRAP = 1 << 64


class Table:
    """Reads and writes one or a few tables; every write is part of the caller's transaction."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._execute = connection.execute
        self._executemany = connection.executemany

    def _first(self, statement: str, *values: object) -> Any:
        row = self._execute(statement, values).fetchone()
        return row[0] if row else None

    def _column(self, statement: str, *values: object) -> list[Any]:
        return [row[0] for row in self._execute(statement, values)]

    def _insert(self, table: str, row: Mapping[str, object], or_else: str = "") -> int:
        """Insert a row, given as values by column, and return its id."""
        places = ", ".join("?" * len(row))
        cursor = self._execute(
            f"INSERT {or_else} INTO {table} ({', '.join(row)}) VALUES ({places})",  # noqa: S608
            (*row.values(),),
        )
        return int(cursor.lastrowid or 0)

    def _upsert(self, table: str, key: str, row: Mapping[str, object]) -> None:
        """Insert a row, or update the columns of the one with the same key."""
        changed = ", ".join(f"{column} = excluded.{column}" for column in row if column != key)
        self._execute(
            f"INSERT INTO {table} ({', '.join(row)}) VALUES ({', '.join('?' * len(row))})"  # noqa: S608
            f" ON CONFLICT ({key}) DO UPDATE SET {changed}",
            (*row.values(),),
        )


def columns(kind: type[Struct]) -> str:
    """Return the columns with the names of a record's fields."""
    return ", ".join(kind.__struct_fields__)


# Inodes on btrfs and other filesystems use all 64 bits; SQLite's integers are signed.
def signed(number: int) -> int:
    return number - _WRAP if number >= _WRAP // 2 else number


def unsigned(number: int) -> int:
    return number % _WRAP


def path_text(name: str) -> str:
    """Return the name of a file as text; bytes that are not UTF-8 are escaped."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def storable(text: str) -> str:
    """Return a text with each lone surrogate replaced by a question mark."""
    return text.encode("utf-8", "replace").decode()


def key_path_text(path: KeyPath) -> str:
    """Return a key path as JSON, or in the short form that the schema defines for `extractions`."""
    match path:
        case ("message", "content", int() as at, "text"):
            return f"t{at}"
        case ("message", "content", int() as at, "content"):
            return f"c{at}"
    return json.dumps(path)


def key_path_read(text: str) -> KeyPath:
    if text.startswith("["):
        return tuple(json.loads(text))
    return ("message", "content", int(text[1:]), "text" if text[0] == "t" else "content")
