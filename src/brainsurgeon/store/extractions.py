"""Stored values, their extractions, placeholders and placements, fields, and archived turns."""

import json
import secrets
import sqlite3
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b

import zstandard
from msgspec import Struct
from msgspec.structs import asdict

from brainsurgeon.errors import BusyError, DamagedError
from brainsurgeon.model.entries import (
    EXTRACTABLE,
    KeyPath,
    id_named,
    is_placeholder,
    placeholder_id,
    placeholder_named,
    placeholder_token,
    unnumbered,
)
from brainsurgeon.model.plans import Removal
from brainsurgeon.model.records import Extraction, FieldRecord, Tombstone
from brainsurgeon.model.turns import LINK, ArchiveRecord, PlannedArchive
from brainsurgeon.store.database import Table, key_path_read, key_path_text, storable
from brainsurgeon.store.runs import Facts

# Largest portion of a check in values and bytes, without known damaged values.
CHECKED, CHECKED_BYTES = 2000, 64 << 20
# On real tool results, level 1 compresses within 1 % of level 3 in four fifths of the time.
_compressor = zstandard.ZstdCompressor(level=1)
_decompressor = zstandard.ZstdDecompressor()


def digest(value: bytes) -> bytes:
    return blake2b(value, digest_size=32).digest()


class Blobs(Table):
    def put(self, value: bytes) -> tuple[int, bytes, int]:
        """Return row id, digest and bytes written (0 if the value is known)."""
        key = digest(value)
        known = self._first(
            "SELECT id FROM blobs WHERE substr(digest, 1, 8) = substr(?1, 1, 8) AND digest = ?1",
            key,
        )
        if known is not None:
            return known, key, 0
        packed = _compressor.compress(value)
        codec, data = ("zstd", packed) if len(packed) < len(value) else ("raw", value)
        row = {"digest": key, "size": len(value), "codec": codec, "data": data}
        return self._insert("blobs", row), key, len(data)

    def get(self, blob_id: int, key: bytes) -> bytes:
        """Return a value. Raises DamagedError if it is missing or its digest is not `key`."""
        statement = "SELECT size, codec, data FROM blobs WHERE id = ?"
        row = self._execute(statement, (blob_id,)).fetchone()
        if row is None:
            raise DamagedError("a stored value is missing: run `brainsurgeon doctor`")
        size, codec, data = row
        try:
            value = data if codec == "raw" else _decompressor.decompress(data, max_output_size=size)
        except zstandard.ZstdError:
            value = b""
        if len(value) != size or digest(value) != key:
            raise DamagedError(
                "a stored value is damaged and was not restored: run `brainsurgeon doctor`"
            )
        return bytes(value)

    def release(self, ids: Iterable[int]) -> int:
        return self._executemany(
            "DELETE FROM blobs WHERE id = ? AND NOT EXISTS"
            " (SELECT 1 FROM extractions WHERE extractions.blob_id = blobs.id)",
            ((ident,) for ident in ids),
        ).rowcount

    def check(self, check_stop: Callable[[], None]) -> tuple[int, list[int]]:
        """Check the values that were damaged at the last check, and the next portion of the others.

        Returns the id after which the following portion begins, and the ids of damaged or missing
        values. Looks up each value by its id, since a scan of a damaged table may end early.
        """
        after, known, until = self._checked()
        of = "SELECT blob_id, digest, size FROM extractions WHERE blob_id"
        listed = [row for blob in known for row in self._execute(f"{of} = ? LIMIT 1", (blob,))]
        following = self._execute(
            f"{of} > ? AND blob_id <= ? GROUP BY blob_id ORDER BY blob_id LIMIT ?",
            (after, until, CHECKED),
        ).fetchall()
        after, left, damaged = 0, CHECKED_BYTES, set()
        for blob, key, size in (*listed, *following):
            check_stop()
            if not self.is_sound(blob, key):
                damaged.add(blob)
            left -= size
            if left <= 0 and blob not in known:
                after = blob
                break
        else:
            if len(following) == CHECKED:
                after = following[-1][0]
        return after, sorted(damaged)

    def note_check(self, after: int, damaged: list[int]) -> None:
        until = self._first("SELECT max(id) FROM blobs") or 0
        Facts(self._connection).put("checked", [after, damaged, until])

    def count_damaged(self) -> int:
        return len(self._checked()[1])

    def _checked(self) -> tuple[int, list[int], int]:
        after, damaged, until = Facts(self._connection).get("checked") or (0, [], 0)
        return after, damaged, until

    def is_sound(self, blob_id: int, key: bytes) -> bool:
        try:
            self.get(blob_id, key)
        except sqlite3.OperationalError:
            raise  # the disk or another process is the cause
        except (DamagedError, sqlite3.DatabaseError):
            return False
        return True

    def check_all(self) -> tuple[int, list[int]]:
        rows = self._execute("SELECT id, digest FROM blobs").fetchall()
        return len(rows), [ident for ident, key in rows if not self.is_sound(ident, key)]


