"""Find the session that a person or an agent named."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from brainsurgeon.errors import AmbiguousError, GoneError, NotFoundError
from brainsurgeon.hosts import openclaw
from brainsurgeon.model.sessions import Unreadable
from brainsurgeon.sessions.discover import discover
from brainsurgeon.sessions.reading import RefusedError, open_session

if TYPE_CHECKING:
    from collections.abc import Callable

    from brainsurgeon.config import Settings
    from brainsurgeon.model.records import SessionRecord
    from brainsurgeon.model.sessions import Fingerprint, SessionFile
    from brainsurgeon.store import Store


@dataclass(frozen=True, slots=True)
class Session:
    """A session as it is known: `file` where it is on disk, `record` where the store knows it."""

    title: str
    path: str
    file: SessionFile | None
    record: SessionRecord | None

    @property
    def agent(self) -> str:
        """The name of the agent that owns it."""
        return self.title.rpartition("/")[0]

    @property
    def name(self) -> str:
        """Its id, without the name of its agent."""
        return self.title.rpartition("/")[2]

    @property
    def agent_directory(self) -> str:
        """The directory of the agent that owns it; names of agents may repeat below other roots."""
        if self.file:
            return self.file.agent_directory
        return self.record.agent_directory if self.record else ""


@dataclass(frozen=True, slots=True)
class Walk:
    """Every session that is known, and what of the roots could not be looked into."""

    sessions: tuple[Session, ...]
    problems: tuple[Unreadable, ...]


def walk(settings: Settings, store: Store | None) -> Walk:
    """Walk the roots once, and give what is there together with what only the store knows."""
    records = {record.path: record for record in store.sessions.all()} if store else {}

    def format_of(path: str, _fingerprint: Fingerprint) -> str | None:
        record = records.get(path)
        return record.format if record else None

    items = list(discover(settings.root_directories(), format_of=format_of))
    files = [item for item in items if not isinstance(item, Unreadable)]
    problems = [item for item in items if isinstance(item, Unreadable)]
    live = [Session(file.title, file.path, file, records.pop(file.path, None)) for file in files]
    places = {os.path.realpath(session.path) for session in live}  # of a root that was moved, too
    gone = [
        Session(record.title, record.path, None, record)
        for record in records.values()
        if os.path.realpath(record.path) not in places
    ]
    return Walk((*live, *gone), tuple(problems))


def all_sessions(settings: Settings, store: Store | None) -> list[Session]:
    """Give every session that stands below a root or that the store still knows."""
    return list(walk(settings, store).sessions)


def session_named(settings: Settings, store: Store | None, name: str) -> Session:
    """Find one session by path, id, prefix of the id, `agent/` before either, or session key.

    Raise NotFoundError or AmbiguousError.
    """
    return session_among(all_sessions(settings, store), name)


def session_among(sessions: list[Session], name: str) -> Session:
    """Find the one of these sessions that is named; raise NotFoundError or AmbiguousError."""
    by_key = _ByKey(name)
    fitting: tuple[Callable[[Session, str], bool], ...] = (
        _by_exact_path, _by_path, _by_id, by_key.fits, _by_prefix,
    )  # fmt: skip
    for fits in fitting:
        candidates = [session for session in sessions if fits(session, name)]
        if len(candidates) == 1:
            return candidates[0]
        if candidates:
            shown = [f"{session.title}  {session.path}" for session in candidates]
            raise AmbiguousError(f"session {name!r}", shown, "say more of it, or its path")
    raise NotFoundError(f"no session is called {name!r}; `brainsurgeon sessions` lists them")


def _by_exact_path(session: Session, name: str) -> bool:
    return name == session.path


def _by_path(session: Session, name: str) -> bool:
    is_path = (os.sep in name or name.endswith(".jsonl")) and "\0" not in name
    return is_path and os.path.realpath(name) == os.path.realpath(session.path)


def _by_id(session: Session, name: str) -> bool:
    return name in (session.title, session.name)


def _by_prefix(session: Session, name: str) -> bool:
    whole = session.title if "/" in name else session.name
    return bool(name) and whole.startswith(name)


class _ByKey:
    """Tells whether a session has a session key; each `sessions.json` is read once."""

    def __init__(self, key: str) -> None:
        self._key = key
        self._keyed: dict[str, list[dict[str, Any]]] = {}

    def fits(self, session: Session, _name: str) -> bool:
        """Tell whether the `sessions.json` beside the session's file gives it the key."""
        file = session.file
        if file is None:
            return False
        if file.directory not in self._keyed:
            self._keyed[file.directory] = openclaw.keyed(file.directory, self._key)
        return any(
            openclaw.names_session(entry, file.name) for entry in self._keyed[file.directory]
        )


def record_of(store: Store, session: Session) -> SessionRecord | None:
    """Give the record of a session; for a fork that no scan has seen yet, the one it would get."""
    if session.record or session.file is None:
        return session.record
    try:
        with open_session(session.file) as opened:
            form = opened.format
            parent = form.survey(opened.lines, 0).parent
    except (OSError, RefusedError):
        return None
    return store.sessions.unnoted(session.file, form.name, parent)


def file_of(session: Session) -> SessionFile:
    """Give the file of a session; raise GoneError when only the store still knows it."""
    if session.file is None:
        raise GoneError(
            f"{session.title}: its file is gone from {session.path}; `brainsurgeon context` lists "
            "what is still held of it, `brainsurgeon show` prints it"
        )
    return session.file
