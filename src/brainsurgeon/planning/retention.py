"""Decide when a stored value expires, and when a retention run deletes nothing."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

from msgspec import Struct
from msgspec.structs import replace

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
_MOST_STRETCHES = 500

UNPLACED = "its placeholder is in no session any more"
MISSING = "its session or its entry is missing"
SILENT = "nothing happened in its session"


def expires_at(held: Held, terms: Terms) -> tuple[float, str] | None:
    """Return when a value expires, in the time of its `Held`, and why. None: not as things are."""
    if held.unseen:
        return None
    if held.activity is not None:
        since = max(held.activity, held.extracted_at, held.restored_at or 0.0)
        return None if terms.standing is None else (since + terms.standing, SILENT)
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


class Stretch(Struct, frozen=True, array_like=True):
    """Runs between which the wall clock ran evenly."""

    began: float  # wall clock at the first run
    ended: float  # wall clock at the last run
    counted: float  # counted time at the first run
    jumped: bool = False  # the wall clock moved just before the first run

    @property
    def end(self) -> float:  # counted time at the last run
        return self.counted + self.ended - self.began


class Timeline(Struct, frozen=True):
    """Counted time: the wall clock of the runs, in which two runs are at most LONGEST_STEP apart.

    Terms are measured in counted time. It never goes back, whatever happens to the wall clock. The
    stretches are in order, and their wall clocks do not overlap. The last one may overlap others:
    then the wall clock went back before the last run.
    """

    stretches: tuple[Stretch, ...]

    @classmethod
    def read(cls, stored: Sequence[Sequence[Any]], before: Clock | None) -> Self:
        stretches = tuple(Stretch(*one) for one in stored)
        if not stretches and before:  # an earlier version recorded only its last run
            stretches = (Stretch(before.wall, before.wall, before.wall),)
        return cls(stretches)

    def then(self, before: Clock | None, now: Clock) -> Self:
        """Return the timeline that includes a run at `now`. `before` is the clock of the last."""
        if not (self.stretches and before):
            return replace(self, stretches=(Stretch(now.wall, now.wall, now.wall),))
        *earlier, last = self.stretches
        wall, moved = now.wall - last.ended, clock_moved(before, now) is not None
        # A wall clock that moved says nothing about the time that passed.
        passed = now.boot - before.boot if moved and now.boot_id == before.boot_id else wall
        step, fresh = min(max(0.0, passed), LONGEST_STEP), last.end
        if earlier and last.began < earlier[-1].ended:  # the last run found that it had gone back
            if moved and now.wall >= earlier[-1].ended:  # only for a while: forget that
                *earlier, last = earlier
            else:
                earlier = [
                    replace(one, ended=min(one.ended, last.began))
                    for one in earlier if one.began < last.began
                ]  # fmt: skip
        if step == wall and not moved:
            return replace(self, stretches=(*earlier, replace(last, ended=now.wall)))
        new = Stretch(now.wall, now.wall, fresh + step, moved)
        return replace(self, stretches=(*earlier, last, new)[-_MOST_STRETCHES:])

    @property
    def now(self) -> float:
        return self.stretches[-1].end

    def at(self, wall: float) -> float:
        """Return the counted time of a moment. Nothing is later than the last run."""
        later = None
        for stretch in reversed(self.stretches):
            if wall >= stretch.began:
                inside = stretch.counted + min(wall, stretch.ended) - stretch.began
                if later is None or wall <= stretch.ended:
                    return inside
                if later.jumped:
                    return min(inside + wall - stretch.ended, later.counted)
                return max(inside, later.counted - (later.began - wall))
            later = stretch
        first = self.stretches[0]
        return first.counted - (first.began - wall)

    def latest(self, counted: float) -> float:
        """Return a wall clock: no later moment has a counted time of at most `counted`."""
        later = math.inf
        for stretch in reversed(self.stretches):
            if counted >= stretch.counted:
                inside = stretch.began + counted - stretch.counted
                return inside if counted < stretch.end else later
            later = stretch.began
        first = self.stretches[0]
        return first.began - (first.counted - counted)


# Days (UTC, since 1970) on which runs could see a root, with the counted time of the last run.
DaysSeen = Sequence[tuple[int, float]]


def day_of(wall: float) -> int:
    return int(wall // DAY)


def days_seen(before: DaysSeen, now: Clock, counted: float) -> DaysSeen:
    today = day_of(now.wall)
    kept = [(day, last) for day, last in before if day != today]
    return [*kept, (today, counted)][-DAYS_MISSED:]


def days_missed(
    missed: Iterable[tuple[str, float]], seen: Mapping[str, DaysSeen], timeline: Timeline
) -> int:
    """Return on how many days runs saw what is missing; `missed` are roots and times (wall)."""
    numbers = []
    for root, at in missed:
        counted = timeline.at(at)
        days = {day for day, last in seen.get(root, ()) if last >= counted}
        numbers.append(len(days | {day_of(at)}))
    return min(numbers, default=0)
