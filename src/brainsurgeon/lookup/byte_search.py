"""Search the bytes of all sessions and archives below the roots for placeholders.

The search is kept in the store. A file with the same `stat`, ctime included, is not read again.
"""

import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import nullcontext, suppress
from functools import cache, partial
from itertools import chain, islice

from msgspec import Struct

from brainsurgeon.hosts import sqlite
from brainsurgeon.model.entries import id_named
from brainsurgeon.model.sessions import Fingerprint, Root, SessionFile, Unreadable
from brainsurgeon.planning.retention import Timeline
from brainsurgeon.sessions import leases, placeholders
from brainsurgeon.sessions.discovery import AGED, any_format, discover
from brainsurgeon.sessions.row_listing import database_fingerprint, databases_below, list_rows
from brainsurgeon.store import Store
from brainsurgeon.store.searches import Search

_TOGETHER = 1000  # files that are looked up together
_ROWS = 200  # rows of a transaction
_NAMES = 20_000  # names in a transaction


class Source(Struct, frozen=True):
    """A file, a session in a database, or the archives in a database."""

    path: str
    root: str
    fingerprint: Fingerprint
    changed_at: float  # seconds
    read: Callable[[], Iterable[str]]  # returns placeholders; raises OSError


class ByteSearch:
    """First `look`, then `read`, then `forget`."""

    def __init__(
        self, store: Store, roots: list[Root], timeline: Timeline, since: float | None, now: float,
        *, check_stop: Callable[[], None], dry_run: bool,
    ) -> None:  # fmt: skip
        """`since` is the time of the last run. `store` may be read-only if `dry_run`."""
        self._store, self._roots, self._timeline = store, roots, timeline
        self._since, self._now, self._check, self._dry_run = since, now, check_stop, dry_run
        self.found: set[int] = set()  # ids of the recorded sessions that are there
        self.problems: dict[str, str] = {}  # why something was not searched, by root
        # Names that tables said were in no session, although the last run had found them.
        self.last_seen_late: set[str] = set()
        self.absent: set[str] = set()  # roots that do not exist
        self._visited: set[int] = set()
        self._changed: list[tuple[Source, Search | None]] = []
        self._unproven = cache(leases.unproven_at)

    @property
    def unread(self) -> dict[str, str]:
        """Why something that is there was not searched, by root."""
        return {root: why for root, why in self.problems.items() if root not in self.absent}

    def look(self) -> None:
        """List everything before reading anything: what moves in between is noticed."""
        sources = self._sources()
        while listed := list(islice(sources, _TOGETHER)):
            paths = [source.path for source in listed]
            known = self._store.searches.at(paths)
            self.found.update(self._store.sessions.ids_at(paths).values())
            for source in listed:
                before = known.get(source.path)
                if before and before.id is not None:
                    self._visited.add(before.id)
                same = before and before.fingerprint == source.fingerprint
                if not (before and same and before.is_proven):
                    self._changed.append((source, before))

    def _sources(self) -> Iterator[Source]:
        items = chain(
            discover(self._roots, placeholders.may_be_session, any_format), list_rows(self._roots)
        )
        for item in items:
            self._check()
            if isinstance(item, Unreadable):
                self._note_problem(item)
            else:
                yield self._source(item)
        for database in databases_below(self._roots):
            self._check()
            try:
                state = database_fingerprint(sqlite.state_of(database.path))
            except OSError as error:
                self._fail(database.root, database.path, error)
            else:
                read = partial(placeholders.archived_placeholders, database, self._check)
                yield Source(database.path, database.root, state, state.mtime_ns / 1e9, read)

    def _note_problem(self, item: Unreadable) -> None:
        if not os.path.lexists(item.root):
            self.absent.add(item.root)
        self.problems.setdefault(item.root, f"{item.path}: {item.why}")

    def _fail(self, root: str, path: str, error: OSError) -> None:
        why = f"{path}: {error.strerror or type(error).__name__}"
        self.problems.setdefault(root, why)

    def _source(self, file: SessionFile) -> Source:
        mark = file.fingerprint
        changed = mark.mtime_ns if file.in_database else mark.ctime_ns
        read = partial(placeholders.placeholders_in, file, self._check)
        return Source(file.path, file.root, mark, changed / 1e9, read)

    def read(self) -> None:
        batch: list[tuple[Search, Search | None]] = []
        weight = 0
        for source, before in self._changed:
            self._check()
            try:
                names = sorted(set(map(id_named, source.read())))
            except OSError as error:
                self._fail(source.root, source.path, error)
                continue
            search = Search(
                source.path, source.fingerprint, self._is_proven(source),
                self._activity(source, before), names, before.id if before else None,
            )  # fmt: skip
            batch.append((search, before))
            weight += len(names) + (len(before.names) if before else 0)
            if len(batch) >= _ROWS or weight >= _NAMES:
                self._remember(batch)
                batch, weight = [], 0
        self._remember(batch)
        self._changed = []

    def _is_proven(self, source: Source) -> bool:
        # This is the kernel's clock, as for the times of files.
        if source.changed_at > time.clock_gettime(time.CLOCK_REALTIME) - AGED:
            return False
        with suppress(OSError):
            return self._unproven(source.root) is None
        return False

    def _activity(self, source: Source, before: Search | None) -> float:
        """Return the last activity. A change that a run sees happened after the run before it."""
        mark = source.fingerprint
        if before and before.fingerprint == Fingerprint(
            mark.device, mark.inode, mark.size, mark.mtime_ns, before.fingerprint.ctime_ns
        ):
            return before.active_at
        # An older copy that was put back may have an old time, and a wrong clock a future one.
        modified = self._timeline.at(mark.mtime_ns / 1e9)
        earliest = before.active_at if before else modified
        if self._since is not None:
            earliest = max(earliest, self._timeline.at(self._since))
        return max(modified, earliest)

    def _remember(self, batch: list[tuple[Search, Search | None]]) -> None:
        if not batch:
            return

        with nullcontext() if self._dry_run else self._store.transaction():
            for search, before in batch:
                self._visited.add(self._store.searches.remember(search))
                if before:
                    self._note_gone(set(before.names).difference(search.names))

    def _note_gone(self, names: Collection[str]) -> None:
        if not names or self._since is None:
            return
        late = self._store.searches.thought_gone(names, self._since)
        if late and not self._dry_run:
            self._store.searches.restart(late, self._since, self._now)
        self.last_seen_late.update(late)

    def forget(self, kept: Collection[str]) -> None:
        """Forget files that are gone, except those below the roots in `kept`."""
        others = self._store.searches.others(self._visited)
        gone = [
            (ident, names) for ident, path, names in others
            if not any(f"{path}/".startswith(f"{root.rstrip('/')}/") for root in kept)
        ]  # fmt: skip
        for at in range(0, len(gone), _ROWS):
            self._check()
            page = gone[at : at + _ROWS]
            with nullcontext() if self._dry_run else self._store.transaction():
                self._store.searches.forget(ident for ident, _ in page)
                self._note_gone({name for _, names in page for name in names})
