"""Write the new content of a session into a file beside it, as like the old one as can be."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from brainsurgeon.sessions import attributes, retire
from brainsurgeon.sessions.reading import read_range

if TYPE_CHECKING:
    from collections.abc import Iterable

    from brainsurgeon.model.sessions import End
    from brainsurgeon.sessions.reading import OpenSession

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
        for chunk in read_range(session.descriptor, done, start):
            session.check_stop()
            retire.write(new, chunk)
        retire.write(new, token)
        replaced.append((start, end, len(token)))
        done = end
    for chunk in read_range(session.descriptor, done, session.fingerprint.size):
        session.check_stop()
        retire.write(new, chunk)
    whole = retire.end_of(new, os.fstat(new).st_size)  # reading it changes its times
    attributes.copy(
        session.descriptor, new, owner=session.owner, mode=session.mode, times_ns=session.times_ns
    )
    os.fsync(new)
    return replaced, whole
