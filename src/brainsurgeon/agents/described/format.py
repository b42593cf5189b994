"""The format of a log that a description explains."""

import hashlib
from collections.abc import Container, Iterable, Iterator, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from brainsurgeon.formats import base, weight
from brainsurgeon.formats.chain import Around, Chain
from brainsurgeon.formats.description import (
    PATHS,
    CallTable,
    Compiled,
    Description,
    EntryTable,
    Names,
    ResultTable,
    compiled,
    conditions,
    first,
    found,
    last_key,
    met,
)
from brainsurgeon.formats.marks import marks_in
from brainsurgeon.model.entries import (
    EXTRACTABLE,
    FIELDS,
    JsonObject,
    KeyPath,
    Kind,
    Line,
    Value,
    parse,
    value_at,
)
from brainsurgeon.model.text import parse_time
from brainsurgeon.model.transcript import Entry, Thoughts
from brainsurgeon.model.turns import GAVE_UP, ModelCall, Sent, ToolCall, ToolResult, TurnStep

_STOPS = ("stopReason", "stop_reason", "finish_reason")
_CUT_SHORT = ("length", "error", "aborted", "max_tokens")
_DONE = ("stop", "end_turn", "stop_sequence", *_CUT_SHORT)
# In content as providers write it: blocks that call tools, and keys in any block.
_CALLS = ("tool_use", "toolCall")
_WHOLE = ("image", "document", "image_url")  # a placeholder in them would be refused
_MEDIA = ("text", "resource", *_WHOLE)
_IDS = ("call_id", "tool_call_id", "toolCallId", "tool_use_id")
_TOOLS = ("name", "tool", "tool_name", "toolName")
# Keys that may hold values in any log: they do not tell lines apart.
_EDITED = ("output", "content", "text", "result", "data", "thinking", "message", "arguments",
           "input", *FIELDS)  # fmt: skip
_KINDS: dict[str | None, Kind] = {
    "prompt": "user", "reply": "assistant", "result": "tool_result", "aside": "system",
}  # fmt: skip
_OPEN = {"prompt": "a user message", "result": "a tool result"}
_SIGNED = "thinking signed by its provider"
_NAME = "a name, role or time of its entry, or a signature"
_AS_TEXT = "arguments in a text, which must stay JSON"
_NEWEST = "among the newest messages of an agent that is only described"
_NOTHING = EntryTable()
_LONGEST_TIME = 40  # characters
_MILLISECONDS = 1e11  # no time in seconds is so large


class OwnTurn(Struct, frozen=True, gc=False):
    is_prompt: bool
    left: str | None  # why the entry leaves its turn open; "": it ends it; None: neither


class Newest(Around, frozen=True):
    stays: bool = False  # no value is extracted


class DescribedChain(Chain):
    """Every entry is sent, in the order of the file."""

    def __init__(self, entries: Sequence[Entry], newest: int) -> None:
        super().__init__()
        self._newest = newest
        calls = (call for entry in entries for call in entry.calls)
        self.tools = {call.call_id: call.tool for call in calls if call.call_id}
        for index, entry in enumerate(entries):
            self.count(index, entry, live=entry.own is not None)
            if entry.own is None:
                self.open_turn = self.open_turn if entry.terminated else base.STILL_WRITTEN
            elif entry.own.left is not None:
                self.open_turn = entry.own.left or None
                self.last_user = index if entry.own.is_prompt else self.last_user

    def around(self, index: int, entry: Entry) -> Around:
        plain = super().around(index, entry)
        given = {key: getattr(plain, key) for key in plain.__struct_fields__}
        return Newest(**given, stays=self.position(index, entry) < self._newest)


class _Inner:
    """Where calls, with their arguments, or results, with their texts, are in an entry."""

    def __init__(self, table: CallTable | ResultTable) -> None:
        self._at, self._id, self._tool = map(compiled, (table.at, table.id, table.tool))
        self.failed = list[Compiled]()
        if isinstance(table, ResultTable):
            self._content, self.failed = compiled(table.texts), [*map(conditions, table.failed)]
        else:
            self._content = compiled(table.arguments)

    def all(
        self, entry: JsonObject
    ) -> Iterator[tuple[KeyPath, JsonObject, str | None, str | None]]:
        """Yield path, object, id and tool of each."""
        for steps in self._at:
            for path, inner in found(entry, steps):
                if isinstance(inner, dict):
                    yield path, inner, first(inner, self._id), first(inner, self._tool)

    def content(self, inner: JsonObject, path: KeyPath) -> Iterator[tuple[KeyPath, Any]]:
        return (one for steps in self._content for one in found(inner, steps, path))


