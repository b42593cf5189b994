"""Codex: one JSON object a line, with its `type` and a `payload` (a "rollout").

A `response_item` is sent to the model until a `compacted` line replaces all items before it by its
`replacement_history`. An `event_msg` is only shown. The approval reviewer reads texts of users and
assistants in `guardian_history`. Tried with 0.145.0, 0.169.0 and 0.171.0; read in files of 0.104.

Since 0.148, a file is `paginated`: the file of a fork, or of a rewound thread, begins at a byte of
another file, and a database has more such offsets. So an edit keeps the length of a line there,
unless the offsets are changed, too (`offsets`).
"""

import json
import re
from array import array
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from hashlib import blake2b
from itertools import accumulate

from msgspec import Struct
from msgspec.structs import replace

from brainsurgeon.formats import weight
from brainsurgeon.formats.base import (
    STILL_WRITTEN,
    UUID,
    Content,
    Format,
    ResultText,
    below,
    blocks_in,
    call_facts,
    dict_or_empty,
    first_line,
    result_facts,
    results_in,
    str_or_empty,
    str_or_none,
    strings_in,
    usable_id,
    values_sent,
)
from brainsurgeon.formats.chain import Around, Chain
from brainsurgeon.formats.marks import marks_in
from brainsurgeon.model.entries import PREFIX, JsonObject, KeyPath, Line, Value, placeholder_in
from brainsurgeon.model.session_files import BEFORE_COMPACTION
from brainsurgeon.model.text import parse_time
from brainsurgeon.model.transcript import Entry, Reasoning
from brainsurgeon.model.turns import NOTHING, ModelCall, Sent, ToolCall, ToolResult, TurnStep


class Stated(Struct, frozen=True, gc=False):
    """What a line that is no item says about the whole session."""

    load: int | None = None  # tokens
    window: int | None = None
    turn: str = ""  # "begins" or "ends", if a turn does
    pages: bool = False  # the header of a file into which offsets point
    instructs: bool = False  # the context of a turn: only the newest one is of use


_PAYLOAD: KeyPath = ("payload",)
_COMPLETED: KeyPath = ("payload", "item")
# The lists of items in a compaction. No request contains the second.
_REPLACING, _KEPT = ("payload", "replacement_history"), ("payload", "guardian_history")
IMAGE = "image"  # the tool of pictures that users attached
OLD_CONTEXT = "the context of an earlier turn"
_OPEN = "the last turn is open"
_TURNS = {
    "task_started": "begins", "turn_started": "begins", "task_complete": "ends",
    "turn_complete": "ends", "turn_aborted": "ends",
}  # fmt: skip
_STEPS = ("prompt", "reply", "result")


class CodexChain(Chain):
    def __init__(self, entries: Sequence[Entry]) -> None:
        super().__init__()
        self.keeps_length = any(_stated(entry).pages for entry in entries)
        self.dead = _left(entries)
        contexts = [at for at, entry in enumerate(entries) if _stated(entry).instructs]
        self.dead |= dict.fromkeys(contexts[:-1], OLD_CONTEXT)
        self.off = {*self.dead}
        self.tools = {
            call.call_id: call.tool for entry in entries for call in entry.calls if call.call_id
        }
        # The items of one answer have lines of their own. They count once, at the newest.
        counted, following = [False] * len(entries), None
        for index in range(len(entries) - 1, -1, -1):
            entry = entries[index]
            if entry.is_message and index not in self.dead:
                counted[index] = not entry.role == following == "reply"
                following = entry.role
                if entry.role == "prompt" and self.last_user is None:
                    self.last_user = index
        self.counts = array("q", accumulate(counted))
        self.open_turn = _left_open(entries)

    def position(self, index: int, entry: Entry) -> int:
        own = index and self.counts[index] > self.counts[index - 1]
        return super().position(index, replace(entry, is_message=bool(own)))

    def around(self, index: int, entry: Entry) -> Around:
        return replace(super().around(index, entry), is_dead=index in self.dead)


def _stated(entry: Entry) -> Stated:
    return entry.own or _NOTHING_STATED


_NOTHING_STATED = Stated()


