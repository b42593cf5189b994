"""The base class of the formats, and functions that they share."""

import binascii
import hashlib
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from json.encoder import encode_basestring
from typing import Any, ClassVar

import orjson
from msgspec import Struct
from msgspec.structs import replace

from brainsurgeon.formats.chain import Around, Chain
from brainsurgeon.formats.marks import marks_in
from brainsurgeon.model.entries import (
    BOM,
    JsonObject,
    KeyPath,
    Kind,
    Line,
    Value,
    parse,
    placeholder_in,
    value_at,
)
from brainsurgeon.model.transcript import CallFacts, Entry, Result
from brainsurgeon.model.turns import (
    GAVE_UP,
    NOTHING,
    ArchiveForm,
    Sent,
    ToolCall,
    ToolResult,
    TurnStep,
)

_GENERATED = re.compile(r"L[0-9]+-[0-9a-f]{8}")
UUID = "(?i:[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12})"
_LONGEST_ID = 1024
WRITES = re.compile(r"write|edit|patch", re.IGNORECASE)  # in names of tools that change a file


class ResultText(Struct, frozen=True):
    path: KeyPath
    text: str
    call_id: str | None


class Content(Struct, frozen=True):
    """An entry in detail, without others. Its texts and values can be iterated only once."""

    step: TurnStep
    calls: tuple[ToolCall, ...]
    result_texts: Iterable[ResultText]  # of the results of tools
    values: Iterable[Value]
    sent: Sent  # its size in requests


NO_STEP = TurnStep(None)
# The reason in `Chain.open_turn` if the last line has no newline and cannot be read.
STILL_WRITTEN = "the last line is still being written"
LAST_TURN = "signed thinking of the last turn"
HOLLOW = "a signature without text"
DAMAGED = "its signature is masked or cut off"


def thinking_chars(text: str, *signed: str) -> int:
    """Return the length of a block of thinking, at least 1: that of its text, as requests count it.

    Only a block without a text is as long as its signature, or its redacted data.
    """
    return next(filter(None, map(len, (text, *signed))), 1)


