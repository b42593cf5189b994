"""opencode's sessions: each line is a row of `part`, with what the row of its message says.

`{"row": {…}, "part": {…}}`: `row` is made from the columns and never changed, `part` is what the
database holds. A message has several parts; a tool's call and its result are one. Source: opencode
1.18.33 (`toModelMessages`, `filterCompacted` and the loop of `SessionPrompt.run`).
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from msgspec import Struct

from brainsurgeon.formats import weight
from brainsurgeon.formats.base import (
    DAMAGED,
    HOLLOW,
    NO_STEP,
    STILL_WRITTEN,
    Content,
    Format,
    ResultText,
    blocks_in,
    call_records,
    covers_request,
    dict_or_empty,
    first_line,
    is_damaged,
    leaves,
    number_in,
    result_records,
    results_in,
    str_or_empty,
    str_or_none,
    thinking_chars,
    usable_id,
    values_sent,
)
from brainsurgeon.formats.chain import Chain
from brainsurgeon.formats.marks import marks_in
from brainsurgeon.model.entries import JsonObject, KeyPath, Line, Value, value_at
from brainsurgeon.model.session_files import BEFORE_COMPACTION
from brainsurgeon.model.transcript import Entry, Thoughts
from brainsurgeon.model.turns import NOTHING, ModelCall, Sent, ToolCall, ToolResult, TurnStep

# Replaces signed thinking. @ai-sdk/anthropic leaves out thinking without a signature.
EMPTIED = b'{"type":"reasoning","text":"","time":{"start":0,"end":0}}'
FAILED = "its answer failed"
_OPEN = "the last turn is open: "
_CONTINUED = ("tool-calls", "unknown")  # reasons of a finished answer that another one follows
_ABORTED = "MessageAbortedError"
_VERIFIED = ("anthropic", "bedrock", "amazon-bedrock")  # who checks a text against its signature
_PART: KeyPath = ("part",)
_STATE: KeyPath = ("part", "state")
_TEXT, _OUTPUT = ("part", "text"), ("part", "state", "output")
_ATTACHMENTS, _METADATA = ("part", "state", "attachments"), ("part", "state", "metadata")


class PartView(Struct, frozen=True, gc=False):
    entry: JsonObject
    row: JsonObject
    part: JsonObject
    kind: str
    state: JsonObject  # of a tool
    is_user: bool
    anchor: str | None  # what its copies in forks have, too: they have new ids


def _view(entry: JsonObject) -> PartView:
    row, part = dict_or_empty(entry.get("row")), dict_or_empty(entry.get("part"))
    created = row.get("created")
    return PartView(
        entry, row, part, str_or_empty(part.get("type")), dict_or_empty(part.get("state")),
        row.get("role") == "user", str(created) if isinstance(created, int) else None,
    )  # fmt: skip


class MessageFacts(Struct, frozen=True, gc=False):
    """What a part says about its message."""

    message: str
    is_user: bool = False
    parent: str | None = None  # the prompt
    finish: str | None = None
    completed: bool = False
    error: str | None = None
    is_summary: bool = False
    compacts: bool = False
    tail: str | None = None  # the message at which the next request begins after a compaction
    running: bool = False  # a call without a result
    says: bool = False  # more than thinking: an aborted answer is sent only with such parts

    @property
    def is_compacted(self) -> bool:
        return self.is_summary and bool(self.finish) and not self.error


def _facts(view: PartView) -> MessageFacts:
    row = view.row
    return MessageFacts(
        str_or_empty(row.get("message")), view.is_user, str_or_none(row.get("parent")),
        str_or_none(row.get("finish")), bool(row.get("completed")), str_or_none(row.get("error")),
        bool(row.get("summary")), view.kind == "compaction",
        str_or_none(view.part.get("tail_start_id")),
        view.state.get("status") in ("pending", "running"),
        view.kind not in ("step-start", "reasoning"),
    )  # fmt: skip


def left_open(
    prompt: str | None, answer: MessageFacts | None, *, running: bool
) -> str | None:  # fmt: skip
    """Return why the turn of the newest prompt (an id) is open, or None.

    `running`: a call of this turn has no result. A killed turn leaves such calls for ever.
    """
    if prompt is None:
        return None
    if answer is None or (answer.completed and answer.parent != prompt):
        return f"{_OPEN}a prompt without an answer"
    if not answer.completed:
        return f"{_OPEN}an answer that is not complete"
    if not answer.error and (not answer.finish or answer.finish in _CONTINUED):
        return f"{_OPEN}a tool result"
    return f"{_OPEN}a tool call" if running else None


class OpencodeChain(Chain):
    """Positions count messages, whatever the number of their parts."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        super().__init__()
        messages: dict[str, list[int]] = {}
        for index, entry in enumerate(entries):
            if isinstance(entry.own, MessageFacts):
                messages.setdefault(entry.own.message, []).append(index)
        turns = [[entries[index].own for index in parts] for parts in messages.values()]
        begin = _begin(turns)
        for number, (parts, facts) in enumerate(zip(messages.values(), turns, strict=True)):
            if why := BEFORE_COMPACTION if number < begin else _unsent(facts):
                self.dead |= dict.fromkeys(parts, why)
            elif facts[0].is_user:
                self.last_user = parts[0]
        # A message is counted at its first part.
        firsts = {
            parts[0] for parts in messages.values()
            if parts[0] not in self.dead and any(entries[index].is_message for index in parts)
        }  # fmt: skip
        for index, entry in enumerate(entries):
            if entry.own is None or index in self.dead:
                self.off.add(index)
            self.counts.append((self.counts[-1] if self.counts else 0) + (index in firsts))
        self.open_turn = _open_turn(turns)
        if entries and not entries[-1].terminated and entries[-1].own is None:
            self.open_turn = STILL_WRITTEN

    def position(self, index: int, entry: Entry) -> int:
        after = self.counts[-1] - self.counts[index]
        return after if index not in self.off else super().position(index, entry)


