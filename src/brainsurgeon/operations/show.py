"""Show stored values. Writes nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from brainsurgeon.lookup.entries import archive_in, choose, entry_named, expired
from brainsurgeon.lookup.values import as_sent, contents, tokens_of
from brainsurgeon.model.entries import dotted

if TYPE_CHECKING:
    from collections.abc import Iterable

    from brainsurgeon.config import Settings
    from brainsurgeon.lookup.sessions import Session
    from brainsurgeon.rewrite.turns import ArchivedTurn
    from brainsurgeon.store import Store


@dataclass(frozen=True, slots=True)
class ShownValues:
    """The values of one entry by path, as the agent would read them; `missed` have expired.

    Equal values are included once: `same_as` maps the path of a copy to the path of its value.
    """

    entry_id: str
    session: str
    content: dict[str, Any]
    same_as: dict[str, str]
    missed: tuple[str, ...] = ()


def show_turn(
    settings: Settings, store: Store | None, entry: str, session: str | Session | None, now: float
) -> ArchivedTurn | None:
    """Return the turn that is archived in an entry, as its agent wrote it, or None.

    Raises the errors of `show`, and GoneError if the session is gone.
    """
    named = entry_named(settings, store, entry, session, to_show=True)
    if store is None or archive_in(named) is None:
        return None
    from brainsurgeon.rewrite.turns import archived_turn  # noqa: PLC0415  few shown are turns

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
    shown = contents(sent, tokens_of(store, sent) if store else {})
    missed = tuple(f"{dotted(value.path)}: expired" for value in expired(named, wanted))
    return ShownValues(named.entry_id, named.session.title, shown.values, shown.same_as, missed)
