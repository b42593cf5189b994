"""Expiry times of values, the time that counts for them, and a clock that moved."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from brainsurgeon.model.records import Held
from brainsurgeon.model.rules import Terms
from brainsurgeon.planning import retention as decide
from brainsurgeon.planning.retention import MISSING, SILENT, UNPLACED
from brainsurgeon.planning.retention import Clock as Moment

HOUR = 3600.0
DAY = 24 * HOUR
# Ten years.
YEARS = 3653 * DAY

STANDING = Held(1, 1, 5, activity=50)
MISSED = Held(1, 1, 5, missed_at=500, days_missed=3)
UNPLACED_AT = Held(1, 1, 5, unplaced_at=500)
TERMS = Terms(retention=10, missing=20, standing=30)


@pytest.mark.parametrize(
    ("value", "terms", "expected"),
    [
        (STANDING, TERMS, (80, SILENT)),
        (STANDING, replace(TERMS, retention=None, missing=None), (80, SILENT)),
        (STANDING, replace(TERMS, standing=None), None),
        (MISSED, TERMS, (520, MISSING)),
        (MISSED, replace(TERMS, retention=None, standing=None), (520, MISSING)),
        (MISSED, replace(TERMS, missing=None), None),
        (replace(MISSED, days_missed=2), TERMS, None),
        (replace(MISSED, activity=50), TERMS, (80, SILENT)),
        (replace(MISSED, activity=50), replace(TERMS, standing=None), None),
        (UNPLACED_AT, TERMS, (510, UNPLACED)),
        (UNPLACED_AT, replace(TERMS, missing=None, standing=None), (510, UNPLACED)),
        (UNPLACED_AT, replace(TERMS, retention=None), None),
        (replace(STANDING, unplaced_at=500), TERMS, (80, SILENT)),
        (replace(STANDING, unseen=True), TERMS, None),
        (replace(UNPLACED_AT, unseen=True), TERMS, None),
    ],
)
def test_expiry_depends_on_the_state_of_the_value(value, terms, expected):
    """What stands anywhere is not missing; a value whose session was not seen does not expire."""
    assert decide.expires_at(value, terms) == expected


NOW = Moment(wall=1e9, boot=1e6, boot_id="this")


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        (None, None),
        (NOW, None),
        (Moment(1e9 - 6 * HOUR, 1e6 - 6 * HOUR, "this"), None),
        (Moment(1e9 - 7 * HOUR, 1e6 - 6 * HOUR, "this"), None),
        (Moment(1e9 - 7 * HOUR - 1, 1e6 - 6 * HOUR, "this"), "the wall clock moved by +1 hours"),
        (Moment(1e9 - 5 * HOUR + 1, 1e6 - 6 * HOUR, "this"), "the wall clock moved by -1 hours"),
        (Moment(1e9 - YEARS, 1e6 - 6, "this"), "the wall clock moved by +87,672 hours"),
        (Moment(1e9 + YEARS, 1e6 - 6, "this"), "the wall clock moved by -87,672 hours"),
        (Moment(1e9 - 7 * DAY, 5.0, "other"), None),
        (Moment(1e9 + HOUR, 5.0, "other"), "the wall clock went back across a reboot"),
        (Moment(1e9 + 60, 5.0, "other"), "the wall clock went back across a reboot"),
    ],
)
def test_clock_that_moved_is_reported(before, expected):
    """A wall clock that moved by over an hour, or went back across a reboot, is reported."""
    assert decide.clock_moved(before, NOW) == expected


def interval(before, now, start=None):
    return decide.Interval(before, before.wall if start is None else start, now)


def after(before, days, jump=0.0, boot=None):
    """Return a clock some days later, which jumped, or whose computer booted anew."""
    now = Moment(before.wall + days * DAY + jump, before.boot + days * DAY, "this")
    return replace(now, boot=5.0, boot_id=boot) if boot else now


@pytest.mark.parametrize(
    ("now", "passed"),
    [
        (after(NOW, 1), DAY),
        (after(NOW, 40), 7 * DAY),  # nobody knows what happened meanwhile
        (after(NOW, 1, YEARS), DAY),
        (after(NOW, 1, -YEARS), DAY),
        (after(NOW, 2, boot="other"), 2 * DAY),
        (after(NOW, 2, YEARS, boot="other"), 7 * DAY),
        (after(NOW, 2, -YEARS, boot="other"), 0),
    ],
)
def test_counted_time_does_not_jump_with_the_wall_clock(now, passed):
    """The boot clock counts, or a wall clock that went on; a week at most, and never back."""
    assert interval(NOW, now, 5000.0).now == 5000.0 + passed


@pytest.mark.parametrize(
    ("now", "mark", "age"),
    [
        (after(NOW, 1), -(NOW.wall + HOUR), 23 * HOUR),
        (after(NOW, 20), -(NOW.wall + 2 * DAY), 7 * DAY),
        (after(NOW, 20), -(NOW.wall + 18 * DAY), 2 * DAY),
        (after(NOW, 1), -(NOW.wall - HOUR), 0),  # the clock was behind
        (after(NOW, 1), -(NOW.wall + 2 * DAY), 0),  # the clock was ahead
        (after(NOW, 1, 40 * DAY), -(NOW.wall + HOUR), 0),
        (after(NOW, 1, -40 * DAY), -(NOW.wall - 40 * DAY), 0),
        (after(NOW, 1), 4000.0, 1000.0 + DAY),
        (after(NOW, 1), 9e9, 0),
    ],
)
def test_mark_of_a_wrong_clock_counts_from_now(now, mark, age):
    """A mark of a scan counts by the wall clock only between two runs whose clock ran evenly."""
    since = interval(NOW, now, 5000.0)

    assert since.now - since.counted(mark) == age


@given(st.integers(-(2 * 10**9), 2 * 10**9), st.integers(0, 10**7), st.booleans(),
       st.lists(st.integers(0, 4 * 10**9), min_size=2, max_size=9))  # fmt: skip
def test_later_moments_never_have_an_earlier_counted_time(jump, passed, rebooted, moments):
    """Whatever the clocks do, no moment lies in the future, and their order is kept."""
    clock = Moment(max(0.0, 1e9 + passed + jump), 1e6 + passed, "other" if rebooted else "this")
    since = interval(NOW, clock, 5000.0)
    counted = [since.at(moment) for moment in sorted(moments)]

    assert counted == sorted(counted)
    assert counted[-1] <= since.now


def test_days_are_counted_once_and_from_the_first_sight():
    """Several runs of a day (UTC) are one day; days before the first sight do not count."""
    first, seen = Moment(100 * DAY, 0.0, "this"), ()
    for hour in (0, 1, 23, 25, 50):
        seen = decide.days_seen(seen, interval(first, after(first, hour / 24)))

    def days(*missed):
        return decide.days_missed(
            [(root, 100 * DAY + hour * HOUR) for root, hour in missed], {"/a": seen}
        )

    assert days(("/a", 0)) == days(("/a", 1)) == days(("/a", 23)) == 3
    assert days(("/a", 24)) == 2
    assert days(("/a", 50)) == 1
    assert days(("/a", 0), ("/b", 0)) == 0
