"""Gemini CLI: lines that are added to a conversation, replace it as a whole, or cut it.

A line is a message, `$set` with other fields, `$set` with all `messages` anew, or `$rewindTo`, from
whose message on all goes. Of several lines with the same id the last counts, at the place of the
first. So an entry is a message, wherever it is. Each call, each result and each picture of a result
is an entry of its own, too, with the id of the call: it stands under `toolCalls` of an answer and
in the message after it, and a resume sends both, in further messages with other ids.

Texts of users and of the model stay. So do thoughts and arguments of calls while they are sent,
since a resume writes them anew in another form. The form of a result for the screen is never sent.
That of a changed file is read by `/rewind`, to undo the change, and stays while its line counts.
Tried with 0.61.0 (npm `@google/gemini-cli`), whose `chatRecordingService.js` and `sessionUtils.js`
show what counts and what is sent.
"""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

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
    leaves,
    result_facts,
    str_or_empty,
    str_or_none,
    strings_in,
    usable_id,
    values_sent,
)
from brainsurgeon.formats.chain import Around, Chain
from brainsurgeon.formats.marks import marks_in
from brainsurgeon.model.entries import (
    OLD,
    PREFIX,
    JsonObject,
    KeyPath,
    Line,
    Value,
    placeholder_in,
)
from brainsurgeon.model.text import parse_time
from brainsurgeon.model.transcript import Entry
from brainsurgeon.model.turns import NOTHING, Sent, ToolCall, ToolResult, TurnStep


class LineFacts(Struct, frozen=True, gc=False):
    """What only the chain asks of an entry."""

    clears: bool = False  # the messages that follow in the line are all that there are
    rewinds: str | None = None  # the id of the first message that goes
    message: str | None = None  # its id
    part: bool = False  # it belongs to the message before it


REPLACED = "a later line has the conversation, or the message, anew"
REWOUND = "rewound"
IMAGE = "image"  # the tool of pictures that users attached
_DISPLAY = "resultDisplay"
_SENT_ANEW = "it is sent, and a resume writes it in another form"
_UNDONE_BY = "Gemini CLI reads it to undo the change of a file"
_OPEN = {
    "prompt": "the last turn is open: a prompt", "result": "the last turn is open: a result",
    "reply": "the last turn is open: a call, or an answer without a text",
}  # fmt: skip
_BEGINS = "a process begins to write the conversation anew"
# Seconds without a change after which an answer ends a turn. Its line has the text; a call is added
# when its result is there. 0.61.0 ends a command that prints nothing for this time. What a process
# writes anew has the calls beside the text.
UNMARKED_QUIET = 300.0
_AS_IT_CAME = ("content",)  # the path of a text in a line that has no parts
# Messages of users that are not sent.
_IGNORED = ("/", "?", "<session_context>", "<hook_context>")
_NO_FACTS = LineFacts()


