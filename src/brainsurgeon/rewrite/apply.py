"""Carry out plans, in session files and in the rows of a database.

The order of the steps makes this safe. Extracted values, their records and a journal entry are
committed to the store before the file is exchanged. The records of restored values are changed
after the exchange. The records of a refused rewrite are removed, unless another process may have
read its placeholders.

A large commit costs as many syncs as a small one, about five. So several files share each commit,
but each file succeeds or fails by itself.
"""

import os
import sys
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from brainsurgeon import errors
from brainsurgeon.agents import rereads, rows, superseded
from brainsurgeon.agents.rows import OpenRows, RowsChangedError
from brainsurgeon.config import Settings
from brainsurgeon.files import exchange, retire
from brainsurgeon.files.exchange import Exchange, RolledBackError, Successor
from brainsurgeon.files.reading import ObstacleError, OpenFile, RefusedError
from brainsurgeon.lookup.owners import fields_of_entries
from brainsurgeon.lookup.sessions import note_within
from brainsurgeon.model.plans import Edit, Outcome, Plan, Removal, bytes_after, gain
from brainsurgeon.model.records import Confirmation, FieldRecord, Request, SessionRecord
from brainsurgeon.model.session_files import NotIdleError, SessionFile
from brainsurgeon.model.text import counted
from brainsurgeon.planning.row_steps import RowKey, RowPlan, by_row, chunks
from brainsurgeon.planning.signatures import is_bound
from brainsurgeon.rewrite import recover
from brainsurgeon.rewrite.inspect import (
    LEASED,
    Examination,
    ExaminationPlanner,
    agent_of,
    busy_check_of,
    check_mount,
    examine_quiet,
)
from brainsurgeon.rewrite.recover import TOGETHER, FileRewrite, Rewrite, finish_now
from brainsurgeon.rewrite.signals import count_savings
from brainsurgeon.sessions.discovery import current_state, failed
from brainsurgeon.store import Store
from brainsurgeon.store.database import STORE_LOCK_SECONDS

BATCH = 8 << 20  # compressed bytes after which a transaction of values is committed


class Change(Struct, frozen=True):
    """A plan to carry out in a session that is open and idle."""

    examined: Examination
    plan: Plan

    @property
    def session_id(self) -> int:
        if self.examined.record is None:
            raise ValueError("a session without a record cannot be changed")
        return self.examined.record.id


