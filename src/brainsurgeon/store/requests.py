"""Pending requests, which are carried out as soon as a session is idle."""

import json
import os
from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec.structs import asdict

from brainsurgeon.model.records import PrintedAnswer, Request
from brainsurgeon.store.database import Table, columns
from brainsurgeon.store.history import Events

# Seconds for which a restore request stays open at least. Its value was printed already.
LEAST_WAIT = 600.0


class Requests(Table):
    def add(self, asked: Request) -> None:
        """Record a request. A set or relieve request replaces an older one for the same entry."""
        entry_id = asked.entry_id or ""
        if asked.action in ("set", "relieve"):
            self._execute(
                "UPDATE requests SET state = 'done', why = 'replaced by a newer one'"
                " WHERE session_id = ? AND entry_id = ? AND action = ? AND state = 'open'",
                (asked.session_id, entry_id, asked.action),
            )
        self._insert("requests", asdict(asked) | {
            "entry_id": entry_id, "paths": asked.paths and json.dumps(asked.paths),
            "value": json.dumps(asked.value),
            "answer": asked.answer and msgspec.json.encode(asked.answer),
        })  # fmt: skip

    def open_of(self, session_id: int) -> list[Request]:
        rows = self._execute(
            f"SELECT {columns(Request)} FROM requests"  # noqa: S608
            " WHERE session_id = ? AND state = 'open' ORDER BY id",
            (session_id,),
        )
        return [_request(Request(*row)) for row in rows]

    def sessions_waiting(self) -> dict[str, float]:
        """Return the paths of sessions with open requests, each with the time of the newest one.

        Includes requests to archive a turn.
        """
        rows = self._execute(
            "SELECT s.path, max(w.asked_at) FROM ("
            "SELECT session_id, asked_at FROM requests WHERE state = 'open' UNION ALL"
            " SELECT session_id, made_at FROM archives WHERE state = 'asked') w"
            " JOIN sessions s ON s.id = w.session_id WHERE s.path IS NOT NULL GROUP BY s.path"
        )
        return {os.fsdecode(path): at for path, at in rows}

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
        """Cancel restore requests whose time is up."""
        late = self._column(
            "SELECT id FROM requests"
            " WHERE state = 'open' AND lapses_at IS NOT NULL AND lapses_at <= ?",
            now,
        )
        why = "the session was not idle in time; the value was delivered when it was requested"
        self.cancel(late, why, now, run_id)

    def lapse_missed(self, until: float, now: float, run_id: int | None) -> None:
        """Cancel restore requests whose session has been missing since `until` or longer.

        An open request keeps the values of its session from expiring.
        """
        missed = self._column(
            "SELECT w.id FROM requests w JOIN sessions s ON s.id = w.session_id"
            " WHERE w.state = 'open' AND w.action = 'restore' AND s.missed_at <= ?",
            until,
        )
        why = "its session has been missing for so long that its values expire"
        self.cancel(missed, why, now, run_id)

    def newest(self, session_id: int) -> int:
        """Return the id of the newest request of a session, open or closed; 0 if there is none."""
        return self._first("SELECT max(id) FROM requests WHERE session_id = ?", session_id) or 0

    def count_open(self) -> int:
        return int(self._first("SELECT count(*) FROM requests WHERE state = 'open'"))


def _request(row: Request) -> Request:
    """Convert the columns of a row to the types of a request."""
    paths: Any = row.paths and json.loads(row.paths)  # type: ignore[arg-type]
    answer: Any = row.answer
    return msgspec.structs.replace(
        row,
        entry_id=row.entry_id or None,
        paths=paths and tuple(map(tuple, paths)),
        value=json.loads(row.value or "null"),
        pristine=bool(row.pristine),
        answer=answer and msgspec.json.decode(answer, type=PrintedAnswer),
    )
