"""Replace a session where no lease can be had: compare, rename, and look back at the old file."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from brainsurgeon.sessions import retire
from brainsurgeon.sessions.reading import RefusedError, refuse_if

if TYPE_CHECKING:
    from brainsurgeon.model.sessions import Signs
    from brainsurgeon.sessions.reading import OpenSession

QUIET = 86_400.0
"""Seconds a session must have been quiet where leases do not work."""


def exchange(session: OpenSession, temporary: str, signs: Signs, quiet_for: float) -> None:
    """Compare and rename where no lease can be had, for sessions quiet for a day only."""
    if quiet_for < QUIET:
        raise RefusedError(
            "no leases on this filesystem: only sessions quiet for a day are touched"
        )
    refuse_if(signs.read() or session.differs())
    name, kept, at = session.file.name, temporary + retire.OLD, session.directory
    os.link(name, kept, src_dir_fd=at, dst_dir_fd=at, follow_symlinks=False)
    try:
        refuse_if(session.differs(but_ctime=True) or signs.changed())
        os.rename(temporary, name, src_dir_fd=at, dst_dir_fd=at)
    except BaseException:
        os.unlink(kept, dir_fd=at)
        raise
    os.rename(kept, temporary, src_dir_fd=at, dst_dir_fd=at)
    os.fsync(at)
