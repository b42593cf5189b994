"""Lookup of the extracted values of an entry, by entry id or placeholder."""

from __future__ import annotations

import os
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from brainsurgeon.errors import (
    AmbiguousError,
    BusyError,
    ExpiredError,
    NoSuchKeyError,
    NotFoundError,
)
from brainsurgeon.hosts import claude_code
from brainsurgeon.lookup.sessions import Session, all_sessions, session_named
from brainsurgeon.lookup.values import chosen, newest
from brainsurgeon.model.entries import (
    PLACEHOLDER,
    dotted,
    id_named,
    is_placeholder,
    placeholder_named,
)
from brainsurgeon.model.text import iso
from brainsurgeon.sessions.opening import open_session
from brainsurgeon.sessions.reading import RefusedError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from brainsurgeon.config import Settings
    from brainsurgeon.model.entries import KeyPath
    from brainsurgeon.model.records import Extraction
    from brainsurgeon.store import Store


@dataclass(frozen=True, slots=True)
class EntryValues:
    """The extracted values of one entry in one session."""

    session: Session
    entry_id: str
    values: tuple[Extraction, ...]


def entry_named(
    settings: Settings, store: Store | None, reference: str, session: str | Session | None,
    *, to_show: bool = False,
) -> EntryValues:  # fmt: skip
    """Return the extracted values of an entry, named by its id or by a whole pasted placeholder.

    `session` limits the lookup to one session. With `to_show`, several sessions may hold the
    values if these are equal. Raises NotFoundError, or AmbiguousError with the candidates.
    """
    wanted = id_named(reference)
    if store is None:
        raise NotFoundError(f"nothing is extracted from entry {wanted!r}: the store is still empty")
    if not is_placeholder(reference):
        reference = wanted
    if session:
        chosen = session_named(settings, store, session, beyond=True)
        named = _of_session(store, chosen, reference)
        if not to_show:
            _check_all_owned(store, named)
        return named
    return _of_any_session(settings, store, reference, to_show=to_show)


def is_extracted_from(
    settings: Settings, store: Store | None, session: Session, reference: str
) -> bool:
    """Check whether a session has extracted values of an entry."""
    try:
        entry_named(settings, store, reference, session, to_show=True)
    except NotFoundError:
        return False
    return True


def owned(store: Store, session: Session, values: Iterable[Extraction]) -> list[Extraction]:
    """Return the values that the caller may see: all, or those of the session's agent."""
    if not session.only_owned:
        return list(values)
    agents: dict[int, str] = {}
    visible = []
    for value in values:
        if value.session_id not in agents:
            agents[value.session_id] = store.sessions.known(value.session_id).agent_directory
        if agents[value.session_id] == session.agent_directory:
            visible.append(value)
    return visible


def _of_session(store: Store, session: Session, reference: str) -> EntryValues:
    values = owned(store, session, store.extractions.of_entry(reference))
    record = session.record
    placed = store.placements.of_session(record.id) if record else frozenset()
    here = [value for value in values if value.id in placed]
    if not here and record:
        here = [value for value in values if value.session_id == record.id]
    if not here and values:  # a fork or a copy that no scan has seen yet
        standing = _placeholders_in(session)
        here = [value for value in values if value.placeholder.encode() in standing]
    if not here:
        raise _nothing_extracted(session, id_named(reference))
    return EntryValues(session, here[-1].entry_id, newest(here))


def _check_all_owned(store: Store, named: EntryValues) -> None:
    """Raise NotFoundError if the entry also has values that the caller may not see.

    A request to restore an entry covers all of its values.
    """
    session = named.session
    if not session.only_owned:
        return
    values = store.extractions.of_entry(named.entry_id)
    own = {(value.name, value.path, value.digest) for value in owned(store, session, values)}
    foreign = [value for value in values if (value.name, value.path, value.digest) not in own]
    if not foreign:
        return
    placed = store.placements.of_session(session.record.id) if session.record else frozenset()
    standing = _placeholders_in(session)
    if any(value.id in placed or value.placeholder.encode() in standing for value in foreign):
        raise _nothing_extracted(session, named.entry_id)


def _nothing_extracted(session: Session, wanted: str) -> NotFoundError:
    return NotFoundError(
        f"nothing is extracted from entry {wanted!r} in {session.title}; "
        "`brainsurgeon context SESSION` lists what is"
    )


