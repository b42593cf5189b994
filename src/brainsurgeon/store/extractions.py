"""What was cut out of which entry, and when each entry was last restored."""

from __future__ import annotations

import json
from collections import defaultdict
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from brainsurgeon.errors import BusyError, DamagedError
from brainsurgeon.model.entries import stub_token
from brainsurgeon.model.records import Extraction
from brainsurgeon.model.stubs import stub_named
from brainsurgeon.store.blobs import Blobs
from brainsurgeon.store.key_paths import key_path_read, key_path_text
from brainsurgeon.store.texts import identity_text, storable

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Mapping, Sequence

    from brainsurgeon.model.edits import Cut
    from brainsurgeon.model.sessions import Identity


_EXTRACTION = (
    "SELECT id, session_id, entry_id, stub, path, kind, tool, block, chars, size, blob_id, state,"
    " extracted_at, sighted_at, restored_at, expired_at, expired_why, digest,"
    " replacement, anchor, exact, said, whole, pass_id, archive_id FROM extractions"
)


_SHARED = (
    "entry_id, stub, path, kind, tool, block, replacement, anchor, exact, chars, size, digest,"
    " blob_id, extracted_at, restored_at, expired_at, expired_why, said, whole, pass_id, archive_id"
)
"""What a session and one that was forked from it say alike of a swap."""


_OF_ENTRY = (
    "id IN (SELECT id FROM extractions WHERE entry_id = ? AND session_id IN"
    " (SELECT id FROM sessions) UNION SELECT id FROM extractions WHERE stub = ?)"
    " AND state != 'pending'"
)
"""Select the extractions of an entry by its id or by its stub; each half uses an index."""


Whole = tuple[str, bytes | None, bool, bool]
"""The id of an entry, the digest of what it was (None: not recorded), whether its stub was last
known to stand, and whether another text than a stub took the place of the value."""


def _extraction(row: tuple[Any, ...]) -> Extraction:
    values = list(row)
    values[4] = key_path_read(row[4])
    values[7] = bool(row[7])
    values[20] = bool(row[20])
    return Extraction(*values)


