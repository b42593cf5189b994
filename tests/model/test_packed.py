"""The edits of a plan are the same however many there are, and take little room."""

import tracemalloc
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brainsurgeon.model.plans import TOGETHER, Cut, Edits, FieldEdit, Plan, Putback

texts = st.text(st.sampled_from("aé🙂\ud800"), max_size=3)
paths = st.lists(st.one_of(texts, st.integers(0, 9)), max_size=3).map(tuple)
cuts = st.builds(
    Cut, st.integers(0, 1 << 40), st.integers(0, 1 << 40), st.binary(max_size=3), texts, texts,
    paths, st.just("user"), st.one_of(st.none(), texts), st.integers(0, 9), st.booleans(),
    st.booleans(), texts, redacts=st.booleans(), rest=st.one_of(st.none(), st.binary(max_size=2)),
)  # fmt: skip
others = st.one_of(
    st.builds(Putback, st.integers(0, 9), st.integers(0, 9), st.integers(1, 9), texts, paths,
              st.integers(0, 9)),
    st.builds(FieldEdit, st.integers(0, 9), st.integers(0, 9), st.binary(max_size=3), texts, texts,
              st.one_of(st.none(), st.binary(max_size=2))),
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(st.lists(st.one_of(cuts, others), max_size=9), st.sampled_from((1, TOGETHER // 4, TOGETHER)))
def test_many_edits_are_the_very_edits_that_were_added(some, times):
    """Packed or not, each walk gives the same edits in the same order, and the same figures."""
    edits = tuple(some * times)
    packed = Edits(edits)
    made = Plan(edits=edits)

    assert tuple(packed) == tuple(packed) == edits
    assert packed == edits
    assert len(packed) == len(edits)
    assert packed[: TOGETHER + 1] == edits[: TOGETHER + 1]
    assert packed[::-2] == edits[::-2]
    assert not edits or packed[-1] == edits[-1]
    assert packed.gain == sum(edit.gain for edit in edits)
    chosen = [edit for edit in edits if isinstance(edit, Cut)]
    assert made.cuts == tuple(chosen)
    assert made.extracted == tuple(cut for cut in chosen if not cut.redacts)
    assert made.putbacks == tuple(edit for edit in edits if isinstance(edit, Putback))
    assert made.fields == tuple(edit for edit in edits if isinstance(edit, FieldEdit))
    assert made.forced == (len(made.extracted) != len(edits) or any(
        cut.forced for cut in made.extracted))  # fmt: skip


def test_what_comes_late_stands_in_its_place():
    """Cuts that are found at the end are put among the others, behind one at the same place."""
    one = Cut(5, 9, b"", "a", "", (), "user", None, 4, block=False, forced=False, reason="")
    edits = Edits([one, replace(one, start=20, end=30)])
    late = [replace(one, start=40), replace(one, name="late"), replace(one, start=10, end=12)]

    joined = edits.joined(late)

    assert [(edit.start, edit.name) for edit in joined] == [
        (5, ""), (5, "late"), (10, ""), (20, ""), (40, "")
    ]  # fmt: skip
    with pytest.raises(IndexError):
        joined[5]


def test_an_edit_among_many_takes_little_room():
    """20,000 edits, each with names and digests of its own, take less than 5 MB."""
    tracemalloc.start()
    edits = Edits(
        Cut(
            number * 2000, number * 2000 + 1900, b'"[[extracted-%08x]]"' % number, f"{number:08x}",
            f"{number:08x}", ("message", "content", 0, "text"), "tool_result",
            "exec", 1900, block=False, forced=False, reason=f"tool_result, {number} back",
            anchor=f"call_{number}", rest=number.to_bytes(20),
        )
        for number in range(20_000)
    )  # fmt: skip
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert len(edits) == 20_000
    assert taken < 5_000_000
