"""What a rewrite that happened is to be known for: its events, and the counts of its pass.

Written in the transaction that makes the rewrite count, by whoever that is: the command itself,
or after a crash the one that finishes it. So there is one telling for each rewrite.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from brainsurgeon.model.events import TOKENS_PER_CHAR
from brainsurgeon.store.archives import ids_of, taken_back
from brainsurgeon.store.events import Events
from brainsurgeon.store.passes import add_up

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence

    from brainsurgeon.model.events import EventKind
    from brainsurgeon.model.records import Confirmation

_GROUPED = (
    "SELECT kind, tool, replacement IS NOT NULL AND kind != 'thinking', count(*), sum(chars),"
    " sum(size) FROM extractions WHERE archive_id IS NULL AND {where} GROUP BY 1, 2, 3"
    " ORDER BY 4 DESC, 1, 2"
)
"""Thinking that was emptied has a replacement and is no redaction. What folds turns is told apart:
there no value leaves."""
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
    """Write the events of a rewrite that is about to count, and add it to its pass.

    A pass that was lost with a damaged store cannot be named any more.
    """
    if not _count(connection, "passes WHERE id = ?", note.pass_id):
        note = replace(note, pass_id=None)
    taken = _grouped(connection, "journal_id = ?", journal_id)
    cut = [some for some in taken if not some.redacted]
    redacted = [some for some in taken if some.redacted]
    back = _those(connection, note.put_back)
    fields = _count(connection, "fields WHERE journal_id = ?", journal_id)
    undone = _rolled_back(connection, note)
    archived = _folded(connection, ids_of(connection, journal_id))
    unarchived = _folded(connection, taken_back(connection, note.put_back))
    known = "events WHERE pass_id = ? AND session_id = ? LIMIT 1"
    again = _count(connection, known, note.pass_id, session_id)
    chars = sum(some.chars for some in cut)
    add_up(
        connection, note.pass_id, sessions=not again, extracted=_values(cut), chars=chars,
        tokens=round(chars * TOKENS_PER_CHAR), redacted=_values(redacted), restored=_values(back),
        fields=fields + len(note.fields_gone), archived=archived.get("archives", 0),
        folded=archived.get("turns_folded", 0), unarchived=unarchived.get("archives", 0),
        unfolded=unarchived.get("turns_folded", 0),
    )  # fmt: skip

    def tell(kind: EventKind, facts: dict[str, Any]) -> None:
        Events(connection).add(note.at, kind, session_id, facts, note.pass_id)

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
    """Say what archives come to; nothing where there are none."""
    if not ids:
        return {}
    names = ("archives", "entries", "tokens_before", "tokens_after", "turns_folded")
    row = connection.execute(_FOLDED, (json.dumps(list(ids)),)).fetchone()
    return {name: int(number) for name, number in zip(names, row, strict=True)}


def _rolled_back(connection: sqlite3.Connection, note: Confirmation) -> int | None:
    """Give the pass that a rewrite undoes: by its own pass, or by a wish that it fulfils."""
    if not (note.put_back or note.fields_gone):
        return None
    of_pass = connection.execute(
        "SELECT json_extract(facts, '$.rolls_back') FROM passes WHERE id = ?", (note.pass_id,)
    ).fetchone()
    if of_pass and of_pass[0] is not None:
        return int(of_pass[0])
    row = connection.execute(
        "SELECT max(rolls_back) FROM wishes WHERE id IN (SELECT value FROM json_each(?))",
        (json.dumps(note.wishes),),
    ).fetchone()
    return None if row[0] is None else int(row[0])


def _relieves(connection: sqlite3.Connection, note: Confirmation) -> bool:
    """Tell whether a rewrite is a relief: by its pass, or by a wish that it fulfils."""
    row = connection.execute(
        "SELECT EXISTS (SELECT 1 FROM passes WHERE id = ? AND command = 'relieve')"
        " OR EXISTS (SELECT 1 FROM wishes WHERE action = 'relieve'"
        " AND id IN (SELECT value FROM json_each(?)))",
        (note.pass_id, json.dumps(note.wishes)),
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
