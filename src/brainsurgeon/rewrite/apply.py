"""Carry out one plan: shelve what is cut, then replace the file.

Everything depends on the order. Cutting: the values, in short transactions (one that nothing names
does no harm), then what is recorded of them and of the rewrite in one commit, then the file.
Putting back: the file, then what is recorded. A value is durable before its stub is visible.
"""

from __future__ import annotations

import os
import time
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.rewrite import recover
from brainsurgeon.rewrite.shelving import (
    check_still_so,
    confirmation_of,
    note_fields,
    record_id,
    shelve,
    value_of,
)
from brainsurgeon.sessions import exchange, retire
from brainsurgeon.sessions.moving import Place
from brainsurgeon.sessions.reading import RefusedError, RolledBackError
from brainsurgeon.sessions.temporary import new_temporary_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from brainsurgeon.model.edits import Edit
    from brainsurgeon.model.plans import Plan
    from brainsurgeon.model.records import Confirmation, SessionRecord
    from brainsurgeon.model.sessions import End, Fingerprint
    from brainsurgeon.rewrite.examine import Examination
    from brainsurgeon.rewrite.shelving import Values
    from brainsurgeon.sessions.exchange import Exchange
    from brainsurgeon.sessions.reading import OpenSession
    from brainsurgeon.store import Store

_HURRY = 0.2
UNFINISHED = (
    "the old file stays beside the session, since somebody has it open; the next command ends it"
)


@dataclass(frozen=True, slots=True)
class Rewrite:
    """A session whose file was exchanged and whose old file is not gone yet.

    It holds the session's lock, and a descriptor of its directory, until it is finished.
    All of its plan was carried out, so that nothing is `left`.
    """

    store: Store
    journal_id: int
    directory: int
    name: str
    exchanged: Exchange
    stored: int
    held: ExitStack
    done: tuple[Edit, ...] = ()
    left: str | None = None

    @property
    def fingerprint(self) -> Fingerprint:
        """The state of the session as it was left."""
        return self.exchanged.fingerprint

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


class Finishing(Protocol):
    """A session that was changed, in either medium."""

    def finish(self, *, hurry: bool = False) -> bool:
        """Clean up; return False where that has to wait."""


def finish_now(rewrites: Iterable[Finishing]) -> None:
    """Finish what can be finished at once, on the way out of a command that was told to stop."""
    for rewrite in rewrites:
        with suppress(Exception):
            rewrite.finish(hurry=True)


def apply(
    store: Store, one: Examination, session: OpenSession, record: SessionRecord, plan: Plan,
    clock: Callable[[], float], values: Values | None = None,
) -> Rewrite:  # fmt: skip
    """Carry out a plan for an examined session, or raise RefusedError with the file untouched.

    `values` are stored values that have been read already. Raise BusyError when another process
    of ours holds the session. After any other exception the rewrite is finished or undone as
    after a crash: the file decides whether it happened.
    """
    signs = one.signs(session, clock)
    with ExitStack() as held:
        held.enter_context(store.lock(record_id(record), check_stop=session.check_stop))
        _refuse_unfinished(store, record)
        begun = _begin(store, session, record, plan, one.now)
        with _resolved_whatever_happens(store, session, begun.journal_id):
            value = value_of(store, values or {})
            splices = ((edit.start, edit.end, edit.bytes_after(value)) for edit in plan.edits)
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
    shelved, stored = shelve(store, session.read, record, plan, now)
    confirmation = confirmation_of(plan, now)
    ident = record_id(record)
    with store.transaction():
        check_still_so(store, record, plan, shelved)
        journal_id = store.journal.begin(ident, session.file, temporary, confirmation)
        store.extractions.add(ident, journal_id, shelved, now)
        note_fields(store, ident, journal_id, plan.fields)
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
        standing = set(plan.sighted) - set(begun.confirmation.put_back)
        store.extractions.sight(standing, now)
        store.extractions.stand(record.id, standing)
        store.extractions.stand_no_more(plan.gone)


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
