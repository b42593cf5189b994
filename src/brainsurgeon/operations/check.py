"""Tell a monitor in one line whether somebody has to look."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from brainsurgeon.model.words import counted
from brainsurgeon.store import place

if TYPE_CHECKING:
    from brainsurgeon.operations.status import Leaving, Status

MINUTE, HOUR, DAY = 60, 3600, 86_400


@dataclass(frozen=True, slots=True)
class Check:
    """What is wrong, if anything; `age` is that of the last pass, in seconds."""

    troubles: tuple[str, ...]
    age: float | None


def check(now: Status, moment: float, *, max_age: float) -> Check:
    """Judge how things stand; a pass is too old when it was more than `max_age` seconds ago."""
    age = None if now.last_run_at is None else max(0.0, moment - now.last_run_at)
    troubles = [] if now.enabled else ["nothing is extracted: enabled = false"]
    if age is None:
        troubles.append("no pass was ever made")
    elif age > max_age:
        troubles.append(f"the last pass was {lasting(age)} ago")
    states = now.sessions_by_state
    bad = [(state, states.get(state, 0)) for state in ("failed", "unreadable")]
    troubles += [f"{counted(number, 'session')} {state}" for state, number in bad if number]
    troubles += [f"{root.path}: {root.problem}" for root in now.roots if root.problem]
    troubles += [
        f"{counted(len(listed), one, many)}"
        for listed, one, many in (
            (now.interrupted, "interrupted rewrite", "interrupted rewrites"),
            (now.kept_beside, "original file beside its session", "original files beside sessions"),
            (now.held_back, "root where nothing expires", "roots where nothing expires"),
        )
        if listed
    ]
    if now.leaving:
        troubles.append(leaving(now.leaving))
    left = place.free(now.store_path)
    if left is not None and left < place.SCARCE:
        troubles.append(f"{left:,} bytes of disk are left for the store")
    return Check(tuple(troubles), age)


def leaving(found: Leaving) -> str:
    """Say which values are about to expire since nobody sees their sessions any more."""
    day = datetime.fromtimestamp(found.expires_at, UTC).date()
    values = counted(found.values, "value")
    return f"{values} of sessions that are out of sight expire from {day} (UTC) on"


def lasting(seconds: float) -> str:
    """Write a span of time in its largest whole unit: 12 s, 3 min, 5 h, 2 d."""
    for size, unit in ((DAY, "d"), (HOUR, "h"), (MINUTE, "min")):
        if seconds >= size:
            return f"{seconds // size:.0f} {unit}"
    return f"{max(0, seconds):.0f} s"
