"""Show stored values. Writes nothing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from brainsurgeon.config import Settings
from brainsurgeon.lookup import entries
from brainsurgeon.lookup.sessions import Session
from brainsurgeon.model.entries import dotted
from brainsurgeon.model.reports import ShownValues
from brainsurgeon.store import Store

if TYPE_CHECKING:
    from brainsurgeon.model.reports import ArchivedTurn


def show_turn(
    settings: Settings, store: Store, entry: str, session: str | Session | None, now: float
) -> ArchivedTurn | None:
    """Return the turn that is archived in an entry, as its agent wrote it, or None.

    Raises the errors of `show`, and GoneError if the session is gone.
    """
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
    shown, same_as = entries.contents(sent, entries.tokens_of(store, sent))
    missed = tuple(
        f"{dotted(value.path)}: expired" for value in entries.with_keys(named.values, wanted)
        if value.blob_id is None
    )  # fmt: skip
    return ShownValues(named.entry_id, named.session.title, same_as, missed, shown)
