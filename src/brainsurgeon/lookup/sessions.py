"""Lookup of sessions by path, id, prefix or session key."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from brainsurgeon.errors import AmbiguousError, BusyError, FailedError, GoneError, NotFoundError
from brainsurgeon.hosts import openclaw
from brainsurgeon.lookup import catalogue
from brainsurgeon.lookup.catalogue import find_row
from brainsurgeon.model.sessions import Root, SessionFile, Unreadable
from brainsurgeon.model.text import readable
from brainsurgeon.sessions.discovery import discover
from brainsurgeon.sessions.opening import failing, identity_of, look_at, open_session
from brainsurgeon.sessions.row_listing import NOTHING_OWN, list_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from brainsurgeon.config import Settings
    from brainsurgeon.model.records import SessionRecord
    from brainsurgeon.model.sessions import Fingerprint
    from brainsurgeon.store import Store


# pi and Codex name their files by the start time of a session and its id.
_AFTER_TIME = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9-]+Z?_(.+)"
    r"|rollout-[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}-[0-9]{2}-[0-9]{2}-(.+)",
    re.DOTALL,
)


def is_called(session: Session, name: str) -> bool:
    """Check whether a session's file name equals `name`, with or without its start time."""
    return name in _said(session, _of_file(session.name))


def calls_itself(session: Session, name: str) -> bool:
    """Check whether a session's header has this id; read the file if the store has no id."""
    bare = name.rpartition("/")[2]
    if not bare:
        return False
    identity = session.record.identity if session.record else None
    identity = identity or (identity_of(session.file) if session.file else None)
    return identity is not None and name in _said(session, [identity])


def begins_with(session: Session, name: str) -> bool:
    """Check whether a file name or id of a session begins with `name`."""
    ids = _of_file(session.name)
    identity = session.record.identity if session.record else None
    if identity:
        ids.append(identity)
    return bool(name) and any(
        own.startswith(name) for own in _said(session, ids) if ("/" in own) == ("/" in name)
    )


def _of_file(name: str) -> list[str]:
    after = _AFTER_TIME.fullmatch(name)
    return [name, after[1] or after[2]] if after else [name]


def _said(session: Session, ids: list[str]) -> set[str]:
    """Return ids, alone and with `agent/` before them, both as stored and as printed."""
    agents = openclaw.agent_names(session.agent)
    names = {*ids, *(f"{agent}/{ident}" for agent in agents for ident in ids)}
    return names | {readable(name) for name in names}


class ByKey:
    """Matches sessions by session key; reads each `sessions.json` once."""

    def __init__(self, key: str) -> None:
        self._key = key
        self._keyed: dict[str, list[dict[str, Any]]] = {}

    def fits(self, session: Session, _name: str) -> bool:
        file = session.file
        if file is None:
            return False
        if file.in_database:
            return file.key == self._key
        if file.directory not in self._keyed:
            self._keyed[file.directory] = openclaw.keyed(file.directory, self._key)
        return any(
            openclaw.names_session(entry, file.name) for entry in self._keyed[file.directory]
        )


@dataclass(frozen=True, slots=True)
class Session:
    """A session: `file` if it is on disk, `record` if it has a row in the store.

    `beyond` is true if its file is below no configured root. `unseen` is the reason why the
    existence of its file is unknown. With `only_owned`, the caller may see only values that were
    extracted from sessions of the same agent.
    """

    title: str
    path: str
    file: SessionFile | None
    record: SessionRecord | None
    beyond: bool = False
    unseen: str = ""
    only_owned: bool = False

    @property
    def agent(self) -> str:
        return self.title.rpartition("/")[0]

    @property
    def name(self) -> str:
        return self.title.rpartition("/")[2]

    @property
    def agent_directory(self) -> str:
        """The directory of its agent; agents below different roots may have the same name."""
        if self.file:
            return self.file.agent_directory
        return self.record.agent_directory if self.record else ""


@dataclass(frozen=True, slots=True)
class Walk:
    """All known sessions, and the places below the roots that could not be read."""

    sessions: tuple[Session, ...]
    problems: tuple[Unreadable, ...]


def walk(settings: Settings, store: Store | None, *, beyond: bool = False) -> Walk:
    """Walk the roots once; return the sessions found there and those known only to the store.

    With `beyond`, also look for sessions that were last seen below a former root.
    """
    known = _Known(store)
    roots = settings.root_directories()
    own = store.rows.own_times() if store else NOTHING_OWN
    discovered = discover(roots, format_of=known.format_of, recorded=known.is_below)
    items = [*discovered, *list_rows(roots, own)]
    problems = [item for item in items if isinstance(item, Unreadable)]
    files = [item for item in items if not isinstance(item, Unreadable)]
    known.expect(files)
    live = [known.session(file) for file in files]
    return Walk((*live, *known.rest(live, problems, beyond=beyond)), tuple(problems))


