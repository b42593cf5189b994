"""Carry out one plan: shelve what is cut, then replace the file.

The order is the whole safety of the house. Cutting: blobs in short transactions (orphans are
harmless), then the rows and the journal entry in one commit, then the file. Putting back: the
file, then the rows. A blob is durable before its stub is visible.
"""

from __future__ import annotations

import os
import secrets
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from brainsurgeon.errors import BrainsurgeonError, Busy
from brainsurgeon.model import Cut, FieldEdit
from brainsurgeon.operations import recover
from brainsurgeon.sessions import replacing, settling
from brainsurgeon.sessions.reading import Refused, RolledBack
from brainsurgeon.store import blobs, extractions, journal, wishes

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterable, Iterator

    from brainsurgeon.model import End, Plan
    from brainsurgeon.sessions.filling import Splice
    from brainsurgeon.sessions.reading import Opened
    from brainsurgeon.store import Store
    from brainsurgeon.store.extractions import SessionRow

_HURRY = 0.2
UNFINISHED = (
    "the old file stays beside the session, since somebody has it open; the next command ends it"
)
BATCH = 8 << 20
"""Compressed bytes after which a transaction of blobs is committed."""


@dataclass(frozen=True, slots=True)
class Rewrite:
    """A session that was replaced, until the old file is gone."""

    store: Store
    journal_id: int
    directory: int
    name: str
    exchanged: replacing.Exchanged
    stored: int
    held: ExitStack

    @property
    def due(self) -> float:
        """When (monotonic) the old file may be looked at for the last time."""
        return self.exchanged.at + settling.LOOK_BACK

    def finish(self, *, hurry: bool = False) -> bool:
        """Wait until then, remove the old file, close the journal, let go of the session.

        With `hurry` (the program is being stopped) the old file is looked at now or never.
        Return False when that cannot be done now, above all because somebody keeps the old file
        open: then it stays, and its journal row with it, and the next recovery finishes.
        """
        with self.held:
            deadline = self.exchanged.at + settling.LOOK_BACK_LONGEST
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
        settling.settle(
            self.directory, self.name, self.exchanged.temporary,
            ends=self.exchanged.ends, deadline=deadline,
            mate=self.exchanged.fingerprint.inode,
        )  # fmt: skip
        with self.store.transaction() as connection:
            journal.close(connection, self.journal_id)


def finish_now(rewrites: Iterable[Rewrite]) -> None:
    """Finish what can be finished at once, on the way out of a command that was told to stop."""
    for rewrite in rewrites:
        with suppress(Exception):
            rewrite.finish(hurry=True)


def operate(
    store: Store,
    session: Opened,
    row: SessionRow,
    plan: Plan,
    *,
    gate: Callable[[], str | None],
    quiet_for: float,
    now: float,
) -> Rewrite:
    """Carry out a plan, or raise Refused with the session untouched.

    Raise Busy when another process of ours holds the session. After any other exception the
    journal row is resolved as after a crash: the file decides whether the rewrite happened.
    """
    with ExitStack() as held:
        held.enter_context(store.lock(row.id, check=session.check))
        entry, exchanged, stored = _rewrite(store, session, row, plan, gate, quiet_for, now)
        directory = os.dup(session.directory)
        held.callback(os.close, directory)
        return Rewrite(
            store, entry, directory, session.found.name, exchanged, stored, held.pop_all()
        )


def _rewrite(
    store: Store, session: Opened, row: SessionRow, plan: Plan,
    gate: Callable[[], str | None], quiet_for: float, now: float,
) -> tuple[int, replacing.Exchanged, int]:  # fmt: skip
    temporary = f".brainsurgeon-{secrets.token_hex(8)}.tmp"
    shelved, stored = _shelve(store, session, row, plan, now)
    note = journal.Note(
        put_back=[edit.extraction_id for edit in plan.putbacks],
        fields_gone=[edit.undoes for edit in plan.fields if edit.undoes is not None],
        wishes=list(plan.wishes),
        restored=list(plan.restored),
        at=now,
    )
    with store.transaction() as connection:
        _check_still_so(connection, row, plan, shelved)
        entry = journal.begin(connection, row.id, session.found, temporary, note)
        extractions.add(connection, row.id, entry, shelved, now)
        _note_fields(connection, row, entry, plan.fields, now)

    def filled(inode: int, ends: tuple[End, End]) -> None:
        with store.transaction() as connection:
            journal.filled(connection, entry, inode, ends)

    try:
        exchanged = replacing.replace(
            session, temporary, _splices(store, plan), gate, quiet_for, filled
        )
        with store.transaction() as connection:
            journal.confirm(connection, entry, row.id, note)
            journal.ended(connection, entry, exchanged.ends)
            extractions.sight(connection, set(plan.sighted) - set(note.put_back), now)
    except RolledBack:
        with store.transaction() as connection:
            journal.idle(connection, entry)
            journal.close(connection, entry)
        raise
    except Refused:
        with store.transaction() as connection:
            journal.abandon(connection, entry)
        raise
    except BaseException:  # somebody who is told to stop leaves nothing behind, either
        with suppress(Exception):
            recover.resolve(store, journal.row(store.connection, entry), session.descriptor)
        raise
    return entry, exchanged, stored


def _shelve(
    store: Store, session: Opened, row: SessionRow, plan: Plan, now: float
) -> tuple[list[tuple[Cut, int, bytes, int]], int]:
    """Store what will be cut, in short transactions; return it with the bytes written."""
    shelved: list[tuple[Cut, int, bytes, int]] = []
    total = 0
    cuts = iter(plan.cuts)
    for first in cuts:
        batch = 0
        with store.transaction() as connection:
            cut: Cut | None = first
            while cut is not None:
                value = session.read(cut.start, cut.end)
                blob, digest, written = blobs.put(connection, row.agent_id, value, now)
                shelved.append((cut, blob, digest, len(value)))
                batch += written
                cut = next(cuts, None) if batch < BATCH else None
        total += batch
    return shelved, total


def _check_still_so(
    connection: sqlite3.Connection,
    row: SessionRow,
    plan: Plan,
    shelved: list[tuple[Cut, int, bytes, int]],
) -> None:
    """Raise Busy when another process changed what this plan was built on; nothing is lost."""
    for _, blob, digest, _ in shelved:
        if not blobs.holds(connection, blob, row.agent_id, digest):
            raise Busy("a value expired while it was being shelved; try again")
    if wishes.newest(connection, row.id) != plan.asked_until:
        raise Busy("something was asked for meanwhile; try again")


def _note_fields(
    connection: sqlite3.Connection,
    row: SessionRow,
    entry: int,
    edits: Iterable[FieldEdit],
    now: float,
) -> None:
    """Record each field with what undoing it puts back: what stood there before any of ours."""
    known = {(one.entry_id, one.name): one for one in extractions.fields(connection, row.id)}
    for edit in edits:
        if edit.undoes is not None:
            continue
        before, after = edit.before, edit.new
        placed = known.get((edit.entry_id, edit.name))
        if placed and edit.before is not None and placed.after.endswith(edit.before):
            before = placed.before
            after = placed.after[: -len(edit.before)] + edit.new
        value = edit.new if edit.before is not None else edit.new.split(b":", 1)[1]
        extractions.add_field(
            connection, row.id, entry, edit.entry_id, edit.name, before, after, value.decode(), now
        )


def _splices(store: Store, plan: Plan) -> Iterator[Splice]:
    for edit in plan.edits:
        if isinstance(edit, Cut | FieldEdit):
            yield edit.start, edit.end, edit.new
        else:
            yield edit.start, edit.end, extractions.value(store.connection, edit.extraction_id)