def _begin(messages: Sequence[Sequence[MessageFacts]]) -> int:
    """Return the number of the message at which the next request begins."""
    done, tail = set[str | None](), None
    for number in range(len(messages) - 1, -1, -1):
        facts = messages[number]
        if tail is None and facts[0].is_compacted:
            done.add(facts[0].parent)
        compaction = next((one for one in facts if one.compacts), None)
        if tail is None and compaction and compaction.is_user and compaction.message in done:
            if not compaction.tail:
                return number
            tail = compaction.tail
        if tail == facts[0].message:
            return number
    return 0


def _unsent(facts: Sequence[MessageFacts]) -> str | None:
    error = facts[0].error
    if not error or (error == _ABORTED and any(part.says for part in facts)):
        return None
    return FAILED


def _open_turn(messages: Sequence[Sequence[MessageFacts]]) -> str | None:
    prompts = [facts[0].message for facts in messages if facts[0].is_user]
    answers = [facts for facts in messages if not facts[0].is_user]
    prompt = prompts[-1] if prompts else None
    running = any(part.running for facts in answers if facts[0].parent == prompt for part in facts)
    return left_open(prompt, answers[-1][0] if answers else None, running=running)


class Opencode(Format):
    name = "opencode"
    version = 1
    archives = None
    emptied = (EMPTIED,)
    copies = frozenset({"metadata"})
    appends_anew = True  # a fork keeps the originals
    random_ids = re.compile("prt_[0-9a-f]{12}[0-9A-Za-z]{14}")

    def recognises(self, entries: Sequence[JsonObject]) -> bool:
        row = dict_or_empty(entries[0].get("row"))
        return {"id", "session", "message"} <= row.keys() and "part" in entries[0]

    def session(self, head: Sequence[JsonObject]) -> str | None:
        return usable_id(dict_or_empty(head[0].get("row")).get("session"))

    def record(self, entry: JsonObject, line: Line, index: int) -> Entry:
        view = _view(entry)
        calls, sent = _calls(view), _sent(view)
        step, created = _step(view, calls), view.row.get("created")
        time = created / 1000 if isinstance(created, int) else None
        return Entry(
            index, line.terminated, usable_id(view.row.get("id")), role=step.role,
            is_message=step.role in ("prompt", "reply", "result"), time=time,
            text_path=step.text_path, closes=step.closes, cut_short=step.cut_short,
            values=values_sent(_values(view), sent, entry), calls=call_records(calls),
            results=result_records(step.results), sent=sent, call=_answered(view, time),
            thoughts=_thoughts(view), compacts=view.kind == "compaction",
            marks=marks_in(line.raw, entry, self.emptied, has_emptied=_is_hollow(view)),
            own=_facts(view),
        )  # fmt: skip

    def read(self, entry: JsonObject) -> Content:
        view = _view(entry)
        calls = _calls(view)
        return Content(_step(view, calls), calls, _result_texts(view), _values(view), _sent(view))

    def chain(self, entries: Sequence[Entry]) -> Chain:
        return OpencodeChain(entries)


