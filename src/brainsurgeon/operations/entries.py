"""Find the extracted values of an entry that a person or an agent named, and choose among them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from brainsurgeon.errors import Ambiguous, Expired, NoSuchKey, NotFound
from brainsurgeon.formats.base import id_named
from brainsurgeon.model import Found, dotted
from brainsurgeon.operations import look
from brainsurgeon.operations.find import Session, row_of, session_named
from brainsurgeon.operations.times import iso
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
