"""Evidence of a turn: results that share a byte budget, and an index of the calls."""

import re

from hypothesis import example, given
from hypothesis import strategies as st

from brainsurgeon.agents import FORMATS
from brainsurgeon.model.turns import ToolResult
from brainsurgeon.planning.evidence import (
    LEAST,
    OURS,
    SHORTEST,
    Evidence,
    Filled,
    by_priority,
    evidence_text,
    gather,
    index_lines,
    mark_for,
    marked,
    shares,
    shortened,
)
from building.world import Conversation

MARKER = re.compile(rb"\n\[\.\.\. ([0-9,]+) bytes left out: ([0-9]+)-([0-9]+) \.\.\.\]\n")
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=40).map(lambda text: text * 200)


def call(number, size, *, failed=False, index=None):
    result = ToolResult(str(number), failed)
    return Evidence(number, "exec", str(number), result, index or number, size)


@given(st.lists(st.integers(0, 100_000), max_size=40), st.integers(0, 200_000))
def test_each_share_is_at_least_an_equal_part_of_the_rest(sizes, budget):
    """A share is min(size, rest, max(2048, rest / waiting results)) bytes, or 0 if too short.

    What is left then goes to the texts that are cut, until all are whole.
    """
    granted, rest = shares(sizes, budget), budget
    for index, (size, share) in enumerate(zip(sizes, granted, strict=True)):
        fair = min(size, rest, max(LEAST, rest // (len(sizes) - index)))
        fair = fair if fair >= min(size, SHORTEST) else 0

        assert fair <= share <= size
        assert (share > 0) == (fair > 0)
        rest -= fair
    cut = [size for size, share in zip(sizes, granted, strict=True) if 0 < share < size]
    assert sum(granted) == budget if cut else sum(granted) <= budget


def test_what_short_texts_leave_goes_to_the_failed_ones_first():
    """The failed ones share it equally; what they do not need, the others share."""
    short = [33] * 15
    left = 32_000 - 15 * 33

    assert shares([45_000, *short], 32_000, failed=1) == [left, *short]
    assert shares([45_000, 45_000, *short], 32_000, failed=2) == [
        left // 2, left - left // 2, *short
    ]  # fmt: skip
    assert shares([3000, 45_000, 45_000, *short], 32_000, failed=1) == [
        3000, (left - 3000) // 2, left - 3000 - (left - 3000) // 2, *short
    ]  # fmt: skip
    assert shares([45_000, 45_000, *short], 32_000, failed=1) == [left - LEAST, LEAST, *short]


@given(TEXTS, st.integers(0, 40_000))
def test_shortened_text_has_both_ends_and_exact_offsets(text, room):
    """The bytes that the marker names complete the text again."""
    data = text.encode()
    short = shortened(data, room)

    assert len(short) <= room or not room
    if short == data or not short:
        return
    marker = MARKER.search(short)
    start, end = int(marker[2]), int(marker[3])
    assert int(marker[1].replace(b",", b"")) == end - start
    assert short[: marker.start()] + data[start:end] + short[marker.end() :] == data
    assert short.decode()


def test_shortened_text_has_a_head_of_1024_bytes():
    """A shortened text has a head of 1,024 bytes and a tail that fills its share to the byte."""
    data = bytes(range(97, 123)) * 3000
    short = shortened(data, 32_000)

    assert len(short) == 32_000
    assert short[:1024] == data[:1024]
    assert MARKER.match(short, 1024)


def test_evidence_fills_its_budget_to_the_byte():
    """Three large results and their index lines take exactly 32,000 bytes."""
    calls = [call(number, 50_000) for number in (1, 2, 3)]
    text = evidence_text(calls, 32_000, lambda evidence: b"x" * evidence.size)
    mixed = [call(1, 45_000, failed=True), *(call(number, 33) for number in range(2, 17))]
    filled = evidence_text(mixed, 32_000, lambda evidence: b"x" * evidence.size)

    assert len(text) == len(filled) == 32_000
    assert (text.count(b"bytes left out"), filled.count(b"bytes left out")) == (3, 1)


@given(st.lists(st.text("0123456789abcdef\n", max_size=400), max_size=4), st.integers(0, 3000))
def test_no_result_contains_the_mark_of_our_lines(texts, budget):
    """Our lines begin with it, no byte of a result has it, and equal results give an equal mark."""
    results = {str(number): text.encode() for number, text in enumerate(texts)}
    calls = [call(number, len(text)) for number, text in enumerate(texts)]
    text = evidence_text(calls, budget, lambda evidence: results[evidence.call_id])
    mark = mark_for(text)
    whole = marked(text, mark)
    ours = [line for line in whole.split(b"\n") if mark in line]

    assert mark == mark_for(text)
    assert len(whole) == len(text)
    assert all(line.startswith(mark + b" ") and line.count(mark) == 1 for line in ours)
    assert len(ours) == text.count(OURS)


def test_text_with_every_first_mark_gets_another():
    """A result that quotes the mark of an earlier output changes the mark."""
    shown = b"--- end ---"
    for _ in range(50):
        shown += b"\n" + mark_for(shown) + b" --- end ---"

        assert mark_for(shown) not in shown


@given(
    st.lists(st.tuples(TEXTS, st.booleans()), max_size=12), st.integers(0, 40_000),
)  # fmt: skip
@example([*[("", False)] * 10, ("\x80\x80\U00010000" * 200, True)], 668)
def test_evidence_never_exceeds_its_budget(results, budget):
    """Evidence stays within its budget, and the same results always give the same text."""
    texts = {str(number): text.encode() for number, (text, _) in enumerate(results)}
    calls = [
        call(number, len(text.encode()), failed=failed)
        for number, (text, failed) in enumerate(results)
    ]
    text, again = (
        evidence_text(calls, budget, lambda evidence: texts[evidence.call_id]) for _ in range(2)
    )

    assert len(text) <= budget
    assert text == again


def test_failed_results_then_newest_then_largest_come_first():
    """Two results of one entry are equally new, so the larger one comes first."""
    calls = [
        call(1, 10), call(2, 10, failed=True), call(3, 10, index=9), call(4, 99, index=9),
        call(5, 10, failed=True),
    ]  # fmt: skip

    assert [evidence.number for evidence in by_priority(calls)] == [5, 2, 4, 3, 1]


def test_index_line_shows_exit_code_duration_size_and_failure():
    """An index line shows the facts of the result, as far as the agent recorded them."""
    ran = Evidence(2, "exec", "c", ToolResult("c", True, "", 1, 156), 1, 523)

    assert ran.line == "2. exec [exit=1, 156 ms, 523 B] FAILED"
    assert call(3, 45_312).line == "3. exec [45,312 B]"
    assert Evidence(4, "read", "d").line == "4. read [no result]"


def test_index_beyond_its_budget_counts_the_older_calls():
    """The newest calls stay, and the first line gives the number of the others."""
    calls = [call(number, 1) for number in range(1, 101)]
    lines = index_lines(calls, 200)

    assert lines[0] == f"[... {100 - len(lines) + 1} older calls ...]"
    assert lines[-1] == "100. exec [1 B]"
    assert sum(len(line) + 1 for line in lines[1:]) <= 200


def test_gather_pairs_a_result_with_the_last_call_of_its_id():
    """Models reuse ids in later turns; a result without a call has a line of its own."""
    conversation = Conversation()
    for text in ("one", "second"):
        conversation.turn(text)
    conversation.result("alone", call="nobody")
    entries = [(number, Filled(line)) for number, line in enumerate(conversation.lines)]
    calls = gather(FORMATS["openclaw"], entries)

    assert [(evidence.line, evidence.index) for evidence in calls] == [
        ("1. exec [3 B]", 3), ("2. exec [6 B]", 7), ("3. unknown call [5 B]", 9),
    ]  # fmt: skip
