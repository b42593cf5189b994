"""What every format shares: parsing a line, its values by path, and the Format protocol."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import orjson

from brainsurgeon.model.entries import Part, placeholder_in

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from brainsurgeon.model.entries import Entry, KeyPath, Kind, Lines
    from brainsurgeon.model.sessions import Survey
    from brainsurgeon.model.turns import ArchiveForm, Said


# A line of 11 MB of `[],` takes 700 MB as values. What each mark of structure costs was measured
# with orjson 3 and CPython 3.11 to 3.13, the dearest shape counting: an empty list takes 100 bytes
# at its peak, an object 240, what a comma parts 90, a key 130; a text as many bytes a character as
# its widest one.


# Bytes of memory; a line that would take more is carried along unseen.
HEAVIEST = 96 << 20
# Bytes up to which no line can be too heavy, however dense.
_SMALL = HEAVIEST // 128
_COSTS = {b"[": 100, b"{": 240, b",": 90, b":": 130}
_FOUR_BYTES = re.compile(rb"[\xf0-\xff]|\\u[dD][89a-fA-F]")
_TWO_BYTES = re.compile(rb"[\xc4-\xef]|\\u")
_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[\[{,:]', re.DOTALL)


def too_dense(raw: bytes) -> bool:
    """Check whether a line would take too much memory to be taken apart."""
    if len(raw) <= _SMALL:
        return False
    text = len(raw) * (1 + _width(raw))
    if text + sum(raw.count(mark) * cost for mark, cost in _COSTS.items()) <= HEAVIEST:
        return False
    for token in _TOKEN.finditer(raw):  # marks inside texts cost nothing: count it exactly
        text += _COSTS.get(token[0][:1], 0)
        if text > HEAVIEST:
            return True
    return text > HEAVIEST


def _width(raw: bytes) -> int:
    """Return the bytes that a character of the widest text in a line takes (PEP 393)."""
    if raw.isascii() and b"\\u" not in raw:
        return 1
    return 4 if _FOUR_BYTES.search(raw) else 2 if _TWO_BYTES.search(raw) else 1


BOM = b"\xef\xbb\xbf"
_MADE_UP = re.compile(r"L[0-9]+-[0-9a-f]{8}")
_LONGEST_ID = 1024
_LONGEST_INT = 300
# Bytes; a longer line is for the standard parser alone. orjson 3.13 reserves twelve bytes for each
# byte of a line, and where memory then ends while it makes a text, it takes the process with it.
_LONGEST_QUICK = 4 << 20


@dataclass(frozen=True, slots=True)
class Answer:
    """The text that a tool answered with, the call it answers, and copies of the text."""

    path: KeyPath
    text: str
    call_id: str | None
    copies: tuple[KeyPath, ...] = ()


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call: where its arguments stand and what they are.

    `as_text` says that they stand there as JSON in a string, `signed` that their provider may
    verify them, so that they stay.
    """

    path: KeyPath
    call_id: str | None
    arguments: Entry
    as_text: bool = False
    signed: bool = False


@dataclass(frozen=True, slots=True)
class Thoughts:
    """The signed or redacted thinking of one message, and the names of the model that said it.

    `blocks` are the paths of the blocks with their lengths in characters. `alone` says that nothing
    else of the message is sent, `dropped_by_itself` that the agent, when it wrote this, asked the
    provider to drop such blocks by itself wherever they no longer fit.
    """

    models: tuple[str, ...]
    blocks: tuple[tuple[KeyPath, int], ...]
    alone: bool = False
    dropped_by_itself: bool = False


class Format(Protocol):
    """One agent's dialect: which entries there are, and which of their values may be cut.

    Everything here is pure. `version` rises whenever an answer changes for the same bytes, so
    that files seen by an older adapter are looked at again.
    """

    name: str
    version: int
    # How a finished turn folds, None where it does not.
    archives: ArchiveForm | None

    def recognises(self, entries: Sequence[Entry]) -> bool:
        """Check whether a file with these first entries is of this format."""

    def refuses(self, header: Entry) -> str | None:
        """Return why a file with this first entry is left alone as a whole, or None."""

    def session(self, head: Sequence[Entry]) -> str | None:
        """Return which conversation a file holds, by what its first entries say and nobody cuts."""

    def rest(self, entry: Entry) -> bytes | None:
        """Return a digest of what our edits leave alone in an entry; None where ids are random.

        Where they are not, the same id may be used again, and the rest tells the entries apart.
        """

    def survey(self, lines: Lines, window: int) -> Survey:
        """Look over the file once: recent messages (up to `window`), open turn, branch."""

    def identity(self, entry: Entry, raw: bytes, number: int) -> str | None:
        """Name the entry within its session, or None where it cannot be named."""

    def counts(self, entry: Entry) -> bool:
        """Check whether the entry is a message, one step of the conversation."""

    def parts(self, entry: Entry, survey: Survey, offset: int | None) -> Iterator[Part]:
        """Yield the values of the entry that could be cut, locked ones with their reason."""

    def anchor(self, entry: Entry, path: KeyPath) -> str | None:
        """Name the tool call that the value at `path` belongs to, if any."""

    def thoughts(self, entry: Entry) -> Thoughts | None:
        """Return what a model thought and its provider signed; None where no request repeats it."""

    def said(self, entry: Entry) -> Said | None:
        """Return what the entry is in its turn; None where it is no part of the conversation."""

    def calls(self, entry: Entry) -> Iterator[Call]:
        """Yield the tool calls of the entry whose arguments are an object, also one as text."""

    def answers(self, entry: Entry) -> Iterator[Answer]:
        """Yield the texts with which a tool answered."""