class Described(base.Format):
    """Signed thinking stays, since its provider is unknown."""

    by_wish = True

    def __init__(
        self, name: str, given: Description, version: int, *, final: bool = False
    ) -> None:  # fmt: skip
        # A `final` description never reaches other values, so other texts tell its lines apart. Of
        # any other, no text may: what is extracted must be known in its line under the next one.
        self.name, self.version, self.given = name, version, given
        self.wanted = given.recognise
        self._recognise, self._failed = (
            [*map(conditions, tables)] for tables in (given.recognise, given.failed)
        )
        self._tables = [(conditions(table.when), table) for table in given.entries]
        self._at = {key: compiled(getattr(given, key)) for key in PATHS}
        self._calls, self._results = [*map(_Inner, given.calls)], [*map(_Inner, given.results)]
        self._final, self._names = final, Names(given)
        self._edited = frozenset((*_EDITED, *(map(last_key, given.edited()) if final else ())))

    def recognises(self, entries: Sequence[JsonObject]) -> bool:
        return any(met(entry, wanted) for entry in entries for wanted in self._recognise)

    def session(self, head: Sequence[JsonObject]) -> str | None:
        values = (
            value for steps in self._at["session"]
            for entry in head[: None if any(step.where for step in steps[:1]) else 1]
            for _, value in found(entry, steps)
        )  # fmt: skip
        return next(filter(None, map(base.usable_id, values)), None)

    def first_entry(self, entry: JsonObject, line: Line, index: int) -> Entry:
        content, rest = self.read(entry), self._rest(entry)
        step, values = content.step, [*content.values]
        return Entry(
            index, line.terminated, self._identity(entry, rest, line.number), rest, None, step.role,
            step.role not in (None, "note"), self._time(entry), (), step.text_path, step.closes,
            step.cut_short, base.values_sent(values, content.sent, entry),
            base.call_facts(content.calls), None, base.result_facts(step.results),
            content.sent, self._call_of_model(entry, step), thoughts=self._thoughts(entry, values),
            marks=marks_in(line.raw, entry, (), has_emptied=False),
            own=_turn(self._table(entry), step),
        )  # fmt: skip

    def _table(self, entry: JsonObject) -> EntryTable:
        """Return what the description says of an entry."""
        return next((table for wanted, table in self._tables if met(entry, wanted)), _NOTHING)

    def read(self, entry: JsonObject) -> base.Content:
        table = self._table(entry)
        values = [self._checked(entry, one) for one in _apart(self._values(entry, table))]
        calls = tuple(self._tool_calls(entry, table)) if table.role else ()
        texts = [
            base.ResultText(value.path, text, value.call) for value in values
            if value.kind == "tool_result" and not value.dead
            and isinstance(text := value_at(entry, value.path), str)
        ]  # fmt: skip
        step = self._step(entry, table, calls, texts)
        return base.Content(step, calls, texts, values, _sent(values))

    def chain(self, entries: Sequence[Entry]) -> Chain:
        return DescribedChain(entries, self.given.newest)

    def resolved(self, values: Iterable[Value], around: Around) -> Iterator[Value]:
        for value in super().resolved(values, around):
            tool = value.tool or around.tools.get(value.call or "")
            stays = isinstance(around, Newest) and around.stays
            yield replace(value, tool=tool, locked=value.locked or (_NEWEST if stays else None))

    def _found(
        self, key: str, holder: JsonObject, at: KeyPath = (), most: int | None = None
    ) -> Iterator[tuple[KeyPath, Any]]:  # fmt: skip
        return (one for steps in self._at[key][:most] for one in found(holder, steps, at))

    def _holders(self, entry: JsonObject) -> Iterator[tuple[KeyPath, JsonObject]]:
        return (one for one in self._found("within", entry) if isinstance(one[1], dict))

    def _values(self, entry: JsonObject, table: EntryTable) -> Iterator[Value]:
        kind = table.kind or _KINDS.get(table.role)
        if kind is None and entry.get(EXTRACTABLE) is True:
            kind = "custom"
        tool, call = first(entry, self._at["tool"]), first(entry, self._at["call_id"])
        like = Value((), kind or "custom", 0, tool, call=call)
        for path, value in self._found("unsent", entry):
            yield from _leaves(value, path, replace(like, dead=True))
        if table.role is not None:
            yield from self._inner_values(entry, like)
        holders = dict(self._holders(entry)) if kind else {}
        for at, holder in holders.items():
            named = replace(like, tool=tool or first(holder, self._at["tool"]))
            for path, value in self._found("thinking", holder, at):
                locked = _SIGNED if self._signature(entry, path) else None
                yield from base.leaves(value, path, "thinking", locked=locked)
            for path, value in self._found("texts", holder, at):
                if path not in holders:
                    yield from self._content(entry, value, path, named)
            for path, value in self._found("arguments", holder, at, int(kind == "tool_call")):
                yield from _leaves(value, path, named)

    def _checked(self, entry: JsonObject, value: Value) -> Value:
        """Lock what names the entry, or tells it apart from others in a later run."""
        if value.locked or not (
            value.path[-1] in self.given.signatures or self._names.include(entry, value.path)
            or self._is_rest(entry, value)
        ):  # fmt: skip
            return value
        return replace(value, locked=_NAME)

    def _is_rest(self, entry: JsonObject, value: Value) -> bool:
        """Check whether a value is part of `rest`."""
        if self._final or not self._edited.isdisjoint(value.path):
            return False
        if value.block:
            return not any(isinstance(step, int) for step in value.path)
        return value.chars <= _LONGEST_TIME and parse_time(value_at(entry, value.path)) is not None

    def _inner_values(self, entry: JsonObject, like: Value) -> Iterator[Value]:
        for inner in self._calls:
            for path, call, ident, tool in inner.all(entry):
                signed = _SIGNED if self._signature(entry, path) else None
                for at, value in inner.content(call, path):
                    why = _AS_TEXT if isinstance(value, str) else signed
                    one = Value((), "tool_call", 0, tool, locked=why, call=ident)
                    yield from _leaves(value, at, one)
        for inner in self._results:
            for path, result, ident, tool in inner.all(entry):
                one = Value((), "tool_result", 0, tool or like.tool, call=ident)
                for at, value in inner.content(result, path):
                    yield from self._content(entry, value, at, one)

    def _content(
        self, entry: JsonObject, value: Any, path: KeyPath, like: Value, depth: int = 8
    ) -> Iterator[Value]:  # fmt: skip
        """Yield the values of content as providers write it: a text, a block or a list of these."""
        if isinstance(value, dict) and value.get("type") in _WHOLE:
            yield from self._block(entry, value, path, like, depth)
        elif not isinstance(value, list):
            yield from _leaves(value, path, like)
        for index, block in enumerate(value if isinstance(value, list) and depth else []):
            yield from self._block(entry, block, (*path, index), like, depth - 1)

    def _block(
        self, entry: JsonObject, block: Any, path: KeyPath, like: Value, depth: int
    ) -> Iterator[Value]:  # fmt: skip
        declared = block.get("type") if isinstance(block, dict) else None
        if declared is None:
            yield from _leaves(block, path, like)
        elif declared in _MEDIA:
            yield from _medium(block, declared, path, like)
        elif declared in ("thinking", "redacted_thinking"):
            text, signature = base.str_or_empty(block.get("thinking")), self._signature(entry, path)
            if signature or declared != "thinking":
                chars = base.thinking_chars(text, signature or "")
                yield Value(path, "thinking", chars, locked=_SIGNED)
            else:
                yield from base.leaves(text, (*path, "thinking"), "thinking")
        elif declared in _CALLS:
            key = "input" if declared == "tool_use" else "arguments"
            if isinstance(block.get(key), dict):
                one = Value(
                    (), "tool_call", 0, _text_at(block, _TOOLS), call=_text_at(block, ("id",))
                )
                yield from _leaves(block[key], (*path, key), one)
        elif declared == "tool_result":
            one = replace(like, kind="tool_result", call=_text_at(block, _IDS) or like.call)
            yield from self._content(entry, block.get("content"), (*path, "content"), one, depth)

    def _signature(self, entry: JsonObject, path: KeyPath) -> str | None:
        """Return the signature of what is at a path, which is a key of it or beside it."""
        holders = (value_at(entry, path), value_at(entry, path[:-1]))
        signed = (_text_at(one, self.given.signatures) for one in holders)
        return next(filter(None, signed), None)

    def _thoughts(self, entry: JsonObject, values: Iterable[Value]) -> Thoughts | None:
        signed = [value for value in values if value.locked == _SIGNED and value.kind == "thinking"]
        if not signed:
            return None
        model = first(entry, self._at["model"])
        bound = (base.covers_request(self._signature(entry, value.path)) for value in signed)
        return Thoughts(
            (model,) if model else (), tuple([(value.path, value.chars) for value in signed]), b"",
            only_content=True, bound=any(bound),
        )  # fmt: skip

    def _step(
        self, entry: JsonObject, table: EntryTable, calls: tuple[ToolCall, ...],
        texts: Iterable[base.ResultText],
    ) -> TurnStep:  # fmt: skip
        if table.role is None:
            return base.NO_STEP
        failures = {*self._failures(entry)}
        found = [_result(entry, one.path, one.call_id, failures, one.text) for one in texts]
        found += [
            _result(entry, path, ident, failures) for inner in self._results
            for path, _, ident, _ in inner.all(entry)
        ]  # fmt: skip
        results = dict[str | None, ToolResult]()  # a result may have several texts
        for one in found:
            if not results.setdefault(one.call_id, one).finding and one.finding:
                results[one.call_id] = one
        if table.role == "result" or results:
            alone = _result(entry, (), first(entry, self._at["call_id"]), failures)
            return TurnStep("result", results=tuple(results.values()) or (alone,))
        if table.role != "prompt" and calls:
            return TurnStep("reply", calls=calls)
        assistant = table.role == "reply" and table.kind is None
        return self._reply(entry) if assistant else TurnStep(table.role)

    def _failures(self, entry: JsonObject) -> Iterator[KeyPath]:
        """Yield the paths of objects in which all results are of failed calls."""
        if any(met(entry, wanted) for wanted in self._failed):
            yield ()
        for inner in self._results:
            for path, result, _, _ in inner.all(entry):
                if any(met(result, wanted) for wanted in inner.failed):
                    yield path

    def _reply(self, entry: JsonObject) -> TurnStep:
        holders = [*self._holders(entry)]
        thinking = {path for at, one in holders for path, _ in self._found("thinking", one, at)}
        texts = (
            [base.last_text(value, path) for path, value in found(holder, steps, at)
             if path not in thinking]
            for at, holder in holders for steps in self._at["texts"]
        )  # fmt: skip
        lasts = (one for group in texts for one in reversed(group) if one[0] is not None)
        path, text = next(lasts, (None, ""))
        stops = [holder[key] for _, holder in holders for key in _STOPS if key in holder]
        return TurnStep(
            "reply", text=text, text_path=path,
            closes=path is not None and all(stop in _DONE for stop in stops),
            cut_short=any(stop in _CUT_SHORT for stop in stops) or GAVE_UP in text,
        )  # fmt: skip

    def _tool_calls(self, entry: JsonObject, table: EntryTable) -> Iterator[ToolCall]:
        if table.kind == "tool_call":
            given = self._found("arguments", entry)
            path, arguments = next(given, ((self.given.first_arguments,), None))
            call, tool = first(entry, self._at["call_id"]), first(entry, self._at["tool"])
            yield _call(path, arguments, call, tool)
        for at, holder in self._holders(entry):
            for steps in self._at["texts"]:
                if last_key(steps) == "content":
                    for path, value in found(holder, steps, at):
                        yield from _calls_in(value, path)
        for inner in self._calls:
            for path, call, ident, tool in inner.all(entry):
                signed = self._signature(entry, path) is not None
                for at, value in inner.content(call, path):
                    yield _call(at, value, ident, tool, signed=signed)

    def _rest(self, entry: JsonObject) -> bytes:
        rest = repr(self._unedited(entry)).encode("utf-8", "replace")
        return hashlib.sha1(rest, usedforsecurity=False).digest()

    def _unedited(self, value: Any, depth: int = 4) -> Any:
        if isinstance(value, dict | list) and not depth:
            return None
        if isinstance(value, dict):
            return [
                (key, self._unedited(item, depth - 1)) for key, item in value.items()
                if key not in self._edited or (key == "message" and isinstance(item, dict))
            ]  # fmt: skip
        if isinstance(value, list):
            if not self._final:
                return len(value)
            return [self._unedited(item, depth - 1) for item in value]
        if self._final or not isinstance(value, str):
            return value
        return value if len(value) <= _LONGEST_TIME and parse_time(value) else None

    def _identity(self, entry: JsonObject, rest: bytes, number: int) -> str | None:
        for _, value in self._found("id", entry):
            if isinstance(value, str | int | float):
                return base.usable_id(value)
        return f"L{number}-{rest.hex()[:8]}"

    def _time(self, entry: JsonObject) -> float | None:
        for _, value in self._found("time", entry):
            if type(value) in (int, float):
                return value / 1000 if value > _MILLISECONDS else float(value)
            return parse_time(value)
        return None

    def _call_of_model(self, entry: JsonObject, step: TurnStep) -> ModelCall | None:
        time, model = self._time(entry), first(entry, self._at["model"]) or ""
        holders = [holder for _, holder in self._holders(entry)]
        replies = step.role == "reply" or entry.get("type") == "error"
        if error := next(filter(None, map(_error, holders)), "") if replies else "":
            providers = (_text_at(holder, ("provider",)) for holder in holders)
            return weight.unanswered(time, error, model, next(filter(None, providers), ""))
        usage = self.given.usage.read(entry)
        call = weight.recorded(time, usage, model) if usage is not None else None
        stops = (_text_at(holder, _STOPS) for holder in holders)
        cut = any(stop in ("length", "max_tokens") for stop in stops)
        return replace(call, end="cut") if call and cut else call


