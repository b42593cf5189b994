"""The rewrites under way, and what becomes of their rows when one has happened or has not.

A row is open from the commit that shelves the originals until the old file is gone. Whoever finds
one and can take its session's lock knows that its writer died.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from brainsurgeon.model.records import Confirmation, OpenRewrite
from brainsurgeon.model.reports import TOKENS_PER_CHAR
from brainsurgeon.model.sessions import End
from brainsurgeon.store.archives import confirm_archives, forget_archives, ids_of, taken_back
from brainsurgeon.store.blobs import Blobs
from brainsurgeon.store.columns import signed, unsigned
from brainsurgeon.store.history import Events, add_up, drop_empty
from brainsurgeon.store.placeholders import Placements

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Mapping, Sequence

    from brainsurgeon.model.reports import EventKind
    from brainsurgeon.model.sessions import SessionFile


# Written in the transaction that makes the rewrite count, by whoever that is: the command itself,
# or after a crash the one that finishes it. So there is one telling for each rewrite.


# Thinking that was emptied has a replacement and is no redaction. What folds turns is told apart:
# there no value leaves.
_GROUPED = (
    "SELECT kind, tool, replacement IS NOT NULL AND kind != 'thinking', count(*), sum(chars),"
    " sum(size) FROM extractions WHERE archive_id IS NULL AND {where} GROUP BY 1, 2, 3"
    " ORDER BY 4 DESC, 1, 2"
)
_FOLDED = (
    "SELECT count(*), total(entries), total(tokens_before), total(tokens_after),"
    " total(coalesce(turns, 1))"
    " FROM archives WHERE id IN (SELECT value FROM json_each(?))"
)


class _Some(NamedTuple):
    """Values of one kind and tool; `redacted` are the agent's own calls."""

    kind: str
    tool: str | None
    redacted: int
    values: int
    chars: int
    size: int


def tell_rewrite(
    connection: sqlite3.Connection, journal_id: int, session_id: int, note: Confirmation
) -> None:
    """Write the events of a rewrite that is about to count, and add it to its run.

    A run that was lost with a damaged store cannot be named any more.
    """
    if not _count(connection, "runs WHERE id = ?", note.run_id):
        note = replace(note, run_id=None)
    taken = _grouped(connection, "journal_id = ?", journal_id)
    cut = [some for some in taken if not some.redacted]
    redacted = [some for some in taken if some.redacted]
    back = _those(connection, note.put_back)
    fields = _count(connection, "fields WHERE journal_id = ?", journal_id)
    undone = _rolled_back(connection, note)
    archived = _folded(connection, ids_of(connection, journal_id))
    unarchived = _folded(connection, taken_back(connection, note.put_back))
    known = "events WHERE run_id = ? AND session_id = ? LIMIT 1"
    again = _count(connection, known, note.run_id, session_id)
    chars = sum(some.chars for some in cut)
    add_up(
        connection, note.run_id, sessions=not again, extracted=_values(cut), chars=chars,
        tokens=round(chars * TOKENS_PER_CHAR), redacted=_values(redacted), restored=_values(back),
        fields=fields + len(note.fields_gone), archived=archived.get("archives", 0),
        folded=archived.get("turns_folded", 0), unarchived=unarchived.get("archives", 0),
        unfolded=unarchived.get("turns_folded", 0),
    )  # fmt: skip

    def tell(kind: EventKind, facts: dict[str, Any]) -> None:
        Events(connection).add(note.at, kind, session_id, facts, note.run_id)

    if cut:
        tell("extraction", _facts(cut))
    if archived:
        tell("archive", archived)
    if (taken or archived) and _relieves(connection, note):
        tell("relief", _facts(taken))
    if redacted:
        tell("redaction", _facts(redacted))
    if undone is not None:
        tell("rollback", _facts(back, rolls_back=undone, fields_changed=len(note.fields_gone)))
    elif back:
        tell("restoration", _facts(back))
    if unarchived:
        tell("unarchive", unarchived)


