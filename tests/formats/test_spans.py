"""Where a value sits in a line's bytes: found exactly, cut, and restored byte for byte."""

import json
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brainsurgeon.formats.splice import UntouchableError, locate, members, splice, splice_string
from brainsurgeon.model.entries import parse, value_at

QUICK = settings(max_examples=120, deadline=None)
ODD_NUMBERS = (
    "0", "-0", "1e-7", "5E+06", "1e400", "0.000005", "123456789012345678901234567890", "9" * 5000,
)  # fmt: skip
SHORT = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\b": "\\b", "\f": "\\f", "\r": "\\r"}


class Number(str):
    """A number as it is written, since writing it again would change it."""

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
    """Writes a value as JSON in a moody style, and notes where each part of it stands."""

    def __init__(self, seed):
        self.mood = random.Random(seed)
        self.line = bytearray()
        self.spans = {}
        self.top = []

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
            start = len(self.line)
            self.string(key)
            self.space()
            self.line += b":"
            self.write(item, (*path, key))
            if not path:
                self.top.append((key, start, *self.spans[(key,)]))
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
            plain = char not in SHORT and char >= " " and char != "\ud800"
            self.line += self.mood.choice((char, char, self.escaped(char)) if plain
                                          else (self.escaped(char),)).encode()  # fmt: skip
        self.line += b'"'

    def escaped(self, char):
        if char in SHORT and self.mood.random() < 0.5:
            return SHORT[char]
        if char == "/" and self.mood.random() < 0.5:
            return "\\/"
        units = char.encode("utf-16-be", "surrogatepass")
        codes = [units[at : at + 2].hex() for at in range(0, len(units), 2)]
        return "".join(f"\\u{self.mood.choice((code, code.upper()))}" for code in codes)

    def space(self):
        self.line += self.mood.choice((b"", b"", b"", b" ", b"\t", b"\r", b" \n "))


def written(value, seed):
    return Writer(seed).write(value)


def strings(spans, line):
    return {path: span for path, span in spans.items() if line[span[0]] == ord('"')}


@QUICK
@given(objects, st.integers(0, 10**6))
def test_every_value_is_found_exactly_where_it_was_written(value, seed):
    """However a line is spaced and escaped, each path leads to the bytes of its value."""
    writer = written(value, seed)

    assert locate(bytes(writer.line), writer.spans) == writer.spans


@QUICK
@given(objects, st.integers(0, 10**6))
def test_what_is_cut_comes_back_byte_for_byte(value, seed):
    """Cutting every string leaves a line that says so and nothing else, and is undone exactly."""
    writer = written(value, seed)
    line = bytes(writer.line)
    places = strings(writer.spans, line)

    cut = splice(line, [(start, end, b'"[[extracted-x]]"') for start, end in places.values()])
    entry = parse(cut)
    placeholders = locate(cut, places)
    back = splice(cut, [(*placeholders[path], line[slice(*places[path])]) for path in places])

    assert entry is not None
    assert all(value_at(entry, path) == "[[extracted-x]]" for path in places)
    assert strings(locate(cut, writer.spans), cut).keys() == places.keys()
    assert locate(cut, writer.spans).keys() == writer.spans.keys()
    assert back == line


@QUICK
@given(objects, st.integers(0, 10**6), st.data())
def test_only_what_is_asked_for_is_found(value, seed, data):
    """Some paths are answered as all of them are; what leads nowhere is missing."""
    writer = written(value, seed)
    paths = data.draw(st.lists(st.sampled_from(sorted(writer.spans, key=repr)), max_size=4))
    nowhere = [(*path, "no such key \x01") for path in paths] + [(*path, 10**6) for path in paths]

    found = locate(bytes(writer.line), [*paths, *nowhere])

    assert found == {path: writer.spans[path] for path in paths}


@QUICK
@given(objects, texts, values, values, st.integers(0, 10**6))
def test_a_key_twice_on_the_path_makes_a_line_untouchable(value, key, first, second, seed):
    """Readers differ in which of two equal keys they take, so that neither is extracted."""
    value = {name: item for name, item in value.items() if name != key}
    once = written({**value, key: first}, seed)
    again = written({key: second}, seed + 1)
    line = bytes(once.line).rstrip(b" \t\r\n")[:-1] + b"," + bytes(again.line).lstrip()[1:]

    assert parse(line) is not None
    with pytest.raises(UntouchableError):
        locate(line, [(key,)])
    elsewhere = {path: once.spans[path] for path in once.spans if path and path[0] != key}
    assert locate(line, elsewhere) == elsewhere
    assert [member[0] for member in members(line)] == [*value, key, key]


def test_a_key_twice_deeper_down_counts_only_on_the_path():
    """The doubled key is found by what it says, not by how it is written, at every depth."""
    line = rb'{"a":{"b":"1","\u0062":"2"},"c":{"d":"3"}}'

    with pytest.raises(UntouchableError):
        locate(line, [("a", "b")])
    assert locate(line, [("c", "d")]) == {("c", "d"): (37, 40)}
    assert locate(line, [("a",)]) == {("a",): (5, 27)}


