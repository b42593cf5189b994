"""Carry out one plan in a database of its agent: shelve what is cut, then change the rows.

The same order as with files, a few rows at a time, from the newest to the oldest: each of these
steps is a rewrite of its own, with its own entry in the journal, so that one that is refused in
the middle leaves a session that is valid and records that are true. Its requests are ended with
the last step.
"""

from __future__ import annotations

import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from brainsurgeon.errors import (
    BrainsurgeonError,
    BusyError,
    FailedError,
    StoreFullError,
    StoreUnusableError,
)
from brainsurgeon.hosts import openclaw_database
from brainsurgeon.hosts.openclaw_database import Database
from brainsurgeon.hosts.openclaw_gate import Gate, after_our_write, fence
from brainsurgeon.hosts.openclaw_schema import Payload
from brainsurgeon.model.text import counted
from brainsurgeon.rewrite import recover
from brainsurgeon.rewrite.shelving import (
    check_still_so,
    confirmation_of,
    note_fields,
    shelve,
    value_of,
)
from brainsurgeon.sessions import row_writing
from brainsurgeon.sessions.reading import RefusedError
from brainsurgeon.sessions.row_listing import digest, fingerprint
from brainsurgeon.sessions.row_writing import by_row, chunks, digests, rewritten

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from brainsurgeon.hosts.openclaw_gate import Window
    from brainsurgeon.model.plans import Edit, Plan
    from brainsurgeon.model.records import SessionRecord
    from brainsurgeon.model.sessions import Fingerprint
    from brainsurgeon.rewrite.inspect import Examination
    from brainsurgeon.rewrite.shelving import Values
    from brainsurgeon.sessions.row_session import OpenRows
    from brainsurgeon.sessions.row_writing import RowEdit, RowPlan, RowWriter
    from brainsurgeon.store import Store


@dataclass(frozen=True, slots=True)
class RowsRewrite:
    """A session whose rows were changed: there is nothing to clean up afterwards.

    `done` are the edits that were carried out, and `left` says why not all of them were, or is
    None. `stored` counts the bytes that the store grew by.
    """

    name: str
    fingerprint: Fingerprint
    stored: int
    done: tuple[Edit, ...]
    left: str | None
    due: float = 0.0

    def finish(self, *, hurry: bool = False) -> bool:  # noqa: ARG002  as that of a file
        """Return that nothing is left behind."""
        return True


def apply_rows(
    store: Store, one: Examination, session: OpenRows, record: SessionRecord, plan: Plan,
    clock: Callable[[], float], values: Values | None = None,
) -> RowsRewrite:  # fmt: skip
    """Carry out a plan, or raise RefusedError or BusyError with the session untouched.

    `values` are stored values that were read already. Raise BusyError when another process of
    ours holds the session. After any other exception the journal is resolved as after a crash:
    the rows decide whether the step happened.
    """
    with store.lock(record.id, check_stop=session.check_stop):
        session.release()
        with row_writing.writing(session.file.directory) as writer:
            return _Steps(store, one, session, record, clock, values or {}, writer).run(plan)


