"""Find the extracted values of an entry that a person or an agent named, and choose among them."""

from __future__ import annotations

import os
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
from brainsurgeon.lookup.sessions import Session, all_sessions, record_of, session_named
from brainsurgeon.lookup.values import chosen, newest
from brainsurgeon.model.stubs import dotted, id_named
from brainsurgeon.model.times import iso
from brainsurgeon.sessions.opening import open_session
from brainsurgeon.sessions.reading import RefusedError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from brainsurgeon.config import Settings
    from brainsurgeon.model.records import Extraction, SessionRecord
    from brainsurgeon.store import Store


@dataclass(frozen=True, slots=True)
class EntryValues:
    """The extracted values of one entry of one session."""

    session: Session
    record: SessionRecord
    entry_id: str
    values: tuple[Extraction, ...]


def entry_named(
    settings: Settings, store: Store | None, reference: str, session: str | Session | None
) -> EntryValues:
    """Find the extracted values of an entry, named by its id or by a whole pasted stub.

    `session` narrows to one session, by a name of it or as it was looked up already. Raise
    NotFoundError, or AmbiguousError when entries of several sessions have that id.
    """
    wanted = id_named(reference)
    if store is None:
        raise NotFoundError(f"nothing is extracted from entry {wanted!r}: the store is still empty")
    if session:
        chosen = (
            session_named(settings, store, session, beyond=True)
            if isinstance(session, str)
            else session
        )
        return _of_session(store, chosen, wanted)
    return _of_any_session(settings, store, wanted)


def is_extracted_from(
    settings: Settings, store: Store | None, session: Session, reference: str
) -> bool:
    """Tell whether a session that was seen by a scan has extracted values of an entry."""
    if session.record is None:
        return False
    try:
        entry_named(settings, store, reference, session)
    except NotFoundError:
        return False
    return True


def _of_session(store: Store, session: Session, wanted: str) -> EntryValues:
    record = record_of(store, session)
    values = _family_values(store, session, record, wanted) if record else []
    if record is None or not values:
        raise NotFoundError(
            f"nothing is extracted from entry {wanted!r} in {session.title}; "
            "`brainsurgeon context SESSION` lists what is"
        )
    return EntryValues(session, record, values[0].entry_id, _newest(values, record))


def _of_any_session(settings: Settings, store: Store, wanted: str) -> EntryValues:
    """Find the values in the session that this program was started from, else in the only one."""
    values = store.extractions.of_entry(wanted)
    owners = {value.session_id for value in values}
    if not owners:
        raise NotFoundError(
            f"nothing is extracted from entry {wanted!r}; `brainsurgeon context SESSION` lists "
            "what is"
        )
    listed = all_sessions(settings, store, beyond=True)
    own = _in_calling_session(store, listed, wanted)
    if own is not None:
        return own
    found = [
        (session, session.record)
        for session in listed
        if session.record and session.record.id in owners
    ]
    if len(found) > 1:
        titles = [session.title for session, _ in found]
        raise AmbiguousError(f"entry {wanted!r}", titles, "name the session with --session")
    session, record = found[0]
    return EntryValues(session, record, values[0].entry_id, _newest(values, record))


def _in_calling_session(store: Store, listed: Iterable[Session], wanted: str) -> EntryValues | None:
    """Find the values in the session whose agent runs this command, if the entry stands there.

    A fork has the same ids as its origin, so that the entry would be found there, too.
    """
    here = claude_code.calling_session()
    for session in listed:
        if here is None or session.path != os.path.realpath(here):
            continue
        try:
            return _of_session(store, session, wanted)
        except NotFoundError:
            if _standing(session, {wanted.encode()}):
                raise
    return None


def _family_values(
    store: Store, session: Session, record: SessionRecord, wanted: str
) -> list[Extraction]:
    """Give the values that were cut out of an entry of a session.

    Those of a session that it was forked from count as far as their stubs stand in it: what its
    parent said after the fork is none of its business.
    """
    family = set(store.sessions.family(record))
    values = [v for v in store.extractions.of_entry(wanted) if v.session_id in family]
    inherited = {value.stub.encode() for value in values if value.session_id != record.id}
    standing = _standing(session, inherited) if inherited else set()
    return [v for v in values if v.session_id == record.id or v.stub.encode() in standing]


def _standing(session: Session, stubs: set[bytes]) -> set[bytes]:
    """Tell which of these stubs stand in a session's file."""
    if session.file is None:
        return set()
    try:
        with open_session(session.file) as opened:
            return {stub for line in opened.lines if line.raw for stub in stubs if stub in line.raw}
    except (OSError, RefusedError, BusyError):
        return set()


def _newest(values: Iterable[Extraction], record: SessionRecord) -> tuple[Extraction, ...]:
    """Give one extraction a place: the newest, since it speaks for what stands there now.

    What the session itself extracted speaks before what it has from another.
    """
    return newest(sorted(values, key=lambda value: (value.session_id == record.id, value.id)))


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
