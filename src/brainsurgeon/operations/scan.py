"""One pass: walk the roots, skip what is unchanged, plan the rest, carry the plans out."""

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
    UnsettledError,
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
    """One walk over the roots; `resting` counts the sessions that it did not have to yield.

    A walk over everything looks at every directory and has one stat for each file; one at named
    paths looks at these alone. `own` gives the times that we noted in databases ourselves.
    """

    def __init__(
        self, roots: Sequence[Root], memory: FileMemory, own: Callable[[], Mapping[str, int]],
        now: float,
    ) -> None:  # fmt: skip
        self._roots, self._memory, self._own, self._now = roots, memory, own, now
        self.resting = 0

    def everything(self) -> Iterator[SessionFile | Unreadable]:
        """Yield every session that may need a look; of files that rest nothing is built."""
        yield from discover(
            self._roots, format_of=self._memory.format_of, resting=self._memory,
            recorded=self._memory.recorded,
        )  # fmt: skip
        self.resting += self._memory.resting
        yield from list_rows(self._roots, self._own(), self._rests)

    def at(self, paths: Collection[str]) -> Iterator[SessionFile | Unreadable]:
        """Yield what lies at these paths: a file, a session in a database, or all those in one."""
        for path in sorted(paths):
            item = discover_at(self._roots, path, self._memory.format_of)
            if item:
                yield item
            elif _may_be_in_database(path):
                yield from list_rows_at(self._roots, path, self._own())

    def _rests(self, path: str, state: DatabaseState) -> bool:
        """Return whether a database need not be opened, and count the sessions in it then."""
        sessions = self._memory.idle(path, mark_of(state), self._now)
        self.resting += len(sessions or ())
        return sessions is not None


def _may_be_in_database(path: str) -> bool:
    """Tell whether a path is a file, or goes on behind the path of one: a session that is gone.

    Only then are the databases of all agents gone through.
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
    """Let put-backs lapse that come too late, and reliefs of sessions that are left alone now.

    What `relieve` would refuse at once is waited for no longer. Only a `whole` pass can tell that
    a session is gone. Part of the transaction in which the pass writes down what it saw.
    """
    pass_id = store.passes.so_far
    store.wishes.lapse(now, pass_id)
    skipped = {one.path: one.reason for one in report.sessions if one.outcome == "skipped"}
    troubled = {problem.root for problem in report.problems}
    roots = {os.path.realpath(root.path) for root in settings.root_directories()}
    for wish, path, root in store.wishes.reliefs():
        missed, file = memory.asked(path)
        why = None
        if file:
            why = excluded(file, settings, asked=True) or skipped.get(path)
        elif missed and whole and root not in roots:
            why = NO_ROOT
        elif missed and whole and root not in troubled:
            why = NOT_FOUND
        if why:
            store.wishes.let_go([wish], why, now, pass_id)


def verdict_on(error: Exception) -> tuple[Result, str] | None:
    """Give the outcome of the session and why; None where it is everybody's error, not its own."""
    match error:
        case UnsettledError() | BusyError():
            return "deferred", str(error)
        case RefusedError():
            return "skipped", str(error)
        case StoreFullError() | DamagedError() | FailedError():
            return "failed", str(error)
        case BrainsurgeonError() | DatabaseError() | StoppedError():
            return None  # the store itself is in trouble, or we are to stop
        case FileNotFoundError():
            return "deferred", "the file went away during the scan"
        case BlockingIOError():
            return "deferred", HELD
        case OSError():
            return "failed", error.strerror or type(error).__name__
    return "failed", f"unexpected {type(error).__name__}"  # one odd file must not stop the rest


