"""May a session in OpenClaw's database be written now, and if not, why not.

The conditions were found by watching openclaw 2026.8.1 to 2026.9.6 at work: at no moment of a
run were all of them open. They are asked before anything is prepared and once more inside the
transaction that writes. There is no abandonment here: what looks like an open turn stays shut
until OpenClaw itself has settled it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from brainsurgeon.hosts.openclaw_events import UnreadableEventError, last_message, open_turn
from brainsurgeon.hosts.openclaw_schema import still
from brainsurgeon.hosts.openclaw_windows import window as read_window

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable

    from brainsurgeon.hosts.openclaw_schema import Schema
    from brainsurgeon.hosts.openclaw_state import Presence
    from brainsurgeon.hosts.openclaw_windows import Window

EMBEDDED = "openclaw"
"""The name of the runtime that OpenClaw brings along; others own their history themselves."""
STUCK = 3600.0
"""Seconds after which something that waits for OpenClaw is called stuck."""

_OVER = (None, "done", "failed", "killed", "timeout")
_AHEAD = 5.0
"""Seconds that a time may lie in the future before a clock is wrong."""


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
        now = read_window(connection, seen.session)
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
