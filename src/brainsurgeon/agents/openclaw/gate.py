"""Check whether a session in OpenClaw's database may be written now.

The conditions were found by observing openclaw 2026.8.1 to 2026.9.6: throughout a run of the agent,
at least one is not met. They are checked before a change is prepared, and again inside the
transaction that writes. No time limit ends an open turn.
"""

import sqlite3
from collections.abc import Callable
from typing import Any

from msgspec import Struct

from brainsurgeon.agents.openclaw.database import DatabaseUse
from brainsurgeon.agents.rows import Recorded
from brainsurgeon.files import sqlite
from brainsurgeon.model.session_files import NotIdleError

# OpenClaw calls a session in the database a *window*. It has a fixed session id, and a session key
# that may change, for example during a cron run. A *node* is the record of a session key.
# Times in the database are milliseconds.


class WindowTimes(Struct, frozen=True):
    """Milliseconds of the last changes: 0 if not recorded, `_LAST_MOMENT` if invalid."""

    transcript: int
    observed: int
    window: int
    node: int

    def newest(self, own_write: int | None) -> int:
        """Return the time of the last change other than `own_write`."""
        theirs = (time for time in (self.transcript, self.observed) if time != own_write)
        return max(*theirs, self.window, self.node)


class WindowEvents(Struct, frozen=True):
    last: int | None  # sequence number
    generation: str | None  # id of the last rewrite
    needs_rebuild: bool  # set until OpenClaw has indexed the session
    is_archived: bool  # its events were moved

    def check(self) -> None:
        if self.is_archived:
            raise NotIdleError("its events were moved to an archive", given_up=True)
        if self.needs_rebuild:
            raise NotIdleError("OpenClaw has yet to index it again", in_database=True)
        if self.generation is None or self.last is None:
            raise NotIdleError("it has no events yet", given_up=True)


class WindowRun(Struct, frozen=True):
    statuses: tuple[str | None, ...]  # of the window, its node and the node's `entry_json`
    writing: str | None  # id of the run that claims the session
    last: str | None  # id of the last run that ended
    started_at: int | None
    ended_at: int | None


class Window(Recorded, frozen=True):
    current: str | None  # id of the session that has the key now; None if the key has no node
    times: WindowTimes
    events: WindowEvents
    run: WindowRun
    queued_at: int | None  # time of the newest queued message
    unsent_at: int | None  # time of the oldest turn that was not yet sent to the context engine
    readable: bool  # false if the node's `entry_json`, or a text of the window, is malformed
    runtimes: tuple[str, ...]

    @property
    def generation(self) -> str | None:
        return self.events.generation

    def newest(self, own_ms: int | None) -> int:
        return self.times.newest(own_ms)


# Milliseconds, in the year 2255. The same time in nanoseconds fits into an integer of SQLite.
_LAST_MOMENT = 9_000_000_000_000
_ENTRY = "CASE WHEN json_valid(n.entry_json) THEN json_extract(n.entry_json, '$.{}') END"
_COLUMNS = f"""
    w.session_id, w.session_key, n.current_session_id,
    coalesce(w.transcript_updated_at, 0), coalesce(w.transcript_observed_at, 0), w.updated_at,
    coalesce(n.updated_at, 0),
    (SELECT max(seq) FROM transcript_events e WHERE e.session_id = w.session_id),
    (SELECT generation FROM transcript_rewrite_watermarks g WHERE g.session_id = w.session_id),
    (SELECT needs_rebuild FROM session_transcript_index_state i WHERE i.session_id = w.session_id),
    w.status, n.status, {_ENTRY.format("status")}, {_ENTRY.format("activeWriterRunId")},
    {_ENTRY.format("lastRunId")}, w.started_at, w.ended_at,
    (SELECT max(accepted_at) FROM session_pending_inputs p
     WHERE p.session_id = w.session_id AND p.state = 'queued'),
    (SELECT min(created_at) FROM context_engine_turn_outbox o WHERE o.session_id = w.session_id),
    coalesce(json_valid(n.entry_json), 0),
    w.agent_harness_id, {_ENTRY.format("agentHarnessId")}, w.acp_owned"""  # noqa: S608