def _medium(
    block: JsonObject, declared: str, path: KeyPath, like: Value
) -> Iterator[Value]:  # fmt: skip
    if declared == "image_url":  # OpenAI's; a placeholder in it would be an address
        given = block.get("image_url")
        url = _text_at(given, ("url",)) or base.str_or_empty(given)
        if url.startswith("data:"):
            yield replace(like, path=path, chars=len(url), block=True)
    elif declared == "resource":  # MCP's
        text = base.dict_or_empty(block.get("resource")).get("text")
        yield from _leaves(text, (*path, "resource", "text"), like)
    else:
        yield from base.block_parts(block, path, like.kind, like.tool, like.call)


def _leaves(value: Any, path: KeyPath, like: Value) -> Iterator[Value]:
    for at, text in base.strings_in(value, path):
        yield replace(like, path=at, chars=len(text))


def _apart(values: Iterable[Value]) -> Iterator[Value]:
    """Yield the values that are not in an earlier one, do not contain one, and are not the same."""
    seen, above = set[KeyPath](), set[KeyPath]()
    for value in values:
        lengths = range(1, len(value.path) + 1)
        upward = [value.path[:length] for length in lengths]
        if value.path not in above and seen.isdisjoint(upward):
            seen.add(value.path)
            above.update(upward)
            yield value


