"""Byte spans of values in a line: located exactly, replaced, and restored byte for byte."""

import json
import random
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brainsurgeon.formats.base import ParsedLine
from brainsurgeon.formats.splice import (
    UntouchableError,
    locate,
    set_field,
    splice,
    splice_string,
    undo_field,
    verify,
)
from brainsurgeon.model.entries import parse, value_at
from brainsurgeon.model.plans import FieldEdit, Removal
from brainsurgeon.model.records import FieldRecord

QUICK = settings(max_examples=120, deadline=None)
ODD_NUMBERS = (
    "0", "-0", "1e-7", "5E+06", "1e400", "0.000005", "123456789012345678901234567890", "9" * 5000,
)  # fmt: skip
SHORT_ESCAPES = {
    '"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\b": "\\b", "\f": "\\f", "\r": "\\r",
}  # fmt: skip


class Number(str):
    """A number as written, since Python would write it differently."""

    __slots__ = ()


texts = st.text(
    st.one_of(
        st.characters(codec="utf-8"),
        st.sampled_from('"\\/\n\t\u2028\u0085\x00\x7fé你🙂\ud800[]{}:,'),
    ),
    max_size=12,
)
scalars = st.one_of(texts, st.booleans(), st.none(), st.sampled_from(ODD_NUMBERS).map(Number))
values = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(texts, inner, max_size=4)),
    max_leaves=16,
)
objects = st.dictionaries(texts, values, max_size=5)


