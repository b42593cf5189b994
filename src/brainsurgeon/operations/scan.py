"""One pass: walk the roots, skip what is unchanged, plan the rest, carry the plans out."""

from __future__ import annotations

import os
import time
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from brainsurgeon.decide.outcome import outcome_of
from brainsurgeon.errors import (
    BrainsurgeonError,
    BusyError,
    DamagedError,
    FailedError,
    StoppedError,
    StoreFullError,
)
from brainsurgeon.lookup import noting
from brainsurgeon.lookup.places import Places
from brainsurgeon.model.plans import Outcome
from brainsurgeon.model.records import FileState
from brainsurgeon.model.reports import ScanReport
from brainsurgeon.model.sessions import Unreadable
from brainsurgeon.operations.batching import Batch, Planned, carry_out_together
from brainsurgeon.operations.databases import describe_machine
from brainsurgeon.operations.walking import Walk
from brainsurgeon.rewrite import recover
from brainsurgeon.rewrite.carry_out import close_wishes, end_redactions
from brainsurgeon.rewrite.examine import HELD, UnsettledError, examine_quiet, records_of
from brainsurgeon.rewrite.finishing import Unfinished
from brainsurgeon.rewrite.untouchable import excluded, moved_away
from brainsurgeon.sessions.discover import is_named
from brainsurgeon.sessions.reading import ObstacleError, RefusedError, carry_on
from brainsurgeon.sessions.row_listing import NOTHING_OWN
from brainsurgeon.store.memory import AGAIN, WAITS, FileMemory
from brainsurgeon.store.opening import DatabaseError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from brainsurgeon.config import Settings
    from brainsurgeon.model.plans import Plan, Result
    from brainsurgeon.model.records import SessionRecord
    from brainsurgeon.model.sessions import Fingerprint, Identity, SessionFile
    from brainsurgeon.rewrite.carry_out import AnyRewrite
    from brainsurgeon.rewrite.examine import Examination
    from brainsurgeon.store import Store


