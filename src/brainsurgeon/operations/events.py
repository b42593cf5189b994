"""The event log: list events, follow new ones, and count them by kind and tool."""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import nullcontext

from brainsurgeon.config import Settings
from brainsurgeon.errors import BusyError, StoreUnusableError, UsageError
from brainsurgeon.lookup.sessions import session_named
from brainsurgeon.model.reports import KINDS, Event, Tally
from brainsurgeon.model.text import parse_time
from brainsurgeon.store import Store, open_to_read
from brainsurgeon.store.history import KEPT_ROWS

LISTED = 50  # newest events that are listed without `since`
# Consecutive reads that may fail: a writer may hold the store, or a crash may have left files.
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
    reader = _Reader(settings, session, kinds)
    listed = reader.after(store, 0 if since is None else _begin(store, since))
    return listed if everything or since is not None else listed[-LISTED:]


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
    following = _Following(_Reader(settings, session, kinds), since, replaced)
    failed = 0
    while True:
        try:
            with open_to_read(settings.state_dir) or nullcontext() as store:
                fresh = following.read(store)
            failed = 0
        except (BusyError, StoreUnusableError):
            failed += 1
            if failed > _PATIENCE:
                raise
            fresh = []
        yield fresh
        if not wait():
            return


class _Reader:
    """Reads the events of some kinds and of one session, which may get its row later, or of all."""

    def __init__(self, settings: Settings, session: str | None, kinds: Collection[str]) -> None:
        for kind in kinds:
            if kind not in KINDS:
                raise UsageError(f"--kind {kind!r}: wants one of {', '.join(KINDS)}")
        self._settings, self._name, self._kinds = settings, session, kinds
        self._path: str | None = None
        self.session_id: int | None = None

    def after(self, store: Store | None, seen: int, until: int | None = None) -> list[Event]:
        if self._name is not None and self.session_id is None:
            if self._path is None:
                session = session_named(self._settings, store, self._name, beyond=True)
                self._path, record = session.path, session.record
            else:
                record = store.sessions.at(self._path) if store else None
            self.session_id = record.id if record else None
        if store is None:
            return []
        ident = None if self._name is None else self.session_id or _NOBODYS
        return store.events.after(seen, kinds=self._kinds, session_id=ident, until=until)


class _Following:
    """The position in the event log, and the events yielded, to yield none twice.

    A store restored from a backup has the same events under the same ids up to the backup. After
    that, equal ids belong to different events.
    """

    def __init__(self, reader: _Reader, since: str | None, replaced: Callable[[], None]) -> None:
        self._reader, self._since, self._replaced = reader, since, replaced
        self._seen: int | None = None
        self._start: Event | None = None
        self._place: tuple[int, int] | None = None
        self._yielded: dict[int, int] = {}  # by id, a hash of the event

    def read(self, store: Store | None) -> list[Event]:
        place = store.identity if store else None
        is_replaced = None not in (place, self._place) and place != self._place
        newest, seen = store.events.newest() if store else 0, self._seen
        if seen is None:
            seen = newest if self._since is None else _begin(store, self._since)
            self._start = store.events.up_to(seen) if store else None
        elif store and is_replaced:
            seen = self._begin_anew(store)
            self._reader.session_id = None  # another store may have another id
        newest = max(seen, newest)
        events = self._reader.after(store, seen, newest)
        fresh = [event for event in events if self._yielded.get(event.id) != _hash(event)]
        if store:
            store.check_still_there()
        # A store that appears after there was none is a new one, even if its inode is the same.
        self._seen, self._place = newest, place or (self._place and (0, 0))
        self._yielded |= {event.id: _hash(event) for event in fresh}
        while len(self._yielded) > KEPT_ROWS:
            self._yielded.pop(next(iter(self._yielded)))
        if is_replaced:
            self._replaced()
        return fresh

    def _begin_anew(self, store: Store) -> int:
        """Return the id after which to read another store: the first position, if it has that."""
        start = self._start
        if start is None:
            return 0
        same = store.events.up_to(start.id)
        is_known = same is not None and _hash(same) == _hash(start)
        return start.id if is_known else store.events.before(start.at)


def _hash(event: Event) -> int:
    """Return a hash that does not depend on the name of the session."""
    return hash(repr((event.id, event.at, event.kind, event.facts)))


def _begin(store: Store | None, since: str) -> int:
    """Return the id after which to read, from an id or a time."""
    if since.isascii() and since.isdigit() and len(since) < _LONGEST_ID:
        return int(since)
    moment = parse_time(since)
    if moment is None:
        raise UsageError(f"--since {since!r}: expects an event number or a time in ISO 8601")
    return store.events.before(moment) if store else 0


def counts(listed: Iterable[Event]) -> list[Tally]:
    """Count extracted and restored values by kind and tool, most extracted characters first."""
    names = {"extraction": "extracted", "redaction": "extracted",
             "restoration": "restored", "rollback": "restored"}  # fmt: skip
    sums: dict[tuple[str, str | None], Counter[str]] = defaultdict(Counter)
    for event in listed:
        if name := names.get(event.kind):
            for part in event.facts.get("by", ()):
                counter = sums[part["kind"], part["tool"]]
                counter[name] += part["values"]
                counter[f"{name}_chars"] += part["chars"]
    columns = ("extracted", "extracted_chars", "restored", "restored_chars")
    tallies = (Tally(*key, *(counter[name] for name in columns)) for key, counter in sums.items())
    return sorted(tallies, key=lambda tally: (-tally.extracted_chars, tally.kind, tally.tool or ""))
