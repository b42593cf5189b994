"""Find the extracted values of an entry, and their content."""

import json
from collections import defaultdict
from collections.abc import Collection, Iterable
from contextlib import suppress
from functools import cache
from itertools import chain
from typing import Any

from msgspec import Struct

from brainsurgeon.agents import FORMATS
from brainsurgeon.config import Settings
from brainsurgeon.errors import (
    AmbiguousError,
    BusyError,
    DamagedError,
    ExpiredError,
    NoSuchKeyError,
    NotFoundError,
)
from brainsurgeon.files.reading import RefusedError
from brainsurgeon.formats.transcript import entries_of
from brainsurgeon.lookup.opening import check_store
from brainsurgeon.lookup.owners import Place, countable, of_other_agents
from brainsurgeon.lookup.sessions import (
    Session,
    all_sessions,
    file_of,
    of_calling_process,
    session_named,
)
from brainsurgeon.model import entries
from brainsurgeon.model.records import Extraction, Others, Records
from brainsurgeon.model.text import iso
from brainsurgeon.planning.matching import find
from brainsurgeon.sessions.discovery import AnyOpen, open_session
from brainsurgeon.store import Store

_COPIES = frozenset[str]().union(*(form.copies for form in FORMATS.values()))
_SCREEN = frozenset[str]().union(*(form.screen for form in FORMATS.values()))


class EntryValues(Struct, frozen=True):
    session: Session
    entry_id: str
    values: tuple[Extraction, ...]


def entry_named(
    settings: Settings, store: Store, reference: str, session: str | Session | None,
    *, to_show: bool = False,
) -> EntryValues:  # fmt: skip
    """Return the extracted values of an entry, by placeholder, id or unique beginning of the id.

    Raises NotFoundError, AmbiguousError, or StoreUnusableError if the store is missing. With
    `to_show`, several sessions may have the entry if its values are equal in all of them.
    """
    wanted = entries.id_named(reference)
    if not store.exists:
        check_store(settings)
        raise NotFoundError(
            f"nothing is extracted from entry {wanted!r}: there is no store yet; "
            "`brainsurgeon scan` begins it"
        )
    here = session_named(settings, store, session, with_former_roots=True) if session else None
    if entries.is_placeholder(reference):
        return _of_exact_id(settings, store, reference, here, to_show=to_show)
    try:
        return _of_exact_id(settings, store, wanted, here, to_show=to_show)
    except NotFoundError:
        idents = (
            sorted({*chain.from_iterable(_beginning_in(store, one, wanted) for one in here.parts)})
            if here
            else store.extractions.entries_beginning(wanted)
        )
        if not idents:
            raise
        if len(idents) > 1:
            raise AmbiguousError(f"entry {wanted!r}", idents, "give more of its id") from None
        named = _of_exact_id(settings, store, idents[0], here, to_show=to_show)
        # The caller may mean the entry with exactly this id, from which nothing is extracted.
        if _has_entry(named.session, wanted):
            raise
        return named


def _of_exact_id(
    settings: Settings, store: Store, reference: str, session: Session | None, *, to_show: bool
) -> EntryValues:
    if session is None:
        return _of_any_session(settings, store, reference, to_show=to_show)
    named = _of_session(store, session, reference)
    if not to_show:
        _check_all_owned(store, named)
    return named


def owned(store: Store, session: Session, values: Iterable[Extraction]) -> list[Extraction]:
    if not session.only_owned:
        return list(values)
    owner = cache(lambda session_id: store.sessions.by_id(session_id).agent_directory)
    return [value for value in values if owner(value.session_id) == session.agent_directory]


def _of_session(store: Store, session: Session, reference: str) -> EntryValues:
    values = owned(store, session, store.extractions.of_entry(reference))
    for part in session.parts:
        if here := _in_session(store, part, values):
            return EntryValues(part, here[-1].entry_id, newest(here))
    raise _nothing_extracted(entries.id_named(reference), session)