class GeminiChain(Chain):
    def __init__(self, entries: Sequence[Entry]) -> None:
        super().__init__()
        live: dict[str, int] = {}  # indexes by ids, in the order of the conversation
        owners, owner = list[int](), 0
        for index, entry in enumerate(entries):
            facts = entry.own if isinstance(entry.own, LineFacts) else _NO_FACTS
            if facts.clears:
                self.dead |= dict.fromkeys(live.values(), REPLACED)
                live.clear()
            elif facts.rewinds is not None:
                ids = list(live)
                cut = ids.index(facts.rewinds) if facts.rewinds in live else 0
                self.dead |= {live.pop(ident): REWOUND for ident in ids[cut:]}
            elif facts.message is not None:
                if facts.message in live:
                    self.dead[live[facts.message]] = REPLACED
                live[facts.message] = index
            owner = owner if facts.part else index
            owners.append(owner)
        self.dead |= {
            index: self.dead[owner] for index, owner in enumerate(owners) if owner in self.dead
        }
        self._owners, self._positions = owners, dict[int, int]()
        self._newest = dict[object, int]()  # positions of calls and results by what they are
        self._count(entries, list(live.values()))

    def _count(self, entries: Sequence[Entry], live: list[int]) -> None:
        """Count the live messages from the end, and find the last turn."""
        after = 0
        for index in reversed(live):
            entry = entries[index]
            self._positions[index] = after if entry.is_message else max(after - 1, 0)
            after += entry.is_message
            if entry.role == "prompt" and self.last_user is None:
                self.last_user = index
        for index, owner in enumerate(self._owners):
            if owner in self._positions and owner != index:
                copy, here = _copy(entries[index]), self._positions[owner]
                self._newest[copy] = min(self._newest.get(copy, here), here)
        counted = set(live)
        for index, entry in enumerate(entries):
            self.count(index, entry, live=index in counted)
        messages = (entries[index] for index in reversed(live) if entries[index].is_message)
        last = next(messages, None)
        if entries and not entries[-1].terminated and entries[-1].own is None:
            self.open_turn = STILL_WRITTEN
        elif last is None:
            had_turns = any(entries[index].is_message for index in self.dead)
            self.open_turn = _BEGINS if had_turns else None
        elif not last.closes:
            self.open_turn = _OPEN[last.role or "prompt"]
        elif last.text_path == _AS_IT_CAME:
            self.quiet = UNMARKED_QUIET

    def position(self, index: int, entry: Entry) -> int:
        owner = self._owners[index]
        here = self._positions.get(owner, OLD)
        return here if here == OLD or owner == index else self._newest.get(_copy(entry), here)

    def around(self, index: int, entry: Entry) -> Around:
        return replace(super().around(index, entry), is_dead=index in self.dead)


def _copy(entry: Entry) -> object:
    """Return what copies of a result have in common; ids of calls may come again."""
    return entry.ident, tuple([(value.path, value.chars, value.hashed) for value in entry.values])


class Gemini(Format):
    name = "gemini"
    version = 2
    archives = None
    repeats = True
    has_fields = False
    block_type = ""
    screen = frozenset({_DISPLAY})
    # Messages have a UUID, or a digest. Calls have the id that the model gave them; else one with
    # the time in milliseconds, or a digest. The name of the tool is before it.
    random_ids = re.compile(
        rf"({UUID}|[0-9a-f]{{32}})(_response)?|[^[\]]+__(call_[A-Za-z0-9]{{20,}}|{UUID}"
        r"|.+_[0-9]{13}_[0-9]+|.+_[0-9a-f]{32})(\.[0-9]+)?"
    )

    def recognises(self, entries: Sequence[JsonObject]) -> bool:
        keys = ("sessionId", "projectHash", "startTime")
        return all(isinstance(entries[0].get(key), str) for key in keys)

    def session(self, head: Sequence[JsonObject]) -> str | None:
        return usable_id(head[0].get("sessionId"))

    def first_entry(self, entry: JsonObject, line: Line, index: int) -> Entry:
        return self._entries_in(entry, line, index)[0]

    def _entries_in(self, entry: JsonObject, line: Line, index: int) -> tuple[Entry, ...]:
        ours = PREFIX.encode() in (line.raw or b"")
        return tuple([
            replace(one, line=index, terminated=line.terminated) for one in _entries(entry, ours)
        ])  # fmt: skip

    def read(self, entry: JsonObject) -> Content:
        """Read a message, or a call or a part of a result in it."""
        if _is_message(entry):
            return _message(entry)
        return _tool_call(entry) if "name" in entry else _part(entry, None)

    def chain(self, entries: Sequence[Entry]) -> Chain:
        return GeminiChain(entries)

    def resolved(self, values: Iterable[Value], around: Around) -> Iterator[Value]:
        for value in values:
            if around.is_dead:
                yield replace(value, dead=True, locked=None)
            else:
                yield value


