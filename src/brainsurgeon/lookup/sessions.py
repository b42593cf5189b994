"""Find the session that a person or an agent named."""

from __future__ import annotations

import os
from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from brainsurgeon.errors import AmbiguousError, BusyError, GoneError, NotFoundError
from brainsurgeon.lookup import names
from brainsurgeon.lookup.parents import source_of
from brainsurgeon.lookup.places import Places
from brainsurgeon.lookup.whose import whose
from brainsurgeon.model.sessions import Root, Unreadable
from brainsurgeon.model.texts import readable
from brainsurgeon.sessions.discover import discover
from brainsurgeon.sessions.opening import identity_of, look_at, open_session, parent_said
from brainsurgeon.sessions.reading import RefusedError
from brainsurgeon.sessions.row_listing import NOTHING_OWN, list_rows
from brainsurgeon.store.texts import path_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from brainsurgeon.config import Settings
    from brainsurgeon.model.records import SessionRecord
    from brainsurgeon.model.sessions import Fingerprint, Identity, Place, SessionFile, Survey
    from brainsurgeon.sessions.opening import AnyOpen
    from brainsurgeon.store import Store


@dataclass(frozen=True, slots=True)
class Session:
    """A session as it is known: `file` where it is on disk, `record` where the store knows it.

    The record speaks of it as its file lies now; it is `stale` where the store has yet to be told.
    `copied` is the session whose lines a file without a record carries. `beyond` says that its
    file lies below no root of today, `unseen` why nobody can say whether its file is there.
    """

    title: str
    path: str
    file: SessionFile | None
    record: SessionRecord | None
    identity: Identity | None = None
    copied: SessionRecord | None = None
    stale: bool = False
    beyond: bool = False
    unseen: str = ""

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
    items = [*discover(roots, format_of=known.format_of), *list_rows(roots, own)]
    problems = [item for item in items if isinstance(item, Unreadable)]
    live = [known.session(item) for item in items if not isinstance(item, Unreadable)]
    return Walk((*live, *known.rest(live, problems, beyond=beyond)), tuple(problems))


class _Known:
    """What the store knows as a walk begins."""

    def __init__(self, store: Store | None) -> None:
        self._store = store
        self._places = Places()
        self._records = list(store.sessions.all()) if store else []
        self._states = store.files.all() if store and self._records else {}
        self._by_id = {one.id: one for one in self._records}
        self._by_path = {one.path: one for one in self._records if not one.homeless}
        self._alike: dict[Identity | None, list[SessionRecord]] = defaultdict(list)
        self._by_place: dict[Place | None, list[SessionRecord]] = defaultdict(list)
        for one in sorted(self._records, key=lambda one: -(one.id or 0)):
            self._alike[one.identity].append(one)
            self._by_place[one.place].append(one)

    def at(self, path: str) -> SessionRecord | None:
        """Give the session that was last seen at a path, or None."""
        return self._by_path.get(path)

    def of_identity(self, identity: Identity, after: int = 0) -> list[SessionRecord]:
        """Give the sessions that say the same of themselves, the newest first."""
        return [one for one in self._alike.get(identity, ()) if (one.id or 0) > after]

    def seen_as(self, identity: Identity, place: Place) -> list[SessionRecord]:
        """Give those of `of_identity` that were last seen as one and the same file."""
        return [one for one in self._by_place.get(place, ()) if one.identity == identity]

    def is_shared(self, identity: Identity, record: SessionRecord | None) -> bool:
        """Tell whether any session but one says this of itself."""
        return any(one != record for one in self._alike.get(identity, ()))

    def unidentified(self, name: str) -> list[SessionRecord]:
        """Give the sessions of a name that no program that knows identities has seen yet."""
        return [one for one in self._alike.get(None, ()) if one.name == path_text(name)]

    def known(self, ident: int) -> SessionRecord:
        """Give a session by the id of its record."""
        return self._by_id[ident]

    def format_of(self, path: str, _fingerprint: Fingerprint) -> str | None:
        """Give the format that a file had when it was last seen."""
        record = self._by_path.get(path)
        return record.format if record else None

    def session(self, file: SessionFile, *, beyond: bool = False) -> Session:
        """Say which session a file is."""
        if self._store is None or not self._records:
            return Session(file.title, file.path, file, None)
        state = self._states.get(os.fsencode(file.path))
        same = state is not None and state.fingerprint == file.fingerprint
        identity = state.identity if state and same else None
        identity = identity or identity_of(file)
        origin = whose(self._store, file, identity, self, self._places)
        record = origin.record and seen_as(origin.record, file, identity)
        return Session(
            file.title, file.path, file, record, identity, origin.copied,
            stale=record != origin.record, beyond=beyond,
        )  # fmt: skip

    def rest(
        self, live: Iterable[Session], problems: Iterable[Unreadable], *, beyond: bool
    ) -> Iterator[Session]:
        """Give the sessions whose files the walk did not come upon."""
        met = {one.record.id for one in live if one.record}
        for record in self._records:
            if record.id in met:
                continue
            root = Root(record.root)
            file = look_at([root], record.path) if beyond and not record.homeless else None
            there = None if isinstance(file, Unreadable) else file
            found = self.session(there, beyond=True) if there else None
            if found and found.record and found.record.id == record.id:
                yield found
            else:
                yield Session(
                    record.title, record.path, None, record, record.identity,
                    unseen=_unseen(record.path, problems),
                )  # fmt: skip