def _left(entries: Sequence[Entry]) -> dict[int, str]:
    """Return the items that the newest compaction replaced, by their indexes."""
    compactions = [at for at, entry in enumerate(entries) if entry.compacts]
    newest = compactions[-1] if compactions else 0
    if not any(entry.at for entry in entries[newest + 1 : newest + 2] if entry.own is None):
        return {}  # an old one, which replaced only some of them
    items = (at for at in range(newest) if entries[at].at and entries[at].own is None)
    return dict.fromkeys(items, BEFORE_COMPACTION)


def _left_open(entries: Sequence[Entry]) -> str | None:
    """Return why the last turn is open, or None."""
    if entries and not entries[-1].terminated and entries[-1].own is None and not entries[-1].at:
        return STILL_WRITTEN
    marks = (_stated(entry).turn for entry in reversed(entries))
    if mark := next(filter(None, marks), ""):
        return _OPEN if mark == "begins" else None
    steps = (entry for entry in reversed(entries) if entry.role in _STEPS)
    last = next(steps, None)
    return None if last is None or last.closes else _OPEN


class Codex(Format):
    name = "codex"
    version = 4
    archives = None
    repeats = True
    has_fields = False
    has_reasoning = True
    names_model_before = True
    block_type = "input_text"
    wrappers = frozenset({"Ok"})  # around the result of a tool, in events of legacy files
    random_ids = re.compile(
        rf"(([a-z]+_)?{UUID}|call_[A-Za-z0-9]{{20,}}|[a-z]+_[0-9a-f]{{32,}})(-call|-shown)?"
    )

    def recognises(self, entries: Sequence[JsonObject]) -> bool:
        header = entries[0]
        is_header = header.get("type") == "session_meta"
        return is_header and "id" in dict_or_empty(header.get("payload"))

    def refuses(self, header: JsonObject) -> str | None:
        mode = dict_or_empty(header.get("payload")).get("history_mode", "legacy")
        known = mode in ("legacy", "paginated")
        return None if known else "its history mode is not known to this program"

    def session(self, head: Sequence[JsonObject]) -> str | None:
        return usable_id(dict_or_empty(head[0].get("payload")).get("id"))

    def first_entry(self, entry: JsonObject, line: Line, index: int) -> Entry:
        return self._entries_in(entry, line, index)[0]

    def _entries_in(self, entry: JsonObject, line: Line, index: int) -> tuple[Entry, ...]:
        kind, time, raw = entry.get("type"), parse_time(entry.get("timestamp")), line.raw or b""
        (at, item), *inner = _items(entry)
        if kind == "response_item" and at:
            found = [_item(item, at, time, raw)]
        elif kind == "compacted":
            ours = PREFIX.encode() in raw
            texts = [json.dumps(copy).encode() if ours else b"" for _, copy in inner]
            found = [Entry(0, compacts=True, time=time, sent=_summary(entry), own=Stated())]
            found += [
                _copy(copy, place, time, text)
                for (place, copy), text in zip(inner, texts, strict=True)
            ]
        else:
            found = [_beside(item, at, str_or_empty(kind), time, raw)]
        return tuple([replace(one, line=index, terminated=line.terminated) for one in found])

    def read(self, entry: JsonObject) -> Content:
        calls = _calls(entry)
        return Content(
            _step(entry, calls), calls, _result_texts(entry), _values(entry), _sent(entry)
        )

    def chain(self, entries: Sequence[Entry]) -> Chain:
        return CodexChain(entries)

    def resolved(self, values: Iterable[Value], around: Around) -> Iterator[Value]:
        for value in values:
            tool, locked = value.tool or around.tools.get(value.call or ""), value.locked
            if value.kind == "system" and not around.is_dead:
                locked = "the newest context of a turn"
            yield replace(value, tool=tool, locked=locked, dead=value.dead or around.is_dead)