class ExtractedValues:
    def __init__(
        self, store: Store, change: Change, read: Callable[[int, int], bytes], temporary: str = ""
    ) -> None:
        self._store, self._change, self._read, self._temporary = store, change, read, temporary
        self.waiting = deque(change.plan.removals)
        self._foreign = frozenset(change.plan.placeholders.foreign)
        self._named: dict[int, Removal] = {}
        self._archives: dict[str, int] = {}
        self._recorded: dict[object, int] = {}  # ids of records, by what names a value
        self.stored = 0
        self.journal_id, self.confirmation = 0, Confirmation()  # valid after the first commit

    def put(self, room: int = sys.maxsize) -> int:
        """Store values until `room` bytes are written. Return the number of bytes written.

        If the caller's transaction fails, this object must not be used again.
        Raises BusyError if, since planning, a request was recorded or a value has expired.
        """
        if not self.journal_id:
            self._begin()
        written = 0
        while self.waiting and written < room:
            written += self._put(self.waiting.popleft())
        handled = self._change.plan.handled
        if self._store.requests.newest(self._change.session_id) > handled.asked_until:
            why = "another request for this session was recorded meanwhile; try again"
            raise errors.BusyError(why)
        self.stored += written
        return written

    def _begin(self) -> None:
        change, store = self._change, self._store
        plan, ident, run_id = change.plan, change.session_id, store.runs.number()
        self.confirmation = Confirmation(
            restored_ids=[edit.extraction_id for edit in plan.restorations],
            fields_gone=[
                *(edit.undoes for edit in plan.fields if edit.undoes is not None),
                *plan.handled.fields_gone,
            ],
            requests=list(plan.handled.requests),
            restored=list(plan.handled.restored),
            at=change.examined.now,
            run_id=run_id,
        )
        self.journal_id = store.journal.begin(
            ident, change.examined.session.file, self._temporary, self.confirmation
        )
        self._archives = store.archives.add(ident, plan.archives, change.examined.now, run_id)
        _note_fields(store, self._change, self.journal_id, run_id)

    def _put(self, removal: Removal) -> int:
        store, written = self._store, 0
        if removal.takes_over is not None:
            blob, digest, size = store.extractions.stored(
                removal.takes_over, "a value expired while another was about to take it over"
            )
        else:
            content = self._read(removal.start, removal.end)
            blob, digest, written = store.blobs.put(content)
            size = len(content)
        if removal.contains_name:
            name = store.placeholders.name(
                removal.name, removal.path, (blob, digest), self._foreign,
                reused=removal.rest is not None,
            )  # fmt: skip
            if name != removal.name:
                removal = self._named[removal.start] = removal.with_name(name)
        archived = removal.how == "archive"
        value = removal.entry_id, removal.name, removal.path, removal.call, removal.rest
        if removal.how == "extract" and value in self._recorded:  # a copy of it
            store.extractions.copy(self._recorded[value], removal)
            return written
        self._recorded[value] = store.extractions.add(
            removal, session_id=self._change.session_id, journal_id=self.journal_id,
            run_id=self.confirmation.run_id, blob_id=blob, digest=digest, size=size,
            archive_id=self._archives.get(removal.entry_id) if archived else None,
            extracted_at=self._change.examined.now,
        )  # fmt: skip
        return written

    def with_names(self, edits: Iterable[Edit]) -> Iterator[Edit]:
        for edit in edits:
            yield self._named.get(edit.start, edit) if isinstance(edit, Removal) else edit


def _note_fields(store: Store, change: Change, journal_id: int, run_id: int | None) -> None:
    """Record edited fields, so that an undo of a second edit also undoes the first."""
    session_id, edits, examined = change.session_id, change.plan.fields, change.examined
    place = replace(examined.place, record=store.sessions.by_id(session_id))
    entries = {edit.entry_id for edit in edits}
    records = defaultdict[tuple[str, str, bytes], list[FieldRecord]](list)  # newest last
    for record in fields_of_entries(store, place, entries, examined.form):
        records[record.entry_id, record.name, record.value.encode()].append(record)
    for edit in edits:
        if edit.undoes is not None:
            continue
        before, after = edit.before, edit.new
        value = after if before is not None else after.split(b":", 1)[1]
        same = records.get((edit.entry_id, edit.name, before or b""), [])
        # An entry of another session may have the same id by chance. If the record is of another,
        # or undone, the user may have written the same value.
        ours = (
            one for one in reversed(same) if one.session_id == session_id
            or (one.rest == edit.rest and (edit.as_ours or one.before is not None))
        )  # fmt: skip
        earlier = next(ours, None)
        if earlier and before is not None:
            after = earlier.after.removesuffix(before) + after
            before = earlier.before
        store.fields.add(FieldRecord(
            0, session_id, edit.entry_id, edit.name, before, after, value.decode(), run_id,
            edit.rest,
        ), journal_id)  # fmt: skip


def _confirm(store: Store, change: Change, extracted: ExtractedValues) -> None:
    ident, plan, confirmation = change.session_id, change.plan, extracted.confirmation
    store.journal.confirm(extracted.journal_id, ident, confirmation)
    seen = plan.placeholders
    standing = set(seen.here) - set(confirmation.restored_ids)
    store.placements.record(ident, standing, seen.gone, seen.missing, change.examined.now)


