"""Resume point of a scan: a plan made from there misses nothing."""

import os
from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from brainsurgeon.formats import FORMATS
from brainsurgeon.model.records import Records
from brainsurgeon.model.rules import Rule, Rules
from brainsurgeon.model.text import iso
from brainsurgeon.planning.plan import plan
from brainsurgeon.planning.snapshot import Frontier, Habits, Snapshot
from brainsurgeon.sessions.reading import FileLines
from building.format_reading import HEADER
from building.world import dump

NOW = 1_790_000_000.0
RULES = Rules(
    rules=(Rule("tool_result", (), 60, 2), Rule("thinking", (), 60, 1)),
    keep_recent=3,
    min_value_length=60,
    keep_after_restore=600.0,
)
LONG, SHORT = "x" * 90, "ok"


@dataclass(frozen=True)
class ResumePoint:
    """The resume point that one plan leaves for the next."""

    offset: int
    number: int
    cursor: str
    placeholders: bool


class Reader:
    """Plan a growing session as a whole and from the last resume point."""

    def __init__(self, descriptor, form, rules, habits, patience):
        self.descriptor, self.form, self.rules = descriptor, FORMATS[form], rules
        self.habits, self.patience = habits, patience
        self.point = None

    def _lines(self, size, offset=0, number=1):
        return FileLines(self.descriptor, size, start=offset, number=number)

    def _plan(self, lines, survey, now, frontier=None):
        session = Snapshot(
            lines, self.form, survey, Records(), now,
            branches_die_at=self.dies, habits=self.habits,
        )  # fmt: skip
        return plan(session, self.rules, frontier=frontier)

    def plan_twice(self, size, now, changed_at):
        """Return the plan of the first bytes of a file, and the resumed plan or None."""
        self.dies = changed_at + self.patience
        lines = self._lines(size)
        survey = self.form.survey(lines, self.rules.kept_messages)
        frontier = Frontier(self._since(survey), remembers=self.habits.remembers)
        whole = self._plan(lines, survey, now, frontier)
        tail, point, self.point = self._resume(size, now), self.point, None
        if tail is None or tail[0].deferred:
            self._set_point(size, whole, frontier)
            return whole, None
        self._set_point(size, *tail)
        return whole, (tail[0], point)

    def plan_at(self, size, now):
        lines = self._lines(size)
        return self._plan(lines, self.form.survey(lines, self.rules.kept_messages), now)

    def _since(self, survey):
        return None if survey.open_turn else survey.since

    def _resume(self, size, now):
        if self.point is None:
            return None
        lines = self._lines(size, self.point.offset, self.point.number)
        survey = self.form.survey(lines, self.rules.kept_messages)
        if survey.cursor != self.point.cursor:
            return None
        frontier = Frontier(
            self._since(survey),
            remembers=self.habits.remembers,
            placeholders=self.point.placeholders,
        )
        return self._plan(lines, survey, now, frontier), frontier

    def _set_point(self, size, planned, frontier):
        begin = frontier.begin(planned)
        if begin is None or planned.deferred:
            return
        survey = self.form.survey(self._lines(size, *begin), self.rules.kept_messages)
        if survey.cursor is not None:
            self.point = ResumePoint(*begin, survey.cursor, frontier.placeholders)


TEXT = st.sampled_from([SHORT, LONG])
FIELDS = st.sampled_from([
    {}, {}, {}, {}, {"_extractable": True}, {"_extractable": False}, {"_extractable": 6},
    {"_restored": iso(NOW - 300)}, {"_restored": iso(NOW + 2000)},
])  # fmt: skip
BACK = st.integers(0, 12)


def thinking(text, signed):
    signature = {"thinkingSignature": "c2ln" * 20} if signed else {}
    return {"type": "thinking", "thinking": text, **signature}


@st.composite
def messages(draw):
    role = draw(st.sampled_from(["user", "assistant", "assistant", "thinks", "toolResult",
                                 "toolResult", "call", "bashExecution"]))  # fmt: skip
    text = draw(TEXT)
    if role in ("assistant", "thinks", "call"):
        blocks = [{"type": "text", "text": text}]
        if role == "thinks":
            blocks.insert(0, thinking(draw(TEXT), draw(st.booleans())))
        if role == "call":
            blocks.append({"type": "toolCall", "id": "c", "name": "exec", "arguments": {"a": text}})
        stop = "toolUse" if role == "call" else "stop"
        return {"role": "assistant", "content": blocks, "api": "anthropic-messages",
                "model": "claude-opus-5-5", "stopReason": stop}  # fmt: skip
    if role == "bashExecution":
        return {"role": role, "output": text}
    return {"role": role, "content": [{"type": "text", "text": text}], "toolCallId": "c",
            "toolName": "exec"}  # fmt: skip


@st.composite
def steps(draw):
    """Return the kind and contents of one line, and how far back its link goes."""
    kind = draw(st.sampled_from(["message"] * 14 + [
        "branch", "leaf", "side", "label", "compaction", "reset", "context_edit", "custom",
        "custom_message", "unknown", "again", "garbage", "rootless",
    ]))  # fmt: skip
    return kind, draw(messages()), draw(FIELDS), draw(BACK)


