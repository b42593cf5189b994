"""Restore the values of an entry, of a session, of all sessions, or of a run.

A session that is not idle gets a pending request. Remaining placeholders are reported, even in
sessions without a record: the user may be about to uninstall brainsurgeon.
"""

import json
import secrets
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import nullcontext, suppress
from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from brainsurgeon import interruption
from brainsurgeon.agents import calling_session
from brainsurgeon.config import Settings
from brainsurgeon.errors import (
    BusyError,
    ChangedError,
    DamagedError,
    FailedError,
    MovedError,
    NotFoundError,
    StoreFullError,
)
from brainsurgeon.files.reading import RefusedError
from brainsurgeon.lookup import entries
from brainsurgeon.lookup.sessions import (
    Session,
    all_sessions,
    file_of,
    session_among,
    session_named,
    why_hidden,
    with_record,
)
from brainsurgeon.model import reports
from brainsurgeon.model.entries import RESTORED, dotted, value_at
from brainsurgeon.model.plans import Plan
from brainsurgeon.model.records import Extraction, PrintedAnswer, Request, SessionRecord
from brainsurgeon.model.session_files import NotIdleError, SessionFile
from brainsurgeon.model.text import counted, parse_time
from brainsurgeon.planning.matching import NO_RECORD
from brainsurgeon.planning.signatures import UNFIT
from brainsurgeon.rewrite import inspect
from brainsurgeon.rewrite.apply import carry_out
from brainsurgeon.rewrite.recover import UNFINISHED, Rewrite, Unfinished, finish, finish_now
from brainsurgeon.sessions.discovery import current_state, is_archive, open_session
from brainsurgeon.sessions.placeholders import UNFILLED, sessions_and_archives
from brainsurgeon.store import Store
from brainsurgeon.store.database import daemon_holder, translated
from brainsurgeon.store.journal import LEAST_WAIT

_TRY_AGAIN = 0.5  # seconds between two attempts
_REDACTION_WAIT = 86_400.0  # seconds for which a redaction waits while the session is never idle
_LATER = "; the request waits, and its values are kept, until the session can be changed"
LOST = "the values are in another store; if it still exists, set state_dir to its directory"
UNSEEN = "it may contain placeholders"
ARCHIVED = "this archive is not changed; `brainsurgeon show` prints the original value"
EXPIRED = "expired"
RESTORED_SINCE = "restored since"
CHANGED_SINCE = "changed since: the placeholder is gone"
Restored = TypeVar("Restored", bound=reports.SessionRestore)


class How(Struct, frozen=True):
    keys: Collection[str] = ()  # of the values to restore; all if empty
    pristine: bool = False  # also remove our fields
    wait: float = 0.0  # seconds for which to wait until the session is idle
    whole: bool = False  # also restore the other entries of an archived turn
    # Selects the content of the answer. If it raises an error, nothing changes.
    select: Callable[[dict[str, Any]], dict[str, Any]] = dict
    by_tool: bool = False  # requested by a tool call, which a later scan shortens
    dry_run: bool = False  # write nothing: the answer is what would be done


class _AskedValues(Struct, frozen=True):
    """The values of an entry that are to be restored."""

    entry_id: str
    values: tuple[Extraction, ...]
    texts: dict[int, bytes]  # their JSON, by their ids
    file: SessionFile
    record: SessionRecord
    others: tuple[str, ...]  # other entries of the same archived turn
    requests: tuple[Request, ...]

    def is_there(self) -> bool:
        with suppress(OSError, RefusedError), open_session(current_state(self.file)) as opened:
            for index, entry in enumerate(opened.transcript.entries):
                if entry.ident == self.entry_id:
                    here, texts = opened.parsed(index).entry, self.texts
                    pairs = ((value_at(here, one.path), texts[one.id]) for one in self.values)
                    return all(value == entries.decode(text) for value, text in pairs)
        return False