class Attempt:
    """Closing `held` releases the session's lock."""

    def __init__(
        self, store: Store, change: Change, session: OpenFile, clock: Callable[[], float]
    ) -> None:
        self.store, self.change, self.session = store, change, session
        self.busy_check = busy_check_of(session, change.examined.settings, clock)
        self.temporary = exchange.new_temporary_name()
        self.held = ExitStack()
        self.extracted = ExtractedValues(store, change, session.read, self.temporary)
        self.journal_id = 0  # 0 until the journal entry is committed
        self.directory = -1
        self.successor: Successor | None = None
        self.result: Rewrite | Exception | None = None

    def lock(self, patience: float) -> None:
        ident, session = self.change.session_id, self.session
        self.held.enter_context(self.store.lock(ident, patience, session.check_stop))
        if any(
            # A rewrite without `new_inode` did not exchange the names.
            rewrite.new_inode is not None and rewrite.ended_at is None
            and rewrite.directory == session.file.directory
            for rewrite in self.store.journal.open_rewrites(ident)
        ):  # fmt: skip
            raise RefusedError("an earlier rewrite of it is not finished yet")
        exchange.check_closed(session)

    def write_new_file(self) -> Successor:
        self.directory = os.dup(self.session.directory)
        self.held.callback(os.close, self.directory)
        splices = (
            (edit.start, edit.end, bytes_after(edit, self.store.extractions.value))
            for edit in self.extracted.with_names(self.change.plan.edits)
        )
        ledger = recover.JournalLedger(self.store, self.journal_id)
        self.successor = exchange.prepare(
            self.session, self.temporary, splices, self.busy_check, ledger
        )
        return self.successor

    def record(self, outcome: Exchange | Exception | None) -> None:
        journal, journal_id = self.store.journal, self.journal_id
        if isinstance(outcome, RolledBackError):
            journal.keep(journal_id)
            journal.close(journal_id)
        elif isinstance(outcome, RefusedError):
            journal.abandon(journal_id)
        elif isinstance(outcome, Exchange):
            _confirm(self.store, self.change, self.extracted)
            journal.update(journal_id, ends=outcome.pair.ends, moving_to=None)

    def set_result(self, outcome: Exchange | Exception | None) -> None:
        if isinstance(outcome, Exchange):
            self.result = FileRewrite(
                self.session.file.name, outcome.fingerprint, self.extracted.stored,
                tuple(self.extracted.with_names(self.change.plan.edits)),
                due=outcome.at + retire.LOOK_BACK, store=self.store, journal_id=self.journal_id,
                pair=replace(outcome.pair, directory=self.directory), held=self.held.pop_all(),
                mend=self.mend,
            )  # fmt: skip
            return
        self.result = outcome
        if isinstance(outcome, RolledBackError):
            with suppress(Exception):  # the next scan does it, too
                self.mend()
        elif outcome is not None and not isinstance(outcome, RefusedError):
            self.resolve()

    def mend(self) -> None:
        if self.successor and self.successor.moved is not None:
            agent_of(self.session).presence.mend(self.session.file.path)

    def close(self) -> None:
        if self.successor:
            self.successor.close()

    def resolve(self) -> None:
        if not self.journal_id or isinstance(self.result, Rewrite):
            return
        self.close()  # our own descriptor would prevent the lease
        with suppress(Exception):
            rewrite = self.store.journal.rewrite(self.journal_id)
            recover.resolve(self.store, rewrite, self.session.descriptor)


_UNCONFIRMED = 0.05  # seconds after which exchanges are recorded before others begin


def apply(
    store: Store, changes: Sequence[Change], clock: Callable[[], float]
) -> list[Rewrite | Exception]:
    """Carry out plans. Return, for each session, its rewrite or the error that prevented it.

    After RefusedError, the session is unchanged. After any other error, the rewrite is finished or
    undone as after a crash, at the latest by the next recovery.
    """
    try:
        changes = _recorded(store, changes)
    except errors.StoppedError:
        raise
    except Exception as error:  # noqa: BLE001  one by one, only the culprit fails
        if len(changes) == 1:
            return [error]
        return [apply(store, [change], clock)[0] for change in changes]
    attempts = [
        Attempt(store, change, session, clock)
        if isinstance(session := change.examined.session, OpenFile)
        else _RowsAttempt(store, change, session, clock)
        for change in changes
    ]  # fmt: skip
    files = [attempt for attempt in attempts if isinstance(attempt, Attempt)]
    try:
        _replace_files(store, files)
    finally:
        for attempt in files:
            attempt.held.close()
    results: list[Rewrite | Exception] = []
    for tried in attempts:
        try:
            if isinstance(tried, _RowsAttempt):
                results.append(tried.run())
            elif tried.result or len(files) == 1:
                why = "its rewrite was not begun; try again"
                results.append(tried.result or errors.BusyError(why))
            else:  # its session was locked, or the shared transaction failed
                results += apply(store, [tried.change], clock)
        except Exception as error:  # noqa: BLE001  the other sessions are changed all the same
            results.append(error)
    return results


