"""Scan sessions: walk the roots, skip unchanged sessions, plan the others, carry out the plans."""

import errno
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, nullcontext
from functools import cache, partial

from msgspec import Struct, field
from msgspec.structs import replace

from brainsurgeon import errors, interruption
from brainsurgeon.agents import superseded
from brainsurgeon.config import Settings
from brainsurgeon.files.reading import LineChangedError, ObstacleError, RefusedError
from brainsurgeon.files.sqlite import DatabaseState
from brainsurgeon.lookup.sessions import find_record, note_found, record_placeholders
from brainsurgeon.model.plans import Edit, Outcome, Plan, Result
from brainsurgeon.model.records import FileState, Records
from brainsurgeon.model.reports import ScanReport, Watch
from brainsurgeon.model.session_files import Fingerprint, NotIdleError, SessionFile, Unreadable
from brainsurgeon.model.text import minute
from brainsurgeon.model.turns import Fullness
from brainsurgeon.operations.pause import pauses
from brainsurgeon.operations.troubles import everything_below
from brainsurgeon.rewrite import inspect, recover
from brainsurgeon.rewrite.apply import Batch, Planned, apply
from brainsurgeon.rewrite.inspect import why_blocked
from brainsurgeon.rewrite.recover import Rewrite, Unfinished
from brainsurgeon.rewrite.relief import asked_relief, outcome_of, plan_due, remember
from brainsurgeon.rewrite.signals import count_calls, count_savings, notice, notice_pressure
from brainsurgeon.sessions.discovery import (
    discover,
    discover_at,
    has_agent_name,
    open_session,
    session_at,
)
from brainsurgeon.sessions.row_listing import database_fingerprint, list_rows, list_rows_at
from brainsurgeon.sessions.transcripts import Transcripts
from brainsurgeon.store import Store
from brainsurgeon.store.catalogue import AGAIN, FAILED, IN_MEMORY, WAITS
from brainsurgeon.store.database import DatabaseError, explain
from brainsurgeon.store.journal import LEAST_WAIT
from brainsurgeon.store.scan_memory import FileMemory

ALIVE_SECONDS = 60.0  # between two signs of life of a long run


def _error_result(error: Exception) -> tuple[Result, str] | None:
    """Return the outcome and its reason, or None if the error concerns more than one session."""
    match error:
        case NotIdleError() | errors.BusyError():
            return "deferred", str(error)
        case RefusedError():
            return "skipped", str(error)
        case errors.StoreFullError() | errors.DamagedError() | errors.FailedError():
            return "failed", str(error)
        case errors.BrainsurgeonError() | errors.StoppedError():
            return None  # the store has failed, or the run has to stop
        case FileNotFoundError():
            return "deferred", "the file was removed during the scan"
        case BlockingIOError():
            return "deferred", inspect.LEASED
        case OSError():
            return "failed", error.strerror or type(error).__name__
    return "failed", f"unexpected {type(error).__name__}"  # the scan of other sessions continues


class Scanned(Struct):
    """The scan of one session. If `planned` is set, the plan has not been carried out yet."""

    outcome: Outcome
    fingerprint: Fingerprint
    format: str | None = None
    due_at: float | None = None
    again: str | None = None  # why the next run must read the session even if it is unchanged
    planned: Planned | None = None


def keep_transcripts() -> Transcripts:
    """Return what several scans by one process may share, so that they read only new lines."""
    return Transcripts()


class Chosen(Struct, frozen=True):
    paths: Collection[str] = ()  # if empty, all sessions
    named: bool = False  # named by a user: changed even while an idle agent has them in memory
    command: str = "scan"  # the name of the run in the history


def sizes_to_scan(settings: Settings, store: Store, only: Collection[str] = ()) -> list[int]:
    report = ScanReport(dry_run=True)
    return _Scan(settings, store, time.time, report, Watch(), Chosen(only)).sizes()


def scan(
    settings: Settings, store: Store, *, clock: Callable[[], float] = time.time,
    dry_run: bool = False, only: Chosen | None = None, watch: Watch | None = None,
    transcripts: Transcripts | None = None,
) -> ScanReport:  # fmt: skip
    """Scan all roots, or `only` some sessions. `transcripts` are what earlier runs have read.

    With `dry_run`, nothing is written, and `store` may be read-only. If `watch.check_stop` raises
    StoppedError, the run ends. Rewrites that it cannot finish quickly are left to recovery.
    """
    begun = time.monotonic()
    report, only = ScanReport(dry_run, settings.enabled), only or Chosen()
    if not store.facts.get("last_run_at"):
        # These modules are slow to import.
        from brainsurgeon.operations.init import unused_homes, used_homes  # noqa: PLC0415

        report.homes, report.used_homes = unused_homes(settings), used_homes(settings)
    if dry_run:
        from brainsurgeon.operations.status import describe_databases  # noqa: PLC0415

        report.databases = [] if only.paths else describe_databases(settings)
        report.interrupted = [rewrite.path for rewrite in store.interrupted_rewrites()]
    else:
        report.recovered = recover.recover(store)
    work = _Scan(settings, store, clock, report, watch or Watch(), only, transcripts)
    with store.runs.run(only.command, clock()) if not dry_run else nullcontext():
        work.run()
    report.duration_seconds = round(time.monotonic() - begun, 3)
    return report