def restore(
    settings: Settings, store: Store, entry: str, *, clock: Callable[[], float],
    session: str | Session | None = None, how: How | None = None,
) -> reports.RestoreAnswer:  # fmt: skip
    """`entry` is an id or a whole placeholder.

    Raises NotFoundError, AmbiguousError or ExpiredError if the lookup fails, ChangedError if
    nothing of the entry can be restored, MovedError if the agent no longer uses the file, and
    FailedError if the file cannot be read or replaced.
    """
    how = how or How()
    named = entries.entry_named(settings, store, entry, session)
    wanted, to_agent = _found(settings, store, named, how, clock)
    answer = to_agent if how.by_tool else replace(to_agent, redaction=None)
    placed = store.placements.of_session(wanted.record.id) & {one.id for one in wanted.values}
    if not (how.pristine or wanted.others or placed) and wanted.is_there():
        why_busy = _why_not_idle(settings, store, wanted.file, answer.at)
        already = _already(to_agent if why_busy else answer)  # the caller may be a busy agent
        return replace(already, why_pending=why_busy)
    try:
        plan, not_done = _carried_out(settings, store, wanted, how, clock)
    except NotIdleError as why:
        if not how.dry_run:
            _wait_for(settings, store, wanted.file, wanted.requests, clock())
        return replace(
            to_agent, pending=True, why_pending=str(why),
            restored_by="daemon" if daemon_holder(settings.state_dir) else "scan --once",
        )  # fmt: skip
    at = store.extractions.restores(wanted.record.id).get(wanted.entry_id, answer.at)
    until, result = at + settings.keep_after_restore, _result(wanted, answer, plan, not_done)
    return result if result.already else replace(result, at=at, kept_until=until)


def _found(
    settings: Settings, store: Store, named: entries.EntryValues, how: How,
    clock: Callable[[], float],
) -> tuple[_AskedValues, reports.RestoreAnswer]:  # fmt: skip
    """Return what to restore, and the answer to an agent if that succeeds."""
    entry_id, values = named.entry_id, entries.own_copies_last(entries.choose(named, how.keys))
    file, texts = file_of(named.session), entries.json_texts(store, values)
    shown, same_as = entries.contents(entries.without_screen(values, how.keys), texts)
    content = how.select(shown)  # before the session is recorded: it may raise an error
    session = with_record(store, named.session, dry_run=how.dry_run)
    record, now = recorded(session), clock()
    redaction = Request(record.id, "redact", now, entry_id, lapses_at=now + _REDACTION_WAIT)
    answer = reports.RestoreAnswer(
        entry_id, record.title, same_as, content=content, pending=False,
        missed=entries.unknown_keys(named.values, how.keys),
        sizes={dotted(value.path): value.size for value in values}, at=now,
        previous=store.extractions.restores(record.id).get(entry_id),
        answer_id=secrets.token_hex(8),
        redaction=None if settings.keep_purge_control_calls or how.dry_run else redaction,
        to_agent=calling_session() is not None, dry_run=how.dry_run,
    )  # fmt: skip
    others = _others_of_turn(settings, store, named, now) if how.whole else ()
    request = Request(record.id, "restore", now, entry_id, pristine=how.pristine)
    paths = tuple(value.path for value in values) if how.keys else None
    requests = replace(request, paths=paths), *(replace(request, entry_id=one) for one in others)
    return _AskedValues(entry_id, values, texts, file, record, others, requests), answer


