"""What a retention run writes: a page is a transaction, and between two others have their turn.

SQLite wakes nobody who waits for a lock: they ask again, within 25 ms while they have not waited
for long. So after each page there is a pause as long as that, in which they find it free.
"""

from __future__ import annotations

import time
from collections import defaultdict
from contextlib import contextmanager
from typing import TYPE_CHECKING

from brainsurgeon.decide.retention import Verdict
from brainsurgeon.model.records import HeldValue
from brainsurgeon.store.due import PAGE, Age

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from brainsurgeon.store import Store

Decision = tuple[HeldValue, bool, Verdict]
"""A value, whether its stub stands somewhere, and what becomes of it."""

TURN = 0.026
"""Seconds for which the store is left alone after a page."""
_MANY, _HEAVY = 100, 10_000
"""Rows from which on a transaction is long enough for that, and bytes that cost as much as one."""


class Expiring:
    """What carries out what a run decided; `values` counts the stored values that are gone."""

    def __init__(self, store: Store, now: float) -> None:
        self._store, self._now = store, now
        self.values = 0
        self._sessions: set[int] = set()

    def carry_out(self, page: list[Decision]) -> set[int]:
        """Write the marks and tombstones of a page, and delete its values; name what is gone.

        Nothing is while a rewrite is open, which may be about to put a value back: a later run
        will.
        """
        of: dict[str, list[Verdict]] = {"mark": [], "unmark": [], "delete": [], "keep": []}
        for _, _, verdict in page:
            of[verdict.action].append(verdict)
        standing = [value.id for value, stands, _ in page if stands]
        if not standing and len(of["keep"]) == len(page):
            return set()
        expiry, now = self._store.expiry, self._now
        size = sum(value.size for value, _, _ in page)
        with self._turn(len(page) + size // _HEAVY):
            self._store.extractions.sight(standing, now)
            expiry.mark((one.id for one in of["mark"]), now)
            expiry.mark((one.id for one in of["unmark"]), None)
            gone, values = expiry.delete(((one.id, one.why) for one in of["delete"]), now)
            self._tell(page, set(gone))
        self.values += values
        return set(gone)

    def _tell(self, page: list[Decision], gone: set[int]) -> None:
        """Note what expired, session by session and reason by reason."""
        sizes: dict[tuple[int, str], list[int]] = defaultdict(list)
        for value, _, verdict in page:
            if value.id in gone:
                sizes[value.session_id, verdict.why].append(value.size)
        if not sizes:
            return
        store, pass_id = self._store, self._store.passes.number()
        for (session, why), listed in sizes.items():
            facts = {"values": len(listed), "size_bytes": sum(listed), "reason": why}
            store.events.add(self._now, "expiry", session, facts, pass_id)
        sessions = {session for session, _ in sizes}
        store.passes.add(pass_id, expired=len(gone), sessions=len(sessions - self._sessions))
        self._sessions |= sessions

    def sweep(self) -> None:
        """Delete what rewrites shelved that never happened, and columns that nobody needs."""
        last, orphans = 0, self._store.expiry.orphans(self._now)
        while orphans:
            with self._turn(len(orphans)):
                self.values += self._store.expiry.sweep(orphans, self._now)
            last = orphans[-1]
            orphans = self._store.expiry.orphans(self._now, last)

    def finish(self, ages: Iterable[Age], facts: dict[str, object]) -> None:
        """Note how the run went, drop old events and passes, and give back their room."""
        for entries in self._store.rows.unneeded() if self.values else ():
            if entries:
                with self._turn(len(entries)):
                    self._store.expiry.release(entries)
        for some in _pages(ages):
            with self._turn(len(some)):
                self._store.expiry.note_ages(some, self._now)
        with self._store.transaction():
            self._store.facts.put("last_retention_run_at", self._now)
            self._store.facts.put("retention", facts)
        while old := self._store.events.old(self._now):
            with self._turn(len(old)):
                self._store.events.drop(old)
        while old := self._store.passes.old(self._now):
            with self._turn(len(old)):
                self._store.passes.drop(old)
        while self.values and self._store.expiry.shrink():
            give_way()

    @contextmanager
    def _turn(self, rows: int) -> Iterator[None]:
        """Run a block as a transaction, and give others theirs afterwards."""
        with self._store.transaction():
            yield
        if rows >= _MANY:
            give_way()


def give_way() -> None:
    """Leave the store alone for a moment."""
    time.sleep(TURN)


def _pages(ages: Iterable[Age]) -> Iterator[list[Age]]:
    page: list[Age] = []
    for age in ages:
        page.append(age)
        if len(page) == PAGE:
            yield page
            page = []
    if page:
        yield page