def entry_of(kind, entry, older):
    """Return an entry of a kind, made of a message; it may refer to `older`."""
    other = {key: value for key, value in entry.items() if key != "message"}
    match kind:
        case "branch":
            return {**entry, "parentId": older}
        case "side":
            return {**entry, "appendMode": "side"}
        case "rootless":
            return {key: value for key, value in entry.items() if key != "parentId"}
        case "leaf" | "context_edit":
            return {**other, "type": kind, "targetId": older}
        case "compaction":
            return {**other, "type": kind, "summary": LONG, "firstKeptEntryId": older}
        case "custom_message":
            return {**other, "type": kind, "content": LONG}
        case "label" | "reset" | "custom" | "unknown":
            return {**other, "type": kind, "data": {"text": LONG}}
        case _:
            return entry


def session(listed):
    lines, ids, last = [dump(HEADER)], [], None
    for number, (kind, message, fields, back) in enumerate(listed):
        older = ids[-1 - back] if back < len(ids) else (ids[0] if ids else None)
        if kind == "garbage":
            lines.append(f'{{"id": "{older}", \n'.encode())
            continue
        ident = older if kind == "again" and older else f"e{number}"
        entry = {"type": "message", "id": ident, "parentId": last, "message": message, **fields}
        lines.append(dump(entry_of(kind, entry, older)))
        ids.append(ident)
        last = ident
    return lines


def plans_nothing_more(reader, size, whole, tail):
    """Check that no more is extracted at the moments at which only the whole plan is due."""
    planned, due = {edit.start for edit in whole.edits}, whole.due_at
    while due is not None and (tail.due_at is None or due < tail.due_at):
        later = reader.plan_at(size, due)
        if not {edit.start for edit in later.edits} <= planned:
            return False
        due = later.due_at
    return True


def check_resumed(reader, size, whole, resumed):
    tail, point = resumed
    assert point.offset > 0
    skipped = os.pread(reader.descriptor, point.offset, 0)
    resumed_edits = {(edit.start, edit.end, edit.path) for edit in tail.edits}
    edits = {(edit.start, edit.end, edit.path) for edit in whole.edits}
    assert edits <= resumed_edits, "the resumed plan misses an edit"
    if not tail.edits:
        assert not whole.deferred
        assert not whole.edits
    elif not any(edit.entry_id.encode() in skipped for edit in tail.edits):
        assert not whole.deferred
        assert edits == resumed_edits, "the resumed plan has other edits"
    elif not point.placeholders:
        twice = {kept for kept in whole.kept if "twice" in kept.reason}
        assert whole.deferred or twice or edits == resumed_edits
    assert whole.due_at == tail.due_at or plans_nothing_more(reader, size, whole, tail)


@given(st.data())
@settings(max_examples=80)
def test_resumed_plan_of_a_growing_session_misses_nothing(data):
    """However an OpenClaw session grows, the plan of its tail has all edits that are due."""
    lines = session(data.draw(st.lists(steps(), min_size=4, max_size=36)))
    habits = Habits(remembers=data.draw(st.booleans()))
    rules = data.draw(st.sampled_from([
        RULES, Rules((), 2, 60),
        Rules(RULES.rules, 2, 60, signed_thinking="defer"),
    ]))  # fmt: skip
    check_growth(data, lines, "openclaw", rules, habits)


def check_growth(data, lines, form, rules, habits):
    """Add random lines to a session and plan it after each step, some time later."""
    descriptor = os.memfd_create("session")
    try:
        reader = Reader(descriptor, form, rules, habits, data.draw(st.sampled_from([0.0, 500.0])))
        now, at, size, resumed = NOW, 0, 0, 0
        while at < len(lines):
            more = data.draw(st.integers(1, 6))
            block = b"".join(lines[at : at + more])
            os.pwrite(descriptor, block, size)
            at, size, changed_at = at + more, size + len(block), now
            for _ in range(data.draw(st.integers(1, 2))):
                now += data.draw(st.sampled_from([1.0, 200.0, 700.0]))
                whole, tail = reader.plan_twice(size, now, changed_at)
                if tail is not None:
                    resumed += 1
                    check_resumed(reader, size, whole, tail)
    finally:
        os.close(descriptor)


GENERIC = st.builds(
    lambda kind, text, ident, fields: {"type": kind, **ident, "content": text, **fields},
    st.sampled_from(["user", "assistant", "assistant", "tool_call", "tool_result", "note"]),
    TEXT, st.sampled_from([{}, {"__id": "same"}]), FIELDS,
)  # fmt: skip


@given(st.data())
@settings(max_examples=40)
def test_resumed_plan_of_generic_entries_misses_nothing(data):
    """Entries without an id keep the one made from their line number."""
    first = {"type": "user", "__id": "first", "content": "go"}
    lines = [dump(entry) for entry in (first, *data.draw(st.lists(GENERIC, max_size=24)))]
    check_growth(data, lines, "generic", RULES, Habits())