_STATE = (
    "CASE WHEN e.blob_id IS NULL THEN 'expired' WHEN EXISTS (SELECT 1 FROM placements p"
    " WHERE p.extraction_id = e.id) THEN 'standing' ELSE 'restored' END"
)
# `anchor` is the id of a call, or of the parent that an archive replaced (`Extraction.is_link`).
_IS_LINK = f"e.archive_id IS NOT NULL AND e.path = '{key_path_text(LINK)}'"
_ANCHORS = {
    "call": f"CASE WHEN {_IS_LINK} THEN NULL ELSE e.anchor END",
    "parent": f"CASE WHEN {_IS_LINK} THEN e.anchor END",
}
_COLUMNS = ", ".join([
    *(_ANCHORS.get(name, f"e.{name}") for name in Extraction.__struct_fields__[:-2]),
    _STATE, "e.expired_at", "e.expired_why",
])  # fmt: skip
# True if the extraction has a placeholder or belongs to an archive.
_NAMES = "(replacement IS NULL OR archive_id IS NOT NULL)"
_LEAST_NUMBER = "least_number"
# True if the placeholder has the id ?1, with or without a number.
_OF_NAME = "(e.name = ?1 OR (e.name > ?1 || '~' AND e.name < ?1 || '~:'))"


_BEGINNING = "e.name >= ?1 AND e.name < ?1 || char(1114111)"


class Totals(Struct, frozen=True):
    """What the placeholders of a session save."""

    values: int = 0  # outside of archives
    bytes_saved: int = 0
    bytes_padded: int = 0  # bytes of values whose place spaces fill
    tokens: int = 0  # by which the next request is shorter


