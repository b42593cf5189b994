"""JSON lines of other agents: `{"type": "tool_result", "__id": "msg-7", "output": "…"}`."""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from brainsurgeon.formats import base, weight
from brainsurgeon.formats.chain import Chain
from brainsurgeon.formats.marks import marks_in
from brainsurgeon.model.entries import (
    EXTRACTABLE,
    FIELDS,
    KINDS,
    JsonObject,
    KeyPath,
    Kind,
    Line,
    Value,
    parse,
)
from brainsurgeon.model.text import parse_time
from brainsurgeon.model.transcript import Entry
from brainsurgeon.model.turns import GAVE_UP, ModelCall, Sent, ToolCall, ToolResult, TurnStep

_STOPS = ("stopReason", "stop_reason", "finish_reason")
_CUT_SHORT = ("length", "error", "aborted", "max_tokens")
_DONE = ("stop", "end_turn", "stop_sequence", *_CUT_SHORT)
_TEXT_KEYS = ("content", "text", "output", "result", "message")


def _reply(entry: JsonObject) -> TurnStep:
    message = base.dict_or_empty(entry.get("message"))
    texts = (
        base.last_text(holder.get(key), (*path, key))
        for holder, path in ((entry, ()), (message, ("message",)))
        for key in _TEXT_KEYS
    )
    path, text = next((text for text in texts if text[0] is not None), (None, ""))
    stops = [holder[key] for holder in (entry, message) for key in _STOPS if key in holder]
    return TurnStep(
        "reply", text=text, text_path=path,
        closes=path is not None and all(stop in _DONE for stop in stops),
        cut_short=any(stop in _CUT_SHORT for stop in stops) or GAVE_UP in text,
    )  # fmt: skip


VALUE_KEYS = ("output", "content", "text", "result", "data", "thinking", "message")
ARGUMENTS = ("arguments", "input")
_EDITABLE = frozenset((*VALUE_KEYS, *ARGUMENTS, *FIELDS))
_ROLES: dict[str, Kind] = {
    "user": "user", "assistant": "assistant", "system": "system", "tool": "tool_result",
    "toolResult": "tool_result",
}  # fmt: skip
_CALLS = ("tool_use", "toolCall")
OPEN_KINDS = {"user": "a user message", "tool_call": "a tool call", "tool_result": "a tool result"}


class EntryTurn(Struct, frozen=True, gc=False):
    kind: Kind | None
    is_prompt: bool
    left: str | None  # why the entry leaves its turn open


class GenericChain(Chain):
    def __init__(self, entries: Sequence[Entry]) -> None:
        super().__init__()
        for index, entry in enumerate(entries):
            self.count(index, entry, live=entry.own is not None)
            if entry.own is None:
                self.open_turn = self.open_turn if entry.terminated else base.STILL_WRITTEN
            elif entry.is_message:
                self.open_turn = entry.own.left
                self.last_user = index if entry.own.is_prompt else self.last_user


class Generic(base.Format):
    """Signed thinking stays, since its provider is unknown."""

    name = "generic"
    version = 7

    def recognises(self, entries: Sequence[JsonObject]) -> bool:
        types = ("message", *KINDS)
        return any("__id" in entry and entry.get("type") in types for entry in entries)

    def session(self, head: Sequence[JsonObject]) -> str | None:
        keys = ("session_id", "sessionId", "conversation_id", "thread_id")
        return next(filter(None, (base.usable_id(head[0].get(key)) for key in keys)), None)

    def record(self, entry: JsonObject, line: Line, index: int) -> Entry:
        rest, time = _rest(entry), parse_time(entry.get("timestamp"))
        content = self.read(entry)
        step, sent, turn = content.step, content.sent, _turn(entry, content.step)
        return Entry(
            index, line.terminated, _identity(entry, rest, line.number), rest, None, step.role,
            turn.kind is not None, time, (), step.text_path, step.closes, step.cut_short,
            base.values_sent(content.values, sent, entry), base.call_records(content.calls), None,
            base.result_records(step.results), sent, _call_of_model(entry),
            marks=marks_in(line.raw, entry, (), has_emptied=False), own=turn,
        )  # fmt: skip

    def read(self, entry: JsonObject) -> base.Content:
        call = _call_id(entry)
        values = [replace(value, call=call, sent=None) for value in _parts(entry)]
        calls, texts = tuple(_calls(entry)), [*_result_texts(entry, values)]
        return base.Content(_step(entry, calls, texts), calls, texts, values, _sent(values))

    def chain(self, entries: Sequence[Entry]) -> Chain:
        return GenericChain(entries)


