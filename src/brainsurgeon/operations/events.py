"""What happened: listed, followed as it comes, and counted by kind and tool."""

from __future__ import annotations

from collections import Counter
from contextlib import nullcontext
from typing import TYPE_CHECKING

from brainsurgeon.errors import BusyError, StoreUnusableError, UsageError
from brainsurgeon.lookup.sessions import session_named
from brainsurgeon.model.events import KINDS, Tally
from brainsurgeon.model.times import moment_said
from brainsurgeon.store import open_to_read

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

    from brainsurgeon.config import Settings
    from brainsurgeon.model.events import Event
    from brainsurgeon.store import Store

LISTED = 50
"""How many of the newest are listed where nobody says since when."""
_PATIENCE = 10
"""Looks in a row that may fail: a writer may be at it, or a crash just have left something."""
_LONGEST_ID = 19
_NOBODYS = -1
"""The id of a session of which nothing was ever recorded."""


def events(
    settings: Settings, store: Store | None, *, since: str | None = None,
    session: str | None = None, kinds: Collection[str] = (), everything: bool = False,
) -> list[Event]:  # fmt: skip
    """Give the events behind an id or since a moment, else everything or the newest, newest last.

    Raise UsageError for a kind or a moment that is none, NotFoundError or AmbiguousError for a
    session.
    """
    _check_kinds(kinds)
    start = None if since is None else _begin(store, since)
    found = _behind(store, start or 0, kinds, _Wanted(settings, session).id(store))
    return found if start is not None or everything else found[-LISTED:]


def follow(
    settings: Settings, *, since: str | None = None, session: str | None = None,
    kinds: Collection[str] = (), wait: Callable[[], bool],
) -> Iterator[list[Event]]:  # fmt: skip
    """Yield what happens from now on, or from an id or a moment on, each event once and in order.

    The store is opened anew, read-only, for each look, and looked at again whenever `wait` returns
    True; False ends it. It may be in another's hands, or not be there yet: then the next look
    finds what this one has not.
    """
    _check_kinds(kinds)
    seen = None
    wanted = _Wanted(settings, session)
    failed = 0
    while True:
        try:
            with open_to_read(settings.state_dir) or nullcontext() as store:
                if seen is None:
                    seen = _newest(store) if since is None else _begin(store, since)
                newest = max(seen, _newest(store))
                found = _behind(store, seen, kinds, wanted.id(store), newest)
            seen, failed = newest, 0
        except (BusyError, StoreUnusableError):
            failed += 1
            if failed > _PATIENCE:
                raise
            found = []
        yield found
        if not wait():
            return


def _behind(
    store: Store | None, seen: int, kinds: Collection[str], ident: int | None,
    until: int | None = None,
) -> list[Event]:  # fmt: skip
    if store is None:
        return []
    return store.events.after(seen, kinds=kinds, session_id=ident, until=until)


def _newest(store: Store | None) -> int:
    return store.events.newest() if store else 0


def _begin(store: Store | None, since: str) -> int:
    """Give the id behind which to begin: that very one, or by a moment."""
    if since.isascii() and since.isdigit() and len(since) < _LONGEST_ID:
        return int(since)
    moment = moment_said(since)
    if moment is None:
        raise UsageError(f"--since {since!r}: wants the id of an event, or a moment in ISO 8601")
    return store.events.before(moment) if store else 0


class _Wanted:
    """The session that is asked for, which the store may come to know only later."""

    def __init__(self, settings: Settings, name: str | None) -> None:
        self._settings, self._name = settings, name
        self._path: str | None = None
        self._id: int | None = None

    def id(self, store: Store | None) -> int | None:
        """Give its id, None where every session is wanted."""
        if self._name is None or self._id is not None:
            return self._id
        if self._path is None:
            named = session_named(self._settings, store, self._name, beyond=True)
            self._path, record = named.path, named.record
        else:
            record = store.sessions.at(self._path) if store else None
        self._id = record.id if record else None
        return _NOBODYS if self._id is None else self._id


def _check_kinds(kinds: Collection[str]) -> None:
    for kind in kinds:
        if kind not in KINDS:
            raise UsageError(f"--kind {kind!r}: wants one of {', '.join(KINDS)}")


def counts(listed: Iterable[Event]) -> list[Tally]:
    """Count what went and what came back, by kind and tool; what came up most comes first."""
    sums: dict[tuple[str, str | None], Counter[str]] = {}
    for event in listed:
        out = event.kind in ("extraction", "redaction")
        if not out and event.kind not in ("restoration", "rollback"):
            continue
        for some in event.facts.get("by", ()):
            name = "extracted" if out else "restored"
            of = sums.setdefault((some["kind"], some["tool"]), Counter())
            of[name] += some["values"]
            of[f"{name}_chars"] += some["chars"]
    made = [
        Tally(kind, tool, of["extracted"], of["extracted_chars"], of["restored"],
              of["restored_chars"])
        for (kind, tool), of in sums.items()
    ]  # fmt: skip
    return sorted(made, key=lambda one: (-one.extracted_chars, one.kind, one.tool or ""))
