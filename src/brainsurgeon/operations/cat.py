"""Give a whole session with every stub filled in; the file is not touched."""

from __future__ import annotations

from typing import TYPE_CHECKING

from brainsurgeon.lookup.sessions import file_of, record_of, session_named
from brainsurgeon.model.records import Records, Wish
from brainsurgeon.rewrite.examine import examine, failing
from brainsurgeon.sessions.reading import RefusedError, open_session, read_range

if TYPE_CHECKING:
    from collections.abc import Iterator

    from brainsurgeon.config import Settings
    from brainsurgeon.model.records import SessionRecord
    from brainsurgeon.model.sessions import SessionFile
    from brainsurgeon.store import Store


def cat(settings: Settings, store: Store | None, name: str, now: float) -> Iterator[bytes]:
    """Yield the bytes of a session with the originals in the place of their stubs.

    Fields of ours stay where they stand; a session of no known format comes as it is.
    """
    chosen = session_named(settings, store, name)
    file = file_of(chosen)
    with failing(file):
        record = record_of(store, chosen) if store else None
        if store and record and _is_known(file):
            yield from _filled(settings, store, file, record, now)
        else:
            with open_session(file) as session:
                yield from read_range(session.descriptor, 0, session.fingerprint.size)


def _is_known(file: SessionFile) -> bool:
    with open_session(file) as session:
        try:
            return session.format is not None
        except RefusedError:
            return False


def _filled(
    settings: Settings, store: Store, file: SessionFile, record: SessionRecord, now: float
) -> Iterator[bytes]:
    wish = Wish(None, record.id or 0, None, "restore", None, None, True, now, None)
    extractions = store.extractions.of_sessions(store.sessions.family(record))
    with examine(settings, file, None, now, window=0) as one:
        records = Records(tuple(extractions), wishes=(wish,), own=record.id)
        plan = one.plan(records, cut=False)
        session, done = one.session, 0
        for edit in plan.putbacks:
            yield from read_range(session.descriptor, done, edit.start)
            yield edit.bytes_after(store.extractions.value)
            done = edit.end
        yield from read_range(session.descriptor, done, session.fingerprint.size)