def parse(raw: bytes) -> Entry | None:
    """Parse one line to an entry, or None when it is anything but one JSON object.

    orjson first, where the line is not very long; the standard parser takes what agents do write
    and orjson refuses, such as lone surrogates. Invalid UTF-8 is refused by both: such a line is
    left alone, as is one that would take too much memory.
    """
    if too_dense(raw):
        return None
    try:
        value = orjson.loads(raw) if len(raw) <= _LONGEST_QUICK else _parse_leniently(raw)
    except orjson.JSONDecodeError:
        value = _parse_leniently(raw)
    return value if isinstance(value, dict) else None


def _parse_leniently(raw: bytes) -> Any:
    try:
        return json.loads(raw.decode(), parse_int=_number, parse_constant=_refuse)
    except (ValueError, RecursionError, MemoryError):
        return None


def _number(digits: str) -> int | float:
    return int(digits) if len(digits) < _LONGEST_INT else float(digits)


def _refuse(constant: str) -> None:
    """Refuse NaN and Infinity: JSON has no such values and JavaScript does not read them."""
    raise ValueError(constant)


def usable_id(value: object) -> str | None:
    """Return the id as text when it can name an entry: short enough and storable as UTF-8."""
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str) or not 0 < len(value) <= _LONGEST_ID:
        return None
    try:
        value.encode()
    except UnicodeEncodeError:
        return None
    return value


def is_made_up(entry_id: str) -> bool:
    """Check whether an id may be one that an adapter made up of a line's number and a digest."""
    return _MADE_UP.fullmatch(entry_id) is not None


def leaves(
    value: Any, path: KeyPath, kind: Kind, tool: str | None, depth: int = 32
) -> Iterator[Part]:
    """Yield every non-empty string inside `value` as a part."""
    if isinstance(value, str):
        if value:
            yield Part(path, kind, len(value), tool)
    elif depth and isinstance(value, dict):
        for key, item in value.items():
            yield from leaves(item, (*path, key), kind, tool, depth - 1)
    elif depth and isinstance(value, list):
        for index, item in enumerate(value):
            yield from leaves(item, (*path, index), kind, tool, depth - 1)


def image(block: Entry, path: KeyPath, kind: Kind, tool: str | None) -> Iterator[Part]:
    """Yield an image as a whole block: a placeholder inside `data` is refused by every provider."""
    data = block.get("data")
    source = block.get("source")
    if not isinstance(data, str) and isinstance(source, dict):
        data = source.get("data")
    if isinstance(data, str) and data:
        yield Part(path, kind, len(data), tool, block=True)


# Arguments that name a file, whatever the tool is called.
FILE_KEYS = ("path", "file_path", "filePath", "notebook_path")
# Fields that name another entry, beside its parent.
_REFERENCES = (
    "targetId", "appendParentId", "firstKeptEntryId", "fromId", "logicalParentUuid", "leafUuid",
)  # fmt: skip


def references(entry: Entry) -> tuple[str, ...]:
    """Return the ids of other entries that an entry names, but for the one that it continues."""
    return tuple(name for key in _REFERENCES if isinstance(name := entry.get(key), str))


def files_in(arguments: Any) -> tuple[str, ...]:
    """Return the files that the arguments of a call name."""
    named = (arguments.get(key) for key in FILE_KEYS) if isinstance(arguments, dict) else ()
    return tuple(
        name for name in named if isinstance(name, str) and name and not placeholder_in(name)
    )


def first_line(texts: Iterable[object]) -> str:
    """Return the first line of some texts that says something and was not cut out."""
    for text in texts:
        if isinstance(text, str) and not placeholder_in(text):
            for line in text.splitlines():
                if line.strip():
                    return line.strip()
    return ""


def number_in(record: Any, *keys: str) -> int | None:
    """Return the first whole number that a record has under one of some keys."""
    values = (record.get(key) for key in keys) if isinstance(record, dict) else ()
    return next((value for value in values if type(value) is int), None)


def texts_in(content: Any) -> list[tuple[int | None, str]]:
    """Return the texts of a content with the index of their block, None where it is one string."""
    if isinstance(content, str):
        return [(None, content)] if content.strip() else []
    blocks = enumerate(content if isinstance(content, list) else [])
    return [
        (index, block["text"])
        for index, block in blocks
        if isinstance(block, dict)
        and block.get("type") == "text"
        and isinstance(block.get("text"), str)
        and block["text"].strip()
    ]
