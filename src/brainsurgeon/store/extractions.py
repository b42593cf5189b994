"""Extracted values, their placeholders and the sessions that contain them, and our own fields.

A pair of placeholder text and key path means one value, for ever.
"""

import json
import secrets
import sqlite3
from collections.abc import Container, Iterable, Iterator, Mapping
from types import MappingProxyType

from msgspec.structs import asdict

from brainsurgeon.errors import BusyError, DamagedError
from brainsurgeon.model.entries import (
    KeyPath,
    id_named,
    is_placeholder,
    placeholder_id,
    placeholder_named,
    placeholder_token,
    unnumbered,
)
from brainsurgeon.model.plans import Removal
from brainsurgeon.model.records import Extraction, FieldRecord
from brainsurgeon.store.blobs import Blobs
from brainsurgeon.store.columns import Table, columns, key_path_read, key_path_text, storable
from brainsurgeon.store.history import Facts

_COLUMNS = (
    "e.id, e.session_id, e.entry_id, e.name, e.path, e.kind, e.tool, e.block, e.replacement,"
    " e.anchor, e.rest, e.chars, e.size, e.digest, e.blob_id, e.run_id, e.archive_id,"
    " e.tokens, e.extracted_at, e.restored_at, e.expired_at, e.expired_why,"
    " CASE WHEN e.blob_id IS NULL THEN 'expired' WHEN EXISTS (SELECT 1 FROM placements p"
    " WHERE p.extraction_id = e.id) THEN 'standing' ELSE 'restored' END"
)
# Key of a fact: the least number for new placeholders of ids that sessions may share.
_LEAST_NUMBER = "least_number"
# Matches the extractions of an entry by the id in its placeholders, whatever the number.
_OF_NAME = "(e.name = ?1 OR (e.name > ?1 || '~' AND e.name < ?1 || '~:'))"


