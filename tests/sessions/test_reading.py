"""Lines as bytes, from either end, in bounded memory; and what is opened at all."""

import os
import stat
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brainsurgeon.model.entries import Line
from brainsurgeon.model.sessions import Root, SessionFile
from brainsurgeon.sessions import reading
from brainsurgeon.sessions.discovery import discover
from brainsurgeon.sessions.reading import FileLines, head, open_session, read_range

CONTENT = st.lists(
    st.one_of(
        st.binary(max_size=12),
        st.sampled_from(
            [b"\n", b"\n\n", b"\r\n", b"\xe2\x80\xa8", b"\xc2\x85", b"\x0c", b"x" * 40]
        ),
    ),
    max_size=12,
).map(b"".join)


def in_memory(data):
    descriptor = os.memfd_create("lines")
    os.write(descriptor, data)
    return descriptor


def reference(data, longest):
    *whole, tail = data.split(b"\n")
    pieces = [(piece, True) for piece in whole] + ([(tail, False)] if tail else [])
    lines, offset = [], 0
    for number, (piece, terminated) in enumerate(pieces, 1):
        raw = piece if len(piece) <= longest else None
        lines.append(Line(number, offset, raw, terminated=terminated))
        offset += len(piece) + 1
    return lines


def unnumbered(lines):
    """Take the numbers away, which are not known from behind."""
    return [Line(0, line.offset, line.raw, terminated=line.terminated) for line in lines]


def read(data, chunk, longest, cut_off=0):
    """Read bytes as lines from both ends, with small limits."""
    limits = reading.CHUNK, reading.LONGEST_LINE
    reading.CHUNK, reading.LONGEST_LINE = chunk, longest
    descriptor = in_memory(data)
    try:
        lines = FileLines(descriptor, len(data) - cut_off)
        return list(lines), list(lines.backward())
    finally:
        os.close(descriptor)
        reading.CHUNK, reading.LONGEST_LINE = limits


@given(data=CONTENT, chunk=st.integers(1, 9), longest=st.integers(1, 30))
def test_lines_are_the_same_from_either_end_whatever_the_chunks(data, chunk, longest):
    """Reading forward and backward agree with the plain cut at newlines, for every chunk size."""
    expected = reference(data, longest)
    forward, backward = read(data, chunk, longest)

    assert forward == expected
    assert backward == unnumbered(reversed(expected))


@given(data=CONTENT, chunk=st.integers(1, 9))
def test_the_lines_and_their_newlines_are_the_whole_file(data, chunk):
    """Every byte of the file belongs to exactly one line or is the newline after one."""
    forward, _ = read(data, chunk, 1 << 20)

    assert b"".join(line.raw + b"\n" * line.terminated for line in forward) == data


@given(data=CONTENT, chunk=st.integers(1, 9), cut_off=st.integers(0, 20))
def test_what_came_after_the_opening_is_not_read(data, chunk, cut_off):
    """Only the size at the time of opening counts; bytes beyond it do not exist."""
    cut_off = min(cut_off, len(data))
    expected = reference(data[: len(data) - cut_off], 1 << 20)
    forward, backward = read(data, chunk, 1 << 20, cut_off)

    assert forward == expected
    assert backward == unnumbered(reversed(expected))


@pytest.mark.parametrize("separator", ["\u2028", "\u2029", "\x85", "\x0b", "\x0c", "\x1c", "\r"])
def test_only_a_newline_ends_a_line(separator):
    """What Python's splitlines would cut at stands inside a line like any other character."""
    data = f'{{"text":"a{separator}b"}}\n{{}}\n'.encode()
    forward, backward = read(data, 3, 1 << 20)

    assert [line.raw for line in forward] == [data.split(b"\n")[0], b"{}"]
    assert [line.raw for line in backward] == [b"{}", data.split(b"\n")[0]]


@pytest.mark.parametrize("newline", [b"\n", b""])
@pytest.mark.parametrize("chunk", [1, 7, 50, 51, 52, 1000])
def test_a_line_beyond_the_cap_is_carried_along(chunk, newline):
    """A line that is too long has its place but no content; its neighbours are read as ever."""
    data = b"before\n" + b"x" * 51 + newline
    forward, backward = read(data + b"after\n" * bool(newline), chunk, 50)

    assert forward[:2] == [Line(1, 0, b"before"), Line(2, 7, None, terminated=bool(newline))]
    assert [line.raw for line in forward[2:]] == [b"after"] * bool(newline)
    assert backward == unnumbered(reversed(forward))


