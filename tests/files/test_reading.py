"""Opening a session, and reading its lines from either end in bounded memory."""

import os
import stat
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brainsurgeon.files import reading
from brainsurgeon.files.reading import FileLines, head, read_range
from brainsurgeon.model.entries import Line
from brainsurgeon.model.session_files import Root, SessionFile
from brainsurgeon.sessions.discovery import discover, open_session

CONTENT = st.lists(
    st.one_of(
        st.binary(max_size=12),
        st.sampled_from([
            b"\n\n", b"\r\n", b"x" * 40,
            *(mark.encode() for mark in "\n\r\x0b\x0c\x1c\x85\u2028\u2029"),
        ]),
    ),
    max_size=12,
).map(b"".join)  # fmt: skip


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
    """Return the lines without their numbers, which are unknown when reading backward."""
    return [Line(0, line.offset, line.raw, terminated=line.terminated) for line in lines]


def read(data, chunk, longest, cut_off=0):
    """Return the lines of `data` read forward and backward, with small limits."""
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
def test_lines_are_the_same_forward_and_backward(data, chunk, longest):
    """Reading from either end splits at newlines only, for every chunk size and limit."""
    expected = reference(data, longest)
    forward, backward = read(data, chunk, longest)

    assert forward == expected
    assert backward == unnumbered(reversed(expected))


@given(data=CONTENT, chunk=st.integers(1, 9), cut_off=st.integers(0, 20))
def test_bytes_appended_after_opening_are_not_read(data, chunk, cut_off):
    """Bytes beyond the size at the time of opening are not read."""
    cut_off = min(cut_off, len(data))
    expected = reference(data[: len(data) - cut_off], 1 << 20)
    forward, backward = read(data, chunk, 1 << 20, cut_off)

    assert forward == expected
    assert backward == unnumbered(reversed(expected))


@pytest.mark.parametrize("newline", [b"\n", b""])
@pytest.mark.parametrize("chunk", [1, 7, 50, 51, 52, 1000])
def test_line_above_the_limit_is_listed_without_content(chunk, newline):
    """A line that is too long has a place but no content; its neighbours are read."""
    data = b"before\n" + b"x" * 51 + newline
    forward, backward = read(data + b"after\n" * bool(newline), chunk, 50)

    assert forward[:2] == [Line(1, 0, b"before"), Line(2, 7, None, terminated=bool(newline))]
    assert [line.raw for line in forward[2:]] == [b"after"] * bool(newline)
    assert backward == unnumbered(reversed(forward))


def test_memory_is_bounded_for_a_line_without_end(monkeypatch):
    """A pending line never holds more than the limit and one chunk."""
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
def test_range_is_read_by_position_up_to_the_end_of_the_file(data, chunk, places):
    """A range is the same for every chunk size, and shorter if the file ends before it."""
    start, end = min(places), max(places)
    descriptor = in_memory(data)
    limit, reading.CHUNK = reading.CHUNK, chunk
    try:
        content = b"".join(read_range(descriptor, start, end))
    finally:
        reading.CHUNK = limit
        os.close(descriptor)

    assert content == data[start:end]


@pytest.fixture
def listed(world):
    path = world.put("one.jsonl", b'{"type":"session"}\n{}\ntail')
    os.chmod(path, 0o640)
    return next(file for file in discover([Root(str(world.root))]) if isinstance(file, SessionFile))


def open_files(below):
    """Return the paths below a directory that this process has open."""
    paths = []
    for number in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):
            paths.append(os.readlink(f"/proc/self/fd/{number}"))
    return sorted(place for place in paths if place.startswith(below))


def test_session_is_open_through_one_descriptor(listed):
    """The file and its directory are open once each, not inheritable, and closed at the end."""
    with open_session(listed) as session:
        opened = open_files(listed.root)
        list(session.lines)
        inherited = os.get_inheritable(session.descriptor), os.get_inheritable(session.directory)

    assert opened == [listed.directory, listed.path]
    assert open_files(listed.root) == []
    assert inherited == (False, False)


def test_opened_session_has_status_fingerprint_and_content(listed):
    """The status of an opened session is that of its descriptor."""
    with open_session(listed) as session:
        status = os.fstat(session.descriptor)

        assert stat.S_IMODE(session.status.st_mode) == 0o640
        assert session.status[:] == status[:]
        assert session.fingerprint == listed.fingerprint
        assert session.read(0, 6) == b'{"type'
        assert session.read(0, 1000) == b'{"type":"session"}\n{}\ntail'
        assert head(session.lines)[:2] == [b'{"type":"session"}', b"{}"]
        assert [line.terminated for line in session.lines] == [True, True, False]


def test_reading_preserves_the_access_time(listed):
    """Reading a session does not change its access time."""
    os.utime(listed.path, ns=(10**18, 2 * 10**18))
    with open_session(listed) as session:
        list(session.lines)

    assert os.stat(listed.path).st_atime_ns == 10**18


def test_link_on_the_path_to_a_session_is_refused(world, listed):
    """A session is opened step by step below its root, so a directory that became a link fails."""
    moved = world.base / "elsewhere"
    world.directory.rename(moved)
    os.symlink(moved, world.directory)

    with (
        pytest.raises(OSError, match=r"Not a directory|levels of symbolic links"),
        open_session(listed),
    ):
        pass
