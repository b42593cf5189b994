"""Roll back a run: restore the values it extracted and remove the fields it set.

A rollback works like a restore: sessions that are not idle get a pending request, and restored
values stay as long as after a restore. Values that the run itself restored are not extracted
again. A rollback is a run itself, and a second rollback of the same run changes nothing.
"""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING

from brainsurgeon.errors import (
    DamagedError,
    FailedError,
    GuardedError,
    NotFoundError,
    StoreFullError,
)
from brainsurgeon.lookup.sessions import all_sessions, identified, noted, session_among
from brainsurgeon.model.records import Request
from brainsurgeon.model.reports import RollbackReport, SessionRollback
from brainsurgeon.operations.restore import missed, removed
from brainsurgeon.planning.signatures import UNFIT
from brainsurgeon.rewrite.change import carry_out
from brainsurgeon.rewrite.finish import UNFINISHED, finish_now
from brainsurgeon.rewrite.inspect import NotIdleError, examine_to_show, records_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from brainsurgeon.config import Settings
    from brainsurgeon.lookup.sessions import Session
    from brainsurgeon.model.plans import Plan
    from brainsurgeon.model.records import Extraction, SessionRecord
    from brainsurgeon.model.reports import Run
    from brainsurgeon.model.sessions import SessionFile
    from brainsurgeon.rewrite.change import AnyRewrite
    from brainsurgeon.store import Store


EXPIRED, PUT_BACK, CHANGED = (
    "expired",
    "put back since",
    "changed since: no placeholder stands there",
)


def rollback(
    settings: Settings, store: Store | None, number: int, *, clock: Callable[[], float] = time.time,
    sessions: Collection[str] = (), dry_run: bool = False,
) -> RollbackReport:  # fmt: skip
    """Roll back a run in all sessions that it changed, or in the named ones.

    Raises NotFoundError if the run does not exist, or changed nothing in a named session.
    """
    undone = store.runs.named(number) if store else None
    if store is None or undone is None:
        raise NotFoundError(_none(store, number))
    run = _Rollback(settings, store, undone, clock, dry_run=dry_run)
    chosen = run.chosen(sessions)
    if dry_run:
        return run.report(None, [run.look(session) for session in chosen])
    with store.runs.run("rollback", clock(), rolls_back=number):
        done = run.undo(chosen)
        return run.report(store.runs.so_far, done)


def _none(store: Store | None, number: int) -> str:
    known = "`brainsurgeon runs` lists them"
    if store and number <= store.runs.last:
        return f"run {number} is kept no longer: nothing of it could be taken back; {known}"
    return f"there is no run {number}; {known}"


