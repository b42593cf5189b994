"""opencode's sessions: each line is a row of `part`, with what the row of its message says.

`{"row": {…}, "part": {…}}`: `row` is made from the columns and never changed, `part` is what the
database holds. A message has several parts; a tool's call and its result are one. Source: opencode
1.18.33 (`toModelMessages`, `filterCompacted` and the loop of `SessionPrompt.run`).
"""

import re
from array import array
from collections.abc import Iterator, Sequence
from itertools import accumulate

from msgspec import Struct
from msgspec.structs import replace

from brainsurgeon.formats import base, weight
from brainsurgeon.formats.base import Content, Format, dict_or_empty, str_or_empty, str_or_none
from brainsurgeon.formats.chain import Chain
from brainsurgeon.formats.marks import marks_in
from brainsurgeon.model.entries import JsonObject, KeyPath, Kind, Line, Value
from brainsurgeon.model.session_files import BEFORE_COMPACTION
from brainsurgeon.model.transcript import Entry, Thoughts
from brainsurgeon.model.turns import NOTHING, ModelCall, Sent, ToolCall, ToolResult, TurnStep

# Replaces signed thinking. @ai-sdk/anthropic leaves out thinking without a signature.
EMPTIED = b'{"type":"reasoning","text":"","time":{"start":0,"end":0}}'
SOON = 60.0  # seconds within which an answer has a row
_CONTINUED = ("tool-calls", "unknown")  # reasons of a finished answer that another one follows
_VERIFIED = {"anthropic", "bedrock"}  # who checks a text against its signature
_PART, _TEXT, _STATE = ("part",), ("part", "text"), ("part", "state")
_RESULTS: tuple[KeyPath, ...] = ((*_STATE, "output"), (*_STATE, "error"))
_ATTACHED, _COPY = (*_STATE, "attachments"), (*_STATE, "metadata")


class PartView(Struct, frozen=True, gc=False):
    row: JsonObject
    part: JsonObject
    signers: JsonObject  # what providers say about it
    kind: str
    state: JsonObject  # of a tool
    is_user: bool
    call: str | None  # its id; else what a copy in a fork, which has another id, has in common
    text: str
    tool: str | None


def _view(entry: JsonObject) -> PartView:
    row, part = dict_or_empty(entry.get("row")), dict_or_empty(entry.get("part"))
    kind, call = str_or_empty(part.get("type")), str_or_none(part.get("callID"))
    return PartView(
        row, part, dict_or_empty(part.get("metadata")), kind, dict_or_empty(part.get("state")),
        row.get("role") == "user", call if kind == "tool" else base.usable_id(row.get("created")),
        str_or_empty(part.get("text")), str_or_none(part.get("tool")),
    )  # fmt: skip


class MessageFacts(Struct, frozen=True, gc=False):
    """What a part says about its message."""

    message: str
    parent: str | None  # the id of the prompt that it answers
    finish: str | None
    completed: bool
    error: str | None
    running: bool = False  # a call without a result
    steps: bool = False  # it begins a request to the model
    is_user: bool = False
    is_summary: bool = False
    compacts: bool = False
    tail: str | None = None  # where the next request begins after a compaction

    @property
    def ended(self) -> bool:
        # Without a step, it is no answer of the model: the user ran a command with `!`.
        finished = self.finish not in _CONTINUED if self.finish else not self.steps
        return self.completed and not self.running and bool(self.error or finished)


def _facts(view: PartView) -> MessageFacts:
    row = view.row
    parent, finish, error = (str_or_none(row.get(key)) for key in ("parent", "finish", "error"))
    return MessageFacts(
        str_or_empty(row.get("message")), parent, finish, bool(row.get("completed")), error,
        view.state.get("status") in ("pending", "running"), view.kind == "step-start", view.is_user,
        bool(row.get("summary") and finish and not error), view.kind == "compaction",
        str_or_none(view.part.get("tail_start_id")),
    )  # fmt: skip


def left_open(prompt: str | None, answer: MessageFacts | None, silent: float = 0) -> str | None:
    """Return why the turn of the newest prompt (an id) with the newest answer is open, or None.

    `silent`: seconds since the last change.
    """
    if answer and (answer.running or answer.finish in _CONTINUED) and not answer.ended:
        return "the last turn is open: a tool call"
    # A prompt may ask for no answer (`noReply`). Any other has a row of its answer soon.
    asks = silent < SOON and (answer is None or answer.parent != prompt)
    waits = prompt and (asks or (answer and not answer.ended))
    return "the last turn is open: a prompt without a complete answer" if waits else None


