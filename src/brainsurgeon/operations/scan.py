"""One pass: walk the roots, skip what is unchanged, plan the rest, carry the plans out."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from brainsurgeon.errors import BrainsurgeonError, Busy, Damaged, Stopped, StoreFull
from brainsurgeon.model import Outcome, Unreadable
from brainsurgeon.operations import look, recover
from brainsurgeon.operations.operate import Rewrite, finish_now, operate
from brainsurgeon.operations.plan import plan
from brainsurgeon.operations.report import Report, describe
from brainsurgeon.sessions import quiet
from brainsurgeon.sessions.discover import discover
from brainsurgeon.sessions.reading import Refused, carry_on, open_session
from brainsurgeon.store import extractions, files, meta, wishes
from brainsurgeon.store.opening import DatabaseError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from brainsurgeon.config import Settings
    from brainsurgeon.model import Fingerprint, Found, Plan, Result, Survey
    from brainsurgeon.sessions.reading import Opened
    from brainsurgeon.store import Store
    from brainsurgeon.store.extractions import SessionRow

AGAIN = "again"
"""How a file is remembered that was deferred or failed: every pass tries it again."""


@dataclass(slots=True)
class _Looked:
    """What a look at one session led to: the outcome and what to remember of the file."""

    outcome: Outcome
    fingerprint: Fingerprint
    format: str | None = None
    due_at: float | None = None
    again: bool = False
    """Whether the next pass looks again although nothing changed."""


def scan(
    settings: Settings,
    store: Store | None,
    *,
    clock: Callable[[], float] = time.time,
    dry_run: bool = False,
    only: Collection[str] = (),
    progress: Callable[[Found], None] = lambda _: None,
    check: Callable[[], None] = carry_on,
) -> Report:
    """Do one pass over all roots, or over the sessions whose paths are `only`.

    With `dry_run` nothing is written; `store` may then be None or open for reading only. When
    `check` raises Stopped the pass ends early, finishing or undoing what it had begun.
    """
    begun = time.monotonic()
    report = Report(dry_run)
    if store and dry_run:
        report.interrupted = recover.waiting(store)
    elif store:
        report.recovered = recover.recover(store)
    _Pass(settings, store, clock, report, progress, check).run(only)
    report.duration_seconds = round(time.monotonic() - begun, 3)
    return report


class _Pass:
    """The state of one pass."""

    def __init__(
        self, settings: Settings, store: Store | None, clock: Callable[[], float],
        report: Report, progress: Callable[[Found], None], check: Callable[[], None],
    ) -> None:  # fmt: skip
        self._settings, self._store, self._clock = settings, store, clock
        self._report, self._progress, self._check = report, progress, check
        self._rules = settings.decision_rules()
        self._rules_now = settings.rules_fingerprint()
        self._seen = files.remembered(store.connection) if store else {}
        self._waiting = wishes.sessions_waiting(store.connection) if store else {}
        self._pending: list[Rewrite] = []
        self._remember: list[tuple[str, files.Seen]] = []
        self._gone = set(self._seen)

    def run(self, only: Collection[str]) -> None:
        """Look at every file that needs a look."""
        try:
            for item in discover(self._settings.root_directories()):
                self._check()
                if isinstance(item, Unreadable):
                    self._report.problems.append(item)
                elif not only or item.path in only:
                    self._report.files_seen += 1
                    self._gone.discard(os.fsencode(item.path))
                    self._file(item)
                    self._finish(due_by=time.monotonic())
        except Stopped:
            self._report.stopped = True
        finally:
            self._finish(due_by=None)
            self._write_down(whole=not only and not self._report.stopped)

    def _file(self, found: Found) -> None:
        now = self._clock()
        seen = self._seen.get(os.fsencode(found.path))
        if seen and self._unchanged(found, seen, now):
            self._report.files_unchanged += 1
            return
        self._progress(found)
        same = seen is not None and seen.fingerprint == found.fingerprint
        first_seen = seen.first_seen if seen and same else now
        looked = self._look(found, first_seen, now)
        self._report.count(looked.outcome)
        fresh = files.Seen(
            looked.fingerprint, self._rules_now, looked.format,
            AGAIN if looked.again else looked.outcome.outcome,
            looked.outcome.reason, first_seen, looked.due_at, now,
        )  # fmt: skip
        path = os.fsencode(found.path)
        if path in self._waiting or seen is None or _essence(seen) != _essence(fresh):
            self._remember.append((found.path, fresh))

    def _unchanged(self, found: Found, seen: files.Seen, now: float) -> bool:
        return (
            seen.fingerprint == found.fingerprint
            and seen.rules == self._rules_now
            and seen.outcome != AGAIN
            and (seen.due_at is None or seen.due_at > now)
            and self._waiting.get(os.fsencode(found.path), 0.0) <= seen.looked_at
        )

    def _look(self, found: Found, first_seen: float, now: float) -> _Looked:  # noqa: C901  a table
        """Look at one file; whatever goes wrong with it stays its own."""
        try:
            return self._settled(found, first_seen, now)
        except look.Unsettled as why:
            return self._verdict(found, "deferred", str(why))
        except Refused as why:
            return self._verdict(found, "skipped", str(why))
        except Busy as why:
            return self._verdict(found, "deferred", str(why))
        except (StoreFull, Damaged) as why:
            return self._verdict(found, "failed", str(why))
        except (BrainsurgeonError, DatabaseError):
            raise  # the store itself is in trouble, or we are to stop: that is everybody's
        except FileNotFoundError:
            return self._verdict(found, "deferred", "the file went away during the scan")
        except BlockingIOError:
            return self._verdict(found, "deferred", look.HELD)
        except OSError as error:
            return self._verdict(found, "failed", error.strerror or type(error).__name__)
        except Stopped:
            raise
        except Exception as error:  # noqa: BLE001  one odd file must not stop the rest
            return self._verdict(found, "failed", f"unexpected {type(error).__name__}")

    def _verdict(self, found: Found, result: Result, reason: str) -> _Looked:
        size = found.fingerprint.size
        seen = self._seen.get(os.fsencode(found.path))
        form = seen.format if seen else None
        outcome = Outcome(
            look.named(found, form or "unknown").title, found.path, form, result, reason,
            size, size,
        )  # fmt: skip
        again = result in ("deferred", "failed") or quiet.migrated(found.agent_directory)
        return _Looked(outcome, found.fingerprint, form, again=again)

    def _settled(self, found: Found, first_seen: float, now: float) -> _Looked:
        waiting = os.fsencode(found.path) in self._waiting
        if not waiting and (reason := look.excluded(found, self._settings)):
            raise Refused(reason)
        quietness = look.Quietness.of(found, self._settings, first_seen, now)
        quietness.check_silence()
        with open_session(found, self._check) as opened:
            form = look.recognise(opened)
            look.check_same(opened, found)
            found = look.named(opened.found, form.name)
            left_alone = look.excluded(found, self._settings)
            if left_alone and not waiting:
                raise Refused(left_alone)
            session = replace(opened, found=found)
            look.check_writable(session)
            store = self._store
            row = extractions.session_at(store.connection, found.path) if store else None
            survey = form.survey(session.lines, self._rules.window)
            moved = row is not None and row.root != found.root
            forked = row is None and survey.parent is not None
            if store and (moved or forked) and not self._report.dry_run:
                row = self._note(store, found, form.name, survey)  # a fork has its parent's stubs
            asked = look.known(self._settings, store, row, now)
            quietness.check_turn(session, survey, now)
            planned = plan(
                session.lines, form, self._rules, asked, now, survey,
                cut=left_alone is None, explain=self._report.dry_run,
            )  # fmt: skip
            done = self._outcome(found, form.name, planned)
            if done.outcome != "changed" or self._report.dry_run or store is None:
                self._close_wishes(row, planned, now)
                return _Looked(done, session.fingerprint, form.name, planned.due_at)
            row = row or self._note(store, found, form.name, survey)
            rewrite = self._operate(store, session, row, planned, quietness, now)
            self._pending.append(rewrite)
            fingerprint = rewrite.exchanged.fingerprint
            done = replace(done, bytes_stored=rewrite.stored, bytes_after=fingerprint.size)
            return _Looked(done, fingerprint, form.name, planned.due_at)

    def _note(self, store: Store, found: Found, form: str, survey: Survey) -> SessionRow:
        with store.transaction() as connection:
            return extractions.note_session(connection, found, form, survey.parent)

    def _operate(
        self, store: Store, session: Opened, row: SessionRow, planned: Plan,
        quietness: look.Quietness, now: float,
    ) -> Rewrite:  # fmt: skip
        try:
            return operate(
                store, session, row, planned,
                gate=quietness.gate(session, self._clock), quiet_for=quietness.silent, now=now,
            )  # fmt: skip
        except Refused as why:
            raise look.Unsettled(str(why)) from why

    def _outcome(self, found: Found, form: str, planned: Plan) -> Outcome:
        size = found.fingerprint.size
        cuts = planned.extracted
        forced = len(cuts) != len(planned.edits) or any(cut.forced for cut in cuts)
        result: Result = "changed"
        reason = describe(planned)
        if not planned.edits:
            result, reason = "unchanged", "nothing to extract"
        elif not forced and not self._rules.pays(planned.gain, size):
            result, reason = "deferred", f"too little to gain ({planned.gain} bytes)"
        changed = result == "changed"
        return Outcome(
            found.title, found.path, form, result, reason, size,
            size - planned.gain if changed else size,
            len({cut.entry_id for cut in cuts}) if changed else 0,
            len(cuts) if changed else 0,
            len(planned.putbacks) if changed else 0,
            seen=True, plan=planned,
        )  # fmt: skip

    def _close_wishes(self, row: SessionRow | None, planned: Plan, now: float) -> None:
        """Close the wishes of a settled session that leave nothing to do, and note sightings."""
        if self._report.dry_run or self._store is None or row is None:
            return
        if not planned.wishes and not planned.sighted:
            return
        with self._store.transaction() as connection:
            wishes.close(connection, planned.wishes, "done", "nothing left to do", now)
            extractions.sight(connection, planned.sighted, now)

    def _finish(self, due_by: float | None) -> None:
        """Finish the rewrites whose old files may go now; all of them when `due_by` is None."""
        for rewrite in list(self._pending):
            if due_by is not None and rewrite.due > due_by:
                continue
            self._pending.remove(rewrite)
            try:
                ended = rewrite.finish(hurry=self._report.stopped)
            except BaseException:
                finish_now(self._pending)
                raise
            if not ended:
                self._report.interrupted.append(rewrite.name)

    def _write_down(self, *, whole: bool) -> None:
        """Write down what was seen; `whole` passes say which roots were seen without error."""
        if self._store is None or self._report.dry_run:
            return
        now = self._clock()
        troubled = {problem.root for problem in self._report.problems}
        roots = (os.path.realpath(root.path) for root in self._settings.root_directories())
        try:
            with self._store.transaction() as connection:
                for path, seen in self._remember:
                    files.remember(connection, path, seen)
                wishes.lapse(connection, now)
                if whole:
                    if not troubled:
                        files.forget(connection, self._gone)
                    clean = [root for root in roots if root not in troubled]
                    meta.note_pass(connection, now, clean)
        except (Busy, StoreFull) as why:  # losing what was seen costs time, not the report
            at = self._store.directory
            self._report.problems.append(Unreadable(at, at, str(why)))


def _essence(seen: files.Seen) -> files.Seen:
    """Give what is worth writing down: the reason of a deferral counts the seconds."""
    return replace(seen, looked_at=0.0, reason="" if seen.outcome == AGAIN else seen.reason)
