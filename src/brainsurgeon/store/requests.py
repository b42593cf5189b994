"""What was asked for and waits until its session is idle."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from brainsurgeon.model.records import Request
from brainsurgeon.store.history import Events

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable

    from brainsurgeon.model.entries import KeyPath


# How a request that speaks of all entries stands in its row.
_EVERY_ENTRY = ""

TOO_LATE = "no idle moment in time; the value was delivered when it was asked for"
OUT_OF_SIGHT = "its session is out of sight for so long that its values expire"
# Seconds a put-back waits at least before it lapses: its value was delivered when asked for.
LONGEST_WAIT = 600.0


def _request(row: tuple[Any, ...]) -> Request:
    values = list(row)
    values[2] = None if row[2] == _EVERY_ENTRY else row[2]
    values[4] = None if row[4] is None else tuple(tuple(path) for path in json.loads(row[4]))
    values[5] = None if row[5] is None else json.loads(row[5])
    values[6] = bool(row[6])
    return Request(*values)


class Requests:
    """What was asked for and waits until its session is idle."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def add_redact(self, session_id: int, entry_id: str, answer: bytes, now: float) -> None:
        """Note that the call whose answer carries this id is to be redacted; it does not lapse."""
        self._connection.execute(
            "INSERT INTO requests (session_id, entry_id, action, asked_at, answer)"
            " VALUES (?, ?, 'redact', ?, ?)",
            (session_id, entry_id, now, answer),
        )

    def add_restore(
        self,
        session_id: int,
        entry_id: str | None,
        paths: Iterable[KeyPath] | None,
        now: float,
        lapses_at: float | None,
        *,
        pristine: bool = False,
        rolls_back: int | None = None,
    ) -> None:
        """Note that values are to be put back, those of every entry without an `entry_id`.

        With `rolls_back`, only what that run cut and set.
        """
        narrowed = None if paths is None else json.dumps(list(paths))
        self._connection.execute(
            "INSERT INTO requests"
            " (session_id, entry_id, action, paths, pristine, asked_at, lapses_at, rolls_back)"
            " VALUES (?, ?, 'restore', ?, ?, ?, ?, ?)",
            (session_id, entry_id or _EVERY_ENTRY, narrowed, pristine, now, lapses_at, rolls_back),
        )

    def add_set(self, session_id: int, entry_id: str, value: Any, now: float) -> None:
        """Note that `_extractable` is to be set; a newer word on an entry replaces an older."""
        self._connection.execute(
            "UPDATE requests SET state = 'done', why = 'replaced by a newer one'"
            " WHERE session_id = ? AND entry_id = ? AND action = 'set' AND state = 'open'",
            (session_id, entry_id),
        )
        self._connection.execute(
            "INSERT INTO requests (session_id, entry_id, action, value, asked_at)"
            " VALUES (?, ?, 'set', ?, ?)",
            (session_id, entry_id, json.dumps(value), now),
        )

    def add_relieve(self, session_id: int, value: Any, now: float) -> None:
        """Note that a session is to be relieved; a newer word replaces an older."""
        self._connection.execute(
            "UPDATE requests SET state = 'done', why = 'replaced by a newer one'"
            " WHERE session_id = ? AND action = 'relieve' AND state = 'open'",
            (session_id,),
        )
        self._connection.execute(
            "INSERT INTO requests (session_id, entry_id, action, value, asked_at)"
            " VALUES (?, '', 'relieve', ?, ?)",
            (session_id, json.dumps(value), now),
        )

    def open_of(self, session_id: int) -> list[Request]:
        """Return the open requests of a session, oldest first."""
        rows = self._connection.execute(
            "SELECT id, session_id, entry_id, action, paths, value, pristine, asked_at, lapses_at,"
            " answer, rolls_back FROM requests"
            " WHERE session_id = ? AND state = 'open' ORDER BY id",
            (session_id,),
        )
        return [_request(row) for row in rows]

    def sessions_waiting(self) -> dict[bytes, float]:
        """Return the paths of the sessions with open requests, and when the newest was made.

        That a turn is to be folded is one, too.
        """
        rows = self._connection.execute(
            "SELECT s.path, max(w.asked_at) FROM ("
            "SELECT session_id, asked_at FROM requests WHERE state = 'open' UNION ALL"
            " SELECT session_id, made_at FROM archives WHERE state = 'asked'"
            ") w JOIN sessions s ON s.id = w.session_id WHERE s.path IS NOT NULL GROUP BY s.path"
        )
        return dict(rows)

    def end(self, ids: Iterable[int], why: str) -> None:
        """Close requests as done, with the reason."""
        self._connection.executemany(
            "UPDATE requests SET state = 'done', why = ? WHERE id = ?",
            ((why, request) for request in ids),
        )

    def reliefs(self) -> list[tuple[int, str, str]]:
        """Return the open requests to relieve, each with the path and the root of its session."""
        rows = self._connection.execute(
            "SELECT w.id, s.last_path, s.root FROM requests w"
            " JOIN sessions s ON s.id = w.session_id"
            " WHERE w.state = 'open' AND w.action = 'relieve' ORDER BY w.id"
        )
        return [(request, os.fsdecode(path), os.fsdecode(root)) for request, path, root in rows]

    def reliefs_lapsed(self) -> dict[int, str]:
        """Give, by session, why the last request to relieve it lapsed, where that one did."""
        rows = self._connection.execute(
            "SELECT session_id, why FROM requests WHERE state = 'lapsed' AND id IN"
            " (SELECT max(id) FROM requests WHERE action = 'relieve' GROUP BY session_id)"
        )
        return dict(rows)

    def let_go(self, ids: Iterable[int], why: str, now: float, run_id: int | None) -> None:
        """Close requests as lapsed, each with an event; part of a transaction."""
        for request in ids:
            session, entry, action = self._connection.execute(
                "UPDATE requests SET state = 'lapsed', why = ? WHERE id = ?"
                " RETURNING session_id, entry_id, action",
                (why, request),
            ).fetchone()
            facts = {"action": action, "entry_id": entry or None, "reason": why}
            Events(self._connection).add(now, "lapse", session, facts, run_id)

    def lapse(self, now: float, run_id: int | None = None) -> None:
        """Let put-backs go that found no idle moment in time; their values were delivered."""
        late = self._connection.execute(
            "SELECT id FROM requests"
            " WHERE state = 'open' AND lapses_at IS NOT NULL AND lapses_at <= ?",
            (now,),
        ).fetchall()
        self.let_go((request for (request,) in late), TOO_LATE, now, run_id)

    def lapse_missed(self, until: float, now: float, run_id: int | None) -> None:
        """Let restores go whose session was first missed at `until` or before, each with an event.

        They would keep its values for ever.
        """
        missed = self._connection.execute(
            "SELECT w.id FROM requests w JOIN sessions s ON s.id = w.session_id"
            " WHERE w.state = 'open' AND w.action = 'restore' AND s.missed_at <= ?",
            (until,),
        ).fetchall()
        self.let_go((request for (request,) in missed), OUT_OF_SIGHT, now, run_id)

    def newest(self, session_id: int) -> int:
        """Return the id of the newest request of a session, closed ones too; 0 without any."""
        row = self._connection.execute(
            "SELECT max(id) FROM requests WHERE session_id = ?", (session_id,)
        ).fetchone()
        return int(row[0] or 0)

    def count_open(self) -> int:
        """Count what was asked for and still waits."""
        row = self._connection.execute(
            "SELECT count(*) FROM requests WHERE state = 'open'"
        ).fetchone()
        return int(row[0])