class Writer:
    """Write a value as JSON in random spelling and record the span of each part."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.line = bytearray()
        self.spans = {}

    def write(self, value, path=()):
        self.space()
        start = len(self.line)
        if isinstance(value, dict):
            self.members(value, path)
        elif isinstance(value, list):
            self.items(value, path)
        elif isinstance(value, str) and not isinstance(value, Number):
            self.string(value)
        else:
            self.line += (value if isinstance(value, Number) else json.dumps(value)).encode()
        self.spans[path] = (start, len(self.line))
        self.space()
        return self

    def members(self, value, path):
        self.line += b"{"
        for index, (key, item) in enumerate(value.items()):
            self.line += b"," if index else b""
            self.space()
            self.string(key)
            self.space()
            self.line += b":"
            self.write(item, (*path, key))
        self.space()
        self.line += b"}"

    def items(self, value, path):
        self.line += b"["
        for index, item in enumerate(value):
            self.line += b"," if index else b""
            self.write(item, (*path, index))
        self.space()
        self.line += b"]"

    def string(self, text):
        self.line += b'"'
        for char in text:
            plain = char not in SHORT_ESCAPES and char >= " " and char != "\ud800"
            self.line += self.random.choice((char, char, self.escaped(char)) if plain
                                          else (self.escaped(char),)).encode()  # fmt: skip
        self.line += b'"'

    def escaped(self, char):
        if char in SHORT_ESCAPES and self.random.random() < 0.5:
            return SHORT_ESCAPES[char]
        if char == "/" and self.random.random() < 0.5:
            return "\\/"
        units = char.encode("utf-16-be", "surrogatepass")
        codes = [units[at : at + 2].hex() for at in range(0, len(units), 2)]
        return "".join(f"\\u{self.random.choice((code, code.upper()))}" for code in codes)

    def space(self):
        self.line += self.random.choice((b"", b"", b"", b" ", b"\t", b"\r", b" \n "))


def write_randomly(value, seed):
    return Writer(seed).write(value)


def parsed(raw):
    return ParsedLine(0, raw, parse(raw), "a", terminated=True)


def string_spans(spans, line):
    return {path: span for path, span in spans.items() if line[span[0]] == ord('"')}


@QUICK
@given(objects, st.integers(0, 10**6))
def test_locate_returns_the_span_of_every_value(value, seed):
    """For any spacing and escaping, each path leads to the bytes of its value."""
    writer = write_randomly(value, seed)

    assert locate(bytes(writer.line), writer.spans) == writer.spans


@QUICK
@given(objects, st.integers(0, 10**6))
def test_splice_replaces_all_strings_and_restores_the_line(value, seed):
    """Every string reads as its placeholder, all paths stay, and splicing old bytes undoes it."""
    writer = write_randomly(value, seed)
    line = bytes(writer.line)
    places = string_spans(writer.spans, line)

    extracted = splice(line, [(start, end, b'"[[extracted-x]]"') for start, end in places.values()])
    entry = parse(extracted)
    placeholders = locate(extracted, places)
    restored = splice(
        extracted, [(*placeholders[path], line[slice(*places[path])]) for path in places]
    )

    assert entry is not None
    assert all(value_at(entry, path) == "[[extracted-x]]" for path in places)
    assert string_spans(locate(extracted, writer.spans), extracted).keys() == places.keys()
    assert locate(extracted, writer.spans).keys() == writer.spans.keys()
    assert restored == line


@QUICK
@given(objects, st.integers(0, 10**6), st.data())
def test_locate_returns_only_the_requested_paths(value, seed, data):
    """A path that leads nowhere is missing from the result."""
    writer = write_randomly(value, seed)
    paths = data.draw(st.lists(st.sampled_from(sorted(writer.spans, key=repr)), max_size=4))
    nowhere = [(*path, "no such key \x01") for path in paths] + [(*path, 10**6) for path in paths]

    spans = locate(bytes(writer.line), [*paths, *nowhere])

    assert spans == {path: writer.spans[path] for path in paths}


@QUICK
@given(objects, texts, values, values, st.integers(0, 10**6))
def test_duplicate_key_on_the_path_makes_a_line_untouchable(value, key, first, second, seed):
    """Readers differ in which of two equal keys they use; paths beside them can be located."""
    value = {name: item for name, item in value.items() if name != key}
    original = write_randomly({**value, key: first}, seed)
    duplicate = write_randomly({key: second}, seed + 1)
    line = bytes(original.line).rstrip(b" \t\r\n")[:-1] + b"," + bytes(duplicate.line).lstrip()[1:]

    assert parse(line) is not None
    with pytest.raises(UntouchableError):
        locate(line, [(key,)])
    other_spans = {path: original.spans[path] for path in original.spans if path and path[0] != key}
    assert locate(line, other_spans) == other_spans


def test_duplicate_nested_key_counts_only_on_the_path():
    """A duplicate key makes only paths through it untouchable, even if one is escaped."""
    line = rb'{"a":{"b":"1","\u0062":"2"},"c":{"d":"3"}}'

    with pytest.raises(UntouchableError):
        locate(line, [("a", "b")])
    assert locate(line, [("c", "d")]) == {("c", "d"): (37, 40)}
    assert locate(line, [("a",)]) == {("a",): (5, 27)}


def test_reason_names_a_duplicate_key_only_if_it_is_ours():
    """Logs contain no content of sessions, but name the field of ours that is there twice."""
    for key, named in (("a secret", "on the path"), ("_restored", "_restored")):
        with pytest.raises(UntouchableError, match=f"^duplicate key {named}$"):
            locate(f'{{"{key}":1,"{key}":2}}'.encode(), [(key,)])


@QUICK
@given(objects, values, st.integers(0, 10**6))
def test_field_is_inserted_as_the_last_member_and_undone(value, second, seed):
    """For any spacing, a field is inserted behind all others, and undoing it restores the line."""
    raw = bytes(write_randomly({**value, "key": second}, seed).line)
    line = parsed(raw)

    [edit] = set_field(line, "_restored", b'"2026-02-20T10:00:00Z"')
    edited = splice(raw, [(edit.start, edit.end, edit.new)])
    entry = parse(edited)
    record = FieldRecord(
        1, 1, "a", "_restored", None, edit.new, edit.new.partition(b":")[2].decode()
    )
    [undo] = undo_field(parsed(edited), record)

    assert list(entry) == [*line.entry, "_restored"]
    assert entry == {**line.entry, "_restored": "2026-02-20T10:00:00Z"}
    assert splice(edited, [(undo.start, undo.end, undo.new)]) == raw


def test_object_without_members_gets_no_field():
    """A field is inserted behind another member; an empty object is untouchable."""
    with pytest.raises(UntouchableError):
        set_field(parsed(b"{ }"), "_restored", b"true")


@pytest.mark.parametrize(
    ("line", "undone"),
    [
        ('{"a":1,"_redacted":true }', '{"a":1 }'),
        ('{"a": 1, "_redacted": true, "b": 2}', '{"a": 1, "b": 2}'),
        ('{ "_redacted" : true , "b": 2}', '{ "b": 2}'),
        ('{"_redacted": true, "_restored": "t", "b": 2}', '{"b": 2}'),
        ('{"_extractable":1,"_redacted":true,"_restored":"t","b":2}', '{"_extractable":1,"b":2}'),
        ('{"a":1,"_restored":"t","_redacted":true}', '{"a":1}'),
        ('{"a":1,"_redacted":false}', None),
        ('{"a":1,"_\\u0072edacted":true}', None),
        ('{"_redacted":true}', None),
    ],
)
def test_field_is_undone_where_an_agent_wrote_it_anew(line, undone):
    """With other spaces, or in another place, also two at once; not with another value."""
    records = [
        FieldRecord(1, 1, "a", name, None, f',"{name}":{value}'.encode(), value)
        for name, value in (("_redacted", "true"), ("_restored", '"t"'))
    ]
    edits = [edit for record in records for edit in undo_field(parsed(line.encode()), record)]

    cuts = [(edit.start, edit.end, edit.new) for edit in edits]
    assert (splice(line.encode(), cuts).decode() if cuts else None) == undone


@QUICK
@given(objects, st.integers(0, 10**6), st.data())
def test_torn_line_is_untouchable_or_located_within_its_bytes(value, seed, data):
    """A line cut at any byte yields only spans within it, or UntouchableError."""
    writer = write_randomly(value, seed)
    torn = bytes(writer.line)[: data.draw(st.integers(0, len(writer.line)))]

    try:
        spans = locate(torn, writer.spans)
    except UntouchableError:
        spans = {}

    assert all(0 <= start < end <= len(torn) for start, end in spans.values())


@QUICK
@given(st.binary(max_size=40).map(lambda junk: b'{"a":' + junk), st.just([("a",), ("a", 0), ()]))
def test_random_bytes_raise_only_untouchable_error(line, paths):
    """For any bytes, `locate` returns or raises UntouchableError."""
    with suppress(UntouchableError):
        locate(line, paths)


@pytest.mark.parametrize(
    "line",
    [b"{[1]:2}", b"{{}:2}", b"{1:2}", b"{null:2}", b'{"a":' + b"[" * 100_000, b'{"a":' * 100_001],
    ids=["list key", "object key", "number key", "null key", "deep lists", "deep objects"],
)
def test_line_with_a_nonstring_key_or_deep_nesting_is_untouchable(line):
    """A key that is not a string, or nesting beyond the scanner's limit, raises an error."""
    with pytest.raises(UntouchableError):
        locate(line, [("a",)])