def _carried_out(
    settings: Settings, store: Store, wanted: _AskedValues, how: How, clock: Callable[[], float]
) -> tuple[Plan, tuple[str, ...]]:
    """Return the plan, and what was not done. Raises NotIdleError if waiting did not help.

    If the session is blocked, the requests of a person are kept.
    """
    file, requests, now = wanted.file, wanted.requests, wanted.requests[0].asked_at
    while True:
        try:
            with nullcontext() if how.dry_run else store.runs.run("restore", now):
                plan, rewrite = carry_out(
                    settings, store, file, wanted.record, requests, clock, dry_run=how.dry_run
                )
                return plan, plan.not_done + (() if finish(rewrite) else (UNFINISHED,))
        except NotIdleError:
            if clock() >= now + how.wait:
                raise
            time.sleep(_TRY_AGAIN)
        except FailedError as why:
            lapses = how.by_tool or how.dry_run
            if lapses or not inspect.why_blocked(settings, store, file, now):
                raise
            _wait_for(settings, store, file, requests, now)
            raise FailedError(f"{why}{_LATER}") from why


def _wait_for(
    settings: Settings, store: Store, file: SessionFile, requests: Iterable[Request], now: float
) -> None:
    """Record requests. They lapse in time, unless their session is blocked."""
    until = None if inspect.why_blocked(settings, store, file, now) else now + patience(settings)
    with store.transaction():
        for request in requests:
            store.requests.add(replace(request, asked_at=now, lapses_at=until))


def _result(
    wanted: _AskedValues, answer: reports.RestoreAnswer, plan: Plan, not_done: tuple[str, ...]
) -> reports.RestoreAnswer:
    ident = wanted.entry_id
    others = {edit.extraction_id for edit in plan.restorations if edit.entry_id in wanted.others}
    count = len(others)
    paths = {dotted(edit.path) for edit in plan.restorations if edit.entry_id == ident}
    fields = [edit for edit in plan.fields if edit.entry_id == ident]
    if paths or any(edit.undoes is not None for edit in fields):
        stamps = (
            parse_time(json.loads(edit.before)) for edit in fields
            if (edit.name, edit.undoes) == (RESTORED, None) and edit.before
        )  # fmt: skip
        return replace(
            answer, sizes={path: size for path, size in answer.sizes.items() if path in paths},
            previous=next(stamps, None) or answer.previous, missed=answer.missed + not_done,
            insertions_removed=plan.insertions_removed, others=count,
        )  # fmt: skip
    if wanted.is_there():
        missed = answer.missed + (not_done if wanted.others else ())
        return replace(_already(answer), others=count, missed=missed)
    reasons = [why for entry_id, why in plan.handled.missed if entry_id == ident]
    reason = ", ".join(reasons) or "its placeholder is no longer there"
    raise ChangedError(
        f"{wanted.record.title} {ident}: {reason}; the entry was left as it is. "
        "`brainsurgeon show` still prints the value"
    )


def _already(answer: reports.RestoreAnswer) -> reports.RestoreAnswer:
    return replace(answer, already=True, at=answer.previous or answer.at)


def _others_of_turn(
    settings: Settings, store: Store, named: entries.EntryValues, now: float
) -> tuple[str, ...]:
    from brainsurgeon.rewrite.archived_turns import archived_turn  # noqa: PLC0415  slow

    turn = archived_turn(settings, store, named, now, with_undone=True)
    ids = turn.entry_ids if turn else ()
    record = named.session.record
    values = store.extractions.contained_in(record.id) if record else []
    others = dict.fromkeys(value.entry_id for value in values if value.entry_id in ids)
    return tuple(entry_id for entry_id in others if entry_id != named.entry_id)


def recorded(session: Session) -> SessionRecord:
    if session.record is None:
        raise ValueError("a session without a record cannot be changed")
    return session.record


def _why_not_idle(settings: Settings, store: Store, file: SessionFile, now: float) -> str:
    with suppress(OSError, RefusedError):
        try:
            with inspect.examine_quiet(settings, store, current_state(file), now) as examined:
                examined.check_turn()
        except NotIdleError as why:
            return str(why)
    return ""


def patience(settings: Settings) -> float:  # seconds until a request lapses or a wait ends
    return max(float(settings.keep_after_restore), LEAST_WAIT)