class Format(ABC):
    """How an agent writes sessions. It uses no disk and no clock.

    An `entry` is JSON as the agent wrote it; an `Entry` is what is known about it. Elsewhere, a
    variable `form` is a Format, and `format` is its name.
    """

    name: str
    version: int  # increase it whenever a method returns something else for the same bytes
    by_wish = False  # recognised only below a root that the user wrote
    has_reasoning = False  # whether entries ever have `reasoning`
    names_model_before = False  # an entry names the model of the calls behind it
    appends_anew = False  # the agent may write an entry again under another id and keep both
    repeats = False  # a line may repeat entries, with their ids
    has_fields = True  # our fields may be added to an entry
    block_type = "text"  # of a block with a placeholder
    wrappers: frozenset[str] = frozenset()  # keys that not all releases write around a value
    archives: ArchiveForm | None = "flat"  # None: finished turns cannot be archived
    emptied: tuple[bytes, ...] = ()  # the JSON that may stand for removed thinking
    copies: frozenset[str] = frozenset()  # keys of its own copies of results, that no model gets
    screen: frozenset[str] = frozenset()  # keys of values in its own form; models get another
    # Tables of conditions, if it is described: one of the first entries meets all of a table.
    wanted: Sequence[dict[str, Any]] = ()
    as_main: ClassVar[JsonObject] = {}  # fields that make a sub-agent's line one of a session
    # Ids that no entry of another agent has, unless it was copied.
    random_ids = re.compile(UUID)

    @abstractmethod
    def recognises(self, entries: Sequence[JsonObject]) -> bool:
        """Check whether a file with these first entries is of this format.

        There is at least one. It must not be true for the files of another agent.
        """

    def refuses(self, header: JsonObject) -> str | None:  # noqa: ARG002
        """Return why a file with this first entry is left alone, or None."""
        return None

    @abstractmethod
    def session(self, head: Sequence[JsonObject]) -> str | None:
        """Return the id of the conversation. It must never change while the file is used."""

    def entries(self, line: Line, index: int) -> tuple[Entry, ...]:
        """Return what a line says without other lines. Every line has at least one entry."""
        entry, raw = parse(line.raw) if line.raw else None, line.raw or b""
        if entry is not None:
            try:
                return self._entries_in(entry, line, index)
            except RecursionError:  # nested too deeply: as if it could not be parsed
                pass
        if raw.startswith(BOM) and (entry := parse(raw.removeprefix(BOM))) is not None:
            # Agents read such a line. It is never edited.
            read = self.first_entry(entry, line, index)
            return (replace(read, ident=None, values=(), thoughts=None, marks=None),)
        marks = marks_in(raw, None, (), has_emptied=False)
        return (Entry(index, line.terminated, marks=marks),)

    def _entries_in(self, entry: JsonObject, line: Line, index: int) -> tuple[Entry, ...]:
        """Return what a line says. A format whose lines have several entries overrides this.

        It sets `repeats`, and the path `at` of each entry that is not the whole line.
        """
        return (self.first_entry(entry, line, index),)

    @abstractmethod
    def first_entry(self, entry: JsonObject, line: Line, index: int) -> Entry:
        """Return what the first entry in a line says, without looking at other lines.

        `index` is that of the line. An entry without `ident` is never edited. `marks` must be what
        `marks_in` returns: without it, no command sees the placeholders in the session. Values,
        calls, results and sizes are those of `read`. What only the chain needs is in `own`.
        """

    @abstractmethod
    def read(self, entry: JsonObject) -> Content:
        """Read an entry (what is at its path in the line) again, to draft or print it.

        It may contain placeholders, or the originals of extracted values in their places.
        """

    @abstractmethod
    def chain(self, entries: Sequence[Entry]) -> Chain:
        """Return what the entries mean together.

        The chain must

        - count each entry, in order: call `Chain.count` once for each, or set `counts` and `off`.
        - have in `dead` why an entry is not in the next request. It may have a position even so.
        - have in `last_user` the prompt of the last turn, and in `open_turn` why this turn is open.
          If the last line cannot be read and has no newline, that is STILL_WRITTEN. With a
          newline, a line that cannot be read changes nothing.
        """

    def resolved(self, values: Iterable[Value], around: Around) -> Iterator[Value]:
        """Complete values by what other entries say. Of values that are left out, 0 is sent."""
        for value in values:
            resolved = replace(value, sent=0) if around.omits(value.kind, value.call) else value
            locked = value.signed and around.in_last_turn
            yield replace(resolved, locked=LAST_TURN) if locked else resolved


def _with_hash(value: Value, entry: JsonObject) -> Value:
    if value.dead or value.kind not in ("tool_result", "system"):
        return value
    content = value_at(entry, value.path)
    text = content if isinstance(content, str) else json.dumps(content, sort_keys=True)
    return replace(value, hashed=hash(text))


def values_sent(values: Iterable[Value], sent: Sent, entry: JsonObject) -> tuple[Value, ...]:
    """Return the values of an entry. `sent` is its size in a request."""
    listed = [_with_hash(value, entry) for value in values]
    if sent == NOTHING:
        return tuple([
            value if value.dead or value.sent == 0 else replace(value, sent=0) for value in listed
        ])  # fmt: skip
    return tuple(listed)


def result_facts(results: Iterable[ToolResult]) -> tuple[Result, ...]:
    return tuple([
        Result(result.call_id, result.failed, result.exit_code, result.took_ms)
        for result in results
    ])  # fmt: skip


def call_facts(calls: Iterable[ToolCall]) -> tuple[CallFacts, ...]:
    return tuple(map(_call, calls))


def _call(call: ToolCall) -> CallFacts:
    return CallFacts(
        call.call_id, call.tool, _digest_of([call.tool, call.arguments]),
        tuple(map(hash, call.files)), _writes(call.tool), len(dict_or_empty(call.arguments)) == 1,
    )  # fmt: skip


def _digest_of(value: Any) -> bytes:
    try:
        data = orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except TypeError:  # a lone surrogate, or a number of more than 64 bits
        data = json.dumps(value, sort_keys=True).encode()
    return hashlib.blake2b(data, digest_size=16).digest()


@lru_cache(1024)
def _writes(tool: str) -> bool:
    return WRITES.search(tool) is not None