def _recorded(store: Store, changes: Sequence[Change]) -> list[Change]:
    complete = all(change.examined.record for change in changes)
    with nullcontext() if complete else store.transaction():
        return [
            change if (examined := change.examined).record else replace(
                change, examined=replace(examined, record=note_within(store, examined.session))
            )
            for change in changes
        ]  # fmt: skip


def _replace_files(store: Store, attempts: list[Attempt]) -> None:
    try:
        locked = _lock(attempts)
        if locked and _store_values(store, locked, is_only=len(attempts) == 1):
            _exchange(store, _write_new_files(store, locked))
    except BaseException:  # also when the program is being stopped
        for attempt in attempts:
            attempt.resolve()
        finish_now(attempt.result for attempt in attempts if isinstance(attempt.result, Rewrite))
        raise
    finally:
        for attempt in attempts:
            attempt.close()


def _lock(attempts: list[Attempt]) -> list[Attempt]:
    """Wait only for a single session: otherwise two runs could deadlock."""
    is_only, locked = len(attempts) == 1, list[Attempt]()
    for attempt in attempts:
        if attempt.change.session_id in [other.change.session_id for other in locked]:
            continue  # another file of a session that we have locked
        try:
            attempt.lock(STORE_LOCK_SECONDS if is_only else 0.0)
            locked.append(attempt)
        except errors.StoppedError:
            raise
        except Exception as error:  # noqa: BLE001  it is the result of this attempt
            if is_only or not isinstance(error, errors.BusyError):
                attempt.result = error
    return locked


def _store_values(store: Store, locked: list[Attempt], *, is_only: bool) -> bool:
    try:
        waiting = locked
        while waiting:
            with store.transaction():
                room = BATCH
                for attempt in waiting:
                    room -= attempt.extracted.put(room)
            for attempt in waiting:
                attempt.journal_id = attempt.extracted.journal_id
            waiting = [attempt for attempt in waiting if attempt.extracted.waiting]
    except errors.StoppedError:
        raise
    except Exception as error:  # noqa: BLE001  it is the result
        for attempt in locked:
            attempt.resolve()
        if is_only:  # several sessions without a result are tried again, one by one
            locked[0].result = error
        return False
    return True


def _write_new_files(store: Store, locked: list[Attempt]) -> list[tuple[Attempt, Successor]]:
    """Record that the new files are complete before any is exchanged."""
    written = []
    for attempt in locked:
        try:
            written.append((attempt, attempt.write_new_file()))
        except errors.StoppedError:
            raise
        except Exception as error:  # noqa: BLE001  it is the result
            _record_results(store, [(attempt, error)])
    try:
        with store.transaction():
            for attempt, successor in written:
                store.journal.update(
                    attempt.journal_id,
                    new_inode=successor.inode,
                    ends=successor.ends,
                    moves=successor.moved is not None,
                )
    except Exception as error:  # noqa: BLE001  it is the result
        for attempt, successor in written:
            successor.refused(error)
            attempt.set_result(error)
        return []
    return written


def _exchange(store: Store, written: list[tuple[Attempt, Successor]]) -> None:
    attempts = {id(successor): attempt for attempt, successor in written}
    outcomes: list[tuple[Attempt, Exchange | Exception | None]] = []
    since = time.monotonic()
    for group in exchange.grouped_by_directory([successor for _, successor in written]):
        exchange.replace(group)
        for successor in group:
            attempt = attempts[id(successor)]
            outcomes.append((attempt, successor.result))
            attempt.close()
        if time.monotonic() > since + _UNCONFIRMED:
            _record_results(store, outcomes)
            outcomes, since = [], time.monotonic()
    _record_results(store, outcomes)


