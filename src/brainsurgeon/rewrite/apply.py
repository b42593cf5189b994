"""Carry out one plan: shelve what is cut, then replace the file.

Everything depends on the order. Cutting: the values, in short transactions (one that nothing names
does no harm), then what is recorded of them and of the rewrite in one commit, then the file.
Putting back: the file, then what is recorded. A value is durable before its stub is visible.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from brainsurgeon.errors import BrainsurgeonError, BusyError
from brainsurgeon.model.edits import Cut, FieldEdit
from brainsurgeon.model.records import Confirmation
from brainsurgeon.rewrite import recover
from brainsurgeon.sessions import exchange, retire
from brainsurgeon.sessions.moving import Place
from brainsurgeon.sessions.reading import RefusedError, RolledBackError
from brainsurgeon.sessions.temporary import new_temporary_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from brainsurgeon.model.plans import Plan
    from brainsurgeon.model.records import SessionRecord
    from brainsurgeon.model.sessions import End
    from brainsurgeon.rewrite.examine import Examination
    from brainsurgeon.sessions.exchange import Exchange
    from brainsurgeon.sessions.new_file import Splice
    from brainsurgeon.sessions.reading import OpenSession
    from brainsurgeon.store import Store

Values = Mapping[int, bytes]
"""Stored values that have been read already, by the id of their extraction."""
Shelved = tuple[Cut, int, bytes, int]
"""A cut with the id, the digest and the size in bytes of the value that it shelved."""
BATCH = 8 << 20
"""Compressed bytes after which a transaction of blobs is committed."""
_HURRY = 0.2
UNFINISHED = (
    "the old file stays beside the session, since somebody has it open; the next command ends it"
)


@dataclass(frozen=True, slots=True)
class Rewrite:
    """A session whose file was exchanged and whose old file is not gone yet.

    It holds the session's lock, and a descriptor of its directory, until it is finished.
    """

    store: Store
    journal_id: int
    directory: int
    name: str
    exchanged: Exchange
    stored: int
    held: ExitStack

    @property
    def due(self) -> float:
        """When (monotonic) the old file may be looked at for the last time."""
        return self.exchanged.at + retire.LOOK_BACK

    def finish(self, *, hurry: bool = False) -> bool:
        """Wait until the rewrite is due, remove the old file, let go of the session.

        With `hurry` (the program is being stopped) nothing is waited for. Return False where the
        old file cannot go now, above all because somebody keeps it open: then it stays, the
        journal goes on naming it, and the next recovery finishes.
        """
        with self.held:
            deadline = self.exchanged.at + retire.LOOK_BACK_LONGEST
            try:
                if hurry:
                    deadline = time.monotonic() + _HURRY
                else:
                    time.sleep(max(0.0, self.due - time.monotonic()))
                self._remove(deadline)
            except (OSError, BrainsurgeonError):
                return False
            except BaseException:
                with suppress(OSError, BrainsurgeonError):
                    self._remove(time.monotonic() + _HURRY)
                raise
        return True

    def _remove(self, deadline: float) -> None:
        """Remove the old file and close the journal."""
        ledger = recover.JournalLedger(self.store, self.journal_id)
        with recover.noting_what_stays(self.store, self.journal_id):
            retire.retire(
                Place(self.directory, self.name, self.exchanged.temporary, ledger),
                ends=self.exchanged.ends, deadline=deadline, mate=self.exchanged.fingerprint.inode,
            )  # fmt: skip
        with self.store.transaction():
            self.store.journal.close(self.journal_id)


def finish_now(rewrites: Iterable[Rewrite]) -> None:
    """Finish what can be finished at once, on the way out of a command that was told to stop."""
    for rewrite in rewrites:
        with suppress(Exception):
            rewrite.finish(hurry=True)


def apply(
    store: Store, one: Examination, record: SessionRecord, plan: Plan,
    clock: Callable[[], float], values: Values | None = None,
) -> Rewrite:  # fmt: skip
    """Carry out a plan for an examined session, or raise RefusedError with the file untouched.

    `values` are stored values that have been read already. Raise BusyError when another process
    of ours holds the session. After any other exception the rewrite is finished or undone as
    after a crash: the file decides whether it happened.
    """
    session, signs = one.session, one.signs(clock)
    with ExitStack() as held:
        held.enter_context(store.lock(record_id(record), check_stop=session.check_stop))
        _refuse_unfinished(store, record)
        begun = _begin(store, session, record, plan, one.now)
        with _resolved_whatever_happens(store, session, begun.journal_id):
            splices = _splices(store, plan, values or {})
            exchanged = exchange.replace(
                session, begun.temporary, splices, signs, one.silent,
                lambda inode, ends: _note_filled(store, begun.journal_id, inode, ends),
                recover.JournalLedger(store, begun.journal_id),
            )  # fmt: skip
            _confirm(store, record, begun, plan, exchanged, one.now)
        directory = os.dup(session.directory)
        held.callback(os.close, directory)
        return Rewrite(
            store, begun.journal_id, directory, session.file.name, exchanged, begun.stored,
            held.pop_all(),
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Begun:
    """A rewrite that is committed to the store and has not touched the file yet.

    `stored` is how many bytes the store grew by.
    """

    journal_id: int
    temporary: str
    confirmation: Confirmation
    stored: int


def _refuse_unfinished(store: Store, record: SessionRecord) -> None:
    """Raise RefusedError while an earlier rewrite of the session waits to be finished.

    One whose new file never was whole has left nothing in which somebody could have written.
    """
    if any(
        one.session_id == record.id and one.new_inode is not None
        for one in store.journal.open_rewrites()
    ):
        raise RefusedError("an earlier rewrite of it is not finished yet")


def _begin(
    store: Store, session: OpenSession, record: SessionRecord, plan: Plan, now: float
) -> _Begun:
    temporary = new_temporary_name()
    shelved, stored = _shelve(store, session, record, plan, now)
    confirmation = Confirmation(
        put_back=[edit.extraction_id for edit in plan.putbacks],
        fields_gone=[edit.undoes for edit in plan.fields if edit.undoes is not None],
        wishes=list(plan.wishes),
        restored=list(plan.restored),
        at=now,
    )
    ident = record_id(record)
    with store.transaction():
        _check_still_so(store, record, plan, shelved)
        journal_id = store.journal.begin(ident, session.file, temporary, confirmation)
        store.extractions.add(ident, journal_id, shelved, now)
        _note_fields(store, ident, journal_id, plan.fields)
    return _Begun(journal_id, temporary, confirmation, stored)


def _note_filled(store: Store, journal_id: int, inode: int, ends: tuple[End, End]) -> None:
    with store.transaction():
        store.journal.filled(journal_id, inode, ends)


def _confirm(
    store: Store, record: SessionRecord, begun: _Begun, plan: Plan, exchanged: Exchange, now: float
) -> None:
    with store.transaction():
        store.journal.confirm(begun.journal_id, record_id(record), begun.confirmation)
        store.sessions.stands_as(record_id(record), exchanged.fingerprint.place)
        store.journal.ended(begun.journal_id, exchanged.ends)
        store.extractions.sight(set(plan.sighted) - set(begun.confirmation.put_back), now)


@contextmanager
def _resolved_whatever_happens(
    store: Store, session: OpenSession, journal_id: int
) -> Iterator[None]:
    """Make the journal say what happened where the rewrite was refused, undone or interrupted."""
    try:
        yield
    except RolledBackError:
        with store.transaction():
            store.journal.idle(journal_id)
            store.journal.close(journal_id)
        raise
    except RefusedError:
        with store.transaction():
            store.journal.abandon(journal_id)
        raise
    except BaseException:  # being told to stop is one of these, and leaves nothing behind either
        with suppress(Exception):
            recover.resolve(store, store.journal.rewrite(journal_id), session.descriptor)
        raise


def record_id(record: SessionRecord) -> int:
    """Give the id of a session that is about to be changed; whoever changes one has recorded it."""
    if record.id is None:
        raise ValueError("a session without a record of its own cannot be changed")
    return record.id


def _shelve(
    store: Store, session: OpenSession, record: SessionRecord, plan: Plan, now: float
) -> tuple[list[Shelved], int]:
    """Store what will be cut, in short transactions; return it with the bytes written."""
    shelved: list[Shelved] = []
    total = 0
    cuts = iter(plan.cuts)
    for first in cuts:
        batch = 0
        with store.transaction():
            cut: Cut | None = first
            while cut is not None:
                value = session.read(cut.start, cut.end)
                blob, digest, written = store.blobs.put(record.agent_id, value, now)
                shelved.append((cut, blob, digest, len(value)))
                batch += written
                cut = next(cuts, None) if batch < BATCH else None
        total += batch
    return shelved, total


def _check_still_so(
    store: Store, record: SessionRecord, plan: Plan, shelved: Iterable[Shelved]
) -> None:
    """Raise BusyError when another process changed what this plan was built on."""
    for _, blob, digest, _ in shelved:
        if not store.blobs.holds(blob, record.agent_id, digest):
            raise BusyError("a value expired while it was being shelved; try again")
    if store.wishes.newest(record_id(record)) != plan.asked_until:
        raise BusyError("something was asked for meanwhile; try again")


def _note_fields(
    store: Store, session_id: int, journal_id: int, edits: Iterable[FieldEdit]
) -> None:
    """Record each field with what undoing it puts back: what stood there before any of ours."""
    known = {(one.entry_id, one.name): one for one in store.fields.of_session(session_id)}
    for edit in edits:
        if edit.undoes is not None:
            continue
        before, after = edit.before, edit.new
        placed = known.get((edit.entry_id, edit.name))
        if placed and edit.before is not None and placed.after.endswith(edit.before):
            before = placed.before
            after = placed.after[: -len(edit.before)] + edit.new
        value = edit.new if edit.before is not None else edit.new.split(b":", 1)[1]
        store.fields.add(
            session_id, journal_id, edit.entry_id, edit.name, before, after, value.decode()
        )


def _splices(store: Store, plan: Plan, values: Values) -> Iterator[Splice]:
    def value_of(extraction_id: int) -> bytes:
        known = values.get(extraction_id)
        return store.extractions.value(extraction_id) if known is None else known

    for edit in plan.edits:
        yield edit.start, edit.end, edit.bytes_after(value_of)
