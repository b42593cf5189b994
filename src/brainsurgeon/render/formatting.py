"""Format JSON documents, times, tables and long values. Tables fit the terminal."""

import json
import math
import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from traceback import walk_tb
from typing import Any

from msgspec import to_builtins

from brainsurgeon.model.text import (
    boundary,
    escape_surrogates,
    iso,
    parse_time,
    readable,
    short_titles,
)

# Increased whenever a name in the JSON of a command changes its meaning or is removed.
SCHEMA = 1
WIDTH = 80
_NARROWEST = 8
_MOMENT = re.compile(r"\b[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}(:[0-9]{2})?Z")

# Keys with unconverted values: texts of sessions, or objects whose keys are paths or reasons.
_VERBATIM = ("content", "lines", "reasons", "sizes_bytes")


def document(value: Any, indent: int | None = 2) -> str:
    return json.dumps({"schema": SCHEMA, **in_json(value)}, indent=indent)


def in_json(value: Any) -> Any:
    """Return a report as JSON values: times in UTC, and file names without undecodable bytes."""
    return _in_json(to_builtins(value))


def _in_json(value: Any, key: str = "") -> Any:
    if key in _VERBATIM:
        return value
    if isinstance(value, dict):
        return {name: _in_json(item, name) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_in_json(item) for item in value]
    if isinstance(value, int | float) and (key == "at" or key.endswith(("_at", "_until"))):
        return iso(value)
    return escape_surrogates(value) if isinstance(value, str) else value


def unexpected(error: Exception) -> str:
    """Describe an error by its kind and place, not by its message, which may quote content."""
    *_, (frame, line) = walk_tb(error.__traceback__)
    where = f"{os.path.basename(frame.f_code.co_filename)}:{line}"
    reason = error.strerror if isinstance(error, OSError) else type(error).__name__
    return f"unexpected: {reason} at {where}; nothing more was done"


def local(moment: float) -> str:
    return datetime.fromtimestamp(moment).astimezone().strftime("%Y-%m-%d %H:%M:%S %Z")


def in_local_time(text: str) -> str:
    """Convert ISO 8601 times to local time. Omit today's date from times without seconds."""

    def convert(found: re.Match[str]) -> str:
        moment = parse_time(found[0])
        if moment is None:  # as for February 30
            return found[0]
        if found[1]:
            return local(moment)
        then, now = (datetime.fromtimestamp(at).astimezone() for at in (moment, time.time()))
        return then.strftime("%H:%M" if then.date() == now.date() else "%Y-%m-%d %H:%M")

    return _MOMENT.sub(convert, text)


_TROUBLE = re.compile(r"^(?:error|trouble|failed)(?= )|(?<=: )failed(?=, )", re.MULTILINE)
_WARNING = re.compile(r"^warning(?= )", re.MULTILINE)
_AMOUNT = re.compile(r"(?<![\w.,/-])(?:\$[0-9.,]*[0-9]|[0-9][0-9.,]* (?:[KMGT]?B\b|%))(?![\w/-])")
_HEADINGS = set[str]()  # of the tables that were made


def coloured(text: str) -> str:
    """Show headings in bold, amounts in cyan, words of trouble in red, warnings in yellow."""
    lines = (
        f"\x1b[1m{line}\x1b[0m" if line.strip() in _HEADINGS
        else _AMOUNT.sub("\x1b[36m\\g<0>\x1b[0m", line)
        for line in text.split("\n")
    )  # fmt: skip
    plain = _TROUBLE.sub("\x1b[31m\\g<0>\x1b[0m", "\n".join(lines))
    return _WARNING.sub("\x1b[33m\\g<0>\x1b[0m", plain)


