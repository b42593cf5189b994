"""Facts collected of a turn for its archive, and the summary made from them."""

import json
import tracemalloc

from brainsurgeon.formats.base import call_facts, result_facts
from brainsurgeon.model.transcript import Entry
from brainsurgeon.model.turns import ToolCall, ToolResult, TurnStep
from brainsurgeon.planning.archiving import Calls, Middles, archive_text, outcome_in, outcomes_of


def entry_of(step):
    """Return a step of a turn as an entry."""
    return Entry(
        0, role=step.role, closes=step.closes, text_path=step.text_path,
        calls=call_facts(step.calls), results=result_facts(step.results),
    )  # fmt: skip


def calls_of(*steps):
    calls = Calls(map(entry_of, steps))
    for step in steps:
        calls.read(step)
    return calls


def summary_of(closing, note=None):
    return Calls().summary(closing, note)


def test_summary_has_five_keys_in_order():
    """A summary is one JSON object with five keys, always in the same order."""
    closing = "Done. Shall I push? It works.\nWhat about Windows?"
    tools = (("read", "/c"), ("write", "/b"), ("exec", None), ("read", "/a"))
    called = TurnStep("reply", calls=tuple(
        ToolCall(f"{number}", tool, arguments={"path": path})
        for number, (tool, path) in enumerate(tools)
    ))  # fmt: skip
    failed = [
        TurnStep("result", results=(ToolResult("2", failed=True, finding=finding),))
        for finding in ("exit 1", "no such file")
    ]
    summary = json.loads(calls_of(called, *failed).summary(closing, None).text)

    assert list(summary) == [
        "outcome", "key_findings", "files_touched", "tools_used", "open_questions",
    ]  # fmt: skip
    assert summary["outcome"] == closing
    assert summary["key_findings"] == ["exit 1", "no such file"]
    assert summary["files_touched"] == ["/b", "/c", "/a"]
    assert summary["tools_used"] == {"read": 2, "write": 1, "exec": 1, "exec!": 1}
    assert summary["open_questions"] == ["Shall I push?", "What about Windows?"]


def test_note_of_the_agent_is_the_outcome():
    """A note about the task takes precedence over the last reply."""
    summary = json.loads(summary_of("Done?", "the parser is fixed").text)

    assert summary["outcome"] == "the parser is fixed"


def test_long_outcome_keeps_both_ends():
    """The marker between them names the bytes left out; together they have at most 2,000 bytes."""
    text = "a" * 1000 + "ü" * 500 + "z" * 1000
    outcome = summary_of(text).outcome
    head, marker, tail = outcome.split("\n")

    assert len(outcome.encode()) <= 2000
    assert text.startswith(head)
    assert text.endswith(tail)
    start, end = len(head.encode()), len(text.encode()) - len(tail.encode())
    assert marker == f"[... {end - start:,} bytes left out: {start}-{end} ...]"
    assert summary_of(text[:1000]).outcome == text[:1000]


def test_summary_quotes_at_most_five_questions():
    """Of a reply with nine questions, the first five are quoted."""
    questions = "".join(f"Is it {n}? " for n in range(9))
    summary = json.loads(summary_of(questions).text)

    assert summary["open_questions"] == [f"Is it {n}?" for n in range(5)]


def test_questions_of_a_long_reply_are_found_in_linear_time():
    """A reply of 10 million characters without the end of a sentence has no questions."""
    summary = json.loads(summary_of("x" * 10_000_000).text)

    assert summary["open_questions"] == []


def test_archive_that_cannot_be_parsed_is_its_own_outcome():
    """Text of others after the mark need not be JSON that can be parsed."""
    assert outcome_in(archive_text("a", "[" * 100_000)) == "[" * 100_000


def test_archive_text_begins_with_mark_and_id():
    """An archive begins with its mark and its id, which is encoded if it is unsafe."""
    assert archive_text("4f9d2a11", "so") == "[archived turn]\narchive: 4f9d2a11\n\nso"
    assert archive_text("a b", "so").startswith("[archived turn]\narchive: ~")


def test_archive_of_archives_lists_their_outcomes():
    """The outcomes are listed in order, long ones shortened."""
    first = archive_text("a", summary_of("first").text)
    text = outcomes_of(
        [summary_of(first).outcome, summary_of("third", "noted").outcome, "x" * 5000]
    )

    assert json.loads(text) == {"outcomes": ["first", "noted", f"{'x' * 666}…"]}
    assert outcome_in(archive_text("b", outcomes_of(["first", "second"]))) == "first; second"


def test_calls_of_a_turn_take_little_memory():
    """Each call with its result takes less than 200 bytes, and no texts are kept."""
    count, steps = 10_000, []
    for number in range(count):
        called = (ToolCall(f"c{number}", "exec", arguments={"path": "/w/a"}),)
        steps.append(TurnStep("reply", f"e{number}", text="x" * 5000, calls=called))
        steps.append(TurnStep("result", f"r{number}", results=(ToolResult(f"c{number}"),)))
    entries = [*map(entry_of, steps)]
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    calls = Calls(entries)
    for step in steps:
        calls.read(step)
    memory = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()

    assert memory < 200 * count
    assert (calls.tools.total(), calls.summary("", None).failed) == (count, 0)


def test_failed_call_is_counted_if_its_result_comes_first():
    """A failed call is listed under its tool, whichever of call and result is read first."""
    last = TurnStep("reply", text="so", text_path=("content",), closes=True)
    calls = calls_of(
        TurnStep("result", results=(ToolResult("b", failed=True, finding="no"),)),
        TurnStep("reply", calls=(ToolCall("a", "read"), ToolCall("b", "exec"))),
        TurnStep("result", results=(ToolResult("a"),)),
        last,
    )
    summary = calls.summary(last.text, None)

    assert calls.why_open(entry_of(last)) is None
    assert (calls.tools.total(), summary.failed) == (2, 1)
    assert json.loads(summary.text)["tools_used"] == {"read": 1, "exec": 1, "exec!": 1}


def test_summary_lists_are_capped():
    """Five newest findings of 160 characters, and twenty files, written ones first."""
    failed = tuple(
        ToolResult(f"c{number}", failed=True, finding=f"{number}" * 200) for number in range(7)
    )
    files = [f"/{number}" for number in range(25)]
    called = tuple(
        ToolCall(name, tool, arguments={"path": name})
        for tool, names in (("read", files), ("apply_patch", ["/24", "/c"])) for name in names
    )  # fmt: skip
    calls = calls_of(TurnStep("result", results=failed), TurnStep("reply", calls=called))

    summary = json.loads(calls.summary("", None).text)
    assert summary["key_findings"] == [f"{number}" * 160 for number in range(2, 7)]
    assert summary["files_touched"] == ["/24", "/c", *files[:18], "+6"]


def test_middle_excludes_prompt_and_closing_entry():
    """The middle of an archive is strictly between its prompt and its closing entry."""
    middles = Middles([(20, 23), (5, 8)])

    assert [offset for offset in range(30) if offset in middles] == [6, 7, 21, 22]