class Extractions(Table):
    def of_session(self, session_id: int) -> list[Extraction]:
        return self._extractions("e.session_id = ?", session_id)

    def ids_from(self, beginning: str, most: int) -> list[str]:
        """Return the ids of the newest entries with values in the store that begin so."""
        return self._column(
            "SELECT entry_id FROM extractions WHERE substr(entry_id, 1, ?) = ? AND blob_id NOT NULL"
            " GROUP BY entry_id ORDER BY max(id) DESC LIMIT ?",
            len(beginning), beginning, most,
        )  # fmt: skip

    def contained_in(self, session_id: int) -> list[Extraction]:
        return self._extractions(
            "e.id IN (SELECT extraction_id FROM placements WHERE session_id = ?)", session_id
        )

    def by_names(self, names: Iterable[str], session_id: int | None = None) -> list[Extraction]:
        """Return the extractions with these names, and those contained in a session."""
        return self._extractions(
            "e.id IN (SELECT id FROM extractions WHERE name IN (SELECT value FROM json_each(?))"
            " UNION SELECT extraction_id FROM placements WHERE session_id = ?)",
            json.dumps(sorted(set(names))), session_id,
        )  # fmt: skip

    def last_rewrite(self, session_id: int | None, names: Iterable[str]) -> float | None:
        """Return when one of these values, or a value of the session, was extracted or restored."""
        at: float | None = self._first(
            "SELECT max(max(extracted_at, coalesce(restored_at, 0))) FROM extractions"
            " WHERE session_id = ? OR name IN (SELECT value FROM json_each(?))",
            session_id, json.dumps([*names]),
        )  # fmt: skip
        return at

    def count_expired(self) -> int:
        """Count the placeholders and archives in sessions whose values expired or were lost."""
        return int(self._first(
            "SELECT count(*) FROM extractions e JOIN placements p ON p.extraction_id = e.id"  # noqa: S608
            " JOIN sessions s ON s.id = p.session_id WHERE e.expired_at IS NOT NULL"
            f" AND {_NAMES} AND NOT (e.archive_id IS NOT NULL AND e.path = ?)"
            " AND coalesce(p.missed_at, s.missed_at) IS NULL",
            key_path_text(LINK),
        ))  # fmt: skip

    def of_run(self, run_id: int) -> list[Extraction]:
        return self._extractions("e.run_id = ?", run_id)

    def of_entry(self, reference: str) -> list[Extraction]:
        """Return the extractions of an entry by its id, or those of one placeholder."""
        name = id_named(reference) if is_placeholder(reference) else reference
        if storable(name) != name:  # no id has such characters
            return []
        exact = self._extractions("e.name = ?", name)
        if exact and (unnumbered(name) != name or is_placeholder(reference)):
            return exact
        ids = {placeholder_id(name), name}
        by_id = {one.id: one for ident in ids for one in self._extractions(_OF_NAME, ident)}
        return [by_id[ident] for ident in sorted(by_id)]

    def entries_beginning(self, beginning: str) -> list[str]:
        if not beginning or storable(beginning) != beginning:
            return []
        return self._column(
            f"SELECT DISTINCT entry_id FROM extractions e WHERE {_BEGINNING}"  # noqa: S608
            " AND e.journal_id IS NULL ORDER BY entry_id", beginning,
        )  # fmt: skip

    def beginning(self, beginning: str) -> list[Extraction]:
        """Return the extractions of the entries whose ids have this beginning."""
        if not beginning or storable(beginning) != beginning:
            return []
        return self._extractions(_BEGINNING, beginning)

    def _extractions(self, where: str, *values: object) -> list[Extraction]:
        rows = self._execute(
            f"SELECT {_COLUMNS} FROM extractions e WHERE {where}"  # noqa: S608
            " AND e.journal_id IS NULL ORDER BY e.id",
            values,
        )
        return [
            Extraction(*[
                *row[:2], key_path_read(row[2]), *row[3:6], bool(row[6]), *row[7:-3],
                Tombstone(*row[-2:]) if row[-2] else None, row[-3],
            ])
            for row in rows
        ]  # fmt: skip

    def copy(self, extraction_id: int, edit: Removal) -> None:
        """Note that a value left another place, too. Only some places are in requests."""
        self._execute(
            "UPDATE extractions SET tokens = max(tokens, ?) WHERE id = ?",
            (edit.tokens, extraction_id),
        )  # fmt: skip
        self._execute(
            "INSERT INTO copies VALUES (?, 1) ON CONFLICT DO UPDATE SET number = number + 1",
            (extraction_id,),
        )

    def add(self, edit: Removal, **columns: object) -> int:
        """`columns` are those that `edit` lacks."""
        before = edit.takes_over and self._first(
            "SELECT tokens FROM extractions WHERE id = ?", edit.takes_over
        )
        anchor = edit.parent if edit.call is None else edit.call
        ident = self._insert("extractions", {
            "entry_id": edit.entry_id, "name": edit.name, "path": key_path_text(edit.path),
            "kind": edit.kind, "tool": edit.tool and storable(edit.tool), "block": edit.block,
            "replacement": edit.replacement and edit.replacement.decode(),
            "anchor": anchor and storable(anchor), "rest": edit.rest,
            "chars": edit.chars, "tokens": edit.tokens + (before or 0), **columns,
        })  # fmt: skip
        if edit.new.endswith(b" "):
            self._insert("padded", {"extraction_id": ident})
        return ident

    def value(self, extraction_id: int) -> bytes:
        """Return a value. Raises BusyError if it has expired, or DamagedError."""
        why = "a value has expired in the meantime; its session was not changed for it"
        blob_id, digest, _ = self.stored(extraction_id, why)
        return Blobs(self._connection).get(blob_id, digest)

    def damaged(self, values: Iterable[Extraction]) -> frozenset[int]:
        """Return the ids of those whose stored values cannot be read, or differ from their digest.

        Values that have expired are not among them.
        """
        blobs, listed = Blobs(self._connection), list(values)
        stored = {(value.blob_id, value.digest) for value in listed}  # copies share theirs
        unsound = {
            (blob, digest) for blob, digest in stored
            if blob is not None and not blobs.is_sound(blob, digest)
        }  # fmt: skip
        return frozenset(value.id for value in listed if (value.blob_id, value.digest) in unsound)

    def stored(self, extraction_id: int, message: str) -> tuple[int, bytes, int]:
        """Return id, digest and size. Raises BusyError(message) if the value has expired."""
        row: tuple[int, bytes, int] | None = self._execute(
            "SELECT blob_id, digest, size FROM extractions WHERE id = ? AND blob_id IS NOT NULL",
            (extraction_id,),
        ).fetchone()
        if row is None:
            raise BusyError(message)
        return row

    def restores(self, session_id: int) -> dict[str, float]:
        statement = "SELECT entry_id, restored_at FROM restores WHERE session_id = ?"
        return dict(self._execute(statement, (session_id,)))

    def totals(self) -> dict[int, Totals]:
        """Return the totals of sessions, by their ids."""
        # The length of a placeholder without its id, in a block and in a text.
        around = [
            len(placeholder_token(placeholder_named(""), block=block)) for block in (True, False)
        ]
        rows = self._execute(
            "SELECT p.session_id, d.extraction_id IS NOT NULL, count(*) - count(e.archive_id),"
            " sum(e.tokens), sum((1 + coalesce(c.number, 0)) * (e.size - coalesce("
            "length(CAST(e.replacement AS BLOB)), length(e.name) + iif(e.block, ?, ?))))"
            " FROM placements p JOIN extractions e ON e.id = p.extraction_id"
            " LEFT JOIN padded d ON d.extraction_id = e.id"
            " LEFT JOIN copies c ON c.extraction_id = e.id AND e.session_id = p.session_id"
            " WHERE p.missed_at IS NULL GROUP BY 1, 2",
            around,
        )
        totals = defaultdict[int, Totals](Totals)
        for session, is_padded, values, tokens, length in rows:
            before, saved = totals[session], 0 if is_padded else length
            totals[session] = Totals(
                before.values + values, before.bytes_saved + saved,
                before.bytes_padded + length - saved, before.tokens + tokens,
            )  # fmt: skip
        return dict(totals)


