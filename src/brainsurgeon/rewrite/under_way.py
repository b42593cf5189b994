"""One change of a session on its way: what it holds, and what of it is part of which commit."""

from __future__ import annotations

from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from brainsurgeon.rewrite import recover
from brainsurgeon.rewrite.finishing import Directories, Rewrite
from brainsurgeon.rewrite.shelving import (
    Shelf,
    check_still_so,
    confirmation_of,
    note_fields,
    value_of,
)
from brainsurgeon.sessions import exchange
from brainsurgeon.sessions.exchange import Exchange
from brainsurgeon.sessions.reading import RefusedError, RolledBackError
from brainsurgeon.sessions.temporary import new_temporary_name

if TYPE_CHECKING:
    from collections.abc import Callable

    from brainsurgeon.model.plans import Plan
    from brainsurgeon.model.records import Confirmation, SessionRecord
    from brainsurgeon.model.sessions import Signs
    from brainsurgeon.rewrite.examine import Examination
    from brainsurgeon.rewrite.shelving import Values
    from brainsurgeon.sessions.exchange import Successor
    from brainsurgeon.sessions.reading import OpenSession
    from brainsurgeon.store import Store


@dataclass(frozen=True, slots=True)
class Change:
    """A plan for an examined session; `values` are stored values that have been read already."""

    one: Examination
    session: OpenSession
    record: SessionRecord
    plan: Plan
    values: Values = field(default_factory=dict)


class Way:
    """One change on its way: what it holds (its session's lock, its files), and what came of it."""

    def __init__(self, store: Store, change: Change, clock: Callable[[], float]) -> None:
        self.store, self.change = store, change
        self.ident = change.record.id
        self.signs: Signs = change.one.signs(change.session, clock)
        self.confirmation: Confirmation = confirmation_of(change.plan, change.one.now)
        self.temporary = new_temporary_name()
        self.held = ExitStack()
        self.shelf = Shelf(store, change.session.read, change.plan)
        self.journal_id: int | None = None
        self.directory = -1
        self.successor: Successor | None = None
        self.done: Rewrite | Exception | None = None

    def lock(self, patience: float) -> None:
        """Take the session's lock; refuse one that somebody has open, or that is being rewritten.

        An earlier rewrite of it may wait to be finished.
        """
        check_stop = self.change.session.check_stop
        self.held.enter_context(self.store.lock(self.ident, patience, check_stop))
        # One whose new file never was whole has left nothing in which somebody could have written.
        if any(one.new_inode is not None for one in self.store.journal.open_rewrites(self.ident)):
            raise RefusedError("an earlier rewrite of it is not finished yet")
        exchange.check_closed(self.change.session)

    def begin(self) -> int:
        """Record what is shelved and that the rewrite begins; part of a transaction."""
        store, change = self.store, self.change
        check_still_so(store, change.record, change.plan, self.shelf)
        made_by = store.passes.number()
        self.confirmation = replace(self.confirmation, pass_id=made_by)
        journal_id = store.journal.begin(
            self.ident, change.session.file, self.temporary, self.confirmation
        )
        now = change.one.now
        archives = store.archives.add(self.ident, change.plan.archives, now, made_by)
        store.extractions.add(self.ident, journal_id, self.shelf, now, made_by, archives)
        note_fields(store, self.ident, journal_id, change.plan.fields, made_by)
        return journal_id

    def fill(self, directories: Directories) -> Successor:
        """Write the new file."""
        change = self.change
        self.directory = directories.hold(change.session.directory, self.held)
        value = value_of(self.store, change.values)
        edits = self.shelf.named(change.plan.edits)
        splices = ((edit.start, edit.end, edit.bytes_after(value)) for edit in edits)
        self.successor = exchange.succeed(change.session, self.temporary, splices)
        return self.successor

    def settle(self, journal_id: int, came: Exchange | Exception | None) -> None:
        """Make the records say what came of the exchange; part of a transaction."""
        journal, plan = self.store.journal, self.change.plan
        if isinstance(came, RolledBackError):
            journal.idle(journal_id)
            journal.close(journal_id)
        elif isinstance(came, RefusedError):
            journal.abandon(journal_id)
        elif isinstance(came, Exchange):
            journal.confirm(journal_id, self.ident, self.confirmation)
            journal.ended(journal_id, came.ends)
            standing = set(plan.sighted) - set(self.confirmation.put_back)
            self.store.placements.record(
                self.ident, standing, plan.gone, plan.missing, self.change.one.now
            )

    def end(self, came: Exchange | Exception | None) -> None:
        """Hand what is held to the rewrite, or end it as after a crash."""
        if isinstance(came, Exchange) and self.journal_id is not None:
            self.done = Rewrite(
                self.store, self.journal_id, self.directory, self.change.session.file.name, came,
                self.shelf.stored, self.held.pop_all(),
            )  # fmt: skip
        elif isinstance(came, Exception):
            self.fail(came)

    def fail(self, why: Exception) -> None:
        """End it with an error, finished or undone as after a crash."""
        self.done = why
        if not isinstance(why, RefusedError):
            self.resolve()

    def close(self) -> None:
        """Close the new file."""
        if self.successor:
            self.successor.close()

    def resolve(self) -> None:
        """Finish or undo what was begun and is nobody else's to finish."""
        if self.journal_id is None or isinstance(self.done, Rewrite):
            return
        self.close()  # or it would wait for ourselves
        with suppress(Exception):
            rewrite = self.store.journal.rewrite(self.journal_id)
            recover.resolve(self.store, rewrite, self.change.session.descriptor)