def _items(entry: JsonObject) -> list[tuple[KeyPath, JsonObject]]:
    """Return the entries in a line, with their paths."""
    kind, payload = entry.get("type"), entry.get("payload")
    if not isinstance(payload, dict):
        return [((), entry)]
    if kind == "compacted":
        lists = [(path, blocks_in(payload.get(path[-1]))) for path in (_REPLACING, _KEPT)]
        inner = [((*path, at), item) for path, listed in lists for at, item in listed]
        return [((), entry), *inner]
    if kind == "event_msg" and isinstance(payload.get("item"), dict):
        return [(_COMPLETED, payload["item"])]
    return [(_PAYLOAD, payload)]


def _item(item: JsonObject, at: KeyPath, time: float | None, raw: bytes) -> Entry:
    """Return what an item of the conversation says."""
    calls, sent = _calls(item), _sent(item)
    step = _step(item, calls)
    return Entry(
        0, ident=_ident(item), role=step.role, is_message=step.role in _STEPS, time=time,
        text_path=step.text_path, closes=step.closes,
        values=values_sent(_values(item), sent, item), calls=call_facts(calls),
        results=result_facts(step.results), sent=sent,
        marks=marks_in(raw, item, (), has_emptied=False), at=at,
    )  # fmt: skip


def _copy(item: JsonObject, at: KeyPath, time: float | None, raw: bytes) -> Entry:
    """Return what a copy of an item in a compaction says."""
    is_sent = at[: len(_REPLACING)] == _REPLACING
    sent = _sent(item) if is_sent else NOTHING
    values = (replace(one, dead=one.dead or not is_sent) for one in _values(item))
    return Entry(
        0, ident=_ident(item), role="aside" if is_sent else "note", time=time,
        values=values_sent(values, sent, item), sent=sent,
        marks=marks_in(raw, item, (), has_emptied=False), at=at,
    )  # fmt: skip


def _summary(entry: JsonObject) -> Sent:
    """Return the size of the summary of an old compaction, which has no items."""
    payload = dict_or_empty(entry.get("payload"))
    history = payload.get("replacement_history")
    return NOTHING if isinstance(history, list) else Sent(len(str_or_empty(payload.get("message"))))


def _beside(item: JsonObject, at: KeyPath, kind: str, time: float | None, raw: bytes) -> Entry:
    """Return what a line says that is no item of the conversation."""
    is_event, instructions = kind == "event_msg", [*_instructions(item)]
    instructs = kind == "turn_context" and bool(instructions)
    values = instructions if instructs else _values(item) if is_event else ()
    listed = values_sent(values, NOTHING, item)
    info, stated = _counted(item), item | dict_or_empty(item.get("info"))
    usage = dict_or_empty(info.get("last_token_usage"))
    # Since 0.169; in front of the results, while a `token_count` is behind them.
    answered = kind == "token_usage_record" and dict_or_empty(item.get("usage"))
    thought = answered and weight.counts(answered, "reasoning_output_tokens")
    return Entry(
        0, ident=_ident(item) if listed else None, role="note" if listed else None, time=time,
        values=listed, call=_call(item, info, time) if is_event else None,
        reasoning=Reasoning("", thought) if thought else None,
        model=str_or_none(item.get("model")) if kind == "turn_context" else None,
        marks=marks_in(raw, item, (), has_emptied=False), at=at,
        own=Stated(  # Codex counts its load after each call and compaction
            weight.counts(usage, "total_tokens") or weight.counts(usage, *_BOTH) or None,
            weight.counts(stated, "model_context_window") or None,
            _TURNS.get(str_or_empty(item.get("type")), "") if is_event else "",
            kind == "session_meta" and item.get("history_mode") == "paginated", instructs,
        ),
    )  # fmt: skip


def _ident(item: JsonObject) -> str | None:
    """Return the id of an item, else one made from that of its call, else from its texts.

    A newer release adds ids to old items, but not to all that belong to a call. So only the result
    has the id of the call itself: if it gets another, nothing else is taken for it.
    """
    kind, call = str_or_empty(item.get("type")), usable_id(item.get("call_id"))
    named = usable_id(item.get("id"))
    if kind in _SHOWN and (call or named):
        return f"{call or named}-shown"
    named = named or (f"{call}-call" if call and kind in _CALLS else call)
    named = named or usable_id(item.get("turn_id"))
    if named or not isinstance(item.get("content", item.get("message")), str | list):
        return named
    texts = [
        None if text is None or placeholder_in(text) else text
        for _, block in blocks_in(item.get("content")) for text in [block.get("text")]
    ]  # fmt: skip
    whole = json.dumps([item.get("type"), item.get("role"), texts, item.get("message")])
    return f"{item.get('role') or 'shown'}-{blake2b(whole.encode(), digest_size=8).hexdigest()}"