def attributable(store: Store, session: Session, values: Iterable[Extraction]) -> list[Extraction]:
    """Drop the values of other agents under ids that are not random."""
    record, listed = session.record, list(values)
    form = FORMATS.get(record.format) if record else None
    if form is None:
        return listed
    place = Place(session.path, session.agent_directory, record)
    others = of_other_agents(store, place, {value.session_id for value in listed})
    return list(countable(listed, others, form))


def _in_session(store: Store, session: Session, values: list[Extraction]) -> list[Extraction]:
    """Select the values that a session contains: by the store's records, else by its file."""
    record, values = session.record, attributable(store, session, values)
    placed = store.placements.of_session(record.id) if record else frozenset()
    here = [value for value in values if value.id in placed]
    if not here and record:
        here = [value for value in values if value.session_id == record.id]
    return here or _in_file(store, session, values)


def _beginning_in(store: Store, session: Session, beginning: str) -> set[str]:
    """Return the entries with extracted values in a session whose ids have this beginning.

    The store is asked, and the file is read, once for all of them.
    """
    values = owned(store, session, store.extractions.beginning(beginning))
    record, values = session.record, attributable(store, session, values)
    placed = store.placements.of_session(record.id) if record else frozenset()
    here = {
        value.entry_id for value in values
        if value.id in placed or (record and value.session_id == record.id)
    }  # fmt: skip
    others = [value for value in values if value.entry_id not in here]
    return here | {value.entry_id for value in _in_file(store, session, others)}


def _in_file(store: Store, session: Session, values: list[Extraction]) -> list[Extraction]:
    """Select the values in the file of a session: in a fork or copy that no scan has seen yet."""
    if values and session.file:
        with suppress(OSError, RefusedError, BusyError), open_session(session.file) as opened:
            return _standing(store, session, opened, values)
    return []


def _standing(
    store: Store, session: Session, opened: AnyOpen, values: list[Extraction]
) -> list[Extraction]:
    form, record = opened.form, session.record
    place = Place(session.path, session.agent_directory, record)
    others = of_other_agents(store, place, {value.session_id for value in values})
    records = Records(
        countable(values, others, form),
        same_identity=store.sessions.same_identity(
            opened.identity, (value.session_id for value in values)
        ),
        own=record.id if record else None, others=Others(others),
    )  # fmt: skip
    found = find(opened.transcript, records, opened.parsed)
    return list({value.id: value for value in found.in_place()}.values())


def _check_all_owned(store: Store, named: EntryValues) -> None:
    """Raise NotFoundError if the session contains values of the entry that another agent owns."""
    session = named.session
    values = store.extractions.of_entry(named.entry_id)
    own = {(value.name, value.path, value.digest) for value in owned(store, session, values)}
    foreign = [value for value in values if (value.name, value.path, value.digest) not in own]
    if _in_session(store, session, foreign):
        raise _nothing_extracted(named.entry_id, session)


def _nothing_extracted(wanted: str, session: Session | None = None) -> NotFoundError:
    where = f" in {session.title}" if session else ""
    return NotFoundError(
        f"nothing is extracted from entry {wanted!r}{where}; "
        "`brainsurgeon sessions SESSION` lists extracted values"
    )


