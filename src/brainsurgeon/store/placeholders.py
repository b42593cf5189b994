"""The placeholders of values, and the sessions that contain them.

A pair of placeholder text and key path means one value, for ever.
"""

from __future__ import annotations

import secrets
from collections.abc import Container, Iterable, Iterator
from typing import TYPE_CHECKING

from brainsurgeon.model.entries import KeyPath, placeholder_named
from brainsurgeon.store.columns import Table, key_path_text
from brainsurgeon.store.history import Facts

if TYPE_CHECKING:
    import sqlite3

# Key of the fact with the least number for new placeholders of reused ids.
_LEAST_NUMBER = "least_number"


class Placeholders(Table):
    def name(
        self, ident: str, path: KeyPath, digest: bytes, taken: Container[str] = frozenset(),
        *, reused: bool = False,
    ) -> str:  # fmt: skip
        """Return the id for the placeholder of a value: `ident`, or `ident~2`, `ident~3`, ...

        `digest` is the digest of the value's bytes. Equal bytes at the same path share a
        placeholder. `taken` are texts that the file already contains with another meaning; they are
        not used. `reused` if the id is not random, so that other sessions have it as well. The cost
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
    same placeholders again, so their numbers continue from a random one, above all that were used.
    """
    Facts(connection).put(_LEAST_NUMBER, secrets.randbelow(10**9) + 10**6)


def _numbered(ident: str, number: int) -> str:
    return ident if number == 1 else f"{ident}~{number}"


class Placements(Table):
    """The sessions that contain the placeholders of extracted values."""

    def of_session(self, session_id: int) -> frozenset[int]:
        """Return the ids of the extractions that a session contained when it was last read."""
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
        """Record that a session no longer contains extractions."""
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
