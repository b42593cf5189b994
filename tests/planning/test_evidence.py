"""How results share a budget: failed ones first, both ends of what does not fit, true offsets."""

import re

from hypothesis import given
from hypothesis import strategies as st

from brainsurgeon.formats import FORMATS
from brainsurgeon.model.turns import ToolResult
from brainsurgeon.planning.evidence import (
    LEAST,
    SHORTEST,
    Evidence,
    Filled,
    by_priority,
    evidence_text,
    gather,
    index_lines,
    shares,
    shortened,
)
from building.world import Conversation

MARKER = re.compile(rb"\n\[\.\.\. ([0-9,]+) bytes left out: ([0-9]+)-([0-9]+) \.\.\.\]\n")
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=40).map(lambda text: text * 200)


def call(number, size, *, failed=False, place=None):
    result = ToolResult(str(number), failed)
    return Evidence(number, "exec", str(number), result, place or number, size)


@given(st.lists(st.integers(0, 100_000), max_size=40), st.integers(0, 200_000))
def test_the_shares_never_exceed_the_budget(sizes, budget):
    """Each gets at most its size; nobody is cut below what is worth showing."""
    given = shares(sizes, budget)

    assert sum(given) <= budget
    for size, share in zip(sizes, given, strict=True):
        assert share in (0, size) or SHORTEST <= share < size


@given(st.lists(st.integers(1, 100_000), min_size=1, max_size=40), st.integers(0, 200_000))
def test_each_gets_an_equal_share_of_what_is_left_and_at_least_2048(sizes, budget):
    """min(size, left, max(2048, left / waiting)) bytes, one after the other."""
    left = budget
    for index, share in enumerate(shares(sizes, budget)):
        fair = min(sizes[index], left, max(LEAST, left // (len(sizes) - index)))

        assert share == (fair if fair >= min(sizes[index], SHORTEST) else 0)
        left -= share


@given(TEXTS, st.integers(0, 40_000))
def test_what_is_cut_has_both_ends_and_true_offsets(text, room):
    """The marker says which bytes are missing, and they put the text together again."""
    data = text.encode()
    cut = shortened(data, room)

    assert len(cut) <= room or not room
    if cut == data or not cut:
        return
    marker = MARKER.search(cut)
    start, end = int(marker[2]), int(marker[3])
    assert int(marker[1].replace(b",", b"")) == end - start
    assert cut[: marker.start()] + data[start:end] + cut[marker.end() :] == data
    assert cut.decode()


def test_the_head_has_1024_bytes_and_the_rest_is_the_tail():
    """A cut text takes its share to the byte."""
    data = bytes(range(97, 123)) * 3000
    cut = shortened(data, 32_000)

    assert len(cut) == 32_000
    assert cut[:1024] == data[:1024]
    assert MARKER.match(cut, 1024)


def test_32000_bytes_to_the_byte():
    """Three large results fill the budget completely, lines of the index included."""
    calls = [call(number, 50_000) for number in (1, 2, 3)]
    text = evidence_text(calls, 32_000, lambda one: b"x" * one.size)

    assert len(text) == 32_000
    assert text.count(b"bytes left out") == 3


@given(
    st.lists(st.tuples(TEXTS, st.booleans()), max_size=12), st.integers(0, 40_000),
)  # fmt: skip
def test_the_text_never_exceeds_the_budget_and_is_always_the_same(results, budget):
    """Whatever the results are; failed ones stand first."""
    texts = {str(number): text.encode() for number, (text, _) in enumerate(results)}
    calls = [
        call(number, len(text.encode()), failed=failed)
        for number, (text, failed) in enumerate(results)
    ]
    text, again = (evidence_text(calls, budget, lambda one: texts[one.call_id]) for _ in range(2))

    assert len(text) <= budget
    assert text == again


def test_failures_come_first_then_the_newest_then_the_larger():
    """Two results in one entry are equally new, so the larger one goes first."""
    calls = [
        call(1, 10), call(2, 10, failed=True), call(3, 10, place=9), call(4, 99, place=9),
        call(5, 10, failed=True),
    ]  # fmt: skip

    assert [one.number for one in by_priority(calls)] == [5, 2, 4, 3, 1]


def test_the_line_of_a_call_has_the_facts_of_its_result():
    """Exit code, duration, size and failure, as far as the agent recorded them."""
    ran = Evidence(2, "exec", "c", ToolResult("c", True, "", 1, 156), 1, 523)

    assert ran.line == "2. exec [exit=1, 156 ms, 523 B] FAILED"
    assert call(3, 45_312).line == "3. exec [45,312 B]"
    assert Evidence(4, "read", "d").line == "4. read [no result]"


def test_an_index_that_is_too_long_says_how_many_calls_are_older():
    """It is cut like the results, so that no answer has more than twice the budget."""
    calls = [call(number, 1) for number in range(1, 101)]
    lines = index_lines(calls, 200)

    assert lines[0] == f"[... {100 - len(lines) + 1} older calls ...]"
    assert lines[-1] == "100. exec [1 B]"
    assert sum(len(line) + 1 for line in lines[1:]) <= 200


def test_each_result_belongs_to_the_call_before_it_with_its_id():
    """Models use an id again in a later turn; a result without a call has a line of its own."""
    talk = Conversation()
    for text in ("one", "second"):
        talk.turn(text)
    talk.result("alone", call="nobody")
    entries = [(number, Filled(line)) for number, line in enumerate(talk.lines)]
    calls = gather(FORMATS["openclaw"], entries)

    assert [(one.line, one.place) for one in calls] == [
        ("1. exec [3 B]", 3), ("2. exec [6 B]", 7), ("3. unknown call [5 B]", 9),
    ]  # fmt: skip
