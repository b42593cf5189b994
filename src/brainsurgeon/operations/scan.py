"""A scan: walk the roots, skip unchanged sessions, plan the others, carry out the plans."""

from __future__ import annotations

import os
import time
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from brainsurgeon.errors import (
    BrainsurgeonError,
    BusyError,
    DamagedError,
    FailedError,
    StoppedError,
    StoreFullError,
)
from brainsurgeon.lookup import catalogue
from brainsurgeon.model.plans import Outcome
from brainsurgeon.model.records import FileState
from brainsurgeon.model.reports import ScanReport
from brainsurgeon.model.sessions import Unreadable
from brainsurgeon.operations.status import describe_machine
from brainsurgeon.planning.plan import outcome_of
from brainsurgeon.rewrite import recover
from brainsurgeon.rewrite.batch import Batch, Planned, carry_out_together
from brainsurgeon.rewrite.budget import asked_relief, plan_due, remember
from brainsurgeon.rewrite.change import end_redactions
from brainsurgeon.rewrite.finish import Unfinished
from brainsurgeon.rewrite.inspect import (
    HELD,
    NotIdleError,
    check_alone,
    check_touchable,
    examine_quiet,
    excluded,
    moved_away,
    records_of,
)
from brainsurgeon.rewrite.tail import Look, begin_anew, begins_at, frontier_of, look_at_growth
from brainsurgeon.rewrite.turns import Told
from brainsurgeon.sessions.discovery import discover, discover_at, is_named
from brainsurgeon.sessions.reading import ObstacleError, RefusedError, carry_on
from brainsurgeon.sessions.row_listing import NOTHING_OWN, list_rows, list_rows_at, mark_of
from brainsurgeon.store.database import DatabaseError
from brainsurgeon.store.files import AGAIN, WAITS
from brainsurgeon.store.scan_memory import FileMemory

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from brainsurgeon.config import Settings
    from brainsurgeon.hosts.sqlite import DatabaseState
    from brainsurgeon.model.plans import Plan, Result
    from brainsurgeon.model.records import SessionRecord
    from brainsurgeon.model.sessions import Root, SessionFile
    from brainsurgeon.model.turns import Fullness
    from brainsurgeon.rewrite.change import AnyRewrite
    from brainsurgeon.rewrite.inspect import Examination
    from brainsurgeon.store import Store


class Walk:
    """One walk over the roots; `resting` counts the unchanged sessions, which it does not yield.

    A walk over everything reads every directory and needs one stat for each file; a walk over
    named paths reads only these. `own` returns the times of brainsurgeon's writes to databases.
    """

    def __init__(
        self, roots: Sequence[Root], memory: FileMemory, own: Callable[[], Mapping[str, int]],
        now: float,
    ) -> None:  # fmt: skip
        self._roots, self._memory, self._own, self._now = roots, memory, own, now
        self.resting = 0

    def everything(self) -> Iterator[SessionFile | Unreadable]:
        """Yield every session that may need a look. Unchanged files cost no SessionFile."""
        yield from discover(
            self._roots, format_of=self._memory.format_of, resting=self._memory,
            recorded=self._memory.recorded,
        )  # fmt: skip
        self.resting += self._memory.resting
        yield from list_rows(self._roots, self._own(), self._rests)

    def at(self, paths: Collection[str]) -> Iterator[SessionFile | Unreadable]:
        """Yield the sessions at these paths: a file, one row, or all rows of a database."""
        for path in sorted(paths):
            item = discover_at(self._roots, path, self._memory.format_of)
            if item:
                yield item
            elif _may_be_in_database(path):
                yield from list_rows_at(self._roots, path, self._own())

    def _rests(self, path: str, state: DatabaseState) -> bool:
        """Check whether a database need not be opened; if so, count its sessions."""
        sessions = self._memory.idle(path, mark_of(state), self._now)
        self.resting += len(sessions or ())
        return sessions is not None


def _may_be_in_database(path: str) -> bool:
    """Check whether a path or a parent of it is a file.

    Otherwise it names a missing session, and the search of all databases is not needed.
    """
    while path not in ("", "/"):
        if os.path.isfile(path):
            return True
        path = os.path.dirname(path)
    return False


NO_ROOT = "its root is not configured any more"
NOT_FOUND = "it is not found below its root any more"