class _Steps:
    """The steps in which one plan is carried out."""

    def __init__(
        self, store: Store, one: Examination, session: OpenRows, record: SessionRecord,
        clock: Callable[[], float], values: Values, writer: RowWriter,
    ) -> None:  # fmt: skip
        self._store, self._one, self._session, self._record = store, one, session, record
        self._clock, self._writer = clock, writer
        self._lines = session.lines.over(writer.database)
        self._value_of = value_of(store, values)
        self._window: Window = session.window
        self._own = session.file.own_ms
        self._stored = 0

    def run(self, plan: Plan) -> RowsRewrite:
        """Take the steps, until one is refused."""
        done: list[Edit] = []
        changed, left = 0, None
        steps = list(chunks(by_row(self._lines.index, plan.edits)))
        path = self._session.file.directory
        for number, step in enumerate(steps, 1):
            part = _part(plan, step, last=number == len(steps))
            if done:
                time.sleep(row_writing.PAUSE)
            try:
                self._take(step, part)
            except (RefusedError, BusyError) as why:
                if not done:
                    raise
                left = str(why)
                break
            except (FailedError, StoreFullError, StoreUnusableError, OSError) as why:
                if not done:
                    raise
                raise _later(why, path, changed) from why
            done += part.edits
            changed += len(step)
        size = self._session.fingerprint.size - sum(edit.gain for edit in done)
        mark = fingerprint(path, self._window, size, self._own)
        return RowsRewrite(self._session.file.name, mark, self._stored, tuple(done), left)

    def _take(self, step: Sequence[RowPlan], part: Plan) -> None:
        """Take one step, or raise RefusedError or BusyError with its rows as they were."""
        store, ident, now = self._store, self._record.id, self._one.now
        before = {row.place.seq: self._lines.row(row.place) for row in step}
        shelf = shelve(store, _reader(step, before), part)
        named = [replace(row, edits=tuple(shelf.named(row.edits))) for row in step]
        edits = [self._edit(row, before[row.place.seq]) for row in named]
        told = [(e.seq, _told(e.before), _told(e.after)) for e in edits]
        confirmation = replace(confirmation_of(part, now), rows=told)
        with store.transaction():
            check_still_so(store, self._record, part, shelf)
            confirmation = replace(confirmation, run_id=store.runs.number())
            journal_id = store.journal.begin(ident, self._session.file, "", confirmation)
            store.extractions.add(ident, journal_id, shelf, now, confirmation.run_id)
            note_fields(store, ident, journal_id, part.fields, confirmation.run_id)
            self._keep_columns(ident, step, before)
        with self._resolved_whatever_happens(journal_id):
            gate = self._gate()
            written = self._writer.change(
                self._session.file.name, edits, gate, durable=_durable(part), clock=self._clock,
                compressing=self._session.schema.compressing,
            )  # fmt: skip
            with store.transaction():
                store.journal.confirm(journal_id, ident, confirmation)
                standing = set(part.sighted) - set(confirmation.put_back)
                store.placements.record(ident, standing, part.gone, part.missing, now)
                store.rows.wrote(ident, written.at)
                store.journal.close(journal_id)
        self._window = after_our_write(self._window, written.at, written.generation)
        self._own = written.at
        self._stored += shelf.stored

    def _edit(self, row: RowPlan, before: Payload) -> RowEdit:
        compressing = self._session.schema.compressing
        return rewritten(before, row, self._value_of, self._original, compressing=compressing)

    def _original(self, text: bytes) -> Payload | None:
        """Return the columns in which the agent itself kept a text, if we still have them."""
        columns = self._store.rows.columns(digest(text))
        if columns is None:
            return None
        packed, size, navigation = columns
        return Payload(text if packed is None else None, packed, size, navigation)

    def _keep_columns(
        self, ident: int, step: Sequence[RowPlan], before: dict[int, Payload]
    ) -> None:
        compressing = self._session.schema.compressing
        for row in step:
            columns = before[row.place.seq]
            if not columns.is_plain(compressing=compressing):
                entry = row.edits[0].entry_id
                kept = columns.packed, columns.size, columns.navigation
                self._store.rows.keep(ident, entry, digest(columns.event()), kept)

    def _gate(self) -> Callable[..., str | None]:
        """Return what is asked once more under the lock; who is at work is looked up before."""
        seen, database = self._session.presence, Database.of(self._session.file)
        presence = openclaw_database.presence(database.state_directory, database.path, opened=True)
        maintained = max(seen.maintained, presence.maintained)  # 0 where it cannot be read now
        owners = None if seen.owners is None else presence.owners  # a process out of our sight
        presence = replace(presence, owners=owners, maintained=maintained)
        gate = Gate(self._one.settings.quiet_seconds, presence, self._own)
        return fence(gate, self._window, self._session.schema, self._clock)

    @contextmanager
    def _resolved_whatever_happens(self, journal_id: int) -> Iterator[None]:
        """Leave the journal true, whether the step was refused or interrupted."""
        try:
            yield
        except RefusedError:
            with self._store.transaction():
                self._store.journal.abandon(journal_id)
            raise
        except BaseException:
            with suppress(Exception):
                rewrite = self._store.journal.rewrite(journal_id)
                seqs = recover.numbers(rewrite)
                said = digests(self._writer.database, rewrite.name, seqs)
                recover.settle(self._store, rewrite, said)
            raise


def _part(plan: Plan, step: Sequence[RowPlan], *, last: bool) -> Plan:
    """Return the share of a plan that one step carries out; the last one settles the requests."""
    in_place = sorted(step, key=lambda row: row.place.seq)
    edits = tuple(edit for row in in_place for edit in row.edits)
    part = replace(plan, edits=edits)
    if last:
        return part
    restored = tuple(dict.fromkeys(edit.entry_id for edit in part.putbacks))
    return replace(part, requests=(), sighted=(), gone=(), missing=(), restored=restored)


def _later(why: BrainsurgeonError | OSError, path: str, changed: int) -> BrainsurgeonError:
    """Return the error of a later step: what was changed in earlier ones stays so."""
    told, kind = str(why), FailedError if isinstance(why, OSError) else type(why)
    if isinstance(why, OSError):
        told = f"{path}: {why.strerror or type(why).__name__}"
    return kind(f"{counted(changed, 'row')} changed, then: {told}")


def _durable(part: Plan) -> bool:
    """Return whether a step must be durable: a cut whose commit is lost is no harm."""
    return len(part.extracted) != len(part.edits)


def _told(payload: Payload) -> str:
    return digest(payload.event()).hex()


def _reader(step: Sequence[RowPlan], before: dict[int, Payload]) -> Callable[[int, int], bytes]:
    """Return what reads bytes by offset out of the very columns that will be compared."""
    texts = sorted((row.place.offset, before[row.place.seq].event()) for row in step)

    def read(start: int, end: int) -> bytes:
        for offset, text in texts:
            if offset <= start and end <= offset + len(text):
                return text[start - offset : end - offset]
        raise ValueError("no row of this step holds that")

    return read
