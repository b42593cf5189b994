"""Find the bytes of a value in a line, replace them, and check what stands there afterwards."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import orjson

from brainsurgeon.formats import base
from brainsurgeon.model.entries import REDACTED, RESTORED, value_at
from brainsurgeon.model.plans import UNRECORDED, FieldEdit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from brainsurgeon.model.entries import Entry, KeyPath
    from brainsurgeon.model.plans import Edit


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
    """Return the line with each `(start, end, new)` carried out; the cuts must not overlap.

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


# What is left of a path, and the whole path.
_Wanted = list[tuple["KeyPath", "KeyPath"]]


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


# Most lines are written compactly, every value in the one usual spelling. There a value is looked
# up instead of walking the whole line (`spans.locate`), which stays the judge wherever anything is
# unusual: both give the same places, or the same refusal.


# Bytes of a value by which it is looked up: `bytes.find` is slow with a long needle.
_BEGINNING = 48
# Bytes; for a longer line, writing a value once more might take too much memory.
_LONGEST = 4 << 20
# Values; every one of them is looked up on its own, and the walk finds all of them at once.
_MOST = 64
_MARK = b"[[place-"


def places(raw: bytes, entry: Entry, paths: Sequence[KeyPath]) -> dict[KeyPath, Span]:
    """Find the spans of the values at some paths; `entry` is what the line says.

    Raise UntouchableError as `spans.locate` does.
    """
    return quickly(raw, entry, paths) or locate(raw, paths)


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
    rest = splice(raw, [(*span, mark) for span, mark in zip(found, marks, strict=True)])
    said = _as_it_is_written(rest)
    if said is None or rest.count(_MARK) != len(found):
        return None
    spelled = {mark[1:-1].decode(): span for mark, span in zip(marks, found, strict=True)}
    told = {path: spelled.get(said_there) for path in paths
            if isinstance(said_there := value_at(said, path), str)}  # fmt: skip
    known = {path: span for path, span in told.items() if span is not None}
    return known if len(known) == len(found) else None


def _look_up(raw: bytes, value: object, start: int) -> Span | None:
    """Return the first place of a value in its usual spelling.

    From `start` on and then before it.
    """
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


# Fields go at the top level of the entry, never inside a message or a block: providers answer 400
# to an unknown key in a block. A field that stands twice makes the line untouchable.


# What we write as the value of a field.
_TOKENS = {
    REDACTED: re.compile(rb"true"),
    RESTORED: re.compile(rb'"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z"'),
}


def put(raw: bytes, offset: int, entry_id: str, name: str, token: bytes) -> list[FieldEdit]:
    """Set a field: replace its value, or insert it after the last member; nothing if it is set."""
    place = _member(raw, name)
    if place is None:
        end = members(raw)[-1][3]
        new = b"," + json.dumps(name).encode() + b":" + token
        return [FieldEdit(end + offset, end + offset, new, entry_id, name, None)]
    _, start, end = place
    if raw[start:end] == token:
        return []
    return [FieldEdit(start + offset, end + offset, token, entry_id, name, raw[start:end])]


def take_out(
    raw: bytes,
    offset: int,
    entry_id: str,
    name: str,
    before: bytes | None,
    after: bytes,
    record: int,
) -> FieldEdit | None:
    """Undo a recorded insertion; None when its bytes (`after`) no longer stand there."""
    place = _member(raw, name)
    if place is None:
        return None
    start = place[0] if before is None else place[1]
    end = place[2]
    if raw[start:end] != after:
        return None
    return FieldEdit(start + offset, end + offset, before or b"", entry_id, name, after, record)


def take_out_marked(raw: bytes, offset: int, entry_id: str, name: str) -> list[FieldEdit]:
    """Take out `_restored` or `_redacted` where it stands in exactly the bytes that we insert.

    Forks and copies carry these fields into files of which no record tells. One that stands twice
    was not set by us: it stays, and is no reason to leave the rest of the line alone.
    """
    try:
        place = _member(raw, name)
    except UntouchableError:
        return []
    if place is None:
        return []
    before, start, end = place
    token = raw[start:end]
    if not _TOKENS[name].fullmatch(token):
        return []
    after = b"," + json.dumps(name).encode() + b":" + token
    if raw[before:end] != after:
        return []
    return [FieldEdit(before + offset, end + offset, b"", entry_id, name, after, UNRECORDED)]


def _member(raw: bytes, name: str) -> tuple[int, int, int] | None:
    """Return (end of the member before, start and end of the value) of a field; None if absent."""
    listed = members(raw)
    places = [index for index, member in enumerate(listed) if member[0] == name]
    if len(places) > 1:
        raise UntouchableError(f"{name} stands twice")
    if not places:
        return None
    index = places[0]
    before = listed[index - 1][3] if index else listed[index][1]
    return before, listed[index][2], listed[index][3]


def verify(raw: bytes, offset: int, entry: Entry, edits: Sequence[Edit]) -> None:
    """Raise UntouchableError where the edits would do anything but what they say; changes `entry`.

    Values put back are left out: their bytes are checked by their digest when they are read.
    """
    splices = [(e.start - offset, e.end - offset, e.new) for e in edits if e.new is not None]
    fresh = base.parse(splice(raw, splices))
    if fresh is None:
        raise UntouchableError("the edited line would not parse")
    for edit in edits:
        if not edit.shows_in(fresh):
            raise UntouchableError("the edited line would not say what was planned")
        edit.blank(fresh)
        edit.blank(entry)
    if fresh != entry:
        raise UntouchableError("the edited line would differ elsewhere")
