"""What was cut out of which entry, and when each entry was last restored."""

from __future__ import annotations

import json
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from brainsurgeon.errors import BusyError, DamagedError
from brainsurgeon.model.entries import (
    id_named,
    is_placeholder,
    placeholder_id,
    placeholder_named,
    placeholder_token,
    unnumbered,
)
from brainsurgeon.model.records import Extraction
from brainsurgeon.store.blobs import Blobs
from brainsurgeon.store.columns import key_path_read, key_path_text, storable

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from brainsurgeon.model.plans import Cut


_COLUMNS = (
    "e.id, e.session_id, e.entry_id, e.name, e.path, e.kind, e.tool, e.block, e.replacement,"
    " e.anchor, e.rest, e.chars, e.size, e.digest, e.blob_id, e.run_id, e.archive_id,"
    " e.extracted_at, e.restored_at, e.expired_at, e.expired_why,"
    " CASE WHEN e.blob_id IS NULL THEN 'expired' WHEN EXISTS (SELECT 1 FROM placements p"
    " WHERE p.extraction_id = e.id) THEN 'standing' ELSE 'restored' END"
)
# Names that are looked up by one statement.
_TOGETHER = 1000
# Matches the extractions of an entry by the id in its placeholders, whatever the number.
OF_NAME = "(e.name = ?1 OR (e.name > ?1 || '~' AND e.name < ?1 || '~:'))"


def _extraction(row: tuple[Any, ...]) -> Extraction:
    values = list(row)
    values[4] = key_path_read(row[4])
    values[7] = bool(row[7])
    return Extraction(*values)


def _batched(names: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    for at in range(0, len(names), size):
        yield names[at : at + size]


class Extractions:
    """What was cut out of which entry."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    @property
    def is_empty(self) -> bool:
        """Whether nothing was ever extracted."""
        return self._connection.execute("SELECT 1 FROM extractions LIMIT 1").fetchone() is None

    def of_session(self, session_id: int) -> list[Extraction]:
        """Return what was taken from a session, but for rewrites under way; oldest first."""
        return self._extractions("e.session_id = ?", [session_id])

    def held_in(self, session_id: int) -> list[Extraction]:
        """Return the extractions that a session was last seen to hold; oldest first."""
        return self._extractions(
            "e.id IN (SELECT extraction_id FROM placements WHERE session_id = ?)", [session_id]
        )

    def named(self, names: Iterable[str]) -> list[Extraction]:
        """Return the extractions with these ids in their placeholders; oldest first.

        The cost grows with what is asked for, not with what was ever extracted.
        """
        found = []
        for some in _batched(sorted(set(names)), _TOGETHER):
            listed = json.dumps(some)
            found += self._extractions("e.name IN (SELECT value FROM json_each(?))", [listed])
        return sorted(found, key=lambda one: one.id)

    def of_run(self, run_id: int) -> list[Extraction]:
        """Return what a run extracted, restored and expired values too."""
        return self._extractions("e.run_id = ?", [run_id])

    def of_entry(self, reference: str) -> list[Extraction]:
        """Return the extractions of an entry, by its id or by a placeholder.

        The bare id of an entry finds all of its placeholders, a whole placeholder or an id with a
        number only that one.
        """
        name = id_named(reference) if is_placeholder(reference) else reference
        if storable(name) != name:  # typed, in other bytes than ids are made of
            return []
        exact = self._extractions("e.name = ?", [name])
        if exact and (unnumbered(name) != name or is_placeholder(reference)):
            return exact
        ids = {placeholder_id(name), name}
        found = [one for ident in ids for one in self._extractions(OF_NAME, [ident])]
        return sorted({one.id: one for one in found}.values(), key=lambda one: one.id)

    def _extractions(self, where: str, values: Sequence[object]) -> list[Extraction]:
        rows = self._connection.execute(
            f"SELECT {_COLUMNS} FROM extractions e WHERE {where}"  # noqa: S608
            " AND e.journal_id IS NULL ORDER BY e.id",
            values,
        )
        return [_extraction(row) for row in rows]

    def add(
        self, session_id: int, journal_id: int, stored: Iterable[tuple[Cut, int, bytes, int]],
        now: float, run_id: int | None = None,
        archives: Mapping[str, int] = MappingProxyType({}),
    ) -> None:  # fmt: skip
        """Record the cuts that a rewrite is about to make; they count once it has happened.

        Each comes with the id, the digest and the size in bytes of the stored value. `archives` are
        the ids of those that are made, by their entries'.
        """
        self._connection.executemany(
            "INSERT INTO extractions (session_id, entry_id, name, path, kind, tool, block,"
            " replacement, anchor, rest, chars, size, digest, blob_id, journal_id, run_id,"
            " archive_id, extracted_at)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                (session_id, cut.entry_id, cut.name, key_path_text(cut.path), cut.kind,
                 cut.tool and storable(cut.tool), cut.block,
                 cut.replacement and cut.replacement.decode(),
                 cut.anchor and storable(cut.anchor), cut.rest, cut.chars, size, digest, blob_id,
                 journal_id, run_id, archives.get(cut.entry_id) if cut.folds else None, now)
                for cut, blob_id, digest, size in stored
            ),
        )  # fmt: skip

    def value(self, extraction_id: int) -> bytes:
        """Read the value of an extraction; raise BusyError where it expired, or DamagedError."""
        row = self._connection.execute(
            "SELECT blob_id, digest FROM extractions WHERE id = ? AND blob_id IS NOT NULL",
            (extraction_id,),
        ).fetchone()
        if row is None:
            raise BusyError(
                "a value expired while it was about to be put back; nothing was touched"
            )
        try:
            return Blobs(self._connection).get(*row)
        except DamagedError as damaged:
            raise DamagedError(str(damaged), extraction_id) from damaged

    def restores(self, session_id: int) -> dict[str, float]:
        """Return when each entry of a session was last restored, as the store remembers it."""
        return dict(
            self._connection.execute(
                "SELECT entry_id, restored_at FROM restores WHERE session_id = ?", (session_id,)
            )
        )

    def stored(self, extraction_id: int) -> tuple[int, bytes, int]:
        """Return which stored value an extraction names, its digest and its size in bytes.

        Raise BusyError where it expired.
        """
        row = self._connection.execute(
            "SELECT blob_id, digest, size FROM extractions WHERE id = ? AND blob_id IS NOT NULL",
            (extraction_id,),
        ).fetchone()
        if row is None:
            raise BusyError("a value expired while an archive was about to take it over")
        return int(row[0]), bytes(row[1]), int(row[2])

    def totals(self) -> dict[int, tuple[int, int]]:
        """Give, by session, how many values stand extracted and how many bytes are saved in all.

        Archived turns change how large a session is, and are no values.
        """
        rows = self._connection.execute(
            "SELECT p.session_id, e.name, e.block, length(CAST(e.replacement AS BLOB)) AS instead,"
            " count(*), count(*) - count(e.archive_id), sum(e.size)"
            " FROM placements p JOIN extractions e ON e.id = p.extraction_id"
            " WHERE p.missed_at IS NULL"
            " GROUP BY p.session_id, length(e.name), e.block, instead"
        )
        totals: dict[int, tuple[int, int]] = {}
        for session, name, block, replacement, number, values, size in rows:
            token = replacement or len(
                placeholder_token(placeholder_named(name), block=bool(block))
            )
            count, saved = totals.get(session, (0, 0))
            totals[session] = (count + values, saved + size - number * token)
        return totals