def test_locate_skips_a_deep_value_beside_the_path():
    """A value beside another with 300 levels of nesting is located."""
    line = b'{"deep":' + b"[" * 300 + b"]" * 300 + b',"text":"here"}'

    assert locate(line, [("text",)]) == {("text",): (616, 622)}


def test_splice_accepts_edits_in_any_order():
    """Edits in any order are applied, and the bytes between them stay."""
    line = b"0123456789"

    assert splice(line, [(8, 9, b"eight"), (2, 4, b""), (0, 1, b"zero")]) == b"zero14567eight9"
    assert splice(line, []) == line


def test_insertions_at_one_offset_keep_their_order():
    """Two fields inserted after one member come out in the given order."""
    line = b'{"a":1}'

    assert splice(line, [(6, 6, b',"c":2'), (6, 6, b',"b":3')]) == b'{"a":1,"c":2,"b":3}'


def test_insertion_at_the_start_of_an_edit_precedes_it():
    """Text inserted where a replacement begins stands before it, whatever the order of edits."""
    assert splice(b"abcdef", [(2, 4, b"X"), (2, 2, b"+")]) == b"ab+Xef"


@QUICK
@given(st.lists(st.tuples(texts, st.booleans()), min_size=3, max_size=3), texts)
def test_splice_string_keeps_the_spelling_outside_the_part(pieces, new):
    """Characters outside the replaced part keep their escapes byte for byte."""
    before, part, after = (
        json.dumps(text.replace("\ud800", "?"), ensure_ascii=escaped)[1:-1].encode()
        for text, escaped in pieces
    )
    first, length = (len(json.loads(b'"%b"' % text)) for text in (before, part))

    token = splice_string(b'"%b"' % (before + part + after), [(first, first + length, new)])

    assert token == b'"%b"' % (before + json.dumps(new)[1:-1].encode() + after)


# Verified edits.

PLACEHOLDER = b'"[[extracted-a]]"'
RAW = b'{"id":"a","text":"long","more":{"text":"long"}}'


def edit_of(start, end, *path):
    return Removal(
        "a", "[[extracted-a]]", path, "user", None, 4, block=False, call=None, parent=None,
        rest=None, tokens=0, start=start, end=end, new=PLACEHOLDER, forced=False, reason="",
    )  # fmt: skip


def test_verify_accepts_an_edit_at_its_own_path():
    """An edit is accepted if its span is that of the value at its path."""
    verify(RAW, 0, json.loads(RAW), [edit_of(17, 23, "text")])


@pytest.mark.parametrize(
    "edit",
    [
        edit_of(17, 23, "more", "text"),
        edit_of(17, 23, "nowhere"),
        edit_of(17, 23, "text", "deeper"),
        edit_of(31, 46, "more", "text"),
        edit_of(16, 23, "text"),
        edit_of(17, 46, "text"),
    ],
    ids=[
        "equal value elsewhere", "no such key", "key of a string", "span of the object", "colon",
        "next member too",
    ],
)  # fmt: skip
def test_verify_refuses_an_edit_at_another_path(edit):
    """An edit whose span belongs to another path, or to none, makes the line untouchable."""
    with pytest.raises(UntouchableError):
        verify(RAW, 0, json.loads(RAW), [edit])


@pytest.mark.parametrize(
    "edit",
    [
        FieldEdit(17, 23, b'"short"', "a", "_restored", None),
        FieldEdit(46, 46, b',"_restored":1,"other":2', "a", "_restored", None),
    ],
    ids=["another value", "a second member"],
)
def test_verify_refuses_a_field_edit_that_changes_more_than_its_field(edit):
    """An edit of one of our fields that changes anything else makes the line untouchable."""
    with pytest.raises(UntouchableError, match="differ elsewhere"):
        verify(RAW, 0, json.loads(RAW), [edit])