def _record_results(
    store: Store, outcomes: list[tuple[Attempt, Exchange | Exception | None]]
) -> None:
    if not outcomes:
        return
    try:
        with store.transaction():
            for attempt, outcome in outcomes:
                attempt.record(outcome)
    except Exception as error:  # noqa: BLE001  it is the result
        if isinstance(error, errors.StoreFullError):
            then = "The session was replaced; the next command completes the rewrite"
            error = errors.StoreFullError(f"{error}. {then}")
        for attempt, outcome in outcomes:
            attempt.result = outcome if isinstance(outcome, Exception) else error
            attempt.resolve()
        return
    for attempt, outcome in outcomes:
        attempt.set_result(outcome)


class _RowsAttempt:
    """Changes a session in a database, in steps of a few rows.

    Each step is a rewrite with its own journal entry, and leaves a valid session.
    """

    def __init__(
        self, store: Store, change: Change, session: OpenRows, clock: Callable[[], float]
    ) -> None:
        self._store, self._change, self._session = store, change, session
        self._clock, self._lines = clock, session.lines
        self._stored = 0

    def run(self) -> Rewrite:
        session = self._session
        lock = self._store.lock(self._change.session_id, check_stop=session.check_stop)
        with lock, session.writing():
            return self._carry_out()

    def _carry_out(self) -> Rewrite:
        done: list[Edit] = []
        changed, why_partial, plan = 0, None, self._change.plan
        steps = list(chunks(by_row(self._lines.index, plan.edits)))
        path = self._session.file.directory
        for step in steps:
            part = _part(plan, step, last=step is steps[-1])
            if done:
                time.sleep(rows.PAUSE)
            try:
                done += self._carry_out_step(step, replace(self._change, plan=part))
            except (
                RefusedError, errors.BusyError, errors.FailedError, errors.StoreFullError,
                errors.StoreUnusableError, OSError,
            ) as why:  # fmt: skip
                if not done:
                    raise
                if isinstance(why, RefusedError | errors.BusyError):
                    why_partial = str(why)
                    break
                kind, text = type(why), str(why)
                if isinstance(why, OSError):
                    kind, text = errors.FailedError, f"{path}: {why.strerror or type(why).__name__}"
                raise kind(f"{counted(changed, 'row')} changed, then: {text}") from why
            changed += len(step)
        size = self._session.fingerprint.size - gain(done)
        return Rewrite(
            self._session.file.name, self._session.fingerprint_of(size), self._stored, tuple(done),
            why_partial, own_ms=self._session.own_ms,
        )  # fmt: skip

    def _carry_out_step(self, step: Sequence[RowPlan], change: Change) -> Sequence[Edit]:
        """Return the edits as they were made. After RefusedError, the rows are unchanged."""
        store, ident, part, session = self._store, change.session_id, change.plan, self._session
        before = {row.span.key: self._lines.row(row.span) for row in step}
        texts = {key: state.line() for key, state in before.items()}
        extracted = ExtractedValues(store, change, partial(self._read, texts))
        with store.transaction():
            extracted.put()
            edits = [
                session.edit_of(
                    replace(row, edits=tuple(extracted.with_names(row.edits))),
                    before[row.span.key], store.extractions.value,
                ) for row in step
            ]  # fmt: skip
            digests = [
                (edit.key, edit.before.digest.hex(), edit.after.digest.hex()) for edit in edits
            ]
            noted = replace(extracted.confirmation, rows=digests)
            store.journal.update(extracted.journal_id, confirmation=noted)
        try:
            # A restored value may be deleted from the store, so the commit must be durable. After a
            # lost extraction, the original is in the row again.
            durable = len(part.extracted) != len(part.edits)
            quiet = change.examined.settings.quiet
            at_once = (
                part.only_restores and session.databases.rereads and not _binds(change.examined)
            )
            fence = session.fence_of_restore() if at_once else session.fence(quiet, self._clock)
            session.change(edits, fence, self._clock, durable=durable)
            with store.transaction():
                _confirm(store, change, extracted)
                if session.own_ms is not None:
                    store.rows.wrote(ident, session.own_ms)
                store.journal.close(extracted.journal_id)
        except RefusedError:
            with store.transaction():
                store.journal.abandon(extracted.journal_id)
            raise
        except BaseException:
            with suppress(Exception):
                recover.resolve(store, store.journal.rewrite(extracted.journal_id))
            raise
        self._stored += extracted.stored
        return [*extracted.with_names(part.edits)]

    def _read(self, texts: dict[RowKey, bytes], start: int, end: int) -> bytes:
        span = self._lines.index[self._lines.index.at(start)]
        return texts[span.key][start - span.offset : end - span.offset]


