"""Finish or undo what a crash left: at the start of every command that may write.

The file decides. If the session's name stands for the old file, the exchange never happened, and
what was recorded in advance goes; otherwise it counts. When in doubt it counts: a record without
a placeholder does no harm, a placeholder without a record could never be filled again.
"""

from __future__ import annotations

import os
import time
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from brainsurgeon.errors import BusyError
from brainsurgeon.model.reports import Recovery
from brainsurgeon.sessions import late_lines, retire
from brainsurgeon.sessions.late_lines import Ledger, Place, StaysError, inode
from brainsurgeon.sessions.opening import identity_at
from brainsurgeon.sessions.reading import open_below, open_plain
from brainsurgeon.sessions.row_writing import digests_at

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from brainsurgeon.model.records import OpenRewrite
    from brainsurgeon.model.sessions import End
    from brainsurgeon.sessions.row_writing import Digests
    from brainsurgeon.store import Store


# A step is one transaction, so that either all of its rows say what they were to say, or none does.
# Where that cannot be told any more, because the agent rewrote or deleted them, what was cut counts
# as done and what was put back does not: a record without a placeholder is idle, a placeholder
# without a record would be lost, and so would a request that nobody fulfilled.


def resolve_rows(store: Store, rewrite: OpenRewrite) -> str:
    """Resolve one interrupted step, or say why it is left; its session's lock is held."""
    path = rewrite.directory
    if not os.path.lexists(path):
        if not os.path.isdir(rewrite.root):
            return "its root is not there now; left for the next run"
        settle(store, rewrite, {})
        return "its database is gone; what was cut stays in the store"
    try:
        said = digests_at(rewrite.root, path, rewrite.name, numbers(rewrite))
    except OSError as error:
        return f"its database cannot be read now ({error.strerror}); left for the next run"
    return "finished" if settle(store, rewrite, said) else "undone"


def numbers(rewrite: OpenRewrite) -> list[int]:
    """Return the numbers of the events that a step was to change."""
    return [seq for seq, _, _ in rewrite.confirmation.rows]


def settle(store: Store, rewrite: OpenRewrite, said: Digests) -> bool:
    """Make the records say what happened, and return whether the step did; the journal is closed.

    `said` is what its rows say now.
    """
    note = rewrite.confirmation
    happened = all(said.get(seq) != before for seq, before, _ in note.rows)
    if not any(said.get(seq) == after for seq, _, after in note.rows):
        note = replace(note, put_back=[], fields_gone=[], requests=[], restored=[])
    with store.transaction():
        if happened:
            store.journal.confirm(rewrite.id, rewrite.session_id, note)
        else:
            store.journal.forget(rewrite.id)
        store.journal.close(rewrite.id)
    return happened


_WAIT = 2.0
# Seconds for which whoever has the old file open is waited for, once.


class JournalLedger(Ledger):
    """Takes down in the journal what is moved."""

    def __init__(self, store: Store, journal_id: int, begun: int | None = None) -> None:
        self._store, self._id, self.begun = store, journal_id, begun

    def note(self, ends: Mapping[int, End], moving_to: int | None = None) -> None:
        """Note how files (by inode) end, and to which of them lines are about to be moved."""
        with self._store.transaction():
            self._store.journal.note(self._id, ends, moving_to)
        self.begun = None


@contextmanager
def noting_what_stays(store: Store, journal_id: int) -> Iterator[None]:
    """Note in the journal why an old file cannot go now, or never will."""
    try:
        yield
    except StaysError as error:
        ended_at = time.time() if error.ended else None
        with store.transaction():
            store.journal.stays(journal_id, error.strerror or "", ended_at)
        raise


def waiting(store: Store) -> list[str]:
    """Return the paths of the rewrites that were interrupted, touching nothing."""
    return [rewrite.path for rewrite in store.journal.open_rewrites()]


def recover(store: Store) -> list[Recovery]:
    """Resolve every interrupted rewrite whose writer is dead; the living ones hold their lock.

    One that has ended with both files there costs a look whether they still are.
    """
    resolved = []
    for rewrite in store.journal.open_rewrites():
        if rewrite.ended_at is not None and os.path.lexists(rewrite.beside):
            continue
        with suppress(BusyError), store.lock(rewrite.session_id, patience=0):
            still_open = {other.id for other in store.journal.open_rewrites()}
            if rewrite.id in still_open:
                what = resolve(store, rewrite)
                if not rewrite.stays or not what.startswith(rewrite.stays):  # said once
                    resolved.append(Recovery(rewrite.path, what))
    return resolved


