"""Values too long to be given at once: how they begin and end, or one page of them.

Ranges are bytes of the value's UTF-8 text (of a whole block, its JSON), from inclusive, to
exclusive; they are moved inwards so that no character is cut in two.
"""

from __future__ import annotations

import json
from typing import Any

_CONTINUES, _CONTINUATION = 0xC0, 0x80


def fitted(values: dict[str, Any], limit: int) -> dict[str, Any]:
    """Give values whole as long as they fit into `limit` bytes together; of the rest both ends."""
    given: dict[str, Any] = {}
    room = limit
    for path, value in values.items():
        data = _bytes(value)
        if len(data) <= room:
            given[path] = value
            room -= len(data)
        else:
            given[path] = _both_ends(data, room)
            room = 0
    return given


def page(value: Any, offset: int, limit: int) -> dict[str, Any]:
    """Give the part of a value that starts at `offset`, at most `limit` bytes of it."""
    data = _bytes(value)
    start = _boundary(data, offset)
    end = _boundary(data, start + limit)
    if end == start < len(data):  # a character is wider than the page
        end = _boundary(data, start + 4)
    return {
        "text": _text(data[start:end]),
        "range": [start, end],
        "next_offset": end if end < len(data) else None,
        "size_bytes": len(data),
    }


def _both_ends(data: bytes, room: int) -> dict[str, Any]:
    head = _boundary(data, room // 2)
    tail = len(data) - room // 2
    while tail < len(data) and _inside(data, tail):
        tail += 1
    return {
        "head": _text(data[:head]),
        "left_out": [head, tail],
        "tail": _text(data[tail:]),
        "size_bytes": len(data),
    }


def _boundary(data: bytes, at: int) -> int:
    """Move a place back to where a character starts."""
    at = min(at, len(data))
    while _inside(data, at):
        at -= 1
    return at


def _inside(data: bytes, at: int) -> bool:
    return 0 < at < len(data) and data[at] & _CONTINUES == _CONTINUATION


def _bytes(value: Any) -> bytes:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text.encode("utf-8", "surrogatepass")


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogatepass")
