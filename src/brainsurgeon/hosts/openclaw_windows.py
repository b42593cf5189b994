"""What OpenClaw's agent database says of each session, beside its events.

OpenClaw calls one stretch of a conversation a *window*; it has an id that stays, and a key that
may change (a cron run renames it while it works). A *node* is what a key stands for. The columns
were read and watched in openclaw 2026.8.1 to 2026.9.6. Times in the database are milliseconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import sqlite3


@dataclass(frozen=True, slots=True)
class Times:
    """When the parts of a session last changed; 0 where that was never noted."""

    transcript: int
    observed: int
    window: int
    node: int

    def newest(self, own: int | None) -> int:
        """Return the newest time, leaving out what we noted ourselves at our last write."""
        theirs = (one for one in (self.transcript, self.observed) if one != own)
        return max(*theirs, self.window, self.node)


@dataclass(frozen=True, slots=True)
class Extent:
    """How far the events of a session reach, and under which rewrite they stand."""

    last: int | None
    generation: str | None
    rebuild: bool


@dataclass(frozen=True, slots=True)
class Work:
    """What shows that a run is under way or waits: statuses, the claim of a run, the queues.

    `statuses` are those of the window, of its node, and of the entry that the node carries.
    `readable` tells whether that entry could be read. `unsent` is the time of the oldest turn
    that a context engine has not been told of, None without one.
    """

    statuses: tuple[str | None, str | None, str | None]
    writer: str | None
    last_run: str | None
    queued: bool
    unsent: int | None
    readable: bool


@dataclass(frozen=True, slots=True)
class Window:
    """One session as the database describes it.

    `current` is the session that its key stands for now, None where the key has no node.
    `runtimes` name the programs that carry the session on.
    """

    session: str
    key: str
    current: str | None
    times: Times
    extent: Extent
    work: Work
    runtimes: tuple[str, ...]
    cold: bool


_LAST_MOMENT = 9_000_000_000_000
"""Milliseconds, in the year 2255: as nanoseconds it still fits a column of a database."""
_COLUMNS = """
    w.session_id, w.session_key, n.current_session_id,
    coalesce(w.transcript_updated_at, 0), coalesce(w.transcript_observed_at, 0), w.updated_at,
    coalesce(n.updated_at, 0),
    (SELECT max(seq) FROM transcript_events e WHERE e.session_id = w.session_id),
    (SELECT generation FROM transcript_rewrite_watermarks g WHERE g.session_id = w.session_id),
    (SELECT needs_rebuild FROM session_transcript_index_state i WHERE i.session_id = w.session_id),
    w.status, n.status, {entry.status}, {entry.activeWriterRunId}, {entry.lastRunId},
    EXISTS (SELECT 1 FROM session_pending_inputs p
            WHERE p.session_id = w.session_id AND p.state = 'queued'),
    (SELECT min(created_at) FROM context_engine_turn_outbox o WHERE o.session_id = w.session_id),
    coalesce(json_valid(n.entry_json), 0),
    w.agent_harness_id, {entry.agentHarnessId}, w.acp_owned, {cold}
"""
_ENTRY = "CASE WHEN json_valid(n.entry_json) THEN json_extract(n.entry_json, '$.{}') END"
_COLD = (
    "EXISTS (SELECT 1 FROM session_transcript_cold_archives c WHERE c.session_id = w.session_id)"
)
_FROM = " FROM session_windows w LEFT JOIN session_nodes n ON n.session_key = w.session_key"


def windows(connection: sqlite3.Connection) -> list[Window]:
    """Read every session's description; the entries of all nodes are parsed for it."""
    rows = connection.execute(_select(connection) + " ORDER BY w.created_at, w.session_id")
    return [_window(row) for row in rows.fetchall()]


def window(connection: sqlite3.Connection, session: str) -> Window | None:
    """Read one session's description, or None where there is no such session."""
    select = _select(connection) + " WHERE w.session_id = ?"
    row = connection.execute(select, (session,)).fetchone()
    return _window(row) if row else None


def context_tokens(connection: sqlite3.Connection, session: str) -> int | None:
    """Read how many tokens the model of a session takes, where its node says so."""
    said = _ENTRY.format("contextTokens")
    row = connection.execute(
        f"SELECT {said}{_FROM} WHERE w.session_id = ? AND n.current_session_id = w.session_id",
        (session,),
    ).fetchone()
    return row[0] if row and type(row[0]) is int and row[0] > 0 else None


def _select(connection: sqlite3.Connection) -> str:
    known = connection.execute(
        "SELECT 1 FROM sqlite_master WHERE name = 'session_transcript_cold_archives'"
    ).fetchone()
    columns = _COLUMNS.replace("{cold}", _COLD if known else "0")
    for name in ("status", "activeWriterRunId", "lastRunId", "agentHarnessId"):
        columns = columns.replace(f"{{entry.{name}}}", _ENTRY.format(name))
    return "SELECT" + columns + _FROM


def _window(row: tuple[Any, ...]) -> Window:
    session, key, current = row[:3]
    harness, entry_harness, acp, cold = row[18:]
    named = {name for name in (harness, entry_harness) if name} | ({"acp"} if acp else set())
    said = (*row[10:15], harness, entry_harness)
    readable = bool(row[17]) and all(isinstance(one, str | None) for one in said)
    return Window(
        session, key, current, Times(*map(_moment, row[3:7])),
        Extent(row[7], row[8], row[9] is None or bool(row[9])),
        Work(tuple(row[10:13]), row[13], row[14], bool(row[15]), row[16], readable),
        tuple(sorted(map(str, named))), bool(cold),
    )  # fmt: skip


def _moment(said: object) -> int:
    """Read a time; what is none, or lies too far in the future to count on, is the last one."""
    return said if isinstance(said, int) and said < _LAST_MOMENT else _LAST_MOMENT