class Fields(Table):
    def add(self, record: FieldRecord, journal_id: int) -> None:
        row = asdict(record) | {"id": None, "state": "pending", "journal_id": journal_id}
        self._insert("fields", row)

    def of_entries(self, entries: Iterable[str]) -> list[FieldRecord]:
        """Return the fields, also undone ones, of entries with these ids in any session."""
        return self._records(
            FieldRecord, "fields WHERE entry_id IN (SELECT value FROM json_each(?))"
            " AND state != 'pending' ORDER BY id", json.dumps(sorted(entries)),
        )  # fmt: skip

    def of_session(self, session_id: int) -> list[FieldRecord]:
        standing = "fields WHERE session_id = ? AND state = 'standing' ORDER BY id"
        return self._records(FieldRecord, standing, session_id)

    def keep(
        self, session_id: int, entry_id: str, value: bool | int | None, run_id: int | None
    ) -> None:
        """Remember `_extractable` of an entry whose format has no fields; None ends that."""
        known = [one.id for one in self.of_session(session_id) if one.entry_id == entry_id]
        self.undo(session_id, known)
        if value is not None:
            text = json.dumps(value)
            record = FieldRecord(
                0, session_id, entry_id, EXTRACTABLE, None, text.encode(), text, run_id
            )
            row = asdict(record) | {"id": None, "state": "standing", "journal_id": None}
            self._insert("fields", row)

    def undo(self, session_id: int, ids: Iterable[int]) -> None:
        undone = "UPDATE fields SET state = 'undone' WHERE id = ? AND session_id = ?"
        self._executemany(undone, ((row, session_id) for row in ids))

    def sessions_of_run(self, run_id: int) -> set[int]:
        return set(self._column(
            "SELECT session_id FROM fields WHERE run_id = ? AND state = 'standing'", run_id
        ))  # fmt: skip


