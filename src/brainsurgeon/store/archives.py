"""Which turns were folded into their last answers, and which are to be."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from brainsurgeon.errors import DamagedError
from brainsurgeon.model.turns import LINK, ArchiveRecord
from brainsurgeon.store.blobs import Blobs
from brainsurgeon.store.columns import key_path_text, storable
from brainsurgeon.store.history import Events

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Mapping, Sequence

    from brainsurgeon.model.records import Extraction
    from brainsurgeon.model.turns import Archive

_ARCHIVE = (
    "SELECT id, session_id, entry_id, prompt_id, entries, tokens_before, tokens_after, depth,"
    " style, note, digest, run_id, state, made_at,"
    " turns, calls, failed FROM archives"
)
_STANDS = (
    "id IN (SELECT e.archive_id FROM placements p JOIN extractions e ON e.id = p.extraction_id"
    " WHERE p.session_id = ? AND e.archive_id IS NOT NULL)"
)


class Archives:
    """The archives of all sessions."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def of_session(
        self, session_id: int, extractions: Iterable[Extraction] = ()
    ) -> list[ArchiveRecord]:
        """Return what is recorded of a session, and the archives that extractions are parts of."""
        named = {one.archive_id for one in extractions if one.archive_id is not None}
        return self._archives(
            "session_id = ? OR id IN (SELECT value FROM json_each(?))",
            [session_id, json.dumps(sorted(named))],
        )

    def standing(self, session_id: int) -> list[ArchiveRecord]:
        """Return the archives that stand in a session, also those it has from another."""
        return self._archives(_STANDS, [session_id])

    def by_id(self, archive_id: int) -> ArchiveRecord | None:
        return next(iter(self._archives("id = ?", [archive_id])), None)

    def add(
        self, session_id: int, archives: Iterable[Archive], now: float, run_id: int | None = None
    ) -> dict[str, int]:
        """Record archives that a rewrite of a run is about to make; give their ids by entry."""
        ids = {}
        for one in archives:
            cursor = self._connection.execute(
                "INSERT INTO archives (session_id, entry_id, prompt_id, entries, tokens_before,"
                " tokens_after, depth, style, note, digest, run_id, state, made_at, turns, calls,"
                " failed) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 'made', ?, ?, ?, ?)",
                (session_id, one.entry_id, one.prompt_id, one.entries, one.tokens_before,
                 one.tokens_after, one.depth, one.style, one.note and storable(one.note),
                 one.digest, run_id, now, one.turns, one.calls, one.failed),
            )  # fmt: skip
            ids[one.entry_id] = int(cursor.lastrowid or 0)
        return ids

    def asked(self, session_id: int) -> bool:
        """Check whether some turn of a session waits to be folded."""
        found = self._connection.execute(
            "SELECT 1 FROM archives WHERE session_id = ? AND state = 'asked'", (session_id,)
        )
        return found.fetchone() is not None

    def ask(self, session_id: int, prompt_id: str, note: str | None, now: float) -> None:
        """Note that a turn is to be folded as soon as it can be; a later note replaces it."""
        self._connection.execute(
            "DELETE FROM archives WHERE session_id = ? AND prompt_id = ? AND state = 'asked'",
            (session_id, prompt_id),
        )
        self._connection.execute(
            "INSERT INTO archives (session_id, entry_id, prompt_id, entries, tokens_before,"
            " tokens_after, depth, style, note, digest, state, made_at)"
            " VALUES (?, '', ?, 0, 0, 0, 0, '', ?, x'', 'asked', ?)",
            (session_id, prompt_id, note and storable(note), now),
        )

    def let_go(
        self, session_id: int, why: Mapping[str, str], now: float, run_id: int | None
    ) -> None:
        """Forget turns, by their prompts, that were asked for and never fold, each with an event.

        Part of a transaction.
        """
        for prompt_id, reason in why.items():
            self._connection.execute(
                "DELETE FROM archives WHERE session_id = ? AND prompt_id = ? AND state = 'asked'",
                (session_id, prompt_id),
            )
            facts = {"action": "archive", "entry_id": prompt_id, "reason": reason}
            Events(self._connection).add(now, "lapse", session_id, facts, run_id)

    def summary(self, digest: bytes) -> str | None:
        """Return what a command said of a turn, by the turn's digest.

        None where that is not held.
        """
        row = self._connection.execute(
            "SELECT blob_id, blob_digest FROM summaries WHERE digest = ?", (digest,)
        ).fetchone()
        try:
            return Blobs(self._connection).get(*row).decode() if row else None
        except DamagedError:
            return None  # let go of since, or damaged: the command says it again

    def keep_summary(self, digest: bytes, text: str, now: float) -> None:
        """Hold what a command said of a turn; part of a transaction."""
        blob, blob_digest, _ = Blobs(self._connection).put(text.encode())
        self._connection.execute(
            "INSERT OR REPLACE INTO summaries VALUES (?, ?, ?, ?)", (digest, blob, blob_digest, now)
        )

    def _archives(self, where: str, values: Sequence[Any]) -> list[ArchiveRecord]:
        rows = self._connection.execute(f"{_ARCHIVE} WHERE {where} ORDER BY id", values)
        return [ArchiveRecord(*row) for row in rows]


def ids_of(connection: sqlite3.Connection, journal_id: int) -> list[int]:
    """Return the ids of the archives that a rewrite under way makes."""
    rows = connection.execute(
        "SELECT DISTINCT archive_id FROM extractions"
        " WHERE journal_id = ? AND archive_id IS NOT NULL", (journal_id,),
    )  # fmt: skip
    return [int(row[0]) for row in rows]


def taken_back(connection: sqlite3.Connection, put_back: Sequence[int]) -> list[int]:
    """Return the ids of the archives whose texts are among the values that are put back."""
    if not put_back:
        return []
    rows = connection.execute(
        "SELECT DISTINCT archive_id FROM extractions WHERE archive_id IS NOT NULL"
        " AND path != ? AND id IN (SELECT value FROM json_each(?))",
        (key_path_text(LINK), json.dumps(list(put_back))),
    )
    return [int(row[0]) for row in rows]


def confirm_archives(
    connection: sqlite3.Connection, session_id: int, made: Sequence[int], undone: Sequence[int],
    prompts: Sequence[str] = (),
) -> None:  # fmt: skip
    """Let archives count that a rewrite made and took back; what was asked for is done.

    `prompts` are those of all turns that folded: several may have become one archive.
    """
    if made or prompts:
        connection.execute(
            "DELETE FROM archives WHERE session_id = ?1 AND state = 'asked' AND (prompt_id IN"
            " (SELECT prompt_id FROM archives WHERE id IN (SELECT value FROM json_each(?2)))"
            " OR prompt_id IN (SELECT value FROM json_each(?3)))",
            (session_id, json.dumps(list(made)), json.dumps(list(prompts))),
        )
    if undone:
        connection.execute(
            "UPDATE archives SET state = 'undone' WHERE session_id = ? AND state = 'made'"
            " AND id IN (SELECT value FROM json_each(?))",
            (session_id, json.dumps(list(undone))),
        )


def forget_archives(connection: sqlite3.Connection, ids: Sequence[int]) -> None:
    """Forget archives that were never made."""
    connection.execute(
        "DELETE FROM archives WHERE id IN (SELECT value FROM json_each(?))",
        (json.dumps(list(ids)),),
    )
