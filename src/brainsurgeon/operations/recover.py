"""Finish or undo what a crash left: at the start of every command that may write.

The file decides. If the session's name stands for the old inode, the exchange never happened and
the pending rows go; otherwise they count. When in doubt they count: a row without a stub is idle,
a stub without a row would be lost.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from brainsurgeon.errors import Busy
from brainsurgeon.sessions import leases, settling
from brainsurgeon.sessions.reading import open_below
from brainsurgeon.store import journal

if TYPE_CHECKING:
    from brainsurgeon.store import Store

_WAIT = 2.0


@dataclass(frozen=True, slots=True)
class Recovered:
    """One interrupted rewrite: which session's, and what became of it."""

    path: str
    what: str


def waiting(store: Store) -> list[str]:
    """Give the paths of the rewrites that were interrupted, touching nothing."""
    return [f"{row.directory}/{row.name}" for row in journal.open_rows(store.connection)]


def roots_waiting(store: Store) -> set[str]:
    """Give the roots below which rewrites are under way or were interrupted."""
    return {row.root for row in journal.open_rows(store.connection)}


def recover(store: Store) -> list[Recovered]:
    """Resolve every interrupted rewrite whose writer is dead; the living ones hold their lock."""
    resolved = []
    for row in journal.open_rows(store.connection):
        with suppress(Busy), store.lock(row.session_id, patience=0):
            still_open = {other.id for other in journal.open_rows(store.connection)}
            if row.id in still_open:
                resolved.append(Recovered(f"{row.directory}/{row.name}", resolve(store, row)))
    return resolved


def resolve(store: Store, row: journal.Open, opened: int | None = None) -> str:
    """Resolve one rewrite; its session's lock is held.

    `opened` is a descriptor of ours on the old file, which would keep the lease from any other.
    """
    try:
        directory = open_below(row.root, row.directory)
    except (FileNotFoundError, NotADirectoryError):
        if not os.path.isdir(row.root):
            return "its root is not there now; left for the next run"
        _settle_rows(store, row, exchanged=True)
        with store.transaction() as connection:
            journal.close(connection, row.id)
        return "its directory is gone; what was cut stays in the store"
    except OSError as error:
        return f"its directory cannot be opened ({error.strerror}); left for the next run"
    try:
        return _resolve_files(store, row, directory, opened)
    except OSError as error:
        return f"it cannot be finished now ({error.strerror}); left for the next run"
    finally:
        os.close(directory)


def _resolve_files(store: Store, row: journal.Open, directory: int, opened: int | None) -> str:
    """Decide by what the two names stand for, and commit that before a file goes.

    An inode number that is freed may be given out again at once, so that nothing may depend on
    it any more when the old file is removed.
    """
    settling.put_old_name_back(directory, row.temporary)
    name = _which(directory, row.name, row)
    temporary = _which(directory, row.temporary, row)
    if name == "new" and temporary == "other":  # the agent's file came in between: give it back
        leases.exchange(directory, row.temporary, row.name)
        os.fsync(directory)
        name, temporary = "other", "new"
    exchanged = row.confirmed or name == "new" or (name != "old" and temporary == "old")
    _settle_rows(store, row, exchanged=exchanged)
    if row.new_inode is None:  # the new file was never whole, nobody can have seen it
        settling.remove(directory, row.temporary)
        saved = 0
    else:
        swapped = temporary == "old"
        ends = row.ends if swapped else row.ends[::-1]
        try:
            saved = settling.settle(
                directory, row.name, row.temporary, ends=ends,
                deadline=time.monotonic() + _WAIT, leased=opened if swapped else None,
                mate=row.new_inode if swapped else row.inode,
            )  # fmt: skip
        except settling.StillOpenError as error:
            return f"{error.strerror}; left for the next run"
    with store.transaction() as connection:
        journal.close(connection, row.id)
    late = f", {saved} late bytes moved over" if saved else ""
    return ("finished" if exchanged else "undone") + late


def _which(directory: int, name: str, row: journal.Open) -> str:
    """Tell what a name stands for: the old file, the new one, another, or none."""
    try:
        status = os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return "none"
    if status.st_dev != row.device:
        return "other"
    return {row.inode: "old", row.new_inode: "new"}.get(status.st_ino, "other")


def _settle_rows(store: Store, row: journal.Open, *, exchanged: bool) -> None:
    """Make the rows say what happened; the journal's row stays until the files are in order."""
    if row.confirmed:
        return
    with store.transaction() as connection:
        if exchanged:
            journal.confirm(connection, row.id, row.session_id, row.note)
        elif row.new_inode is None:
            journal.forget(connection, row.id)
        else:
            journal.idle(connection, row.id)