def _of_any_session(
    settings: Settings, store: Store, reference: str, *, to_show: bool
) -> EntryValues:  # fmt: skip
    wanted, values = entries.id_named(reference), store.extractions.of_entry(reference)
    if not values:
        raise _nothing_extracted(wanted)
    listed = all_sessions(settings, store, with_former_roots=True)
    for session in of_calling_process(listed):
        # The calling session is preferred: a fork has the same entry ids as its origin.
        try:
            return _of_session(store, session, reference)
        except NotFoundError:
            if _has_entry(session, wanted):
                raise
    by_session: dict[int, list[Extraction]] = defaultdict(list)
    placed = store.placements.sessions_of(value.id for value in values)
    for value in values:
        for ident in placed[value.id] or [value.session_id]:
            by_session[ident].append(value)
    matches = [
        (session, by_session[session.record.id]) for session in listed
        if session.record and session.record.id in by_session
    ]  # fmt: skip
    matches = [match for match in matches if match[0].file] or matches
    # To show values, any of the sessions will do if all have equal values at each path.
    equal = len({(v.path, v.digest) for v in values}) == len({v.path for v in values})
    if len(matches) > 1 and not (to_show and equal):
        several = len({value.name for value in values}) > 1
        shown = [
            f"{session.title}  {entries.placeholder_named(here[-1].name)}"
            if several
            else session.title
            for session, here in matches
        ]
        hint = "name the session with --session" + (", or paste the placeholder" * several)
        raise AmbiguousError(f"entry {wanted!r}", shown, hint)
    session, here = matches[0]
    return EntryValues(session, here[-1].entry_id, newest(here))


def _has_entry(session: Session, ident: str) -> bool:
    with suppress(BusyError):
        return ident in ids_in(session, ident, [ident])
    return False


def entry_in(
    settings: Settings, store: Store, entry: str, session: str | Session | None = None
) -> tuple[Session, str]:
    """Return the session of an entry, and its whole id. Reads sessions, all if none is given.

    Raises NotFoundError or AmbiguousError.
    """
    wanted = entries.id_named(entry)
    if session:
        chosen = session_named(settings, store, session)
        file_of(chosen)
        listed, where = [*chosen.parts], session if isinstance(session, str) else session.path
    else:
        listed, where = all_sessions(settings, store), "any session"
    ids = _ids_of(store, wanted)
    matches = [(item, ident) for item in listed for ident in ids_in(item, wanted, ids)]
    matches = [match for match in matches if match[1] in ids] or matches
    if not matches:
        raise NotFoundError(
            f"no entry {wanted!r} was found in {where}; `brainsurgeon show SESSION` prints entries"
        )
    if len({ident for _, ident in matches}) > 1:
        names = [f"{item.title}  {ident}" for item, ident in matches]
        raise AmbiguousError(f"entry {wanted!r}", names, "give more of its id")
    if len(matches) > 1:
        titles = [item.title for item, _ in matches]
        raise AmbiguousError(f"entry {wanted!r}", titles, "name the session with --session")
    return matches[0]


def contains_entry(store: Store, session: Session, entry: str) -> bool:
    wanted = entries.id_named(entry)
    ids = _ids_of(store, wanted)
    return any(ids_in(part, wanted, ids) for part in session.parts)


def _ids_of(store: Store, wanted: str) -> set[str]:
    """Return `wanted`, and the ids of entries with placeholders of this name."""
    return {wanted} | {value.entry_id for value in store.extractions.of_entry(wanted)}


def ids_in(session: Session, wanted: str, ids: Collection[str]) -> list[str]:
    """Return the first of `ids` in a session, or all its entry ids that begin with `wanted`.

    Returns [] if its file cannot be read. Raises BusyError if its database is in use.
    """
    if session.file is None or not wanted:
        return []
    # Lines cannot be searched for ids that JSON may escape, or that brainsurgeon generates (L2-…).
    plain = all(entries.is_safe(ident) and not ident.startswith("L") for ident in ids)
    prefixed: dict[str, None] = {}
    wanted_bytes = [ident.encode() for ident in ids] if plain else [b""]
    with suppress(OSError, RefusedError), open_session(session.file) as opened:
        lines = (
            line for line in opened.lines
            if line.raw and any(text in line.raw for text in wanted_bytes)
        )  # fmt: skip
        for _, entry in entries_of(opened.form, lines):
            if (ident := entry.ident) is not None and ident in ids:
                return [ident]
            if ident is not None and ident.startswith(wanted):
                prefixed[ident] = None
        return list(prefixed)
    return []