def _parts(entry: JsonObject) -> Iterator[Value]:
    kind = _kind(entry) or ("custom" if entry.get(EXTRACTABLE) is True else None)
    if kind is None:
        return
    tool = _tool(entry)
    yield from _values(entry, (), kind, tool)
    message = entry.get("message")
    if isinstance(message, dict):
        yield from _values(message, ("message",), kind, tool or _tool(message))


def _step(
    entry: JsonObject, calls: tuple[ToolCall, ...], texts: Iterable[base.ResultText]
) -> TurnStep:
    kind = _kind(entry)
    if kind is None:
        return base.NO_STEP
    failed = any(entry.get(key) is True for key in ("isError", "is_error", "error"))
    results = tuple(
        ToolResult(answer.call_id, failed, base.first_line([answer.text]) if failed else "")
        for answer in texts
    )
    if kind == "tool_result" or results:
        return TurnStep("result", results=results or (ToolResult(None),))
    if kind == "user":
        return TurnStep("prompt")
    if calls:
        return TurnStep("reply", calls=calls)
    return _reply(entry) if kind == "assistant" else TurnStep("aside")


def _calls(entry: JsonObject) -> Iterator[ToolCall]:
    if _kind(entry) == "tool_call":
        yield _call((), entry, _call_id(entry))
    for path, block in _tool_blocks(entry, *_CALLS):
        yield _call(path, block, base.str_or_none(block.get("id")))


def _result_texts(entry: JsonObject, values: Iterable[Value]) -> Iterator[base.ResultText]:
    if _kind(entry) == "tool_result":
        yield from base.results_in(entry, values, _call_id(entry))
        return
    for path, block in _tool_blocks(entry, "tool_result"):
        parts = _content(block.get("content"), (*path, "content"), "tool_result", None)
        yield from base.results_in(entry, parts, _call_id(block))


def _rest(entry: JsonObject) -> bytes:
    rest = repr(_unedited(entry)).encode("utf-8", "replace")
    return hashlib.sha1(rest, usedforsecurity=False).digest()


def _identity(entry: JsonObject, rest: bytes, number: int) -> str | None:
    for key in ("__id", "id"):
        if entry.get(key) is not None:
            return base.usable_id(entry[key])
    return f"L{number}-{rest.hex()[:8]}"


def _turn(entry: JsonObject, step: TurnStep) -> EntryTurn:
    kind = _kind(entry)
    left = OPEN_KINDS.get("tool_call" if any(_tool_blocks(entry, *_CALLS)) else kind or "")
    is_prompt = kind == "user" and step.role == "prompt"
    return EntryTurn(kind, is_prompt, f"the last turn is open: {left}" if left else None)


def _sent(values: Sequence[Value]) -> Sent:
    data = [value.chars for value in values if value.block]
    return Sent(sum(value.chars for value in values) - sum(data), len(data), sum(data))


def _call_of_model(entry: JsonObject) -> ModelCall | None:
    time = parse_time(entry.get("timestamp"))
    holders = (entry, base.dict_or_empty(entry.get("message")))
    usages = [holder["usage"] for holder in holders if isinstance(holder.get("usage"), dict)]
    models = (_first_text(holder, "model") for holder in holders)
    model = next(filter(None, models), "")
    if error := next(filter(None, map(_error, holders)), "") if _replies(entry) else "":
        providers = (_first_text(holder, "provider") for holder in holders)
        return weight.unanswered(time, error, model, next(filter(None, providers), ""))
    stops = (_first_text(holder, "stop_reason", "finish_reason", "stopReason")
             for holder in holders)  # fmt: skip
    call = weight.recorded(time, usages[0], model) if usages else None
    cut = any(stop in ("length", "max_tokens") for stop in stops)
    return replace(call, end="cut") if call and cut else call


def _replies(entry: JsonObject) -> bool:
    return entry.get("type") == "error" or _kind(entry) == "assistant"