class Placeholders(Table):
    def name(
        self, ident: str, path: KeyPath, value: tuple[int, bytes],
        taken: Container[str] = frozenset(), *, reused: bool = False,
    ) -> str:  # fmt: skip
        """Return the id for the placeholder of a value: `ident`, or `ident~2`, `ident~3`, ...

        `value` is the row id and digest of the stored value. Equal bytes at the same path share a
        placeholder. `taken` are placeholders in the file without a record. `reused` means that the
        entry id is not random: other sessions may have it.
        """
        place = key_path_text(path)
        least = (reused and Facts(self._connection).get(_LEAST_NUMBER)) or 1
        for name in self._known(ident, place, *value, least=least):
            if placeholder_named(name) not in taken:
                return name

        def is_free(number: int) -> bool:
            name = _numbered(ident, number)
            return placeholder_named(name) not in taken and self._digest_of(name, place) is None

        beyond = least
        while not is_free(beyond):
            beyond *= 2
        # Bisection finds a free number, though not always the smallest.
        return _numbered(ident, least + bisect_left(range(least, beyond), True, key=is_free))

    def _known(
        self, ident: str, place: str, blob_id: int, digest: bytes, *, least: int
    ) -> Iterator[str]:  # fmt: skip
        first = self._digest_of(ident, place)
        if first is None and least == 1:  # then no number is in use
            return
        if first == digest:
            yield ident
        statement = (
            "SELECT DISTINCT name FROM extractions INDEXED BY extractions_blob"  # noqa: S608
            f" WHERE blob_id = ?1 AND path = ?2 AND name > ?3 || '~' AND name < ?3 || '~:'"
            f" AND {_NAMES} ORDER BY length(name), name"
        )
        yield from self._column(statement, blob_id, place, ident)

    def _digest_of(self, name: str, place: str) -> bytes | None:
        statement = f"SELECT digest FROM extractions WHERE name = ? AND path = ? AND {_NAMES}"  # noqa: S608
        digest: bytes | None = self._first(f"{statement} LIMIT 1", name, place)
        return digest


def renumber(connection: sqlite3.Connection) -> None:
    """Prevent a restored store from reusing placeholders that were made after the backup.

    For entry ids that are not random, the numbers continue from a random one. It has at most nine
    digits, as a placeholder allows.
    """
    Facts(connection).put(_LEAST_NUMBER, 10**6 + secrets.randbelow(9 * 10**8))


def _numbered(ident: str, number: int) -> str:
    return ident if number == 1 else f"{ident}~{number}"


