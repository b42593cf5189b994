"""What a turn is said to have come to, made of its own words."""

import json

from msgspec.structs import replace

from brainsurgeon.planning.summaries import (
    SummaryFacts,
    archive_text,
    closing_facts,
    outcome_in,
    outcomes_of,
    shortened,
    summary_of,
)

TURN = replace(
    closing_facts("Done. Shall I push? It works.\nWhat about Windows?", 2000),
    failures=("exit 1", "no such file"),
    files=("/b", "/c", "/a"),
    tools={"read": 2, "write": 1, "exec": 2, "exec!": 1},
)


def test_the_keys_stand_in_order():
    """A structured summary is one JSON object with five keys, always in the same order."""
    said = json.loads(summary_of(TURN))

    assert list(said) == [
        "outcome", "key_findings", "files_touched", "tools_used", "open_questions",
    ]  # fmt: skip
    assert said["outcome"] == TURN.closing
    assert said["key_findings"] == ["exit 1", "no such file"]
    assert said["files_touched"] == ["/b", "/c", "/a"]
    assert said["tools_used"] == {"read": 2, "write": 1, "exec": 2, "exec!": 1}
    assert said["open_questions"] == ["Shall I push?", "What about Windows?"]


def test_a_note_of_the_agent_is_the_outcome():
    """What the agent says of a task stands before what it said last."""
    noted = SummaryFacts("Done?", note="the parser is fixed")

    assert json.loads(summary_of(noted))["outcome"] == "the parser is fixed"


def test_a_long_answer_keeps_its_two_ends():
    """Beyond the bound the two ends stand, with the bytes that were left out between them."""
    text = "a" * 1000 + "ü" * 500 + "z" * 1000

    said = shortened(text, 2000)

    assert said == f"{'a' * 1000}\n[... 1,000 bytes left out ...]\n{'z' * 1000}"
    assert shortened(text[:2000], 2000) == text[:2000]


def test_at_most_five_questions_are_quoted():
    """Of an answer that asks more, the first five count."""
    asks = closing_facts("".join(f"Is it {n}? " for n in range(9)), 2000)

    said = json.loads(summary_of(asks))

    assert said["open_questions"] == [f"Is it {n}?" for n in range(5)]


def test_the_text_names_its_archive():
    """An archive begins with its mark and its id, whatever characters that has."""
    assert archive_text("4f9d2a11", "so") == "[archived turn]\narchive: 4f9d2a11\n\nso"
    assert archive_text("a b", "so").startswith("[archived turn]\narchive: ~")


def test_a_row_of_archives_tells_their_outcomes():
    """What several turns came to is listed in order, each taken from its own archive's text."""
    first = archive_text("a", summary_of(SummaryFacts("first")))
    several = [SummaryFacts(first), SummaryFacts("second"), SummaryFacts("third", note="noted")]

    said = outcomes_of(several)

    assert json.loads(said) == {"outcomes": ["first", "second", "noted"]}
    assert outcome_in(archive_text("b", said)) == "first; second; noted"