def _is_message(item: JsonObject) -> bool:
    return isinstance(item.get("id"), str) and "type" in item


def _entries(entry: JsonObject, ours: bool) -> Iterator[Entry]:
    if isinstance(rewinds := entry.get("$rewindTo"), str):
        yield Entry(0, own=LineFacts(rewinds=rewinds))
    elif isinstance(entry.get("id"), str):
        yield from _in_message(entry, (), ours)
    else:
        anew = "$set" in entry
        listed = (dict_or_empty(entry.get("$set")) if anew else entry).get("messages")
        messages = [one for one in blocks_in(listed) if isinstance(one[1].get("id"), str)]
        yield Entry(0, own=LineFacts(clears=anew and isinstance(listed, list)))
        path: KeyPath = ("$set", "messages") if anew else ("messages",)
        for at, message in messages:
            yield from _in_message(message, (*path, at), ours)


def _in_message(message: JsonObject, at: KeyPath, ours: bool) -> Iterator[Entry]:
    """Yield a message, its calls, and the parts of results in it."""
    content, ident = _message(message), usable_id(message.get("id"))
    step = content.step
    own, parts = _split(message)
    yield Entry(
        0, ident=ident, role=step.role, is_message=step.role in _OPEN,
        time=parse_time(message.get("timestamp")), text_path=step.text_path, closes=step.closes,
        values=values_sent(content.values, content.sent, message), calls=call_facts(step.calls),
        sent=content.sent, call=_model_call(message, ident), own=LineFacts(message=message["id"]),
        marks=_marks(own) if ours else None, at=at,
    )  # fmt: skip
    for path, item, name in parts:
        content = _tool_call(item) if path[-2] == "toolCalls" else _part(item, name)
        step, shown = content.step, {**item, "result": None} if "result" in item else item
        yield Entry(
            0, ident=name, role=step.role if path[0] == "content" else "aside",
            values=values_sent(content.values, content.sent, item), sent=content.sent,
            results=result_facts(step.results), own=LineFacts(part=True),
            marks=_marks(shown) if ours else None, at=(*at, *path),
        )  # fmt: skip


def _marks(item: JsonObject) -> Any:
    return marks_in(json.dumps(item).encode(), item, (), has_emptied=False)


_Inner = tuple[KeyPath, JsonObject, str | None]


def _split(message: JsonObject) -> tuple[JsonObject, list[_Inner]]:
    """Return a message without the entries in it, and these with their paths and ids."""
    parts, own = [*_parts(message.get("content"), ("content",))], dict(message)
    if parts:
        inner = {path[1] for path, *_ in parts}
        own["content"] = [
            None if at in inner else part for at, part in enumerate(message["content"])
        ]
    for at, call in blocks_in(own.pop("toolCalls", None)):
        path: KeyPath = ("toolCalls", at)
        parts.append((path, call, usable_id(call.get("id"))))
        parts += _parts(call.get("result"), (*path, "result"))
    return own, parts


def _parts(content: Any, path: KeyPath) -> Iterator[_Inner]:
    """Yield the results in a list of parts, and the pictures that follow each, with their ids."""
    call, number = None, 0
    for at, part in blocks_in(content):
        if isinstance(result := part.get("functionResponse"), dict):
            call, number = usable_id(result.get("id")), 0
            yield (*path, at), part, call
        elif call is not None and (_picture(part) or _is_placeholder(part)):
            number += 1
            yield (*path, at), part, f"{call}.{number}"


def _picture(part: JsonObject) -> str:
    return str_or_empty(dict_or_empty(part.get("inlineData")).get("data"))


def _is_placeholder(part: JsonObject) -> bool:
    return part.keys() == {"text"} and placeholder_in(part["text"]) is not None