def choose(named: EntryValues, keys: Iterable[str]) -> tuple[Extraction, ...]:
    """Return the unexpired values with these keys, or raise NoSuchKeyError or ExpiredError."""
    wanted = with_keys(named.values, keys)
    if not wanted:
        paths = ", ".join(entries.dotted(value.path) for value in named.values)
        raise NoSuchKeyError(
            f"no extracted value of {named.entry_id!r} has that key; there are {paths}"
        )
    if all(value.tombstone for value in wanted):
        raise ExpiredError(named.entry_id, [
            {
                "entry_id": value.entry_id,
                "path": entries.dotted(value.path),
                "size_bytes": value.size,
                "extracted_at": iso(value.extracted_at),
                "expired_at": iso(value.tombstone.at),
                "reason": value.tombstone.why,
            }
            for value in wanted if value.tombstone
        ])  # fmt: skip
    return tuple(value for value in wanted if value.blob_id is not None)


def archive_in(named: EntryValues, *, with_undone: bool = False) -> Extraction | None:
    parts = (part for part in named.values if part.archive_id is not None and not part.is_link)
    return next((part for part in parts if with_undone or part.state == "standing"), None)


def newest(values: Iterable[Extraction]) -> tuple[Extraction, ...]:
    return tuple({value.path: value for value in values}.values())


def with_keys(values: Iterable[Extraction], keys: Iterable[str]) -> tuple[Extraction, ...]:
    """Return the values with these keys, or all values if there are no keys.

    A key is a whole path, one name in a path, or several of these, separated by commas.
    """
    wanted = set(_names(values := tuple(values), keys))
    return tuple(
        value for value in values
        if not wanted or not wanted.isdisjoint([entries.dotted(value.path), *value.path])
    )  # fmt: skip


UNKNOWN_KEY = "no extracted value has this key"


def unknown_keys(values: Iterable[Extraction], keys: Iterable[str]) -> tuple[str, ...]:
    """Return a line about each key that no value has."""
    values = tuple(values)
    names = _names(values, keys)
    return tuple(f"{name}: {UNKNOWN_KEY}" for name in names if not with_keys(values, [name]))


def _names(values: Iterable[Extraction], keys: Iterable[str]) -> list[str]:
    """Split keys at commas, except those that name a value as they are."""
    known = {name for value in values for name in (entries.dotted(value.path), *value.path)}
    names: list[str] = []
    for key in keys:
        parts = [part for part in map(str.strip, key.split(",")) if part]
        names += [key] if key in known or not parts else parts
    return names


def without_screen(values: tuple[Extraction, ...], keys: Iterable[str]) -> tuple[Extraction, ...]:
    """Drop values in an agent's own form, unless there are `keys` or no other values."""
    sent = tuple(value for value in values if _SCREEN.isdisjoint(value.path))
    return values if list(keys) else sent or values


def own_copies_last(values: Iterable[Extraction]) -> tuple[Extraction, ...]:
    return tuple(sorted(values, key=lambda value: not _COPIES.isdisjoint(value.path)))


def json_texts(store: Store, values: Iterable[Extraction]) -> dict[int, bytes]:
    return {
        value.id: store.blobs.get(value.blob_id, value.digest)
        for value in values
        if value.blob_id is not None
    }


def json_text(store: Store, value: Extraction) -> bytes | None:
    if value.blob_id is None:
        return None
    with suppress(DamagedError):
        return store.blobs.get(value.blob_id, value.digest)
    return None


def contents(
    values: Iterable[Extraction], texts: dict[int, bytes]
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the distinct values by path, and a map of the paths of copies to their originals."""
    by_path: dict[str, Any] = {}
    same_as: dict[str, str] = {}
    first: dict[str, str] = {}
    for value in own_copies_last(values):
        if value.id not in texts:
            continue
        path, content = entries.dotted(value.path), decode(texts[value.id])
        original = first.setdefault(json.dumps(content), path)
        if original == path:
            by_path[path] = content
        else:
            same_as[path] = original
    return by_path, same_as


def decode(text: bytes) -> Any:
    return json.loads(text.decode("utf-8", "surrogatepass"))