class Extractions(Table):
    @property
    def is_empty(self) -> bool:
        return self._first("SELECT 1 FROM extractions LIMIT 1") is None

    def of_session(self, session_id: int) -> list[Extraction]:
        return self._extractions("e.session_id = ?", session_id)

    def held_in(self, session_id: int) -> list[Extraction]:
        """Return the extractions with a placeholder in a session when last read, oldest first."""
        return self._extractions(
            "e.id IN (SELECT extraction_id FROM placements WHERE session_id = ?)", session_id
        )

    def named(self, names: Iterable[str]) -> list[Extraction]:
        """Return the extractions with these ids in their placeholders; oldest first.

        The cost grows with the number of names, not with the size of the store.
        """
        listed = json.dumps(sorted(set(names)))
        return self._extractions("e.name IN (SELECT value FROM json_each(?))", listed)

    def gone(self, why: str) -> int:
        """Return how many values are gone for one reason although their placeholders remain."""
        return int(self._first(
            "SELECT count(*) FROM extractions WHERE expired_why = ?"
            " AND EXISTS (SELECT 1 FROM placements WHERE extraction_id = extractions.id)", why,
        ))  # fmt: skip

    def of_run(self, run_id: int) -> list[Extraction]:
        return self._extractions("e.run_id = ?", run_id)

    def of_entry(self, reference: str) -> list[Extraction]:
        """Return the extractions of an entry, by its id or by a placeholder.

        The bare id of an entry finds the extractions of all its placeholders. A whole placeholder,
        or an id with a number, finds only those of that placeholder.
        """
        name = id_named(reference) if is_placeholder(reference) else reference
        if storable(name) != name:  # it contains characters that no id has
            return []
        exact = self._extractions("e.name = ?", name)
        if exact and (unnumbered(name) != name or is_placeholder(reference)):
            return exact
        ids = {placeholder_id(name), name}
        by_id = {one.id: one for ident in ids for one in self._extractions(_OF_NAME, ident)}
        return [by_id[ident] for ident in sorted(by_id)]

    def entries_beginning(self, beginning: str) -> list[str]:
        """Return the ids of the entries whose placeholders have an id that begins like this."""
        if not beginning or storable(beginning) != beginning:
            return []
        rows = self._execute(
            "SELECT DISTINCT entry_id FROM extractions"
            " WHERE name >= ?1 AND name < ?1 || char(1114111) AND journal_id IS NULL"
            " ORDER BY entry_id",
            (beginning,),
        )
        return [ident for (ident,) in rows]

    def _extractions(self, where: str, value: object) -> list[Extraction]:
        rows = self._execute(
            f"SELECT {_COLUMNS} FROM extractions e WHERE {where}"  # noqa: S608
            " AND e.journal_id IS NULL ORDER BY e.id",
            (value,),
        )
        return [
            Extraction(*[*row[:4], key_path_read(row[4]), *row[5:7], bool(row[7]), *row[8:]])
            for row in rows
        ]

    def add(
        self, session_id: int, journal_id: int, stored: Iterable[tuple[Removal, int, bytes, int]],
        now: float, run_id: int | None = None,
        archives: Mapping[str, int] = MappingProxyType({}),
    ) -> None:  # fmt: skip
        """Record the removals that a rewrite is about to make; they count once it is confirmed.

        Each comes with the id, the digest and the size in bytes of the stored value. `archives` are
        the ids of the rewrite's archives, by the ids of their entries.
        """
        for edit, blob_id, digest, size in stored:
            before = edit.takes_over and self._first(
                "SELECT tokens FROM extractions WHERE id = ?", edit.takes_over
            )
            self._insert("extractions", {
                "session_id": session_id, "entry_id": edit.entry_id, "name": edit.name,
                "path": key_path_text(edit.path), "kind": edit.kind,
                "tool": edit.tool and storable(edit.tool), "block": edit.block,
                "replacement": edit.replacement and edit.replacement.decode(),
                "anchor": edit.anchor and storable(edit.anchor), "rest": edit.rest,
                "chars": edit.chars, "size": size, "digest": digest, "blob_id": blob_id,
                "journal_id": journal_id, "run_id": run_id,
                "archive_id": archives.get(edit.entry_id) if edit.archives else None,
                "tokens": edit.tokens + (before or 0), "extracted_at": now,
            })  # fmt: skip

    def value(self, extraction_id: int) -> bytes:
        """Return the value of an extraction; raise BusyError if it expired, or DamagedError."""
        why = "a value expired while it was about to be restored; nothing was touched"
        blob_id, digest, _ = self.stored(extraction_id, why)
        try:
            return Blobs(self._connection).get(blob_id, digest)
        except DamagedError as damaged:
            raise DamagedError(str(damaged), extraction_id) from damaged

    def stored(self, extraction_id: int, expired: str) -> tuple[int, bytes, int]:
        """Return the id of an extraction's stored value, its digest and its size in bytes.

        Raise BusyError with the text `expired` if it expired.
        """
        row: tuple[int, bytes, int] | None = self._execute(
            "SELECT blob_id, digest, size FROM extractions WHERE id = ? AND blob_id IS NOT NULL",
            (extraction_id,),
        ).fetchone()
        if row is None:
            raise BusyError(expired)
        return row

    def restores(self, session_id: int) -> dict[str, float]:
        statement = "SELECT entry_id, restored_at FROM restores WHERE session_id = ?"
        return dict(self._execute(statement, (session_id,)))

    def totals(self) -> dict[int, tuple[int, int]]:
        """Return, by session, the number of extracted values and the bytes saved.

        Archived turns are not values: only their bytes count.
        """
        rows = self._execute(
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


class Fields(Table):
    def add(self, record: FieldRecord, journal_id: int) -> None:
        """Record a field that a rewrite is about to set. The record has no id yet."""
        row = asdict(record) | {"id": None, "state": "pending", "journal_id": journal_id}
        self._insert("fields", row)

    def of_entries(self, session_id: int | None, entries: Iterable[str]) -> list[FieldRecord]:
        """Return the fields set in a session, and all ever set on `entries` in any session.

        Forks and copies carry fields along. If the session has a record of a field, the records of
        other sessions are left out.
        """
        own = self._fields("session_id = ? AND state = 'standing'", session_id)
        known = {(one.entry_id, one.name) for one in own}
        others = self._fields(
            "entry_id IN (SELECT value FROM json_each(?)) AND state != 'pending'",
            json.dumps(sorted(entries)),
        )
        return own + [one for one in others if (one.entry_id, one.name) not in known]

    @property
    def is_empty(self) -> bool:
        return self._first("SELECT 1 FROM fields LIMIT 1") is None

    def of_session(self, session_id: int) -> list[FieldRecord]:
        return self._fields("session_id = ? AND state = 'standing'", session_id)

    def _fields(self, where: str, value: object) -> list[FieldRecord]:
        rows = self._execute(
            f"SELECT {columns(FieldRecord)} FROM fields WHERE {where} ORDER BY id",  # noqa: S608
            (value,),
        )
        return [FieldRecord(*row) for row in rows]

    def sessions_of_run(self, run_id: int) -> set[int]:
        return set(self._column(
            "SELECT session_id FROM fields WHERE run_id = ? AND state = 'standing'", run_id
        ))  # fmt: skip


class Placeholders(Table):
    def name(
        self, ident: str, path: KeyPath, digest: bytes, taken: Container[str] = frozenset(),
        *, reused: bool = False,
    ) -> str:  # fmt: skip
        """Return the id for the placeholder of a value: `ident`, or `ident~2`, `ident~3`, ...

        `digest` is the digest of the value's bytes. Equal bytes at the same path share a
        placeholder. `taken` are texts that the file already contains with another meaning; they are
        not used. `reused` means that the id is not random: other sessions may have it. The cost
        does not grow with the number of times an id was used.
        """
        place = ident, key_path_text(path)
        for number in self._known(place, digest):
            if placeholder_named(_numbered(ident, number)) not in taken:
                return _numbered(ident, number)
        least = Facts(self._connection).get(_LEAST_NUMBER) if reused else None
        number = self._first(
            "SELECT max(?, coalesce(max(number), 0) + 1) FROM placeholders"
            " WHERE id = ? AND path = ?",
            least or 1, *place,
        )  # fmt: skip
        while placeholder_named(_numbered(ident, number)) in taken:
            number += 1
        row = {"id": ident, "path": place[1], "number": number, "digest": digest}
        self._insert("placeholders", row)
        return _numbered(ident, number)

    def _known(self, place: tuple[str, str], digest: bytes) -> Iterator[int]:
        """Yield the numbers that a value already has, usually one."""
        first = self._first(
            "SELECT digest FROM placeholders WHERE id = ? AND path = ? AND number = 1", *place
        )
        if first is None:
            return
        if first == digest:
            yield 1
        yield from self._column(
            "SELECT number FROM placeholders"
            " WHERE id = ? AND path = ? AND digest = ? AND number > 1 ORDER BY number",
            *place, digest,
        )  # fmt: skip


def renumber(connection: sqlite3.Connection) -> None:
    """Prevent a store from a backup from reusing placeholders of the store that it replaces.

    Placeholders made after the backup are still in files. Ids that are not random could get the
    same placeholders again, so their numbers continue from a random number that is larger than all
    used ones.
    """
    Facts(connection).put(_LEAST_NUMBER, secrets.randbelow(10**9) + 10**6)


def _numbered(ident: str, number: int) -> str:
    return ident if number == 1 else f"{ident}~{number}"


class Placements(Table):
    def of_session(self, session_id: int) -> frozenset[int]:
        return frozenset(
            self._column("SELECT extraction_id FROM placements WHERE session_id = ?", session_id)
        )

    def sessions_of(self, extraction_ids: Iterable[int]) -> frozenset[int]:
        """Return the ids of the sessions that contain any of these extractions."""
        statement = "SELECT session_id FROM placements WHERE extraction_id = ?"
        return frozenset(
            session for ident in extraction_ids for session in self._column(statement, ident)
        )

    def of_run(self, run_id: int) -> Iterator[tuple[int, int]]:
        """Yield the placements of a run's extractions, as ids of session and extraction."""
        return self._execute(
            "SELECT p.session_id, p.extraction_id FROM extractions e"
            " CROSS JOIN placements p ON p.extraction_id = e.id WHERE e.run_id = ?",
            (run_id,),
        )

    def record(
        self, session_id: int, standing: Iterable[int], gone: Iterable[int],
        missed: Iterable[int], now: float,
    ) -> None:  # fmt: skip
        """Record which extractions a session that was just read contains.

        `gone` are extractions whose entry was read and no longer contains them, `missed` are
        extractions whose entry was not found.
        """
        seen = self._column(
            "SELECT extraction_id FROM placements WHERE session_id = ? AND missed_at IS NULL",
            session_id,
        )
        self.add(session_id, set(standing).difference(seen))
        self.remove(session_id, gone, now)
        self._executemany(
            "UPDATE placements SET missed_at = ?"
            " WHERE session_id = ? AND extraction_id = ? AND missed_at IS NULL",
            ((now, session_id, ident) for ident in missed),
        )

    def add(self, session_id: int, standing: Iterable[int]) -> None:
        """Record that a session contains extractions.

        Skips an extraction that another rewrite has replaced: the new one has its placements.
        """
        listed = list(standing)
        self._executemany(
            "INSERT INTO placements (session_id, extraction_id)"
            " SELECT ?, id FROM extractions WHERE id = ?"
            " ON CONFLICT DO UPDATE SET missed_at = NULL WHERE missed_at IS NOT NULL",
            ((session_id, ident) for ident in listed),
        )
        self._executemany(
            "UPDATE extractions SET unplaced_at = NULL WHERE id = ? AND unplaced_at IS NOT NULL",
            ((ident,) for ident in listed),
        )

    def remove(self, session_id: int, gone: Iterable[int], now: float) -> None:
        listed = list(gone)
        self._executemany(
            "DELETE FROM placements WHERE session_id = ? AND extraction_id = ?",
            ((session_id, ident) for ident in listed),
        )
        self._executemany(
            "UPDATE extractions SET unplaced_at = ?2 WHERE id = ?1 AND unplaced_at IS NULL"
            " AND NOT EXISTS (SELECT 1 FROM placements WHERE extraction_id = ?1)",
            ((ident, now) for ident in listed),
        )