def _part(plan: Plan, step: Sequence[RowPlan], *, last: bool) -> Plan:
    """Only the last part of a plan ends requests."""
    rows = sorted(step, key=lambda row: row.span.offset)
    part = replace(plan, edits=tuple(edit for row in rows for edit in row.edits))
    if last:
        return part
    restored = tuple(dict.fromkeys(edit.entry_id for edit in part.restorations))
    handled = replace(part.handled, requests=(), restored=restored, fields_gone=())
    placeholders = replace(part.placeholders, here=(), gone=(), missing=())
    return replace(part, placeholders=placeholders, handled=handled)


_MOST_BYTES = 8 << 20  # of waiting files: their plans are in memory
_LONGEST = 0.5  # seconds after which waiting sessions are changed


class Planned(Change, frozen=True):
    """The session is open until `held` is closed."""

    outcome: Outcome
    held: ExitStack

    @property
    def file(self) -> SessionFile:
        return self.examined.session.file


class Batch:
    """A few planned sessions, which stay open until they are changed together."""

    def __init__(self) -> None:
        self._waiting: list[Planned] = []
        self._since = 0.0

    @property
    def is_full(self) -> bool:
        files = [planned.file for planned in self._waiting]
        return bool(files) and (
            # While the database is open, its agent cannot truncate the write-ahead log.
            any(file.in_database for file in files)
            or time.monotonic() > self._since + _LONGEST
            or len(files) >= TOGETHER
            or sum(file.fingerprint.size for file in files) >= _MOST_BYTES
        )

    def leaves_room(self, file: SessionFile) -> bool:
        return not self._waiting or file.fingerprint.size < _MOST_BYTES

    def add(self, planned: Planned) -> None:
        self._since = self._since if self._waiting else time.monotonic()
        self._waiting.append(planned)

    def close(self) -> None:
        with self.take():
            pass

    @contextmanager
    def take(self) -> Iterator[list[Planned]]:
        waiting, self._waiting = self._waiting, []
        with ExitStack() as held:
            for planned in waiting:
                held.push(planned.held)
            yield waiting


def _check_changeable(change: Change) -> None:
    """Raise NotIdleError or ObstacleError if a plan has to wait."""
    if change.plan.deferred:
        raise NotIdleError(change.plan.deferred)
    if change.plan.edits:
        check_mount(change.examined.session)


def _check_applicable(change: Change) -> None:
    """Raise the errors that `apply_quiet` would raise, as far as that can be known."""
    _check_changeable(change)
    session = change.examined.session
    if change.plan.edits and isinstance(session, OpenFile):
        try:
            exchange.check_closed(session)
        except RefusedError as why:
            raise NotIdleError(str(why)) from why


def apply_quiet(store: Store, change: Change, clock: Callable[[], float]) -> Rewrite | None:
    """Carry out a plan. Raises NotIdleError if all of it, or a part, has to wait."""
    _check_changeable(change)
    examined, plan = change.examined, change.plan
    if not plan.edits:
        if plan.handled.fields_gone:
            with store.transaction():
                store.fields.undo(change.session_id, plan.handled.fields_gone)
                store.files.forget([examined.session.file.path])  # else it counts as unchanged
        return None
    savings = count_savings(examined, plan)
    [result] = apply(store, [change], clock)
    if isinstance(result, RefusedError):  # temporary: the session was valid when examined
        raise NotIdleError(str(result)) from result
    if isinstance(result, Exception):
        raise result
    if savings:
        made = replace(plan, edits=result.done)
        try:
            with store.transaction():
                store.savings.remember(change.session_id, made.savings_after(savings, examined.now))
        except BaseException:  # the caller gets no result to finish
            finish_now([result])
            raise
    if result.why_partial:
        raise NotIdleError(result.why_partial)
    return result


