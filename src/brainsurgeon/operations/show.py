"""Show stored values, archived turns and whole sessions. Writes nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from brainsurgeon.config import Settings
from brainsurgeon.lookup import entries
from brainsurgeon.lookup.sessions import Session, file_of, session_named
from brainsurgeon.model.entries import dotted
from brainsurgeon.model.plans import bytes_after
from brainsurgeon.model.reports import ShownValues
from brainsurgeon.sessions.discovery import open_to_show
from brainsurgeon.sessions.reading import RefusedError
from brainsurgeon.store import Store

if TYPE_CHECKING:
    from brainsurgeon.model.reports import ArchivedTurn


def show_turn(
    settings: Settings, store: Store, entry: str, session: str | Session | None, now: float
) -> ArchivedTurn | None:
    """Return the turn that is archived in an entry, or None; raise the errors of `show`."""
    named = entries.entry_named(settings, store, entry, session, to_show=True)
    if entries.archive_in(named) is None:
        return None
    from brainsurgeon.rewrite.turns import archived_turn  # noqa: PLC0415  rarely needed

    return archived_turn(settings, store, named, now)


def show(
    settings: Settings, store: Store, entry: str,
    session: str | Session | None = None, keys: Iterable[str] = (),
) -> ShownValues:  # fmt: skip
    """Return the values of an entry; raise NotFoundError, AmbiguousError or ExpiredError."""
    named = entries.entry_named(settings, store, entry, session, to_show=True)
    wanted = list(keys)
    values = entries.choose(named, wanted)
    sent = entries.as_sent(values, wanted)
    shown, same_as = entries.contents(sent, entries.json_texts(store, sent))
    missed = tuple(
        f"{dotted(value.path)}: expired" for value in entries.with_keys(named.values, wanted)
        if value.blob_id is None
    )  # fmt: skip
    return ShownValues(named.entry_id, named.session.title, same_as, missed, shown)


def cat(settings: Settings, store: Store, name: str | Session, now: float) -> Iterator[bytes]:
    """Yield a session with its placeholders filled; unchanged if its format is unknown."""
    from brainsurgeon.rewrite import inspect  # noqa: PLC0415  not needed to show an entry

    chosen = session_named(settings, store, name)
    file = file_of(chosen)
    with open_to_show(file) as session:
        done = 0
        try:
            is_known = session.format is not None
        except RefusedError:
            is_known = False
        if is_known:
            examined = inspect.examine_open(
                settings, store, session, now, chosen.record, kept_messages=0
            )
            for edit in inspect.plan_of_everything(examined).restorations:
                yield from session.stream(done, edit.start)
                yield bytes_after(edit, store.extractions.value)
                done = edit.end
        yield from session.stream(done, session.fingerprint.size)
