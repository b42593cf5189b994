"""The catalogue of sessions, and lookup by path, id, prefix or session key."""

import math
import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import cache

from msgspec import Struct
from msgspec.structs import replace

from brainsurgeon.agents import calling_session, ids_in, keys_of, names_of, part_of
from brainsurgeon.config import Settings
from brainsurgeon.errors import AmbiguousError, BusyError, FailedError, GoneError, NotFoundError
from brainsurgeon.model.plans import Plan
from brainsurgeon.model.records import FileState, SessionRecord
from brainsurgeon.model.session_files import Fingerprint, SessionFile, Unreadable
from brainsurgeon.model.text import parts_of_title, readable
from brainsurgeon.sessions.discovery import AnyOpen, discover, identity_of, open_to_show, session_at
from brainsurgeon.sessions.row_listing import list_rows, why_unlisted
from brainsurgeon.store import Store
from brainsurgeon.store.catalogue import CERTAIN
from brainsurgeon.store.database import path_text

EMPTY = "the directory is empty: is its disk mounted?"
REPLACED = (
    "it may not be the same directory as before: mount its disk, or move its former sessions back"
    " (if they are lost, run `scan --retention` once without this root)"
)


def find_record(store: Store, session: AnyOpen) -> SessionRecord | None:
    return record_of(store, session.file, session.identity)


def record_of(store: Store, file: SessionFile, identity: str | None) -> SessionRecord | None:
    """Return the record at a file's path, else that of a moved session with the same id.

    A record at the path is ignored if its session id is known and differs.
    """
    record = store.sessions.matching(file.path, identity)
    if record or identity is None:
        return record
    standing = store.runs.standing
    rows = store.sessions.of_identity(identity, above=standing.up_to.get(identity, 0))
    for row in rows:
        if row.id not in standing.ids and _has_left(row):
            return row
        if store.runs.in_run:
            standing.ids.add(row.id)
    if rows and store.runs.in_run:
        standing.up_to[identity] = rows[0].id
    return None


def _has_left(record: SessionRecord) -> bool:
    """Check whether a session is certainly no longer at its recorded path."""
    if record.displaced:
        return True
    in_database = False
    try:
        os.stat(record.path, follow_symlinks=False)
    except NotADirectoryError:
        in_database = True
    except OSError as error:
        return isinstance(error, FileNotFoundError)
    if not in_database and os.path.realpath(record.path) != record.path:
        return True  # the path leads through a link now, and links are not followed
    file = session_at(record.root, record.path)
    if not isinstance(file, SessionFile):
        return in_database and file is None
    return identity_of(file) not in (None, record.identity)  # another session took its path


def note_record(store: Store, session: AnyOpen) -> SessionRecord:
    record = find_record(store, session)
    if record and is_current(record, session.file, session.identity):
        return record
    with store.transaction():
        return note_within(store, session)


_NEW = -1  # the id of a record that is not in the store


def _as_noted(store: Store, session: AnyOpen) -> SessionRecord:
    """Return the record that `note_record` would write."""
    file, record = session.file, find_record(store, session)
    return SessionRecord(
        record.id if record else _NEW, path_text(file.agent), file.agent_directory,
        path_text(file.session), file.path, file.root, session.form.name,
        session.identity or (record.identity if record else None),
    )  # fmt: skip


def note_found(store: Store, session: AnyOpen) -> SessionRecord | None:
    """Note a recorded session. A session whose path another one took is missing from now on."""
    if find_record(store, session):
        return note_record(store, session)
    if store.sessions.at(session.file.path):
        with store.transaction():
            store.sessions.displace(session.file.path)
    return None


def note_within(store: Store, session: AnyOpen) -> SessionRecord:
    """Like `note_record`, inside the caller's transaction."""
    record = find_record(store, session)
    return store.sessions.note(session.file, session.form.name, session.identity, record)


def is_current(record: SessionRecord, file: SessionFile, identity: str | None) -> bool:
    return (
        not record.displaced
        and (record.path, record.root) == (file.path, file.root)
        and record.agent_directory == file.agent_directory
        and (record.agent, record.name) == (path_text(file.agent), path_text(file.session))
        and identity in (None, record.identity)
    )