def _part(part: JsonObject, ident: str | None) -> Content:
    """Read a result, or a picture of one."""
    result = dict_or_empty(part.get("functionResponse"))
    tool, call = str_or_none(result.get("name")), str_or_none(result.get("id")) or ident
    if not result:
        data, text = _picture(part), str_or_empty(part.get("text"))
        call = call and call.rpartition(".")[0]
        values = [Value((), "tool_result", len(data), block=True, call=call)] if data else []
        if text:
            values.append(Value(("text",), "tool_result", len(text), call=call))
        return Content(TurnStep("result"), (), (), values, _sent(part))
    path: KeyPath = ("functionResponse", "response")
    response = dict_or_empty(result.get("response"))
    texts = strings_in(response, path)
    values = [Value(at, "tool_result", len(text), tool, call=call) for at, text in texts]
    failed = "error" in response
    finding = first_line([response.get("error")]) if failed else ""
    code = _EXIT.search(str_or_empty(response.get("output")))
    if code:
        failed = failed or code[1] != "0"
    one = ToolResult(call, failed, finding, int(code[1]) if code else None)
    return Content(
        TurnStep("result", results=(one,)), (),
        [ResultText(at, text, call) for at, text in texts], values, _sent(part),
    )  # fmt: skip


_EXIT = re.compile(r"^Exit Code: (-?[0-9]{1,9})$", re.MULTILINE)


def _tool_call(call: JsonObject) -> Content:
    """Read a call with its result for the screen. Parts of its result are other entries."""
    tool, ident = str_or_none(call.get("name")), str_or_none(call.get("id"))
    values = leaves(
        call.get("args"), ("args",), "tool_call", tool, ident, locked=_SENT_ANEW
    )  # fmt: skip
    shown, path = call.get(_DISPLAY), below((), _DISPLAY)
    if isinstance(shown, str | list) and shown:
        chars = len(shown) if isinstance(shown, str) else len(json.dumps(shown))
        values.append(Value(path, "tool_result", chars, tool, dead=True, call=ident))
    else:
        values += leaves(
            shown, path, "tool_result", tool, ident, locked=_UNDONE_BY, dead=True
        )  # fmt: skip
    result = call.get("result")
    if isinstance(result, str) and result:
        values.append(Value(("result",), "tool_result", len(result), tool, call=ident))
    sent = Sent(len(result)) if isinstance(result, str) else NOTHING
    return Content(TurnStep("aside"), (), (), values, sent)


def _message(message: JsonObject) -> Content:
    """Read a message, without the entries in it."""
    kind, content = message.get("type"), message.get("content")
    own, _ = _split(message)
    parts = blocks_in(own.get("content"))
    is_sent = kind in ("user", "gemini")
    step = _step(message, kind, parts)
    values = [*_values(parts, is_sent)]
    for at, thought in blocks_in(message.get("thoughts")):
        text = str_or_empty(thought.get("description"))
        if text:
            path: KeyPath = ("thoughts", at, "description")
            values.append(Value(path, "thinking", len(text), locked=_SENT_ANEW))
    if step.role not in _OPEN:
        return Content(step, (), (), values, NOTHING)
    sent = sum((_sent(part) for _, part in parts), NOTHING)
    sent += Sent(len(content)) if isinstance(content, str) else NOTHING
    if kind == "gemini" and not any("functionCall" in part for _, part in parts):
        sent += sum((_call_sent(call) for _, call in blocks_in(message.get("toolCalls"))), NOTHING)
    return Content(step, step.calls, (), values, sent)


def _values(parts: Iterable[tuple[int, JsonObject]], is_sent: bool) -> Iterator[Value]:
    for at, part in parts:
        path: KeyPath = ("content", at)
        call = dict_or_empty(part.get("functionCall"))
        if data := _picture(part):
            yield Value(path, "tool_result", len(data), IMAGE, block=True, dead=not is_sent)
        elif call:
            tool, ident = str_or_none(call.get("name")), str_or_none(call.get("id"))
            yield from leaves(
                call.get("args"), (*path, "functionCall", "args"), "tool_call", tool, ident,
                locked=_SENT_ANEW,
            )  # fmt: skip
        elif part.get("thought") and (text := str_or_empty(part.get("text"))):
            yield Value((*path, "text"), "thinking", len(text), locked=_SENT_ANEW)
        elif _is_placeholder(part):
            yield Value((*path, "text"), "tool_result", len(part["text"]), IMAGE)


