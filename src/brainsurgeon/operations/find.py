"""Find what a person or an agent named: a session, an entry, the values of an entry."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from brainsurgeon import formats
from brainsurgeon.errors import Ambiguous, Expired, Gone, NoSuchKey, NotFound
from brainsurgeon.formats.base import id_named
from brainsurgeon.model import Found, Unreadable
from brainsurgeon.operations import look
from brainsurgeon.operations.times import iso
from brainsurgeon.sessions import quiet
from brainsurgeon.sessions.discover import discover
from brainsurgeon.sessions.reading import Refused, open_session
from brainsurgeon.store import extractions

if TYPE_CHECKING:
    from collections.abc import Iterable

    from brainsurgeon.config import Settings
    from brainsurgeon.model import KeyPath
    from brainsurgeon.store import Store
    from brainsurgeon.store.extractions import Extraction, SessionRow


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


@dataclass(frozen=True, slots=True)
class Named:
    """The extracted values of one entry of one session."""

    session: Session
    row: SessionRow
    entry_id: str
    values: tuple[Extraction, ...]


def entry_named(
    settings: Settings, store: Store | None, reference: str, session: str | None
) -> Named:
    """Find the extracted values of an entry, named by its id or by a whole pasted stub.

    Raise NotFound, or Ambiguous when entries of several sessions have that id.
    """
    wanted = id_named(reference)
    if store is None:
        raise NotFound(f"nothing is extracted from entry {wanted!r}: the store is still empty")
    chosen = session_named(settings, store, session) if session else None
    if chosen is not None:
        row = row_of(store, chosen)
        values = _of_session(store, chosen, row, wanted)
        rows = [row] if row else []
    else:
        values = extractions.of_entry(store.connection, wanted)
        owners = {value.session_id for value in values}
        rows = [row for row in extractions.sessions(store.connection) if row.id in owners]
    if not values or not rows:
        where = f" in {chosen.title}" if chosen else ""
        raise NotFound(f"nothing is extracted from entry {wanted!r}{where}")
    if len(rows) > 1:
        titles = [row.title for row in rows]
        raise Ambiguous(f"entry {wanted!r}", titles, "name the session with --session")
    found = chosen or _session_of(settings, rows[0])
    return Named(found, rows[0], values[0].entry_id, _newest(values))


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


def _of_session(
    store: Store, session: Session, row: SessionRow | None, wanted: str
) -> list[Extraction]:
    """Give the values of an entry that a session extracted.

    Those of a session that it was forked from count as far as their stubs stand in it: what its
    parent said after the fork is none of its business.
    """
    if row is None:
        return []
    family = set(extractions.family(store.connection, row))
    values = [v for v in extractions.of_entry(store.connection, wanted) if v.session_id in family]
    inherited = {value.stub.encode() for value in values if value.session_id != row.id}
    standing = _standing(session, inherited) if inherited else set()
    return [v for v in values if v.session_id == row.id or v.stub.encode() in standing]


def _standing(session: Session, stubs: set[bytes]) -> set[bytes]:
    """Tell which of these stubs stand in a session's file."""
    if session.found is None:
        return set()
    try:
        with open_session(session.found) as opened:
            return {stub for line in opened.lines if line.raw for stub in stubs if stub in line.raw}
    except (OSError, Refused):
        return set()


def _session_of(settings: Settings, row: SessionRow) -> Session:
    for item in discover(settings.root_directories()):
        if isinstance(item, Found) and item.path == row.path:
            return Session(row.title, row.path, look.named(item, row.format), row)
    return Session(row.title, row.path, None, row)


def _newest(values: Iterable[Extraction]) -> tuple[Extraction, ...]:
    """Give one extraction a place: the newest, since it speaks for what stands there now."""
    return tuple({value.path: value for value in values}.values())


def choose(named: Named, keys: Iterable[str]) -> tuple[Extraction, ...]:
    """Narrow to the values that `keys` name: a whole path, or any named step of one.

    Raise NoSuchKey when none matches, Expired when nothing that matches is left.
    """
    chosen = _chosen(named, keys)
    if not chosen:
        there = ", ".join(dotted(value.path) for value in named.values)
        raise NoSuchKey(
            f"no extracted value of {named.entry_id!r} is called that; there are {there}"
        )
    if all(value.blob_id is None for value in chosen):
        raise Expired(named.entry_id, [tombstone(value) for value in chosen])
    return tuple(value for value in chosen if value.blob_id is not None)


def expired(named: Named, keys: Iterable[str]) -> list[Extraction]:
    """Give those of the values that `keys` name of which only a tombstone is left."""
    return [value for value in _chosen(named, keys) if value.blob_id is None]


def _chosen(named: Named, keys: Iterable[str]) -> tuple[Extraction, ...]:
    wanted = list(keys)
    return tuple(
        value for value in named.values
        if not wanted or any(_matches(value.path, key) for key in wanted)
    )  # fmt: skip


def _matches(path: KeyPath, key: str) -> bool:
    return key == dotted(path) or any(step == key for step in path if isinstance(step, str))


def dotted(path: KeyPath) -> str:
    """Write a path as people do: `message.content.0.text`."""
    return ".".join(str(step) for step in path)


def tombstone(value: Extraction) -> dict[str, object]:
    """Give what stays of a value whose blob is gone."""
    return {
        "entry_id": value.entry_id,
        "path": dotted(value.path),
        "size": value.size,
        "extracted_at": iso(value.extracted_at),
        "expired_at": iso(value.expired_at or 0.0),
        "why": value.expired_why or "retention",
    }


def file_of(session: Session) -> Found:
    """Give the file of a session; raise Gone when only the store still knows it."""
    if session.found is None:
        raise Gone(f"{session.title}: its file is gone from {session.path}")
    return session.found
