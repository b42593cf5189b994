"""Write the new content of a session into a file beside it, as like the old one as can be."""

from __future__ import annotations

import errno
import fcntl
import os
from array import array
from contextlib import contextmanager
from itertools import groupby
from typing import TYPE_CHECKING

from brainsurgeon.sessions import attributes, late_lines
from brainsurgeon.sessions.reading import CHUNK, read_range

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from brainsurgeon.model.sessions import End
    from brainsurgeon.sessions.reading import OpenSession

# Bytes; shorter runs of nothing are written out.
BLOCK = 4096
# Bytes; longer runs of what stays are copied by the kernel, which may even share their blocks.
COPIED = 64 << 10
# Why a kernel, a filesystem or a sandbox does not copy (copy_file_range(2)); we do it then.
_CANNOT = frozenset({
    errno.ENOSYS, errno.EOPNOTSUPP, errno.EXDEV, errno.EINVAL, errno.EBADF, errno.EPERM,
})  # fmt: skip
# Start and end in the old file, and the bytes that stand there in the new one.
Splice = tuple[int, int, bytes]
# Start and end in the old file, and the length that stands there in the new one.
Replacement = tuple[int, int, int]


class Replaced:
    """The places that were replaced, in order: 24 bytes for each."""

    def __init__(self) -> None:
        self._told = array("q")

    def add(self, start: int, end: int, length: int) -> None:
        """Take one more, behind the others."""
        self._told.extend((start, end, length))

    def __iter__(self) -> Iterator[Replacement]:
        told = iter(self._told)
        return zip(told, told, told, strict=True)


def fill(
    session: OpenSession, new: int, splices: Iterable[Splice]
) -> tuple[Iterable[Replacement], End]:
    """Write the new content, give it the old file's mode, owner and times, and sync it.

    Give the places that were replaced, and how the new file ends.
    """
    done = 0
    replaced = Replaced()
    for start, end, token in splices:
        if start < done:
            raise ValueError("splices out of order")
        _carry_over(session, new, done, start)
        late_lines.write(new, token)
        replaced.add(start, end, len(token))
        done = end
    _carry_over(session, new, done, session.fingerprint.size)
    whole = late_lines.end_now(new)  # reading it changes its times
    attributes.copy(
        session.descriptor, new, owner=session.owner, mode=session.mode, times_ns=session.times_ns
    )
    os.fsync(new)
    return replaced, whole


def _carry_over(session: OpenSession, new: int, start: int, end: int) -> None:
    """Write what stands between two places of the old file; its holes stay holes."""
    if end - start > COPIED and not session.sparse and hasattr(os, "copy_file_range"):
        with _at_its_place(new):
            start = _copy(session, new, start, end)
    for chunk in read_range(session.descriptor, start, end):
        session.check_stop()
        if session.sparse:
            _write_around_holes(new, chunk)
        else:
            late_lines.write(new, chunk)


def _copy(session: OpenSession, new: int, start: int, end: int) -> int:
    """Let the kernel copy what it can of a run, and tell up to where it did."""
    try:
        while start < end:
            session.check_stop()
            count = min(CHUNK, end - start)
            copied = os.copy_file_range(session.descriptor, new, count, start)
            if not copied:
                break
            start += copied
    except OSError as why:
        if why.errno not in _CANNOT:
            raise
    return start


@contextmanager
def _at_its_place(new: int) -> Iterator[None]:
    """Let an open file be written where its offset stands, as the kernel demands to copy into it.

    Nobody else knows the new file yet: its offset is its end.
    """
    flags = fcntl.fcntl(new, fcntl.F_GETFL)
    fcntl.fcntl(new, fcntl.F_SETFL, flags & ~os.O_APPEND)
    try:
        yield
    finally:
        fcntl.fcntl(new, fcntl.F_SETFL, flags)


def _write_around_holes(new: int, chunk: bytes) -> None:
    """Write a chunk at the end of the new file, but step over the blocks of it that are empty."""
    for empty, blocks in groupby(
        range(0, len(chunk), BLOCK), lambda at: not chunk[at : at + BLOCK].strip(b"\0")
    ):
        listed = list(blocks)
        piece = chunk[listed[0] : listed[-1] + BLOCK]
        if empty:
            os.ftruncate(new, os.fstat(new).st_size + len(piece))
        else:
            late_lines.write(new, piece)
