"""A whole session with its placeholders replaced by their values."""

from collections.abc import Iterator

from brainsurgeon.config import Settings
from brainsurgeon.lookup.sessions import Session, file_of, session_named
from brainsurgeon.rewrite.inspect import examine_open, plan_of_everything
from brainsurgeon.sessions.discovery import open_to_show
from brainsurgeon.sessions.reading import RefusedError
from brainsurgeon.store import Store


def cat(settings: Settings, store: Store, name: str | Session, now: float) -> Iterator[bytes]:
    """Yield the bytes of a session with its placeholders replaced by their values.

    Fields of brainsurgeon are kept. A session of an unknown format is yielded unchanged.
    """
    chosen = session_named(settings, store, name)
    file = file_of(chosen)
    with open_to_show(file) as session:
        done = 0
        try:
            is_known = session.format is not None
        except RefusedError:
            is_known = False
        if is_known:
            examined = examine_open(settings, store, session, now, chosen.record, window=0)
            for edit in plan_of_everything(examined).restorations:
                yield from session.stream(done, edit.start)
                yield edit.bytes_after(store.extractions.value)
                done = edit.end
        yield from session.stream(done, session.fingerprint.size)