class _Rollback:
    def __init__(
        self, settings: Settings, store: Store, undone: Run, clock: Callable[[], float],
        *, dry_run: bool,
    ) -> None:  # fmt: skip
        self._settings, self._store, self._undone = settings, store, undone
        self._clock, self._dry_run = clock, dry_run
        self._cuts: dict[int, list[Extraction]] = {}
        made = {value.id: value for value in store.extractions.of_run(undone.id)}
        for value in made.values():
            self._cuts.setdefault(value.session_id, []).append(value)
        # Forks and copies have the placeholders, too.
        for session, ident in store.placements.of_run(undone.id):
            if made[ident].session_id != session:
                self._cuts.setdefault(session, []).append(made[ident])

    def chosen(self, names: Collection[str]) -> list[Session]:
        """Return the sessions that the run changed, or the named ones."""
        touched = self._cuts.keys() | self._store.fields.sessions_of_run(self._undone.id)
        found = all_sessions(self._settings, self._store, beyond=True)
        known = [identified(self._store, session) for session in found]
        wanted = [session_among(known, name) for name in names] if names else known
        listed = [item for item in wanted if item.record and item.record.id in touched]
        if names and len(listed) < len(wanted):
            untouched = next(item for item in wanted if item not in listed)
            raise NotFoundError(f"nothing of run {self._undone.id} is found in {untouched.title}")
        return listed

    def report(self, made: int | None, done: list[SessionRollback]) -> RollbackReport:
        return RollbackReport(self._undone, made, self._dry_run, tuple(done))

    def undo(self, chosen: list[Session]) -> list[SessionRollback]:
        """Roll back each session; finish the rewrites of earlier sessions meanwhile."""
        done: list[SessionRollback] = []
        waiting: list[AnyRewrite] = []
        late: list[str] = []
        try:
            for session in [noted(self._store, item) for item in chosen]:
                answer, rewrite = self._undo(session)
                done.append(answer)
                if rewrite:
                    waiting.append(rewrite)
                while waiting and waiting[0].due <= time.monotonic():
                    late += self._finish(waiting.pop(0))
            while waiting:
                late += self._finish(waiting.pop(0))
        except BaseException:
            finish_now(waiting)
            raise
        return [*done, *(SessionRollback(name, "failed", reason=UNFINISHED) for name in late)]

    def _finish(self, rewrite: AnyRewrite) -> list[str]:
        return [] if rewrite.finish() else [rewrite.name]

    def _undo(self, session: Session) -> tuple[SessionRollback, AnyRewrite | None]:
        record, file = session.record, session.file
        assert record is not None  # noqa: S101  `chosen` returns no others
        if file is None:
            return SessionRollback(session.title, "gone", reason="its file is gone"), None
        now = self._clock()
        request = self._request(record, now)
        try:
            planned, rewrite = carry_out(
                self._settings, self._store, file, record, (request,), self._clock
            )
        except NotIdleError as why:
            return self._wait(session, record, now, str(why)), None
        except (DamagedError, FailedError, GuardedError, NotFoundError, StoreFullError) as why:
            reason = str(why).removeprefix(f"{session.title}: ")
            return SessionRollback(session.title, "failed", reason=reason), None
        return self._answer(session, record, planned), rewrite

    def _request(self, record: SessionRecord, now: float) -> Request:
        return Request(
            None, record.id, None, "restore", None, None, True, now, None,
            rolls_back=self._undone.id,
        )  # fmt: skip

    def _wait(
        self, session: Session, record: SessionRecord, now: float, reason: str
    ) -> SessionRollback:
        """Record a pending request without an end, unless there is one."""
        store, ident, number = self._store, record.id, self._undone.id
        if all(request.rolls_back != number for request in store.requests.open_of(ident)):
            facts = {"rolls_back": number, "pending": True, "reason": reason}
            with store.transaction():
                store.requests.add_restore(
                    ident, None, None, now, None, pristine=True, rolls_back=number
                )
                store.events.add(now, "rollback", ident, facts, store.runs.number())
        return SessionRollback(session.title, "pending", reason=reason)

    def look(self, session: Session) -> SessionRollback:
        """Return the result that `undo` would have for a session. Writes nothing."""
        record, file = session.record, session.file
        assert record is not None  # noqa: S101  as above
        if file is None:
            return SessionRollback(session.title, "gone", reason="its file is gone")
        try:
            return self._planned(session, record, file)
        except FailedError as why:
            reason = str(why).removeprefix(f"{session.title}: ")
            return SessionRollback(session.title, "failed", reason=reason)

    def _planned(
        self, session: Session, record: SessionRecord, file: SessionFile
    ) -> SessionRollback:
        now, state = self._clock(), self._store.files.at(file.path)
        with examine_to_show(self._settings, file, state, now) as examined:
            try:
                examined.check_idle()
            except NotIdleError as why:
                return SessionRollback(session.title, "pending", reason=str(why))
            requests = (self._request(record, now),)
            records = records_of(
                self._settings, self._store, examined.session, record, now, requests
            )
            planned = examined.plan(records, cut=False)
        if planned.deferred:
            return SessionRollback(session.title, "pending", reason=planned.deferred)
        return self._answer(session, record, planned)

    def _answer(self, session: Session, record: SessionRecord, planned: Plan) -> SessionRollback:
        """Return what a plan restores of the run, and the values that it does not restore."""
        put_back = {edit.extraction_id for edit in planned.putbacks}
        known = {value.id: value for values in self._cuts.values() for value in values}
        back = [value for ident, value in known.items() if ident in put_back]
        turns = {value.archive_id for value in back} - {None}
        reasons = dict(planned.missed) | dict.fromkeys(planned.unfit, UNFIT)
        not_done = missed(planned)
        since: Counter[str] = Counter()
        for value in self._cuts.get(record.id, ()):
            if value.id in put_back or value.links:
                continue
            if value.replacement is not None and value.entry_id in planned.unfit:
                not_done += (f"{value.entry_id}: {UNFIT}",)
            elif value.entry_id not in reasons:
                since[_since(value)] += 1
        undone = removed(planned)
        return SessionRollback(
            session.title, "rolled back" if back or undone else "nothing to undo",
            sum(value.archive_id is None for value in back), len(turns),
            undone, tuple(dict.fromkeys(not_done)), dict(since),
        )  # fmt: skip


def _since(value: Extraction) -> str:
    """Return why a value of the run has no placeholder in its session any more."""
    turn = "" if value.archive_id is None else "archived turn, "
    if value.blob_id is None:
        return turn + EXPIRED
    return turn + (PUT_BACK if value.state == "restored" else CHANGED)


LISTED = 20  # newest runs that are listed by default


def runs(store: Store | None, *, most: int | None = LISTED) -> list[Run]:
    """Return the newest runs, newest last; all if `most` is None."""
    return store.runs.newest(most) if store else []