class _Known:
    """The sessions in the store at the beginning of a walk."""

    def __init__(self, store: Store | None) -> None:
        self._store = store
        self._records = list(store.sessions.all()) if store else []
        self._by_path = {record.path: record for record in self._records if not record.displaced}
        self._moved = False
        self._inodes: set[tuple[int, int]] = set()

    def is_below(self, path: str) -> bool:
        """Check whether a session was last seen at a path or below it."""
        return self._store is not None and self._store.sessions.is_below(path)

    def format_of(self, path: str, _fingerprint: Fingerprint) -> str | None:
        record = self._by_path.get(path)
        return record.format if record else None

    def expect(self, files: list[SessionFile]) -> None:
        """Store the paths and inodes of all files, before the first call of `session`."""
        paths = {file.path for file in files}
        self._inodes = {(file.fingerprint.device, file.fingerprint.inode) for file in files}
        self._moved = any(
            row.displaced or row.path not in paths for row in self._records if row.identity
        )

    def session(self, file: SessionFile, *, beyond: bool = False) -> Session:
        """Return the session of a file, which is read only if it may have been moved."""
        record = self._by_path.get(file.path)
        if record is None and self._moved and self._store:
            record = find_row(self._store, file, identity_of(file))
        return Session(file.title, file.path, file, record, beyond=beyond)

    def rest(
        self, live: Iterable[Session], problems: Iterable[Unreadable], *, beyond: bool
    ) -> Iterator[Session]:
        """Yield the sessions whose files the walk did not find."""
        live_ids = {session.record.id for session in live if session.record}
        for record in self._records:
            if record.id in live_ids:
                continue
            file = None
            second_name = self._is_second_name(record)
            if second_name or (beyond and not record.displaced):
                file = look_at([Root(record.root)], record.path)
            if isinstance(file, SessionFile):
                yield self.session(file, beyond=not second_name)
            else:
                unseen = _unseen(record.path, problems)
                yield Session(record.title, record.path, None, record, unseen=unseen)

    def _is_second_name(self, record: SessionRecord) -> bool:
        """Check whether the walk found a hard link to a recorded file."""
        if record.displaced:
            return False
        try:
            status = os.lstat(record.path)
        except OSError:
            return False
        return (status.st_dev, status.st_ino) in self._inodes


def _unseen(path: str, problems: Iterable[Unreadable]) -> str:
    """Return why the walk could not check whether a file exists, or ""."""
    for problem in problems:
        if f"{path}/".startswith(f"{problem.path.rstrip('/')}/"):
            return f"{problem.path}: {problem.why}"
    return ""


def all_sessions(settings: Settings, store: Store | None, *, beyond: bool = False) -> list[Session]:
    """Return all sessions that are below a root or known to the store."""
    return list(walk(settings, store, beyond=beyond).sessions)


def session_named(
    settings: Settings, store: Store | None, name: str | Session, *, beyond: bool = False
) -> Session:
    """Return a session by path, id or prefix of it (also after `agent/`), or session key.

    A session is returned as it is. Raises NotFoundError or AmbiguousError.
    """
    if isinstance(name, Session):
        return name
    return session_among(all_sessions(settings, store, beyond=beyond), name)


def session_among(sessions: list[Session], name: str) -> Session:
    """Like `session_named`, among the given sessions."""
    by_key = ByKey(name)
    fitting: tuple[Callable[[Session, str], bool], ...] = (
        _by_exact_path, _by_path, is_called, calls_itself, by_key.fits, begins_with,
    )  # fmt: skip
    for fits in fitting:
        candidates = _living([session for session in sessions if fits(session, name)])
        if len(candidates) == 1:
            return candidates[0]
        if candidates:
            shown = [f"{session.title}  {session.path}" for session in candidates]
            raise AmbiguousError(f"session {name!r}", shown, "say more of it, or its path")
    raise NotFoundError(f"no session is called {name!r}; `brainsurgeon sessions` lists them")


def _living(sessions: list[Session]) -> list[Session]:
    """Drop missing sessions whose name a present one has, and files whose name a row has.

    An agent that moves to a database keeps the names of its sessions.
    """
    inside = {session.title for session in sessions if session.file and session.file.in_database}
    taken = {session.title for session in sessions if session.file}
    return [
        session for session in sessions
        if (session.title not in taken if session.file is None
            else session.file.in_database or session.title not in inside)
    ]  # fmt: skip


def _by_exact_path(session: Session, name: str) -> bool:
    return name in (session.path, readable(session.path))


def _by_path(session: Session, name: str) -> bool:
    is_path = (os.sep in name or name.endswith(".jsonl")) and "\0" not in name
    return is_path and os.path.realpath(name) == os.path.realpath(session.path)


def identified(store: Store, session: Session) -> Session:
    """Return the session with the row that its own id leads to; writes nothing.

    Sessions that changed places have each other's rows until they are looked at.
    """
    file = session.file
    if file is None or session.record is None or file.in_database:
        return session
    try:
        with failing(file), open_session(file) as opened:
            return replace(session, record=catalogue.find(store, opened))
    except (BusyError, FailedError):
        return session


def noted(store: Store, session: Session) -> Session:
    """Return the session with its row updated or created.

    Raises FailedError if it has no row and its file cannot be read.
    """
    file = session.file
    if file is None:
        return session
    try:
        with failing(file), open_session(file) as opened:
            record = catalogue.update(store, opened) or catalogue.note(store, opened)
    except (BusyError, FailedError):
        if session.record is None:
            raise
        return session  # the next operation on it fails or waits, with the reason
    return replace(session, record=record)


def file_of(session: Session) -> SessionFile:
    """Return the file of a session; raise GoneError if it is gone or cannot be seen."""
    if session.file is not None:
        return session.file
    why = session.unseen
    where = f"cannot be seen: {why}" if why else f"is gone from {session.path}"
    raise GoneError(
        f"{session.title}: its file {where}; `brainsurgeon context` lists what is still held "
        "of it, `brainsurgeon show` prints it"
    )