def table(
    head: Sequence[str], rows: Iterable[Sequence[str]], *, left: int = 1, spare: int = 0,
    fixed: int = 0,
) -> str:  # fmt: skip
    """Return a table whose first `left` columns are aligned to the left, the others to the right.

    To fit a terminal, left columns but the first `fixed` ones are shortened in the middle, to at
    least _NARROWEST characters. `spare` characters of each line stay free. Names of sessions are
    `fixed`: a shortened one would not be found.
    """
    from rich.cells import cell_len

    cells = [[readable(cell) for cell in row] for row in rows]
    widths = [max(cell_len(row[i]) for row in [list(head), *cells]) for i in range(len(head))]
    room = columns() - spare - sum(widths[left:]) - 2 * (len(head) - 1)
    may_shrink = range(fixed, left)
    while (
        sum(widths[:left]) > room and max((widths[i] for i in may_shrink), default=0) > _NARROWEST
    ):
        widths[max(may_shrink, key=lambda i: widths[i])] -= 1
    lines = [
        "  ".join(
            _fit(cell, width) if i < left else " " * (width - cell_len(cell)) + cell
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in [list(head), *cells]
    ]
    _HEADINGS.add(lines[0].strip())
    return "\n".join(lines)


def first(lines: Sequence[str], most: int, others: str) -> list[str]:
    more = len(lines) - most
    return [*lines[:most], others.format(more)] if more > 0 else [*lines]


# A name, the least room in which the column is shown, and a function for its cells.
Column = tuple[str, float, Callable[..., str]]


def columned(
    listed: Iterable[Column], rows: Iterable[Any], *given: Any, room: float | None = None
) -> tuple[list[str], list[list[str]]]:
    """Return names and cells of the columns that fit into `room`, by default the terminal."""
    room = columns() if room is None else room
    wanted = [(name, cell) for name, width, cell in listed if width <= room]
    return [name for name, _ in wanted], [[cell(row, *given) for _, cell in wanted] for row in rows]


def titles(listed: Iterable[str], *, only_some: bool = False) -> dict[str, str]:
    """Return a name for each session: short on a terminal, whole for programs.

    `only_some` if others are known that are not listed.
    """
    every = list(listed)
    if columns() == math.inf:
        return dict(zip(every, every, strict=True))
    return short_titles(every, only_some=only_some)


def title(session: str) -> str:
    return titles([session], only_some=True)[session]


def width(text: str) -> int:
    """Return the number of columns of a terminal in which a text is shown."""
    from rich.cells import cell_len

    return cell_len(readable(text))


def columns() -> float:
    if not sys.stdout.isatty():  # nothing is shortened: programs need whole names
        return math.inf
    return shutil.get_terminal_size((WIDTH, 24)).columns


def _fit(text: str, width: int) -> str:
    from rich.cells import cell_len, set_cell_size

    if cell_len(text) <= width:
        return text + " " * (width - cell_len(text))
    half = (width - 1) // 2
    end = text[::-1]
    return f"{set_cell_size(text, half)}…{set_cell_size(end, width - 1 - half)[::-1]}"


def bar(share: float, room: int) -> str:
    """Return a bar of at most `room` characters for a share from 0 to 1."""
    return "#" * (min(room, max(1, round(share * room))) if share else 0)


# Offsets count bytes of a value's UTF-8 text, or of the JSON of a block. A range does not include
# its end. Offsets are moved so that no character is cut in two.


def fitted(values: dict[str, Any], limit: int) -> dict[str, Any]:
    """Keep the first values up to `limit` bytes, then both ends of one, then only sizes."""
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
    data = _bytes(value)
    start = boundary(data, offset)
    end = boundary(data, start + limit)
    if end == start < len(data):  # a character is wider than the page
        end = boundary(data, start + 4)
    return {
        "text": _text(data[start:end]),
        "range": [start, end],
        "next_offset": end if end < len(data) else None,
        "size_bytes": len(data),
    }


def _both_ends(data: bytes, room: int) -> dict[str, Any]:
    head = boundary(data, room // 2)
    tail = boundary(data, len(data) - room // 2, upwards=True)
    return {
        "head": _text(data[:head]),
        "left_out": [head, tail],
        "tail": _text(data[tail:]),
        "size_bytes": len(data),
    }


def _bytes(value: Any) -> bytes:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text.encode("utf-8", "surrogatepass")


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogatepass")
