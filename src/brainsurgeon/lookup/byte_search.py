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

from brainsurgeon.files import leases, sqlite
from brainsurgeon.model.entries import id_named
from brainsurgeon.model.session_files import Fingerprint, Root, SessionFile, Unreadable
from brainsurgeon.planning.retention import Interval
from brainsurgeon.sessions import placeholders
from brainsurgeon.sessions.discovery import AGED, any_format, discover
from brainsurgeon.sessions.row_listing import database_fingerprint, databases_below, list_rows
from brainsurgeon.store import Store
from brainsurgeon.store.database import path_text
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
        self, store: Store, roots: list[Root], interval: Interval,
        *, check_stop: Callable[[], None], dry_run: bool,
    ) -> None:  # fmt: skip
        """`interval` begins with the last run. `store` may be read-only if `dry_run`."""
        self._store, self._roots, self._interval = store, roots, interval
        self._check, self._dry_run = check_stop, dry_run
        self.found: set[int] = set()  # ids of the recorded sessions that are there
        self.problems: dict[str, str] = {}  # why something was not searched, by root
        # Names that tables said were in no session, although the last run had found them.
        self.last_seen_late: set[str] = set()
        self.absent: set[str] = set()  # roots that do not exist
        self._visited: set[int] = set()
        self._new: set[str] = set()  # names that a file has, and that it had not in the last run
        self._sessions: dict[str, int] = {}  # ids of changed sessions by path
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
            ids = self._store.sessions.ids_at(paths)
            self.found.update(ids.values())
            for source in listed:
                before = known.get(source.path)
                if before and before.id is not None:
                    self._visited.add(before.id)
                same = before and before.fingerprint == source.fingerprint
                if not (before and same and before.is_proven):
                    self._changed.append((source, before))
                    if source.path in ids:
                        self._sessions[source.path] = ids[source.path]

    def _sources(self) -> Iterator[Source]:
        items = chain(
            discover(self._roots, placeholders.may_be_session, any_format), list_rows(self._roots)
        )
        for item in items:
            self._check()
            if isinstance(item, Unreadable):
                if not os.path.lexists(item.root):
                    self.absent.add(item.root)
                self.problems.setdefault(item.root, f"{item.path}: {item.reason}")
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
                self._activity(source, before, names), names, before.id if before else None,
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

    def _activity(self, source: Source, before: Search | None, names: list[str]) -> float:
        """Return the last activity. A change that a run sees happened after the run before it."""
        mark = source.fingerprint
        if before and before.fingerprint == Fingerprint(
            mark.device, mark.inode, mark.size, mark.mtime_ns, before.fingerprint.ctime_ns
        ):
            return before.active_at
        # An older copy that was put back may have an old time, and a wrong clock a future one.
        times = [self._interval.at(mark.mtime_ns / 1e9)]
        if before:
            times.append(before.active_at)
        last = self._interval.before
        if last:
            times.append(self._interval.start)
        # Rewrites keep the time of the file.
        ident = self._sessions.get(source.path)
        rewritten = self._store.extractions.last_rewrite(ident, names)
        if rewritten and (last.wall if last else 0) < rewritten <= self._interval.clock.wall:
            times.append(self._interval.at(rewritten))
        return max(times)

    def _remember(self, batch: list[tuple[Search, Search | None]]) -> None:
        if not batch:
            return

        with nullcontext() if self._dry_run else self._store.transaction():
            for search, before in batch:
                self._visited.add(self._store.searches.remember(search))
                names = set(before.names) if before else set[str]()
                self._new.update(set(search.names) - names)
                self._note_gone(names.difference(search.names), search.path)

    def _note_gone(self, names: Collection[str], path: str) -> None:
        if not names:
            return
        late = self._store.searches.thought_gone(names, self._interval.start, path)
        if late and not self._dry_run:
            self._store.searches.restart(late, self._interval.now)
        self.last_seen_late.update(late)

    def forget(self, kept: Collection[str], roots: Collection[str]) -> None:
        """Forget files that are gone, except those below the roots in `kept`."""
        searches, [*_, other] = self._store.searches, roots
        gone = [
            (ident, next((root for root in roots if _is_below(path, root)), other), names)
            for ident, path, names in searches.others(self._visited)
            if not any(_is_below(path, root) for root in kept)
        ]
        for at in range(0, len(gone), _ROWS):
            self._check()
            with nullcontext() if self._dry_run else self._store.transaction():
                for ident, root, names in gone[at : at + _ROWS]:
                    searches.forget([ident])
                    if names:
                        searches.vanish(names, path_text(root), self._interval.now)
                        if not self._dry_run:  # if that table is lost, this term counts
                            searches.restart(names, self._interval.now)
        if self._new and searches.have_vanished():
            with nullcontext() if self._dry_run else self._store.transaction():
                searches.see_again(self._new)


def _is_below(path: str, root: str) -> bool:
    return f"{path}/".startswith(f"{root.rstrip('/')}/")
