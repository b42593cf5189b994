"""How full sessions are, as they were last looked at: a memory that costs only time to lose."""

from __future__ import annotations

from typing import TYPE_CHECKING

from brainsurgeon.model.turns import Calibration, Fullness, Loads

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable

# The method of a calibration that other sessions of the agent may be estimated by.
_OWN = "session"
_SAID = 'rate, fixed, calls, method, error, load, "window", threshold, model, step'


class Calibrations:
    """How full sessions are."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def remember(self, session_id: int, full: Fullness, now: float) -> None:
        line = full.calibration
        self._connection.execute(
            f"INSERT OR REPLACE INTO calibration (session_id, {_SAID}, at)"  # noqa: S608
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (session_id, line.rate, line.fixed, line.calls, line.method, line.error, full.load,
             full.window, full.threshold, full.model, full.step, now),
        )  # fmt: skip

    def of(self, session_id: int) -> Fullness | None:
        """Return how full a session was when it was last looked at; its tier is not remembered."""
        row = self._connection.execute(
            f"SELECT {_SAID} FROM calibration WHERE session_id = ?",  # noqa: S608
            (session_id,),
        ).fetchone()
        if row is None:
            return None
        load, window, threshold, model, step = row[5:]
        return Fullness(load, window, threshold, Calibration(*row[:5]), model, step=step)

    def of_agent(self, agent_directory: bytes, but: int | None) -> list[Calibration]:
        """Return what the characters of an agent's other sessions take, by their own calls."""
        rows = self._connection.execute(
            "SELECT c.rate, c.fixed, c.calls, c.method, c.error FROM calibration c"
            " JOIN sessions s ON s.id = c.session_id JOIN agents a ON a.id = s.agent_id"
            " WHERE a.directory = ? AND c.method = ? AND s.id IS NOT ? ORDER BY s.id",
            (agent_directory, _OWN, but),
        )
        return [Calibration(*row) for row in rows]

    def forget(self, paths: Iterable[bytes]) -> None:
        """Forget the sessions that stood at these paths: their files are gone."""
        self._connection.executemany(
            "DELETE FROM calibration WHERE session_id IN (SELECT id FROM sessions WHERE path = ?)",
            ((path,) for path in paths),
        )

    def loads(self) -> Loads:
        """Add up what is remembered of all sessions."""
        row = self._connection.execute(
            'SELECT count(*), coalesce(sum(load), 0), coalesce(sum("window"), 0),'
            ' coalesce(sum(load > threshold * "window"), 0) FROM calibration'
        ).fetchone()
        return Loads(*row)
