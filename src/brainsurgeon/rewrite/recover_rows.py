"""Find out what became of an interrupted change of rows: the rows themselves tell.

A step is one transaction, so that either all of its rows say what they were to say, or none does.
Where that cannot be told any more, because the agent rewrote or deleted them, what was cut counts
as done and what was put back does not: a record without a stub is idle, a stub without a record
would be lost, and so would a wish that nobody fulfilled.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

from brainsurgeon.sessions.row_digests import digests_at

if TYPE_CHECKING:
    from brainsurgeon.model.records import OpenRewrite
    from brainsurgeon.sessions.row_digests import Digests
    from brainsurgeon.store import Store


def resolve(store: Store, rewrite: OpenRewrite) -> str:
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
        note = replace(note, put_back=[], fields_gone=[], wishes=[], restored=[])
    with store.transaction():
        if happened:
            store.journal.confirm(rewrite.id, rewrite.session_id, note)
        else:
            store.journal.forget(rewrite.id)
        store.journal.close(rewrite.id)
    return happened
