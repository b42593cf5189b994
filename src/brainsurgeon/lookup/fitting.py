"""Tell which of several sessions a file holds, by the entries that something was cut out of."""

from __future__ import annotations

import json
from collections import defaultdict
from contextlib import suppress
from typing import TYPE_CHECKING

from brainsurgeon.decide.belonging import holds
from brainsurgeon.decide.matching import ARCHIVE
from brainsurgeon.errors import BusyError
from brainsurgeon.formats.base import parse
from brainsurgeon.formats.digests import whole_of
from brainsurgeon.model.entries import value_at
from brainsurgeon.model.records import Records
from brainsurgeon.sessions.opening import open_session
from brainsurgeon.sessions.reading import RefusedError, carry_on
from brainsurgeon.sessions.row_sighting import stubs_in_rows
from brainsurgeon.sessions.sighting import has_marks, stubs_in

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping

    from brainsurgeon.model.entries import KeyPath
    from brainsurgeon.model.records import Extraction, SessionRecord
    from brainsurgeon.model.sessions import SessionFile
    from brainsurgeon.store import Store
    from brainsurgeon.store.extractions import Whole


def fits(store: Store, record: SessionRecord, file: SessionFile, *, whole: bool) -> bool:
    """Tell whether the entries of a file are as they were recorded of a session, or all of it."""
    extractions = store.extractions.of_sessions(store.sessions.family(record))
    if not any(one.session_id == record.id for one in extractions):
        return False  # nothing was cut out of it that could be there
    try:
        with open_session(file) as opened:
            records = Records(tuple(extractions), own=record.id)
            return holds(opened.lines, opened.format, records, whole=whole)
    except (OSError, RefusedError, BusyError):
        return False


def may_be_whole_again(
    store: Store, file: SessionFile, sessions: list[SessionRecord]
) -> list[SessionRecord]:
    """Leave out the sessions that a file in which nothing of ours stands is certainly not.

    All are compared with one reading of the file; what is left is for `fits` to say.
    """
    ids = [one.id for one in sessions if one.id is not None]
    recorded = store.extractions.wholes(ids) if ids else {}
    wanted = {entry for rows in recorded.values() for entry, *_ in rows}
    said = _said_in(file, wanted) if wanted else {}
    return [one for one in sessions if _may_be(recorded.get(one.id or 0, []), said)]


def _may_be(recorded: list[Whole], said: Mapping[str, set[bytes | None]]) -> bool:
    if any(whole is None or replaced for _, whole, _, replaced in recorded):
        return True  # a record that does not say it all
    same = {entry for entry, whole, _, _ in recorded if whole in said.get(entry, ())}
    other = (entry for entry, _, stands, _ in recorded if stands and entry in said)
    return bool(same) and all(entry in same for entry in other)


def _said_in(file: SessionFile, wanted: Container[str]) -> dict[str, set[bytes | None]]:
    """Give the digests of some entries of a file, by their ids; of none where it is unreadable."""
    said: dict[str, set[bytes | None]] = defaultdict(set)
    with suppress(OSError, RefusedError, BusyError), open_session(file) as opened:
        for line in opened.lines:
            entry = parse(line.raw) if line.raw else None
            if entry is None or line.raw is None:
                continue
            ident = opened.format.identity(entry, line.raw, line.number)
            if ident is not None and ident in wanted:
                said[ident].add(whole_of(opened.format, entry, {}))
    return said


def fitting(
    store: Store, file: SessionFile, sessions: Iterable[SessionRecord]
) -> list[SessionRecord]:
    """Give those sessions whose entries the file holds, as far as it goes."""
    return [one for one in sessions if fits(store, one, file, whole=False)]


def nearest(store: Store, file: SessionFile, sessions: list[SessionRecord]) -> SessionRecord | None:
    """Give the session that explains the most of a file's stubs and archives.

    None where there is no session, and where they would put different values into the file.
    """
    if len(sessions) < 2:  # noqa: PLR2004  one alone agrees with itself
        return sessions[0] if sessions else None
    families = [store.extractions.of_sessions(store.sessions.family(one)) for one in sessions]
    standing = stubs_standing_in(file)
    replaced = _replaced_in(file, [one for family in families for one in family])
    told: dict[tuple[str, KeyPath], bytes] = {}
    explained = []
    for family in families:
        said = {(one.stub, one.path): one.digest for one in family if one.stub in standing}
        said |= {(_as_it_reads(one), one.path): one.digest for one in family if one.id in replaced}
        if any(told.setdefault(place, digest) != digest for place, digest in said.items()):
            return None
        explained.append(len(said))
    return sessions[explained.index(max(explained))]


def _replaced_in(file: SessionFile, extractions: Iterable[Extraction]) -> set[int]:
    """Give the records whose values gave way to another text than a stub that stands in a file."""
    recorded: dict[str, list[Extraction]] = defaultdict(list)
    for one in extractions:
        if one.replacement is not None:
            recorded[one.entry_id].append(one)
    there: set[int] = set()
    with suppress(OSError, RefusedError, BusyError), open_session(file) as opened:
        for line in opened.lines if recorded else ():
            entry = parse(line.raw) if line.raw else None
            if entry is None or line.raw is None:
                continue
            ident = opened.format.identity(entry, line.raw, line.number)
            named = {one.decode() for one in ARCHIVE.findall(line.raw)} | {ident or ""}
            there.update(
                one.id
                for name in named & recorded.keys()
                for one in recorded[name]
                if value_at(entry, one.path) == json.loads(one.replacement or "null")
            )
    return there


def _as_it_reads(one: Extraction) -> str:
    return f"{one.entry_id} {one.replacement}"


def stubs_standing_in(file: SessionFile) -> set[str]:
    """Give the stubs of ours that stand in a file; none where it cannot be read."""
    try:
        return (stubs_in_rows if file.in_database else stubs_in)(file, carry_on)
    except OSError:
        return set()


def is_marked(file: SessionFile) -> bool:
    """Tell whether anything may stand in a file in the place of a value; not of thinking."""
    try:
        return file.in_database or has_marks(file, carry_on)
    except OSError:
        return True