@QUICK
@given(objects, st.integers(0, 10**6))
def test_members_are_listed_as_they_stand(value, seed):
    """The top-level members come in the order of the line, each with the place of key and value."""
    writer = written(value, seed)

    assert members(bytes(writer.line)) == writer.top


@pytest.mark.parametrize("line", [b"[1]", b'"text"', b"7", b"null", b"", b"  ", b'{"a":1', b"{"])
def test_what_is_no_object_has_no_members(line):
    """Only one whole JSON object has members."""
    with pytest.raises(UntouchableError):
        members(line)


@QUICK
@given(objects, st.integers(0, 10**6), st.data())
def test_a_torn_line_is_untouchable_or_found_within_itself(value, seed, data):
    """A line that ends anywhere never leads to bytes beyond its end, and never to another error."""
    writer = written(value, seed)
    torn = bytes(writer.line)[: data.draw(st.integers(0, len(writer.line)))]

    try:
        found = locate(torn, writer.spans)
    except UntouchableError:
        found = {}
    try:
        listed = members(torn)
    except UntouchableError:
        listed = []

    assert all(0 <= start < end <= len(torn) for start, end in found.values())
    assert all(member in writer.top for member in listed)


@QUICK
@given(st.binary(max_size=40).map(lambda junk: b'{"a":' + junk), st.just([("a",), ("a", 0), ()]))
def test_junk_raises_nothing_but_untouchable(line, paths):
    """Whatever the bytes, the verdict is a span or Untouchable."""
    for look in (lambda: locate(line, paths), lambda: members(line)):
        try:
            look()
        except UntouchableError:
            continue


@pytest.mark.parametrize("line", [b"{[1]:2}", b"{{}:2}", b"{1:2}", b"{null:2}"])
def test_a_key_is_a_string(line):
    """An object whose key is no string is not walked."""
    with pytest.raises(UntouchableError):
        members(line)
    with pytest.raises(UntouchableError):
        locate(line, [("a",)])


@pytest.mark.parametrize("opening", [b"[", b'{"a":'])
def test_what_is_nested_too_deeply_is_untouchable(opening):
    """A line that is nested deeper than the scanner walks is left alone."""
    line = b'{"a":' + opening * 100_000

    with pytest.raises(UntouchableError):
        locate(line, [("a",)])
    with pytest.raises(UntouchableError):
        members(line)


def test_a_deep_path_is_walked_only_where_it_leads():
    """A value beside a deep one is found although the deep one is not looked into."""
    line = b'{"deep":' + b"[" * 300 + b"]" * 300 + b',"text":"here"}'

    assert locate(line, [("text",)]) == {("text",): (616, 622)}


def test_a_number_of_any_length_costs_nothing():
    """Numbers stay text, so that one that Python refuses to convert stops nothing."""
    line = b'{"n":' + b"7" * 5000 + b',"text":"here"}'

    assert locate(line, [("n",), ("text",)]) == {("n",): (5, 5005), ("text",): (5013, 5019)}


def test_offsets_are_bytes():
    """A span counts bytes, not characters."""
    line = '{"é🙂":"你","b":"x"}'.encode()

    found = locate(line, [("é🙂",), ("b",)])

    assert line[slice(*found[("é🙂",)])] == '"你"'.encode()
    assert line[slice(*found[("b",)])] == b'"x"'


def test_a_value_and_what_it_holds_can_be_asked_for_together():
    """A path and a longer one below it are both answered."""
    line = b'{"a":[{"b":"x"}]}'

    assert locate(line, [(), ("a",), ("a", 0), ("a", 0, "b")]) == {
        (): (0, 17), ("a",): (5, 16), ("a", 0): (6, 15), ("a", 0, "b"): (11, 14),
    }  # fmt: skip


def test_splices_are_carried_out_wherever_they_are_named():
    """Cuts may come in any order; bytes between them stay as they are."""
    line = b"0123456789"

    assert splice(line, [(8, 9, b"eight"), (2, 4, b""), (0, 1, b"zero")]) == b"zero14567eight9"
    assert splice(line, []) == line


def test_insertions_at_one_place_keep_their_order():
    """Two fields set after the same member come out in the order in which they were given."""
    line = b'{"a":1}'

    assert splice(line, [(6, 6, b',"c":2'), (6, 6, b',"b":3')]) == b'{"a":1,"c":2,"b":3}'


def test_an_insertion_before_a_cut_stands_before_it():
    """An insertion where a cut begins does not fall into the cut."""
    assert splice(b"abcdef", [(2, 4, b"X"), (2, 2, b"+")]) == b"ab+Xef"


@QUICK
@given(st.lists(st.tuples(texts, st.booleans()), min_size=3, max_size=3), texts)
def test_a_part_of_a_string_is_replaced_and_the_rest_keeps_its_spelling(pieces, new):
    """However its characters are written, those outside the part stay byte for byte."""
    before, part, after = (
        json.dumps(text.replace("\ud800", "?"), ensure_ascii=escaped)[1:-1].encode()
        for text, escaped in pieces
    )
    first, taken = (len(json.loads(b'"%b"' % one)) for one in (before, part))

    token = splice_string(b'"%b"' % (before + part + after), [(first, first + taken, new)])

    assert token == b'"%b"' % (before + json.dumps(new)[1:-1].encode() + after)
