"""GitHub Copilot CLI: one event a line, with its `type`, `data` and a random `id`.

A resumed session sends prompts, answers, calls, results and the pictures that they refer to, and
thinking that is signed, as by Claude. After a compaction, it sends the summary and what follows.
Events of sub-agents are in the same file, and only they have an `agentId`. Texts of users and of
the model stay: a database has copies of them. So do prompts of the system, since a compaction sends
the newest one, and pictures: one edit cannot remove them and what refers to them. Tried with
1.0.102 (npm `@github/copilot`).
"""

from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from brainsurgeon.formats import weight
from brainsurgeon.formats.base import (
    NO_STEP,
    STILL_WRITTEN,
    Content,
    Format,
    below,
    blocks_in,
    call_facts,
    covers_request,
    dict_or_empty,
    first_line,
    number_in,
    result_facts,
    results_in,
    str_or_empty,
    str_or_none,
    strings_in,
    thinking_chars,
    usable_id,
    values_sent,
)
from brainsurgeon.formats.chain import Around, Chain
from brainsurgeon.formats.marks import marks_in
from brainsurgeon.model.entries import JsonObject, KeyPath, Line, Value
from brainsurgeon.model.session_files import BEFORE_COMPACTION
from brainsurgeon.model.text import parse_time
from brainsurgeon.model.transcript import Entry, Thoughts
from brainsurgeon.model.turns import NOTHING, ModelCall, Sent, ToolCall, ToolResult, TurnStep


class EventFacts(Struct, frozen=True, gc=False):
    """What only the chain, or the measure, asks of an event."""

    of_subagent: bool = False
    # Why it leaves the last turn open; "": it ends it; None: neither; _ENDED: it may end it.
    turn: str | None = None
    call: tuple[str, str] | None = None  # the id of a call that begins, and its tool
    compaction: str = ""  # the id of the attempt that begins or succeeds here
    window: int | None = None  # the limit of a request, in tokens


SUBAGENT = "of a sub-agent"
COPY = "a copy that a compaction wrote"
_SIGNED = "thinking signed by its provider"
_SHOWN = "detailedContent"
_RESULT: KeyPath = ("data", "result")
_THINKING = "reasoningText"
_CALLS: KeyPath = ("data", "toolRequests")
_COMPACTED = "session.compaction_complete"
_OPEN = {
    "prompt": "the last turn is open: a prompt", "result": "the last turn is open: a result",
    "reply": "the last turn is open: a call", "assistant.turn_start": "the last turn is open",
}  # fmt: skip
# Each request of a turn has this end. After a reply without a call, it is that of the turn.
_ENDED = "assistant.turn_end"
_UNENDED = "the last turn is open: its end is not written"
_STEPS = ("prompt", "reply", "result")
_ENDS = ("session.shutdown", "abort", "session.error")
# What a compaction was asked with, twice. Nothing reads it.
_ASKED: dict[str, KeyPath] = {
    "model.model_call_success": ("data", "requestMessages"),
    "model.messages_snapshot": ("data", "messages"),
}
_NAMES = frozenset({"role", "id", "type", "name", "tool_call_id", "apiCallId", "refusal"})


class CopilotChain(Chain):
    def __init__(self, entries: Sequence[Entry]) -> None:
        super().__init__()
        events = [_event(entry) for entry in entries]
        self.tools = dict(event.call for event in events if event.call)
        newest = _compacted(entries, events)
        for index, (entry, event) in enumerate(zip(entries, events, strict=True)):
            if event.of_subagent:
                self.dead[index] = SUBAGENT
            elif index < newest:
                self.dead[index] = BEFORE_COMPACTION
            elif entry.values and entry.role is None:
                self.dead[index] = COPY
            self.count(index, entry, live=index not in self.dead)
            if entry.role == "prompt":
                self.last_user = index
            if event.turn == _ENDED:
                self.open_turn = None if self.open_turn == _UNENDED else self.open_turn
            elif event.turn is not None:
                self.open_turn = event.turn or None
        if entries and not entries[-1].terminated and entries[-1].own is None:
            self.open_turn = STILL_WRITTEN

    def around(self, index: int, entry: Entry) -> Around:
        return replace(super().around(index, entry), is_dead=index in self.dead)


_NO_EVENT = EventFacts()


def _event(entry: Entry) -> EventFacts:
    return entry.own if isinstance(entry.own, EventFacts) else _NO_EVENT