def _facts(what: Sequence[_Some], **more: Any) -> dict[str, Any]:
    by = [
        {"kind": one.kind, "tool": one.tool, "values": one.values, "chars": one.chars}
        for one in what
    ]
    return {
        "values": _values(what), "chars": sum(one.chars for one in what),
        "size_bytes": sum(one.size for one in what), "by": by, **more,
    }  # fmt: skip


def _folded(connection: sqlite3.Connection, ids: Sequence[int]) -> dict[str, Any]:
    """Return what archives come to; nothing where there are none."""
    if not ids:
        return {}
    names = ("archives", "entries", "tokens_before", "tokens_after", "turns_folded")
    row = connection.execute(_FOLDED, (json.dumps(list(ids)),)).fetchone()
    return {name: int(number) for name, number in zip(names, row, strict=True)}


def _rolled_back(connection: sqlite3.Connection, note: Confirmation) -> int | None:
    """Return the run that a rewrite undoes: by its own run, or by a request that it fulfils."""
    if not (note.put_back or note.fields_gone):
        return None
    of_run = connection.execute(
        "SELECT json_extract(facts, '$.rolls_back') FROM runs WHERE id = ?", (note.run_id,)
    ).fetchone()
    if of_run and of_run[0] is not None:
        return int(of_run[0])
    row = connection.execute(
        "SELECT max(rolls_back) FROM requests WHERE id IN (SELECT value FROM json_each(?))",
        (json.dumps(note.requests),),
    ).fetchone()
    return None if row[0] is None else int(row[0])


def _relieves(connection: sqlite3.Connection, note: Confirmation) -> bool:
    """Check whether a rewrite is a relief: by its run, or by a request that it fulfils."""
    row = connection.execute(
        "SELECT EXISTS (SELECT 1 FROM runs WHERE id = ? AND command = 'relieve')"
        " OR EXISTS (SELECT 1 FROM requests WHERE action = 'relieve'"
        " AND id IN (SELECT value FROM json_each(?)))",
        (note.run_id, json.dumps(note.requests)),
    ).fetchone()
    return bool(row[0])


def _grouped(connection: sqlite3.Connection, where: str, value: object) -> list[_Some]:
    rows = connection.execute(_GROUPED.format(where=where), (value,))
    return [_Some(*row) for row in rows]


def _those(connection: sqlite3.Connection, ids: list[int]) -> list[_Some]:
    named = "id IN (SELECT value FROM json_each(?))"
    return _grouped(connection, named, json.dumps(ids)) if ids else []


def _values(some: Sequence[_Some]) -> int:
    return sum(one.values for one in some)


def _count(connection: sqlite3.Connection, what: str, *values: object) -> int:
    statement = f"SELECT count(*) FROM (SELECT 1 FROM {what})"  # noqa: S608
    return int(connection.execute(statement, values).fetchone()[0])


_ROW = (
    "SELECT id, session_id, root, directory, name, temporary, inode,"
    " new_inode, old_size, old_mark, new_size, new_mark, confirmed, note, moving_to, stays,"
    " ended_at FROM journal"
)


def _rewrite(row: tuple[Any, ...]) -> OpenRewrite:
    values = list(row)
    values[2:5] = (os.fsdecode(value) for value in row[2:5])
    values[6:8] = (None if value is None else unsigned(value) for value in row[6:8])
    values[8:] = (
        (End(*row[8:10]), End(*row[10:12])),
        bool(row[12]),
        Confirmation(**json.loads(row[13])),
        None if row[14] is None else unsigned(row[14]),
        *row[15:],
    )
    return OpenRewrite(*values)


