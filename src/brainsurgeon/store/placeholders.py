"""Which placeholder names which value: one pair of text and key path, one value, for ever."""

from __future__ import annotations

import json
import secrets
from typing import TYPE_CHECKING

from brainsurgeon.model.entries import placeholder_named
from brainsurgeon.store.columns import key_path_text

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Container, Iterable, Iterator

    from brainsurgeon.model.entries import KeyPath


LEAST_NUMBER = "least_number"
# The fact that says from which number on reused ids get new placeholders.


class Placeholders:
    """The placeholders that were ever given out."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def name(
        self, ident: str, path: KeyPath, digest: bytes, taken: Container[str] = frozenset(),
        *, reused: bool = False,
    ) -> str:  # fmt: skip
        """Return the id for the placeholder of a value: `ident`, or `ident~2`, `ident~3`, ...

        `digest` is that of the value's bytes. Equal bytes at the same path share a placeholder. A
        text in `taken` is never given out: it stands in the file already, for something else. An
        id that is `reused` is not random: other sessions have it as well. The cost does not grow
        with how often an id was used. Part of the caller's transaction.
        """
        place = ident, key_path_text(path)
        for number in self._known(place, digest):
            if placeholder_named(_numbered(ident, number)) not in taken:
                return _numbered(ident, number)
        number = self._unused(place, self._least() if reused else 1)
        while placeholder_named(_numbered(ident, number)) in taken:
            number += 1
        self._connection.execute(
            "INSERT INTO placeholders (id, path, number, digest) VALUES (?, ?, ?, ?)",
            (*place, number, digest),
        )
        return _numbered(ident, number)

    def _known(self, place: tuple[str, str], digest: bytes) -> Iterator[int]:
        """Yield the numbers under which a value was given out, most often one."""
        first = self._connection.execute(
            "SELECT digest FROM placeholders WHERE id = ? AND path = ? AND number = 1", place
        ).fetchone()
        if first is None:
            return
        if first[0] == digest:
            yield 1
        rows = self._connection.execute(
            "SELECT number FROM placeholders"
            " WHERE id = ? AND path = ? AND digest = ? AND number > 1 ORDER BY number",
            (*place, digest),
        )
        yield from (number for (number,) in rows)

    def _unused(self, place: tuple[str, str], least: int) -> int:
        row = self._connection.execute(
            "SELECT max(?, coalesce(max(number), 0) + 1) FROM placeholders"
            " WHERE id = ? AND path = ?",
            (least, *place),
        ).fetchone()
        return int(row[0])

    def _least(self) -> int:
        row = self._connection.execute(
            "SELECT value FROM meta WHERE key = ?", (LEAST_NUMBER,)
        ).fetchone()
        return json.loads(row[0]) if row else 1


def renumber(connection: sqlite3.Connection) -> None:
    """Keep a store that comes from a backup from giving out the texts of the one it replaces.

    What that one extracted after the backup still stands in files. Ids that are not random meet
    again there, so their numbers go on from a random one, beyond any that was ever reached.
    """
    least = json.dumps(secrets.randbelow(10**9) + 10**6)
    connection.execute(
        "INSERT OR REPLACE INTO meta (key, value) VALUES (?, ?)", (LEAST_NUMBER, least)
    )


def _numbered(ident: str, number: int) -> str:
    return ident if number == 1 else f"{ident}~{number}"


class Placements:
    """In which sessions extracted values stand."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def of_session(self, session_id: int) -> frozenset[int]:
        """Return the ids of the extractions that a session was last seen to hold."""
        rows = self._connection.execute(
            "SELECT extraction_id FROM placements WHERE session_id = ?", (session_id,)
        )
        return frozenset(row[0] for row in rows)

    def sessions_of(self, extraction_ids: Iterable[int]) -> frozenset[int]:
        """Return the ids of the sessions in which any of these extractions stands."""
        return frozenset(
            session
            for ident in extraction_ids
            for (session,) in self._connection.execute(
                "SELECT session_id FROM placements WHERE extraction_id = ?", (ident,)
            )
        )

    def of_run(self, run_id: int) -> Iterator[tuple[int, int]]:
        """Yield where what a run extracted stands: the ids of session and extraction."""
        return self._connection.execute(
            "SELECT p.session_id, p.extraction_id FROM extractions e"
            " CROSS JOIN placements p ON p.extraction_id = e.id WHERE e.run_id = ?",
            (run_id,),
        )

    def record(
        self, session_id: int, standing: Iterable[int], gone: Iterable[int],
        missed: Iterable[int], now: float,
    ) -> None:  # fmt: skip
        """Record what a look at a session found; part of the caller's transaction.

        `gone` are extractions whose entry was read and does not hold them any more, `missed` those
        whose entry was not found.
        """
        seen = self._connection.execute(
            "SELECT extraction_id FROM placements WHERE session_id = ? AND missed_at IS NULL",
            (session_id,),
        )
        self.add(session_id, set(standing) - {row[0] for row in seen})
        self.remove(session_id, gone, now)
        self._connection.executemany(
            "UPDATE placements SET missed_at = ?"
            " WHERE session_id = ? AND extraction_id = ? AND missed_at IS NULL",
            ((now, session_id, ident) for ident in missed),
        )

    def add(self, session_id: int, standing: Iterable[int]) -> None:
        """Record that extractions stand in a session; part of the caller's transaction.

        One that another rewrite replaced meanwhile is left out: the new one took its places over.
        """
        listed = list(standing)
        self._connection.executemany(
            "INSERT INTO placements (session_id, extraction_id)"
            " SELECT ?, id FROM extractions WHERE id = ?"
            " ON CONFLICT DO UPDATE SET missed_at = NULL WHERE missed_at IS NOT NULL",
            ((session_id, ident) for ident in listed),
        )
        self._connection.executemany(
            "UPDATE extractions SET unplaced_at = NULL WHERE id = ? AND unplaced_at IS NOT NULL",
            ((ident,) for ident in listed),
        )

    def remove(self, session_id: int, gone: Iterable[int], now: float) -> None:
        """Record that extractions no longer stand in a session; part of the transaction."""
        listed = list(gone)
        self._connection.executemany(
            "DELETE FROM placements WHERE session_id = ? AND extraction_id = ?",
            ((session_id, ident) for ident in listed),
        )
        self._connection.executemany(
            "UPDATE extractions SET unplaced_at = ?2 WHERE id = ?1 AND unplaced_at IS NULL"
            " AND NOT EXISTS (SELECT 1 FROM placements WHERE extraction_id = ?1)",
            ((ident, now) for ident in listed),
        )