def _calls_in(content: Any, path: KeyPath) -> Iterator[ToolCall]:
    for index, block in base.blocks_in(content, *_CALLS):
        key = next((key for key in ("arguments", "input") if key in block), "arguments")
        ident = base.str_or_none(block.get("id"))
        yield _call((*path, index, key), block.get(key), ident, _text_at(block, _TOOLS))


def _call(
    path: KeyPath, arguments: Any, ident: str | None, tool: str | None, *, signed: bool = False
) -> ToolCall:
    text = arguments if isinstance(arguments, str) else ""
    parsed = parse(text.encode("utf-8", "replace")) if text else None
    given = arguments if parsed is None else parsed
    return ToolCall(ident, tool or "tool", path, given, parsed is not None, signed)


def _result(
    entry: JsonObject, path: KeyPath, call_id: str | None, failures: Container[KeyPath],
    text: str = "",
) -> ToolResult:  # fmt: skip
    above = [path[:length] for length in range(len(path) + 1)]
    failed = any(at in failures or _is_failed(value_at(entry, at)) for at in above)
    return ToolResult(call_id, failed, base.first_line([text]) if failed else "")


def _is_failed(block: Any) -> bool:
    """Check whether a block, as providers write it, is the result of a failed call."""
    fields = base.dict_or_empty(block)
    return fields.get("type") == "tool_result" and fields.get("is_error") is True


def _turn(table: EntryTable, step: TurnStep) -> OwnTurn:
    left = "a tool call" if step.calls else _OPEN.get(step.role or "")
    ends = table.closes or step.role == "reply"
    return OwnTurn(
        step.role == "prompt", f"the last turn is open: {left}" if left else "" if ends else None
    )


def _sent(values: Sequence[Value]) -> Sent:
    sent = [value for value in values if not value.dead]
    data = [value.chars for value in sent if value.block]
    return Sent(sum(value.chars for value in sent) - sum(data), len(data), sum(data))


def _error(holder: JsonObject) -> str:
    error = holder.get("error")
    nested = _text_at(base.dict_or_empty(error), ("message",))
    return nested or base.str_or_empty(error) or _text_at(holder, ("errorMessage",)) or ""


def _text_at(holder: Any, keys: Iterable[str]) -> str | None:
    given = base.dict_or_empty(holder)
    return next((given[key] for key in keys if isinstance(given.get(key), str)), None)