class OpencodeChain(Chain):
    """Positions count messages, whatever the number of their parts."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        super().__init__()
        messages: dict[str, list[int]] = {}
        for index, entry in enumerate(entries):
            if isinstance(entry.own, MessageFacts):
                messages.setdefault(entry.own.message, []).append(index)
        groups = [[entries[index].own for index in parts] for parts in messages.values()]
        begin, firsts = _begin(groups), set[int]()
        for number, (parts, facts) in enumerate(zip(messages.values(), groups, strict=True)):
            failed = facts[0].error not in (None, "MessageAbortedError")
            if number < begin or failed:
                why = BEFORE_COMPACTION if number < begin else "its answer failed"
                self.dead |= dict.fromkeys(parts, why)
            else:
                self.last_user = parts[0] if facts[0].is_user else self.last_user
                firsts |= {parts[0]} if any(entries[at].is_message for at in parts) else set()
        self.off = {at for at, entry in enumerate(entries) if entry.own is None} | {*self.dead}
        self.counts = array("q", accumulate(at in firsts for at in range(len(entries))))
        prompts = [None, *(facts[0].message for facts in groups if facts[0].is_user)]
        last = next((facts for facts in reversed(groups) if not facts[0].is_user), None)
        runs, steps = (any(getattr(one, key) for one in last or ()) for key in ("running", "steps"))
        answer = replace(last[0], running=runs, steps=steps) if last else None
        self.open_turn = left_open(prompts[-1], answer)
        if entries and not entries[-1].terminated and entries[-1].own is None:
            self.open_turn = base.STILL_WRITTEN

    def position(self, index: int, entry: Entry) -> int:
        off = index in self.off
        return super().position(index, entry) if off else self.counts[-1] - self.counts[index]


def _begin(messages: Sequence[Sequence[MessageFacts]]) -> int:
    """Return the number of the message at which the next request begins."""
    done, tail = set[str | None](), None
    for number in range(len(messages) - 1, -1, -1):
        facts = messages[number]
        done |= {facts[0].parent} if facts[0].is_summary else set()
        ends = (one.tail or one.message for one in facts if one.compacts and one.message in done)
        tail = tail or next(ends, None)
        if tail == facts[0].message:
            return number
    return 0


class Opencode(Format):
    name, version, archives = "opencode", 2, None
    emptied = (EMPTIED,)
    copies = frozenset({"metadata"})
    appends_anew = True  # a fork keeps the originals
    random_ids = re.compile("prt_[0-9a-f]{12}[0-9A-Za-z]{14}")

    def recognises(self, entries: Sequence[JsonObject]) -> bool:
        row = dict_or_empty(entries[0].get("row"))
        return {"id", "session", "message"} <= row.keys() and "part" in entries[0]

    def session(self, head: Sequence[JsonObject]) -> str | None:
        return base.usable_id(dict_or_empty(head[0].get("row")).get("session"))

    def first_entry(self, entry: JsonObject, line: Line, index: int) -> Entry:
        view = _view(entry)
        values, calls, created = list(_values(view)), _calls(view), view.row.get("created")
        step, sent = _step(view, calls), sum([Sent(*value.size) for value in values], NOTHING)
        time = created / 1000 if isinstance(created, int) else None
        hollow = view.kind == "reasoning" and not view.text
        return Entry(
            index, line.terminated, base.usable_id(view.row.get("id")), role=step.role,
            is_message=step.role in ("prompt", "reply", "result"), time=time,
            text_path=step.text_path, closes=step.closes, cut_short=step.cut_short,
            values=base.values_sent(values, sent, entry), calls=base.call_facts(calls),
            results=base.result_facts(step.results), sent=sent, call=_answered(view, time),
            thoughts=_thoughts(view), compacts=view.kind == "compaction", own=_facts(view),
            marks=marks_in(line.raw, entry, self.emptied, has_emptied=hollow),
        )  # fmt: skip

    def read(self, entry: JsonObject) -> Content:
        view = _view(entry)
        values, calls = list(_values(view)), _calls(view)
        texts = [value for value in values if value.path in _RESULTS]
        sent = sum([Sent(*value.size) for value in values], NOTHING)
        results = base.results_in(entry, texts, view.call)
        return Content(_step(view, calls), calls, results, values, sent)

    def chain(self, entries: Sequence[Entry]) -> Chain:
        return OpencodeChain(entries)


def _values(view: PartView) -> Iterator[Value]:
    part = view.part
    if view.kind == "tool":
        yield from _tool_values(view)
    elif view.kind == "text" and view.text:
        added = view.is_user and part.get("synthetic")  # opencode wrote it
        kind: Kind = "custom" if added else "user" if view.is_user else "assistant"
        unsent = 0 if view.is_user and part.get("ignored") else None
        yield Value(_TEXT, kind, len(view.text), call=view.call, sent=unsent)
    elif view.kind == "reasoning" and view.text:
        yield _thinking(view)
    elif view.kind == "file" and view.is_user:
        # The text of an attached file, or the listing of a directory, is in parts of its own.
        url, mime = str_or_empty(part.get("url")), part.get("mime")
        if url.startswith("data:") and mime not in ("text/plain", "application/x-directory"):
            yield Value(_PART, "user", len(url), block=True, call=view.call)


def _thinking(view: PartView) -> Value:
    chars, signers = len(view.text), view.signers
    if not signers:
        return Value(_TEXT, "thinking", chars, call=view.call)
    verified = signers.keys() <= _VERIFIED and "redactedData" not in str(signers.values())
    locked = None if view.row.get("beside") else "nothing else is in its message"
    locked = locked if verified else "thinking signed by its provider"
    return Value(
        _PART, "thinking", chars, block=True, locked=locked, instead=EMPTIED, signed=verified,
        sent=chars,
    )  # fmt: skip


def _thoughts(view: PartView) -> Thoughts | None:
    if view.kind != "reasoning" or not view.signers.keys() & _VERIFIED:
        return None
    marks = [dict_or_empty(said) for said in view.signers.values()]
    mark = next((str_or_empty(one.get("signature", one.get("redactedData"))) for one in marks), "")
    blocks = ((_PART, base.thinking_chars(view.text, mark)),)
    models, bound = (str_or_empty(view.row.get("model")),), base.covers_request(mark)
    return Thoughts(models, blocks, EMPTIED, not view.row.get("beside"), bound=bound)


def _tool_values(view: PartView) -> Iterator[Value]:
    state, of = view.state, (view.tool, view.call)
    signed = "call signed by its provider" if view.signers else None
    yield from base.leaves(state.get("input"), (*_STATE, "input"), "tool_call", *of, locked=signed)
    # opencode keeps the text of a result that it left out itself (`compaction.prune`).
    cleared = bool(dict_or_empty(state.get("time")).get("compacted"))
    sent = () if cleared else _sent_path(view)
    if state.get("status") in ("completed", "error"):
        for path in _RESULTS:
            if isinstance(text := state.get(str(path[-1])), str):
                yield from base.leaves(text, path, "tool_result", *of, dead=path != sent)
    attached = state.get("attachments")
    urls = [str_or_empty(file.get("url")) for _, file in base.blocks_in(attached)]
    if data := sum(len(url) for url in urls if url.startswith("data:")):
        # Behind which text would the placeholder stand, see `rows`? opencode always writes one.
        bare = None if isinstance(state.get("output"), str) else "its result has no text"
        yield Value(
            _ATTACHED, "tool_result", data, of[0], block=True, call=of[1], locked=bare, dead=cleared
        )
    if isinstance(attached, dict):  # our placeholder, see `rows`
        yield from base.leaves(attached.get("text"), (*_ATTACHED, "text"), "tool_result", *of)
    for path, text in base.strings_in(state.get("metadata"), _COPY):
        yield from base.leaves(text, path, "tool_result", *of, dead=path != sent)


def _sent_path(view: PartView) -> KeyPath:
    """Return the path of the text that a request contains as the result."""
    if view.state.get("status") != "error":
        return _RESULTS[0]
    copy = dict_or_empty(view.state.get("metadata"))
    interrupted = copy.get("interrupted") is True and isinstance(copy.get("output"), str)
    return (*_COPY, "output") if interrupted else _RESULTS[1]


def _calls(view: PartView) -> tuple[ToolCall, ...]:
    tool, given, signed = view.tool or "tool", view.state.get("input"), bool(view.signers)
    call = ToolCall(view.call, tool, (*_STATE, "input"), given, signed=signed)
    return (call,) if view.kind == "tool" else ()


def _step(view: PartView, calls: tuple[ToolCall, ...]) -> TurnStep:
    if calls:
        return TurnStep("result", calls=calls, results=(_result(view),))
    if view.is_user and view.kind in ("text", "file"):
        added = view.part.get("synthetic") or view.part.get("ignored")
        return TurnStep("aside" if added else "prompt")
    if view.is_user or view.kind not in ("text", "reasoning"):
        return base.NO_STEP
    said = view.kind == "text" and bool(view.text.strip())
    finish, error = view.row.get("finish"), view.row.get("error")
    return TurnStep(
        "reply", text=view.text if said else "", text_path=_TEXT if said else None,
        closes=said and bool(finish) and finish not in _CONTINUED and not error,
        cut_short=bool(error) or finish == "length",
    )  # fmt: skip


def _result(view: PartView) -> ToolResult:
    state, code = view.state, base.number_in(view.state.get("metadata"), "exit")
    failed = state.get("status") == "error" or bool(code)
    finding = base.first_line([state.get("error") or state.get("output")]) if failed else ""
    return ToolResult(view.call, failed, finding, code)


def _answered(view: PartView, time: float | None) -> ModelCall | None:
    if view.kind != "step-finish":
        return None
    tokens, cost = dict_or_empty(view.part.get("tokens")), {"total": view.part.get("cost")}
    cache, output = dict_or_empty(tokens.get("cache")), weight.counts(tokens, "output", "reasoning")
    cached = {"cacheRead": cache.get("read"), "cacheWrite": cache.get("write")}
    usage = {"input": tokens.get("input"), "output": output, "cost": cost, **cached}
    return weight.recorded(time, usage, view.row.get("model"), view.call)
