"""What a turn is said to have come to, made of its own words."""

import json

from brainsurgeon.model.turns import ToolCall, ToolResult, TurnStep
from brainsurgeon.planning.archive import Calls, archive_text, outcome_in, outcomes_of


def summary_of(closing, note=None):
    return Calls().summary(closing, note)


def test_the_keys_stand_in_order():
    """A structured summary is one JSON object with five keys, always in the same order."""
    closing = "Done. Shall I push? It works.\nWhat about Windows?"
    calls, made = Calls(), (("read", "/c"), ("write", "/b"), ("exec", None), ("read", "/a"))
    calls.add(TurnStep("reply", calls=tuple(
        ToolCall(f"{number}", tool, arguments={"path": path})
        for number, (tool, path) in enumerate(made)
    )))  # fmt: skip
    for finding in ("exit 1", "no such file"):
        calls.add(TurnStep("result", results=(ToolResult("2", failed=True, finding=finding),)))
    said = json.loads(calls.summary(closing, None).text)

    assert list(said) == [
        "outcome", "key_findings", "files_touched", "tools_used", "open_questions",
    ]  # fmt: skip
    assert said["outcome"] == closing
    assert said["key_findings"] == ["exit 1", "no such file"]
    assert said["files_touched"] == ["/b", "/c", "/a"]
    assert said["tools_used"] == {"read": 2, "write": 1, "exec": 1, "exec!": 1}
    assert said["open_questions"] == ["Shall I push?", "What about Windows?"]


def test_a_note_of_the_agent_is_the_outcome():
    """What the agent says of a task stands before what it said last."""
    said = json.loads(summary_of("Done?", "the parser is fixed").text)

    assert said["outcome"] == "the parser is fixed"


def test_a_long_answer_keeps_its_two_ends():
    """Beyond the bound the two ends stand, with the bytes that were left out between them."""
    text = "a" * 1000 + "ü" * 500 + "z" * 1000
    said = summary_of(text).outcome
    head, marker, tail = said.split("\n")

    assert len(said.encode()) <= 2000
    assert text.startswith(head)
    assert text.endswith(tail)
    start, end = len(head.encode()), len(text.encode()) - len(tail.encode())
    assert marker == f"[... {end - start:,} bytes left out: {start}-{end} ...]"
    assert summary_of(text[:1000]).outcome == text[:1000]


def test_at_most_five_questions_are_quoted():
    """Of an answer that asks more, the first five count."""
    asks = "".join(f"Is it {n}? " for n in range(9))
    said = json.loads(summary_of(asks).text)

    assert said["open_questions"] == [f"Is it {n}?" for n in range(5)]


def test_a_long_answer_without_an_end_of_a_sentence_is_searched_once():
    """The time to find questions grows with the answer, not with its square."""
    said = json.loads(summary_of("x" * 10_000_000).text)

    assert said["open_questions"] == []


def test_an_archive_that_nests_too_deeply_is_its_own_outcome():
    """What somebody else wrote behind the mark need not be JSON that can be parsed."""
    assert outcome_in(archive_text("a", "[" * 100_000)) == "[" * 100_000


def test_the_text_names_its_archive():
    """An archive begins with its mark and its id, whatever characters that has."""
    assert archive_text("4f9d2a11", "so") == "[archived turn]\narchive: 4f9d2a11\n\nso"
    assert archive_text("a b", "so").startswith("[archived turn]\narchive: ~")


def test_a_row_of_archives_tells_their_outcomes():
    """What several turns came to is listed in order, of long outcomes the beginning."""
    first = archive_text("a", summary_of("first").text)
    said = outcomes_of(
        [summary_of(first).outcome, summary_of("third", "noted").outcome, "x" * 5000]
    )

    assert json.loads(said) == {"outcomes": ["first", "noted", f"{'x' * 666}…"]}
    assert outcome_in(archive_text("b", outcomes_of(["first", "second"]))) == "first; second"
