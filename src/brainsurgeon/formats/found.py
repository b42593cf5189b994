"""Find values in a line by their bytes, and prove it on the short line that is left without them.

Most lines are written compactly, every value in the one usual spelling. There a value is looked up
instead of walking the whole line (`spans.locate`), which stays the judge wherever anything is
unusual: both give the same places, or the same refusal.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import orjson

from brainsurgeon.formats import spans
from brainsurgeon.model.entries import value_at

if TYPE_CHECKING:
    from collections.abc import Sequence

    from brainsurgeon.formats.spans import Span
    from brainsurgeon.model.entries import Entry, KeyPath

_BEGINNING = 48
"""Bytes of a value by which it is looked up: `bytes.find` is slow with a long needle."""
_LONGEST = 4 << 20
"""Bytes; for a longer line, writing a value once more might take too much memory."""
_MOST = 64
"""Values; every one of them is looked up on its own, and the walk finds all of them at once."""
_MARK = b"[[place-"


def places(raw: bytes, entry: Entry, paths: Sequence[KeyPath]) -> dict[KeyPath, Span]:
    """Find the spans of the values at some paths; `entry` is what the line says.

    Raise UntouchableError as `spans.locate` does.
    """
    return quickly(raw, entry, paths) or spans.locate(raw, paths)


def quickly(raw: bytes, entry: Entry, paths: Sequence[KeyPath]) -> dict[KeyPath, Span] | None:
    """Find them by their bytes; None where it is not certain that `spans.locate` says the same.

    Each value found gives way to a mark of its own. What is left must be written exactly as orjson
    writes what it says: then no key stands twice and a mark is spelled in one way only, so that a
    mark that stands there once and is said at a path shows where the value of that path stood.
    """
    if len(raw) > _LONGEST or len(paths) > _MOST:
        return None
    found: list[Span] = []
    at = 0
    for path in paths:
        span = _look_up(raw, value_at(entry, path), at)
        if span is None:
            return None
        found.append(span)
        at = span[1]
    found.sort()
    if any(one[1] > other[0] for one, other in pairwise(found)):
        return None
    marks = [b'"%b%d]]"' % (_MARK, number) for number in range(len(found))]
    rest = spans.splice(raw, [(*span, mark) for span, mark in zip(found, marks, strict=True)])
    said = _as_it_is_written(rest)
    if said is None or rest.count(_MARK) != len(found):
        return None
    spelled = {mark[1:-1].decode(): span for mark, span in zip(marks, found, strict=True)}
    told = {path: spelled.get(said_there) for path in paths
            if isinstance(said_there := value_at(said, path), str)}  # fmt: skip
    known = {path: span for path, span in told.items() if span is not None}
    return known if len(known) == len(found) else None


def _look_up(raw: bytes, value: object, start: int) -> Span | None:
    """Give the first place of a value in its usual spelling, from `start` on and then before it."""
    try:
        spelled = orjson.dumps(value)
    except orjson.JSONEncodeError:
        return None
    for begin in (start, 0) if start else (0,):
        at = raw.find(spelled[:_BEGINNING], begin)
        while at >= 0:
            if raw.startswith(spelled, at):
                return at, at + len(spelled)
            at = raw.find(spelled[:_BEGINNING], at + 1)
    return None


def _as_it_is_written(line: bytes) -> Entry | None:
    """Parse a line; None where orjson would write what it says in any other way."""
    try:
        said: Entry = orjson.loads(line)
        return said if orjson.dumps(said) == line else None
    except (orjson.JSONDecodeError, orjson.JSONEncodeError):
        return None
