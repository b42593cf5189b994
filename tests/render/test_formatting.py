"""Bars, rounded estimates and spans of time."""

import pytest

from brainsurgeon.model.text import about, lasting
from brainsurgeon.render.formatting import bar, in_local_time


@pytest.mark.parametrize(
    ("share", "drawn"),
    [(0, ""), (1e-9, "#"), (0.5, "####"), (0.55, "####"), (1, "########"), (7, "########")],
)
def test_bar_length_is_proportional_and_at_least_one(share, drawn):
    """A share above zero draws at least one character, one above 1 the full width."""
    assert bar(share, 8) == drawn


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0"), (7, "7"), (-136, "-140"), (653, "650"), (9_960, "10,000"), (33_870, "34,000"),
        (999_999, "1.0 million"), (1_033_463, "1.0 million"), (12_345_678, "12.3 million"),
    ],
)  # fmt: skip
def test_estimates_are_rounded(number, text):
    """An estimate shows two significant digits, or a tenth of a million."""
    assert about(number) == text


def test_spans_are_shown_in_their_largest_unit():
    """Seconds, minutes, hours and days are rounded down."""
    spans = {0: "0 s", 59.9: "60 s", 60: "1 min", 7300: "2 h", 200_000: "2 d"}

    assert {span: lasting(span) for span in spans} == spans


def test_a_time_that_does_not_exist_is_printed_unchanged():
    """An error message repeats a time such as February 30 as the user entered it."""
    text = "--since '2026-02-30T10:00:00Z'"

    assert in_local_time(text) == text