def note_answer(store: Store, answer: reports.RestoreAnswer, printed: str) -> None:
    """Record the answer by which a later scan finds the agent's call, to shorten it."""
    if answer.redaction:
        as_printed = PrintedAnswer.of(printed, answer.answer_id)
        with store.transaction():
            store.requests.add(replace(answer.redaction, answer=as_printed))


def restore_all(
    settings: Settings, store: Store, *, clock: Callable[[], float], session: str | None = None,
    pristine: bool = False, dry_run: bool = False, watch: reports.Watch | None = None,
) -> list[reports.SessionRestore]:  # fmt: skip
    """Restore all values in one session, or in all sessions and uncompressed archive files.

    With `dry_run`, nothing is written, and `store` may be read-only.
    """
    watch = watch or reports.Watch()

    def restore_session(item: Session) -> tuple[reports.SessionRestore, Rewrite | None]:
        if item.file:
            watch.progress(item.file)
        try:
            with translated(store.directory):
                return _restore_session(settings, store, item, pristine, clock, dry_run=dry_run)
        except BusyError as why:  # the store is locked: not even a request can be recorded
            return reports.SessionRestore(item.title, "failed", reason=str(why)), None

    listed = _selected(settings, store, session)
    chosen = [with_record(store, item, dry_run=dry_run) if item.record else item for item in listed]
    from brainsurgeon.operations.doctor import placeholders_in_archives  # noqa: PLC0415  slow

    archives = [] if session else list(placeholders_in_archives(settings))
    files = {
        file.path: file for file in sessions_and_archives(settings.root_directories())
        if not file.path.endswith(UNFILLED)
    }  # fmt: skip
    chosen += [
        Session(archive.session, archive.session, files[archive.session], None)
        for archive in archives if archive.session in files
    ]  # fmt: skip
    with nullcontext() if dry_run else store.runs.run("restore", clock()):
        results = change_each(chosen, restore_session)
        _retry_pending(chosen, results, restore_session, watch)
    answers = []
    for item, (answer, late) in zip(chosen, results, strict=True):
        untouched = answer.state == "nothing to undo" and not answer.left
        if session or item.record or not untouched:
            not_done = (*answer.missed, UNFINISHED) if late else answer.missed
            answers.append(replace(answer, missed=not_done))
    for archive in archives:
        if archive.session in files:
            continue
        if archive.sure:
            left = tuple(f"{entry}: {ARCHIVED}" for entry in archive.left)
            answers.append(reports.SessionRestore(archive.session, reports.IN_ARCHIVE, left=left))
        else:
            reason = f"{archive.reason}; {UNSEEN}"
            answers.append(reports.SessionRestore(archive.session, "failed", reason=reason))
    return answers


def _selected(settings: Settings, store: Store, session: str | None) -> list[Session]:
    if session is not None:
        return [*session_named(settings, store, session, with_former_roots=True).parts]
    return all_sessions(settings, store, with_former_roots=True)


def _retry_pending(
    chosen: Sequence[Session], results: list[tuple[reports.SessionRestore, Rewrite | None]],
    restore_session: Callable[[Session], tuple[reports.SessionRestore, Rewrite | None]],
    watch: reports.Watch,
) -> None:  # fmt: skip
    deadline = time.monotonic() + watch.patience
    shown: list[reports.SessionRestore] = []
    while time.monotonic() < deadline:
        indexes = [n for n, (answer, _) in enumerate(results) if answer.state == "pending"]
        pending = [results[index][0] for index in indexes]
        if not pending:
            return
        if pending != shown:
            watch.waiting(pending)
            shown = pending
        interruption.check()
        time.sleep(_TRY_AGAIN)
        again = change_each([chosen[index] for index in indexes], restore_session)
        for index, result in zip(indexes, again, strict=True):
            results[index] = result


