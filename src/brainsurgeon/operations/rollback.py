"""Roll back a run: restore the values it extracted and remove the fields it set.

A rollback works like a restore: sessions that are not idle get a pending request, and restored
values stay as long as after a restore. Values that the run itself restored are not extracted
again. A rollback is a run itself, and a second rollback of the same run changes nothing.
"""

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection
from contextlib import nullcontext

from msgspec.structs import replace

from brainsurgeon.config import Settings
from brainsurgeon.errors import NotFoundError
from brainsurgeon.lookup.sessions import Session, all_sessions, identified, noted, session_among
from brainsurgeon.model.plans import Plan
from brainsurgeon.model.records import EVERYTHING, Extraction, Request, SessionRecord
from brainsurgeon.model.reports import RollbackReport, SessionRollback
from brainsurgeon.model.sessions import SessionFile
from brainsurgeon.operations.restore import FAILURES, change_each, recorded
from brainsurgeon.planning.signatures import UNFIT
from brainsurgeon.rewrite.apply import carry_out
from brainsurgeon.rewrite.inspect import Planner, examine_to_show
from brainsurgeon.rewrite.recover import UNFINISHED, Rewrite
from brainsurgeon.sessions.reading import NotIdleError
from brainsurgeon.store import Store

EXPIRED = "expired"
RESTORED = "restored since"
CHANGED = "changed since: the placeholder is gone"


def rollback(
    settings: Settings, store: Store | None, number: int, *, clock: Callable[[], float] = time.time,
    sessions: Collection[str] = (), dry_run: bool = False,
) -> RollbackReport:  # fmt: skip
    """Roll back a run in all sessions that it changed, or in the named ones.

    Raises NotFoundError if the run does not exist, or changed nothing in a named session.
    """
    undone = store.runs.named(number) if store else None
    if store is None or undone is None:
        reason = f"there is no run {number}"
        if store and number <= store.runs.last:
            reason = f"run {number} is no longer recorded and cannot be rolled back"
        raise NotFoundError(f"{reason}; `brainsurgeon history` lists them")
    run = _Rollback(settings, store, number, clock, dry_run=dry_run)
    chosen = run.chosen(sessions)
    if not dry_run:
        chosen = [noted(store, session) for session in chosen]
    with nullcontext() if dry_run else store.runs.run("rollback", clock(), rolls_back=number):
        results = change_each(chosen, run.undo)
        made = store.runs.so_far
    done = [answer for answer, _ in results]
    late = [rewrite.name for _, rewrite in results if rewrite]
    done += [SessionRollback(name, "failed", reason=UNFINISHED) for name in late]
    return RollbackReport(undone, made, dry_run, tuple(done))


class _Rollback:
    def __init__(
        self, settings: Settings, store: Store, number: int, clock: Callable[[], float],
        *, dry_run: bool,
    ) -> None:  # fmt: skip
        self._settings, self._store, self._number = settings, store, number
        self._clock, self._dry_run = clock, dry_run
        self._extracted = {value.id: value for value in store.extractions.of_run(number)}
        self._by_session: dict[int, list[Extraction]] = defaultdict(list)
        for value in self._extracted.values():
            self._by_session[value.session_id].append(value)
        # Forks and copies have the placeholders, too.
        for session, ident in store.placements.of_run(number):
            value = self._extracted[ident]
            if value.session_id != session:
                self._by_session[session].append(value)

    def chosen(self, names: Collection[str]) -> list[Session]:
        touched = self._by_session.keys() | self._store.fields.sessions_of_run(self._number)
        listed = all_sessions(self._settings, self._store, beyond=True)
        known = [identified(self._store, session) for session in listed]
        wanted = [session_among(known, name) for name in names] if names else known
        changed = [item for item in wanted if item.record and item.record.id in touched]
        if names and (untouched := next((item for item in wanted if item not in changed), None)):
            what = f"nothing of run {self._number} is found in {untouched.title}"
            raise NotFoundError(f"{what}; `brainsurgeon history --events` lists the run's changes")
        return changed

    def undo(self, session: Session) -> tuple[SessionRollback, Rewrite | None]:
        title, file, record = session.title, session.file, recorded(session)
        if file is None:
            return SessionRollback(title, "gone", reason="its file is gone"), None
        request = replace(
            EVERYTHING, session_id=record.id, asked_at=self._clock(), rolls_back=self._number
        )
        try:
            if self._dry_run:
                plan, rewrite = self._plan(file, record, request), None
            else:
                plan, rewrite = carry_out(
                    self._settings, self._store, file, record, (request,), self._clock
                )
        except NotIdleError as why:
            if not self._dry_run:
                self._note(request, str(why))
            return SessionRollback(title, "pending", reason=str(why)), None
        except FAILURES as why:
            reason = str(why).removeprefix(f"{title}: ")
            return SessionRollback(title, "failed", reason=reason), None
        return self._answer(session, record, plan), rewrite

    def _plan(self, file: SessionFile, record: SessionRecord, request: Request) -> Plan:
        seen = examine_to_show(
            self._settings, self._store, file, record, request.asked_at, (request,)
        )
        with seen as examined:
            examined.check_idle()
            plan = Planner(examined, examined.records, extract=False).plan()
        if plan.deferred:
            raise NotIdleError(plan.deferred)
        return plan

    def _note(self, request: Request, reason: str) -> None:
        """Record a pending request that never lapses, unless one is recorded already."""
        store, ident = self._store, request.session_id
        if all(other.rolls_back != self._number for other in store.requests.open_of(ident)):
            facts = {"rolls_back": self._number, "pending": True, "reason": reason}
            with store.transaction():
                store.requests.add(request)
                store.events.add(request.asked_at, "rollback", ident, facts, store.runs.number())

    def _answer(self, session: Session, record: SessionRecord, plan: Plan) -> SessionRollback:
        """Return the result for a session: what is restored, and why other values are not."""
        restored = {edit.extraction_id for edit in plan.restorations}
        back = [value for ident, value in self._extracted.items() if ident in restored]
        turns = {value.archive_id for value in back} - {None}
        named = {entry for entry, _ in plan.handled.missed} | set(plan.handled.unfit)
        not_done = plan.not_done
        since: Counter[str] = Counter()  # why values have no placeholder any more
        for value in self._by_session[record.id]:
            if value.id in restored or value.links:
                continue
            if value.replacement is not None and value.entry_id in plan.handled.unfit:
                not_done += (f"{value.entry_id}: {UNFIT}",)
            elif value.entry_id not in named:
                turn = "" if value.archive_id is None else "archived turn, "
                why = RESTORED if value.state == "restored" else CHANGED
                since[turn + (EXPIRED if value.blob_id is None else why)] += 1
        undone = plan.insertions_removed
        return SessionRollback(
            session.title, "rolled back" if back or undone else "nothing to undo",
            sum(value.archive_id is None for value in back), undone,
            tuple(dict.fromkeys(not_done)), turns=len(turns), since=dict(since),
        )  # fmt: skip
