"""Open a session for reading, or look for it, whether it lies in a file or in a database."""

from __future__ import annotations

from typing import TYPE_CHECKING

from brainsurgeon.errors import BusyError
from brainsurgeon.sessions.discover import discover_at
from brainsurgeon.sessions.reading import OpenSession, RefusedError, carry_on
from brainsurgeon.sessions.reading import open_session as open_file
from brainsurgeon.sessions.row_listing import row_at
from brainsurgeon.sessions.row_session import OpenRows, open_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from brainsurgeon.model.sessions import Identity, Root, SessionFile, Survey, Unreadable

AnyOpen = OpenSession | OpenRows
"""A session that is open for reading, in either medium."""


def parent_said(session: AnyOpen, survey: Survey) -> str | None:
    """Give the session that an open one says it was forked from, or None."""
    return session.parent if isinstance(session, OpenRows) else survey.parent


def open_session(
    file: SessionFile, check_stop: Callable[[], None] = carry_on
) -> AbstractContextManager[AnyOpen]:
    """Open a session; raise RefusedError or OSError where it cannot be read.

    `check_stop` is called for everything that is read and may raise StoppedError.
    """
    return open_rows(file, check_stop) if file.in_database else open_file(file, check_stop)


def identity_of(file: SessionFile) -> Identity | None:
    """Say which conversation a session is; None where that cannot be told."""
    try:
        with open_session(file) as session:
            return session.identity
    except (OSError, RefusedError, BusyError):
        return None


def look_at(roots: Sequence[Root], path: str) -> SessionFile | Unreadable | None:
    """Look at one path alone, in either medium; None where no session is there."""
    return discover_at(roots, path) or row_at(roots, path)