def record_placeholders(
    store: Store, session: AnyOpen, record: SessionRecord | None, plan: Plan, now: float
) -> None:
    """Record what a plan found: placeholders, finished requests and fields that are gone."""
    placed = store.placements.of_session(record.id) if record else frozenset()
    seen, handled = plan.placeholders, plan.handled
    is_new = any(ident not in placed for ident in seen.here)
    changed = seen.gone or seen.missing or handled.requests or handled.fields_gone
    if not (is_new or (record and changed)):
        return
    with store.transaction():
        record = record or note_within(store, session)
        store.requests.end(handled.requests)
        store.fields.undo(record.id, handled.fields_gone)
        store.placements.record(record.id, seen.here, seen.gone, seen.missing, now)


class Session(Struct, frozen=True):
    """A session that a command may name: on disk, in the store, or both.

    If it has several files, this is the newest of them, in which it goes on, or an `earlier` one.
    """

    title: str
    path: str  # not unique: a session that is gone may have had the same
    file: SessionFile | None
    record: SessionRecord | None
    unseen: str = ""  # why it is unknown whether its file exists
    only_owned: bool = False  # the caller may see only values from sessions of this agent
    earlier: "tuple[Session, ...]" = ()  # its other files, the newest first
    goes_on: bool = False  # in a newer file

    @property
    def parts(self) -> "tuple[Session, ...]":
        """One for each file of the session, the newest first."""
        earlier = (replace(one, only_owned=self.only_owned) for one in self.earlier)
        return (self, *earlier)

    @property
    def records(self) -> "list[SessionRecord]":
        return [part.record for part in self.parts if part.record]

    @property
    def agent(self) -> str:
        return self.title.rpartition("/")[0]

    @property
    def name(self) -> str:
        return self.title.rpartition("/")[2]

    @property
    def identity(self) -> str | None:
        return self.record.identity if self.record else None

    @property
    def agent_directory(self) -> str:
        owner = self.file or self.record
        return owner.agent_directory if owner else ""


class Walk(Struct, frozen=True):
    sessions: tuple[Session, ...]
    problems: tuple[Unreadable, ...]


def walk(settings: Settings, store: Store, *, with_former_roots: bool = False) -> Walk:
    """Return the sessions below the roots, and recorded sessions that were not found.

    If `with_former_roots`, also look for recorded sessions below roots of earlier configurations.
    """
    roots = settings.root_directories()
    records = list(store.sessions.all())
    by_path = {record.path: record for record in records if not record.displaced}

    def format_of(path: str, fingerprint: Fingerprint) -> str | None:
        known = by_path.get(path) or _scanned(store, path, fingerprint)
        return known.format if known else None

    files_below = discover(roots, format_of=format_of, was_recorded=store.sessions.any_at_or_below)
    items = [*files_below, *list_rows(roots, store.rows.own_times())]
    problems = [item for item in items if isinstance(item, Unreadable)]
    files = [item for item in items if not isinstance(item, Unreadable)]
    paths = {file.path for file in files}
    # Files without a record are read for their ids only if a recorded session is not at its path.
    moved = any(row.displaced or row.path not in paths for row in records if row.identity)

    def session_of(file: SessionFile) -> Session:
        record = by_path.get(file.path)
        if record is None and moved:
            record = _record_of_moved(store, file)
        return Session(file.title, file.path, file, record)

    sessions = [session_of(file) for file in files]
    seen = {session.record.id for session in sessions if session.record}
    file_ids = {file.fingerprint.file_id for file in files}
    missing = []
    for record in records:
        if record.id in seen:
            continue
        is_linked = _file_id(record.path) in file_ids  # another hard link to a found file
        may_exist = not record.displaced and (with_former_roots or is_linked)
        file = session_at(record.root, record.path) if may_exist else None
        if isinstance(file, SessionFile):
            sessions.append(session_of(file))
        else:
            missing.append(record)
    doubt = cache(lambda root: _doubt(store, root, sessions))
    for record in missing:
        path = f"{record.path}/"
        above = (one for one in problems if path.startswith(f"{one.path.rstrip('/')}/"))
        reasons = (f"{problem.path}: {problem.reason}" for problem in above)
        why = next(reasons, "") or why_unlisted(record.path) or doubt(record.root)
        sessions.append(Session(record.title, record.path, None, record, unseen=why))
    return Walk(tuple(_joined(sessions)), tuple(problems))