def left_as_it_is(file: SessionFile, why: Exception, memory: FileMemory, now: float) -> Look | None:
    """Say of a file that it was left as it is, and when it is looked at again.

    None where the error is everybody's.
    """
    verdict = verdict_on(why)
    if verdict is None:
        return None
    result, reason = verdict
    size, state = file.fingerprint.size, memory.state_of(file)
    form = state.format if state else None
    outcome = Outcome(file.title, file.path, form, result, reason, size, size)
    look = Look(outcome, file.fingerprint, form)
    if isinstance(why, UnsettledError) and why.idle:
        return replace(look, again=WAITS, due_at=why.until)
    if isinstance(why, RefusedError) and file.in_database:
        return replace(look, again=WAITS)
    if result == "failed":
        look = replace(look, due_at=memory.try_again_at(file, now))
    tried = isinstance(why, ObstacleError) or result == "deferred" or moved_away(file)
    return replace(look, again=AGAIN if tried else None)


def tell_failures(store: Store, memory: FileMemory, seen: Iterable[Outcome], now: float) -> None:
    """Note which sessions failed, each once for as long as it fails for the same reason.

    Part of the transaction in which the pass writes down what it saw.
    """
    for one in seen:
        if one.outcome != "failed" or memory.failed_before(one.path) == one.reason:
            continue
        record = store.sessions.at(one.path)
        facts = {"session": one.session, "reason": one.reason}
        ident = None if record is None else record.id
        store.events.add(now, "failure", ident, facts, store.passes.so_far)


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
    """Do one pass over all roots, or over the sessions whose paths are `only`.

    `named` says that somebody asked for these very sessions: then nothing is put off because a
    process has them in memory. `command` is what the pass is noted as.

    With `dry_run` nothing is written; `store` may then be None or open for reading only. When
    `check_stop` raises StoppedError the pass ends early, finishing or undoing what it had begun.
    """
    begun = time.monotonic()
    report = ScanReport(dry_run, settings.enabled)
    if store and store.facts.get("enabled") is False:
        report.fresh = False
    if dry_run:
        describe_machine(settings, store, report)
    elif store:
        report.recovered = recover.recover(store)
    one = _Pass(settings, store, clock, report, progress, check_stop, named=named, only=only)
    with store.passes.run(command, clock()) if store and not dry_run else nullcontext():
        one.run()
    report.duration_seconds = round(time.monotonic() - begun, 3)
    return report


