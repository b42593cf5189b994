"""What is kept of a turn while its entries are met, and afterwards: little, and all that counts."""

import tracemalloc

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from brainsurgeon.model.turns import ToolCall, ToolResult, TurnStep
from brainsurgeon.planning.archive import Offsets, Turn, TurnEntry
from brainsurgeon.planning.summaries import SummaryFacts, closing_facts, outcomes_of, summary_of

WORDS = st.text("ab ü.?\n", max_size=700)


@given(WORDS, st.none() | WORDS, st.integers(1, 120))
def test_what_is_kept_of_a_turn_says_the_same(text, note, chars):
    """A summary of what is kept is that of the whole text, alone and in a row of turns."""
    kept = replace(closing_facts(text, chars), note=note)
    whole = SummaryFacts(text, questions=kept.questions, note=note)

    assert kept.questions == closing_facts(text, 700).questions
    assert summary_of(kept, chars) == summary_of(whole, chars)
    assert outcomes_of([kept, whole], chars) == outcomes_of([whole, whole], chars)


def step(turn, number, said):
    """Let a turn go on with an entry that continues the one before it."""
    entry = TurnEntry(number * 100, f"e{number}", said)
    turn = turn or Turn(1, entry)
    turn.add(entry, "assistant")
    return turn


def test_an_entry_takes_little_room():
    """A turn of many entries keeps less than a hundred bytes of each, and of their texts none."""
    count = 20_000
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    turn = step(None, 0, TurnStep("prompt"))
    for number in range(1, count, 2):
        called = (ToolCall(f"c{number}", "exec", ("/w/a",)),)
        step(turn, number, TurnStep("reply", f"e{number - 1}", text="x" * 5000, calls=called))
        answered = (ToolResult(f"c{number}"),)
        step(turn, number + 1, TurnStep("result", f"e{number}", results=answered))
    turn.end(None)
    counted = turn.facts.calls, turn.facts.failed
    turn.facts = None
    took = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()

    assert took < 100 * count
    assert (counted, turn.entries.flaws) == ((count // 2, 0), {})


def test_a_failed_call_is_counted_whatever_comes_first():
    """Results may stand before their calls; each failed call is told with its tool."""
    turn = step(None, 0, TurnStep("prompt"))
    step(turn, 1, TurnStep("result", "e0", results=(ToolResult("b", failed=True, finding="no"),)))
    step(turn, 2, TurnStep("reply", "e1", calls=(ToolCall("a", "read"), ToolCall("b", "exec"))))
    step(turn, 3, TurnStep("result", "e2", results=(ToolResult("a"),)))
    step(turn, 4, TurnStep("reply", "e3", text="so", text_path=("content",), closes=True))
    turn.end(None)

    assert turn.stays.open is None
    assert (turn.facts.calls, turn.facts.failed) == (2, 1)
    assert turn.facts.tools == {"read": 1, "exec": 1, "exec!": 1}


def test_lists_are_capped():
    """The five newest findings, 160 characters each, and twenty files, the written ones first."""
    turn = step(None, 0, TurnStep("prompt"))
    for number in range(7):
        failed = ToolResult(f"c{number}", failed=True, finding=f"{number}" * 200)
        step(turn, number + 1, TurnStep("result", f"e{number}", results=(failed,)))
    files = tuple(f"/{number}" for number in range(25))
    calls = (ToolCall("a", "read", files), ToolCall("b", "apply_patch", ("/24", "/c")))
    step(turn, 8, TurnStep("reply", "e7", calls=calls))
    turn.end(None)

    assert turn.facts.failures == tuple(f"{number}" * 160 for number in range(2, 7))
    assert turn.facts.files == ("/24", "/c", *files[:18])
    assert turn.facts.more == 6


@given(st.lists(st.integers(0, 50)))
def test_offsets_are_those_that_were_given(offsets):
    """Packed places contain what was put in, in whatever order, and nothing else."""
    packed = Offsets(offsets)

    assert [one for one in range(51) if one in packed] == sorted(set(offsets))