def overfull_after(
    settings: Settings, store: Store, now: float, *, session: str | None = None
) -> list[reports.OverfullSession]:
    from brainsurgeon.rewrite.relief import weigh  # noqa: PLC0415  slow

    overfull = []
    for item in _selected(settings, store, session):
        record = item.record
        placed = store.extractions.contained_in(record.id) if record and item.file else []
        values = [value for value in placed if value.blob_id]
        if not values:
            continue
        file = file_of(item)
        with suppress(BusyError, FailedError, NotFoundError):  # the restore reports them
            with inspect.examine_to_show(settings, store, file, record, now) as examined:
                _, full = weigh(inspect.ExaminationPlanner(examined, examined.records))
            load = full.load + sum(value.tokens for value in values)
            if load > full.window:
                overfull.append(reports.OverfullSession(item.title, load, full.window))
    return overfull


def change_each(
    sessions: Iterable[Session], change: Callable[[Session], tuple[Restored, Rewrite | None]]
) -> list[tuple[Restored, Rewrite | None]]:
    results: list[tuple[Restored, Rewrite | None]] = []
    unfinished, late, stopped = Unfinished(), list[Rewrite](), True
    try:
        for session in sessions:
            interruption.check()
            results.append(change(session))
            unfinished.add(filter(None, [results[-1][1]]))
            late += unfinished.finish_due()
        stopped = False
    finally:
        late += unfinished.finish_all(hurry=stopped)
    return [(answer, rewrite if rewrite in late else None) for answer, rewrite in results]


def _restore_session(
    settings: Settings, store: Store, session: Session, pristine: bool,
    clock: Callable[[], float], *, dry_run: bool,
) -> tuple[reports.SessionRestore, Rewrite | None]:  # fmt: skip
    now, title = clock(), session.title
    if session.file and session.record is None:
        answer = _without_record(settings, store, title, session.file, now)
        if answer is not None:
            return answer, None
        session = with_record(store, session, dry_run=dry_run)
    request = Request(recorded(session).id, "restore", now, pristine=pristine)
    plans: list[Plan] = []
    restored = set[int]()
    while True:
        plan, rewrite = _change(
            settings, store, session, request, clock, reports.SessionRestore, dry_run=dry_run
        )
        if isinstance(plan, reports.SessionRestore):
            return replace(plan, values_restored=len(restored)), None
        plans.append(plan)
        restored |= {edit.extraction_id for edit in plan.restorations}
        try:
            changed, file, record = plan.edits and not dry_run, file_of(session), recorded(session)
            now_left = _plan(settings, store, file, record, (request,), now) if changed else plan
        except (BusyError, FailedError) as why:
            reason = f"{why.reason}; {UNSEEN}"
            return reports.SessionRestore(title, "failed", len(restored), reason=reason), rewrite
        except BaseException:  # also when the program is being stopped
            finish_now(filter(None, [rewrite]))
            raise
        # What came back may itself contain a placeholder, if it was stored so.
        if all(edit.extraction_id in restored for edit in now_left.restorations):
            break
        finish(rewrite)
    missed = tuple(dict.fromkeys(why for plan in plans for why in plan.not_done))
    nothing = "nothing restored" if missed else "nothing to undo"
    note, unfit = "", plans[0].handled.unfit
    if unfit:  # this thinking was perhaps signed while a placeholder preceded it
        number = counted(len(unfit), "entry", "entries")
        outcome = "it is restored nevertheless" if pristine else "it stays extracted"
        note = f"signed thinking of {number} may no longer fit the preceding content: {outcome}"
    return reports.SessionRestore(
        title, "restored" if plans[0].edits else nothing, len(restored),
        tuple(name for plan in plans for name in plan.insertions_removed), missed,
        note=note, left=_left(now_left), signed_left=0 if pristine else len(unfit),
    ), rewrite  # fmt: skip