def _unseen(path: str, problems: Iterable[Unreadable]) -> str:
    """Say why the walk could not see whether a file is there, or nothing if it could."""
    for one in problems:
        if f"{path}/".startswith(f"{one.path.rstrip('/')}/"):
            return f"{one.path}: {one.why}"
    return ""


def seen_as(record: SessionRecord, file: SessionFile, identity: Identity | None) -> SessionRecord:
    """Describe a session as its file lies now; the store may still say otherwise."""
    return replace(
        record, agent=path_text(file.agent), agent_directory=file.agent_directory,
        name=path_text(file.session), path=file.path, root=file.root,
        identity=identity or record.identity, place=file.fingerprint.place, homeless=False,
    )  # fmt: skip


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
    by_key = names.ByKey(name)
    fitting: tuple[Callable[[Session, str], bool], ...] = (
        _by_exact_path, _by_path, names.is_called, names.calls_itself, by_key.fits,
        names.was_called, names.begins_with,
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


def parent_of(store: Store, session: AnyOpen, survey: Survey) -> str | None:
    """Name the session that one without a record was forked from, if it is a fork.

    Where its lines do not say, the entries tell whose stubs stand in it.
    """
    said = parent_said(session, survey)
    if said is not None or not survey.stubbed:
        return said
    file = session.file
    return store.sessions.origin(file.agent_directory, file.path, survey.stubbed)


def record_of(store: Store, session: Session) -> SessionRecord | None:
    """Give the record of a session; for a fork that no scan has seen yet, the one it would get."""
    if session.record or session.file is None:
        return session.record
    try:
        with open_session(session.file) as opened:
            form, identity = opened.format, opened.identity
            survey = form.survey(opened.lines, 0)
            parent = parent_of(store, opened, survey)
    except (OSError, RefusedError, BusyError):
        return None
    copied = session.copied
    source = copied.id if copied else source_of(store, session.file, parent)
    return store.sessions.unnoted(session.file, form.name, parent, identity, source)


def noted(store: Store, session: Session) -> Session:
    """See to it that the store knows a session that it has something of, as it lies now.

    A copy or fork gets a record of its own; one that the store knows nothing of gets none.
    """
    file = session.file
    if file is None or (session.record and not session.stale):
        return session
    record = record_of(store, session)
    if record is None or (record.id is None and record.parent is None and not record.parent_id):
        return session
    with store.transaction():
        done = store.sessions.note(file, record.format, record.parent, record.identity, record)
    return replace(session, record=done, stale=False)


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