def _is_hollow(view: PartView) -> bool:
    return view.kind == "reasoning" and view.part.get("text") == ""


def _values(view: PartView) -> Iterator[Value]:
    part, text = view.part, str_or_empty(view.part.get("text"))
    if view.kind == "tool":
        yield from _tool_values(view)
    elif view.kind == "text" and text:
        kind: Any = "user" if view.is_user else "assistant"
        if view.is_user and part.get("synthetic") is True:  # opencode wrote it
            kind = "custom"
        yield Value(_TEXT, kind, len(text), call=view.anchor, sent=_sent(view).chars)
    elif view.kind == "file" and view.is_user and (picture := _picture(part)):
        yield Value(_PART, "user", picture, block=True, call=view.anchor)
    elif view.kind == "reasoning" and text:
        yield _thinking(view, text)


def _picture(file: JsonObject) -> int:
    """Return the characters of a picture or document that is in the database, else 0.

    The text of an attached text file, or the listing of a directory, is in parts of its own.
    """
    mime, url = str_or_empty(file.get("mime")), str_or_empty(file.get("url"))
    unsent = mime in ("", "text/plain", "application/x-directory")
    return len(url) if url.startswith("data:") and not unsent else 0


def _thinking(view: PartView, text: str) -> Value:
    chars, signers = len(text), dict_or_empty(view.part.get("metadata"))
    if not signers:
        return Value(_TEXT, "thinking", chars, call=view.anchor)
    verified, locked = not signers.keys() - {*_VERIFIED}, None
    if not verified:
        locked = "thinking signed by its provider"
    elif _is_redacted(signers):
        locked = "redacted thinking"
    elif not view.row.get("beside"):
        locked = "nothing else is in its message"
    return Value(
        _PART, "thinking", chars, block=True, locked=locked, instead=EMPTIED, signed=verified,
        sent=chars,
    )  # fmt: skip


def _is_redacted(signers: JsonObject) -> bool:
    return any("redactedData" in dict_or_empty(said) for said in signers.values())


def _thoughts(view: PartView) -> Thoughts | None:
    signers = dict_or_empty(view.part.get("metadata"))
    if view.kind != "reasoning" or not signers.keys() & {*_VERIFIED}:
        return None
    said = [dict_or_empty(value) for value in signers.values()]
    signature = next((one.get("signature", one.get("redactedData")) for one in said), None)
    text, models = str_or_empty(view.part.get("text")), (str_or_empty(view.row.get("model")),)
    unsound = {}
    if not (_is_redacted(signers) or text.strip()):
        unsound[_PART] = HOLLOW
    elif not _is_redacted(signers) and is_damaged(signature, models):
        unsound[_PART] = DAMAGED
    blocks = ((_PART, thinking_chars(text, str_or_empty(signature))),)
    alone, bound = not view.row.get("beside"), covers_request(signature)
    return Thoughts(models, blocks, EMPTIED, alone, bound=bound, unsound=unsound)


def _tool_values(view: PartView) -> Iterator[Value]:
    tool, call = str_or_none(view.part.get("tool")), str_or_none(view.part.get("callID"))
    state, status = view.state, view.state.get("status")
    if isinstance(state.get("input"), dict):
        signed = "call signed by its provider" if _signs_call(view) else None
        yield from leaves(state["input"], (*_STATE, "input"), "tool_call", tool, call,
                          locked=signed)  # fmt: skip
    sent_path, dead = _sent_path(view), _is_cleared(view)
    for path in (_OUTPUT, (*_STATE, "error")):
        text = str_or_empty(value_at(view.entry, path))
        if text and status in ("completed", "error"):
            yield Value(path, "tool_result", len(text), tool, call=call,
                        dead=dead or path != sent_path)  # fmt: skip
    attached = state.get("attachments")
    if status == "completed" and (urls := sum(map(len, _urls(attached)))):
        yield Value(_ATTACHMENTS, "tool_result", urls, tool, block=True, call=call, dead=dead)
    if isinstance(attached, dict):  # our placeholder, see `rows`
        yield from leaves(attached.get("text"), (*_ATTACHMENTS, "text"), "tool_result", tool, call)
    metadata = dict_or_empty(state.get("metadata"))
    for value in leaves(metadata, _METADATA, "tool_result", tool, call, dead=True):
        if value.path != sent_path:
            yield value
        else:
            yield Value(value.path, "tool_result", value.chars, tool, call=call)


def _signs_call(view: PartView) -> bool:
    signers = dict_or_empty(view.part.get("metadata")).values()
    return any("thoughtSignature" in dict_or_empty(said) for said in signers)


