"""The plan for a whole file, made from the decisions about its values."""

from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

from brainsurgeon.agents import FORMATS
from brainsurgeon.files.reading import head
from brainsurgeon.formats.recognition import recognise
from brainsurgeon.model.records import Extraction, FieldRecord, PrintedAnswer, Records, Request
from brainsurgeon.model.rules import Rule, Rules
from building.claude import ClaudeConversation
from building.format_reading import open_lines, plan, snapshot
from building.world import SAMPLES, Conversation, dump

NOW = datetime(2026, 2, 20, 12, tzinfo=UTC).timestamp()
RULES = Rules(
    rules=(Rule("tool_result", (), 500, 3), Rule("thinking", (), 500, 3)), keep_after_restore=600.0
)


def plan_of(data, rules=RULES, requests=(), form="openclaw", **keys):
    records = Records(requests=requests)
    return plan(snapshot(FORMATS[form], data, records, NOW, **keys), rules)


@pytest.mark.parametrize(
    "rules",
    [
        RULES,
        replace(RULES, giant=40),
        replace(RULES, max_messages=9),
        replace(RULES, rules=(Rule("tool_call", (), 60, 1),), superseded=True),
        replace(RULES, exclude_tools=("B*",), drop_signatures="all"),
    ],
)
def test_values_that_no_rule_extracts_affect_only_what_is_reported(rules):
    """Short values are judged only to explain: edits, warnings and times are the same without."""
    seen = 0
    for path in sorted(SAMPLES.rglob("*.jsonl")):
        data = path.read_bytes()
        with open_lines(data) as lines:
            form = recognise(head(lines), FORMATS).form
        if form is None:
            continue
        session = snapshot(form, data, now=NOW)
        quick, explained = plan(session, rules), plan(session, rules, explain=True)
        assert len(quick.kept) <= len(explained.kept)
        reported = {"kept": (), "decisions": (), "unsent": ()}
        assert replace(quick, **reported) == replace(explained, **reported)
        went = [(one.entry_id, one.path) for one in explained.decisions if one.extracts]
        assert sorted(went, key=str) == sorted(
            ((one.entry_id, one.path) for one in explained.extracted), key=str
        )
        stays = sum(kept.values for kept in explained.kept)
        assert stays == len(explained.decisions) - len(went)
        seen += len(quick.removals)
    assert seen


def test_value_without_characters_is_extracted_if_values_of_any_length_are():
    """Beyond `max_messages`, an empty block of thinking is extracted like any other value."""
    talk = ClaudeConversation()
    talk.user()
    ident = talk.assistant({"type": "thinking", "thinking": ""})
    talk.user()
    talk.assistant()

    planned = plan_of(talk.bytes(), replace(RULES, max_messages=1), form="claude-code")

    assert (ident, b"[]") in [(removal.entry_id, removal.new) for removal in planned.removals]


def test_blocked_session_is_due_when_the_branch_of_the_signature_is_dead():
    """A session blocked by a signature off the branch is planned again once the branch is dead."""
    talk = Conversation()
    begin = talk.result("x" * 900)
    block = {"type": "thinking", "thinking": "", "thinkingSignature": "S" * 900}
    talk.assistant([block], api="anthropic-messages")
    talk.lines[-1]["message"]["model"] = "claude-opus-5-1"
    talk.last = begin
    for _ in range(4):
        talk.user()
    talk.assistant()

    planned = plan_of(talk.bytes(), branches_die_at=NOW + 60)

    assert "would break" in str(planned.deferred)
    assert planned.due_at == NOW + 60
    assert plan_of(talk.bytes()).removals


@pytest.mark.parametrize(("pin", "due_at"), [("true", NOW), ("3", NOW + 600), (None, NOW + 600)])
def test_restored_value_is_due_at_once_if_its_entry_is_forced(pin, due_at):
    """That the agent's rewrite dropped `_extractable: true` makes no difference."""
    conversation = Conversation()
    conversation.user()
    ident = conversation.result("[[extracted-00000002]]")
    value = Extraction(
        ident, ident, ("message", "content", 0, "text"), "tool_result", "exec", 900, block=False,
        call=None, parent=None, rest=None, tokens=300, id=1, session_id=1, replacement=None,
        size=902,
        digest=b"d", blob_id=1, run_id=None, archive_id=None, extracted_at=0.0, restored_at=None,
        tombstone=None, state="standing",
    )  # fmt: skip
    pins = (FieldRecord(1, 1, ident, "_extractable", None, b"", pin),) if pin else ()
    request = Request(1, "restore", NOW, ident, id=7)
    records = Records((value,), fields=pins, requests=(request,), own=1)

    planned = plan(snapshot(FORMATS["openclaw"], conversation.bytes(), records, NOW), RULES)

    assert [edit.extraction_id for edit in planned.restorations] == [1]
    assert planned.due_at == due_at