def let_go(
    settings: Settings, store: Store, memory: FileMemory, report: ScanReport, now: float,
    *, whole: bool,
) -> None:  # fmt: skip
    """Cancel restores that are overdue, and reliefs that `relieve` would refuse now.

    Only a `whole` run can tell that a session is gone. Part of the transaction that records the
    results of the run.
    """
    run_id = store.runs.so_far
    store.requests.lapse(now, run_id)
    skipped = {seen.path: seen.reason for seen in report.sessions if seen.outcome == "skipped"}
    troubled = {problem.root for problem in report.problems}
    roots = {os.path.realpath(root.path) for root in settings.root_directories()}
    for request, path, root in store.requests.reliefs():
        missed, file = memory.asked(path)
        why = None
        if file:
            why = excluded(file, settings, asked=True) or skipped.get(path)
        elif missed and whole and root not in roots:
            why = NO_ROOT
        elif missed and whole and root not in troubled:
            why = NOT_FOUND
        if why:
            store.requests.let_go([request], why, now, run_id)


def verdict_on(error: Exception) -> tuple[Result, str] | None:
    """Return the outcome and its reason; None if the error does not concern one session only."""
    match error:
        case NotIdleError() | BusyError():
            return "deferred", str(error)
        case RefusedError():
            return "skipped", str(error)
        case StoreFullError() | DamagedError() | FailedError():
            return "failed", str(error)
        case BrainsurgeonError() | DatabaseError() | StoppedError():
            return None  # the store has failed, or the run has to stop
        case FileNotFoundError():
            return "deferred", "the file went away during the scan"
        case BlockingIOError():
            return "deferred", HELD
        case OSError():
            return "failed", error.strerror or type(error).__name__
    return "failed", f"unexpected {type(error).__name__}"  # one file must not stop the others


def left_as_it_is(file: SessionFile, why: Exception, memory: FileMemory, now: float) -> Look | None:
    """Return the result for a file left unchanged by an error, and when to look again.

    None if the error does not concern one session only.
    """
    verdict = verdict_on(why)
    if verdict is None:
        return None
    result, reason = verdict
    size, state = file.fingerprint.size, memory.state_of(file)
    form = state.format if state else None
    outcome = Outcome(file.title, file.path, form, result, reason, size, size)
    look = Look(outcome, file.fingerprint, form)
    if isinstance(why, NotIdleError) and why.idle:
        return replace(look, again=WAITS, due_at=why.until)
    if isinstance(why, RefusedError) and file.in_database:
        return replace(look, again=WAITS)
    if result == "failed":
        look = replace(look, due_at=memory.try_again_at(file, now))
    tried = isinstance(why, ObstacleError) or result == "deferred" or moved_away(file)
    return replace(look, again=AGAIN if tried else None)


def tell_failures(store: Store, memory: FileMemory, seen: Iterable[Outcome], now: float) -> None:
    """Record failed sessions as events, each once for as long as the reason is the same.

    Part of the transaction that records the results of the run.
    """
    for outcome in seen:
        if outcome.outcome != "failed" or memory.failed_before(outcome.path) == outcome.reason:
            continue
        record = store.sessions.at(outcome.path)
        facts = {"session": outcome.session, "reason": outcome.reason}
        ident = None if record is None else record.id
        store.events.add(now, "failure", ident, facts, store.runs.so_far)


def scan(
    settings: Settings,
    store: Store | None,
    *,
    clock: Callable[[], float] = time.time,
    dry_run: bool = False,
    only: Collection[str] = (),
    named: bool = False,
    progress: Callable[[SessionFile], None] = lambda _: None,
    check_stop: Callable[[], None] = carry_on,
    command: str = "scan",
) -> ScanReport:
    """Scan all roots, or only the sessions whose paths are in `only`.

    `named` means that a user requested these sessions: they are not deferred because a process has
    them in memory. `command` is the name of the run in the history.

    With `dry_run` nothing is written, and `store` may be None or read-only. If `check_stop` raises
    StoppedError, the run ends early and finishes or undoes its open rewrites.
    """
    begun = time.monotonic()
    report = ScanReport(dry_run, settings.enabled)
    if store and store.facts.get("enabled") is False:
        report.fresh = False
    if dry_run:
        describe_machine(settings, store, report)
    elif store:
        report.recovered = recover.recover(store)
    work = _Scan(settings, store, clock, report, progress, check_stop, named=named, only=only)
    with store.runs.run(command, clock()) if store and not dry_run else nullcontext():
        work.run()
    report.duration_seconds = round(time.monotonic() - begun, 3)
    return report