# A placeholder replaces a whole picture, as providers refuse one in its data. Texts of users and
# assistants, encrypted content and reasoning stay, whatever the rules say. So do the arguments of
# functions, which are JSON in a string.
_CALLS = ("function_call", "custom_tool_call")
_RESULTS = ("function_call_output", "custom_tool_call_output")
# What is shown of tools: completed items, and events of legacy files.
_SHOWN = frozenset({
    "CommandExecution", "McpToolCall", "FileChange", "DynamicToolCall", "WebSearch",
    "ImageGeneration", "CollabAgentToolCall", "exec_command_end", "mcp_tool_call_end",
    "patch_apply_end",
})  # fmt: skip
# Keys whose values are names, or are read back.
_NAMES = re.compile(
    r".*(?:_id|Id|[Pp]ath|cwd)|id|type|status|server|tool|name|role|namespace|source|mimeType"
)
_COMMANDS = frozenset({"command", "parsed_cmd", "invocation", "arguments", "duration"})


def _values(item: JsonObject) -> Iterator[Value]:
    kind = str_or_empty(item.get("type"))
    if kind in _RESULTS:
        yield from _result_values(item)
    elif kind == "custom_tool_call":
        given, tool = str_or_empty(item.get("input")), str_or_none(item.get("name"))
        if given:
            call = str_or_none(item.get("call_id"))
            yield Value(("input",), "tool_call", len(given), tool, call=call)
    elif kind == "message":
        for at, block in blocks_in(item.get("content"), "input_image"):
            yield from _part(block, ("content", at), None)
    else:
        yield from _shown_values(item, kind)


def _shown_values(item: JsonObject, kind: str) -> Iterator[Value]:
    """Yield what no request contains."""
    if kind in ("UserMessage", "user_message"):
        for key in ("content", "images"):
            for path, text in strings_in(item.get(key), (key,)):
                if key == "images" or path[-1] in ("image_url", "url"):
                    yield _shown(path, text, IMAGE)
    elif kind in _SHOWN:
        tool = str_or_none(item.get("tool")) or kind
        call = str_or_none(item.get("call_id")) or str_or_none(item.get("id"))
        for path, text in strings_in(item):
            if _COMMANDS.isdisjoint(path) and not _is_name(path[-1]):
                yield _shown(path, text, tool, call)


def _result_values(item: JsonObject) -> Iterator[Value]:
    path: KeyPath = ("output",)
    output, call = item.get("output"), str_or_none(item.get("call_id"))
    if isinstance(output, dict):
        output, path = output.get("content"), below(path, "content")
    if isinstance(output, str) and output:
        yield Value(path, "tool_result", len(output), call=call)
    for at, block in blocks_in(output):
        yield from _part(block, below(path, at), call)


def _part(block: JsonObject, path: KeyPath, call: str | None) -> Iterator[Value]:
    url, text = block.get("image_url"), str_or_empty(block.get("text"))
    if block.get("type") == "input_image" and isinstance(url, str) and url:
        tool = None if call else IMAGE
        yield Value(path, "tool_result", len(url), tool, block=True, call=call)
    elif block.get("type") in ("input_text", "output_text") and text and call:
        yield Value(below(path, "text"), "tool_result", len(text), call=call)


def _shown(path: KeyPath, text: str, tool: str | None, call: str | None = None) -> Value:
    return Value(path, "tool_result", len(text), tool, dead=True, call=call)


@lru_cache(1024)
def _is_name(key: str | int) -> bool:
    return isinstance(key, str) and _NAMES.fullmatch(key) is not None


