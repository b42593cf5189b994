"""What happened: listed, followed as it comes, and counted by kind and tool."""

from __future__ import annotations

from collections import Counter
from contextlib import nullcontext
from typing import TYPE_CHECKING

from brainsurgeon.errors import BusyError, StoreUnusableError, UsageError
from brainsurgeon.lookup.sessions import session_named
from brainsurgeon.model.reports import KINDS, Tally
from brainsurgeon.model.text import moment_said
from brainsurgeon.store import open_to_read
from brainsurgeon.store.history import KEPT_ROWS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

    from brainsurgeon.config import Settings
    from brainsurgeon.model.reports import Event
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
    replaced: Callable[[], None] = lambda: None,
) -> Iterator[list[Event]]:  # fmt: skip
    """Yield what happens from now on, or from an id or a moment on, each event once and in order.

    The store is opened anew, read-only, for each look, and looked at again whenever `wait` returns
    True; False ends it. It may be in another's hands, or not be there yet: then the next look
    finds what this one has not. `replaced` is called where another file stands in its place.
    """
    _check_kinds(kinds)
    following = _Following(_Wanted(settings, session), since, kinds, replaced)
    failed = 0
    while True:
        try:
            with open_to_read(settings.state_dir) or nullcontext() as store:
                found = following.look(store)
            failed = 0
        except (BusyError, StoreUnusableError):
            failed += 1
            if failed > _PATIENCE:
                raise
            found = []
        yield found
        if not wait():
            return


class _Following:
    """What was told of which store, so that nothing comes twice where another takes its place.

    One that a backup was put into the place of tells what it has in common with the old one by the
    same events under the same ids; behind that the same ids mean others.
    """

    def __init__(
        self, wanted: _Wanted, since: str | None, kinds: Collection[str],
        replaced: Callable[[], None],
    ) -> None:  # fmt: skip
        self._wanted, self._since, self._kinds, self._replaced = wanted, since, kinds, replaced
        self._seen: int | None = None
        self._start: Event | None = None
        self._place: tuple[int, int] | None = None
        self._told: dict[int, int] = {}

    def look(self, store: Store | None) -> list[Event]:
        """Give what is new in a store since the last look."""
        place = store.identity if store else None
        other = None not in (place, self._place) and place != self._place
        seen = self._begin(store) if self._seen is None else self._seen
        if store and other:
            seen = self._begin_anew(store)
            self._wanted.forget()
        newest = max(seen, _newest(store))
        behind = _behind(store, seen, self._kinds, self._wanted.id(store), newest)
        found = [one for one in behind if self._told.get(one.id) != _mark(one)]
        if store:
            store.check_still_there()
        # One that comes after none was there is another one, whichever number its file has.
        self._seen, self._place = newest, place or (self._place and (0, 0))
        self._told |= {one.id: _mark(one) for one in found}
        while len(self._told) > KEPT_ROWS:
            self._told.pop(next(iter(self._told)))
        if other:
            self._replaced()
        return found

    def _begin(self, store: Store | None) -> int:
        seen = _newest(store) if self._since is None else _begin(store, self._since)
        self._start = store.events.up_to(seen) if store else None
        return seen

    def _begin_anew(self, store: Store) -> int:
        """Give the id behind which to begin in another store: where it was begun, if it knows that.

        What was told already is passed over.
        """
        start = self._start
        if start is None:
            return 0
        there = store.events.up_to(start.id)
        known = there is not None and _mark(there) == _mark(start)
        return start.id if known else store.events.before(start.at)


def _mark(one: Event) -> int:
    """Give what an event is known by, whatever its session is called by now."""
    return hash(repr((one.id, one.at, one.kind, one.facts)))


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

    def forget(self) -> None:
        """Ask for its id again: another store may have given it another."""
        self._id = None

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