class _LateRequests(Struct):
    """Ids of requests that were not carried out in time."""

    blocked: list[int] = field(default_factory=list)  # they wait
    unblocked: list[int] = field(default_factory=list)  # they waited, and may lapse from now on
    lapsed: list[int] = field(default_factory=list)


class _Scan:
    def __init__(
        self, settings: Settings, store: Store, clock: Callable[[], float],
        report: ScanReport, watch: Watch, only: Chosen, transcripts: Transcripts | None = None,
    ) -> None:  # fmt: skip
        self._transcripts = transcripts
        self._settings, self._store, self._clock = settings, store, clock
        self._report, self._progress = report, watch.progress
        self._check = watch.check_stop or interruption.check
        self._ended = watch.ended or report.sessions.append
        self._alive, self._alive_at, self._number = watch.alive, time.monotonic() + ALIVE_SECONDS, 0
        self._pauses = pauses(store, clock())
        self._only, rules = only.paths, inspect.rules_of(settings) + self._pauses.key()
        self._memory = FileMemory(store, rules, clock(), only.paths, named=only.named)
        report.pauses = self._pauses.listed()
        self._unfinished, self._batch = Unfinished(), Batch()
        self._skipped = 0  # number of unchanged sessions in databases, which are not yielded
        self._fullness: dict[str, Fullness] = {}
        self._missed = store.sessions.missed()  # ids by path
        self._reappeared: list[int] = []  # ids of those that are there again
        self._failed: list[Outcome] = []
        self._full_disks: set[str] = set()  # "" for that of the store, else a session's root

    def run(self) -> None:
        all_scanned = False
        try:
            for item in self._sessions():
                self._check()
                if isinstance(item, Unreadable):
                    self._report.unreadable.append(item)
                else:
                    self._report.files_seen += 1
                    if item.path in self._missed:
                        self._reappeared.append(self._missed[item.path])
                    self._show_life()
                    self._scan_file(item)
                    if self._batch.is_full or self._memory.is_full:
                        self._carry_out()
                    if self._memory.is_full:
                        self._write_down()
                    self._report.interrupted += [one.name for one in self._unfinished.finish_due()]
            self._carry_out()
            all_scanned = not self._only
        except errors.StoppedError:
            self._report.stopped = True
        finally:
            self._batch.close()
            late = self._unfinished.finish_all(hurry=self._report.stopped)
            self._report.interrupted += [rewrite.name for rewrite in late]
            self._write_down(at_end=True, all_scanned=all_scanned)

    def _show_life(self) -> None:
        if self._only or time.monotonic() < self._alive_at:
            return
        self._alive_at = time.monotonic() + ALIVE_SECONDS
        if not self._number:
            found = everything_below(self._settings, self._store)
            self._number = sum(isinstance(one, SessionFile) for one in found)
        looked_at = self._report.files_seen + self._skipped + self._memory.skipped
        self._alive(looked_at, max(self._number, looked_at))

    def sizes(self) -> list[int]:
        return [
            file.fingerprint.size for file in self._sessions()
            if isinstance(file, SessionFile)
            and (self._only or not self._memory.visit(file, self._memory.now))
        ]  # fmt: skip

    def _sessions(self) -> Iterator[SessionFile | Unreadable]:
        roots, memory = self._settings.root_directories(), self._memory
        own_times = self._store.rows.own_times()
        for path in sorted(self._only):
            item = discover_at(roots, path, memory.format_of)
            if item:
                yield item
            else:
                yield from list_rows_at(roots, path, own_times)
        if not self._only:
            was_recorded = self._store.sessions.any_at_or_below
            yield from discover(
                roots, format_of=memory.format_of, memory=memory, was_recorded=was_recorded
            )  # fmt: skip
            yield from list_rows(roots, own_times, self._is_unchanged)
        self._report.files_seen += self._skipped + memory.skipped
        self._report.files_unchanged += self._skipped + memory.skipped

    def _is_unchanged(self, path: str, state: DatabaseState) -> bool:
        sessions = self._memory.visit_database(path, database_fingerprint(state), self._memory.now)
        self._skipped += len(sessions or ())
        return sessions is not None

    def _scan_file(self, file: SessionFile) -> None:
        now = self._clock()
        try:
            explains = self._report.dry_run and self._only
            if self._memory.visit(file, now) and not explains:
                state = self._memory.state_of(file.path)
                if state and state.outcome == FAILED and state.due_at:
                    why = f"{state.reason}; tried again at {minute(state.due_at)}"
                    self._count(_without_change(file, state.format, "deferred", why))
                    return
                if state is None or state.outcome != IN_MEMORY:
                    self._report.files_unchanged += 1
                    return
                waits = inspect.in_memory(self._settings, file, now)
                if waits and state.reason.startswith(waits):
                    self._count(_without_change(file, state.format, "deferred", state.reason))
                    return
            self._progress(file)
            if not self._batch.leaves_room(file):
                self._carry_out()
            self._note_outcome(file, now, partial(self._plan, file, now))
        except DatabaseError as error:
            self._defer_if_locked(file, error)

    def _defer_if_locked(self, file: SessionFile, error: DatabaseError) -> None:
        why = explain(error, self._store.directory)
        if not isinstance(why, errors.BusyError):
            raise error
        self._count(_without_change(file, None, "deferred", str(why)))

    def _note_outcome(self, file: SessionFile, now: float, change: Callable[[], Scanned]) -> None:
        try:
            scanned = change()
        except DatabaseError as error:
            self._defer_if_locked(file, error)
            return
        except Exception as error:
            result = _error_result(error)
            if result is None:
                raise
            scanned = self._without_change_by(error, file, *result)
        if scanned.planned:
            self._batch.add(scanned.planned)
            return
        self._count(scanned.outcome)
        self._memory.note(file, FileState(
            scanned.fingerprint, self._memory.rules, scanned.format,
            scanned.again or scanned.outcome.outcome, scanned.outcome.reason,
            self._memory.first_seen(file, now), scanned.due_at, now,
        ))  # fmt: skip

    def _count(self, outcome: Outcome) -> None:
        self._report.count(outcome)
        known = self._memory.state_of(outcome.path) if outcome.outcome == "changed" else None
        self._report.files_skipped_before += known is not None and known.outcome == "skipped"
        if outcome.outcome != "unchanged" or (self._report.dry_run and self._only):
            self._ended(outcome)
        before = self._memory.failed_before
        if outcome.outcome == "failed" and before(outcome.path) != outcome.reason:
            self._failed.append(outcome)

    def _without_change_by(
        self, error: Exception, file: SessionFile, result: Result, reason: str
    ) -> Scanned:
        state = self._memory.state_of(file.path)
        format_name = getattr(error, "format", None) or (state.format if state else None)
        scanned = Scanned(
            _without_change(file, format_name, result, reason), file.fingerprint, format_name
        )
        if isinstance(error, NotIdleError) and error.in_database:
            return replace(scanned, again=None if error.given_up else WAITS, due_at=error.until)
        if result == "failed":
            scanned = replace(scanned, due_at=self._memory.try_again_at(file, self._clock()))
            if self._is_still_full(error, file):  # one failure is reported for each disk
                outcome = replace(scanned.outcome, outcome="deferred")
                return replace(scanned, outcome=outcome, again=FAILED)
        elif (isinstance(error, ObstacleError) and not file.in_database) or superseded(file):
            scanned = replace(scanned, due_at=0.0)  # try again even if the file is unchanged
        return replace(scanned, again=AGAIN if result == "deferred" else None)

    def _is_still_full(self, error: Exception, file: SessionFile) -> bool:
        """Check whether an error means that a disk is full which was full earlier in this run."""
        disk = "" if isinstance(error, errors.StoreFullError) else file.root
        if disk and getattr(error, "errno", None) not in (errno.ENOSPC, errno.EDQUOT):
            return False
        known = disk in self._full_disks
        self._full_disks.add(disk)
        return known

    def _plan(self, file: SessionFile, now: float) -> Scanned:
        """Plan one session, from what earlier runs have read of it if that still holds."""
        reason, requested = inspect.excluded(file, self._settings), self._memory.has_requests(file)
        if reason and not requested:
            raise RefusedError(reason)
        transcripts = None if self._report.dry_run else self._transcripts
        if transcripts is not None and file.path in transcripts:
            try:
                if not requested:
                    return self._examine(file, now, transcripts, known=True)
            except LineChangedError:
                pass  # a line changed in place since an earlier run read it
            transcripts.forget(file.path)
        return self._examine(file, now, transcripts)

    def _examine(
        self, file: SessionFile, now: float, transcripts: Transcripts | None, *, known: bool = False
    ) -> Scanned:  # fmt: skip
        """Read new lines and plan. Raises LineChangedError if it is not what was read before."""
        dry_run, named = self._report.dry_run, self._memory.named
        store = None if dry_run else self._store
        with ExitStack() as held:
            if store and not file.in_database:
                inspect.mend(file)
            quiet = inspect.examine_quiet(
                self._settings, self._store, file, now, self._check, transcripts,
                restores=self._memory.has_requests(file),
            )  # fmt: skip
            examined = held.enter_context(quiet)
            if not has_agent_name(file):  # the walk could not read a leased file
                raise NotIdleError(inspect.LEASED)
            session = examined.session
            record = note_found(store, session) if store else find_record(self._store, session)
            examined.check_turn()
            examined = replace(examined, record=record)
            records, only_restores = _allowed(examined)
            relief = asked_relief(records) is not None
            in_memory = None if named or relief else examined.kept_in_memory()
            stays = self._pauses.covers(file.path) or inspect.excluded(file, self._settings)
            extract = not (in_memory or stays or only_restores)
            planner = inspect.ExaminationPlanner(examined, records, extract, dry_run, hurries=named)
            weighed = plan_due(planner, self._check, dry_run=dry_run)
            planned = weighed.plan
            _check_allowed(only_restores, records, planned)
            if in_memory:
                deferred = planned.deferred if planned.edits else in_memory
                planned = replace(planned, due_at=examined.abandoned_at, deferred=deferred)
            outcome = weighed.outcome(examined, planned)
            if known and outcome.outcome == "changed":
                session.check_lines()
            if store:
                self._notice(store, examined, weighed.after, planned)
            if outcome.outcome == "changed":
                inspect.check_mount(examined.session)
            if weighed.before:
                self._fullness[file.path] = weighed.before
            if store is None:
                return Scanned(outcome, examined.session.fingerprint)
            self._count_up(store, examined, planned)
            again = IN_MEMORY if in_memory and planned.deferred == in_memory else None
            fingerprint, format_name = session.fingerprint, examined.form.name
            scanned = Scanned(outcome, fingerprint, format_name, planned.due_at, again)
            if outcome.outcome == "changed":
                scanned.planned = Planned(examined, planned, outcome, held.pop_all())
            else:
                record_placeholders(store, session, record, planned, now)
            return scanned

    @staticmethod
    def _notice(
        store: Store, examined: inspect.Examination, after: Fullness | None, planned: Plan
    ) -> None:
        notice(examined.settings, store, examined.session, examined.now)
        if after and examined.settings.budget.enabled:
            notice_pressure(examined.settings, store, examined.session, after, examined.now)
        _end_redactions(store, examined, planned)

    def _count_up(self, store: Store, examined: inspect.Examination, planned: Plan) -> None:
        path = examined.session.file.path
        count_calls(store, examined.session)
        if savings := count_savings(examined, planned):
            self._memory.savings[path] = savings
        self._memory.lost[path] = len(planned.placeholders.lost)

    def _carry_out(self) -> None:
        with self._batch.take() as waiting:
            done = apply(self._store, waiting, self._clock)
            self._unfinished.add(done)
            stopped = [result for result in done if isinstance(result, errors.StoppedError)]
            for planned, result in zip(waiting, done, strict=True):
                if isinstance(result, errors.StoppedError):
                    continue
                self._note_outcome(
                    planned.file, planned.examined.now, partial(self._result, planned, result)
                )
            if stopped:  # by now, the changed sessions are counted
                raise stopped[0]

    def _result(self, planned: Planned, result: Rewrite | Exception) -> Scanned:
        if isinstance(result, RefusedError):  # it was accepted during planning: try again later
            raise NotIdleError(str(result)) from result
        if isinstance(result, Exception):
            raise result
        examined, outcome, format_name = (
            planned.examined,
            planned.outcome,
            planned.examined.form.name,
        )
        why_partial = result.why_partial
        done = replace(planned.plan, edits=result.done)
        self._memory.add_saving(planned.file.path, done, examined.now)
        if why_partial:
            rules = examined.settings.decision_rules()
            outcome = outcome_of(examined, rules, done)
            outcome = replace(outcome, reason=f"{outcome.reason}; the rest waits: {why_partial}")
        elif outcome.full:
            self._fullness[outcome.path] = outcome.full
        fingerprint = result.fingerprint
        self._follow(replace(planned.file, own_ms=result.own_ms), fingerprint, done.edits)
        outcome = replace(outcome, bytes_stored=result.stored, bytes_after=fingerprint.size)
        again = AGAIN if why_partial else None
        return Scanned(outcome, fingerprint, format_name, planned.plan.due_at, again)

    def _follow(self, file: SessionFile, fingerprint: Fingerprint, edits: Sequence[Edit]) -> None:
        if self._transcripts is None:
            return
        try:
            with open_session(file, self._check) as opened:
                if opened.fingerprint == fingerprint:
                    self._transcripts.follow(opened, edits)
                    return
        except (NotIdleError, RefusedError, errors.BusyError, errors.StoppedError, OSError):
            pass  # the rewrite counts all the same; the next scan reads the whole session
        self._transcripts.forget(file.path)

    def _write_down(self, *, at_end: bool = False, all_scanned: bool = False) -> None:
        if self._report.dry_run:
            self._memory.clear()
            return
        now = self._clock()
        requests = self._late_requests(now) if at_end else _LateRequests()
        self._reappeared += [
            ident for path, ident in self._missed.items() if self._memory.was_skipped(path)
        ]  # fmt: skip
        try:
            with self._store.transaction():
                self._memory.write_down(self._store)
                self._store.sessions.record_seen(self._reappeared)
                for outcome in self._failed:
                    record = self._store.sessions.at(outcome.path)
                    facts = {"session": outcome.session, "reason": outcome.reason}
                    ident = record.id if record else None
                    self._store.events.add(now, "failure", ident, facts, self._store.runs.current)
                remember(self._store, self._fullness)
                if all_scanned and not self._report.unreadable:
                    self._memory.forget_missing(self._store)
                self._store.requests.wait(requests.blocked, None)
                self._store.requests.wait(requests.unblocked, now + LEAST_WAIT)
                self._store.requests.lapse(requests.lapsed, now, self._store.runs.current)
                if all_scanned:
                    self._store.facts.note_run(now)
        except BaseException as why:
            self._store.files.drop()
            if not isinstance(why, errors.BusyError | errors.StoreFullError):
                raise
            # Without these records, the next scan takes longer, and some savings are not counted.
            at = self._store.directory
            self._report.unreadable.append(Unreadable(at, at, str(why)))
        self._memory.clear()
        self._fullness, self._failed = {}, []

    def _late_requests(self, now: float) -> "_LateRequests":
        late = _LateRequests()
        is_blocked = cache(partial(self._is_blocked, now=now))
        for ident, session, waits in self._store.requests.late(now):
            blocked = is_blocked(session)
            # What waits and is out of sight (its disk may be unmounted) waits until values expire.
            if blocked or (waits and blocked is None):
                late.blocked.append(ident)
            else:
                (late.unblocked if waits else late.lapsed).append(ident)
        return late

    def _is_blocked(self, session_id: int, now: float) -> bool | None:
        """None: it is out of sight."""
        record = self._store.sessions.by_id(session_id)
        file = None if record.displaced else session_at(record.root, record.path)
        if isinstance(file, Unreadable):
            return True
        return None if file is None else bool(why_blocked(self._settings, self._store, file, now))