def _compacted(entries: Sequence[Entry], events: Sequence[EventFacts]) -> int:
    """Return where the newest compaction began: a turn may have gone on meanwhile."""
    ends = (at for at in range(len(entries) - 1, -1, -1) if entries[at].compacts)
    if (end := next(ends, None)) is None:
        return 0
    attempt = events[end].compaction
    return next((at for at in range(end) if attempt and events[at].compaction == attempt), end)


class Copilot(Format):
    name = "copilot"
    version = 3
    archives = None
    copies = frozenset(path[-1] for path in _ASKED.values() if isinstance(path[-1], str))
    screen = frozenset({_SHOWN})

    def recognises(self, entries: Sequence[JsonObject]) -> bool:
        begun = dict_or_empty(entries[0].get("data"))
        return entries[0].get("type") == "session.start" and "copilotVersion" in begun

    def refuses(self, header: JsonObject) -> str | None:
        known = dict_or_empty(header.get("data")).get("version") == 1
        return None if known else "its version is not known to this program"

    def session(self, head: Sequence[JsonObject]) -> str | None:
        return usable_id(dict_or_empty(head[0].get("data")).get("sessionId"))

    def first_entry(self, entry: JsonObject, line: Line, index: int) -> Entry:
        content = self.read(entry)
        step, kind = content.step, str_or_empty(entry.get("type"))
        data = dict_or_empty(entry.get("data"))
        time = parse_time(entry.get("timestamp"))
        read = Entry(
            index, line.terminated, usable_id(entry.get("id")), role=step.role, time=time,
            values=values_sent(content.values, content.sent, entry),
            marks=marks_in(line.raw, entry, (), has_emptied=False),
            own=EventFacts(of_subagent=True, call=_begun(kind, data)),
        )  # fmt: skip
        if "agentId" in entry:
            return read
        usage = dict_or_empty(data.get("usage")) if kind == "session.usage_record" else {}
        return replace(
            read, is_message=step.role in _STEPS, text_path=step.text_path, closes=step.closes,
            calls=call_facts(step.calls), results=result_facts(step.results),
            sent=content.sent, call=_call(kind, data, usage, time), thoughts=_thoughts(kind, data),
            compacts=kind == _COMPACTED and data.get("success") is True,
            own=EventFacts(
                False, _turn(kind, step), _begun(kind, data),
                str_or_empty(data.get("compactionAttemptId")), number_in(usage, "maxPromptTokens"),
            ),
        )  # fmt: skip

    def read(self, entry: JsonObject) -> Content:
        data, kind = dict_or_empty(entry.get("data")), str_or_empty(entry.get("type"))
        values = [*_values(kind, data)]
        if "agentId" in entry:
            return Content(TurnStep("note") if values else NO_STEP, (), (), values, NOTHING)
        step = _step(kind, data)
        results = [value for value in values if value.path[-1] == "content" and step.results]
        return Content(
            step, step.calls, results_in(entry, results, data.get("toolCallId")), values,
            _sent(kind, data, step),
        )  # fmt: skip

    def chain(self, entries: Sequence[Entry]) -> Chain:
        return CopilotChain(entries)

    def resolved(self, values: Iterable[Value], around: Around) -> Iterator[Value]:
        for value in values:
            tool = around.tools.get(value.call or "")
            yield replace(value, tool=tool, dead=value.dead or around.is_dead)


def _values(kind: str, data: JsonObject) -> Iterator[Value]:
    if kind == "tool.execution_complete":
        result, call = dict_or_empty(data.get("result")), str_or_none(data.get("toolCallId"))
        for key in ("content", _SHOWN):
            if text := str_or_empty(result.get(key)):
                at, dead = below(_RESULT, key), key == _SHOWN
                yield Value(at, "tool_result", len(text), call=call, dead=dead)
    elif kind == "assistant.message" and (text := str_or_empty(data.get(_THINKING))):
        # What is signed has copies in two other forms. What is not is never sent after a resume.
        locked = _SIGNED if _signature(data) else None
        yield Value(("data", _THINKING), "thinking", len(text), locked=locked, dead=locked is None)
    elif kind in _ASKED:
        asked = data.get(str(_ASKED[kind][-1]))
        for path, text in strings_in(asked, _ASKED[kind]):
            if path[-1] not in _NAMES:
                yield Value(path, "custom", len(text), dead=True)