def _step(message: JsonObject, kind: object, parts: list[tuple[int, JsonObject]]) -> TurnStep:
    content = message.get("content")
    texts = [((), content)] if isinstance(content, str) else [
        ((at, "text"), part.get("text")) for at, part in parts if not part.get("thought")
    ]  # fmt: skip
    said = [(at, text) for at, text in texts if isinstance(text, str) and text.strip()]
    if kind == "user":
        if any("functionResponse" in part for _, part in blocks_in(content)):
            return TurnStep("result")
        whole = "".join(text for _, text in said).strip()
        ignored = whole.startswith(_IGNORED) or not whole
        return TurnStep("aside" if ignored and not any(map(_has_picture, parts)) else "prompt")
    if kind != "gemini":
        return TurnStep("note")
    at, text = said[-1] if said else ((), "")
    calls = tuple([
        ToolCall(
            str_or_none(one.get("id")), str_or_none(one.get("name")) or "tool", path,
            one.get("args"),
        )
        for path, one in _calls(message, parts)
    ])  # fmt: skip
    return TurnStep(
        "reply", text=text, text_path=("content", *at) if said else None,
        closes=bool(said) and not calls, calls=calls,
    )  # fmt: skip


def _has_picture(listed: tuple[int, JsonObject]) -> bool:
    return bool(_picture(listed[1])) or _is_placeholder(listed[1])


def _calls(
    message: JsonObject, parts: Iterable[tuple[int, JsonObject]]
) -> list[tuple[KeyPath, JsonObject]]:  # fmt: skip
    """Return the calls of an answer. Those among its parts are under `toolCalls`, too."""
    inside: list[tuple[KeyPath, JsonObject]] = [
        (("content", at, "functionCall", "args"), call) for at, part in parts
        if (call := dict_or_empty(part.get("functionCall")))
    ]  # fmt: skip
    listed = blocks_in(message.get("toolCalls"))
    under: list[tuple[KeyPath, JsonObject]] = [
        (("toolCalls", at, "args"), call) for at, call in listed
    ]
    return inside or under


def _sent(part: JsonObject) -> Sent:
    """Return the size of a part in a request."""
    if data := _picture(part):
        return Sent(0, 1, len(data))
    if isinstance(result := part.get("functionResponse"), dict):
        pictures = sum((_sent(inner) for _, inner in blocks_in(result.get("parts"))), NOTHING)
        texts = strings_in(dict_or_empty(result.get("response")))
        return Sent(sum(len(text) for _, text in texts)) + pictures
    if isinstance(call := part.get("functionCall"), dict):
        return _call_sent(call)
    return Sent(len(str_or_empty(part.get("text"))))


def _call_sent(call: JsonObject) -> Sent:
    one = {"type": "toolCall", "name": call.get("name"), "arguments": call.get("args")}
    return weight.content([one])


def _model_call(message: JsonObject, ident: str | None) -> Any:
    time, tokens = parse_time(message.get("timestamp")), dict_or_empty(message.get("tokens"))
    if message.get("type") == "error":
        return weight.unanswered(time, str_or_empty(message.get("content")), None)
    if message.get("type") != "gemini" or not tokens:
        return None
    counts = {
        "input_tokens": tokens.get("input"),
        "output_tokens": weight.counts(tokens, "output", "thoughts"),
        "input_tokens_details": {"cached_tokens": tokens.get("cached")},
    }  # fmt: skip
    return weight.recorded(time, counts, message.get("model"), ident)
