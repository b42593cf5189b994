"""List runs and events, follow new events, and count values by kind and tool."""

import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator

from brainsurgeon.config import Settings
from brainsurgeon.errors import BusyError, StoreUnusableError, UsageError
from brainsurgeon.lookup.sessions import session_named
from brainsurgeon.model.reports import KINDS, Event, Run, Tally
from brainsurgeon.model.text import parse_time
from brainsurgeon.store import Store, open_to_read

LISTED, LISTED_RUNS = 50, 20  # numbers of events and runs listed by default
_MOST_FAILED_READS = 10  # failed reads in a row that `follow` tolerates: the store may be locked
_ID_DIGITS = 18


def runs(store: Store, *, most: int | None = LISTED_RUNS) -> list[Run]:
    """Return the newest runs, oldest first; all if `most` is None."""
    return store.runs.newest(most)


def events(
    settings: Settings, store: Store, *, since: str | None = None,
    session: str | None = None, kinds: Collection[str] = (), everything: bool = False,
) -> list[Event]:  # fmt: skip
    """Return the events after `since`, oldest first. By default, return the newest LISTED.

    `since` is an id or a time; a time without a zone is local. Raises UsageError for an invalid
    kind or time.
    """
    reader = _Reader(settings, session, kinds)
    found = reader.after(store, 0 if since is None else _id_before(store, since))
    return found if everything or since is not None else found[-LISTED:]


def follow(
    settings: Settings, *, since: str | None = None, session: str | None = None,
    kinds: Collection[str] = (), wait: Callable[[], bool],
) -> Iterator[list[Event]]:  # fmt: skip
    """Yield lists of events after `since`, by default from now on, until `wait` returns False.

    Lists may be empty. Raises BusyError or StoreUnusableError if too many reads fail, and BusyError
    if the store was replaced or removed: another store gives the same ids to other events.
    """
    reader, followed, seen, failed = _Reader(settings, session, kinds), None, None, 0
    while True:
        fresh: list[Event] = []
        identity = followed
        try:
            with open_to_read(settings.state_dir) as store:
                identity, newest = store.identity, store.events.newest()
                if seen is None:
                    seen = newest if since is None else _id_before(store, since)
                if followed in (None, identity):
                    fresh = reader.after(store, seen, newest)
                    seen = max(seen, newest)
            failed = 0
        except (BusyError, StoreUnusableError):
            failed += 1
            if failed > _MOST_FAILED_READS:
                raise
        if followed not in (None, identity):
            raise BusyError(
                "the store was replaced or removed; start again to follow the events of the new one"
            )
        followed = identity
        yield fresh
        if not wait():
            return


class _Reader:
    """Reads all events, or those of a session, which need not have a record yet."""

    def __init__(self, settings: Settings, session: str | None, kinds: Collection[str]) -> None:
        for kind in kinds:
            if kind not in KINDS:
                raise UsageError(f"--kind {kind!r}: wants one of {', '.join(KINDS)}")
        self._settings, self._name, self._kinds = settings, session, kinds
        self._paths: list[str] = []
        self._ids: set[int] = set()

    def after(self, store: Store, seen: int, until: int | None = None) -> list[Event]:
        # Of a session with several files, some may have no record yet.
        if self._name is not None and len(self._ids) < max(1, len(self._paths)):
            if not self._paths:
                session = session_named(self._settings, store, self._name, with_former_roots=True)
                self._paths = [part.path for part in session.parts]
                records = session.records
            else:
                records = [*filter(None, map(store.sessions.at, self._paths))]
            self._ids |= {record.id for record in records}
        ids = None if self._name is None else self._ids
        return store.events.after(seen, kinds=self._kinds, sessions=ids, until=until)


def _id_before(store: Store, since: str) -> int:
    if since.isascii() and since.isdigit() and len(since) <= _ID_DIGITS:
        return int(since)
    text, _, zone = since.rpartition(" ")  # `history` prints the name of the local zone, too
    moment = parse_time(text if zone in time.tzname else since, zone=None)
    if moment is None:
        raise UsageError(f"--since {since!r}: expects an event number or a time in ISO 8601")
    return store.events.before(moment)


def counts(listed: Iterable[Event]) -> list[Tally]:
    """Count extracted and restored values by kind and tool, most extracted characters first."""
    columns = {"extraction": 0, "redaction": 0, "restoration": 2, "rollback": 2}
    sums: dict[tuple[str, str | None], list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    for event in listed:
        if (column := columns.get(event.kind)) is not None:
            for part in event.facts.get("by", ()):
                row = sums[part["kind"], part["tool"]]
                row[column] += part["values"]
                row[column + 1] += part["chars"]
    tallies = (Tally(*key, *row) for key, row in sums.items())
    return sorted(tallies, key=lambda tally: (-tally.chars, tally.kind, tally.tool or ""))
