"""The base class of the formats, and functions that they share."""

import binascii
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct, field

from brainsurgeon.model.entries import (
    Entry,
    KeyPath,
    Kind,
    Line,
    Lines,
    Part,
    parse,
    placeholder_in,
    value_at,
)
from brainsurgeon.model.sessions import Survey
from brainsurgeon.model.turns import GAVE_UP, ArchiveForm, ModelCall, Sent, ToolCall, TurnStep

_GENERATED = re.compile(r"L[0-9]+-[0-9a-f]{8}")
_UUID = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_LONGEST_ID = 1024
WRITES = re.compile(r"write|edit|patch", re.IGNORECASE)  # in names of tools that change a file


class ResultText(Struct, frozen=True):
    path: KeyPath
    text: str
    call_id: str | None


HOLLOW = "a signature without text"
DAMAGED = "its signature is masked or cut off"


class Thoughts(Struct, frozen=True):
    """The signed or redacted thinking of one message."""

    models: tuple[str, ...]  # names of the model that wrote the message
    blocks: tuple[tuple[KeyPath, int], ...]  # paths and lengths (characters)
    instead: bytes  # the JSON that replaces a block
    only_content: bool = False  # the message contains nothing else: no block is replaced
    asked_to_drop: bool = False  # the provider was asked to drop blocks with invalid signatures
    bound: bool = False  # by their form, the signatures cover the request before the thinking
    # Why the provider refuses a block, by path: HOLLOW or DAMAGED.
    unsound: Mapping[KeyPath, str] = field(default_factory=dict)


def thinking_chars(text: str, *signed: str) -> int:
    """Return the length of a block of thinking, at least 1: that of its text, as requests count it.

    Only a block without a text is as long as its signature, or its redacted data.
    """
    return next(filter(None, map(len, (text, *signed))), 1)


class Reasoning(Struct, frozen=True):
    """The reasoning of one message that its provider keeps encrypted."""

    model: str
    tokens: int


class Format(ABC):
    """How an agent writes sessions."""

    name: str
    version: int  # increase it whenever a method returns something else for the same bytes
    has_reasoning = False  # whether `reasoning` ever returns any
    archives: ArchiveForm | None = "flat"  # None: finished turns cannot be archived

    @abstractmethod
    def recognises(self, entries: Sequence[Entry]) -> bool:
        """Check whether a file with these first entries is of this format."""

    def refuses(self, header: Entry) -> str | None:  # noqa: ARG002
        """Return why a file with this first entry is left alone, or None."""
        return None

    @abstractmethod
    def session(self, head: Sequence[Entry]) -> str | None:
        """Return the id of the conversation. It must never change while the file is used."""

    def rest(self, entry: Entry) -> bytes | None:  # noqa: ARG002
        """Return a digest that tells entries with equal ids apart; None if ids are unique.

        It is of parts that are never edited.
        """
        return None

    def is_random(self, entry_id: str) -> bool:
        """Check whether no other agent can have an entry with this id, unless it was copied."""
        return _UUID.fullmatch(entry_id) is not None

    @abstractmethod
    def survey(self, lines: Lines, kept_messages: int) -> Survey:
        """Find the newest messages, the reason why the last turn is open, and the dead entries.

        With `since` and `cursor`, scans read only the end of a file that grew. None is always safe.
        """

    @abstractmethod
    def identity(self, entry: Entry, raw: bytes, number: int) -> str | None:
        """Return the id of the entry within its session, or None if it has no usable one."""

    @abstractmethod
    def is_message(self, entry: Entry) -> bool:
        """Check whether the entry counts as a message, such as for `keep_recent`."""

    @abstractmethod
    def parts(self, entry: Entry, survey: Survey, offset: int | None) -> Iterator[Part]:
        """Yield the values of the entry that could be extracted, and those that are locked."""

    @abstractmethod
    def anchor(self, entry: Entry, path: KeyPath) -> str | None:
        """Return the id of the tool call that the value at `path` belongs to, if any."""

    def reasoning(self, entry: Entry) -> Reasoning | None:  # noqa: ARG002
        return None

    def reasoning_dropped(self, entry: Entry) -> int:  # noqa: ARG002
        """Return how many items the provider left out of a call, as something before changed."""
        return 0

    def thoughts(self, entry: Entry) -> Thoughts | None:  # noqa: ARG002
        """Return the signed thinking of the entry if later requests contain it, or None."""
        return None

    @abstractmethod
    def turn_step(self, entry: Entry) -> TurnStep | None:
        """Return the entry as a step of its turn; None if it is no part of the conversation."""

    @abstractmethod
    def calls(self, entry: Entry) -> Iterator[ToolCall]:
        """Yield the tool calls in the entry."""

    @abstractmethod
    def result_texts(self, entry: Entry) -> Iterator[ResultText]:
        """Yield the texts of the tool results in the entry."""

    @abstractmethod
    def sent(self, entry: Entry, survey: Survey) -> Sent:
        """Return the size of the entry in requests."""

    @abstractmethod
    def call(self, entry: Entry) -> ModelCall | None:
        """Return the model call that the entry answers, if any."""

    def asides(self, entry: Entry) -> Iterator[ModelCall]:  # noqa: ARG002
        """Yield the calls of other models that were made for this answer."""
        yield from ()

    def starts_context(self, entry: Entry) -> bool:  # noqa: ARG002
        """Check whether the entry marks a compaction by the agent."""
        return False

    def switches_model(self, entry: Entry) -> bool:  # noqa: ARG002
        """Check whether the next call is to another model, which has its own cache."""
        return False

    def cost_so_far(self, entry: Entry) -> float | None:  # noqa: ARG002
        """Return the costs of the session so far in dollars, if its agent recorded them."""
        return None