def _allowed(examined: inspect.Examination) -> tuple[Records, str | None]:
    """Return the records, and why only their requests to restore may be carried out, or None."""
    records, why = examined.records, inspect.only_restores(examined.session)
    if why:
        restores = tuple(one for one in records.requests if one.action == "restore")
        records = replace(records, requests=restores)
    return records, why


def _check_allowed(only_restores: str | None, records: Records, plan: Plan) -> None:
    if only_restores and not (records.requests and plan.only_restores):
        raise ObstacleError(only_restores)


def _without_change(
    file: SessionFile, format_name: str | None, result: Result, reason: str
) -> Outcome:
    size = file.fingerprint.size
    return Outcome(file.title, file.path, format_name, result, reason, size, size)


_NO_ANSWER = "the turn of the request contains no complete answer from brainsurgeon"
_KEPT = "the configuration has keep_purge_control_calls = true"


def _end_redactions(store: Store, examined: inspect.Examination, plan: Plan) -> None:
    """Cancel requests to redact that found nothing, or that the configuration forbids."""
    if (record := examined.record) is None:
        return
    ended = {plan.handled.unanswered: _NO_ANSWER}
    if examined.settings.keep_purge_control_calls:
        ended[tuple(
            request.id for request in store.requests.of_session(record.id)
            if request.action == "redact" and request.id is not None
        )] = _KEPT  # fmt: skip
    if any(ended):
        with store.transaction():
            for ids, why in ended.items():
                store.requests.cancel(ids, why, examined.now, store.runs.current)
