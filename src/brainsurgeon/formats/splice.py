"""Find the bytes of a value in a line, replace them, and check the edited line."""

import json
import re
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any

from msgspec.structs import replace

from brainsurgeon.formats.base import ParsedLine
from brainsurgeon.model.entries import FIELDS, JsonObject, KeyPath, decode, parse, value_at
from brainsurgeon.model.plans import Edit, FieldEdit, Removal, Restoration
from brainsurgeon.model.records import FieldRecord
from brainsurgeon.model.transcript import Entry

_decoder: Any = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=str)
_scan: Callable[[str, int], tuple[Any, int]] = _decoder.scan_once
_WHITE = " \t\n\r"
_space = re.compile(f"[{_WHITE}]*").match

Span = tuple[int, int]


def offsets_of(line: ParsedLine, paths: Iterable[KeyPath]) -> dict[KeyPath, Span]:
    """Like `locate`, but return offsets in the file."""
    return {
        path: (start + line.offset, end + line.offset)
        for path, (start, end) in locate(line.raw, paths).items()
    }


def parsed_entry(entry: Entry, start: int, raw: bytes) -> ParsedLine:
    """Return an entry of the line `raw`, which begins at `start`, with its own bytes.

    If it cannot be found safely, an object without keys is returned.
    """
    if entry.at:
        try:
            begin, end = _span_of(raw, entry.at)
        except (UntouchableError, KeyError):
            begin = end = 0
        start, raw = start + begin, raw[begin:end]
    return ParsedLine(start, raw, parse(raw) or {}, entry.ident, entry.terminated, entry.rest)


def _span_of(raw: bytes, at: KeyPath) -> Span:
    begin, end = 0, len(raw)
    while at:  # from a list to one in it: the whole of a long line is searched once
        length = next((n for n, step in enumerate(at, 1) if isinstance(step, int)), len(at))
        path, at, inner = at[:length], at[length:], raw[begin:end]
        in_list = isinstance(path[-1], int)
        spans = _spans_in(inner, path[:-1]) if in_list else locate(inner, [path])
        begin, end = begin + spans[path][0], begin + spans[path][1]
    return begin, end


@lru_cache(4)  # the items of a line, and of a list in it, are read one after the other
def _spans_in(raw: bytes, path: KeyPath) -> dict[KeyPath, Span]:
    """Find the spans of all items of a list."""
    listed = value_at(parse(raw) or {}, path)
    return locate(raw, [(*path, at) for at in range(len(listed))])


class UntouchableError(Exception):
    """The line cannot be edited safely."""


def locate(line: bytes, paths: Iterable[KeyPath]) -> dict[KeyPath, Span]:
    """Find the spans of the values at `paths`, in one walk over the line.

    A path without a value is missing from the result. Raise UntouchableError if a path has a
    duplicate key (parsers differ in which value they use) or the line cannot be parsed.
    """
    spans, doubtful = locate_sure(line, paths)
    for key in doubtful.values():
        # Reasons get into logs, so they contain no keys of sessions, only our own.
        raise UntouchableError(f"duplicate key {key if key in FIELDS else 'on the path'}")
    return spans


def locate_sure(
    line: bytes, paths: Iterable[KeyPath]
) -> tuple[dict[KeyPath, Span], dict[KeyPath, str | int]]:
    """Like `locate`, but return the paths that have a duplicate key, with this key, instead."""
    spans: dict[KeyPath, Span] = {}
    doubtful: dict[KeyPath, str | int] = {}
    text = line.decode("latin-1")
    try:
        _walk(text, _skip(text, 0), [(path, path) for path in paths], spans, doubtful)
    except (RecursionError, StopIteration, ValueError, IndexError) as error:
        raise UntouchableError("cannot be parsed as JSON") from error
    return {path: span for path, span in spans.items() if path not in doubtful}, doubtful


def splice(line: bytes, cuts: Iterable[tuple[int, int, bytes]]) -> bytes:
    """Replace bytes by cuts (start, end, new). Insertions at the same offset keep their order."""
    pieces: list[bytes] = []
    done = 0
    for start, end, new in sorted(cuts, key=lambda cut: cut[:2]):
        pieces += (line[done:start], new)
        done = end
    pieces.append(line[done:])
    return b"".join(pieces)


# One character as written in a JSON string: two surrogate escapes, one escape, or the character.
_CHARACTER = re.compile(r"\\u[dD][89abAB]..\\u[dD][c-fC-F]..|\\u....|\\.|.", re.DOTALL)


def splice_string(token: bytes, cuts: Iterable[tuple[int, int, str]]) -> bytes:
    """Return a JSON string with some of its characters replaced. All others stay as written.

    A cut is a start and an end (in characters) and the new text. If cuts overlap, the first counts.
    """
    spelled = token.decode()
    ends = [1, *(match.end() for match in _CHARACTER.finditer(spelled, 1, len(spelled) - 1))]
    pieces, done = [], 0
    for start, end, new in sorted(cuts):
        if ends[start] >= done:
            pieces += [spelled[done : ends[start]], json.dumps(new)[1:-1]]
            done = ends[end]
    return "".join([*pieces, spelled[done:]]).encode()


def _skip(text: str, at: int) -> int:
    if text[at] not in _WHITE:  # usual: agents write no white space
        return at
    match = _space(text, at)
    return match.end() if match else at


def _key(text: str, at: int) -> tuple[str, int]:
    if text[at] != '"':
        raise ValueError("a key is a string")
    name, end = _scan(text, at)
    token = text[at:end]
    if "\\" in token or not token.isascii():
        name = json.loads(token.encode("latin-1"))
    return name, _skip(text, _skip(text, end) + 1)


