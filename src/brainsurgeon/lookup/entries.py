"""Find the extracted values of an entry that a person or an agent named, and choose among them."""

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
from brainsurgeon.model.entries import STUB, dotted, id_named, is_placeholder, stub_named
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
    """The extracted values of one entry, and the session that is meant."""

    session: Session
    entry_id: str
    values: tuple[Extraction, ...]


def entry_named(
    settings: Settings, store: Store | None, reference: str, session: str | Session | None,
    *, to_show: bool = False,
) -> EntryValues:  # fmt: skip
    """Find the extracted values of an entry, named by its id or by a whole pasted placeholder.

    `session` narrows to one session, by a name of it or as it was looked up already. `to_show`
    says that the values matter, not where they stand: several sessions may hold them then. Raise
    NotFoundError, or AmbiguousError with the candidates.
    """
    wanted = id_named(reference)
    if store is None:
        raise NotFoundError(f"nothing is extracted from entry {wanted!r}: the store is still empty")
    if not is_placeholder(reference):
        reference = wanted
    if session:
        chosen = (
            session_named(settings, store, session, beyond=True)
            if isinstance(session, str)
            else session
        )
        found = _of_session(store, chosen, reference)
        if not to_show:
            _check_all_owned(store, found)
        return found
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
    """Return the values that whoever asks for a session may see."""
    if not session.only_owned:
        return list(values)
    agents: dict[int, str] = {}
    found = []
    for one in values:
        if one.session_id not in agents:
            agents[one.session_id] = store.sessions.known(one.session_id).agent_directory
        if agents[one.session_id] == session.agent_directory:
            found.append(one)
    return found


def _of_session(store: Store, session: Session, reference: str) -> EntryValues:
    values = owned(store, session, store.extractions.of_entry(reference))
    record = session.record
    placed = store.placements.of_session(record.id) if record else frozenset()
    here = [one for one in values if one.id in placed]
    if not here and record:
        here = [one for one in values if one.session_id == record.id]
    if not here and values:  # a fork or a copy that no scan has seen yet
        standing = _placeholders_in(session)
        here = [one for one in values if one.stub.encode() in standing]
    if not here:
        raise _nothing_extracted(session, id_named(reference))
    return EntryValues(session, here[-1].entry_id, newest(here))


def _check_all_owned(store: Store, found: EntryValues) -> None:
    """Raise NotFoundError where a value that the caller may not see stands in the same entry.

    A request to restore an entry means all of its values.
    """
    session = found.session
    if not session.only_owned:
        return
    values = store.extractions.of_entry(found.entry_id)
    own = {(one.name, one.path, one.digest) for one in owned(store, session, values)}
    others = [one for one in values if (one.name, one.path, one.digest) not in own]
    if not others:
        return
    placed = store.placements.of_session(session.record.id) if session.record else frozenset()
    standing = _placeholders_in(session)
    if any(one.id in placed or one.stub.encode() in standing for one in others):
        raise _nothing_extracted(session, found.entry_id)


def _nothing_extracted(session: Session, wanted: str) -> NotFoundError:
    return NotFoundError(
        f"nothing is extracted from entry {wanted!r} in {session.title}; "
        "`brainsurgeon context SESSION` lists what is"
    )


def _of_any_session(
    settings: Settings, store: Store, reference: str, *, to_show: bool
) -> EntryValues:  # fmt: skip
    """Find the values in the session that this program was started from, else in the only one."""
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
    for one in values:
        for ident in store.placements.sessions_of([one.id]) or {one.session_id}:
            held[ident].append(one)
    known = [(one, held[one.record.id]) for one in listed if one.record and one.record.id in held]
    live = [pair for pair in known if pair[0].file] or known
    if len(live) > 1 and not (to_show and _agree(values)):
        several = len({one.name for one in values}) > 1
        shown = [
            f"{session.title}  {stub_named(here[-1].name)}" if several else session.title
            for session, here in live
        ]
        hint = "name the session with --session" + (", or paste the placeholder" * several)
        raise AmbiguousError(f"entry {wanted!r}", shown, hint)
    session, here = live[0]
    return EntryValues(session, here[-1].entry_id, newest(here))


def _agree(values: Iterable[Extraction]) -> bool:
    """Check whether several extractions say the same at each place of an entry."""
    told: dict[KeyPath, bytes] = {}
    return all(told.setdefault(one.path, one.digest) == one.digest for one in values)


def _in_calling_session(
    store: Store, listed: Iterable[Session], reference: str
) -> EntryValues | None:
    """Find the values in the session whose agent runs this command, if the entry stands there.

    A fork has the same ids as its origin, so that the entry would be found there, too.
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
    """Return the texts of all placeholders in a session's file."""
    return frozenset(text for raw in _lines_of(session) for text in STUB.findall(raw))


def _lines_of(session: Session) -> Iterator[bytes]:
    """Yield the lines of a session's file; none where it cannot be read."""
    if session.file is None:
        return
    try:
        with open_session(session.file) as opened:
            yield from (line.raw for line in opened.lines if line.raw)
    except (OSError, RefusedError, BusyError):
        return


def choose(named: EntryValues, keys: Iterable[str]) -> tuple[Extraction, ...]:
    """Narrow to the values that `keys` name: a whole path, or any named step of one.

    Raise NoSuchKeyError when none matches, ExpiredError when nothing that matches is left.
    """
    wanted = chosen(named.values, keys)
    if not wanted:
        there = ", ".join(dotted(value.path) for value in named.values)
        raise NoSuchKeyError(
            f"no extracted value of {named.entry_id!r} is called that; there are {there}"
        )
    if all(value.blob_id is None for value in wanted):
        raise ExpiredError(named.entry_id, [tombstone(value) for value in wanted])
    return tuple(value for value in wanted if value.blob_id is not None)


def archive_in(named: EntryValues, *, undone: bool = False) -> Extraction | None:
    """Give the record of the archive that stands in an entry, or with `undone` once stood there."""
    parts = (one for one in named.values if one.archive_id is not None and not one.links)
    return next((one for one in parts if undone or one.state == "standing"), None)


def expired(named: EntryValues, keys: Iterable[str]) -> list[Extraction]:
    """Give those of the values that `keys` name of which only a tombstone is left."""
    return [value for value in chosen(named.values, keys) if value.blob_id is None]


def tombstone(value: Extraction) -> dict[str, object]:
    """Give what stays of a value whose blob is gone."""
    return {
        "entry_id": value.entry_id,
        "path": dotted(value.path),
        "size_bytes": value.size,
        "extracted_at": iso(value.extracted_at),
        "expired_at": iso(value.expired_at or 0.0),
        "reason": value.expired_why or "retention",
    }