class ParsedLine(Struct, frozen=True):
    offset: int
    raw: bytes
    entry: Entry
    ident: str | None
    terminated: bool


def parsed_lines(lines: Iterable[Line], form: Format) -> Iterator[ParsedLine]:
    for line in lines:
        if line.raw and (entry := parse(line.raw)) is not None:
            ident = form.identity(entry, line.raw, line.number)
            yield ParsedLine(line.offset, line.raw, entry, ident, line.terminated)


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


def strings_in(value: Any, path: KeyPath = (), depth: int = 32) -> list[tuple[KeyPath, str]]:
    if isinstance(value, str):
        return [(path, value)] if value else []
    found: list[tuple[KeyPath, str]] = []
    if depth and isinstance(value, dict | list):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            found += strings_in(item, (*path, key), depth - 1)
    return found


def leaves(
    value: Any, path: KeyPath, kind: Kind, tool: str | None, *, locked: str | None = None,
    dead: bool = False,
) -> Iterator[Part]:  # fmt: skip
    for at, text in strings_in(value, path):
        yield Part(at, kind, len(text), tool, locked=locked, dead=dead)


def content_parts(content: Any, path: KeyPath, kind: Kind, tool: str | None) -> Iterator[Part]:
    if isinstance(content, str):
        yield from leaves(content, path, kind, tool)
    for index, block in blocks_in(content):
        yield from block_parts(block, (*path, index), kind, tool)


def block_parts(block: Entry, path: KeyPath, kind: Kind, tool: str | None) -> Iterator[Part]:
    """Yield a text, or a whole image or document: providers refuse a placeholder in its data."""
    if block.get("type") == "text":
        if text := str_or_none(block.get("text")):
            yield Part((*path, "text"), kind, len(text), tool)
    elif block.get("type") in ("image", "document"):
        data = block.get("data")
        if not isinstance(data, str):
            data = dict_or_empty(block.get("source")).get("data")
        if isinstance(data, str) and data:
            yield Part(path, kind, len(data), tool, block=True)


def references(entry: Entry) -> tuple[str, ...]:
    keys = (
        "targetId", "appendParentId", "firstKeptEntryId", "fromId", "logicalParentUuid", "leafUuid",
    )  # fmt: skip
    return tuple(name for key in keys if isinstance(name := entry.get(key), str))


def first_line(texts: Iterable[object]) -> str:
    lines = (
        line.strip()
        for text in texts
        if isinstance(text, str) and not placeholder_in(text)
        for line in text.splitlines()
    )
    return next(filter(None, lines), "")


def number_in(record: Any, *keys: str) -> int | None:
    values = (dict_or_empty(record).get(key) for key in keys)
    return next((value for value in values if type(value) is int), None)


def str_or_none(value: object) -> str | None:
    return value if isinstance(value, str) else None


def str_or_empty(value: object) -> str:
    return value if isinstance(value, str) else ""


def dict_or_empty(value: object) -> Entry:
    return value if isinstance(value, dict) else {}


def blocks_in(content: object, *types: str) -> Iterator[tuple[int, Entry]]:
    for index, block in enumerate(content if isinstance(content, list) else []):
        if isinstance(block, dict) and (not types or block.get("type") in types):
            yield index, block


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


def results_in(entry: Entry, parts: Iterable[Part], call_id: object) -> Iterator[ResultText]:
    for part in parts:
        text = value_at(entry, part.path)
        if isinstance(text, str):
            yield ResultText(part.path, text, str_or_none(call_id))


def calls_in(content: Any, path: KeyPath, kind: str, key: str) -> Iterator[ToolCall]:
    for index, block in blocks_in(content, kind):
        yield ToolCall(
            str_or_none(block.get("id")), str_or_none(block.get("name")) or "tool",
            (*path, index, key), block.get(key), signed=bool(block.get("thoughtSignature")),
        )  # fmt: skip


def texts_in(content: Any) -> list[tuple[int | None, str]]:
    texts: list[tuple[int | None, str]] = [(None, content)] if isinstance(content, str) else [
        (index, str_or_empty(block.get("text"))) for index, block in blocks_in(content, "text")
    ]  # fmt: skip
    return [(index, text) for index, text in texts if text.strip()]


def last_text(content: Any, path: KeyPath) -> tuple[KeyPath | None, str]:
    index, text = next(reversed(texts_in(content)), (None, ""))
    if not text:
        return None, ""
    return (path if index is None else (*path, index, "text")), text


def reply_step(
    message: Entry, linked: tuple[str | None, tuple[str, ...]], calls: Iterable[ToolCall], *,
    stopped: bool, cut_short: bool,
) -> TurnStep:  # fmt: skip
    """Return a reply as a step of its turn. `linked` are `parent` and `names` of the TurnStep."""
    path, text = last_text(message.get("content"), ("message", "content"))
    made = tuple(calls)
    return TurnStep(
        "reply", *linked, text, path,
        closes=path is not None and not made and stopped,
        cut_short=cut_short or GAVE_UP in text, calls=made,
    )  # fmt: skip
