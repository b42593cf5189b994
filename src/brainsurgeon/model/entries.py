"""Lines of a session, the entries and values in them, and placeholders."""

from __future__ import annotations

import hashlib
import json
import re
import sys
from copy import copy
from typing import Any, Literal, get_args

import orjson
from msgspec import Struct

PREFIX, SUFFIX = "[[extracted-", "]]"
# The id in a placeholder, with a number (`~2`) if several values have the same id.
ID = "~?[A-Za-z0-9._-]{1,128}(?:~[0-9]{1,9})?"
WHOLE_PLACEHOLDER = re.compile(rf"{re.escape(PREFIX)}({ID}){re.escape(SUFFIX)}")


def placeholder_named(ident: str) -> str:
    return f"{PREFIX}{ident}{SUFFIX}"


def unnumbered(name: str) -> str:
    at = name.rfind("~")
    return name[:at] if at > 0 else name


def id_named(reference: str) -> str:
    bare = reference.strip(" \t\r\n`")
    match = WHOLE_PLACEHOLDER.fullmatch(bare.strip("'\""))
    return match[1] if match else bare


def is_placeholder(reference: str) -> bool:
    return WHOLE_PLACEHOLDER.fullmatch(reference.strip(" \t\r\n`'\"")) is not None


def dotted(path: KeyPath) -> str:
    return ".".join(str(step) for step in path) or "."  # a value may be its whole entry


KeyPath = tuple[str | int, ...]
Kind = Literal["thinking", "tool_call", "tool_result", "assistant", "user", "system", "custom"]
KINDS: tuple[Kind, ...] = get_args(Kind)
JsonObject = dict[str, Any]

OLD = sys.maxsize  # the position (number of later messages) of an entry that is never recent

# The fields that we may add at the top level of an entry.
EXTRACTABLE, RESTORED, REDACTED = FIELDS = ("_extractable", "_restored", "_redacted")


class Line(Struct, frozen=True, gc=False):
    number: int
    offset: int
    raw: bytes | None  # None if it is too long for memory: it is copied without being parsed
    terminated: bool = True  # by a newline, which is not in `raw`


class Value(Struct, frozen=True, gc=False):
    """A value of an entry that could be extracted.

    A `block` is a whole object, such as an image. A text block replaces it, since providers refuse
    placeholders inside. The JSON `instead` replaces signed thinking, since a model would imitate a
    placeholder there.
    """

    path: KeyPath
    kind: Kind
    chars: int  # of signed thinking, those of its text (see `thinking_chars`)
    tool: str | None = None
    block: bool = False
    locked: str | None = None  # why no rule may extract the value
    dead: bool = False  # never sent to a model, such as a copy for the agent's screen
    instead: bytes | None = None
    call: str | None = None  # the id of the tool call that it belongs to
    signed: bool = False  # locked in the last turn, as a signature covers it
    # The value is only there if its entry is, or is not, before the last compaction.
    before_compaction: bool | None = None
    sent: int | None = None  # characters in a request, if not all of them and no picture
    # The hash, in this process, of what a model sees of a result or a note of the system.
    hashed: int | None = None

    @property
    def size(self) -> tuple[int, int, int]:
        """Return characters, pictures and bytes of pictures in a request."""
        if self.dead:
            return 0, 0, 0
        if self.sent is None and self.block:
            return 0, 1, self.chars
        return self.chars if self.sent is None else self.sent, 0, 0


class RemovedValue(Struct, frozen=True):
    entry_id: str
    name: str  # the id in the placeholder or in the text of the archive
    path: KeyPath
    kind: Kind
    tool: str | None
    chars: int
    block: bool  # a text block replaces a whole object
    call: str | None  # the id of its tool call
    parent: str | None  # the id that an archive replaced at LINK
    rest: bytes | None  # a digest of the rest of the line; None if entry ids are random
    tokens: int  # saved in the next request


def value_at(entry: JsonObject, path: KeyPath) -> Any:
    value: Any = entry
    for step in path:
        try:
            value = value[step]
        except (KeyError, IndexError, TypeError):
            return None
    return value


