"""An edited line counts only when it says what was planned, and nothing else moved."""

import pytest

from brainsurgeon.formats.splice import UntouchableError, verify
from brainsurgeon.model.plans import Removal

PLACEHOLDER = b'"[[extracted-a]]"'
RAW = b'{"id":"a","text":"long","more":{"text":"long"}}'


def cut(start, end, *path):
    """Give the edit that puts the placeholder in a place of the line."""
    return Removal(
        start, end, PLACEHOLDER, "a", "[[extracted-a]]", path, "user", None, 4, False, False, ""
    )


def entry():
    return {"id": "a", "text": "long", "more": {"text": "long"}}


def test_an_edit_of_the_place_it_names_counts():
    """A cut at the bytes of its own value passes."""
    verify(RAW, 0, entry(), [cut(17, 23, "text")])


@pytest.mark.parametrize(
    "wrong",
    [
        cut(17, 23, "more", "text"),
        cut(17, 23, "nowhere"),
        cut(17, 23, "text", "deeper"),
        cut(31, 46, "more", "text"),
        cut(16, 23, "text"),
    ],
)
def test_an_edit_anywhere_else_leaves_the_line_alone(wrong):
    """A cut that another place would show, or no place at all, makes the line untouchable."""
    with pytest.raises(UntouchableError):
        verify(RAW, 0, entry(), [wrong])
