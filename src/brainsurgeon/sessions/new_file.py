"""Write the new content of a session into a file beside it, as like the old one as can be."""

from __future__ import annotations

import os
from itertools import groupby
from typing import TYPE_CHECKING

from brainsurgeon.sessions import attributes, moving, tails
from brainsurgeon.sessions.reading import read_range

if TYPE_CHECKING:
    from collections.abc import Iterable

    from brainsurgeon.model.sessions import End
    from brainsurgeon.sessions.reading import OpenSession

BLOCK = 4096
"""Bytes; shorter runs of nothing are written out."""
Splice = tuple[int, int, bytes]
"""Start and end in the old file, and the bytes that stand there in the new one."""
Replacement = tuple[int, int, int]
"""Start and end in the old file, and the length that stands there in the new one."""


def fill(
    session: OpenSession, new: int, splices: Iterable[Splice]
) -> tuple[list[Replacement], End]:
    """Write the new content, give it the old file's mode, owner and times, and sync it.

    Give the places that were replaced, and how the new file ends.
    """
    done = 0
    replaced = []
    for start, end, token in splices:
        if start < done:
            raise ValueError("splices out of order")
        _carry_over(session, new, done, start)
        moving.write(new, token)
        replaced.append((start, end, len(token)))
        done = end
    _carry_over(session, new, done, session.fingerprint.size)
    whole = tails.end_now(new)  # reading it changes its times
    attributes.copy(
        session.descriptor, new, owner=session.owner, mode=session.mode, times_ns=session.times_ns
    )
    os.fsync(new)
    return replaced, whole


def _carry_over(session: OpenSession, new: int, start: int, end: int) -> None:
    """Write what stands between two places of the old file; its holes stay holes."""
    for chunk in read_range(session.descriptor, start, end):
        session.check_stop()
        if session.sparse:
            _write_around_holes(new, chunk)
        else:
            moving.write(new, chunk)


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
            moving.write(new, piece)
