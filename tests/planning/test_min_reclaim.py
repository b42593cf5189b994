"""The least saving of a rewrite, `min_reclaim`."""

import pytest

from brainsurgeon.model.plans import Plan, Removal
from brainsurgeon.model.rules import Rules


@pytest.mark.parametrize(
    ("rules", "gain", "size", "pays"),
    [
        (Rules(()), 9_999, 1_000_000, False),
        (Rules(()), 10_000, 1_000_000, True),
        (Rules(()), 0, 0, False),
        (Rules(()), -5, 100, False),
        (Rules((), min_reclaim=64_000), 63_999, 10**9, False),
        (Rules((), min_reclaim=64_000), 64_000, 70_000, True),
        (Rules((), min_reclaim=0.0), 1, 10**9, True),
        (Rules((), min_reclaim=0.0), 0, 10**9, False),
        (Rules((), min_reclaim=0.07), 7, 100, True),
        (Rules((), min_reclaim=0.07), 6, 100, False),
        (Rules((), min_reclaim=1.0), 99, 100, False),
    ],
)
def test_rewrite_pays_from_its_min_reclaim_on(rules, gain, size, pays):
    """`min_reclaim` is a share of the file, or a number of bytes; the default asks for 1 %."""
    assert rules.pays(Plan((removal(gain, 0),)), size) is pays


def removal(size, tokens):
    """Return the removal of a value of `size` bytes and `tokens` tokens."""
    return Removal(
        "e", "e", ("x",), "tool_result", None, size, block=False, call=None, parent=None, rest=None,
        tokens=tokens, start=0, end=size, new=b"", forced=False, reason="",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("removals", "load", "pays"),
    [
        ([removal(3_000, 1_000)], 100_000, True),
        ([removal(3_000, 999)], 100_000, False),  # too little, although it is 3 % of the file
        ([removal(3_000, 999)], 0, True),  # no prompt is recorded
        ([removal(3_000, 0)], 100_000, True),  # never sent: 3 % of the file
        ([removal(900, 0)], 100_000, False),
        ([removal(3_000, 999), removal(1_000, 0)], 100_000, True),  # 1 % of the file is never sent
        ([removal(3_000, 999), removal(900, 0)], 100_000, False),
    ],
)
def test_min_reclaim_of_live_values_is_a_share_of_the_prompt(removals, load, pays):
    """Values that are never sent are compared with the size of the file."""
    plan = Plan(tuple(removals), load=load)

    assert Rules(()).pays(plan, 100_000) is pays


@pytest.mark.parametrize(
    ("rules", "load", "line", "pays"),
    [
        (Rules(()), 100_400, 100_000, True),
        (Rules(()), 100_501, 100_000, False),  # it would stay above the line
        (Rules(()), 99_900, 100_000, False),
        (Rules(()), 100_400, 0, False),
        (Rules((), min_reclaim=64_000), 100_400, 100_000, False),  # the user asks for bytes
    ],
)
def test_small_saving_that_makes_prompts_cheaper_pays(rules, load, line, pays):
    """Above the line each token costs more, so a session just above it is brought below it."""
    plan = Plan((removal(2_000, 500),), load=load, line=line)

    assert rules.pays(plan, 1_000_000) is pays