@pytest.mark.parametrize(
    ("fields", "warnings", "removals"),
    [
        ({"_extractable": "yes"}, 1, 2),
        ({"_restored": "yesterday"}, 1, 2),
        ({"_extractable": -1, "_restored": "2099-01-01T00:00:00Z"}, 2, 2),
        ({"_extractable": False}, 0, 0),
        ({"_restored": "2026-02-20T11:55:00Z"}, 0, 0),
    ],
)
def test_invalid_field_is_ignored_with_one_warning(fields, warnings, removals):
    """Each invalid field gives one warning that names the entry; a valid field gives none."""
    conversation = Conversation()
    conversation.user()
    ident = conversation.result("x" * 2000, details={"aggregated": "y" * 2000}, **fields)
    for _ in range(4):
        conversation.assistant()

    result = plan_of(conversation.bytes())

    assert len(result.removals) == removals
    assert len(result.warnings) == warnings
    assert all(ident in warning for warning in result.warnings)
    assert result.due_at == (NOW + 300 if fields.get("_restored", "")[:4] == "2026" else None)


def test_printed_answer_in_an_entry_whose_id_occurs_twice_stays():
    """The answer of a restore is left alone if another entry has the id of the entry with it."""
    conversation = Conversation()
    conversation.user()
    conversation.call(arguments={"action": "restore", "entry": "0000000a"})
    ident = conversation.result("restored 1234abcd: 40 lines")
    conversation.assistant([{"type": "thinking", "thinking": "hm"}], ident=ident)
    answer = PrintedAnswer.of("restored 1234abcd: 40 lines", "1234abcd")
    request = Request(1, "redact", NOW, "0000000a", answer=answer, id=7)
    result = plan_of(conversation.bytes(), requests=(request,))

    assert ident not in {edit.entry_id for edit in result.edits}
    assert result.handled.requests == (7,)


def test_restore_call_beside_a_call_whose_action_is_an_object():
    """The restore call is shortened; a parallel call of another tool may have any arguments."""
    conversation = Conversation()
    conversation.user()
    restore = {"action": "restore", "entry": "0000000a", "why": "needed"}
    conversation.assistant([
        {"type": "toolCall", "id": "call_1", "name": "ours", "arguments": restore},
        {"type": "toolCall", "id": "call_2", "name": "click", "arguments": {"action": {"x": 1}}},
    ], stop="toolUse")  # fmt: skip
    conversation.result("restored 1234abcd: 40 lines", "ours", "call_1")
    conversation.result("clicked", "click", "call_2")
    conversation.assistant()
    answer = PrintedAnswer.of("restored 1234abcd: 40 lines", "1234abcd")
    request = Request(1, "redact", NOW, "0000000a", answer=answer, id=7)
    result = plan_of(conversation.bytes(), requests=(request,))

    assert [removal.kind for removal in result.removals] == ["tool_call", "tool_result"]
    assert result.handled.requests == (7,)


def test_printed_answer_is_shortened_while_a_field_of_its_entry_changes():
    """A change of `_extractable` and the shorter answer are edits of the same line."""
    conversation = Conversation()
    ident = conversation.result("restored 1234abcd: 40 lines", _extractable=7)
    answer = PrintedAnswer.of("restored 1234abcd: 40 lines", "1234abcd")
    asked = (
        Request(1, "redact", NOW, ident, answer=answer, id=7),
        Request(1, "set", NOW, ident, value=5, id=8),
    )
    result = plan_of(conversation.bytes(), requests=asked)

    assert [edit.name for edit in result.fields] == ["_extractable", "_redacted"]
    assert [removal.how for removal in result.removals] == ["redact"]


def test_control_entry_is_extracted_with_the_request_for_it():
    """No rule takes its values: they are read when somebody asks for it, not a run later."""
    conversation = Conversation()
    conversation.user()
    ident = conversation.entry("custom", customType="notes", data={"text": "x" * 2000})
    conversation.assistant()
    request = Request(1, "set", NOW, ident, value=True, id=8)

    assert plan_of(conversation.bytes()).removals == ()
    [removal] = plan_of(conversation.bytes(), requests=(request,)).removals
    assert (removal.entry_id, removal.path) == (ident, ("data", "text"))


