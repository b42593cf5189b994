"""What a rewrite has to free."""

import pytest

from brainsurgeon.model.rules import Rules


@pytest.mark.parametrize(
    ("rules", "gain", "size", "pays"),
    [
        (Rules(()), 9_999, 1_000_000, False),
        (Rules(()), 10_000, 1_000_000, True),
        (Rules(()), 0, 0, False),
        (Rules(()), -5, 100, False),
        (Rules((), min_reclaim_share=0.0, min_reclaim_bytes=64_000), 63_999, 10**9, False),
        (Rules((), min_reclaim_share=0.0, min_reclaim_bytes=64_000), 64_000, 70_000, True),
        (Rules((), min_reclaim_share=0.0), 1, 10**9, True),
        (Rules((), min_reclaim_share=0.0), 0, 10**9, False),
        (Rules((), min_reclaim_share=0.07), 7, 100, True),
        (Rules((), min_reclaim_share=0.07), 6, 100, False),
        (Rules((), min_reclaim_share=1.0), 99, 100, False),
    ],
)
def test_a_rewrite_has_to_pay(rules, gain, size, pays):
    """A file is rewritten when it shrinks by at least the share or the bytes asked for."""
    assert rules.pays(gain, size) is pays
