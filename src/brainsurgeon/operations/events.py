"""The event log: list events, follow new ones, and count them by kind and tool."""

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

LISTED = 50  # newest events that are listed without `since`
# Reads in a row that may fail: a writer may hold the store, or a crash may have left files.
_PATIENCE = 10
_LONGEST_ID = 19
_NOBODYS = -1  # stands for the id of a session without a row


def events(
    settings: Settings, store: Store | None, *, since: str | None = None,
    session: str | None = None, kinds: Collection[str] = (), everything: bool = False,
) -> list[Event]:  # fmt: skip
    """Return the events after an id or since a time, else all or the newest, newest last.

    Raises UsageError for an invalid kind or time, NotFoundError or AmbiguousError for a session.
    """
    _check_kinds(kinds)
    start = None if since is None else _begin(store, since)
    listed = _behind(store, start or 0, kinds, _Wanted(settings, session).id(store))
    return listed if start is not None or everything else listed[-LISTED:]


def follow(
    settings: Settings, *, since: str | None = None, session: str | None = None,
    kinds: Collection[str] = (), wait: Callable[[], bool],
    replaced: Callable[[], None] = lambda: None,
) -> Iterator[list[Event]]:  # fmt: skip
    """Yield new events from now on, or from an id or a time on, each event once and in order.

    The store is opened read-only for each read, and read again whenever `wait` returns True;
    False ends the iteration. If the store is locked or does not exist yet, the next read yields
    the events. `replaced` is called after the store file was replaced by another.
    """
    _check_kinds(kinds)
    following = _Following(_Wanted(settings, session), since, kinds, replaced)
    failed = 0
    while True:
        try:
            with open_to_read(settings.state_dir) or nullcontext() as store:
                fresh = following.look(store)
            failed = 0
        except (BusyError, StoreUnusableError):
            failed += 1
            if failed > _PATIENCE:
                raise
            fresh = []
        yield fresh
        if not wait():
            return


class _Following:
    """The position in the event log, and the events yielded, to yield none twice.

    A store restored from a backup has the same events under the same ids up to the backup. After
    that, equal ids belong to different events.
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
        """Return the events since the last read."""
        place = store.identity if store else None
        is_replaced = None not in (place, self._place) and place != self._place
        seen = self._begin(store) if self._seen is None else self._seen
        if store and is_replaced:
            seen = self._begin_anew(store)
            self._wanted.forget()
        newest = max(seen, _newest(store))
        behind = _behind(store, seen, self._kinds, self._wanted.id(store), newest)
        fresh = [event for event in behind if self._told.get(event.id) != _mark(event)]
        if store:
            store.check_still_there()
        # A store that appears after there was none is a new one, even if its inode is the same.
        self._seen, self._place = newest, place or (self._place and (0, 0))
        self._told |= {event.id: _mark(event) for event in fresh}
        while len(self._told) > KEPT_ROWS:
            self._told.pop(next(iter(self._told)))
        if is_replaced:
            self._replaced()
        return fresh

    def _begin(self, store: Store | None) -> int:
        seen = _newest(store) if self._since is None else _begin(store, self._since)
        self._start = store.events.up_to(seen) if store else None
        return seen

    def _begin_anew(self, store: Store) -> int:
        """Return the id after which to read another store: the first position, if it has that.

        Events that were yielded already are skipped later.
        """
        start = self._start
        if start is None:
            return 0
        same = store.events.up_to(start.id)
        is_known = same is not None and _mark(same) == _mark(start)
        return start.id if is_known else store.events.before(start.at)


def _mark(event: Event) -> int:
    """Return a hash that does not depend on the name of the session."""
    return hash(repr((event.id, event.at, event.kind, event.facts)))


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
    """Return the id after which to read, from an id or a time."""
    if since.isascii() and since.isdigit() and len(since) < _LONGEST_ID:
        return int(since)
    moment = moment_said(since)
    if moment is None:
        raise UsageError(f"--since {since!r}: wants the id of an event, or a moment in ISO 8601")
    return store.events.before(moment) if store else 0


class _Wanted:
    """The requested session, which may get its row later."""

    def __init__(self, settings: Settings, name: str | None) -> None:
        self._settings, self._name = settings, name
        self._path: str | None = None
        self._id: int | None = None

    def forget(self) -> None:
        """Drop the id: another store may have a different one."""
        self._id = None

    def id(self, store: Store | None) -> int | None:
        """Return the id of the session, or None for all sessions."""
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
    """Count extracted and restored values by kind and tool, most extracted characters first."""
    sums: dict[tuple[str, str | None], Counter[str]] = {}
    for event in listed:
        if event.kind in ("extraction", "redaction"):
            name = "extracted"
        elif event.kind in ("restoration", "rollback"):
            name = "restored"
        else:
            continue
        for part in event.facts.get("by", ()):
            counter = sums.setdefault((part["kind"], part["tool"]), Counter())
            counter[name] += part["values"]
            counter[f"{name}_chars"] += part["chars"]
    tallies = [
        Tally(kind, tool, counter["extracted"], counter["extracted_chars"], counter["restored"],
              counter["restored_chars"])
        for (kind, tool), counter in sums.items()
    ]  # fmt: skip
    return sorted(tallies, key=lambda tally: (-tally.extracted_chars, tally.kind, tally.tool or ""))