class _Pass:
    """The state of one pass."""

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
        """Look at every file that needs a look."""
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
            self._report.sessions.sort(key=lambda one: places[one.path])

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
        """Note what came of one session, unless it waits to be carried out with others."""
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
        """Look at one file; whatever goes wrong with it stays its own."""
        try:
            return change()
        except Exception as error:
            look = left_as_it_is(file, error, self._memory, self._clock())
            if look is None:
                raise
            return look

    def _change(self, file: SessionFile, now: float) -> Look | None:
        """Plan one session, to be changed now or with others; None where it waits for those."""
        left_alone, waits = excluded(file, self._settings), self._memory.waits(file)
        if left_alone and not waits:
            raise RefusedError(left_alone)
        grown = None if waits else self._grown(file, self._memory.state_of(file), now)
        if isinstance(grown, Planned):
            self._batch.add(grown)
            return None
        return grown or self._whole(file, now)

    def _whole(self, file: SessionFile, now: float) -> Look | None:
        """Plan a session by all of its lines; where it is excluded only what is asked for."""
        state, store = self._memory.state_of(file), None if self._report.dry_run else self._store
        with ExitStack() as held:
            quiet = examine_quiet(self._settings, file, state, now, self._check, check_touchable)
            one = held.enter_context(quiet)
            if not is_named(file):  # it could not be opened during the walk, and can be now
                raise UnsettledError(HELD)
            record = self._record(one)
            one.check_turn()
            records = records_of(self._settings, self._store, one.session, record, now)
            relief, folds = asked_relief(records) is not None, bool(records.to_archive)
            put_off = None if self._named or relief else one.kept_in_memory()
            cut = not (put_off or excluded(file, self._settings, asked=relief or folds))
            frontier = frontier_of(one, records, cut=cut and not self._report.dry_run)
            told = Told(one, record, self._check)
            fitting = plan_due(
                told, records, self._store, frontier, cut=cut, dry_run=self._report.dry_run
            )
            planned = fitting.plan
            if store and record:
                end_redactions(self._settings, store, record, planned, now)
            if put_off:
                deferred = planned.deferred if planned.edits else put_off
                planned = replace(planned, due_at=one.forgotten_at, deferred=deferred)
            outcome = fitting.outcome(one, planned)
            if changes := outcome.outcome == "changed":
                check_alone(one.session)
            if fitting.before:
                self._full[file.path] = fitting.before
            if store:
                begin = begins_at(one, frontier, planned, record, self._memory.rules)
                self._memory.begin_at(file.path, None if changes else begin)
                if changes:
                    kept = held.pop_all()
                    self._batch.add(Planned(file, one, record, planned, outcome, kept, begin))
                    return None
                catalogue.record_look(store, one.session, record, planned, now)
            return Look(
                outcome, one.session.fingerprint, one.format.name, planned.due_at
            )  # fmt: skip

    def _grown(
        self, file: SessionFile, state: FileState | None, now: float
    ) -> Look | Planned | None:
        """Look at the tail alone, where that is enough."""
        if self._store is None or self._report.dry_run or file.in_database:
            return None
        return look_at_growth(
            self._settings, self._store, file, state, self._memory, now, self._check
        )

    def _carry_out(self) -> None:
        """Carry out what waits."""
        with self._batch.taken() as waiting:
            done = carry_out_together(self._store, waiting, self._clock) if self._store else []
            self._unfinished.add(done)
            stopped = [came for came in done if isinstance(came, StoppedError)]
            for planned, came in zip(waiting, done, strict=True):
                if isinstance(came, StoppedError):
                    continue  # those behind it may have been changed: they are counted first
                self._looked(planned.file, planned.one.now, partial(self._came, planned, came))
            if stopped:
                raise stopped[0]

    def _came(self, planned: Planned, came: AnyRewrite | Exception) -> Look:
        if isinstance(came, RefusedError):  # by then the session as such was fine
            raise UnsettledError(str(came)) from came
        if isinstance(came, Exception):
            raise came
        if self._store:
            self._memory.begin_at(planned.file.path, begin_anew(self._store, planned, came))
        return self._changed(planned.one, planned.plan, planned.outcome, came)

    def _record(self, one: Examination) -> SessionRecord | None:
        """Return what the store says of a session, and tell it where that lies now."""
        if self._store is None:
            return None
        look = catalogue.find if self._report.dry_run else catalogue.update
        return look(self._store, one.session)

    def _changed(
        self, one: Examination, planned: Plan, outcome: Outcome, rewrite: AnyRewrite
    ) -> Look:
        if rewrite.left:
            rules, part = one.settings.decision_rules(), replace(planned, edits=rewrite.done)
            outcome = outcome_of(one.session.file, one.format.name, rules, part)
            outcome = replace(outcome, reason=f"{outcome.reason}; the rest waits: {rewrite.left}")
        elif outcome.full:
            self._full[outcome.path] = outcome.full
        fingerprint = rewrite.fingerprint
        done = replace(outcome, bytes_stored=rewrite.stored, bytes_after=fingerprint.size)
        again = AGAIN if rewrite.left else None
        return Look(done, fingerprint, one.format.name, planned.due_at, again)

    def _write_down(self, *, whole: bool) -> None:
        """Write down what was seen; a `whole` pass also says which roots it saw without error."""
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
                    self._store.facts.note_pass(now, enabled=self._settings.enabled)
        except BaseException as why:
            self._store.files.table.drop()
            if not isinstance(why, BusyError | StoreFullError):
                raise  # losing what was seen costs time, nothing else
            at = self._store.directory
            self._report.problems.append(Unreadable(at, at, str(why)))