def _joined(sessions: list[Session]) -> Iterator[Session]:
    """Yield the sessions. Of those that are files of one session, the newest has the others."""
    named, by_path = defaultdict[str, list[tuple[str, Session]]](list), dict[str, Session]()
    for session in sessions:
        if session.file and (part := part_of(session.path)):
            named[part[0]].append((part[1], session))
    for parts in (sorted(parts, key=lambda one: one[0]) for parts in named.values()):
        *before, newest = (replace(one, title=parts[0][1].title) for _, one in parts)
        earlier = tuple(replace(one, goes_on=True) for one in reversed(before))
        by_path |= {one.path: one for one in (*earlier, replace(newest, earlier=earlier))}
    for session in sessions:
        yield by_path.get(session.path, session) if session.file else session


def _scanned(store: Store, path: str, fingerprint: Fingerprint) -> FileState | None:
    """Return the result of the last scan of a file, if the file is unchanged."""
    state = store.files.at(path)
    return state if state and state.fingerprint == fingerprint else None


def _record_of_moved(store: Store, file: SessionFile) -> SessionRecord | None:
    state = _scanned(store, file.path, file.fingerprint)
    if state and state.outcome in CERTAIN:
        return None  # the scan that read the file would have given it the record
    return record_of(store, file, identity_of(file))


def _doubt(store: Store, root: str, found: Iterable[Session]) -> str:
    before = (store.facts.get("retention") or {}).get("roots", {}).get(path_text(root), [])
    top = os.path.realpath(root)
    ids = (item.record.id for item in found if item.record and item.file and item.file.root == top)
    with suppress(OSError), os.scandir(root) as items:
        is_empty = next(items, None) is None
        if (before or is_empty) and not root_identity(root, before, ids):
            return f"{root}: {EMPTY if is_empty else REPLACED}"
    return ""


def root_identity(root: str, before: list[int], found: Iterable[int]) -> list[int] | None:
    """Return the identity of a root; None if it is unreadable, or may not be the same as before.

    `before` has its last trusted identity and the newest id of a session found then. If the
    identity differs, a session that was recorded until then must be among those `found`.
    """
    newest = max(before[2:], default=math.inf)
    with suppress(OSError):  # one of the numbers changes if another file system is mounted
        identity = [os.statvfs(root).f_fsid, os.stat(root).st_ino]
        if identity == before[:2] or any(ident <= newest for ident in found):
            return identity
    return None


def _file_id(path: str) -> tuple[int, int] | None:
    try:
        return Fingerprint.of(os.lstat(path)).file_id
    except OSError:
        return None


def why_hidden(store: Store, session: Session, *, with_fields: bool = False) -> str:
    """Return why a session cannot be read, or "" if it is gone or contained nothing to undo."""
    record = session.record
    if record is None or not (
        store.placements.of_session(record.id)
        or (with_fields and store.fields.of_session(record.id))
    ):
        return ""
    found = session_at(record.root, record.path)
    if isinstance(found, Unreadable):
        return f"{found.path} cannot be read ({found.reason})"
    return session.unseen


def all_sessions(
    settings: Settings, store: Store, *, with_former_roots: bool = False
) -> list[Session]:
    return list(walk(settings, store, with_former_roots=with_former_roots).sessions)


def session_named(
    settings: Settings, store: Store, name: str | Session, *, with_former_roots: bool = False
) -> Session:
    """Return a session by path, session key, id or prefix of the id; `agent/` may precede an id.

    Raises NotFoundError or AmbiguousError.
    """
    if isinstance(name, Session):
        return name
    return session_among(all_sessions(settings, store, with_former_roots=with_former_roots), name)


def of_calling_process(sessions: Iterable[Session]) -> list[Session]:
    here = calling_session()
    path = os.path.realpath(here) if here else None
    return [session for session in sessions if session.path == path]


def of_agent_named(sessions: Iterable[Session], name: str) -> list[Session]:
    """Return the sessions of an agent, which may be called as in short names of its sessions."""
    listed = list(sessions)
    named = [item for item in listed if name in names_of(item.agent)]
    return named or [item for item in listed if name == parts_of_title(item.title)[0]]