@contextmanager
def examine_to_change(
    settings: Settings, store: Store, file: SessionFile, clock: Callable[[], float], *,
    at_work: bool = False,
) -> Iterator[Examination]:  # fmt: skip
    """Open a session to change it. With `at_work`, it need not be idle."""
    try:
        now_there = current_state(file)
        with examine_quiet(settings, store, now_there, clock(), at_work=at_work) as examined:
            if not at_work:
                examined.check_turn()
            yield examined
    except BlockingIOError as why:
        raise NotIdleError(LEASED) from why
    except (errors.BusyError, RowsChangedError) as why:
        raise NotIdleError(str(why)) from why
    except RefusedError as why:
        if superseded(file):
            text = f"{why}; `brainsurgeon show` still prints the value"
            raise errors.MovedError(text, file.title) from why
        raise failed(file.title, why) from why
    except FileNotFoundError as why:
        text = "its file is gone; `brainsurgeon show` still prints the extracted values"
        raise errors.GoneError(text, file.title) from why
    except OSError as why:
        raise failed(file.title, why) from why


def carry_out(
    settings: Settings, store: Store, file: SessionFile, record: SessionRecord,
    asked: tuple[Request, ...], clock: Callable[[], float], *, dry_run: bool = False,
) -> tuple[Plan, Rewrite | None]:  # fmt: skip
    """Carry out `asked` and pending requests; extract nothing. The caller finishes the rewrite.

    If an agent at work would see restored values at once, they do not wait: other requests do.
    With `dry_run`, nothing is written, and the same errors are raised.
    """
    at_work = bool(asked) and all(one.action == "restore" for one in asked) and rereads(file)
    for left in range(_ATTEMPTS if at_work else 1, 0, -1):
        opened = examine_to_change(settings, store, file, clock, at_work=at_work)
        try:
            with opened as found:
                examined = replace(found, record=record, asked=asked)
                plan = _plan_of_requests(examined, at_work=at_work)
                change = Change(examined, plan)
                if dry_run:
                    _check_applicable(change)
                    return plan, None
                return plan, apply_quiet(store, change, clock)
        except NotIdleError:
            if left == 1:
                raise
    raise AssertionError  # the last attempt returns or raises


_ATTEMPTS = 5  # to restore while an agent writes other rows


def _plan_of_requests(examined: Examination, *, at_work: bool) -> Plan:
    """Plan the requests. Raises NotIdleError if the plan has to wait."""
    if not at_work:
        return ExaminationPlanner(examined, examined.records, extract=False).plan()
    try:
        examined.check_idle()
        return ExaminationPlanner(examined, examined.records, extract=False).plan()
    except (NotIdleError, ObstacleError):
        if _binds(examined):
            examined.check_turn()
        restores = [one for one in examined.records.requests if one.action == "restore"]
        records = replace(examined.records, requests=tuple(restores))
        plan = ExaminationPlanner(examined, records, extract=False).plan()
        if not plan.only_restores:
            raise
        return plan


def _binds(examined: Examination) -> bool:
    """Check whether an answer that is being made would be signed with the values as they are.

    No row shows its thinking yet. A value that comes back meanwhile would break the signature.
    """
    session, rules = examined.session, examined.settings.decision_rules()
    if not isinstance(session, OpenRows):
        return False
    thoughts = [entry.thoughts for entry in examined.transcript.entries if entry.thoughts]
    by_form = bool(thoughts) and thoughts[-1].bound
    return is_bound([session.model or ""], rules.signed_models, by_form=by_form)