_COLD = (
    "EXISTS (SELECT 1 FROM session_transcript_cold_archives c WHERE c.session_id = w.session_id)"
)
_FROM = " FROM session_windows w LEFT JOIN session_nodes n ON n.session_key = w.session_key"


def windows(connection: sqlite3.Connection) -> list[Window]:
    rows = connection.execute(_select(connection) + " ORDER BY w.created_at, w.session_id")
    return [_window(row) for row in rows.fetchall()]


def names(connection: sqlite3.Connection) -> list[str]:
    rows = connection.execute("SELECT session_id FROM session_windows")
    return [str(name) for (name,) in rows.fetchall()]


def window(connection: sqlite3.Connection, session: str) -> Window | None:
    select = _select(connection) + " WHERE w.session_id = ?"
    row = connection.execute(select, (session,)).fetchone()
    return _window(row) if row else None


def context_tokens(connection: sqlite3.Connection, session: str) -> int | None:
    tokens = _ENTRY.format("contextTokens")
    row = connection.execute(
        f"SELECT {tokens}{_FROM} WHERE w.session_id = ? AND n.current_session_id = w.session_id",
        (session,),
    ).fetchone()
    return row[0] if row and type(row[0]) is int and row[0] > 0 else None


def started_by(connection: sqlite3.Connection, key: str) -> list[str]:
    spawned = f"coalesce(n.spawned_by, {_ENTRY.format('spawnedBy')})"
    rows = connection.execute(f"SELECT w.session_id{_FROM} WHERE {spawned} = ?", (key,))
    return [str(ident) for (ident,) in rows]


def _select(connection: sqlite3.Connection) -> str:
    known = sqlite.has_table(connection, "session_transcript_cold_archives")
    return f"SELECT {_COLUMNS}, {_COLD if known else 0}{_FROM}"


def _window(row: tuple[Any, ...]) -> Window:
    session, key, current = str(row[0]), str(row[1]), row[2]
    last, generation, needs_rebuild = row[7:10]
    harness, entry_harness, acp, is_archived = row[20:]
    runtimes = {name for name in (harness, entry_harness) if name} | ({"acp"} if acp else set())
    texts = (*row[10:15], harness, entry_harness)
    readable = bool(row[19]) and all(isinstance(text, str | None) for text in texts)
    events = WindowEvents(
        last, generation, needs_rebuild is None or bool(needs_rebuild), bool(is_archived)
    )
    return Window(
        session, key, current, WindowTimes(*map(_time, row[3:7])), events,
        WindowRun(tuple(row[10:13]), *row[13:17]), row[17], row[18], readable,
        tuple(sorted(map(str, runtimes))),
    )  # fmt: skip


def _time(value: object) -> int:
    return value if isinstance(value, int) and value < _LAST_MOMENT else _LAST_MOMENT


EMBEDDED = "openclaw"  # OpenClaw's own runtime; every other runtime keeps its own history
STUCK = 3600.0  # seconds after which a wait for OpenClaw counts as stuck
_OVER = (None, "done", "failed", "killed", "timeout")
_AHEAD = 5.0  # seconds that a time may lie in the future