class Journal:
    """The rewrites under way."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def begin(
        self,
        session_id: int,
        file: SessionFile,
        temporary: str,
        confirmation: Confirmation,
    ) -> int:
        """Note that a file, in the state that it is in now, is about to be rewritten."""
        cursor = self._connection.execute(
            "INSERT INTO journal (session_id, root, directory, name, temporary, inode, note)"
            " VALUES (?, ?, ?, ?, ?, ?, ?)",
            (session_id, os.fsencode(file.root), os.fsencode(file.directory),
             os.fsencode(file.name), temporary, signed(file.fingerprint.inode),
             json.dumps(asdict(confirmation))),
        )  # fmt: skip
        return int(cursor.lastrowid or 0)

    def open_rewrites(self, session_id: int | None = None) -> list[OpenRewrite]:
        """Return the rewrites that nobody has finished or given up, of one session or of all."""
        which, values = ("", ()) if session_id is None else (" WHERE session_id = ?", (session_id,))
        rows = self._connection.execute(f"{_ROW}{which} ORDER BY id", values)
        return [_rewrite(row) for row in rows]

    def rewrite(self, journal_id: int) -> OpenRewrite:
        """Return one open rewrite."""
        return _rewrite(self._connection.execute(_ROW + " WHERE id = ?", (journal_id,)).fetchone())

    def confirm(self, journal_id: int, session_id: int, confirmation: Confirmation) -> None:
        """Make what was recorded for a rewrite count; part of the caller's transaction.

        The rewrite stays open until the old file is gone (`close`).
        """
        tell_rewrite(self._connection, journal_id, session_id, confirmation)
        made = ids_of(self._connection, journal_id)
        undone = taken_back(self._connection, confirmation.put_back)
        confirm_archives(self._connection, session_id, made, undone, confirmation.folded)
        self._confirm_cuts(journal_id, session_id, confirmation.at)
        self._confirm_putbacks(session_id, confirmation)
        self._confirm_fields(journal_id, session_id, confirmation)
        self._connection.executemany(
            "UPDATE requests SET state = 'done' WHERE id = ?",
            ((row,) for row in confirmation.requests),
        )
        self._connection.execute("UPDATE journal SET confirmed = 1 WHERE id = ?", (journal_id,))

    def _confirm_cuts(self, journal_id: int, session_id: int, now: float) -> None:
        """Let the new cuts count; of earlier ones at the same places only the newest stands.

        An earlier one that says the same is replaced; one of another text is kept, since a fork may
        have copied that text.
        """
        earlier = self._connection.execute(
            "SELECT o.id, n.id, o.digest = n.digest AND o.replacement IS n.replacement"
            " FROM extractions n CROSS JOIN extractions o INDEXED BY extractions_name"
            " ON o.name = n.name AND o.path = n.path AND o.session_id = n.session_id"
            " AND o.journal_id IS NULL WHERE n.journal_id = ?",
            (journal_id,),
        ).fetchall()
        for old, new, same in earlier:
            if same:
                self._replace(old, new)
            else:
                Placements(self._connection).remove(session_id, [old], now)
        self._connection.execute(
            "INSERT OR REPLACE INTO placements (session_id, extraction_id)"
            " SELECT session_id, id FROM extractions WHERE journal_id = ?",
            (journal_id,),
        )
        self._connection.execute(
            "UPDATE extractions SET journal_id = NULL WHERE journal_id = ?", (journal_id,)
        )

    def _replace(self, old: int, new: int) -> None:
        """Let a new record take the place of an earlier one that says the same."""
        self._connection.execute(
            "INSERT OR IGNORE INTO placements (session_id, extraction_id, missed_at)"
            " SELECT session_id, ?, missed_at FROM placements WHERE extraction_id = ?",
            (new, old),
        )
        self._connection.execute("DELETE FROM placements WHERE extraction_id = ?", (old,))
        self._connection.execute("DELETE FROM extractions WHERE id = ?", (old,))

    def _confirm_putbacks(self, session_id: int, confirmation: Confirmation) -> None:
        self._connection.executemany(
            "UPDATE extractions SET restored_at = ? WHERE id = ?",
            ((confirmation.at, row) for row in confirmation.put_back),
        )
        Placements(self._connection).remove(session_id, confirmation.put_back, confirmation.at)
        self._connection.executemany(
            "INSERT INTO restores (session_id, entry_id, restored_at) VALUES (?, ?, ?)"
            " ON CONFLICT DO UPDATE SET restored_at = max(restored_at, excluded.restored_at)",
            ((session_id, entry, confirmation.at) for entry in confirmation.restored),
        )

    def _confirm_fields(self, journal_id: int, session_id: int, confirmation: Confirmation) -> None:
        self._connection.execute(
            "DELETE FROM fields WHERE state != 'pending' AND session_id = ? AND EXISTS"
            " (SELECT 1 FROM fields fresh WHERE fresh.journal_id = ?"
            " AND fresh.session_id = fields.session_id AND fresh.entry_id = fields.entry_id"
            " AND fresh.name = fields.name)",
            (session_id, journal_id),
        )
        self._connection.execute(
            "UPDATE fields SET state = 'standing', journal_id = NULL WHERE journal_id = ?",
            (journal_id,),
        )
        self._connection.executemany(
            "UPDATE fields SET state = 'undone' WHERE id = ? AND session_id = ?",
            ((row, session_id) for row in confirmation.fields_gone),
        )

    def close(self, journal_id: int) -> None:
        """Close a rewrite: nothing of it stands beside the session any more."""
        self._connection.execute("DELETE FROM journal WHERE id = ?", (journal_id,))

    def filled(self, journal_id: int, inode: int, ends: tuple[End, End]) -> None:
        """Note that the new file is whole: from now on it may get the session's name."""
        self._connection.execute(
            "UPDATE journal SET new_inode = ? WHERE id = ?", (signed(inode), journal_id)
        )
        self.ended(journal_id, ends)

    def ended(self, journal_id: int, ends: tuple[End, End]) -> None:
        """Note where the old and the new file end, with what was moved over already."""
        old, new = ends
        self._connection.execute(
            "UPDATE journal SET old_size = ?, old_mark = ?, new_size = ?, new_mark = ?,"
            " moving_to = NULL WHERE id = ?",
            (old.size, old.digest, new.size, new.digest, journal_id),
        )

    def note(self, journal_id: int, ends: Mapping[int, End], moving_to: int | None) -> None:
        """Note where files (by inode) end, and to which of them lines are about to be moved."""
        for inode, end in ends.items():
            self._connection.execute(
                "UPDATE journal SET old_size = ?, old_mark = ? WHERE id = ? AND inode = ?",
                (end.size, end.digest, journal_id, signed(inode)),
            )
            self._connection.execute(
                "UPDATE journal SET new_size = ?, new_mark = ? WHERE id = ? AND new_inode = ?",
                (end.size, end.digest, journal_id, signed(inode)),
            )
        self._connection.execute(
            "UPDATE journal SET moving_to = ? WHERE id = ?",
            (None if moving_to is None else signed(moving_to), journal_id),
        )

    def stays(self, journal_id: int, why: str, ended_at: float | None) -> None:
        """Note why the old file of a rewrite stays, and since when no try could change that."""
        self._connection.execute(
            "UPDATE journal SET stays = ?, ended_at = ? WHERE id = ?", (why, ended_at, journal_id)
        )

    def close_ended(self, before: float) -> None:
        """Close rewrites that ended before a moment: both files stay, and hold no value back."""
        self._connection.execute("DELETE FROM journal WHERE ended_at < ?", (before,))

    def keep(self, journal_id: int) -> None:
        """Keep what was recorded for a rewrite that was undone, as of values that were restored.

        Its new content may have been seen for an instant, and whoever read it may write its
        placeholders again: a row without a placeholder costs nothing, a placeholder without a row
        could not be filled again.
        """
        self._connection.execute(
            "UPDATE extractions SET journal_id = NULL, unplaced_at = extracted_at"
            " WHERE journal_id = ?",
            (journal_id,),
        )
        self._connection.execute("DELETE FROM fields WHERE journal_id = ?", (journal_id,))

    def forget(self, journal_id: int) -> None:
        """Forget what was recorded for a rewrite that nobody can have seen.

        The stored values stay until retention takes them, or are used again.
        """
        archives = ids_of(self._connection, journal_id)
        Blobs(self._connection).forget_sweep(journal_id)
        self._connection.execute("DELETE FROM extractions WHERE journal_id = ?", (journal_id,))
        forget_archives(self._connection, archives)
        self._connection.execute("DELETE FROM fields WHERE journal_id = ?", (journal_id,))
        drop_empty(self._connection, journal_id)

    def abandon(self, journal_id: int) -> None:
        """Give up a rewrite that nobody can have seen, and close it."""
        self.forget(journal_id)
        self.close(journal_id)
