"""Bars of a share."""

import pytest

from brainsurgeon.render.formatting import bar


@pytest.mark.parametrize(
    ("share", "drawn"),
    [(0, ""), (1e-9, "#"), (0.5, "####"), (0.55, "####"), (1, "########"), (7, "########")],
)
def test_bar_length_is_proportional_and_at_least_one(share, drawn):
    """A share above zero draws at least one character, one above 1 the full width."""
    assert bar(share, 8) == drawn