class Gate(Struct, frozen=True):
    quiet: float  # seconds of silence that are required
    presence: DatabaseUse
    own_write: int | None = None  # time (milliseconds) of our last write, which is no activity

    def check(self, window: Window, now: float) -> None:
        """Raise NotIdleError if the session may not be written. Does not check its last turn."""
        self._check_foreign(window, now)
        self._check_work(window, now)
        self._check_waiting(window, now)
        window.events.check()
        self._check_silence(window, now)

    def _check_foreign(self, window: Window, now: float) -> None:
        if window.current is None:
            raise NotIdleError("its session key no longer refers to any session", given_up=True)
        if self.presence.maintained > now:
            raise NotIdleError("OpenClaw's doctor is at work on the database")
        if window.session in self.presence.elsewhere:
            raise NotIdleError("a worker on another machine is running it")
        foreign = next((name for name in window.runtimes if name != EMBEDDED), None)
        if foreign:
            raise NotIdleError(f"the runtime {foreign} keeps its history itself", given_up=True)
        if not window.readable:
            why = "OpenClaw's record of its session key cannot be read"
            raise NotIdleError(why, in_database=True)

    def _check_work(self, window: Window, now: float) -> None:
        if self.presence.is_closed:
            return  # no process has the database open: every run is over
        running = next((status for status in window.run.statuses if status not in _OVER), None)
        if running:
            raise NotIdleError(f"marked as {running} by its agent")
        newest, writing = window.times.newest(self.own_write), window.run.writing
        dead = self._opened_after(newest, now) or self.is_killed(window, now)
        if writing in (None, window.run.last) or dead:
            return
        age = now - newest / 1000
        stuck = f" for {_span(age)}; a restart of OpenClaw ends the claim" if age > STUCK else ""
        raise NotIdleError(f"claimed by the run {writing[:8]}{stuck}")

    def is_killed(self, window: Window, now: float) -> bool:
        started = window.run.started_at
        gone = self.presence.is_closed or (started is not None and self._opened_after(started, now))
        return gone and "killed" in window.run.statuses[:1]

    def _opened_after(self, moment: int, now: float) -> bool:
        """Check whether every process opened the database after `moment` (milliseconds).

        Then older claims and queued messages are dead: no process has them in memory. For example,
        `openclaw agent --local` leaves its claim behind. A restarted gateway resumes work within
        seconds, so the database must have been opened at least `quiet` seconds ago.
        """
        opened_at = self.presence.opened_at
        return opened_at is not None and all(
            since > moment and now - since / 1000 >= self.quiet for since in opened_at
        )

    def _check_waiting(self, window: Window, now: float) -> None:
        queued, ended = window.queued_at, window.run.ended_at
        # If a gateway is killed before it writes a queued message to the session, the message stays
        # queued for ever. A run that ended later shows this: messages are answered in order.
        passed = queued is not None and ended is not None and queued < ended
        if queued is not None and not (passed and self._opened_after(queued, now)):
            raise NotIdleError("a message waits to be answered", in_database=not passed)
        if window.unsent_at is not None:
            age = now - window.unsent_at / 1000
            stuck = f", stuck for {_span(age)}; only OpenClaw can settle it" if age > STUCK else ""
            raise NotIdleError(f"a turn waits for its context engine{stuck}", in_database=True)

    def _check_silence(self, window: Window, now: float) -> None:
        newest = window.times.newest(self.own_write) / 1000
        if newest > now + _AHEAD:
            raise NotIdleError("its times lie in the future", until=newest, in_database=True)
        silent = max(0.0, now - newest)
        if silent < self.quiet:
            reason = f"changed {silent:.0f} s ago; it must be unchanged for {self.quiet:.0f} s"
            raise NotIdleError(reason, until=newest + self.quiet, in_database=True)


def fence(
    gate: Gate, seen: Window, clock: Callable[[], float]
) -> Callable[[sqlite3.Connection], str | None]:
    def reason_not_to_write(connection: sqlite3.Connection) -> str | None:
        now = window(connection, seen.session)
        if now is None:
            return "the session was deleted meanwhile"
        try:
            gate.check(now, clock())
        except NotIdleError as not_idle:
            return str(not_idle)
        # If the window is unchanged, the last turn is unchanged, too, and need not be read again.
        return None if now == seen else "the session changed meanwhile"

    return reason_not_to_write


def _span(seconds: float) -> str:
    hours = int(seconds // 3600)
    return f"{hours // 24} days" if hours >= 48 else f"{hours} h"  # noqa: PLR2004