def session_among(sessions: list[Session], name: str) -> Session:
    is_path = (os.sep in name or name.endswith(".jsonl")) and "\0" not in name
    path = os.path.realpath(name) if is_path else None
    ways: tuple[Callable[[Session], bool], ...] = (
        lambda session: is_at(session, name),
        lambda session: path is not None and os.path.realpath(session.path) == path,
        lambda session: is_called(session, name),
        lambda session: has_header_id(session, name),
        lambda session: session.file is not None and name in keys_of(session.file),
        lambda session: _begins_with(session, name),
        lambda session: _fits_short_title(session, name),
    )
    for fits in ways:
        candidates = _current(_newest(filter(fits, sessions), sessions))
        if len(candidates) == 1:
            return candidates[0]
        if candidates:
            shown = [f"{session.title}  {session.path}" for session in candidates]
            raise AmbiguousError(f"session {name!r}", shown, "give more of its name, or its path")
    if path is not None and os.path.exists(path):
        raise NotFoundError(f"{name!r}: no session below a root; `brainsurgeon status` lists roots")
    raise NotFoundError(f"no session is called {name!r}; `brainsurgeon sessions` lists them")


def _newest(candidates: Iterable[Session], sessions: Iterable[Session]) -> list[Session]:
    """Replace files of sessions that go on in newer files by the newest ones."""
    listed = list(candidates)
    before = {one.path for one in listed if one.goes_on}
    found = [one for one in listed if not one.goes_on]
    return found + [
        one for one in (sessions if before else ())
        if one not in found and any(part.path in before for part in one.earlier)
    ]  # fmt: skip


def _current(sessions: list[Session]) -> list[Session]:
    """Of sessions with the same title, keep those in a database, else those with a file.

    OpenClaw kept the names of its sessions when it moved them from files to databases.
    """

    def rank(session: Session) -> int:
        return 0 if session.file is None else 1 + session.file.in_database

    best = {session.title: rank(session) for session in sorted(sessions, key=rank)}
    return [session for session in sessions if rank(session) == best[session.title]]


def is_at(session: Session, path: str) -> bool:
    return any(path in (part.path, readable(part.path)) for part in session.parts)


def is_called(session: Session, name: str) -> bool:
    return name in _names(session, _ids(session))


def _ids(session: Session) -> list[str]:
    own = session.file.session if session.file else session.name  # differs in a later file
    return [*ids_in(session.name), *(ids_in(own) if own != session.name else ())]


def has_header_id(session: Session, name: str) -> bool:
    """Check whether a session's header has this id. Reads the file if the store has no id."""
    if name.endswith("/") or not name:
        return False
    identity = session.identity or (identity_of(session.file) if session.file else None)
    return identity is not None and name in _names(session, [identity])


def _begins_with(session: Session, name: str) -> bool:
    ids = [*_ids(session), *filter(None, [session.identity])]
    return bool(name) and any(
        own.startswith(name) for own in _names(session, ids) if ("/" in own) == ("/" in name)
    )


def _fits_short_title(session: Session, name: str) -> bool:
    owner, slash, beginning = name.rpartition("/")
    at, ident = parts_of_title(session.title)
    return bool(slash and beginning) and owner == at and ident.startswith(beginning)


def _names(session: Session, ids: list[str]) -> set[str]:
    agents = names_of(session.agent)
    names = {*ids, *(f"{agent}/{ident}" for agent in agents for ident in ids)}
    return names | {readable(name) for name in names}


def with_record(store: Store, session: Session, *, dry_run: bool = False) -> Session:
    """Update or create the record of a session, if its file can be read.

    With `dry_run`, the store stays as it is. Raises FailedError or BusyError if there is no record
    and the file cannot be read.
    """
    file = session.file
    if file is None:
        return session
    try:
        with open_to_show(file) as opened:
            note = _as_noted if dry_run else note_record
            return replace(session, record=note(store, opened))
    except (BusyError, FailedError):
        if session.record is None:
            raise
        return session  # the next operation on the session reports the reason


def file_of(session: Session) -> SessionFile:
    """Return the file. Raises GoneError if it is gone or cannot be seen."""
    if session.file is not None:
        return session.file
    why = session.unseen
    where = f"cannot be seen: {why}" if why else f"is gone from {session.path}"
    raise GoneError(
        f"{session.title}: its file {where}; `brainsurgeon sessions SESSION` lists its "
        "stored values, `brainsurgeon show` prints them"
    )
