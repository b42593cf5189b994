"""What is kept of a turn while its entries are met, and afterwards: little, and all that counts."""

import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from brainsurgeon.model.turns import Answered, Asked, Said, Sent, Told
from brainsurgeon.planning.archive import outcomes_of
from brainsurgeon.planning.turns import End, Gathered, Offsets, reduced, summary_of, weight_of

WORDS = st.text("ab ü.?\n", max_size=700)
TOLD = st.builds(
    Told, WORDS, st.none() | WORDS, st.lists(WORDS, max_size=8).map(tuple),
    st.lists(
        st.tuples(st.sampled_from(["read", "write"]), st.text("abcdef", min_size=1, max_size=2)),
        max_size=60,
    ).map(tuple),
    st.lists(st.tuples(st.sampled_from("xy"), st.booleans()), max_size=9).map(tuple),
)  # fmt: skip


@given(TOLD, st.integers(1, 120), st.sampled_from(["structured", "paragraph"]))
def test_what_is_kept_of_a_turn_says_the_same(told, chars, style):
    """A summary of what is kept is that of the whole turn, alone and in a row of turns."""
    kept = reduced(told, chars)

    assert summary_of(kept, style, chars) == summary_of(told, style, chars)
    assert outcomes_of([kept, told], style, chars) == outcomes_of([told, told], style, chars)


def step(turn, number, said):
    """Let a turn go on with an entry that continues the one before it."""
    turn.add(End(number * 100, f"e{number}", said), "assistant", weight_of(10, 5, Sent(10), said))


def test_an_entry_takes_little_room():
    """A turn of many entries keeps less than a hundred bytes of each, and of their texts none."""
    turn, count = Gathered(1), 20_000
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    step(turn, 0, Said("prompt"))
    for number in range(1, count, 2):
        called = (Asked(f"c{number}", "exec", ("/w/a",)),)
        step(turn, number, Said("reply", f"e{number - 1}", text="x" * 5000, asked=called))
        answered = (Answered(f"c{number}"),)
        step(turn, number + 1, Said("result", f"e{number}", answered=answered))
    turn.over()
    turn.forget()
    took = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()

    assert took < 100 * count
    assert (turn.called, turn.failed, turn.broken) == (count // 2, 0, None)


def test_a_failed_call_is_counted_whatever_comes_first():
    """Results may stand before their calls; each failed call is told with its tool."""
    turn = Gathered(1)
    step(turn, 0, Said("prompt"))
    step(turn, 1, Said("result", "e0", answered=(Answered("b", failed=True, finding="no"),)))
    step(turn, 2, Said("reply", "e1", asked=(Asked("a", "read"), Asked("b", "exec"))))
    step(turn, 3, Said("result", "e2", answered=(Answered("a"),)))
    step(turn, 4, Said("reply", "e3", text="so", text_path=("content",), closes=True))
    turn.over()

    assert turn.opened is None
    assert (turn.called, turn.failed) == (2, 1)
    assert sorted(turn.told.tools) == [("exec", True), ("read", False)]


@given(st.lists(st.integers(0, 50)))
def test_offsets_are_those_that_were_given(offsets):
    """Packed places contain what was put in, in whatever order, and nothing else."""
    packed = Offsets(offsets)

    assert [one for one in range(51) if one in packed] == sorted(set(offsets))
