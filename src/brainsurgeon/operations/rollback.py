"""Roll back a run: restore the values it extracted and remove the fields it set.

A rollback works like a restore: sessions that are not idle get a pending request, and restored
values stay as long as after a restore. Values that the run itself restored are not extracted
again. A rollback is a run itself, and a second rollback of the same run changes nothing.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection

from msgspec.structs import replace

from brainsurgeon.config import Settings
from brainsurgeon.errors import NotFoundError
from brainsurgeon.lookup.sessions import Session, all_sessions, identified, noted, session_among
from brainsurgeon.model.plans import Plan
from brainsurgeon.model.records import EVERYTHING, Extraction, Request
from brainsurgeon.model.reports import RollbackReport, SessionRollback
from brainsurgeon.operations.restore import FAILURES, change_each, recorded
from brainsurgeon.planning.signatures import UNFIT
from brainsurgeon.rewrite.apply import carry_out
from brainsurgeon.rewrite.recover import UNFINISHED, Rewrite
from brainsurgeon.sessions.reading import NotIdleError
from brainsurgeon.store import Store

EXPIRED = "expired"
RESTORED = "restored since"
CHANGED = "changed since: the placeholder is gone"


def rollback(
    settings: Settings, store: Store, number: int, *, clock: Callable[[], float],
    sessions: Collection[str] = (),
) -> RollbackReport:  # fmt: skip
    """Roll back a run in all sessions that it changed, or in the named ones.

    Raises NotFoundError if the run does not exist, or changed nothing in a named session.
    """
    undone = store.runs.named(number)
    if undone is None:
        reason = f"there is no run {number}"
        if number <= store.runs.last:
            reason = f"run {number} is no longer recorded and cannot be rolled back"
        raise NotFoundError(f"{reason}; `brainsurgeon history` lists them")
    extracted = _extracted(store, number)

    def undo(session: Session) -> tuple[SessionRollback, Rewrite | None]:
        if session.file is None:
            return SessionRollback(session.title, "gone", reason="its file is gone"), None
        record = recorded(session)
        request = replace(EVERYTHING, session_id=record.id, asked_at=clock(), rolls_back=number)
        try:
            plan, rewrite = carry_out(settings, store, session.file, record, (request,), clock)
        except NotIdleError as why:
            _note(store, request, str(why))
            return SessionRollback(session.title, "pending", reason=str(why)), None
        except FAILURES as why:
            reason = str(why).removeprefix(f"{session.title}: ")
            return SessionRollback(session.title, "failed", reason=reason), None
        return _answer(session, plan, extracted[record.id]), rewrite

    touched = extracted.keys() | store.fields.sessions_of_run(number)
    chosen = [noted(store, one) for one in _chosen(settings, store, number, touched, sessions)]
    with store.runs.run("rollback", clock(), rolls_back=number):
        results = change_each(chosen, undo)
        made = store.runs.so_far
    done = [answer for answer, _ in results]
    late = [rewrite.name for _, rewrite in results if rewrite]
    done += [SessionRollback(name, "failed", reason=UNFINISHED) for name in late]
    return RollbackReport(undone, made, tuple(done))


def _extracted(store: Store, number: int) -> dict[int, list[Extraction]]:
    """Return the values that a run extracted, by the sessions with their placeholders."""
    values = {value.id: value for value in store.extractions.of_run(number)}
    by_session: dict[int, list[Extraction]] = defaultdict(list)
    for value in values.values():
        by_session[value.session_id].append(value)
    # Forks and copies have the placeholders, too.
    for session, ident in store.placements.of_run(number):
        if values[ident].session_id != session:
            by_session[session].append(values[ident])
    return by_session


def _chosen(
    settings: Settings, store: Store, number: int, touched: Collection[int],
    names: Collection[str],
) -> list[Session]:  # fmt: skip
    listed = all_sessions(settings, store, beyond=True)
    known = [identified(store, session) for session in listed]
    wanted = [session_among(known, name) for name in names] if names else known
    changed = [item for item in wanted if item.record and item.record.id in touched]
    if names and (untouched := next((item for item in wanted if item not in changed), None)):
        what = f"nothing of run {number} is found in {untouched.title}"
        raise NotFoundError(f"{what}; `brainsurgeon history --events` lists the run's changes")
    return changed


def _note(store: Store, request: Request, reason: str) -> None:
    """Record a pending request that never lapses, unless one is recorded already."""
    ident, number = request.session_id, request.rolls_back
    if all(other.rolls_back != number for other in store.requests.open_of(ident)):
        facts = {"rolls_back": number, "pending": True, "reason": reason}
        with store.transaction():
            store.requests.add(request)
            store.events.add(request.asked_at, "rollback", ident, facts, store.runs.number())


def _answer(session: Session, plan: Plan, extracted: Collection[Extraction]) -> SessionRollback:
    """Return the result for a session: what is restored, and why other values are not."""
    restored = {edit.extraction_id for edit in plan.restorations}
    back = [value for value in extracted if value.id in restored]
    turns = {value.archive_id for value in back} - {None}
    named = {entry for entry, _ in plan.handled.missed} | set(plan.handled.unfit)
    not_done = plan.not_done
    since: Counter[str] = Counter()  # why values have no placeholder any more
    for value in extracted:
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
