"""Show stored values. Writes nothing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from brainsurgeon.config import Settings
from brainsurgeon.lookup.entries import (
    archive_in,
    as_sent,
    choose,
    chosen,
    contents,
    entry_named,
    tokens_of,
)
from brainsurgeon.lookup.sessions import Session
from brainsurgeon.model.entries import dotted
from brainsurgeon.model.reports import ShownValues
from brainsurgeon.store import Store

if TYPE_CHECKING:
    from brainsurgeon.model.reports import ArchivedTurn


def show_turn(
    settings: Settings, store: Store | None, entry: str, session: str | Session | None, now: float
) -> ArchivedTurn | None:
    """Return the turn that is archived in an entry, as its agent wrote it, or None.

    Raises the errors of `show`, and GoneError if the session is gone.
    """
    named = entry_named(settings, store, entry, session, to_show=True)
    if store is None or archive_in(named) is None:
        return None
    from brainsurgeon.rewrite.turns import archived_turn  # noqa: PLC0415  rarely needed

    return archived_turn(settings, store, named, now)


def show(
    settings: Settings, store: Store | None, entry: str,
    session: str | Session | None = None, keys: Iterable[str] = (),
) -> ShownValues:  # fmt: skip
    """Return the values of an entry; raise NotFoundError, AmbiguousError or ExpiredError."""
    named = entry_named(settings, store, entry, session, to_show=True)
    wanted = list(keys)
    values = choose(named, wanted)
    sent = as_sent(values, wanted)
    shown, same_as = contents(sent, tokens_of(store, sent) if store else {})
    missed = tuple(
        f"{dotted(value.path)}: expired" for value in chosen(named.values, wanted)
        if value.blob_id is None
    )  # fmt: skip
    return ShownValues(named.entry_id, named.session.title, shown, same_as, missed)
