"""The retention job: mark what expired, delete what was marked, and stop at what is suspicious.

It costs what is due: sessions of which nothing can have expired cost nothing, and what is decided
is read and written a page at a time, between which everybody else has a turn.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from brainsurgeon import clock as clocks
from brainsurgeon.decide import retention as decide
from brainsurgeon.errors import StoppedError
from brainsurgeon.model.reports import RetentionReport
from brainsurgeon.model.sessions import Unreadable
from brainsurgeon.operations.databases import out_of_sight
from brainsurgeon.operations.expiring import Expiring
from brainsurgeon.operations.standing import NEVER, Standing
from brainsurgeon.rewrite import recover
from brainsurgeon.sessions.discover import any_format, discover
from brainsurgeon.sessions.reading import carry_on
from brainsurgeon.sessions.row_listing import list_rows
from brainsurgeon.store.texts import path_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from brainsurgeon.config import Settings
    from brainsurgeon.model.records import HeldValue
    from brainsurgeon.operations.expiring import Decision
    from brainsurgeon.store import Store
    from brainsurgeon.store.due import Due

HIDDEN = "its agent keeps its sessions in a database that lies below no root"


def retention(
    settings: Settings,
    store: Store,
    *,
    clock: Callable[[], float] = time.time,
    dry_run: bool = False,
    check_stop: Callable[[], None] = carry_on,
) -> RetentionReport:
    """Do one retention run; when `check_stop` raises StoppedError, the next run goes on."""
    report = RetentionReport(dry_run)
    if not dry_run:
        recover.recover(store, settings.root_directories())
    now = clock()
    with store.expiry.due() as due:
        try:
            run = _Run(settings, store, due, now, check_stop)
            run.look()
            report.values_held = store.expiry.count_held()
            report.brakes = run.brakes
            with store.passes.run("retention", now):
                _carry_out(store, run, due, report, check_stop)
        except StoppedError:
            report.stopped = True
    return report


def _carry_out(
    store: Store, run: _Run, due: Due, report: RetentionReport, check_stop: Callable[[], None]
) -> None:
    """Judge what is due page by page, each of which is whole by itself."""
    expiring = Expiring(store, run.now)
    reasons: Counter[str] = Counter()
    for page in run.judge():
        check_stop()
        reasons.update(f"{one.action}: {one.why.partition(';')[0]}" for *_, one in page)
        _add_up(report, page, None if report.dry_run else expiring.carry_out(page))
        report.reasons = dict(sorted(reasons.items()))
        report.blobs_deleted = expiring.values
    if report.dry_run:
        return
    check_stop()
    if not run.brakes:
        expiring.sweep()
    report.blobs_deleted = expiring.values
    expiring.finish(due.ages(), run.facts())


def _add_up(report: RetentionReport, page: list[Decision], gone: set[int] | None) -> None:
    """Count what was decided of a page; `gone` is what was deleted (None: in a dry run)."""
    for value, _, verdict in page:
        report.values_marked += verdict.action == "mark"
        report.values_unmarked += verdict.action == "unmark"
        if verdict.action == "delete" and (gone is None or value.id in gone):
            report.values_deleted += 1
            report.bytes_deleted += value.size


class _Run:
    """What one run finds before it decides anything."""

    def __init__(
        self, settings: Settings, store: Store, due: Due, now: float,
        check_stop: Callable[[], None],
    ) -> None:  # fmt: skip
        self._settings, self.now, self._check = settings, now, check_stop
        self._store, self.due = store, due
        # What is not to be looked at by scans still counts here.
        self._roots = [replace(root, databases=True) for root in settings.root_directories()]
        self._seen = store.facts.roots_seen()
        self.states, self._live = self._look_at_roots()
        self.clock = decide.Clock(now, clocks.boot_clock(), clocks.boot_id())
        self.brakes = self._brakes(store.facts.get("retention") or {})
        self._standing = Standing(store, due, self._roots, check_stop)

    def _look_at_roots(self) -> tuple[dict[str, decide.RootState], dict[str, float]]:
        """Count the sessions of each root, and note when each live file last changed."""
        counts: Counter[str] = Counter()
        errors: dict[str, str] = {}
        live: dict[str, float] = {}
        for item in (*discover(self._roots, format_of=any_format), *list_rows(self._roots)):
            self._check()
            if isinstance(item, Unreadable):
                errors[item.root] = f"{item.path}: {item.why}"
            else:
                counts[item.root] += 1
                live[item.path] = item.fingerprint.mtime_ns / 1e9
        roots = {os.path.realpath(root.path) for root in self._roots}
        return {
            path_text(root): decide.RootState(counts[root], errors.get(root)) for root in roots
        }, live

    def _brakes(self, before: dict[str, object]) -> dict[str, str]:
        """Name the roots below which nothing may be deleted in this run, and why."""
        busy = {path_text(root) for root in recover.roots_waiting(self._store)}
        last = before.get("clock")
        jumped = decide.clock_jumped(
            decide.Clock(**last) if isinstance(last, dict) else None, self.clock
        )
        known = before.get("roots")
        earlier = {
            root: decide.RootState(**state)
            for root, state in (known.items() if isinstance(known, dict) else ())
        }
        self.remembered = {
            root: replace(earlier[root], error=state.error)
            if state.error and root in earlier
            else state
            for root, state in self.states.items()
        }
        brakes = {}
        for root in map(path_text, self._store.expiry.roots_held()):
            state = self.states.get(root, decide.RootState(0, "it is not configured any more"))
            under_way = "a rewrite is under way" if root in busy else None
            reason = under_way or jumped or decide.brake(earlier.get(root), state)
            if reason:
                brakes[root] = reason
        return brakes

    def look(self) -> None:
        """Find what has to be decided about, and what of it stands in files and databases."""
        self.due.gather(
            self._settings.retention, self._settings.retention_standing, self.now,
            lambda path: self._live.get(path, 0.0),
        )  # fmt: skip
        if self.due:
            for root, why in self._standing.look():
                self.brakes.setdefault(root, why)

    def judge(self) -> Iterator[list[Decision]]:
        """Decide about everything that is due, a page at a time."""
        hidden = out_of_sight(self._roots)
        for page in self.due.values():
            yield [self._judge(value, activity, hidden) for value, activity in page]

    def _judge(
        self, value: HeldValue, seen: float | None, hidden: Callable[[str], bool]
    ) -> Decision:
        if hidden(value.agent_directory):
            action: decide.Action = "keep" if value.marked_at is None else "unmark"
            return value, False, decide.Verdict(value.id, action, HIDDEN)
        activity = self._standing.activity(value, seen)
        stands = activity > NEVER
        root = path_text(value.root)
        held = decide.Held(
            value.id, value.extracted_at, value.sighted_at, value.restored_at, value.marked_at,
            stands, activity,
        )  # fmt: skip
        return value, stands, decide.judge(
            held, self._settings.retention, self._settings.retention_standing, self.now,
            seen_since=None if root in self.brakes else self._seen.get(root),
        )  # fmt: skip

    def facts(self) -> dict[str, object]:
        """Give what the next run is to know of this one."""
        return {
            "clock": asdict(self.clock),
            "roots": {root: asdict(state) for root, state in self.remembered.items()},
            "brakes": self.brakes,
        }