def _plan(
    settings: Settings, store: Store, file: SessionFile, record: SessionRecord,
    asked: tuple[Request, ...], now: float,
) -> Plan:  # fmt: skip
    with inspect.examine_to_show(settings, store, file, record, now) as examined:
        wanted = replace(examined, asked=asked)
        return inspect.ExaminationPlanner(wanted, wanted.records, extract=False).plan()


def _change(
    settings: Settings, store: Store, session: Session, request: Request,
    clock: Callable[[], float], kind: type[Restored], *, dry_run: bool,
) -> tuple[Plan | Restored, Rewrite | None]:  # fmt: skip
    title, file = session.title, session.file
    if file is None:
        if hidden := why_hidden(store, session, with_fields=request.pristine):
            reason = f"it may still contain placeholders or fields of brainsurgeon: {hidden}"
            return kind(title, "failed", reason=reason, left=(session.path,)), None
        return kind(title, "gone", reason="its file is gone"), None
    try:
        record = recorded(session)
        return carry_out(settings, store, file, record, (request,), clock, dry_run=dry_run)
    except NotIdleError as why:
        if not (dry_run or is_archive(file)):  # no scan carries out requests there
            _record_pending(settings, store, file, request, str(why))
        return kind(title, "pending", reason=str(why)), None
    except (DamagedError, FailedError, MovedError, NotFoundError, StoreFullError) as why:
        reason = why.reason
        refused = isinstance(why, FailedError) and not (dry_run or is_archive(file))
        if refused and inspect.why_blocked(settings, store, file, request.asked_at):
            _record_pending(settings, store, file, request, reason)
            reason = f"{reason}{_LATER}"
        return kind(title, "failed", reason=reason), None


def _record_pending(
    settings: Settings, store: Store, file: SessionFile, request: Request, reason: str
) -> None:
    """Record the request. That of a rollback never lapses: record it only once."""
    ident, run = request.session_id, request.rolls_back
    if run is None:
        _wait_for(settings, store, file, [request], request.asked_at)
        return
    with store.transaction():
        if all(other.rolls_back != run for other in store.requests.of_session(ident)):
            facts = {"rolls_back": run, "pending": True, "reason": reason}
            store.requests.add(request)
            store.events.add(request.asked_at, "rollback", ident, facts, store.runs.number())


def _left(plan: Plan) -> tuple[str, ...]:
    return tuple(map(str, dict.fromkeys(plan.handled.unrestored)))


def _without_record(
    settings: Settings, store: Store, title: str, file: SessionFile, now: float
) -> reports.SessionRestore | None:
    try:
        with open_session(file) as opened:
            plan = inspect.plan_of_everything(inspect.examine_open(settings, store, opened, now))
    except RefusedError:
        return reports.SessionRestore(title, "nothing to undo")
    except (BusyError, OSError) as why:
        error = str(why) if isinstance(why, BusyError) else why.strerror or type(why).__name__
        return reports.SessionRestore(title, "failed", reason=f"{error}; {UNSEEN}")
    if plan.restorations or plan.fields:
        return None
    state = "nothing restored" if plan.handled.unrestored else "nothing to undo"
    lost = any(one.why == NO_RECORD for one in plan.handled.unrestored)
    return reports.SessionRestore(title, state, reason=LOST if lost else "", left=_left(plan))


