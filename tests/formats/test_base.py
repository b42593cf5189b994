"""What all formats stand on: lines, names, leaves and blocks."""

import pytest

from brainsurgeon.formats.base import image, leaves, usable_id
from brainsurgeon.model.entries import parse, placeholder_id, placeholder_named, placeholder_token
from building.world import SAMPLES

TRAPS = sorted((SAMPLES / "traps").glob("*.jsonl"))


# Parsing a line and naming its entry.


@pytest.mark.parametrize(
    ("raw", "entry"),
    [
        (b'{"a":"\\ud83d"}', {"a": "\ud83d"}),
        (b'{"a":1}\r', {"a": 1}),
        (b'{"a":' + b"9" * 5000 + b"}", {"a": float("inf")}),
        (b'{"a":1e400}', {"a": float("inf")}),
        (b'{"a":1,"a":2}', {"a": 2}),
        ('{"a":"\u2028"}'.encode(), {"a": "\u2028"}),
        (b'{"a":"\xff"}', None),
        (b'{"a":"\xed\xa0\xbd"}', None),
        (b'{"a":NaN}', None),
        (b'{"a":-Infinity}', None),
        (b'{"a":"\x00"}', None),
        (b'{"a":1}{"b":2}', None),
        (b"[1]", None),
        (b'"text"', None),
        (b"null", None),
        (b"", None),
        (b'{"a":', None),
        (b'{"a":' + b"[" * 100_000, None),
        (b"\xef\xbb\xbf{}", None),
    ],
)
def test_a_line_is_one_object_or_it_is_left_alone(raw, entry):
    """What agents do write is read; what is not one JSON object is nobody's entry."""
    assert parse(raw) == entry


def test_no_line_of_a_trap_stops_the_reader():
    """Every line of every trap parses to an entry or to nothing."""
    seen = 0
    for trap in TRAPS:
        for raw in trap.read_bytes().split(b"\n"):
            entry = parse(raw)
            seen += 1
            assert entry is None or isinstance(entry, dict)

    assert seen > 100


@pytest.mark.parametrize(
    ("value", "name"),
    [
        ("4f9d2a11", "4f9d2a11"), (7, "7"), (0, "0"), ("", None), (None, None), (True, None),
        (1.5, None), ([], None), ("\ud83d", None), ("x" * 1024, "x" * 1024), ("x" * 1025, None),
    ],
)  # fmt: skip
def test_a_name_is_text_that_can_be_kept(value, name):
    """An id that cannot be stored, or is no id, names nothing."""
    assert usable_id(value) == name


@pytest.mark.parametrize(
    "ident", ["]] ../x\n", "~tilde", "a b", "é", "", "x" * 129, "[[extracted-x]]", "a/b"]
)
def test_an_odd_id_stands_under_another_name(ident):
    """What is not URL-safe is replaced by a stable id that starts with ~, unlike any real one."""
    name = placeholder_id(ident)

    assert name == placeholder_id(ident)
    assert name[0] == "~"
    assert name[1:].isalnum()
    assert name not in {placeholder_id(f"{ident}."), placeholder_id(f"{ident}x")}


def test_a_plain_id_stands_as_it_is():
    """A URL-safe id of at most 128 characters is the placeholder's own."""
    assert placeholder_named(placeholder_id("4f9d2a11")) == "[[extracted-4f9d2a11]]"
    assert placeholder_id("A.b_c-9" + "x" * 121) == "A.b_c-9" + "x" * 121
    assert (
        placeholder_token("[[extracted-a]]", block=True)
        == b'{"type":"text","text":"[[extracted-a]]"}'
    )


def test_strings_below_a_value_are_found_down_to_a_depth():
    """Empty strings, numbers and what lies deeper than 32 steps are no parts."""
    deep = "deep"
    for _ in range(40):
        deep = [deep]
    value = {"a": "x", "b": ["", {"c": "yy"}], "n": 7, "none": None, "deep": deep}

    found = [(part.path, part.chars) for part in leaves(value, ("top",), "tool_result", "exec")]

    assert found == [(("top", "a"), 1), (("top", "b", 1, "c"), 2)]


@pytest.mark.parametrize(
    ("block", "chars"),
    [
        ({"type": "image", "data": "aGk=", "mimeType": "image/png"}, 4),
        ({"type": "image", "source": {"type": "base64", "data": "aGk="}}, 4),
        ({"type": "image", "data": ""}, None),
        ({"type": "image", "source": {"type": "url", "url": "https://example.org"}}, None),
        ({"type": "image", "source": None}, None),
    ],
)
def test_an_image_goes_as_a_whole_block(block, chars):
    """Every provider refuses a placeholder inside base64, so that the block gives way to a text."""
    found = list(image(block, ("content", 0), "user", None))

    assert [(part.path, part.chars, part.block) for part in found] == (
        [(("content", 0), chars, True)] if chars else []
    )