class ParsedLine(Struct, frozen=True):
    offset: int
    raw: bytes
    entry: JsonObject
    ident: str | None
    terminated: bool
    rest: bytes | None = None  # as in Entry


def usable_id(value: object) -> str | None:
    """Return the id as text if it is an integer or 1 to 1,024 characters of valid UTF-8."""
    if not isinstance(value, str):
        return str(value) if isinstance(value, int) and not isinstance(value, bool) else None
    if not 0 < len(value) <= _LONGEST_ID:
        return None
    try:
        value.isascii() or value.encode()
    except UnicodeEncodeError:
        return None
    return value


def is_generated(entry_id: str) -> bool:
    return _GENERATED.fullmatch(entry_id) is not None


@lru_cache(4096)
def below(path: KeyPath, step: str | int) -> KeyPath:
    """Return a path. Equal paths are one object, as a session has many."""
    return (*path, step)


def strings_in(value: Any, path: KeyPath = (), depth: int = 32) -> list[tuple[KeyPath, str]]:
    if isinstance(value, str):
        return [(path, value)] if value else []
    found: list[tuple[KeyPath, str]] = []
    if isinstance(value, dict | list):
        _collect(value, path, depth, found)
    return found


def _collect(
    value: dict[str, Any] | list[Any], path: KeyPath, depth: int, found: list[tuple[KeyPath, str]]
) -> None:
    if not depth:
        return
    for key, item in value.items() if isinstance(value, dict) else enumerate(value):
        if isinstance(item, str):
            if item:
                found.append((below(path, key), item))
        elif item and isinstance(item, dict | list):
            _collect(item, below(path, key), depth - 1, found)


def leaves(
    value: Any, path: KeyPath, kind: Kind, tool: str | None = None, call: str | None = None, *,
    locked: str | None = None, dead: bool = False,
) -> list[Value]:  # fmt: skip
    return [
        leaf(text, at, kind, tool, call, locked, dead) for at, text in strings_in(value, path)
    ]  # fmt: skip


def leaf(
    text: str, path: KeyPath, kind: Kind, tool: str | None, call: str | None = None,
    locked: str | None = None, dead: bool = False, before_compaction: bool | None = None,
    sent: int | None = None,
) -> Value:  # fmt: skip
    chars = len(text)
    if kind == "tool_call":  # sent as JSON
        escaped = len(encode_basestring(text)) - 2
        sent = escaped if escaped != chars else None
    return Value(
        path, kind, chars, tool, False, locked, dead, None, call, False, before_compaction, sent
    )


def content_parts(
    content: Any, path: KeyPath, kind: Kind, tool: str | None = None, call: str | None = None
) -> list[Value]:
    if isinstance(content, str):
        return leaves(content, path, kind, tool, call)
    return [
        part for index, block in blocks_in(content)
        for part in block_parts(block, below(path, index), kind, tool, call)
    ]  # fmt: skip


def block_parts(
    block: JsonObject, path: KeyPath, kind: Kind, tool: str | None = None, call: str | None = None
) -> tuple[Value, ...]:
    """Return a text, or a whole image or document: providers refuse a placeholder in its data."""
    declared = block.get("type")
    if declared == "text":
        text = str_or_empty(block.get("text"))
        return (Value(below(path, "text"), kind, len(text), tool, call=call),) if text else ()
    if declared not in ("image", "document"):
        return ()
    data = block.get("data")
    if not isinstance(data, str):
        data = str_or_empty(dict_or_empty(block.get("source")).get("data"))
    return (Value(path, kind, len(data), tool, block=True, call=call),) if data else ()


_REFERENCES = (
    "targetId", "appendParentId", "firstKeptEntryId", "fromId", "logicalParentUuid", "leafUuid",
)  # fmt: skip


def references(entry: JsonObject) -> tuple[str, ...]:
    return tuple([
        entry[key] for key in _REFERENCES if key in entry and isinstance(entry[key], str)
    ])  # fmt: skip


def first_line(texts: Iterable[object]) -> str:
    lines = (
        line.strip()
        for text in texts
        if isinstance(text, str) and not placeholder_in(text)
        for line in text.splitlines()
    )
    return next(filter(None, lines), "")


