"""Write the new content of a session into a file beside it, as like the old one as can be."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from brainsurgeon.sessions import retire
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
    _copy_attributes(session, new)
    os.fsync(new)
    return replaced, whole


def _copy_attributes(session: OpenSession, new: int) -> None:
    status = os.fstat(new)
    if (status.st_uid, status.st_gid) != session.owner:
        os.fchown(new, *session.owner)
    for name in _attributes(session.descriptor):
        os.setxattr(new, name, os.getxattr(session.descriptor, name))
    os.fchmod(new, session.mode)
    os.utime(new, ns=session.times_ns)


def _attributes(descriptor: int) -> list[str]:
    """List the extended attributes that are the file's own (access lists among them)."""
    try:
        names = os.listxattr(descriptor)
    except (AttributeError, OSError):  # not on this system, not on this filesystem
        return []
    return [name for name in names if not name.startswith(("security.", "trusted."))]