def test_extractable_number_may_exceed_keep_recent():
    """`_extractable: N` keeps a value among the newest N messages, however large N is."""
    conversation = Conversation()
    inside = conversation.result("x" * 2000, _extractable=21)
    outside = conversation.result("x" * 2000, _extractable=19)
    for _ in range(19):
        conversation.assistant()

    result = plan_of(conversation.bytes())

    assert [edit.entry_id for edit in result.removals] == [outside]
    assert inside not in {edit.entry_id for edit in result.removals}
    assert {kept.reason for kept in result.kept} >= {"recent by its _extractable"}


def test_value_without_gain_stays_unless_forced():
    """A value that is no longer than its placeholder is extracted only if forced."""
    ident = "i" * 100
    conversation = Conversation()
    conversation.result("x" * 114, ident=ident)
    conversation.result("x" * 113, ident=f"{ident}2", _extractable=True)
    conversation.result("x" * 116, ident=f"{ident}3")
    for _ in range(4):
        conversation.assistant()

    result = plan_of(conversation.bytes(), Rules((Rule("tool_result", (), 10, 3),)))

    assert [edit.entry_id[100:] for edit in result.removals] == ["2", "3"]
    assert {kept.reason for kept in result.kept if kept.kind == "tool_result"} == {"no gain"}


def test_entries_with_a_duplicate_id_are_left_unchanged():
    """Readers differ in which of the two entries the id means."""
    conversation = Conversation()
    conversation.result("x" * 2000, ident="twice")
    conversation.result("y" * 2000, ident="twice")
    unique = conversation.result("z" * 2000)
    for _ in range(4):
        conversation.assistant()
    result = plan_of(conversation.bytes())

    assert [edit.entry_id for edit in result.removals] == [unique]
    kept = {group.reason: group.values for group in result.kept}
    assert kept["not extractable: its id occurs twice in the file"] == 2


def test_unterminated_last_line_is_never_extracted():
    """The line may still grow, so even a forced value waits for its newline."""
    line = {"type": "message", "id": "a1", "parentId": None, "_extractable": True,
            "message": {"role": "user", "content": "x" * 2000}}  # fmt: skip
    head = Conversation().bytes()

    assert [edit.entry_id for edit in plan_of(head + dump(line)).removals] == ["a1"]
    assert plan_of(head + dump(line)[:-1]).removals == ()


def test_summary_of_a_plan_groups_the_digits_of_its_counts():
    """Large numbers are printed as everywhere else: with a comma after each thousand."""
    conversation = Conversation()
    for number in range(1200):
        conversation.turn(f"{number} " * 300)

    assert plan_of(conversation.bytes()).summary == "1,199 extracted"


@pytest.mark.parametrize(("chars", "leaves"), [(29, False), (30, True)])
def test_value_leaves_a_line_of_fixed_length_if_there_is_room_for_a_number(chars, leaves):
    """The store may add up to ten characters to a placeholder; the line's other values leave."""
    texts = [{"type": "input_text", "text": "x" * length} for length in (chars, 400)]
    items = [
        {"type": "function_call", "call_id": "call_1", "name": "exec", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "call_1", "output": texts},
    ]
    meta = {"id": "01a22365-f7dc-74e3-8c6f-0d1f3a61e424", "history_mode": "paginated"}
    lines = [
        {"type": "session_meta", "payload": meta},
        *({"type": "response_item", "payload": item} for item in items),
        {"type": "event_msg", "payload": {"type": "task_complete", "turn_id": "t"}},
    ]
    planned = plan_of(
        b"".join(map(dump, lines)), Rules((Rule("tool_result", (), 5, 0),)), form="codex"
    )

    assert [edit.path[1] for edit in planned.removals] == ([0, 1] if leaves else [1])
    assert all(len(edit.new) == edit.end - edit.start for edit in planned.removals)


@pytest.mark.parametrize(("drop", "leaves"), [("broken", True), ("", False)])
def test_signatures_leave_an_open_turn_only_on_request(drop, leaves):
    """A hollow signature, which the provider refuses, would else block the turn for ever."""
    talk = Conversation()
    talk.user()
    block = {"type": "thinking", "thinking": "", "thinkingSignature": "S" * 900}
    talk.assistant([block, {"type": "text", "text": "wait"}], api="anthropic-messages")
    talk.lines[-1]["message"]["model"] = "claude-opus-5-1"
    talk.result("x" * 900)

    planned = plan_of(talk.bytes(), replace(RULES, drop_signatures=drop))

    assert [edit.kind for edit in planned.removals] == (["thinking"] if leaves else [])