_Wanted = list[tuple[KeyPath, KeyPath]]  # the rest of a path, and the whole path


def _walk(
    text: str, at: int, wanted: _Wanted, spans: dict[KeyPath, Span],
    doubtful: dict[KeyPath, str | int],
) -> int:  # fmt: skip
    deeper: dict[str | int, _Wanted] = {}
    for rest, path in wanted:
        if rest:
            deeper.setdefault(rest[0], []).append((rest[1:], path))
    if deeper and text[at] in "{[":
        end = _walk_members(text, at, deeper, spans, doubtful)
    else:
        end = _scan(text, at)[1]
    spans.update({path: (at, end) for rest, path in wanted if not rest})
    return end


def _walk_members(
    text: str, at: int, deeper: dict[str | int, _Wanted], spans: dict[KeyPath, Span],
    doubtful: dict[KeyPath, str | int],
) -> int:  # fmt: skip
    close = "}" if text[at] == "{" else "]"
    at = _skip(text, at + 1)
    seen: set[str | int] = set()
    index = 0
    while text[at] != close:
        step: str | int = index
        if close == "}":
            step, at = _key(text, at)
            if step in seen and step in deeper:
                doubtful.update((path, step) for _, path in deeper[step])
            seen.add(step)
        wanted = deeper.get(step)
        end = _walk(text, at, wanted, spans, doubtful) if wanted else _scan(text, at)[1]
        at = _skip(text, end)
        if text[at] == ",":
            at = _skip(text, at + 1)
        index += 1
    return at + 1


# All our fields are at the top level of an entry, never in a message or block: providers answer 400
# to an unknown key in a block.


def set_field(line: ParsedLine, name: str, token: bytes) -> list[FieldEdit]:
    """Replace a field's value, or insert the field as the last member; [] if it has this value."""
    span = _value_span(line, name)
    if span is None:
        if not line.entry:
            raise UntouchableError("an object without fields")
        end = len(line.raw[: line.raw.rindex(b"}")].rstrip())
        return _edit(line, (end, end), b",%b:%b" % (json.dumps(name).encode(), token), name)
    before = line.raw[slice(*span)]
    as_ours = line.raw[: span[0]].endswith(b",%b:" % json.dumps(name).encode())
    edits = _edit(line, span, token, name, before)
    return [] if before == token else [replace(edit, as_ours=as_ours) for edit in edits]


def undo_field(
    line: ParsedLine, record: FieldRecord, *, verbatim: bool = False
) -> list[FieldEdit]:  # fmt: skip
    """Undo a recorded edit of a field; [] if its value is no longer the one that was written.

    With `verbatim`, its bytes must be those that were written, too.
    """
    span = _value_span(line, record.name)
    wrote = record.after if record.before is not None else record.value.encode()
    if span is not None and line.raw[slice(*span)] != wrote:
        return []
    if span is not None and record.before is None:
        span = _member_span(line, record.name, *span)
    if span is None:
        return []
    old = line.raw[slice(*span)]
    if verbatim and old != record.after:
        return []
    return _edit(line, span, record.before or b"", record.name, old, record.id)


def _member_span(line: ParsedLine, name: str, start: int, end: int) -> Span | None:
    """Return where a member with a comma is, whose value is known to be at `start` to `end`.

    An agent that writes its lines anew may put spaces into it, or the member in another place. All
    our members at the beginning have the comma behind them, so that two can be removed at once.
    """
    key, names = json.dumps(name).encode(), list(line.entry)
    before = line.raw[:start].rstrip().removesuffix(b":").rstrip()
    if not before.endswith(key):
        return None
    before = before.removesuffix(key)
    if not {*names[: names.index(name)]}.issubset(FIELDS):
        return len(before.rstrip().removesuffix(b",").rstrip()), end
    after = line.raw[end:].lstrip()
    if not after.startswith(b","):
        return None
    return len(before), len(line.raw) - len(after[1:].lstrip())


def _value_span(line: ParsedLine, name: str) -> Span | None:
    return locate(line.raw, [(name,)]).get((name,))


def _edit(line: ParsedLine, span: Span, new: bytes, name: str, *undone: Any) -> list[FieldEdit]:
    start, end = span[0] + line.offset, span[1] + line.offset
    return [FieldEdit(start, end, new, line.ident or "", name, *undone or [None])]


def verify(raw: bytes, offset: int, entry: JsonObject, edits: Sequence[Edit]) -> None:
    """Raise UntouchableError unless the edits have exactly the planned effect. Modifies `entry`.

    Restored values are not compared: the store checks their digest when it reads them.
    """
    written = [edit for edit in edits if not isinstance(edit, Restoration)]
    splices = [(edit.start - offset, edit.end - offset, edit.new) for edit in written]
    fresh = parse(splice(raw, splices))
    if fresh is None:
        raise UntouchableError("the edited line would not parse")
    for edit in written:
        if isinstance(edit, Removal) and value_at(fresh, edit.path) != decode(edit.new):
            raise UntouchableError("the edited line would not have the planned content")
        for parsed in (fresh, entry):  # clear the edited values, to compare all others
            if not isinstance(edit, Removal):
                parsed.pop(edit.name, None)
            elif edit.path:
                value_at(parsed, edit.path[:-1])[edit.path[-1]] = None
            else:
                parsed.clear()
    if fresh != entry:
        raise UntouchableError("the edited line would differ elsewhere")