def _instructions(item: JsonObject) -> Iterator[Value]:
    """Yield what old releases repeated in the context of each turn; no request contains it."""
    settings = ("collaboration_mode", "settings", "developer_instructions")
    mode = dict_or_empty(dict_or_empty(item.get("collaboration_mode")).get("settings"))
    for path, text in (
        (("user_instructions",), item.get("user_instructions")),
        (("developer_instructions",), item.get("developer_instructions")),
        (settings, mode.get("developer_instructions")),
    ):
        if isinstance(text, str) and text:
            yield Value(path, "system", len(text))


def _result_texts(item: JsonObject) -> Iterator[ResultText]:
    if item.get("type") in _RESULTS:
        yield from results_in(item, _values(item), item.get("call_id"))


def _calls(item: JsonObject) -> tuple[ToolCall, ...]:
    if item.get("type") not in _CALLS:
        return ()
    key = "arguments" if item.get("type") == "function_call" else "input"
    name = str_or_none(item.get("name")) or "tool"
    return (ToolCall(str_or_none(item.get("call_id")), name, (key,), item.get(key), as_text=True),)


# Beginnings of user messages that Codex itself adds.
_ADDED = re.compile(r"<(?!image)[a-z_]+[ >]|# AGENTS\.md instructions")


def _step(item: JsonObject, calls: tuple[ToolCall, ...]) -> TurnStep:
    kind = item.get("type")
    if kind in _RESULTS:
        return TurnStep("result", results=(_result(item),))
    if calls:
        return TurnStep("reply", calls=calls)
    if kind != "message":
        return TurnStep(None)
    texts = [
        (at, text) for at, block in blocks_in(item.get("content"))
        if (text := str_or_empty(block.get("text"))).strip()
    ]  # fmt: skip
    if item.get("role") == "assistant":
        at, text = texts[-1] if texts else (0, "")
        path = ("content", at, "text") if texts else None
        return TurnStep("reply", text=text, text_path=path, closes=bool(texts))
    is_prompt = item.get("role") == "user" and not (texts and _ADDED.match(texts[0][1]))
    return TurnStep("prompt" if is_prompt else "aside")


_EXIT = re.compile(r"(?:Process exited with code|Exit code:) (-?[0-9]{1,9})")
_HEAD = 300  # characters of an output before what the program printed


def _result(item: JsonObject) -> ToolResult:
    output = item.get("output")
    output = output.get("content") if isinstance(output, dict) else output
    text = str_or_empty(output)
    found = _EXIT.search(text, 0, _HEAD)
    code = int(found[1]) if found else None
    finding = first_line([text.partition("Output:\n")[2]]) if code else ""
    return ToolResult(str_or_none(item.get("call_id")), bool(code), finding, code)


def _call(item: JsonObject, info: JsonObject, time: float | None) -> ModelCall | None:
    # A turn ends with the error that stopped it. Older releases also write an event of its own with
    # `persist_extended_history`.
    ended = item.get("type") == "task_complete"
    error = item.get("error") if ended else item
    if isinstance(error, dict) and (ended or item.get("type") == "error"):
        return weight.unanswered(time, str_or_empty(error.get("message")), None)
    if not info:
        return None
    usage, ident = dict_or_empty(info.get("last_token_usage")), info.get("total_token_usage")
    return weight.recorded(time, usage, None, json.dumps(ident))


_BOTH = ("input_tokens", "output_tokens")


def _counted(item: JsonObject) -> JsonObject:
    """Return the counts of an event; {} if it has none, or those that Codex fills up.

    After a refusal, Codex sets the sum of all calls to the window, without its parts.
    """
    info = dict_or_empty(item.get("info")) if item.get("type") == "token_count" else {}
    whole = dict_or_empty(info.get("total_token_usage"))
    return {} if whole and not weight.counts(whole, *_BOTH) else info


def _sent(item: JsonObject) -> Sent:
    kind = item.get("type")
    if kind == "message":
        return weight.content(item.get("content"))
    if kind in _CALLS:
        given = item.get("arguments", item.get("input"))
        return Sent(len(str_or_empty(item.get("name"))) + len(str_or_empty(given)))
    if kind in _RESULTS:
        output = item.get("output")
        return weight.content(output.get("content") if isinstance(output, dict) else output)
    return NOTHING
