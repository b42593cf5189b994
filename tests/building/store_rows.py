"""Rows of a store, as a rewrite writes them."""

import os

from brainsurgeon.model.entries import id_named, placeholder_named, placeholder_token
from brainsurgeon.model.plans import Removal
from brainsurgeon.model.session_files import Fingerprint, SessionFile
from brainsurgeon.store import journal

OPEN_STORE = (
    "globals().update(room=__import__('brainsurgeon.store', fromlist=['x']))",
    "globals().update(store=room.open_store({directory!r}))",
)


def read_state_files(directory):
    """Read every file of a state directory except the locks."""
    files = {}
    for name in sorted(os.listdir(directory)):
        path = os.path.join(directory, name)
        if name != "locks" and os.path.isfile(path):
            with open(path, "rb") as handle:
                files[name] = handle.read()
    return files


def pragma(store, name):
    return store._connection.execute(f"PRAGMA {name}").fetchone()[0]


def count_rows(store, table):
    return store._connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]


def is_restorable(store, placeholder):
    """Check whether the store holds the bytes of every value that a placeholder names."""
    rows = store._connection.execute(
        "SELECT blob_id, digest FROM extractions WHERE name = ? AND replacement IS NULL"
        " AND blob_id IS NOT NULL AND journal_id IS NULL",
        (id_named(placeholder),),
    ).fetchall()
    return bool(rows) and all(store.blobs.get(*row) for row in rows)


def session_file(session="one", agent="main", root="/agents"):
    home = f"{root}/{agent}"
    state = Fingerprint(1, 2, 3000, 4, 5)
    return SessionFile(root, f"{home}/sessions", f"{session}.jsonl", agent, home, "auto", state)


def store_session(store, **where):
    with store.transaction():
        return store.sessions.note(session_file(**where), "openclaw", None)


def removal(entry="e1", path=("message", "content", 0, "text")):
    token = placeholder_token(placeholder_named(entry), block=False)
    return Removal(
        entry, entry, path, "tool_result", "exec", 7, block=False, call=None, parent=None,
        rest=None, tokens=0, start=0, end=9, new=token, forced=False, reason="old",
    )  # fmt: skip


def store_extraction(store, row, entry, cut, value, **columns):
    """Store a value and its record, as a rewrite does."""
    blob, digest, _ = store.blobs.put(value)
    if cut.contains_name:
        cut = cut.with_name(store.placeholders.name(cut.name, cut.path, (blob, digest)))
    rest = {"session_id": row.id, "journal_id": entry, "extracted_at": 1.0}
    known = {"blob_id": blob, "digest": digest, "size": len(value)}
    store.extractions.add(cut, **rest | known | columns)


def begin_rewrite(store, row, cuts=(), value=b"value", note=None):
    """Begin a rewrite: store values, placeholders, extractions and the journal entry."""
    with store.transaction():
        note = note or journal.Confirmation()
        entry = store.journal.begin(row.id, session_file(), ".brainsurgeon-0.tmp", note)
        for cut in cuts:
            store_extraction(store, row, entry, cut, value, run_id=note.run_id)
    return entry


def confirm_rewrite(store, row, entry, note=None):
    with store.transaction():
        store.journal.confirm(entry, row.id, note or journal.Confirmation(at=2.0))


def extract(store, row, *removals, value=b"value"):
    confirm_rewrite(store, row, begin_rewrite(store, row, removals, value))