def _signature(data: JsonObject) -> object:
    """Return the signature of thinking that a resumed session sends again, or None.

    With OpenAI's Responses API, it is an id, and only the turn itself sends the reasoning again.
    """
    form = dict_or_empty(data.get("reasoningBlocks")).get("provider")
    return None if form == "openai-responses" else data.get("reasoningOpaque")


def _thoughts(kind: str, data: JsonObject) -> Thoughts | None:
    signature, text = _signature(data), str_or_empty(data.get(_THINKING))
    if kind != "assistant.message" or not signature:
        return None
    model, blocks = str_or_none(data.get("model")), ((("data", _THINKING), thinking_chars(text)),)
    return Thoughts((model,) if model else (), blocks, b"", only_content=True,
                    bound=covers_request(signature))  # fmt: skip


def _step(kind: str, data: JsonObject) -> TurnStep:
    if kind == "user.message":
        return TurnStep("prompt")
    if kind == "assistant.message":
        text = str_or_empty(data.get("content"))
        calls = tuple([
            ToolCall(
                str_or_none(one.get("toolCallId")), str_or_none(one.get("name")) or "tool",
                (*_CALLS, at, "arguments"), one.get("arguments"),
            )
            for at, one in blocks_in(data.get("toolRequests"))
        ])  # fmt: skip
        path = ("data", "content") if text else None
        return TurnStep("reply", text=text, text_path=path, closes=bool(text) and not calls,
                        calls=calls)  # fmt: skip
    if kind == "tool.execution_complete":
        return TurnStep("result", results=(_result(data),))
    return NO_STEP


def _result(data: JsonObject) -> ToolResult:
    code = number_in(data.get("shellExecution"), "exitCode")
    failed = data.get("success") is False or bool(code)
    texts = [
        dict_or_empty(data.get(key)).get(part) for key, part in
        (("error", "message"), ("result", "content"))
    ]  # fmt: skip
    finding = first_line(texts) if failed else ""
    return ToolResult(str_or_none(data.get("toolCallId")), failed, finding, code)


def _turn(kind: str, step: TurnStep) -> str | None:
    """Return what an event says about the last turn, as in EventFacts."""
    if step.role == "reply" and not step.calls:
        return _UNENDED
    if kind in _ENDS:
        return ""
    return kind if kind == _ENDED else _OPEN.get(step.role or kind)


def _begun(kind: str, data: JsonObject) -> tuple[str, str] | None:
    call, tool = str_or_none(data.get("toolCallId")), str_or_none(data.get("toolName"))
    return (call, tool) if kind == "tool.execution_start" and call and tool else None


def _call(
    kind: str, data: JsonObject, usage: JsonObject, time: float | None
) -> ModelCall | None:  # fmt: skip
    if kind == "session.error":
        return weight.unanswered(time, str_or_empty(data.get("message")), None)
    if not usage:
        return None
    counts = {
        "input_tokens": usage.get("inputTokens"), "output_tokens": usage.get("outputTokens"),
        "input_tokens_details": {"cached_tokens": usage.get("cacheReadTokens")},
    }  # fmt: skip
    return weight.recorded(time, counts, usage.get("model"))


def _sent(kind: str, data: JsonObject, step: TurnStep) -> Sent:
    if step.role == "prompt":
        text = data.get("transformedContent") or data.get("content")
        return Sent(len(str_or_empty(text))) + _pictures(data.get("attachments"))
    if step.role == "reply":
        calls = [
            {"type": "toolCall", "name": one.tool, "arguments": one.arguments} for one in step.calls
        ]
        signed = str_or_empty(data.get(_THINKING)) if _signature(data) else ""
        return Sent(len(step.text) + len(signed)) + weight.content(calls)
    if step.role == "result":
        result, error = dict_or_empty(data.get("result")), dict_or_empty(data.get("error"))
        text = str_or_empty(result.get("content")) or str_or_empty(error.get("message"))
        return Sent(len(text)) + _pictures(result.get("binaryResultsForLlm"))
    return Sent(len(str_or_empty(data.get("summaryContent")))) if kind == _COMPACTED else NOTHING


def _pictures(listed: object) -> Sent:
    """Return the size of what refers to assets. A request has their bytes as base64."""
    sizes = [number_in(one, "byteLength") or 0 for _, one in blocks_in(listed) if "assetId" in one]
    return Sent(0, len(sizes), sum(-(-size // 3) * 4 for size in sizes))
