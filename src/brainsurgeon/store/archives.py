"""Turns archived into their last answers, requests to archive turns, and summaries of turns."""

import json
from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import asdict

from brainsurgeon.errors import DamagedError
from brainsurgeon.model.records import Extraction
from brainsurgeon.model.turns import LINK, Archive, ArchiveRecord
from brainsurgeon.store.blobs import Blobs
from brainsurgeon.store.columns import Table, columns, key_path_text, storable
from brainsurgeon.store.history import Events

# The only style of summaries. The column dates from versions with several.
_STYLE = {"style": "structured"}
_NOTHING = dict.fromkeys(("entries", "tokens_before", "tokens_after", "depth"), 0) | _STYLE


class Archives(Table):
    def of_session(
        self, session_id: int, extractions: Iterable[Extraction] = ()
    ) -> list[ArchiveRecord]:
        """Return the archives of a session, and the archives that `extractions` belong to."""
        named = {one.archive_id for one in extractions if one.archive_id is not None}
        return self._archives(
            "session_id = ? OR id IN (SELECT value FROM json_each(?))",
            session_id, json.dumps(sorted(named)),
        )  # fmt: skip

    def standing(self, session_id: int) -> list[ArchiveRecord]:
        """Return the archives that a session contains, also archives made in another session."""
        return self._archives(
            "id IN (SELECT e.archive_id FROM placements p JOIN extractions e"
            " ON e.id = p.extraction_id WHERE p.session_id = ? AND e.archive_id IS NOT NULL)",
            session_id,
        )

    def by_id(self, archive_id: int) -> ArchiveRecord | None:
        return next(iter(self._archives("id = ?", archive_id)), None)

    def _archives(self, where: str, *values: object) -> list[ArchiveRecord]:
        statement = f"SELECT {columns(ArchiveRecord)} FROM archives WHERE {where} ORDER BY id"  # noqa: S608
        return [ArchiveRecord(*row) for row in self._execute(statement, values)]

    def add(
        self, session_id: int, archives: Iterable[Archive], now: float, run_id: int | None = None
    ) -> dict[str, int]:
        """Record archives that a rewrite is about to make; return their ids by entry."""
        more = {"session_id": session_id, "run_id": run_id, "state": "made", "made_at": now}
        ids = {}
        for archive in archives:
            row = asdict(archive) | more | _STYLE
            row["note"] = archive.note and storable(archive.note)
            del row["prompts"]  # only the prompt of the first turn is stored
            ids[archive.entry_id] = self._insert("archives", row)
        return ids

    def asked(self, session_id: int) -> bool:
        waiting = "SELECT 1 FROM archives WHERE session_id = ? AND state = 'asked'"
        return self._first(waiting, session_id) is not None

    def ask(self, session_id: int, prompt_id: str, note: str | None, now: float) -> None:
        """Record a request to archive a turn; it replaces an earlier one and its note."""
        self._forget_asked(session_id, prompt_id)
        self._insert("archives", _NOTHING | {
            "session_id": session_id, "entry_id": "", "prompt_id": prompt_id,
            "note": note and storable(note), "digest": b"", "state": "asked", "made_at": now,
        })  # fmt: skip

    def cancel(
        self, session_id: int, why: Mapping[str, str], now: float, run_id: int | None
    ) -> None:
        """Delete requests for turns that can no longer be archived, and record events.

        `why` maps the prompt id of each turn to the reason.
        """
        for prompt_id, reason in why.items():
            self._forget_asked(session_id, prompt_id)
            facts = {"action": "archive", "entry_id": prompt_id, "reason": reason}
            Events(self._connection).add(now, "lapse", session_id, facts, run_id)

    def _forget_asked(self, session_id: int, prompt_id: str) -> None:
        self._execute(
            "DELETE FROM archives WHERE session_id = ? AND prompt_id = ? AND state = 'asked'",
            (session_id, prompt_id),
        )

    def summary(self, digest: bytes) -> str | None:
        """Return the summary that a command wrote for the turn with this digest."""
        row = self._execute(
            "SELECT blob_id, blob_digest FROM summaries WHERE digest = ?", (digest,)
        ).fetchone()
        try:
            return Blobs(self._connection).get(*row).decode() if row else None
        except DamagedError:
            return None  # deleted or damaged: the command is run again

    def keep_summary(self, digest: bytes, text: str, now: float) -> None:
        blob, blob_digest, _ = Blobs(self._connection).put(text.encode())
        row = {"digest": digest, "blob_id": blob, "blob_digest": blob_digest, "made_at": now}
        self._insert("summaries", row, "OR REPLACE")

    def of_rewrite(self, journal_id: int) -> list[int]:
        """Return the ids of the archives that an unfinished rewrite makes."""
        return self._column(
            "SELECT DISTINCT archive_id FROM extractions"
            " WHERE journal_id = ? AND archive_id IS NOT NULL",
            journal_id,
        )

    def undone_by(self, restored: Sequence[int]) -> list[int]:
        """Return the archives that are undone when these values are restored: those with a text."""
        return self._column(
            "SELECT DISTINCT archive_id FROM extractions WHERE archive_id IS NOT NULL"
            " AND path != ? AND id IN (SELECT value FROM json_each(?))",
            key_path_text(LINK), json.dumps(restored),
        )  # fmt: skip

    def confirm(
        self, session_id: int, made: Sequence[int], undone: Sequence[int],
        prompts: Sequence[str] = (),
    ) -> None:  # fmt: skip
        """Delete the requests for archives that a rewrite made; mark the archives that it undid.

        `prompts` are the prompt ids of all archived turns: one archive may contain several turns.
        """
        self._execute(
            "DELETE FROM archives WHERE session_id = ?1 AND state = 'asked' AND (prompt_id IN"
            " (SELECT prompt_id FROM archives WHERE id IN (SELECT value FROM json_each(?2)))"
            " OR prompt_id IN (SELECT value FROM json_each(?3)))",
            (session_id, json.dumps(made), json.dumps(prompts)),
        )
        self._execute(
            "UPDATE archives SET state = 'undone' WHERE session_id = ? AND state = 'made'"
            " AND id IN (SELECT value FROM json_each(?))",
            (session_id, json.dumps(undone)),
        )
