"""quill's talks: a header, then a line for each prompt, reply and result."""

from brainsurgeon.formats.base import (
    NO_STEP,
    STILL_WRITTEN,
    Content,
    Format,
    ResultText,
    call_facts,
    dict_or_empty,
    leaves,
    result_facts,
    str_or_empty,
    str_or_none,
    usable_id,
    values_sent,
)
from brainsurgeon.formats.chain import Chain
from brainsurgeon.formats.marks import marks_in
from brainsurgeon.model.transcript import Entry
from brainsurgeon.model.turns import Sent, ToolCall, ToolResult, TurnStep

_OPEN = {"prompt": "a prompt", "result": "a result", "reply": "a call"}


class Quill(Format):
    name = "quill"
    version = 1
    archives = None

    def recognises(self, entries):
        return entries[0].get("quill") == 1

    def session(self, head):
        return usable_id(head[0].get("talk"))

    def read(self, entry):
        who, text = entry.get("who"), str_or_empty(entry.get("say"))
        call, tool = str_or_none(entry.get("call")), str_or_none(entry.get("tool")) or "tool"
        calls, results, path = (), [], ("say",) if text else None
        if who == "user":
            step, values = TurnStep("prompt"), leaves(text, ("say",), "user")
        elif who == "tool":
            step = TurnStep("result", results=(ToolResult(call),))
            values = leaves(text, ("say",), "tool_result", tool, call)
            results = [ResultText(("say",), text, call)] if text else []
        elif who == "quill":
            given = dict_or_empty(entry.get("use"))
            calls = (ToolCall(call, tool, ("use",), given),) if given else ()
            closes = bool(text) and not calls
            step = TurnStep("reply", text=text, text_path=path, closes=closes, calls=calls)
            values = leaves(text, ("say",), "assistant")
            values += leaves(given, ("use",), "tool_call", tool, call)
        else:
            return Content(NO_STEP, (), (), (), Sent())
        return Content(step, calls, results, values, Sent(sum(value.chars for value in values)))

    def first_entry(self, entry, line, index):
        content = self.read(entry)
        step = content.step
        return Entry(
            index, line.terminated, usable_id(entry.get("id")), role=step.role,
            is_message=step.role is not None, text_path=step.text_path, closes=step.closes,
            values=values_sent(content.values, content.sent, entry),
            calls=call_facts(content.calls), results=result_facts(step.results),
            sent=content.sent, marks=marks_in(line.raw, entry, (), has_emptied=False),
        )  # fmt: skip

    def chain(self, entries):
        chain = Chain()
        for index, entry in enumerate(entries):
            chain.count(index, entry, live=True)
            if entry.role == "prompt":
                chain.last_user = index
            if entry.role:
                left = f"the last turn is open: {_OPEN[entry.role]}"
                chain.open_turn = None if entry.closes else left
            if not entry.terminated and entry.role is None:
                chain.open_turn = STILL_WRITTEN
        return chain
