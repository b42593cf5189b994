"""Expiry times of values, and the checks that prevent deletion."""

import pytest
from msgspec.structs import replace

from brainsurgeon.model.records import Held
from brainsurgeon.planning import retention as decide
from brainsurgeon.planning.retention import MISSING, SILENT, UNPLACED
from brainsurgeon.planning.retention import Clock as Moment

HOUR = 3600.0
DAY = 24 * HOUR
# Ten years.
YEARS = 3653 * DAY

STANDING = Held(1, 1, 5, extracted_at=100, activity=50)
MISSED = Held(1, 1, 5, extracted_at=100, missed_at=500)
UNPLACED_AT = Held(1, 1, 5, extracted_at=100, unplaced_at=500)


@pytest.mark.parametrize(
    ("value", "retention", "standing", "expected"),
    [
        (STANDING, 10, 30, (130, SILENT)),
        (replace(STANDING, activity=900), 10, 30, (930, SILENT)),
        (replace(STANDING, restored_at=700), 10, 30, (730, SILENT)),
        (replace(STANDING, restored_at=700, activity=900), 10, 30, (930, SILENT)),
        (replace(STANDING, restored_at=20), 10, 30, (130, SILENT)),
        (STANDING, None, 30, (130, SILENT)),
        (STANDING, 10, None, None),
        (MISSED, 10, 30, (530, MISSING)),
        (MISSED, None, 30, (530, MISSING)),
        (MISSED, 10, None, None),
        (replace(MISSED, activity=50), 10, 30, (530, MISSING)),
        (replace(MISSED, activity=900), 10, 30, (930, SILENT)),
        (UNPLACED_AT, 10, 30, (510, UNPLACED)),
        (UNPLACED_AT, 10, None, (510, UNPLACED)),
        (UNPLACED_AT, None, 30, None),
        (replace(STANDING, unplaced_at=500), 10, 30, (130, SILENT)),
        (replace(STANDING, unseen=True), 10, 30, None),
        (replace(UNPLACED_AT, unseen=True), 10, 30, None),
    ],
)
def test_expiry_depends_on_the_state_of_the_value(value, retention, standing, expected):
    """The latest activity counts; a value whose session was not seen does not expire."""
    assert decide.expires_at(value, retention, standing) == expected


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


@pytest.mark.parametrize(
    ("before", "waits"),
    [
        (None, True),
        (Moment(1e9 - 2 * DAY - 1, 1e6, "this"), True),
        (Moment(1e9 - 2 * DAY, 1e6, "this"), False),
        (Moment(1e9 - YEARS, 1e6, "other"), True),
    ],
)
def test_first_run_after_two_days_deletes_nothing(before, waits):
    """The first run of all, and the first after more than two days, deletes nothing."""
    assert (decide.first_in_days(before, NOW) is not None) is waits
