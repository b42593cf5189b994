"""Decide when a stored value expires, and when a retention run deletes nothing."""

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from brainsurgeon.model.records import Held
from brainsurgeon.model.rules import Terms

DAY = 86_400.0
# Seconds by which the wall clock may drift from the boot clock between two runs.
CLOCK_TOLERANCE = 3600.0
# Seconds that count at most between two runs: nobody knows what happened meanwhile, and the clock
# may have been wrong.
LONGEST_STEP = 7 * DAY
# A missing session must be seen missing on so many days (UTC) before its values expire.
DAYS_MISSED = 3
# Seconds for which values are kept after a rewrite whose old file cannot be removed.
ENDED = 30 * DAY
# `status` announces values of missing sessions this many seconds before they expire.
NOTICE = 7 * DAY

UNPLACED = "its placeholder is in no session any more: it was restored, or written anew"
MISSING = "its session or its entry is missing"
SILENT = "nothing happened in its session"


def expires_at(held: Held, terms: Terms) -> tuple[float, str] | None:
    """Return when a value expires, in the time of its `Held`, and why. None: not as things are."""
    if held.unseen:
        return None
    if held.activity is not None:
        return None if terms.standing is None else (held.activity + terms.standing, SILENT)
    if held.missed_at is not None:
        if terms.missing is None or held.days_missed < DAYS_MISSED:
            return None
        return held.missed_at + terms.missing, MISSING
    if terms.retention is None or held.unplaced_at is None:
        return None
    return held.unplaced_at + terms.retention, UNPLACED


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


class Interval(Struct, frozen=True):
    """The time from the last run to `clock`.

    Terms are measured in counted time, which only runs advance: at most LONGEST_STEP between two of
    them, whatever happens to the wall clock.
    """

    before: Clock | None  # of the last run
    start: float  # counted time of the last run
    clock: Clock

    @property
    def moved(self) -> str | None:
        return clock_moved(self.before, self.clock)

    @property
    def now(self) -> float:
        """Counted time."""
        if self.before is None:
            return self.clock.wall
        if self.clock.boot_id == self.before.boot_id:
            passed = self.clock.boot - self.before.boot
        else:
            passed = self.clock.wall - self.before.wall
        return self.start + min(max(0.0, passed), LONGEST_STEP)

    def at(self, wall: float) -> float:
        """Return the counted time of a moment, at the latest now; now if the clock moved."""
        if self.moved:
            return self.now
        if self.before is None or wall <= self.before.wall:
            start = self.clock.wall if self.before is None else self.before.wall
            return self.start + min(0.0, wall - start)
        return max(self.start, self.now - max(0.0, self.clock.wall - wall))

    def counted(self, mark: float) -> float:
        """Return the counted time of a mark. One that scans left is negative: a wall clock.

        If that was outside of this interval, or the clock moved, it was wrong: count from now.
        """
        if mark >= 0:
            return min(mark, self.now)
        if not (self.before.wall if self.before else 0) <= -mark <= self.clock.wall:
            return self.now
        return self.at(-mark)


# Days (UTC, since 1970) on which runs could see a root, with the counted time of the last run.
DaysSeen = Sequence[tuple[int, float]]


def days_seen(before: DaysSeen, interval: Interval) -> DaysSeen:
    today = int(interval.clock.wall // DAY)
    kept = [(day, last) for day, last in before if day != today]
    return [*kept, (today, interval.now)][-DAYS_MISSED:]


def days_missed(missed: Iterable[tuple[str, float]], seen: Mapping[str, DaysSeen]) -> int:
    """Return on how many days runs saw what is missing; `missed` are roots and counted times."""
    numbers = [sum(last >= at for _, last in seen.get(root, ())) for root, at in missed]
    return min(numbers, default=0)
