"""Generic entries: flat tool calls and results with an id of their own.

`{"type": "tool_result", "__id": "msg-7", "output": "…"}` and the like; for everything that is
JSONL and belongs to no agent with a dialect of its own.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from brainsurgeon.formats.base import (
    Answer,
    Call,
    files_in,
    first_line,
    image,
    leaves,
    parse,
    texts_in,
    usable_id,
)
from brainsurgeon.model.entries import EXTRACTABLE, FIELDS, KINDS, Part, value_at
from brainsurgeon.model.sessions import NO_SURVEY, Survey
from brainsurgeon.model.turns import GAVE_UP, Answered, Asked, Said

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from brainsurgeon.model.entries import Entry, KeyPath, Kind, Lines
    from brainsurgeon.model.turns import ArchiveForm


_STOPS = ("stopReason", "stop_reason", "finish_reason")
_CUT_SHORT = ("length", "error", "aborted", "max_tokens")
_DONE = ("stop", "end_turn", "stop_sequence", *_CUT_SHORT)
_TEXT_KEYS = ("content", "text", "output", "result", "message")


def said(
    entry: Entry, kind: Kind | None, tool: str | None, calls: Iterable[Call],
    answers: Iterable[Answer],
) -> Said | None:  # fmt: skip
    """Return what an entry of a kind is in its turn; None where it is of no kind."""
    asked = tuple(
        Asked(call.call_id, tool or _name(entry, call.path), files_in(call.arguments))
        for call in calls
    )
    answered = tuple(_answered(entry, one) for one in answers)
    if kind is None:
        return None
    if kind == "tool_result" or answered:
        return Said("result", answered=answered or (Answered(None),))
    if kind == "user":
        return Said("prompt")
    if kind == "tool_call" or asked:
        return Said("reply", asked=asked or (Asked(None, tool or "tool"),))
    return _reply(entry) if kind == "assistant" else Said("aside")


def _reply(entry: Entry) -> Said:
    path, text = _last_text(entry)
    stops = [holder[key] for holder in _holders(entry) for key in _STOPS if key in holder]
    return Said(
        "reply", text=text, text_path=path,
        closes=path is not None and all(stop in _DONE for stop in stops),
        cut_short=any(stop in _CUT_SHORT for stop in stops) or GAVE_UP in text,
    )  # fmt: skip


def _last_text(entry: Entry) -> tuple[KeyPath | None, str]:
    """Return the last text of an entry, or of its message, and where it stands."""
    for holder, path in ((entry, ()), (entry.get("message"), ("message",))):
        for key in _TEXT_KEYS if isinstance(holder, dict) else ():
            texts = texts_in(holder.get(key)) if isinstance(holder, dict) else []
            if texts:
                index, text = texts[-1]
                place: KeyPath = (*path, key) if index is None else (*path, key, index, "text")
                return place, text
    return None, ""


def _holders(entry: Entry) -> list[dict[str, Any]]:
    message = entry.get("message")
    return [entry, message] if isinstance(message, dict) else [entry]


def _name(entry: Entry, path: KeyPath) -> str:
    block = value_at(entry, path[:-1])
    name = block.get("name") if isinstance(block, dict) else None
    return name if isinstance(name, str) else "tool"


def _answered(entry: Entry, one: Answer) -> Answered:
    failed = any(entry.get(key) is True for key in ("isError", "is_error", "error"))
    return Answered(one.call_id, failed, first_line([one.text]) if failed else "")


VALUE_KEYS = ("output", "content", "text", "result", "data", "thinking", "message")
ARGUMENTS = ("arguments", "input")
_OURS_TO_CHANGE = frozenset((*VALUE_KEYS, *ARGUMENTS, *FIELDS))
# Levels of an entry that are compared.
_DEEPEST = 4
SESSION_KEYS = ("session_id", "sessionId", "conversation_id", "thread_id")
ROLES: dict[str, Kind] = {
    "user": "user", "assistant": "assistant", "system": "system", "tool": "tool_result",
    "toolResult": "tool_result",
}  # fmt: skip
SIGNED = "thinking signed by its provider"
ASKING = ("tool_use", "toolCall")
OPEN_KINDS = {"user": "a user message", "tool_call": "a tool call", "tool_result": "a tool result"}


class Generic:
    """The dialect of no agent in particular."""

    name = "generic"
    version = 3
    archives: ArchiveForm | None = "flat"

    def recognises(self, entries: Sequence[Entry]) -> bool:
        """Know a file by an entry with an id of this format and a type that maps to a kind."""
        return any(
            "__id" in entry and (entry.get("type") == "message" or entry.get("type") in KINDS)
            for entry in entries
        )

    def refuses(self, header: Entry) -> str | None:  # noqa: ARG002
        """Take every file."""
        return None

    def session(self, head: Sequence[Entry]) -> str | None:
        """Return the session that its first entry names."""
        named = (usable_id(head[0].get(key)) for key in SESSION_KEYS)
        return next(filter(None, named), None)

    def rest(self, entry: Entry) -> bytes | None:
        """Return a digest of what our edits leave alone in an entry, and in its message."""
        return _unchanging(entry)

    def survey(self, lines: Lines, window: int) -> Survey:
        """Walk back in file order: every entry that maps to a kind counts."""
        positions: dict[int, int] = {}
        messages = 0
        judged: int | None = None
        open_turn: str | None = None
        for line in lines.backward():
            if messages > window:
                break
            entry = parse(line.raw) if line.raw else None
            if entry is None:
                if not line.terminated and judged is None:
                    open_turn, judged = "the last line is torn: a write is under way", line.offset
                continue
            kind = _kind(entry)
            positions[line.offset] = messages if kind else max(messages - 1, 0)
            messages += kind is not None
            if kind and judged is None:
                judged = line.offset
                asks = next(_tool_blocks(entry, *ASKING), None)
                if asks or kind in OPEN_KINDS:
                    what = OPEN_KINDS["tool_call" if asks else kind]
                    open_turn = f"the last turn is open: {what}"
        cursor = None if judged is None else ""  # no entry reaches back
        return Survey(window, positions, open_turn, since=judged, cursor=cursor)

    def identity(self, entry: Entry, raw: bytes, number: int) -> str | None:  # noqa: ARG002
        """Name the entry by `__id`, else by `id`, else by its line and a digest.

        The digest is of what our own edits leave alone, so that they do not change the name.
        """
        for key in ("__id", "id"):
            if entry.get(key) is not None:
                return usable_id(entry[key])
        return f"L{number}-{_unchanging(entry).hex()[:8]}"

    def counts(self, entry: Entry) -> bool:
        """Count every entry that maps to a kind."""
        return _kind(entry) is not None

    def parts(self, entry: Entry, survey: Survey, offset: int | None) -> Iterator[Part]:  # noqa: ARG002
        """Yield the strings below the value keys, at the top level and inside `message`.

        An entry whose type maps to no kind has parts only where it is forced: they are `custom`.
        """
        kind = _kind(entry) or ("custom" if entry.get(EXTRACTABLE) is True else None)
        if kind is None:
            return
        tool = _tool(entry)
        yield from _values(entry, (), kind, tool)
        message = entry.get("message")
        if isinstance(message, dict):
            yield from _values(message, ("message",), kind, tool or _tool(message))

    def anchor(self, entry: Entry, path: KeyPath) -> str | None:  # noqa: ARG002
        """Name the call that the entry is or answers."""
        return _call_id(entry)

    def thoughts(self, entry: Entry) -> None:
        """Know of no seals: who reads these entries cannot be told."""

    def said(self, entry: Entry) -> Said | None:
        kind, tool = _kind(entry), _tool(entry)
        return said(entry, kind, tool, self.calls(entry), self.answers(entry))

    def calls(self, entry: Entry) -> Iterator[Call]:
        """Yield the call that a tool_call entry is, or those that stand in its blocks."""
        if _kind(entry) == "tool_call":
            for key in ARGUMENTS:
                yield from _call((key,), _call_id(entry), entry.get(key))
        for path, block in _tool_blocks(entry, *ASKING):
            ident = block.get("id")
            for key in ARGUMENTS:
                yield from _call(
                    (*path, key), ident if isinstance(ident, str) else None, block.get(key)
                )

    def answers(self, entry: Entry) -> Iterator[Answer]:
        """Yield the texts of a tool_result entry, or of those that stand in its blocks."""
        if _kind(entry) != "tool_result":
            for path, block in _tool_blocks(entry, "tool_result"):
                for part in _content(block.get("content"), (*path, "content"), "tool_result", None):
                    text = value_at(entry, part.path)
                    if isinstance(text, str):
                        yield Answer(part.path, text, _call_id(block))
            return
        for part in self.parts(entry, NO_SURVEY, None):
            text = value_at(entry, part.path)
            if isinstance(text, str):
                yield Answer(part.path, text, _call_id(entry))


def _left_alone(value: Any, depth: int = _DEEPEST) -> Any:
    """Return what our own edits leave alone in an entry, its message included."""
    if isinstance(value, dict | list) and not depth:
        return None
    if isinstance(value, dict):
        return [
            (key, _left_alone(one, depth - 1))
            for key, one in value.items()
            if key not in _OURS_TO_CHANGE or (key == "message" and isinstance(one, dict))
        ]  # fmt: skip
    if isinstance(value, list):
        return [_left_alone(one, depth - 1) for one in value]
    return value


def _unchanging(entry: Entry) -> bytes:
    said = _left_alone(entry)
    return hashlib.sha1(repr(said).encode("utf-8", "replace"), usedforsecurity=False).digest()


def _call_id(entry: Entry) -> str | None:
    return next(
        (
            entry[key]
            for key in ("call_id", "tool_call_id", "toolCallId", "tool_use_id")
            if isinstance(entry.get(key), str)
        ),
        None,
    )


def _call(path: KeyPath, call_id: str | None, arguments: Any) -> Iterator[Call]:
    as_text = isinstance(arguments, str)
    if as_text:
        arguments = parse(arguments.encode("utf-8", "replace"))
    if isinstance(arguments, dict):
        yield Call(path, call_id, arguments, as_text)


def _tool_blocks(entry: Entry, *types: str) -> Iterator[tuple[KeyPath, Entry]]:
    """Yield the blocks of these types in the entry's content, or in its message's."""
    message = entry.get("message")
    for path, holder in (((), entry), (("message",), message)):
        content = holder.get("content") if isinstance(holder, dict) else None
        for index, block in enumerate(content if isinstance(content, list) else []):
            if isinstance(block, dict) and block.get("type") in types:
                yield (*path, "content", index), block


def _kind(entry: Entry) -> Kind | None:
    declared = entry.get("type")
    if declared == "message":
        message = entry.get("message")
        role = message.get("role") if isinstance(message, dict) else entry.get("role")
        return ROLES.get(role) if isinstance(role, str) else None
    return next((kind for kind in KINDS if kind == declared), None)


def _tool(entry: Entry) -> str | None:
    for key in ("name", "tool", "tool_name", "toolName"):
        if isinstance(entry.get(key), str):
            return str(entry[key])
    return None


def _values(holder: Entry, path: KeyPath, kind: Kind, tool: str | None) -> Iterator[Part]:
    for key in VALUE_KEYS:
        value = holder.get(key)
        if key == "message" and not isinstance(value, str):
            continue
        if key == "thinking" and isinstance(value, str) and value and _signed(holder):
            yield Part((*path, key), "thinking", len(value), locked=SIGNED)
        else:
            yield from _content(value, (*path, key), kind, tool)
    if kind == "tool_call":
        yield from leaves(holder.get("arguments"), (*path, "arguments"), kind, tool)


def _content(
    value: Any, path: KeyPath, kind: Kind, tool: str | None, depth: int = 8
) -> Iterator[Part]:
    """Yield what is inside a content: a list of blocks, or any other value with strings in it."""
    if not isinstance(value, list):
        yield from leaves(value, path, kind, tool)
    elif depth:
        yield from _blocks(value, path, kind, tool, depth - 1)


def _blocks(
    blocks: list[Any], path: KeyPath, kind: Kind, tool: str | None, depth: int
) -> Iterator[Part]:
    for index, block in enumerate(blocks):
        here: KeyPath = (*path, index)
        declared = block.get("type") if isinstance(block, dict) else None
        if declared == "image":
            yield from image(block, here, kind, tool)
        elif declared == "thinking":
            yield from _thinking(block, here)
        elif declared in ("tool_use", "toolCall"):
            key = "input" if declared == "tool_use" else "arguments"
            if isinstance(block.get(key), dict):
                yield from leaves(block[key], (*here, key), "tool_call", _tool(block))
        elif declared == "tool_result":
            inner = block.get("content")
            yield from _content(inner, (*here, "content"), "tool_result", tool, depth)
        elif declared == "text":
            if isinstance(block.get("text"), str):
                yield from leaves(block["text"], (*here, "text"), kind, tool)
        elif declared is None:
            yield from leaves(block, here, kind, tool)


def _signed(holder: Entry) -> bool:
    return bool(holder.get("signature") or holder.get("thinkingSignature"))


def _thinking(block: Entry, path: KeyPath) -> Iterator[Part]:
    """Cut unsigned thinking in place; nobody knows who signed the rest, so that it stays."""
    text = block.get("thinking")
    if not isinstance(text, str) or not text:
        return
    if _signed(block):
        yield Part(path, "thinking", len(text), locked=SIGNED)
    else:
        yield Part((*path, "thinking"), "thinking", len(text))
