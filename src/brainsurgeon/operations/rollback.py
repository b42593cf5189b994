"""Take a pass back: what it cut and set and what still stands, in the sessions that it changed.

It goes the way of every restore: what a session that is not settled owes becomes a wish, and what
was put back stays for as long as after a restore. What the pass itself put back is not taken away
again. A rollback is a pass, and doing it twice changes nothing.
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
from brainsurgeon.lookup.sessions import all_sessions, noted, session_among
from brainsurgeon.model.records import Wish
from brainsurgeon.model.reports import RollbackReport, SessionRollback
from brainsurgeon.operations.restore import missed, removed
from brainsurgeon.planning.signatures import UNFIT
from brainsurgeon.rewrite.change import carry_out
from brainsurgeon.rewrite.finish import UNFINISHED, finish_now
from brainsurgeon.rewrite.inspect import UnsettledError, examine_to_show, records_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from brainsurgeon.config import Settings
    from brainsurgeon.lookup.sessions import Session
    from brainsurgeon.model.plans import Plan
    from brainsurgeon.model.records import Extraction, SessionRecord
    from brainsurgeon.model.reports import Pass
    from brainsurgeon.model.sessions import SessionFile
    from brainsurgeon.rewrite.change import AnyRewrite
    from brainsurgeon.store import Store


EXPIRED, PUT_BACK, CHANGED = "expired", "put back since", "changed since: no stub stands there"


def rollback(
    settings: Settings, store: Store | None, number: int, *, clock: Callable[[], float] = time.time,
    sessions: Collection[str] = (), dry_run: bool = False,
) -> RollbackReport:  # fmt: skip
    """Take back what a pass cut and set, in all sessions that it changed or in those named.

    Raise NotFoundError where there is no such pass, or where it changed nothing in a session that
    is named.
    """
    undone = store.passes.named(number) if store else None
    if store is None or undone is None:
        raise NotFoundError(_none(store, number))
    run = _Rollback(settings, store, undone, clock, dry_run=dry_run)
    chosen = run.chosen(sessions)
    if dry_run:
        return run.report(None, [run.look(one) for one in chosen])
    with store.passes.run("rollback", clock(), rolls_back=number):
        done = run.undo(chosen)
        return run.report(store.passes.so_far, done)


def _none(store: Store | None, number: int) -> str:
    """Say that there is no pass of this number any more, or never was one."""
    known = "`brainsurgeon passes` lists them"
    if store and number <= store.passes.last:
        return f"pass {number} is kept no longer: nothing of it could be taken back; {known}"
    return f"there is no pass {number}; {known}"


class _Rollback:
    """What is known of the pass, and what becomes of each session."""

    def __init__(
        self, settings: Settings, store: Store, undone: Pass, clock: Callable[[], float],
        *, dry_run: bool,
    ) -> None:  # fmt: skip
        self._settings, self._store, self._undone = settings, store, undone
        self._clock, self._dry_run = clock, dry_run
        self._cuts: dict[int, list[Extraction]] = {}
        made = {one.id: one for one in store.extractions.of_pass(undone.id)}
        for one in made.values():
            self._cuts.setdefault(one.session_id, []).append(one)
        for session, ident in store.placements.of_pass(
            undone.id
        ):  # forks and copies hold them, too
            if made[ident].session_id != session:
                self._cuts.setdefault(session, []).append(made[ident])

    def chosen(self, names: Collection[str]) -> list[Session]:
        """Give the sessions in which something of the pass was found, or those of them named."""
        touched = self._cuts.keys() | self._store.fields.sessions_of_pass(self._undone.id)
        known = all_sessions(self._settings, self._store, beyond=True)
        wanted = [session_among(known, name) for name in names] if names else known
        listed = [one for one in wanted if one.record and one.record.id in touched]
        if names and len(listed) < len(wanted):
            idle = next(one for one in wanted if one not in listed)
            raise NotFoundError(f"nothing of pass {self._undone.id} is found in {idle.title}")
        return listed

    def report(self, made: int | None, done: list[SessionRollback]) -> RollbackReport:
        """Put the answer together."""
        return RollbackReport(self._undone, made, self._dry_run, tuple(done))

    def undo(self, chosen: list[Session]) -> list[SessionRollback]:
        """Take the pass back, session by session; the old files go while others are looked at."""
        done: list[SessionRollback] = []
        waiting: list[AnyRewrite] = []
        late: list[str] = []
        try:
            for one in [noted(self._store, one) for one in chosen]:
                answer, rewrite = self._undo(one)
                done.append(answer)
                waiting += [rewrite] if rewrite else []
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
        assert record is not None  # noqa: S101  only those were chosen
        if file is None:
            return SessionRollback(session.title, "gone", reason="its file is gone"), None
        now = self._clock()
        wish = self._wish(record, now)
        try:
            planned, rewrite = carry_out(
                self._settings, self._store, file, record, (wish,), self._clock
            )
        except UnsettledError as why:
            return self._wait(session, record, now, str(why)), None
        except (DamagedError, FailedError, GuardedError, NotFoundError, StoreFullError) as why:
            reason = str(why).removeprefix(f"{session.title}: ")
            return SessionRollback(session.title, "failed", reason=reason), None
        return self._answer(session, record, planned), rewrite

    def _wish(self, record: SessionRecord, now: float) -> Wish:
        ident, number = record.id, self._undone.id
        return Wish(
            None, ident, None, "restore", None, None, True, now, None, rolls_back=number
        )  # fmt: skip

    def _wait(
        self, session: Session, record: SessionRecord, now: float, reason: str
    ) -> SessionRollback:
        """Note the wish, unless it was noted before; it waits for as long as it takes."""
        store, ident, number = self._store, record.id, self._undone.id
        if all(one.rolls_back != number for one in store.wishes.open_of(ident)):
            facts = {"rolls_back": number, "pending": True, "reason": reason}
            with store.transaction():
                store.wishes.add_restore(
                    ident, None, None, now, None, pristine=True, rolls_back=number
                )
                store.events.add(now, "rollback", ident, facts, store.passes.number())
        return SessionRollback(session.title, "pending", reason=reason)

    def look(self, session: Session) -> SessionRollback:
        """Say what would become of a session."""
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
        with examine_to_show(self._settings, file, state, now) as one:
            try:
                one.check_settled()
            except UnsettledError as why:
                return SessionRollback(session.title, "pending", reason=str(why))
            asked = (self._wish(record, now),)
            records = records_of(self._settings, self._store, one.session, record, now, asked)
            planned = one.plan(records, cut=False)
        if planned.deferred:
            return SessionRollback(session.title, "pending", reason=planned.deferred)
        return self._answer(session, record, planned)

    def _answer(self, session: Session, record: SessionRecord, planned: Plan) -> SessionRollback:
        """Say what of a plan is this pass, and what of this pass is not in the plan."""
        cuts = self._cuts.get(record.id, ())
        put_back = {edit.extraction_id for edit in planned.putbacks}
        known = {one.id: one for some in self._cuts.values() for one in some}
        back = [one for ident, one in known.items() if ident in put_back]
        values = sum(one.archive_id is None for one in back)
        turns = len({one.archive_id for one in back} - {None})
        reasons = dict(planned.missed) | dict.fromkeys(planned.unfit, UNFIT)
        not_done = missed(planned)
        since: Counter[str] = Counter()
        for one in cuts:
            if one.id in put_back or one.links:
                continue
            if one.replacement is not None and one.entry_id in planned.unfit:
                not_done += (f"{one.entry_id}: {UNFIT}",)
            elif one.entry_id not in reasons:
                since[_since(one)] += 1
        undone = removed(planned)
        return SessionRollback(
            session.title, "rolled back" if back or undone else "nothing to undo", values, turns,
            undone, tuple(dict.fromkeys(not_done)), dict(since),
        )  # fmt: skip


def _since(one: Extraction) -> str:
    """Say what became of a value whose stub stands nowhere in its session."""
    turn = "" if one.archive_id is None else "archived turn, "
    if one.blob_id is None:
        return turn + EXPIRED
    return turn + (PUT_BACK if one.state == "restored" else CHANGED)


LISTED = 20
"""How many of the newest are listed where nobody asks for all."""


def passes(store: Store | None, *, most: int | None = LISTED) -> list[Pass]:
    """Give the newest passes, the newest last; all of them where `most` is None."""
    return store.passes.newest(most) if store else []
