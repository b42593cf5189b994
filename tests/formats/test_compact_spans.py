"""Finding values by their bytes, compared with a walk over the whole line."""

import json

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from brainsurgeon.formats.splice import compact_spans, locate
from brainsurgeon.model.entries import parse, value_at

QUICK = settings(max_examples=300, deadline=None)
texts = st.one_of(
    st.sampled_from(
        ("", "a", "text", ",", ":", '","', '\\"', "[[place-0]]", "\ud800", "é", "x" * 99)
    ),
    st.text(st.sampled_from('ab",:{}[]\\/\n\x7f\u2028🙂'), max_size=8),
)
keys = st.sampled_from(("a", "b", "text", "é", ","))
tokens = st.one_of(
    texts.map(lambda text: json.dumps(text, ensure_ascii="\ud800" in text)),
    texts.map(json.dumps),
    st.sampled_from(("0", "-0", "1.0", "1e-7", "9" * 40, "true", "null")),
)


def joined(marks, items):
    space = st.sampled_from(("", "", "", " "))
    return st.builds(
        lambda listed, space: marks[0] + f",{space}".join(listed) + marks[1],
        st.lists(items, max_size=4), space,
    )  # fmt: skip


def members(inner):
    return st.builds(lambda key, value: f"{json.dumps(key)}:{value}", keys, inner)


values = st.recursive(
    tokens,
    lambda inner: st.one_of(joined("[]", inner), joined("{}", members(inner))),
    max_leaves=12,
)
lines = joined("{}", members(values)).map(str.encode)


def paths_in(value, path=()):
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for step, item in items:
        yield (*path, step)
        if isinstance(item, dict | list):
            yield from paths_in(item, (*path, step))


@QUICK
@given(lines, st.data())
@example(b'{"a":"x","a":"y"}', None)
@example(b'{"a":["a","b"],"b":","}', None)
@example(b'{"b":"text","a":"text"}', None)
def test_compact_spans_agrees_with_locate(raw, data):
    """For any spelling and any repeated text, only the value's own span is returned."""
    entry = parse(raw)
    known = list(paths_in(entry))
    chosen = known if data is None else data.draw(
        st.lists(st.sampled_from(known), unique=True) if known else st.just([])
    )  # fmt: skip

    spans = compact_spans(raw, entry, chosen)

    if spans:
        assert spans == locate(raw, chosen)
        assert all(json.loads(raw[slice(*spans[path])]) == value_at(entry, path) for path in spans)


@pytest.mark.parametrize(
    "raw",
    [
        b'{"id":"a","message":{"content":[{"type":"text","text":"\\n\\tlong \xc3\xbc"}],"n":1}}',
        b'{"details":{"same":"\\n\\tlong \xc3\xbc"},"message":{"content":"\\n\\tlong \xc3\xbc"}}',
        b'{"message":{"content":[{"type":"image","data":"AAAA","mimeType":"image/png"}]}}',
    ],
)
def test_compact_spans_finds_values_that_agents_write(raw):
    """A text, the same text twice in either order, and a whole block are found."""
    entry = parse(raw)
    whole = [("message", "content")] + [("details", "same")] * ("details" in entry)

    assert compact_spans(raw, entry, whole) == locate(raw, whole)


@pytest.mark.parametrize(
    "raw",
    [
        b'{"a":"y","text":"x"} ',
        b'{"text":"y","text":"x"}',
        b'{"text":"x", "a":1}',
        b'{"text":"\\u0078"}',
        b'{"text":"x","n":1.50}',
        b'{"text":"x","a":"[[place-0]]"}',
    ],
)
def test_compact_spans_refuses_an_unusual_spelling(raw):
    """With a duplicate key or unusual spacing, escapes or numbers, nothing is returned."""
    assert compact_spans(raw, parse(raw), [("text",)]) is None
