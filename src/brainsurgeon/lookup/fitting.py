"""Tell which of several sessions a file holds, by the entries that something was cut out of."""

from __future__ import annotations

from typing import TYPE_CHECKING

from brainsurgeon.decide.belonging import holds
from brainsurgeon.errors import BusyError
from brainsurgeon.model.records import Records
from brainsurgeon.sessions.opening import open_session
from brainsurgeon.sessions.reading import RefusedError, carry_on
from brainsurgeon.sessions.row_sighting import stubs_in_rows
from brainsurgeon.sessions.sighting import stubs_in

if TYPE_CHECKING:
    from collections.abc import Iterable

    from brainsurgeon.model.entries import KeyPath
    from brainsurgeon.model.records import SessionRecord
    from brainsurgeon.model.sessions import SessionFile
    from brainsurgeon.store import Store


def fits(store: Store, record: SessionRecord, file: SessionFile, *, whole: bool) -> bool:
    """Tell whether the entries of a file are as they were recorded of a session, or all of it."""
    extractions = store.extractions.of_sessions(store.sessions.family(record))
    try:
        with open_session(file) as opened:
            records = Records(tuple(extractions), own=record.id)
            return holds(opened.lines, opened.format, records, whole=whole)
    except (OSError, RefusedError, BusyError):
        return False


def fitting(
    store: Store, file: SessionFile, sessions: Iterable[SessionRecord]
) -> list[SessionRecord]:
    """Give those sessions whose entries the file holds, as far as it goes."""
    return [one for one in sessions if fits(store, one, file, whole=False)]


def nearest(store: Store, file: SessionFile, sessions: list[SessionRecord]) -> SessionRecord | None:
    """Give the session that explains the most of a file's stubs.

    None where there is no session, and where they would put different values into the file.
    """
    if len(sessions) < 2:  # noqa: PLR2004  one alone agrees with itself
        return sessions[0] if sessions else None
    standing = stubs_standing_in(file)
    told: dict[tuple[str, KeyPath], bytes] = {}
    explained = []
    for session in sessions:
        family = store.extractions.of_sessions(store.sessions.family(session))
        said = {(one.stub, one.path): one.digest for one in family if one.stub in standing}
        if any(told.setdefault(place, digest) != digest for place, digest in said.items()):
            return None
        explained.append(len(said))
    return sessions[explained.index(max(explained))]


def stubs_standing_in(file: SessionFile) -> set[str]:
    """Give the stubs of ours that stand in a file; none where it cannot be read."""
    try:
        return (stubs_in_rows if file.in_database else stubs_in)(file, carry_on)
    except OSError:
        return set()