class Placements(Table):
    def of_session(self, session_id: int) -> frozenset[int]:
        statement = "SELECT extraction_id FROM placements WHERE session_id = ?"
        return frozenset(self._column(statement, session_id))

    def sessions_of(self, extraction_ids: Iterable[int]) -> Mapping[int, list[int]]:
        """Return the sessions of each value; [] for one that no session has."""
        rows = self._execute(
            "SELECT extraction_id, session_id FROM placements"
            " WHERE extraction_id IN (SELECT value FROM json_each(?))",
            (json.dumps(sorted(extraction_ids)),),
        )
        sessions = defaultdict[int, list[int]](list)
        for extraction, session in rows:
            sessions[extraction].append(session)
        return sessions

    def record(
        self, session_id: int, standing: Iterable[int], gone: Iterable[int],
        missed: Iterable[int], now: float,
    ) -> None:  # fmt: skip
        """`gone` are no longer in their entries. The entries of `missed` were not found."""
        if present := set(standing):
            seen = "SELECT extraction_id FROM placements WHERE session_id = ? AND missed_at IS NULL"
            self.add(session_id, present.difference(self._column(seen, session_id)))
        self.remove(session_id, gone, now)
        self._executemany(
            "UPDATE placements SET missed_at = ?"
            " WHERE session_id = ? AND extraction_id = ? AND missed_at IS NULL",
            ((-now, session_id, ident) for ident in missed),
        )

    def add(self, session_id: int, extraction_ids: Iterable[int]) -> None:
        """Ignores ids that the store no longer has."""
        listed = list(extraction_ids)
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

    def remove(self, session_id: int, extraction_ids: Iterable[int], now: float) -> None:
        listed = list(extraction_ids)
        self._executemany(
            "DELETE FROM placements WHERE session_id = ? AND extraction_id = ?",
            ((session_id, ident) for ident in listed),
        )
        self._executemany(
            "UPDATE extractions SET unplaced_at = ?2 WHERE id = ?1 AND unplaced_at IS NULL"
            " AND NOT EXISTS (SELECT 1 FROM placements WHERE extraction_id = ?1)",
            ((ident, -now) for ident in listed),
        )


class Archives(Table):
    def of_session(
        self, session_id: int, extractions: Iterable[Extraction] = ()
    ) -> list[ArchiveRecord]:
        named = {one.archive_id for one in extractions if one.archive_id is not None}
        return self._archives(
            "session_id = ? OR id IN (SELECT value FROM json_each(?))",
            session_id, json.dumps(sorted(named)),
        )  # fmt: skip

    def contained_in(self, session_id: int) -> list[ArchiveRecord]:
        return self._archives(
            "id IN (SELECT e.archive_id FROM placements p JOIN extractions e"
            " ON e.id = p.extraction_id WHERE p.session_id = ? AND e.archive_id IS NOT NULL)",
            session_id,
        )

    def by_id(self, archive_id: int) -> ArchiveRecord | None:
        return next(iter(self._archives("id = ?", archive_id)), None)

    def _archives(self, where: str, *values: object) -> list[ArchiveRecord]:
        return self._records(ArchiveRecord, f"archives WHERE {where} ORDER BY id", *values)

    def add(
        self, session_id: int, archives: Iterable[PlannedArchive], now: float,
        run_id: int | None = None,
    ) -> dict[str, int]:  # fmt: skip
        more = {"session_id": session_id, "run_id": run_id, "made_at": now}
        ids = {}
        for archive in archives:
            row = asdict(archive) | more
            row["note"] = archive.note and storable(archive.note)
            del row["digest"], row["prompts"]  # only the prompt of the first turn is stored
            ids[archive.entry_id] = self._insert("archives", row)
        return ids

    def summary(self, digest: bytes) -> str | None:
        row = self._execute(
            "SELECT b.id, b.digest FROM summaries s JOIN blobs b ON b.id = s.blob_id"
            " WHERE s.digest = ?", (digest,),
        ).fetchone()  # fmt: skip
        try:
            return Blobs(self._connection).get(*row).decode() if row else None
        except DamagedError:
            return None  # the turn gets another

    def keep_summary(self, digest: bytes, text: str) -> None:
        blob, _, _ = Blobs(self._connection).put(text.encode())
        self._insert("summaries", {"digest": digest, "blob_id": blob}, "REPLACE")

    def of_rewrite(self, journal_id: int) -> list[int]:
        return self._column(
            "SELECT DISTINCT archive_id FROM extractions"
            " WHERE journal_id = ? AND archive_id IS NOT NULL", journal_id,
        )  # fmt: skip

    def undone_by(self, restored: Sequence[int]) -> list[int]:
        return self._column(
            "SELECT DISTINCT archive_id FROM extractions WHERE archive_id IS NOT NULL"
            " AND path != ? AND id IN (SELECT value FROM json_each(?))",
            key_path_text(LINK), json.dumps(restored),
        )  # fmt: skip