def _error(holder: JsonObject) -> str:
    error = holder.get("error")
    nested = _first_text(base.dict_or_empty(error), "message")
    return nested or base.str_or_empty(error) or _first_text(holder, "errorMessage") or ""


def _unedited(value: Any, depth: int = 4) -> Any:
    if isinstance(value, dict | list) and not depth:
        return None
    if isinstance(value, dict):
        return [
            (key, _unedited(item, depth - 1))
            for key, item in value.items()
            if key not in _EDITABLE or (key == "message" and isinstance(item, dict))
        ]  # fmt: skip
    if isinstance(value, list):
        return [_unedited(item, depth - 1) for item in value]
    return value


def _first_text(entry: JsonObject, *keys: str) -> str | None:
    return next((entry[key] for key in keys if isinstance(entry.get(key), str)), None)


def _call_id(entry: JsonObject) -> str | None:
    return _first_text(entry, "call_id", "tool_call_id", "toolCallId", "tool_use_id")


def _call(path: KeyPath, holder: JsonObject, call_id: str | None) -> ToolCall:
    key = next((key for key in ARGUMENTS if key in holder), ARGUMENTS[0])
    arguments = holder.get(key)
    text = arguments if isinstance(arguments, str) else ""
    parsed = parse(text.encode("utf-8", "replace")) if text else None
    given = arguments if parsed is None else parsed
    return ToolCall(call_id, _tool(holder) or "tool", (*path, key), given, parsed is not None)


def _tool(entry: JsonObject) -> str | None:
    return _first_text(entry, "name", "tool", "tool_name", "toolName")


def _tool_blocks(entry: JsonObject, *types: str) -> Iterator[tuple[KeyPath, JsonObject]]:
    for path, holder in (((), entry), (("message",), base.dict_or_empty(entry.get("message")))):
        for index, block in base.blocks_in(holder.get("content"), *types):
            yield (*path, "content", index), block


def _kind(entry: JsonObject) -> Kind | None:
    declared = entry.get("type")
    if declared == "message":
        message = entry.get("message")
        role = (message if isinstance(message, dict) else entry).get("role")
        return _ROLES.get(role) if isinstance(role, str) else None
    return next((kind for kind in KINDS if kind == declared), None)


def _values(holder: JsonObject, path: KeyPath, kind: Kind, tool: str | None) -> Iterator[Value]:
    for key in VALUE_KEYS:
        value = holder.get(key)
        if key == "thinking" and _signed(holder) and isinstance(value, str):
            yield from _locked(value, (*path, key))
        elif key != "message" or isinstance(value, str):
            yield from _content(value, (*path, key), kind, tool)
    if kind == "tool_call":
        yield from base.leaves(holder.get("arguments"), (*path, "arguments"), kind, tool)


def _content(
    value: Any, path: KeyPath, kind: Kind, tool: str | None, depth: int = 8
) -> Iterator[Value]:
    if not isinstance(value, list):
        yield from base.leaves(value, path, kind, tool)
    for index, block in enumerate(value if isinstance(value, list) and depth else []):
        yield from _block(block, (*path, index), kind, tool, depth - 1)


def _block(block: Any, path: KeyPath, kind: Kind, tool: str | None, depth: int) -> Iterator[Value]:
    declared = block.get("type") if isinstance(block, dict) else None
    if declared is None:
        yield from base.leaves(block, path, kind, tool)
    elif declared in ("text", "image", "document"):
        yield from base.block_parts(block, path, kind, tool)
    elif declared == "thinking":
        text = base.str_or_none(block.get("thinking"))
        if _signed(block):
            yield from _locked(text or "", path)
        else:
            yield from base.leaves(text, (*path, "thinking"), "thinking", None)
    elif declared in _CALLS:
        key = "input" if declared == "tool_use" else "arguments"
        if isinstance(block.get(key), dict):
            yield from base.leaves(block[key], (*path, key), "tool_call", _tool(block))
    elif declared == "tool_result":
        yield from _content(block.get("content"), (*path, "content"), "tool_result", tool, depth)


def _signed(holder: JsonObject) -> bool:
    return bool(holder.get("signature") or holder.get("thinkingSignature"))


def _locked(text: str, path: KeyPath) -> Iterator[Value]:
    if text:
        yield Value(path, "thinking", len(text), locked="thinking signed by its provider")
