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

STANDING = Held(1, 1, 5, extracted_at=100, activity=50)
MISSED = Held(1, 1, 5, extracted_at=100, missed_at=500, days_missed=3)
UNPLACED_AT = Held(1, 1, 5, extracted_at=100, unplaced_at=500)
TERMS = Terms(retention=10, missing=20, standing=30)


@pytest.mark.parametrize(
    ("value", "terms", "expected"),
    [
        (STANDING, TERMS, (130, SILENT)),
        (replace(STANDING, activity=900), TERMS, (930, SILENT)),
        (replace(STANDING, restored_at=700), TERMS, (730, SILENT)),
        (replace(STANDING, restored_at=700, activity=900), TERMS, (930, SILENT)),
        (replace(STANDING, restored_at=20), TERMS, (130, SILENT)),
        (STANDING, replace(TERMS, retention=None, missing=None), (130, SILENT)),
        (STANDING, replace(TERMS, standing=None), None),
        (MISSED, TERMS, (520, MISSING)),
        (MISSED, replace(TERMS, retention=None, standing=None), (520, MISSING)),
        (MISSED, replace(TERMS, missing=None), None),
        (replace(MISSED, days_missed=2), TERMS, None),
        (replace(MISSED, activity=50), TERMS, (130, SILENT)),
        (replace(MISSED, activity=50), replace(TERMS, standing=None), None),
        (UNPLACED_AT, TERMS, (510, UNPLACED)),
        (UNPLACED_AT, replace(TERMS, missing=None, standing=None), (510, UNPLACED)),
        (UNPLACED_AT, replace(TERMS, retention=None), None),
        (replace(STANDING, unplaced_at=500), TERMS, (130, SILENT)),
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


def timeline_of(*clocks):
    before, timeline = None, decide.Timeline(())
    for clock in clocks:
        before, timeline = clock, timeline.then(before, clock)
    return timeline


def runs(*days, boot="this"):
    """Return clocks of runs on such days, with a boot clock that runs evenly."""
    return [Moment(1e9 + day * DAY, 1e6 + day * DAY, boot) for day in days]


def test_counted_time_is_the_wall_clock_while_that_runs_evenly():
    """Runs at most seven days apart count all of the time between them, and before the first."""
    timeline = timeline_of(*runs(0, 1, 8))

    assert timeline.now == 1e9 + 8 * DAY
    assert [timeline.at(1e9 + day * DAY) for day in (-3, 0, 5, 8)] == [
        1e9 + day * DAY for day in (-3, 0, 5, 8)
    ]


def test_counted_time_of_a_long_pause_is_its_last_week():
    """Of the time between two runs, only the last seven days count."""
    timeline = timeline_of(*runs(0, 40, 41))
    ages = [timeline.now - timeline.at(1e9 + day * DAY) for day in (-1, 0, 20, 36, 40, 41, 50)]

    assert ages == [9 * DAY, 8 * DAY, 8 * DAY, 5 * DAY, DAY, 0, 0]


@pytest.mark.parametrize("jump", [YEARS, -YEARS])
def test_counted_time_does_not_jump_with_the_wall_clock(jump):
    """Between two runs across a jump, the time of the boot clock counts; nothing lies ahead."""
    first, second = runs(0, 1)
    jumped = Moment(second.wall + jump, second.boot, "this")
    back = Moment(second.wall + DAY, second.boot + DAY, "this")
    timeline = timeline_of(first, jumped)

    assert timeline.now == timeline.at(jumped.wall + YEARS) == first.wall + DAY

    timeline = timeline_of(first, jumped, back)

    assert timeline.now == timeline.at(back.wall + YEARS) == first.wall + 2 * DAY
    assert timeline.now - timeline.at(first.wall - HOUR) == 2 * DAY + HOUR


def test_a_clock_that_was_ahead_across_a_reboot_counts_a_week_at_most():
    """Across a reboot the boot clock says nothing: ten years count as seven days."""
    [first], [second] = runs(0), runs(3653, boot="other")
    timeline = timeline_of(first, second, replace(second, wall=second.wall + HOUR))

    assert timeline.now - timeline.at(first.wall) == 7 * DAY + HOUR


STEPS = st.tuples(
    st.integers(-2 * 10**9, 2 * 10**9), st.integers(0, 10**7), st.sampled_from(["this", "other"])
)


@given(
    st.lists(STEPS, min_size=1, max_size=12),
    st.lists(st.integers(0, 4 * 10**9), min_size=2, max_size=9),
)
def test_counted_time_never_goes_back(steps, moments):
    """Whatever the clocks do, a later moment never has an earlier counted time."""
    clocks, wall, boot = [], 1e9, 1e6
    for jump, passed, ident in steps:
        wall, boot = max(0.0, wall + passed + jump * (ident == "other")), boot + passed
        clocks.append(Moment(wall, boot, ident))
    timeline = timeline_of(*clocks)
    counted = [timeline.at(moment) for moment in sorted(moments)]

    assert counted == sorted(counted)
    assert counted[-1] <= timeline.now
    for moment in moments:
        assert moment <= timeline.latest(timeline.at(moment)) + 1e-3
    before = 0.0
    for number in range(1, len(clocks) + 1):
        now = timeline_of(*clocks[:number]).now
        assert before <= now <= (before or now) + 7 * DAY
        before = now


def test_days_are_counted_once_and_from_the_first_sight():
    """Several runs of a day (UTC) are one day; days before the first sight do not count."""
    clocks = [Moment(100 * DAY + hour * HOUR, hour * HOUR, "this") for hour in (0, 1, 23, 25, 50)]
    timeline, seen = timeline_of(*clocks), ()
    for clock in clocks:
        seen = decide.days_seen(seen, clock, timeline.at(clock.wall))

    def days(*missed):
        return decide.days_missed(
            [(root, 100 * DAY + hour * HOUR) for root, hour in missed], {"/a": seen}, timeline
        )

    assert days(("/a", 0)) == days(("/a", 1)) == days(("/a", 23.5)) == 3
    assert days(("/a", 26)) == 2
    assert days(("/a", 50)) == days(("/a", 0), ("/b", 0)) == 1
