"""May a session in OpenClaw's database be written now, and if not, why not.

The conditions were found by watching openclaw 2026.8.1 to 2026.9.6 at work: at no moment of a
run were all of them open. They are asked before anything is prepared and once more inside the
transaction that writes. There is no abandonment here: what looks like an open turn stays shut
until OpenClaw itself has ended it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from brainsurgeon.hosts.openclaw_schema import UnreadableEventError, last_message, open_turn, still

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable

    from brainsurgeon.hosts.openclaw_database import Presence
    from brainsurgeon.hosts.openclaw_schema import Schema


# OpenClaw calls one stretch of a conversation a *window*; it has an id that stays, and a key that
# may change (a cron run renames it while it works). A *node* is what a key stands for. The columns
# were read and watched in openclaw 2026.8.1 to 2026.9.6. Times in the database are milliseconds.


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


# Milliseconds, in the year 2255: as nanoseconds it still fits a column of a database.
_LAST_MOMENT = 9_000_000_000_000
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


# The name of the runtime that OpenClaw brings along; others own their history themselves.
EMBEDDED = "openclaw"
# Seconds after which something that waits for OpenClaw is called stuck.
STUCK = 3600.0

_OVER = (None, "done", "failed", "killed", "timeout")
# Seconds that a time may lie in the future before a clock is wrong.
_AHEAD = 5.0


@dataclass(frozen=True, slots=True)
class Closed:
    """Why a session may not be written now.

    `until` is when time alone may change that (seconds since 1970). `watched` tells whether it
    may also change without a change of the database: when a process ends.
    """

    reason: str
    until: float | None = None
    watched: bool = False


@dataclass(frozen=True, slots=True)
class Gate:
    """What is asked of a session: how quiet it must be, and who is at work on the database.

    `own` is the time that we noted in the session at our last write (milliseconds); it does not
    count as activity of its agent.
    """

    quiet: float
    presence: Presence
    own: int | None = None

    def closed(self, window: Window, now: float) -> Closed | None:
        """Return why this session may not be written at `now`, or None; its tail aside."""
        return (
            self._not_ours(window, now)
            or self._at_work(window, now)
            or _waiting(window, now)
            or self._restless(window, now)
        )

    def _not_ours(self, window: Window, now: float) -> Closed | None:
        if window.current is None:
            return Closed("its key stands for no session any more")
        if self.presence.maintained > now:
            return Closed("OpenClaw's doctor is at work on the database", watched=True)
        if window.session in self.presence.elsewhere:
            return Closed("a worker on another machine carries it on", watched=True)
        foreign = [name for name in window.runtimes if name != EMBEDDED]
        if foreign:
            return Closed(f"the runtime {foreign[0]} keeps its history itself")
        if not window.work.readable:
            return Closed("the description of its key cannot be read")
        return None

    def _at_work(self, window: Window, now: float) -> Closed | None:
        if self.presence.nobody:
            return None  # nobody has the database open: whatever ran is over
        work = window.work
        running = next((status for status in work.statuses if status not in _OVER), None)
        if running:
            return Closed(f"marked as {running} by its agent", watched=True)
        if work.writer in (None, work.last_run) or self._claim_is_dead(window, now):
            return None
        silent = now - window.times.newest(self.own) / 1000
        stuck = f"; stuck for {_span(silent)}, until OpenClaw restarts" if silent > STUCK else ""
        return Closed(f"claimed by the run {work.writer[:8]}{stuck}", watched=True)

    def _claim_is_dead(self, window: Window, now: float) -> bool:
        """Return whether every process came, and has been there a while, after the claim.

        Such a claim is what a finished `openclaw agent --local` leaves behind.
        """
        owners, newest = self.presence.owners, window.times.newest(self.own)
        return owners is not None and all(
            owner.since > newest and now - owner.since / 1000 >= self.quiet for owner in owners
        )

    def _restless(self, window: Window, now: float) -> Closed | None:
        newest = window.times.newest(self.own) / 1000
        if newest > now + _AHEAD:
            return Closed("its times lie in the future", until=newest)
        silent = max(0.0, now - newest)
        if silent < self.quiet:
            reason = f"changed {silent:.0f} s ago, quiet is {self.quiet:.0f} s"
            return Closed(reason, until=newest + self.quiet)
        return None


def _waiting(window: Window, now: float) -> Closed | None:
    if window.work.queued:
        return Closed("a message waits to be answered")
    if window.work.unsent is not None:
        age = now - window.work.unsent / 1000
        stuck = f", stuck for {_span(age)}; only OpenClaw can settle it" if age > STUCK else ""
        return Closed(f"a turn waits for its context engine{stuck}")
    if window.cold:
        return Closed("its events were moved to an archive")
    if window.extent.rebuild:
        return Closed("OpenClaw has yet to index it again")
    if window.extent.generation is None or window.extent.last is None:
        return Closed("it has no events yet")
    return None


def refusal(
    connection: sqlite3.Connection, schema: Schema, gate: Gate, seen: Window, now: float
) -> Closed | None:
    """Return why a session may not be written at `now`, or None: the whole gate, read here."""
    if schema.unknown:
        return Closed(schema.unknown)
    if shut := gate.closed(seen, now):
        return shut
    try:
        turn = open_turn(last_message(connection, schema, seen.session))
    except UnreadableEventError:
        turn = "its last message cannot be read"
    return Closed(turn) if turn else None


def fence(
    gate: Gate, seen: Window, schema: Schema, clock: Callable[[], float] = time.time
) -> Callable[[sqlite3.Connection], str | None]:
    """Return the check that is repeated inside the transaction.

    A session that is described as it was when it was read has the tail that was judged then:
    nothing is decoded under the lock.
    """

    def closed(connection: sqlite3.Connection) -> str | None:
        if not still(connection, schema):
            return "the layout of the database changed meanwhile"
        now = window(connection, seen.session)
        if now is None:
            return "the session was deleted meanwhile"
        if shut := gate.closed(now, clock()):
            return shut.reason
        return None if now == seen else "the session changed meanwhile"

    return closed


def after_our_write(seen: Window, own: int, generation: str) -> Window:
    """Return how the session is described after a write of ours and nobody else's."""
    times = replace(seen.times, transcript=own)
    return replace(seen, times=times, extent=replace(seen.extent, generation=generation))


def _span(seconds: float) -> str:
    hours = int(seconds // 3600)
    return f"{hours // 24} days" if hours >= 48 else f"{hours} h"  # noqa: PLR2004
