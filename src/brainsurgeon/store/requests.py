"""Pending requests, which are carried out as soon as a session is idle."""

import json
import os
from collections.abc import Iterable
from typing import Any, Literal

import msgspec

from brainsurgeon.model.records import PrintedAnswer, Request
from brainsurgeon.store.columns import Table
from brainsurgeon.store.history import Events

# Seconds for which a restore waits at least. Its value was delivered when it was requested.
LONGEST_WAIT = 600.0


class Requests(Table):
    def add_redact(self, session_id: int, entry_id: str, answer: PrintedAnswer, now: float) -> None:
        """Request to redact the call whose result holds this answer; it does not lapse."""
        self._execute(
            "INSERT INTO requests (session_id, entry_id, action, asked_at, answer)"
            " VALUES (?, ?, 'redact', ?, ?)",
            (session_id, entry_id, now, msgspec.json.encode(answer)),
        )

    def add_restore(self, asked: Request) -> None:
        paths = None if asked.paths is None else json.dumps(asked.paths)
        self._execute(
            "INSERT INTO requests"
            " (session_id, entry_id, action, paths, pristine, asked_at, lapses_at, rolls_back)"
            " VALUES (?, ?, 'restore', ?, ?, ?, ?, ?)",
            (asked.session_id, asked.entry_id or "", paths, asked.pristine, asked.asked_at,
             asked.lapses_at, asked.rolls_back),
        )  # fmt: skip

    def replace(
        self, action: Literal["set", "relieve"], session_id: int, entry_id: str, value: Any,
        now: float,
    ) -> None:  # fmt: skip
        """Request to set `_extractable` of an entry, or to relieve a session (`entry_id` is "").

        It replaces an older request with the same action and entry.
        """
        self._execute(
            "UPDATE requests SET state = 'done', why = 'replaced by a newer one'"
            " WHERE session_id = ? AND entry_id = ? AND action = ? AND state = 'open'",
            (session_id, entry_id, action),
        )
        self._execute(
            "INSERT INTO requests (session_id, entry_id, action, value, asked_at)"
            " VALUES (?, ?, ?, ?, ?)",
            (session_id, entry_id, action, json.dumps(value), now),
        )

    def open_of(self, session_id: int) -> list[Request]:
        """Return the open requests of a session, oldest first."""
        return [
            Request(
                ident,
                session_id,
                entry_id or None,
                action,
                None if paths is None else tuple(tuple(path) for path in json.loads(paths)),
                None if value is None else json.loads(value),
                bool(pristine),
                asked_at,
                lapses_at,
                _answer_read(answer),
                rolls_back,
            )
            for (
                ident, entry_id, action, paths, value, pristine, asked_at, lapses_at, answer,
                rolls_back,
            ) in self._execute(
                "SELECT id, entry_id, action, paths, value, pristine, asked_at, lapses_at, answer,"
                " rolls_back FROM requests WHERE session_id = ? AND state = 'open' ORDER BY id",
                (session_id,),
            )
        ]  # fmt: skip

    def sessions_waiting(self) -> dict[bytes, float]:
        """Return the paths of sessions with open requests, each with the time of the newest one.

        Includes requests to archive a turn.
        """
        return dict(
            self._execute(
                "SELECT s.path, max(w.asked_at) FROM ("
                "SELECT session_id, asked_at FROM requests WHERE state = 'open' UNION ALL"
                " SELECT session_id, made_at FROM archives WHERE state = 'asked') w"
                " JOIN sessions s ON s.id = w.session_id WHERE s.path IS NOT NULL GROUP BY s.path"
            )
        )

    def end(self, ids: Iterable[int], why: str) -> None:
        self._executemany(
            "UPDATE requests SET state = 'done', why = ? WHERE id = ?", ((why, row) for row in ids)
        )

    def reliefs(self) -> list[tuple[int, str, str]]:
        """Return the open relieve requests, each with the path and the root of its session."""
        rows = self._execute(
            "SELECT w.id, s.last_path, s.root FROM requests w"
            " JOIN sessions s ON s.id = w.session_id"
            " WHERE w.state = 'open' AND w.action = 'relieve' ORDER BY w.id"
        )
        return [(request, os.fsdecode(path), os.fsdecode(root)) for request, path, root in rows]

    def reliefs_lapsed(self) -> dict[int, str]:
        """Return by session why its last relieve request lapsed, if it did."""
        return dict(
            self._execute(
                "SELECT session_id, why FROM requests WHERE state = 'lapsed' AND id IN"
                " (SELECT max(id) FROM requests WHERE action = 'relieve' GROUP BY session_id)"
            )
        )

    def cancel(self, ids: Iterable[int], why: str, now: float, run_id: int | None) -> None:
        """Close requests as lapsed and record an event for each."""
        for request in ids:
            session, entry, action = self._execute(
                "UPDATE requests SET state = 'lapsed', why = ? WHERE id = ?"
                " RETURNING session_id, entry_id, action",
                (why, request),
            ).fetchone()
            facts = {"action": action, "entry_id": entry or None, "reason": why}
            Events(self._connection).add(now, "lapse", session, facts, run_id)

    def lapse(self, now: float, run_id: int | None = None) -> None:
        """Cancel restores whose time is up. Their values were delivered when requested."""
        late = self._column(
            "SELECT id FROM requests"
            " WHERE state = 'open' AND lapses_at IS NOT NULL AND lapses_at <= ?",
            now,
        )
        why = "no idle moment in time; the value was delivered when it was asked for"
        self.cancel(late, why, now, run_id)

    def lapse_missed(self, until: float, now: float, run_id: int | None) -> None:
        """Cancel restores whose session has been missing since `until` or longer.

        They would keep its values from expiring for ever.
        """
        missed = self._column(
            "SELECT w.id FROM requests w JOIN sessions s ON s.id = w.session_id"
            " WHERE w.state = 'open' AND w.action = 'restore' AND s.missed_at <= ?",
            until,
        )
        why = "its session is out of sight for so long that its values expire"
        self.cancel(missed, why, now, run_id)

    def newest(self, session_id: int) -> int:
        """Return the id of the newest request of a session, closed ones too; 0 without any."""
        return self._first("SELECT max(id) FROM requests WHERE session_id = ?", session_id) or 0

    def count_open(self) -> int:
        return int(self._first("SELECT count(*) FROM requests WHERE state = 'open'"))


def _answer_read(stored: bytes | None) -> PrintedAnswer | None:
    """Return the answer as stored, or None; former versions stored no more than its id."""
    try:
        return msgspec.json.decode(stored, type=PrintedAnswer) if stored else None
    except msgspec.DecodeError:
        return None
