"""Bars never hide what is more than nothing."""

import pytest

from brainsurgeon.render.formatting import bar


@pytest.mark.parametrize(
    ("share", "drawn"),
    [(0, ""), (1e-9, "#"), (0.5, "####"), (0.55, "####"), (1, "########"), (7, "########")],
)
def test_a_bar_is_as_long_as_its_share(share, drawn):
    """From nothing to the whole room and no further, in characters that every terminal has."""
    assert bar(share, 8) == drawn
