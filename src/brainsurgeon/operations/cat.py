"""A whole session with its placeholders replaced by their values."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from brainsurgeon.lookup.sessions import file_of, session_named
from brainsurgeon.model.records import Request
from brainsurgeon.rewrite.inspect import examine_open, records_of
from brainsurgeon.sessions.opening import failing, open_session
from brainsurgeon.sessions.reading import RefusedError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from brainsurgeon.config import Settings
    from brainsurgeon.model.records import SessionRecord
    from brainsurgeon.sessions.opening import AnyOpen
    from brainsurgeon.store import Store


def cat(settings: Settings, store: Store | None, name: str, now: float) -> Iterator[bytes]:
    """Yield the bytes of a session with its placeholders replaced by their values.

    Fields of brainsurgeon are kept. A session of an unknown format is yielded unchanged.
    """
    chosen = session_named(settings, store, name)
    file = file_of(chosen)
    with failing(file), open_session(file) as session:
        if store and _is_known(session):
            yield from _filled(settings, store, session, chosen.record, now)
        else:
            yield from session.stream(0, session.fingerprint.size)


def _is_known(session: AnyOpen) -> bool:
    try:
        return session.format is not None
    except RefusedError:
        return False


def _filled(
    settings: Settings, store: Store, session: AnyOpen, record: SessionRecord | None, now: float
) -> Iterator[bytes]:
    request = Request(
        None, record.id if record else 0, None, "restore", None, None, True, now, None
    )
    records = replace(records_of(settings, store, session, record, now), requests=(request,))
    plan = examine_open(settings, session, None, now, window=0).plan(records, cut=False)
    done = 0
    for edit in plan.putbacks:
        yield from session.stream(done, edit.start)
        yield edit.bytes_after(store.extractions.value)
        done = edit.end
    yield from session.stream(done, session.fingerprint.size)