class _Scan:
    def __init__(
        self, settings: Settings, store: Store | None, clock: Callable[[], float],
        report: ScanReport, progress: Callable[[SessionFile], None], check_stop: Callable[[], None],
        *, named: bool, only: Collection[str],
    ) -> None:  # fmt: skip
        self._settings, self._store, self._clock, self._named = settings, store, clock, named
        self._only = only
        self._report, self._progress, self._check = report, progress, check_stop
        self._memory = FileMemory(store, settings.rules_fingerprint(), clock(), whole=not only)
        self._unfinished, self._batch = Unfinished(), Batch()
        self._looked_at: list[str] = []
        self._full: dict[str, Fullness] = {}

    def run(self) -> None:
        self._memory.insist(self._only)
        whole = False
        try:
            for item in self._sessions():
                self._check()
                if isinstance(item, Unreadable):
                    self._report.problems.append(item)
                else:
                    self._report.files_seen += 1
                    self._file(item)
                    if self._batch.full:
                        self._carry_out()
                    self._report.interrupted += self._unfinished.finish_due()
            self._carry_out()
            whole = not self._only
        except StoppedError:
            self._report.stopped = True
        finally:
            self._batch.close()
            self._report.interrupted += self._unfinished.finish_all(hurry=self._report.stopped)
            self._write_down(whole=whole)
            places = {path: number for number, path in enumerate(self._looked_at)}
            self._report.sessions.sort(key=lambda seen: places[seen.path])

    def _sessions(self) -> Iterator[SessionFile | Unreadable]:
        own = self._store.rows.own_times if self._store else (lambda: NOTHING_OWN)
        walk = Walk(self._settings.root_directories(), self._memory, own, self._memory.now)
        yield from walk.at(self._only) if self._only else walk.everything()
        self._report.files_seen += walk.resting
        self._report.files_unchanged += walk.resting

    def _file(self, file: SessionFile) -> None:
        now = self._clock()
        if self._memory.unchanged(file, now, named=self._named):
            self._report.files_unchanged += 1
            return
        self._progress(file)
        self._looked_at.append(file.path)
        if not self._batch.leaves_room(file):
            self._carry_out()
        self._looked(file, now, partial(self._change, file, now))

    def _looked(self, file: SessionFile, now: float, change: Callable[[], Look | None]) -> None:
        """Record the result of one session, unless its plan waits in the batch."""
        look = self._look(file, change)
        if look is None:
            return
        self._report.count(look.outcome)
        self._memory.note(file, FileState(
            look.fingerprint, self._memory.rules, look.format,
            look.again or look.outcome.outcome, look.outcome.reason,
            self._memory.first_seen(file, now), look.due_at, now,
        ))  # fmt: skip

    def _look(self, file: SessionFile, change: Callable[[], Look | None]) -> Look | None:
        """Return the result of a change; an error becomes a result if it concerns this file."""
        try:
            return change()
        except Exception as error:
            look = left_as_it_is(file, error, self._memory, self._clock())
            if look is None:
                raise
            return look

    def _change(self, file: SessionFile, now: float) -> Look | None:
        """Plan one session; None if the plan waits in the batch."""
        left_alone, waits = excluded(file, self._settings), self._memory.waits(file)
        if left_alone and not waits:
            raise RefusedError(left_alone)
        grown = None if waits else self._grown(file, self._memory.state_of(file), now)
        if isinstance(grown, Planned):
            self._batch.add(grown)
            return None
        return grown or self._whole(file, now)

    def _whole(self, file: SessionFile, now: float) -> Look | None:
        """Plan a session from all of its lines; an excluded one only for pending requests."""
        state, store = self._memory.state_of(file), None if self._report.dry_run else self._store
        with ExitStack() as held:
            quiet = examine_quiet(self._settings, file, state, now, self._check, check_touchable)
            examined = held.enter_context(quiet)
            if not is_named(file):  # it could not be opened during the walk, and can be now
                raise NotIdleError(HELD)
            record = self._record(examined)
            examined.check_turn()
            records = records_of(self._settings, self._store, examined.session, record, now)
            relief, folds = asked_relief(records) is not None, bool(records.to_archive)
            put_off = None if self._named or relief else examined.kept_in_memory()
            cut = not (put_off or excluded(file, self._settings, asked=relief or folds))
            frontier = frontier_of(examined, records, cut=cut and not self._report.dry_run)
            fitting = plan_due(
                Told(examined, record, self._check), records, self._store, frontier, cut=cut,
                dry_run=self._report.dry_run,
            )  # fmt: skip
            planned = fitting.plan
            if store and record:
                end_redactions(self._settings, store, record, planned, now)
            if put_off:
                deferred = planned.deferred if planned.edits else put_off
                planned = replace(planned, due_at=examined.forgotten_at, deferred=deferred)
            outcome = fitting.outcome(examined, planned)
            if changes := outcome.outcome == "changed":
                check_alone(examined.session)
            if fitting.before:
                self._full[file.path] = fitting.before
            if store:
                begin = begins_at(examined, frontier, planned, record, self._memory.rules)
                self._memory.begin_at(file.path, None if changes else begin)
                if changes:
                    kept = held.pop_all()
                    self._batch.add(Planned(file, examined, record, planned, outcome, kept, begin))
                    return None
                catalogue.record_look(store, examined.session, record, planned, now)
            return Look(outcome, examined.session.fingerprint, examined.format.name, planned.due_at)

    def _grown(
        self, file: SessionFile, state: FileState | None, now: float
    ) -> Look | Planned | None:
        """Return the result from the tail of a session alone, None if that is not enough."""
        if self._store is None or self._report.dry_run or file.in_database:
            return None
        return look_at_growth(
            self._settings, self._store, file, state, self._memory, now, self._check
        )

    def _carry_out(self) -> None:
        with self._batch.taken() as waiting:
            done = carry_out_together(self._store, waiting, self._clock) if self._store else []
            self._unfinished.add(done)
            stopped = [result for result in done if isinstance(result, StoppedError)]
            for planned, result in zip(waiting, done, strict=True):
                if isinstance(result, StoppedError):
                    continue  # later sessions may have been changed: they are counted first
                self._looked(planned.file, planned.one.now, partial(self._came, planned, result))
            if stopped:
                raise stopped[0]

    def _came(self, planned: Planned, result: AnyRewrite | Exception) -> Look:
        if isinstance(result, RefusedError):  # the session itself was valid when it was planned
            raise NotIdleError(str(result)) from result
        if isinstance(result, Exception):
            raise result
        if self._store:
            self._memory.begin_at(planned.file.path, begin_anew(self._store, planned, result))
        return self._changed(planned.one, planned.plan, planned.outcome, result)

    def _record(self, examined: Examination) -> SessionRecord | None:
        """Return the row of a session, updated unless this is a dry run."""
        if self._store is None:
            return None
        find = catalogue.find if self._report.dry_run else catalogue.update
        return find(self._store, examined.session)

    def _changed(
        self, examined: Examination, planned: Plan, outcome: Outcome, rewrite: AnyRewrite
    ) -> Look:
        if rewrite.left:
            rules, part = examined.settings.decision_rules(), replace(planned, edits=rewrite.done)
            outcome = outcome_of(examined.session.file, examined.format.name, rules, part)
            outcome = replace(outcome, reason=f"{outcome.reason}; the rest waits: {rewrite.left}")
        elif outcome.full:
            self._full[outcome.path] = outcome.full
        fingerprint = rewrite.fingerprint
        done = replace(outcome, bytes_stored=rewrite.stored, bytes_after=fingerprint.size)
        again = AGAIN if rewrite.left else None
        return Look(done, fingerprint, examined.format.name, planned.due_at, again)

    def _write_down(self, *, whole: bool) -> None:
        """Record the results; a `whole` run without errors also forgets files that are gone."""
        if self._store is None or self._report.dry_run:
            return
        now = self._clock()
        try:
            with self._store.transaction():
                self._memory.write_down(self._store, forget=whole and not self._report.problems)
                let_go(self._settings, self._store, self._memory, self._report, now, whole=whole)
                tell_failures(self._store, self._memory, self._report.sessions, now)
                remember(self._store, self._full, now)
                if whole:
                    self._store.facts.note_run(now, enabled=self._settings.enabled)
        except BaseException as why:
            self._store.files.table.drop()
            if not isinstance(why, BusyError | StoreFullError):
                raise
            # The loss of these records costs time, nothing else.
            at = self._store.directory
            self._report.problems.append(Unreadable(at, at, str(why)))
