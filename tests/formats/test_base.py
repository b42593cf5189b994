"""Parsed lines, entry ids, string leaves and image blocks, as all formats share them."""

import pytest

from brainsurgeon.agents.described.format import Described
from brainsurgeon.formats.base import Format, block_parts, leaves, usable_id
from brainsurgeon.model.entries import parse, placeholder_id, placeholder_named, placeholder_token


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
def test_parse_accepts_exactly_one_valid_object(raw, entry):
    """A line that is not one JSON object in valid UTF-8 parses to None."""
    assert parse(raw) == entry


@pytest.mark.parametrize(
    ("value", "name"),
    [
        ("4f9d2a11", "4f9d2a11"), (7, "7"), (0, "0"), ("", None), (None, None), (True, None),
        (1.5, None), ([], None), ("\ud83d", None), ("x" * 1024, "x" * 1024), ("x" * 1025, None),
    ],
)  # fmt: skip
def test_usable_id_rejects_what_cannot_be_stored(value, name):
    """Integers and texts of 1 to 1,024 storable characters are usable; other ids give None."""
    assert usable_id(value) == name


@pytest.mark.parametrize(
    "ident", ["]] ../x\n", "~tilde", "a b", "é", "", "x" * 129, "[[extracted-x]]", "a/b"]
)
def test_placeholder_id_replaces_an_unsafe_entry_id(ident):
    """An entry id that is too long or not URL-safe gets a stable, distinct id after a ~."""
    name = placeholder_id(ident)

    assert name == placeholder_id(ident)
    assert name[0] == "~"
    assert name[1:].isalnum()
    assert name not in {placeholder_id(f"{ident}."), placeholder_id(f"{ident}x")}


def test_placeholder_id_keeps_a_safe_entry_id():
    """A URL-safe entry id of at most 128 characters is its own placeholder id."""
    assert placeholder_named(placeholder_id("4f9d2a11")) == "[[extracted-4f9d2a11]]"
    assert placeholder_id("A.b_c-9" + "x" * 121) == "A.b_c-9" + "x" * 121
    assert (
        placeholder_token("[[extracted-a]]", block=True)
        == b'{"type":"text","text":"[[extracted-a]]"}'
    )


def test_leaves_skips_empty_and_deeply_nested_strings():
    """Empty strings, other scalars and strings more than 32 levels down are not listed."""
    deep = "deep"
    for _ in range(40):
        deep = [deep]
    value = {"a": "x", "b": ["", {"c": "yy"}], "n": 7, "none": None, "deep": deep}

    listed = [(part.path, part.chars) for part in leaves(value, ("top",), "tool_result", "exec")]

    assert listed == [(("top", "a"), 1), (("top", "b", 1, "c"), 2)]


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
def test_image_part_is_the_whole_block(block, chars):
    """An image with base64 data is a block part: providers reject a placeholder in base64."""
    listed = list(block_parts(block, ("content", 0), "user", None))

    assert [(part.path, part.chars, part.block) for part in listed] == (
        [(("content", 0), chars, True)] if chars else []
    )


@pytest.mark.parametrize("name", sorted(Format.__abstractmethods__))
def test_a_format_without_a_required_method_cannot_be_made(name):
    """A missing method is an error when the format is created."""
    incomplete = type("Incomplete", (Described,), {name: getattr(Format, name)})

    with pytest.raises(TypeError, match=f"abstract method.*{name}"):
        incomplete()
