"""Decide when a stored value expires, and when a retention run deletes nothing."""

from msgspec import Struct

from brainsurgeon.model.records import Held

# Seconds by which the wall clock may drift from the boot clock between two runs.
CLOCK_TOLERANCE = 3600.0
# After a longer pause (seconds) the next run deletes nothing: much may have changed meanwhile.
LONGEST_PAUSE = 2 * 86_400.0
# Seconds for which values are kept after a rewrite whose old file cannot be removed.
ENDED = 30 * 86_400.0
# `status` announces values of missing sessions this many seconds before they expire.
NOTICE = 7 * 86_400.0

UNPLACED = "its placeholder is in no session any more"
MISSING = "its session or its entry is missing"
SILENT = "nothing happened in its session"


def expires_at(
    held: Held, retention: float | None, retention_standing: float | None
) -> tuple[float, str] | None:
    if held.unseen:
        return None
    moments = []
    if held.activity is not None:
        moments.append((max(held.activity, held.extracted_at, held.restored_at or 0.0), SILENT))
    if held.missed_at is not None:
        moments.append((held.missed_at, MISSING))
    if moments:
        since, why = max(moments)
        return None if retention_standing is None else (since + retention_standing, why)
    if retention is None:
        return None
    return (held.unplaced_at or held.extracted_at) + retention, UNPLACED


class Clock(Struct, frozen=True):
    wall: float  # seconds
    boot: float  # seconds
    boot_id: str


def clock_moved(before: Clock | None, now: Clock) -> str | None:
    if before is None:
        return None
    wall = now.wall - before.wall
    if now.boot_id == before.boot_id:
        drift = wall - (now.boot - before.boot)
        if abs(drift) > CLOCK_TOLERANCE:
            return f"the wall clock moved by {drift / 3600:+,.0f} hours"
    elif wall < 0:
        return "the wall clock went back across a reboot"
    return None


def first_in_days(before: Clock | None, now: Clock) -> str | None:
    if before is not None and now.wall - before.wall <= LONGEST_PAUSE:
        return None
    return "this is the first retention run in two days; the next one deletes expired values"