def _of_any_session(
    settings: Settings, store: Store, reference: str, *, to_show: bool
) -> EntryValues:  # fmt: skip
    """Return the values in the calling session, else in the only session that has them."""
    wanted, values = id_named(reference), store.extractions.of_entry(reference)
    if not values:
        raise NotFoundError(
            f"nothing is extracted from entry {wanted!r}; `brainsurgeon context SESSION` lists "
            "what is"
        )
    listed = all_sessions(settings, store, beyond=True)
    own = _in_calling_session(store, listed, reference)
    if own is not None:
        return own
    held: dict[int, list[Extraction]] = defaultdict(list)
    for value in values:
        for ident in store.placements.sessions_of([value.id]) or {value.session_id}:
            held[ident].append(value)
    known = [(one, held[one.record.id]) for one in listed if one.record and one.record.id in held]
    live = [pair for pair in known if pair[0].file] or known
    if len(live) > 1 and not (to_show and _agree(values)):
        several = len({one.name for one in values}) > 1
        shown = [
            f"{session.title}  {placeholder_named(here[-1].name)}" if several else session.title
            for session, here in live
        ]
        hint = "name the session with --session" + (", or paste the placeholder" * several)
        raise AmbiguousError(f"entry {wanted!r}", shown, hint)
    session, here = live[0]
    return EntryValues(session, here[-1].entry_id, newest(here))


def _agree(values: Iterable[Extraction]) -> bool:
    """Check whether extractions with the same path have the same value."""
    digests: dict[KeyPath, bytes] = {}
    return all(digests.setdefault(value.path, value.digest) == value.digest for value in values)


def _in_calling_session(
    store: Store, listed: Iterable[Session], reference: str
) -> EntryValues | None:
    """Return the values in the session whose agent runs this command, None without the entry.

    A fork has the entry ids of its origin, so that a lookup by id alone would match both.
    """
    here = claude_code.calling_session()
    for session in listed:
        if here is None or session.path != os.path.realpath(here):
            continue
        try:
            return _of_session(store, session, reference)
        except NotFoundError:
            if any(id_named(reference).encode() in raw for raw in _lines_of(session)):
                raise
    return None


def _placeholders_in(session: Session) -> frozenset[bytes]:
    return frozenset(text for raw in _lines_of(session) for text in PLACEHOLDER.findall(raw))


def _lines_of(session: Session) -> Iterator[bytes]:
    """Yield the lines of a session's file, or none if it cannot be read."""
    if session.file is None:
        return
    try:
        with open_session(session.file) as opened:
            yield from (line.raw for line in opened.lines if line.raw)
    except (OSError, RefusedError, BusyError):
        return


def choose(named: EntryValues, keys: Iterable[str]) -> tuple[Extraction, ...]:
    """Return the values that `keys` name: a whole path, or one step of it.

    Raises NoSuchKeyError if none matches, ExpiredError if all that match have expired.
    """
    wanted = chosen(named.values, keys)
    if not wanted:
        paths = ", ".join(dotted(value.path) for value in named.values)
        raise NoSuchKeyError(
            f"no extracted value of {named.entry_id!r} is called that; there are {paths}"
        )
    if all(value.blob_id is None for value in wanted):
        raise ExpiredError(named.entry_id, [tombstone(value) for value in wanted])
    return tuple(value for value in wanted if value.blob_id is not None)


def archive_in(named: EntryValues, *, undone: bool = False) -> Extraction | None:
    """Return the extraction of the archive in an entry; with `undone` also of a former one."""
    parts = (part for part in named.values if part.archive_id is not None and not part.links)
    return next((part for part in parts if undone or part.state == "standing"), None)


def expired(named: EntryValues, keys: Iterable[str]) -> list[Extraction]:
    """Return the expired values among those that `keys` name."""
    return [value for value in chosen(named.values, keys) if value.blob_id is None]


def tombstone(value: Extraction) -> dict[str, object]:
    """Return the metadata of an expired value."""
    return {
        "entry_id": value.entry_id,
        "path": dotted(value.path),
        "size_bytes": value.size,
        "extracted_at": iso(value.extracted_at),
        "expired_at": iso(value.expired_at or 0.0),
        "reason": value.expired_why or "retention",
    }
