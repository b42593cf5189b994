"""Find a session, or open it for reading, in either medium: a file or a database."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

from msgspec.structs import replace

from brainsurgeon.errors import BusyError, FailedError
from brainsurgeon.hosts import openclaw
from brainsurgeon.model.sessions import Fingerprint, Root, SessionFile, Unreadable
from brainsurgeon.sessions.discovery import discover_at
from brainsurgeon.sessions.reading import AnyOpen, RefusedError, carry_on
from brainsurgeon.sessions.reading import open_session as open_file
from brainsurgeon.sessions.row_listing import list_rows_at, open_rows, row_at


def open_session(
    file: SessionFile, check_stop: Callable[[], None] = carry_on
) -> AbstractContextManager[AnyOpen]:
    """Open a session. Raises RefusedError or OSError if it cannot be read.

    `check_stop` is called at every read and may raise StoppedError.
    """
    return open_rows(file, check_stop) if file.in_database else open_file(file, check_stop)


def moved_away(file: SessionFile) -> bool:
    """Check whether the agent of a session in a file keeps its sessions in a database now."""
    return not file.in_database and openclaw.migrated(file.agent_directory)


def put_away(file: SessionFile) -> bool:
    """Check whether a file is a session's archive, to which its agent no longer writes."""
    return not file.in_database and not openclaw.is_session_name(file.name)


def identity_of(file: SessionFile) -> str | None:
    try:
        with open_session(file) as session:
            return session.identity
    except (OSError, RefusedError, BusyError):
        return None


def session_at(roots: Sequence[Root], path: str) -> SessionFile | Unreadable | None:
    """Return the session or unreadable place at one path, in either medium, or None."""
    return discover_at(roots, path) or row_at(roots, path)


def current_state(file: SessionFile) -> SessionFile:
    """Return the current state of a session. Raises FileNotFoundError if it is gone."""
    if not file.in_database:
        status = os.stat(file.path, follow_symlinks=False)
        return replace(file, fingerprint=Fingerprint.of(status))
    root = Root(file.root, file.hint, exclusive=file.exclusive)
    own = {} if file.own_ms is None else {file.path: file.own_ms}
    for session in list_rows_at([root], file.path, own):
        return session
    raise FileNotFoundError(file.path)


@contextmanager
def failing(file: SessionFile) -> Iterator[None]:
    """Raise FailedError with the session's title if the block cannot open or read its file."""
    try:
        yield
    except RefusedError as why:
        raise FailedError(f"{file.title}: {why}; its file was left as it is") from why
    except OSError as why:
        raise failed(file.title, why) from why


def failed(title: str, error: OSError) -> FailedError:
    why = error.strerror or type(error).__name__
    return FailedError(f"{title}: {why}; its file was left as it is")