def with_value(value: Any, path: KeyPath, new: Any) -> Any:
    """Return a copy of an entry with another value at a path."""
    if not path:
        return new
    changed = copy(value)
    changed[path[0]] = with_value(value[path[0]], path[1:], new)
    return changed


PLACEHOLDER_PREFIX = PREFIX.encode()
PLACEHOLDER = re.compile(rf"{re.escape(PREFIX)}{ID}{re.escape(SUFFIX)}".encode())
LONGEST_PLACEHOLDER = len(PREFIX + "~" + SUFFIX) + 128 + len("~999999999")


def is_safe(entry_id: str) -> bool:
    return re.fullmatch("[A-Za-z0-9._-]{1,128}", entry_id) is not None


def placeholder_id(entry_id: str) -> str:
    if is_safe(entry_id):
        return entry_id
    return "~" + hashlib.blake2b(entry_id.encode(), digest_size=12).hexdigest()


def placeholder_token(placeholder: str, *, block: bool, block_type: str = "text") -> bytes:
    token = json.dumps(placeholder)
    named = f'"type":"{block_type}",' if block_type else ""
    return (f'{{{named}"text":{token}}}' if block else token).encode()


def placeholder_in(value: object) -> str | None:
    return value if isinstance(value, str) and WHOLE_PLACEHOLDER.fullmatch(value) else None


# A line of 11 MB of `[],` takes 700 MB when parsed. `_COSTS` are the peak bytes of an empty list,
# an object, a further item and a key, measured with orjson 3 and CPython 3.11 to 3.13. Each
# character of a string takes as many bytes as the widest character of that string.

HEAVIEST = 96 << 20  # bytes of memory; a line that could take more is copied, but not parsed
_EASY = HEAVIEST // 128  # bytes; no line up to this length takes more than HEAVIEST
_COSTS = {b"[": 100, b"{": 240, b",": 90, b":": 130}
_FOUR_BYTES = re.compile(rb"[\xf0-\xff]|\\u[dD][89a-fA-F]")
_TWO_BYTES = re.compile(rb"[\xc4-\xef]|\\u")
_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[\[{,:]', re.DOTALL)
BOM = b"\xef\xbb\xbf"
_LONGEST_INT = 300
# Bytes of a line. orjson 3.13 reserves twelve times as many, and crashes the process if memory runs
# out while it creates a string.
_LONGEST_QUICK = 4 << 20


def too_dense(raw: bytes) -> bool:
    width = 1  # bytes per character in the widest string (PEP 393)
    if not raw.isascii() or b"\\u" in raw:
        width = 4 if _FOUR_BYTES.search(raw) else 2 if _TWO_BYTES.search(raw) else 1
    text = len(raw) * (1 + width)
    if text + sum(raw.count(mark) * cost for mark, cost in _COSTS.items()) <= HEAVIEST:
        return False
    for token in _TOKEN.finditer(raw):  # counts exactly: marks inside strings cost nothing
        text += _COSTS.get(token[0][:1], 0)
        if text > HEAVIEST:
            return True
    return text > HEAVIEST


def parse(raw: bytes) -> JsonObject | None:
    """Return the entry in a line; None if it is no JSON object, or may need too much memory."""
    value = None if len(raw) > _EASY and too_dense(raw) else decode(raw)
    return value if isinstance(value, dict) else None


def decode(raw: bytes) -> Any:
    try:
        return orjson.loads(raw) if len(raw) <= _LONGEST_QUICK else _parse_leniently(raw)
    except orjson.JSONDecodeError:  # for example a lone surrogate: some agents write them
        return _parse_leniently(raw)


def _parse_leniently(raw: bytes) -> Any:
    try:
        return json.loads(raw.decode(), parse_int=_number, parse_constant=_refuse)
    except (ValueError, RecursionError, MemoryError):
        return None


def _number(digits: str) -> int | float:
    return int(digits) if len(digits) < _LONGEST_INT else float(digits)


def _refuse(constant: str) -> None:
    """Refuse NaN and Infinity: they are not JSON, and JavaScript does not parse them."""
    raise ValueError(constant)
