"""Open a session for reading, or look for it, whether it lies in a file or in a database."""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from brainsurgeon import formats
from brainsurgeon.errors import BusyError, FailedError
from brainsurgeon.model.sessions import Fingerprint, Root
from brainsurgeon.sessions.discovery import discover_at
from brainsurgeon.sessions.reading import FileLines, OpenSession, RefusedError, carry_on, head
from brainsurgeon.sessions.reading import open_session as open_file
from brainsurgeon.sessions.row_listing import list_rows_at, row_at
from brainsurgeon.sessions.row_session import OpenRows, open_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from brainsurgeon.model.sessions import SessionFile, Unreadable

# A session that is open for reading, in either medium.
AnyOpen = OpenSession | OpenRows


def open_session(
    file: SessionFile, check_stop: Callable[[], None] = carry_on
) -> AbstractContextManager[AnyOpen]:
    """Open a session; raise RefusedError or OSError where it cannot be read.

    `check_stop` is called for everything that is read and may raise StoppedError.
    """
    return open_rows(file, check_stop) if file.in_database else open_file(file, check_stop)


def identity_of(file: SessionFile) -> str | None:
    """Return which conversation a session is; None where that cannot be told."""
    try:
        with open_session(file) as session:
            return session.identity
    except (OSError, RefusedError, BusyError):
        return None


def identity_at(descriptor: int, hint: str) -> str | None:
    """Return which conversation an open file holds; None where that cannot be told."""
    first = head(FileLines(descriptor, os.fstat(descriptor).st_size))
    return formats.recognise(first, hint).identity


def look_at(roots: Sequence[Root], path: str) -> SessionFile | Unreadable | None:
    """Look at one path alone, in either medium; None where no session is there."""
    return discover_at(roots, path) or row_at(roots, path)


def as_it_is_now(file: SessionFile) -> SessionFile:
    """Look at a session once more, by its name; raise FileNotFoundError where it is gone."""
    if file.in_database:
        return _row_session_as_it_is_now(file)
    status = os.stat(file.path, follow_symlinks=False)
    return replace(file, fingerprint=Fingerprint.of(status))


def _row_session_as_it_is_now(file: SessionFile) -> SessionFile:
    own = {} if file.own_ms is None else {file.path: file.own_ms}
    for found in list_rows_at(
        [Root(file.root, file.hint, exclusive=file.exclusive)], file.path, own
    ):
        return found
    raise FileNotFoundError(file.path)


@contextmanager
def failing(file: SessionFile) -> Iterator[None]:
    """Raise FailedError, which names the session, where a block cannot open or read its file."""
    try:
        yield
    except RefusedError as why:
        raise FailedError(f"{file.title}: {why}; its file was left as it is") from why
    except OSError as why:
        raise failed(file.title, why) from why


def failed(title: str, error: OSError) -> FailedError:
    """Make the error that says which session could not be read or replaced, and why."""
    why = error.strerror or type(error).__name__
    return FailedError(f"{title}: {why}; its file was left as it is")