def resolve(store: Store, rewrite: OpenRewrite, opened: int | None = None) -> str:
    """Finish or undo one rewrite, and say what became of it; the caller holds its session's lock.

    `opened` is a descriptor of ours on the old file, if there is one: while it is open, a lease
    can be had through no other.
    """
    if rewrite.in_database:
        return resolve_rows(store, rewrite)
    try:
        directory = open_below(rewrite.root, rewrite.directory)
    except (FileNotFoundError, NotADirectoryError):
        if not os.path.isdir(rewrite.root):
            return "its root is not there now; left for the next run"
        _make_records_true(store, rewrite, exchanged=True)
        with store.transaction():
            store.journal.close(rewrite.id)
        return "its directory is gone; what was cut stays in the store"
    except OSError as error:
        return f"its directory cannot be opened ({error.strerror}); left for the next run"
    try:
        return _resolve_files(store, rewrite, directory, opened)
    except OSError as error:
        return f"it cannot be finished now ({error.strerror}); left for the next run"
    finally:
        os.close(directory)


def _under_its_name(store: Store, directory: int, rewrite: OpenRewrite) -> OpenRewrite:
    """Find the session under another name in its directory, where somebody renamed it."""
    if _which(directory, rewrite.name, rewrite) in ("none", "other"):
        for name in os.listdir(directory):
            ours = name.startswith(rewrite.temporary)
            if not ours and _is_the_session(store, directory, name, rewrite):
                return replace(rewrite, name=name)
    return rewrite


def _is_the_session(store: Store, directory: int, name: str, rewrite: OpenRewrite) -> bool:
    """Check whether a name stands for the session of a rewrite, by the inode and by what it says.

    Where the session was deleted, another one may have got the number of its inode.
    """
    which = _which(directory, name, rewrite)
    if which not in ("old", "new"):
        return False
    record = store.sessions.known(rewrite.session_id)
    descriptor = open_plain(name, directory)
    try:
        if late_lines.goes_on(descriptor, rewrite.ends[which == "new"]):
            return True
        said = identity_at(descriptor, record.format or "auto")
        return said is not None and said == record.identity
    finally:
        os.close(descriptor)


def _resolve_files(store: Store, rewrite: OpenRewrite, directory: int, opened: int | None) -> str:
    """Decide by what the two names stand for, and commit that before a file goes.

    The number of an inode that is freed may be given out again at once: nothing may depend on it
    any more by the time the old file is removed.
    """
    rewrite = _under_its_name(store, directory, rewrite)
    name = _which(directory, rewrite.name, rewrite)
    temporary = _which(directory, rewrite.temporary, rewrite)
    ledger = JournalLedger(store, rewrite.id, rewrite.moving_to)
    place = Place(directory, rewrite.name, rewrite.temporary, ledger)
    if name == "new" and temporary == "other":  # the agent's file came in between: give it back
        place.exchange_names()
        name, temporary = "other", "new"
    # Where neither file is here any more, their directory was moved: in doubt it counts.
    moved_away = name != "old" and temporary == "none" and rewrite.new_inode is not None
    displaced = name != "old" and temporary == "old"
    exchanged = rewrite.confirmed or name == "new" or displaced or moved_away
    _make_records_true(store, rewrite, exchanged=exchanged)
    if rewrite.new_inode is None:  # the new file was never whole, nobody can have seen it
        retire.remove(directory, rewrite.temporary)
        saved = 0
    else:
        swapped = temporary == "old"
        ends = rewrite.ends if swapped else rewrite.ends[::-1]
        wait = 0.0 if rewrite.stays else _WAIT
        try:
            with noting_what_stays(store, rewrite.id):
                saved = retire.retire(
                    place, ends=ends,
                    deadline=time.monotonic() + wait, leased=opened if swapped else None,
                    mate=rewrite.new_inode if swapped else rewrite.inode, shared=not swapped,
                    crashed=True,
                )  # fmt: skip
        except StaysError as error:
            then = "both files stay" if error.ended else "left for the next run"
            return f"{error.strerror}; {then}"
    with store.transaction():
        store.journal.close(rewrite.id)
    late = f", {saved} late bytes moved over" if saved else ""
    return ("finished" if exchanged else "undone") + late


def _which(directory: int, name: str, rewrite: OpenRewrite) -> str:
    """Return which file a name stands for: the old one, the new one, another, or none.

    Numbers of devices are not compared: they may change with every start of the system.
    """
    number = inode(directory, name)
    if number is None:
        return "none"
    return {rewrite.inode: "old", rewrite.new_inode: "new"}.get(number, "other")


def _make_records_true(store: Store, rewrite: OpenRewrite, *, exchanged: bool) -> None:
    """Make the records say what happened; the rewrite stays open until the old file is gone."""
    if rewrite.confirmed:
        return
    with store.transaction():
        if exchanged:
            store.journal.confirm(rewrite.id, rewrite.session_id, rewrite.confirmation)
        elif rewrite.new_inode is None:
            store.journal.forget(rewrite.id)
        else:
            store.journal.keep(rewrite.id)