@dataclass(slots=True)
class _Look:
    """What came of one session: the outcome, and what to remember of its file."""

    outcome: Outcome
    fingerprint: Fingerprint
    format: str | None = None
    identity: Identity | None = None
    due_at: float | None = None
    again: str | None = None
    """How it is remembered where the next pass looks again although nothing changed."""


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
) -> ScanReport:
    """Do one pass over all roots, or over the sessions whose paths are `only`.

    `named` says that somebody asked for these very sessions: then nothing is put off because a
    process has them in memory.

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
        report.recovered = recover.recover(store, settings.root_directories())
    _Pass(settings, store, clock, report, progress, check_stop, named=named).run(only)
    report.duration_seconds = round(time.monotonic() - begun, 3)
    return report


class _Pass:
    """The state of one pass."""

    def __init__(
        self, settings: Settings, store: Store | None, clock: Callable[[], float],
        report: ScanReport, progress: Callable[[SessionFile], None], check_stop: Callable[[], None],
        *, named: bool,
    ) -> None:  # fmt: skip
        self._settings, self._store, self._clock, self._named = settings, store, clock, named
        self._report, self._progress, self._check = report, progress, check_stop
        self._memory = FileMemory(store, settings.rules_fingerprint())
        self._unfinished, self._batch = Unfinished(), Batch()
        self._looked_at: list[str] = []
        self._places = Places(settings.root_directories())

    def run(self, only: Collection[str]) -> None:
        """Look at every file that needs a look."""
        self._memory.insist(only)
        whole = False
        try:
            for item in self._sessions(only):
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
            whole = not only
        except StoppedError:
            self._report.stopped = True
        finally:
            self._batch.close()
            self._report.interrupted += self._unfinished.finish_all(hurry=self._report.stopped)
            self._write_down(whole=whole)
            places = {path: number for number, path in enumerate(self._looked_at)}
            self._report.sessions.sort(key=lambda one: places[one.path])

    def _sessions(self, only: Collection[str]) -> Iterator[SessionFile | Unreadable]:
        own = self._store.rows.own_times() if self._store else NOTHING_OWN
        walk = Walk(self._settings.root_directories(), self._memory, own, self._clock())
        yield from walk.at(only) if only else walk.everything()
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

    def _looked(self, file: SessionFile, now: float, change: Callable[[], _Look | None]) -> None:
        """Note what came of one session, unless it waits to be carried out with others."""
        look = self._look(file, change)
        if look is None:
            return
        self._report.count(look.outcome)
        self._memory.note(file, FileState(
            look.fingerprint, self._memory.rules, look.format,
            look.again or look.outcome.outcome, look.outcome.reason,
            self._memory.first_seen(file, now), look.due_at, now, look.identity,
        ))  # fmt: skip

    def _look(self, file: SessionFile, change: Callable[[], _Look | None]) -> _Look | None:  # noqa: C901  a table
        """Look at one file; whatever goes wrong with it stays its own."""
        try:
            return change()
        except UnsettledError as why:
            look = self._verdict(file, "deferred", str(why))
            return replace(look, again=WAITS, due_at=why.until) if why.idle else look
        except RefusedError as why:
            again = isinstance(why, ObstacleError)
            look = self._verdict(file, "skipped", str(why), again=again)
            return replace(look, again=WAITS) if file.in_database else look
        except BusyError as why:
            return self._verdict(file, "deferred", str(why))
        except (StoreFullError, DamagedError, FailedError) as why:
            return self._verdict(file, "failed", str(why))
        except (BrainsurgeonError, DatabaseError):
            raise  # the store itself is in trouble, or we are to stop: that is everybody's
        except FileNotFoundError:
            return self._verdict(file, "deferred", "the file went away during the scan")
        except BlockingIOError:
            return self._verdict(file, "deferred", HELD)
        except OSError as error:
            return self._verdict(file, "failed", error.strerror or type(error).__name__)
        except StoppedError:
            raise
        except Exception as error:  # noqa: BLE001  one odd file must not stop the rest
            return self._verdict(file, "failed", f"unexpected {type(error).__name__}")

    def _verdict(
        self, file: SessionFile, result: Result, reason: str, *, again: bool = False
    ) -> _Look:  # fmt: skip
        size = file.fingerprint.size
        state = self._memory.state_of(file)
        form = state.format if state else None
        outcome = Outcome(file.title, file.path, form, result, reason, size, size)
        tried = again or result == "deferred" or moved_away(file)
        due_at = self._memory.try_again_at(file, self._clock()) if result == "failed" else None
        identity = state.identity if state and state.fingerprint == file.fingerprint else None
        again_as = AGAIN if tried else None
        return _Look(outcome, file.fingerprint, form, identity, due_at, again_as)

    def _change(self, file: SessionFile, now: float) -> _Look | None:
        """Plan one session, to be changed now or with others; None where it waits for those."""
        left_alone = excluded(file, self._settings)
        if left_alone and not self._memory.waits(file):
            raise RefusedError(left_alone)
        state, store = self._memory.state_of(file), self._store
        if self._report.dry_run:
            store = None
        with ExitStack() as held:
            quiet = examine_quiet(self._settings, file, state, now, self._check)
            one = held.enter_context(quiet)
            if not is_named(file):  # it could not be opened during the walk, and can be now
                raise UnsettledError(HELD)
            if self._batch.decides(one):
                self._carry_out()
            record = self._record(one)
            one.check_turn()
            records = records_of(self._settings, self._store, record, now)
            put_off = None if self._named else one.kept_in_memory()
            cut = left_alone is None and put_off is None
            planned = one.plan(records, cut=cut, explain=self._report.dry_run)
            if store and record:
                end_redactions(self._settings, store, record, planned)
                noting.adopt(store, record, records, planned, now)
            if put_off:
                deferred = planned.deferred if planned.edits else put_off
                planned = replace(planned, due_at=one.forgotten_at, deferred=deferred)
            outcome = self._outcome(one, planned)
            if outcome.outcome != "changed" or store is None:
                if store and record:
                    close_wishes(store, record, planned, now)
                seen, form = one.session, one.format.name
                return _Look(outcome, seen.fingerprint, form, seen.identity, planned.due_at)
            self._batch.add(Planned(file, one, record, planned, outcome, held.pop_all()))
            return None

    def _carry_out(self) -> None:
        """Carry out what waits."""
        with self._batch.taken() as waiting:
            done = carry_out_together(self._store, waiting, self._clock) if self._store else []
            self._unfinished.add(done)
            for planned, came in zip(waiting, done, strict=True):
                self._looked(planned.file, planned.one.now, partial(self._came, planned, came))

    def _came(self, planned: Planned, came: AnyRewrite | Exception) -> _Look:
        if isinstance(came, RefusedError):  # by then the session as such was fine
            raise UnsettledError(str(came)) from came
        if isinstance(came, Exception):
            raise came
        return self._changed(planned.one, planned.plan, planned.outcome, came)

    def _record(self, one: Examination) -> SessionRecord | None:
        """Give what the store says of a session, and tell it where that lies now."""
        if self._store is None:
            return None
        look = noting.record_for if self._report.dry_run else noting.noted
        return look(self._store, one.session, one.survey, self._places)

    def _changed(
        self, one: Examination, planned: Plan, outcome: Outcome, rewrite: AnyRewrite
    ) -> _Look:
        fingerprint = rewrite.fingerprint
        if rewrite.left:
            outcome = self._outcome(one, replace(planned, edits=rewrite.done))
            outcome = replace(outcome, reason=f"{outcome.reason}; the rest waits: {rewrite.left}")
        done = replace(outcome, bytes_stored=rewrite.stored, bytes_after=fingerprint.size)
        again, name = AGAIN if rewrite.left else None, one.format.name
        return _Look(done, fingerprint, name, one.session.identity, planned.due_at, again)

    def _outcome(self, one: Examination, planned: Plan) -> Outcome:
        rules = self._settings.decision_rules()
        return outcome_of(one.session.file, one.format.name, rules, planned)

    def _write_down(self, *, whole: bool) -> None:
        """Write down what was seen; a `whole` pass also says which roots it saw without error."""
        if self._store is None or self._report.dry_run:
            return
        now = self._clock()
        troubled = {problem.root for problem in self._report.problems}
        roots = (os.path.realpath(root.path) for root in self._settings.root_directories())
        clean = [root for root in roots if root not in troubled]
        try:
            with self._store.transaction():
                self._memory.write_down(self._store, forget=whole and not troubled)
                self._store.wishes.lapse(now)
                if whole:
                    self._store.facts.note_pass(now, clean, enabled=self._settings.enabled)
        except (BusyError, StoreFullError) as why:  # losing what was seen costs time, nothing else
            at = self._store.directory
            self._report.problems.append(Unreadable(at, at, str(why)))
