"""Unsigned 64-bit numbers (inodes on btrfs and others use the top bit) in SQLite's integers."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from brainsurgeon.model.entries import KeyPath


_WRAP = 1 << 64


def signed(number: int) -> int:
    """Write an unsigned number as a signed one, as a column holds it."""
    return number - _WRAP if number >= _WRAP // 2 else number


def unsigned(number: int) -> int:
    """Read an unsigned number from a column."""
    return number % _WRAP


def path_text(name: str) -> str:
    """Write the name of a file or directory as text, whatever bytes it is made of."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def storable(text: str) -> str:
    """Write a text that an agent chose, with a question mark for half a character."""
    return text.encode("utf-8", "replace").decode()


def key_path_text(path: KeyPath) -> str:
    """Write where in an entry a value stood: as JSON, or the usual places in short."""
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
