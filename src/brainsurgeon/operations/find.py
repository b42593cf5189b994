"""Find the session that a person or an agent named."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from brainsurgeon import formats
from brainsurgeon.errors import Ambiguous, Gone, NotFound
from brainsurgeon.model import Found, Unreadable
from brainsurgeon.operations import look
from brainsurgeon.sessions import quiet
from brainsurgeon.sessions.discover import discover
from brainsurgeon.sessions.reading import Refused, open_session
from brainsurgeon.store import extractions

if TYPE_CHECKING:
    from brainsurgeon.config import Settings
    from brainsurgeon.store import Store
    from brainsurgeon.store.extractions import SessionRow


@dataclass(frozen=True, slots=True)
class Session:
    """A session as it was found: on disk, in the store, or in both."""

    title: str
    path: str
    found: Found | None
    row: SessionRow | None

    @property
    def agent(self) -> str:
        """The name of the agent that owns it."""
        return self.title.rpartition("/")[0]

    @property
    def agent_directory(self) -> str:
        """The directory of the agent that owns it; names of agents may repeat below other roots."""
        if self.found:
            return self.found.agent_directory
        return self.row.agent_directory if self.row else ""


def all_sessions(settings: Settings, store: Store | None) -> list[Session]:
    """Give every session that stands below a root or that the store still knows."""
    rows = {row.path: row for row in extractions.sessions(store.connection)} if store else {}
    listed = []
    for item in discover(settings.root_directories()):
        if not isinstance(item, Unreadable):
            row = rows.pop(item.path, None)
            found = look.named(item, row.format) if row else _named_by_content(item)
            listed.append(Session(found.title, found.path, found, row))
    live = {os.path.realpath(session.path) for session in listed}  # of a root that was moved, too
    return listed + [
        Session(row.title, row.path, None, row)
        for row in rows.values()
        if os.path.realpath(row.path) not in live
    ]


def _named_by_content(found: Found) -> Found:
    if os.path.basename(found.directory) == "sessions":
        return found
    try:
        with open_session(found) as session:
            form, _ = formats.recognise(session.head(formats.HEAD_LINES), found.hint)
    except (OSError, Refused):
        form = None
    return look.named(found, form.name if form else "unknown")


def session_named(settings: Settings, store: Store | None, name: str) -> Session:
    """Find one session by path, id, prefix of the id, `agent/` before either, or session key.

    Raise NotFound or Ambiguous.
    """
    return session_among(all_sessions(settings, store), name)


def session_among(sessions: list[Session], name: str) -> Session:
    """Find the one of these sessions that is named; raise NotFound or Ambiguous."""
    named = _ByKey(name)
    for fits in (_by_exact_path, _by_path, _by_id, named.fits, _by_prefix):
        candidates = [session for session in sessions if fits(session, name)]
        if len(candidates) == 1:
            return candidates[0]
        if candidates:
            shown = [f"{session.title}  {session.path}" for session in candidates]
            raise Ambiguous(f"session {name!r}", shown, "say more of it, or its path")
    raise NotFound(f"no session is called {name!r}; `brainsurgeon sessions` lists them")


def _by_exact_path(session: Session, name: str) -> bool:
    return name == session.path


def _by_path(session: Session, name: str) -> bool:
    named = (os.sep in name or name.endswith(".jsonl")) and "\0" not in name
    return named and os.path.realpath(name) == os.path.realpath(session.path)


def _by_id(session: Session, name: str) -> bool:
    return name in (session.title, session.title.rpartition("/")[2])


def _by_prefix(session: Session, name: str) -> bool:
    return bool(name) and (
        session.title.startswith(name) if "/" in name
        else session.title.rpartition("/")[2].startswith(name)
    )  # fmt: skip


class _ByKey:
    """Tells whether a session has a key; the registry of each directory is read once."""

    def __init__(self, key: str) -> None:
        self._key = key
        self._entries: dict[str, list[dict[str, Any]]] = {}

    def fits(self, session: Session, _name: str) -> bool:
        if session.found is None:
            return False
        directory = session.found.directory
        if directory not in self._entries:
            self._entries[directory] = self._read(directory)
        return any(
            quiet.names_session(entry, session.found.name) for entry in self._entries[directory]
        )

    def _read(self, path: str) -> list[dict[str, Any]]:
        try:
            directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        except OSError:
            return []
        try:
            return [entry for key, entry in quiet.registry(directory) if key == self._key]
        finally:
            os.close(directory)


def row_of(store: Store, session: Session) -> SessionRow | None:
    """Give the row of a session; a fork that no scan has seen yet gets one to look with."""
    if session.row or session.found is None:
        return session.row
    try:
        with open_session(session.found) as opened:
            form = look.recognise(opened)
            parent = form.survey(opened.lines, 0).parent
    except (OSError, Refused):
        return None
    return extractions.unnoted(store.connection, session.found, form.name, parent)


def file_of(session: Session) -> Found:
    """Give the file of a session; raise Gone when only the store still knows it."""
    if session.found is None:
        raise Gone(f"{session.title}: its file is gone from {session.path}")
    return session.found