@pytest.mark.parametrize("length", [49, 50])
def test_a_line_up_to_the_cap_is_read(length):
    """The cap itself is still read."""
    data = b"x" * length + b"\n"

    assert read(data, 7, 50)[0] == [Line(1, 0, data[:-1])]


def test_memory_does_not_grow_with_a_line_that_never_ends(monkeypatch):
    """What is pending never holds more than the cap and one chunk, from either end."""
    monkeypatch.setattr(reading, "CHUNK", 1 << 10)
    monkeypatch.setattr(reading, "LONGEST_LINE", 4 << 10)
    longest = []

    class Watched(bytearray):
        def __iadd__(self, more):
            longest.append(len(self) + len(more))
            return super().__iadd__(more)

    monkeypatch.setattr(reading, "bytearray", Watched, raising=False)
    descriptor = in_memory(b"x" * (64 << 10))
    lines = list(FileLines(descriptor, 64 << 10))
    os.close(descriptor)

    assert [line.raw for line in lines] == [None]
    assert max(longest) <= 5 << 10


@given(
    data=st.binary(max_size=60),
    chunk=st.integers(1, 9),
    places=st.tuples(*[st.integers(0, 70)] * 2),
)
def test_a_range_is_read_by_position_and_ends_with_the_file(data, chunk, places):
    """A range gives its bytes whatever the chunk, and fewer where the file ends before it."""
    start, end = min(places), max(places)
    descriptor = in_memory(data)
    limit, reading.CHUNK = reading.CHUNK, chunk
    try:
        got = b"".join(read_range(descriptor, start, end))
    finally:
        reading.CHUNK = limit
        os.close(descriptor)

    assert got == data[start:end]


@pytest.fixture
def found(world):
    path = world.put("one.jsonl", b'{"type":"session"}\n{}\ntail')
    os.chmod(path, 0o640)
    return next(one for one in discover([Root(str(world.root))]) if isinstance(one, SessionFile))


def held_open(below):
    places = []
    for number in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):
            places.append(os.readlink(f"/proc/self/fd/{number}"))
    return sorted(place for place in places if place.startswith(below))


def test_a_session_is_held_by_one_descriptor(found):
    """Opening uses one descriptor on the file and one on its directory, and leaves none behind."""
    with open_session(found) as session:
        during = held_open(found.root)
        list(session.lines)
        inherited = os.get_inheritable(session.descriptor), os.get_inheritable(session.directory)

    assert during == [found.directory, found.path]
    assert held_open(found.root) == []
    assert inherited == (False, False)


def test_an_opened_session_says_what_it_is(found):
    """What the replacement must keep is taken from the descriptor: mode, owner, times, state."""
    with open_session(found) as session:
        status = os.fstat(session.descriptor)

        assert stat.S_IMODE(session.status.st_mode) == 0o640
        assert session.status[:] == status[:]
        assert session.fingerprint == found.fingerprint
        assert session.read(0, 6) == b'{"type'
        assert session.read(0, 1000) == b'{"type":"session"}\n{}\ntail'
        assert head(session.lines)[:2] == [b'{"type":"session"}', b"{}"]
        assert [line.terminated for line in session.lines] == [True, True, False]


def test_reading_leaves_the_access_time(found):
    """Looking at a session does not change when it was last read."""
    os.utime(found.path, ns=(10**18, 2 * 10**18))
    with open_session(found) as session:
        list(session.lines)

    assert os.stat(found.path).st_atime_ns == 10**18


def test_a_directory_swapped_for_a_link_is_not_entered(world, found):
    """A session is reached step by step below its root; a link on the way is refused."""
    moved = world.base / "elsewhere"
    world.directory.rename(moved)
    os.symlink(moved, world.directory)

    with (
        pytest.raises(OSError, match=r"Not a directory|levels of symbolic links"),
        open_session(found),
    ):
        pass