def number_in(record: Any, *keys: str) -> int | None:
    if not isinstance(record, dict):
        return None
    return next((record[key] for key in keys if type(record.get(key)) is int), None)


def str_or_none(value: object) -> str | None:
    return value if isinstance(value, str) else None


def str_or_empty(value: object) -> str:
    return value if isinstance(value, str) else ""


def dict_or_empty(value: object) -> JsonObject:
    return value if isinstance(value, dict) else {}


def blocks_in(content: object, *types: str) -> list[tuple[int, JsonObject]]:
    return [
        (index, block) for index, block in enumerate(content)
        if isinstance(block, dict) and (not types or block.get("type") in types)
    ] if isinstance(content, list) else []  # fmt: skip


# A signature of Claude is a Protocol Buffers message in base64. Since Claude 5.1, its first field
# is the version 4 (`CAQS`); before, there was none (`E`), or 2 (`CAIS`). A field of bytes follows.
_VERSION, _BYTES = 0x08, 0x12  # tags of these fields


def covers_request(signature: object) -> bool:
    """Check by its form whether a signature of Claude covers the request before its thinking."""
    try:
        tag, version, following = binascii.a2b_base64(str_or_empty(signature)[:4])
    except ValueError:  # also of other lengths
        return False
    return (tag, following) == (_VERSION, _BYTES) and 4 <= version < 0x80  # noqa: PLR2004


def is_damaged(signature: object, models: Iterable[str]) -> bool:
    """Check by its form whether a signature of Claude was masked or cut off.

    Some logs and gateways shorten what looks like a secret. Other models sign in other forms.
    """
    text = str_or_empty(signature)
    if not text or not any("claude" in model.lower() for model in models):
        return False
    try:
        raw = binascii.a2b_base64(text + "=" * (-len(text) % 4), strict_mode=True)
    except ValueError:
        return True
    at = 2 if raw[:1] == bytes([_VERSION]) else 0
    if raw[at : at + 1] != bytes([_BYTES]):
        return False
    size = 0
    for shift, byte in enumerate(raw[at + 1 : at + 5]):
        size |= (byte & 0x7F) << 7 * shift
        if byte < 0x80:  # noqa: PLR2004  the last byte of the length
            return at + 2 + shift + size > len(raw)
    return True


def results_in(entry: JsonObject, parts: Iterable[Value], call_id: object) -> Iterator[ResultText]:
    for part in parts:
        text = value_at(entry, part.path)
        if isinstance(text, str):
            yield ResultText(part.path, text, str_or_none(call_id))


def calls_in(
    blocks: Iterable[tuple[int, JsonObject]], path: KeyPath, key: str
) -> tuple[ToolCall, ...]:  # fmt: skip
    return tuple([
        ToolCall(
            str_or_none(block.get("id")), str_or_none(block.get("name")) or "tool",
            (*path, index, key), block.get(key), signed=bool(block.get("thoughtSignature")),
        ) for index, block in blocks
    ])  # fmt: skip


def texts_in(content: Any) -> list[tuple[int | None, str]]:
    """Return the texts that are more than white space, with the indexes of their blocks."""
    texts = [(None, content)] if isinstance(content, str) else [
        (index, block.get("text")) for index, block in blocks_in(content, "text")
    ]  # fmt: skip
    return [(at, text) for at, text in texts if isinstance(text, str) and text.strip()]


def last_text(content: Any, path: KeyPath) -> tuple[KeyPath | None, str]:
    texts = texts_in(content)
    if not texts:
        return None, ""
    index, text = texts[-1]
    return (path if index is None else (*path, index, "text")), text


def reply_step(
    message: JsonObject, linked: tuple[str | None, tuple[str, ...]], calls: tuple[ToolCall, ...], *,
    stopped: bool, cut_short: bool,
) -> TurnStep:  # fmt: skip
    """Return a reply as a step of its turn. `linked` are `parent` and `names` of the TurnStep."""
    path, text = last_text(message.get("content"), ("message", "content"))
    return TurnStep(
        "reply", *linked, text, path,
        closes=path is not None and not calls and stopped,
        cut_short=cut_short or GAVE_UP in text, calls=calls,
    )  # fmt: skip