def rollback(
    settings: Settings, store: Store, number: int, *, clock: Callable[[], float],
    sessions: Collection[str] = (), dry_run: bool = False,
) -> reports.RollbackReport:  # fmt: skip
    """Roll back a run in all sessions that it changed, or in those that `sessions` names.

    Raises NotFoundError if the run does not exist, or changed nothing in a named session.
    """
    undone = store.runs.by_id(number)
    if undone is None:
        reason = f"there is no run {number}"
        if number <= store.runs.last:
            reason = f"run {number} is no longer recorded and cannot be rolled back"
        raise NotFoundError(f"{reason}; `brainsurgeon history` lists the runs")
    extracted = _extracted(store, number)

    def undo(session: Session) -> tuple[reports.SessionRollback, Rewrite | None]:
        ident = recorded(session).id
        request = Request(ident, "restore", clock(), pristine=True, rolls_back=number)
        plan, rewrite = _change(
            settings, store, session, request, clock, reports.SessionRollback, dry_run=dry_run
        )
        if isinstance(plan, reports.SessionRollback):
            return plan, None
        return _answer(session, plan, extracted[ident]), rewrite

    touched = extracted.keys() | store.fields.sessions_of_run(number)
    chosen = _chosen(settings, store, number, touched, sessions, dry_run=dry_run)
    run = nullcontext() if dry_run else store.runs.run("rollback", clock(), rolls_back=number)
    with run:
        results = change_each(chosen, undo)
        run_id = None if dry_run else store.runs.current
    done = [answer for answer, _ in results]
    late = [rewrite.name for _, rewrite in results if rewrite]
    done += [reports.SessionRollback(name, "failed", reason=UNFINISHED) for name in late]
    return reports.RollbackReport(undone, run_id, tuple(done))


def _extracted(store: Store, number: int) -> dict[int, list[Extraction]]:
    by_session: dict[int, list[Extraction]] = defaultdict(list)
    values = store.extractions.of_run(number)
    placed = store.placements.sessions_of(value.id for value in values)
    for value in values:
        # Forks and copies have the placeholders, too.
        for session_id in {value.session_id, *placed[value.id]}:
            by_session[session_id].append(value)
    return by_session


def _chosen(
    settings: Settings, store: Store, number: int, touched: Collection[int],
    names: Collection[str], *, dry_run: bool,
) -> list[Session]:  # fmt: skip
    while True:
        listed = all_sessions(settings, store, with_former_roots=True)
        sessions = [
            with_record(store, item, dry_run=dry_run) if item.record else item for item in listed
        ]
        pairs = zip(listed, sessions, strict=True)
        if all(not old.record or old.record.id == recorded(new).id for old, new in pairs):
            break  # otherwise, `with_record` has corrected the records: list the sessions again
    named = [part for name in names for part in session_among(sessions, name).parts]
    wanted = named or sessions
    changed = [item for item in wanted if item.record and item.record.id in touched]
    titles = {item.title for item in changed}
    if names and (untouched := next((one for one in wanted if one.title not in titles), None)):
        reason = f"{untouched.title} has no change of run {number} to roll back"
        raise NotFoundError(f"{reason}; `brainsurgeon history --events` lists the run's changes")
    return changed


def _answer(
    session: Session, plan: Plan, extracted: Collection[Extraction]
) -> reports.SessionRollback:
    restored = {edit.extraction_id for edit in plan.restorations}
    back = [value for value in extracted if value.id in restored]
    turns = {value.archive_id for value in back} - {None}
    explained = {entry for entry, _ in plan.handled.missed} | set(plan.handled.unfit)
    not_done = plan.not_done
    not_restored: Counter[str] = Counter()  # by reason
    for value in extracted:
        if value.id in restored or value.is_link:
            continue
        if value.replacement is not None and value.entry_id in plan.handled.unfit:
            not_done += (f"{value.entry_id}: {UNFIT}",)
        elif value.entry_id not in explained:
            turn = "" if value.archive_id is None else "archived turn, "
            why = RESTORED_SINCE if value.state == "restored" else CHANGED_SINCE
            not_restored[turn + (EXPIRED if value.blob_id is None else why)] += 1
    undone = plan.insertions_removed
    changed = back or undone or plan.handled.fields_gone
    return reports.SessionRollback(
        session.title, "rolled back" if changed else "nothing to undo",
        sum(value.archive_id is None for value in back), undone,
        tuple(dict.fromkeys(not_done)), turns_unarchived=len(turns), reasons=dict(not_restored),
    )  # fmt: skip
