"""Find the session that a person or an agent named."""

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


_AFTER_TIME = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9-]+Z?_(.+)"
    r"|rollout-[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}-[0-9]{2}-[0-9]{2}-(.+)",
    re.DOTALL,
)
"""How pi and Codex name their files: when a session began, and its id."""


def is_called(session: Session, name: str) -> bool:
    """Tell whether a session is called so: by its file, or by what follows the time in it."""
    return name in _said(session, _of_file(session.name))


def calls_itself(session: Session, name: str) -> bool:
    """Tell whether a session's own header says this id; reads it where nobody has yet."""
    bare = name.rpartition("/")[2]
    if not bare:
        return False
    identity = session.record.identity if session.record else None
    identity = identity or (identity_of(session.file) if session.file else None)
    return identity is not None and name in _said(session, [identity])


def begins_with(session: Session, name: str) -> bool:
    """Tell whether one of a session's names begins so."""
    ids = [*_of_file(session.name)]
    identity = session.record.identity if session.record else None
    if identity:
        ids.append(identity)
    return bool(name) and any(
        one.startswith(name) for one in _said(session, ids) if ("/" in one) == ("/" in name)
    )


def _of_file(name: str) -> list[str]:
    after = _AFTER_TIME.fullmatch(name)
    return [name, after[1] or after[2]] if after else [name]


def _said(session: Session, ids: list[str]) -> set[str]:
    """Give ids alone and behind their agent, as they are and as they are printed."""
    agents = openclaw.agent_names(session.agent)
    said = {*ids, *(f"{agent}/{one}" for agent in agents for one in ids)}
    return said | {readable(one) for one in said}


class ByKey:
    """Tells whether a session has a session key; each `sessions.json` is read once."""

    def __init__(self, key: str) -> None:
        self._key = key
        self._keyed: dict[str, list[dict[str, Any]]] = {}

    def fits(self, session: Session, _name: str) -> bool:
        """Tell whether the `sessions.json` beside the session's file gives it the key."""
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
    """A session as it is known: `file` where it is on disk, `record` where the store knows it.

    `beyond` says that its file lies below no root of today, `unseen` why nobody can say whether
    its file is there. With `only_owned`, whoever asks may see what was extracted from its agent's
    sessions, and no more.
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


def walk(settings: Settings, store: Store | None, *, beyond: bool = False) -> Walk:
    """Walk the roots once, and give what is there together with what only the store knows.

    With `beyond`, what was last seen below a root of another day is looked for there, too.
    """
    known = _Known(store)
    roots = settings.root_directories()
    own = store.rows.own_times() if store else NOTHING_OWN
    files_found = discover(roots, format_of=known.format_of, recorded=known.is_below)
    items = [*files_found, *list_rows(roots, own)]
    problems = [item for item in items if isinstance(item, Unreadable)]
    files = [item for item in items if not isinstance(item, Unreadable)]
    known.expect(files)
    live = [known.session(file) for file in files]
    return Walk((*live, *known.rest(live, problems, beyond=beyond)), tuple(problems))


class _Known:
    """What the store knows as a walk begins."""

    def __init__(self, store: Store | None) -> None:
        self._store = store
        self._records = list(store.sessions.all()) if store else []
        self._by_path = {one.path: one for one in self._records if not one.displaced}
        self._moved = False
        self._inodes: set[tuple[int, int]] = set()

    def is_below(self, path: str) -> bool:
        """Check whether a session was last seen at a path, or somewhere below it."""
        return self._store is not None and self._store.sessions.is_below(path)

    def format_of(self, path: str, _fingerprint: Fingerprint) -> str | None:
        """Return the format that a file had when it was last seen."""
        record = self._by_path.get(path)
        return record.format if record else None

    def expect(self, files: Iterable[SessionFile]) -> None:
        """Take in which files there are, before any of them is looked up."""
        listed = list(files)
        paths = {file.path for file in listed}
        self._inodes = {(one.fingerprint.device, one.fingerprint.inode) for one in listed}
        self._moved = any(
            one.displaced or one.path not in paths for one in self._records if one.identity
        )

    def session(self, file: SessionFile, *, beyond: bool = False) -> Session:
        """Return the session that a file is; it is read only where it may have been moved."""
        record = self._by_path.get(file.path)
        if record is None and self._moved and self._store:
            record = find_row(self._store, file, identity_of(file))
        return Session(file.title, file.path, file, record, beyond=beyond)

    def rest(
        self, live: Iterable[Session], problems: Iterable[Unreadable], *, beyond: bool
    ) -> Iterator[Session]:
        """Yield the sessions whose files the walk did not come upon."""
        met = {one.record.id for one in live if one.record}
        for record in self._records:
            if record.id in met:
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
        """Check whether a recorded file was met under another name: a hard link to it."""
        if record.displaced:
            return False
        try:
            status = os.lstat(record.path)
        except OSError:
            return False
        return (status.st_dev, status.st_ino) in self._inodes


def _unseen(path: str, problems: Iterable[Unreadable]) -> str:
    """Say why the walk could not see whether a file is there, or nothing if it could."""
    for one in problems:
        if f"{path}/".startswith(f"{one.path.rstrip('/')}/"):
            return f"{one.path}: {one.why}"
    return ""


def all_sessions(settings: Settings, store: Store | None, *, beyond: bool = False) -> list[Session]:
    """Give every session that stands below a root or that the store still knows."""
    return list(walk(settings, store, beyond=beyond).sessions)


def session_named(
    settings: Settings, store: Store | None, name: str, *, beyond: bool = False
) -> Session:
    """Find one session by path, id, prefix of the id, `agent/` before either, or session key.

    Raise NotFoundError or AmbiguousError.
    """
    return session_among(all_sessions(settings, store, beyond=beyond), name)


def session_among(sessions: list[Session], name: str) -> Session:
    """Find the one of these sessions that is named; raise NotFoundError or AmbiguousError."""
    by_key = ByKey(name)
    fitting: tuple[Callable[[Session, str], bool], ...] = (
        _by_exact_path, _by_path, is_called, calls_itself, by_key.fits,
        begins_with,
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
    """Leave out what only the store still knows, and files, where another has taken the name.

    An agent that moves to a database takes its sessions over under their names.
    """
    inside = {one.title for one in sessions if one.file and one.file.in_database}
    taken = {one.title for one in sessions if one.file}
    return [
        one for one in sessions
        if (one.title not in taken if one.file is None
            else one.file.in_database or one.title not in inside)
    ]  # fmt: skip


def _by_exact_path(session: Session, name: str) -> bool:
    return name in (session.path, readable(session.path))


def _by_path(session: Session, name: str) -> bool:
    is_path = (os.sep in name or name.endswith(".jsonl")) and "\0" not in name
    return is_path and os.path.realpath(name) == os.path.realpath(session.path)


def noted(store: Store, session: Session) -> Session:
    """Return the session with its row brought up to date, or made where it has none.

    Raise FailedError where it has none and its file cannot be read.
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
        return session  # what is asked of it next fails or waits, and says why
    return replace(session, record=record)


def file_of(session: Session) -> SessionFile:
    """Give the file of a session; raise GoneError where it is gone or cannot be seen."""
    if session.file is None:
        why = session.unseen
        where = f"cannot be seen: {why}" if why else f"is gone from {session.path}"
        raise GoneError(
            f"{session.title}: its file {where}; `brainsurgeon context` lists what is still held "
            "of it, `brainsurgeon show` prints it"
        )
    return session.file