def _urls(attached: object) -> list[str]:
    urls = [str_or_empty(file.get("url")) for _, file in blocks_in(attached)]
    return [url for url in urls if url.startswith("data:")]


def _is_cleared(view: PartView) -> bool:
    """Check whether opencode itself left out the result (`compaction.prune`). It keeps the text."""
    return bool(dict_or_empty(view.state.get("time")).get("compacted"))


def _sent_path(view: PartView) -> KeyPath:
    """Return the path of the text that a request contains as the result."""
    if view.state.get("status") != "error":
        return _OUTPUT
    metadata = dict_or_empty(view.state.get("metadata"))
    interrupted = metadata.get("interrupted") is True and isinstance(metadata.get("output"), str)
    return (*_METADATA, "output") if interrupted else (*_STATE, "error")


def _result_texts(view: PartView) -> Iterable[ResultText]:
    if view.kind != "tool":
        return ()
    paths = (_OUTPUT, (*_STATE, "error"))
    parts = (value for value in _tool_values(view) if value.path in paths)
    return results_in(view.entry, parts, view.part.get("callID"))


def _calls(view: PartView) -> tuple[ToolCall, ...]:
    if view.kind != "tool":
        return ()
    return (ToolCall(
        str_or_none(view.part.get("callID")), str_or_none(view.part.get("tool")) or "tool",
        (*_STATE, "input"), view.state.get("input"), signed=_signs_call(view),
    ),)  # fmt: skip


def _step(view: PartView, calls: tuple[ToolCall, ...]) -> TurnStep:
    text = str_or_empty(view.part.get("text"))
    if view.kind == "tool":
        return TurnStep("result", calls=calls, results=(_result(view),))
    if view.is_user:
        if view.kind == "text" and (view.part.get("synthetic") or view.part.get("ignored")):
            return TurnStep("aside")
        return TurnStep("prompt") if view.kind in ("text", "file") else NO_STEP
    if view.kind == "reasoning":
        return TurnStep("reply")
    if view.kind != "text":
        return NO_STEP
    finish, error = view.row.get("finish"), view.row.get("error")
    closes = bool(text.strip()) and bool(finish) and finish not in _CONTINUED and not error
    path = _TEXT if text.strip() else None
    return TurnStep(
        "reply", text=text if path else "", text_path=path, closes=closes,
        cut_short=bool(error) or finish == "length",
    )  # fmt: skip


def _result(view: PartView) -> ToolResult:
    state, metadata = view.state, dict_or_empty(view.state.get("metadata"))
    code, time = number_in(metadata, "exit"), dict_or_empty(state.get("time"))
    failed = state.get("status") == "error" or bool(code)
    start, end = number_in(time, "start"), number_in(time, "end")
    took = None if start is None or end is None else end - start
    finding = first_line([state.get("error") or state.get("output")]) if failed else ""
    return ToolResult(str_or_none(view.part.get("callID")), failed, finding, code, took)


def _sent(view: PartView) -> Sent:
    part = view.part
    text = str_or_empty(part.get("text"))
    if view.kind in ("text", "reasoning"):
        return NOTHING if view.is_user and part.get("ignored") else Sent(len(text))
    if view.kind == "file" and view.is_user:
        picture = _picture(part)
        return Sent(0, 1, picture) if picture else NOTHING
    if view.kind != "tool":
        return NOTHING
    call = {"type": "tool_use", "name": part.get("tool"), "input": view.state.get("input")}
    given = weight.content([call])
    if _is_cleared(view):
        return given
    result = value_at(view.entry, _sent_path(view))
    urls = _urls(view.state.get("attachments"))
    attached = dict_or_empty(view.state.get("attachments")).get("text")
    shown = len(str_or_empty(result)) + len(str_or_empty(attached))
    return given + Sent(shown, len(urls), sum(map(len, urls)))


def _answered(view: PartView, time: float | None) -> ModelCall | None:
    tokens = dict_or_empty(view.part.get("tokens"))
    if view.kind != "step-finish" or not tokens:
        return None
    cache = dict_or_empty(tokens.get("cache"))
    usage = {
        "input": tokens.get("input"), "cacheRead": cache.get("read"),
        "cacheWrite": cache.get("write"), "output": weight.counts(tokens, "output", "reasoning"),
        "cost": {"total": view.part.get("cost")},
    }  # fmt: skip
    return weight.recorded(time, usage, view.row.get("model"), view.anchor)
