"""Carry out plans: shelve what is cut, then replace the files.

Everything depends on the order. Cutting: the values, in short transactions (one that nothing names
does no harm), then what is recorded of them and of the rewrite in one commit, then the file.
Putting back: the file, then what is recorded. A value is durable before its placeholder is visible.

Several sessions may go this way side by side: each step of theirs is one commit, and each of them
stands or falls by itself.
"""

from __future__ import annotations

import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from brainsurgeon.errors import BusyError, StoppedError
from brainsurgeon.rewrite import recover
from brainsurgeon.rewrite.finish import Directories, Rewrite, finish_now
from brainsurgeon.rewrite.shelving import (
    BATCH,
    Shelf,
    check_still_so,
    confirmation_of,
    note_fields,
    value_of,
)
from brainsurgeon.sessions import exchange
from brainsurgeon.sessions.exchange import Candidate, Exchange, new_temporary_name
from brainsurgeon.sessions.reading import RefusedError, RolledBackError
from brainsurgeon.store.database import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from brainsurgeon.model.plans import Plan
    from brainsurgeon.model.records import Confirmation, SessionRecord
    from brainsurgeon.model.sessions import Signs
    from brainsurgeon.rewrite.inspect import Examination
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
        beside = self.change.session.file.directory
        if any(
            one.new_inode is not None and one.ended_at is None and one.directory == beside
            for one in self.store.journal.open_rewrites(self.ident)
        ):
            raise RefusedError("an earlier rewrite of it is not finished yet")
        exchange.check_closed(self.change.session)

    def begin(self) -> int:
        """Record what is shelved and that the rewrite begins; part of a transaction."""
        store, change = self.store, self.change
        check_still_so(store, change.record, change.plan, self.shelf)
        made_by = store.runs.number()
        self.confirmation = replace(self.confirmation, run_id=made_by)
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
            journal.keep(journal_id)
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


# Seconds after which a placeholder that stands is to be found in the store, whatever goes on.
_UNSAID = 0.05


def apply(store: Store, change: Change, clock: Callable[[], float]) -> Rewrite:
    """Carry out a plan for an examined session, or raise RefusedError with the file untouched.

    Raise BusyError when another process of ours holds the session. After any other exception the
    rewrite is finished or undone as after a crash: the file decides whether it happened.
    """
    [done] = apply_together(store, [change], clock)
    if isinstance(done, Exception):
        raise done
    return done


def apply_together(
    store: Store, changes: Sequence[Change], clock: Callable[[], float]
) -> list[Rewrite | Exception]:
    """Carry out plans for several sessions; give, for each, its rewrite or what `apply` raises.

    Where another process is in the way of some, or the store refuses them as a whole, they are
    carried out one by one.
    """
    ways = [Way(store, change, clock) for change in changes]
    try:
        _go(store, ways)
    finally:
        for way in ways:
            way.held.close()
    if len(ways) == 1:
        return [way.done or BusyError("it was not begun; try again") for way in ways]
    return [way.done or _alone(store, way.change, clock) for way in ways]


def _alone(store: Store, change: Change, clock: Callable[[], float]) -> Rewrite | Exception:
    try:
        return apply(store, change, clock)
    except Exception as error:  # noqa: BLE001  the others have their results
        return error


def _go(store: Store, ways: list[Way]) -> None:
    """Take each step together; those that are `done` or cannot go with the others stay behind."""
    alone = len(ways) == 1
    try:
        going = _lock(ways, patience=PATIENCE if alone else 0.0, alone=alone)
        if going and _begin(store, going, alone=alone):
            _replace(store, _fill(store, going))
    except BaseException:  # being told to stop is one of these, and leaves nothing behind either
        for way in ways:
            way.resolve()
        finish_now(way.done for way in ways if isinstance(way.done, Rewrite))
        raise
    finally:
        for way in ways:
            way.close()


def _lock(ways: list[Way], *, patience: float, alone: bool) -> list[Way]:
    """Lock the sessions; only one that goes alone is waited for: two runs must not cross."""
    going: list[Way] = []
    for way in ways:
        if way.ident in [other.ident for other in going]:
            continue  # two files of one session: our own lock would let the second run
        try:
            way.lock(patience)
            going.append(way)
        except StoppedError:
            raise
        except Exception as error:  # noqa: BLE001  it is given to whoever asked for the change
            if alone or not isinstance(error, BusyError):
                way.done = error
    return going


def _begin(store: Store, going: list[Way], *, alone: bool) -> bool:
    """Shelve what is cut; the last values share their commit with what is recorded of them.

    What goes wrong with one of several is found out where each goes alone.
    """
    try:
        ids: list[int] = []
        while not ids:
            with store.transaction():
                room = BATCH
                for way in going:
                    room -= way.shelf.put(room)
                if not any(way.shelf.left for way in going):
                    ids = [way.begin() for way in going]
    except StoppedError:
        raise
    except Exception as error:  # noqa: BLE001  as above
        if alone:
            going[0].done = error
        return False
    for way, journal_id in zip(going, ids, strict=True):
        way.journal_id = journal_id
    return True


def _fill(store: Store, going: list[Way]) -> list[tuple[Way, int, Successor]]:
    """Write the new files, and note that they are whole: from now on each may get its name."""
    filled, directories = [], Directories()
    for way in going:
        try:
            filled.append((way, way.journal_id or 0, way.fill(directories)))
        except StoppedError:
            raise
        except Exception as error:  # noqa: BLE001  as above
            _settle(store, [(way, way.journal_id or 0, error)])
    try:
        with store.transaction():
            for _, journal_id, new in filled:
                store.journal.filled(journal_id, new.inode, new.ends)
    except Exception as error:  # noqa: BLE001  as above
        for way, _, new in filled:
            new.refused(error)
            way.fail(error)
        return []
    return filled


def _replace(store: Store, filled: list[tuple[Way, int, Successor]]) -> None:
    """Exchange the files, and make the records say what came of it."""
    ways = {id(new): (way, journal_id, new) for way, journal_id, new in filled}
    candidates = [
        Candidate(new, way.signs, recover.JournalLedger(store, journal_id))
        for way, journal_id, new in filled
    ]
    came: list[tuple[Way, int, Exchange | Exception | None]] = []
    since = time.monotonic()
    for beside in exchange.by_directory(candidates):
        exchange.replace(beside)
        for way, journal_id, new in (ways[id(one.successor)] for one in beside):
            came.append((way, journal_id, new.result))
            way.close()
        if time.monotonic() > since + _UNSAID:
            _settle(store, came)
            came, since = [], time.monotonic()
    _settle(store, came)


def _settle(store: Store, came: list[tuple[Way, int, Exchange | Exception | None]]) -> None:
    if not came:
        return
    try:
        with store.transaction():
            for way, journal_id, what in came:
                way.settle(journal_id, what)
    except Exception as error:  # noqa: BLE001  as above
        for way, _, what in came:
            way.done = what if isinstance(what, Exception) else error
            way.resolve()
        return
    for way, _, what in came:
        way.end(what)