class Extractions:
    """What was cut out of which entry."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def of_sessions(self, ids: Iterable[int]) -> list[Extraction]:
        """Give the extractions of some sessions, but for rewrites under way.

        Those of the first session come last, each session's oldest first.
        """
        listed = list(dict.fromkeys(ids))
        slots = ",".join("?" * len(listed))
        found = self._extractions(f"session_id IN ({slots}) AND state != 'pending'", listed)
        return sorted(found, key=lambda one: -listed.index(one.session_id))

    def wholes(self, ids: Iterable[int]) -> dict[int, list[Whole]]:
        """Give, by session, what is recorded of its own entries when they were whole."""
        found: dict[int, list[Whole]] = defaultdict(list)
        for session, *row in self._connection.execute(
            "SELECT session_id, entry_id, whole, state = 'standing', replacement IS NOT NULL"
            " FROM extractions WHERE session_id IN (SELECT value FROM json_each(?))"
            " AND state != 'pending'", (json.dumps(list(ids)),),
        ):  # fmt: skip
            found[session].append((row[0], row[1], bool(row[2]), bool(row[3])))
        return found

    def of_entries(
        self, ids: Iterable[int], entries: Iterable[str], stubs: Iterable[str]
    ) -> list[Extraction]:
        """Give those of `of_sessions` that speak of some entries, or stand there as these stubs.

        What it costs grows with what is asked for, not with what was ever cut.
        """
        listed = list(dict.fromkeys(ids))
        slots = ",".join("?" * len(listed))
        known = f"session_id IN ({slots}) AND state != 'pending'"
        at = f"{known} AND entry_id IN (SELECT value FROM json_each(?))"  # noqa: S608
        by_stub = f"+{known} AND stub IN (SELECT value FROM json_each(?))"  # noqa: S608
        met = self._extractions(by_stub, [*listed, json.dumps(sorted(stubs))])
        named = {*entries, *(one.entry_id for one in met)}
        met += self._extractions(at, [*listed, json.dumps(sorted(named))])
        found = sorted({one.id: one for one in met}.values(), key=lambda one: one.id)
        return sorted(found, key=lambda one: -listed.index(one.session_id))

    def of_pass(self, pass_id: int) -> list[Extraction]:
        """Give what a pass cut, restored and expired ones too, but for rewrites under way."""
        return self._extractions("pass_id = ? AND state != 'pending'", [pass_id])

    def elsewhere(self, identity: Identity | None, ids: Iterable[int]) -> list[Extraction]:
        """Give the extractions of sessions that say this of themselves, but for some sessions."""
        if identity is None:
            return []
        alike = "session_id IN (SELECT id FROM sessions WHERE identity = ?) AND state != 'pending'"
        others = set(ids)
        found = self._extractions(alike, [identity_text(identity)])
        return [one for one in found if one.session_id not in others]

    def of_entry(self, entry_id: str) -> list[Extraction]:
        """Give the extractions of an entry, by its own id or by the one that stands in its stub."""
        if storable(entry_id) != entry_id:  # typed, in other bytes than ids are made of
            return []
        return self._extractions(_OF_ENTRY, [entry_id, stub_named(entry_id)])

    def _extractions(self, where: str, values: Sequence[object]) -> list[Extraction]:
        rows = self._connection.execute(f"{_EXTRACTION} WHERE {where} ORDER BY id", values)
        return [_extraction(row) for row in rows]

    def add(
        self,
        session_id: int,
        journal_id: int,
        shelved: Iterable[tuple[Cut, int, bytes, int]],
        now: float,
        pass_id: int | None = None,
        archives: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        """Note the cuts that a rewrite of a pass is about to make; they count once it has happened.

        Each comes with the id, the digest and the size in bytes of the stored value. `archives` are
        the ids of those that are made, by their entries'.
        """
        self._connection.executemany(
            "INSERT INTO extractions (session_id, entry_id, stub, path, kind, tool, block,"
            " replacement, anchor, exact, said, whole, chars, size, digest, blob_id, state,"
            " journal_id, extracted_at, sighted_at, pass_id, archive_id)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 'pending', ?, ?, ?, ?, ?)",
            (
                (session_id, cut.entry_id, cut.stub, key_path_text(cut.path), cut.kind,
                 cut.tool and storable(cut.tool), cut.block,
                 cut.replacement and cut.replacement.decode(),
                 cut.anchor and storable(cut.anchor), cut.exact, cut.said, cut.whole, cut.chars,
                 size, digest, blob_id, journal_id, now, now, pass_id,
                 archives.get(cut.entry_id) if cut.folds else None)
                for cut, blob_id, digest, size in shelved
            ),
        )  # fmt: skip

    def adopt(self, ids: Iterable[int], session_id: int, now: float) -> None:
        """Give a session extractions of its own for stubs that stand in it and were another's."""
        self._connection.executemany(
            f"INSERT INTO extractions (session_id, {_SHARED}, state, sighted_at)"  # noqa: S608
            f" SELECT ?, {_SHARED}, iif(blob_id IS NULL, 'expired', 'standing'), ?"
            " FROM extractions WHERE id = ? AND session_id != ?",
            ((session_id, now, row, session_id) for row in ids),
        )

    def sight(self, ids: Iterable[int], now: float) -> None:
        """Note that the stubs of these extractions were seen standing in some file."""
        self._connection.executemany(
            "UPDATE extractions SET sighted_at = ? WHERE id = ?", ((now, row) for row in ids)
        )

    def stand(self, session_id: int | None, ids: Iterable[int]) -> None:
        """Note that these stubs were seen standing in a session.

        Those that it has from another session say nothing of that one.
        """
        self._connection.executemany(
            "UPDATE extractions SET state = 'standing'"
            " WHERE id = ? AND session_id = ? AND state = 'restored'",
            ((row, session_id) for row in ids),
        )

    def stand_no_more(self, ids: Iterable[int]) -> None:
        """Note that these stubs stand no more in the session out of which they were cut."""
        self._connection.executemany(
            "UPDATE extractions SET state = 'restored' WHERE id = ? AND state = 'standing'",
            ((row,) for row in ids),
        )

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
        """Give when each entry of a session was last restored, as the store remembers it."""
        return dict(
            self._connection.execute(
                "SELECT entry_id, restored_at FROM restores WHERE session_id = ?", (session_id,)
            )
        )

    def shelved(self, extraction_id: int) -> tuple[int, bytes, int]:
        """Give which stored value an extraction names, its digest and its size in bytes.

        Raise BusyError where it expired.
        """
        row = self._connection.execute(
            "SELECT blob_id, digest, size FROM extractions WHERE id = ? AND blob_id IS NOT NULL",
            (extraction_id,),
        ).fetchone()
        if row is None:
            raise BusyError("a value expired while an archive was about to take it over")
        return int(row[0]), bytes(row[1]), int(row[2])

    def owners(self, stubs: Iterable[str]) -> list[int]:
        """Give the sessions out of which values were cut for which these stubs stand."""
        owners: set[int] = set()
        for stub in stubs:
            where = "SELECT DISTINCT session_id FROM extractions WHERE stub = ?"
            owners.update(row[0] for row in self._connection.execute(where, (stub,)))
        return sorted(owners)

    def stubs(self) -> dict[int, set[str]]:
        """Give, by session, the texts of all stubs that were ever put there, gone ones too."""
        stubs: dict[int, set[str]] = defaultdict(set)
        for session, stub in self._connection.execute(
            "SELECT DISTINCT session_id, stub FROM extractions WHERE stub != ''"
        ):
            stubs[session].add(stub)
        return stubs

    def totals(self) -> dict[int, tuple[int, int]]:
        """Give, by session, how many values stand extracted and how many bytes are saved in all.

        Archived turns change how large a session is, and are no values.
        """
        rows = self._connection.execute(
            "SELECT session_id, stub, block, length(CAST(replacement AS BLOB)) AS instead,"
            " count(*), count(*) - count(archive_id), sum(size)"
            " FROM extractions WHERE state = 'standing'"
            " GROUP BY session_id, length(stub), block, instead"
        )
        totals: dict[int, tuple[int, int]] = {}
        for session, stub, block, replacement, number, values, size in rows:
            token = replacement or len(stub_token(stub, block=bool(block)))
            count, saved = totals.get(session, (0, 0))
            totals[session] = (count + values, saved + size - number * token)
        return totals
