"""Decide what expires, and when a root is too suspicious for anything to be deleted there.

An extraction that expired is first marked, and deleted only by a later run, when a scan in
between has seen its root without error. What is marked and no longer expired is unmarked.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from brainsurgeon.model.words import counted

CLOCK_TOLERANCE = 3600.0
"""Seconds by which the wall clock may drift from the boot clock between two runs."""
LONGEST_REBOOT = 7 * 86_400.0
"""Seconds between two runs across a reboot beyond which the wall clock is not believed."""


@dataclass(frozen=True, slots=True)
class Held:
    """An extraction whose value is still held.

    `standing` is whether its stub stands in a file, `activity` when such a file last changed.
    """

    id: int
    extracted_at: float
    sighted_at: float
    restored_at: float | None
    marked_at: float | None
    standing: bool
    activity: float = 0.0


Action = Literal["keep", "mark", "unmark", "delete"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is to be done with one extraction, and why."""

    id: int
    action: Action
    why: str


@dataclass(frozen=True, slots=True)
class Clock:
    """The wall clock beside the boot clock, both in seconds, and which boot it was."""

    wall: float
    boot: float
    boot_id: str


@dataclass(frozen=True, slots=True)
class RootState:
    """What a retention run found of one root. `error` is why it could not be seen whole.

    The number of sessions is then the one of the last run that could see it.
    """

    sessions: int
    error: str | None = None


def expires_at(
    held: Held, retention: float | None, retention_standing: float | None
) -> tuple[float, str] | None:
    """Tell when a value expires and under which rule; None when it is kept for ever."""
    if held.standing:
        if retention_standing is None:
            return None
        since = max(held.extracted_at, held.restored_at or 0.0, held.activity)
        return since + retention_standing, "its session has been silent"
    if retention is None:
        return None
    return max(held.extracted_at, held.sighted_at) + retention, "its stub stands nowhere any more"


def judge(
    held: Held,
    retention: float | None,
    retention_standing: float | None,
    now: float,
    *,
    seen_since: float | None,
) -> Verdict:
    """Decide about one extraction.

    `seen_since` is when a scan last saw its root without error; None while a brake is on, when
    nothing is deleted.
    """
    end = expires_at(held, retention, retention_standing)
    if end is None or now < end[0]:
        if held.marked_at is None:
            return Verdict(held.id, "keep", "not expired")
        return Verdict(held.id, "unmark", "not expired any more")
    moment, why = end
    why = f"{why}; expired {_ago(now - moment)}"
    if held.marked_at is None:
        return Verdict(held.id, "mark", why)
    if seen_since is None or seen_since <= held.marked_at:
        return Verdict(held.id, "keep", "marked; waits for a scan that sees its root without error")
    return Verdict(held.id, "delete", why)


def _ago(seconds: float) -> str:
    """Say how long ago (in seconds) something was, in the largest unit of which there is one."""
    for unit, length in (("day", 86_400), ("hour", 3600), ("minute", 60)):
        if seconds >= length:
            return f"{counted(int(seconds / length), unit)} ago"
    return "just now"


def brake(before: RootState | None, found: RootState) -> str | None:
    """Say why nothing may be deleted below a root in this run, or None.

    `before.sessions` are those of the last run that saw it whole. A root that lost its sessions
    is believed when the next run finds it the same.
    """
    if found.error:
        return found.error
    if before is None:
        return None
    if found.sessions == 0 and before.sessions > 0:
        return f"it is suddenly empty ({counted(before.sessions, 'session')} before)"
    if found.sessions * 2 < before.sessions:
        return f"it lost more than half of its sessions ({before.sessions} -> {found.sessions})"
    return None


def clock_jumped(before: Clock | None, now: Clock) -> str | None:
    """Say that the wall clock cannot be believed in this run, or None."""
    if before is None:
        return None
    wall = now.wall - before.wall
    if now.boot_id == before.boot_id:
        drift = wall - (now.boot - before.boot)
        if abs(drift) > CLOCK_TOLERANCE:
            return f"the wall clock jumped by {drift / 3600:+,.0f} hours"
    elif not 0 <= wall <= LONGEST_REBOOT:
        return f"the wall clock moved by {wall / 3600:+,.0f} hours across a reboot"
    return None
