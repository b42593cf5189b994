"""Find where a value sits in a line's bytes, and splice there.

A line is handled as text decoded by latin-1: JSON's structure is ASCII and no byte of a UTF-8
sequence looks like it, so that one character is one byte and every index is a byte offset. The
scanning is done by the standard library's C scanner; numbers stay text, so that a number of
5,000 digits costs nothing (Python refuses to convert it).
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from brainsurgeon.model.entries import KeyPath

_decoder: Any = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=str)
_scan: Callable[[str, int], tuple[Any, int]] = _decoder.scan_once
_WHITE = " \t\n\r"
_space = re.compile(f"[{_WHITE}]*").match

Span = tuple[int, int]


class UntouchableError(Exception):
    """The line cannot be cut with certainty; it is left alone for the reason given."""


def locate(line: bytes, paths: Iterable[KeyPath]) -> dict[KeyPath, Span]:
    """Find the spans of the values that `paths` name, in one walk over the line.

    A path that leads nowhere is missing from the answer. Raise UntouchableError when a key on one
    of the paths stands twice (which of the two a reader takes is the reader's choice) and when the
    line is nested too deeply to be walked.
    """
    found: dict[KeyPath, Span] = {}
    text = line.decode("latin-1")
    try:
        _walk(text, _skip(text, 0), [(path, path) for path in paths], found)
    except (RecursionError, StopIteration, ValueError, IndexError) as error:
        raise UntouchableError("not walkable as JSON") from error
    return found


def members(line: bytes) -> list[tuple[str, int, int, int]]:
    """List the top-level members of an object: key, start of the key, start and end of the value.

    Raise UntouchableError when the line is not one JSON object that can be walked.
    """
    text = line.decode("latin-1")
    listed = []
    try:
        at = _skip(text, 0)
        if text[at] != "{":
            raise UntouchableError("not an object")
        at = _skip(text, at + 1)
        while text[at] != "}":
            name, value = _key(text, at)
            end = _scan(text, value)[1]
            listed.append((name, at, value, end))
            at = _next(text, end)
    except (RecursionError, StopIteration, ValueError, IndexError) as error:
        raise UntouchableError("not walkable as JSON") from error
    return listed


def splice(line: bytes, cuts: Iterable[tuple[int, int, bytes]]) -> bytes:
    """Give the line with each `(start, end, new)` carried out; the cuts must not overlap.

    Cuts at one and the same place come out in the order in which they are given.
    """
    pieces: list[bytes] = []
    done = 0
    for start, end, new in sorted(cuts, key=lambda cut: cut[:2]):
        pieces += (line[done:start], new)
        done = end
    pieces.append(line[done:])
    return b"".join(pieces)


def _skip(text: str, at: int) -> int:
    """Step over white space, of which agents write none."""
    if text[at] not in _WHITE:
        return at
    match = _space(text, at)
    return match.end() if match else at


def _key(text: str, at: int) -> tuple[str, int]:
    """Read the key at `at`; return it and where its value starts."""
    if text[at] != '"':
        raise ValueError("a key is a string")
    name, end = _scan(text, at)
    token = text[at:end]
    if "\\" in token or not token.isascii():
        name = json.loads(token.encode("latin-1"))
    return name, _skip(text, _skip(text, end) + 1)


def _next(text: str, at: int) -> int:
    """Step over white space and a comma."""
    at = _skip(text, at)
    return _skip(text, at + 1) if text[at] == "," else at


_Wanted = list[tuple["KeyPath", "KeyPath"]]
"""What is left of a path, and the whole path."""


def _walk(text: str, at: int, wanted: _Wanted, found: dict[KeyPath, Span]) -> int:
    """Walk the value at `at` and return its end."""
    deeper: dict[str | int, _Wanted] = {}
    for rest, path in wanted:
        if rest:
            deeper.setdefault(rest[0], []).append((rest[1:], path))
    if deeper and text[at] == "{":
        end = _walk_object(text, at, deeper, found)
    elif deeper and text[at] == "[":
        end = _walk_array(text, at, deeper, found)
    else:
        end = _scan(text, at)[1]
    found.update({path: (at, end) for rest, path in wanted if not rest})
    return end


def _walk_object(
    text: str, at: int, deeper: dict[str | int, _Wanted], found: dict[KeyPath, Span]
) -> int:
    at = _skip(text, at + 1)
    seen: set[str] = set()
    while text[at] != "}":
        name, value = _key(text, at)
        if name in seen and name in deeper:
            raise UntouchableError("a key on the path stands twice")
        seen.add(name)
        wanted = deeper.get(name)
        end = _walk(text, value, wanted, found) if wanted else _scan(text, value)[1]
        at = _next(text, end)
    return at + 1


def _walk_array(
    text: str, at: int, deeper: dict[str | int, _Wanted], found: dict[KeyPath, Span]
) -> int:
    at = _skip(text, at + 1)
    index = 0
    while text[at] != "]":
        wanted = deeper.get(index)
        end = _walk(text, at, wanted, found) if wanted else _scan(text, at)[1]
        at = _next(text, end)
        index += 1
    return at + 1
