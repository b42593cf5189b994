"""When a value expires, and when nothing is let go for caution."""

from dataclasses import replace

import pytest

from brainsurgeon.decide import retention as decide
from brainsurgeon.decide.retention import Clock as Moment
from brainsurgeon.decide.retention import Held, RootState

HOUR = 3600.0
DAY = 24 * HOUR
YEARS = 3653 * DAY
"""Ten of them."""
GONE = "its stub stands nowhere any more"
SILENT = "its session has been silent"


# --- the rule ------------------------------------------------------------------------------------


STANDING = Held(1, extracted_at=100, sighted_at=500, restored_at=None, marked_at=None,
                standing=True, activity=50)  # fmt: skip
LOST = replace(STANDING, standing=False)


@pytest.mark.parametrize(
    ("value", "retention_", "standing", "expected"),
    [
        (STANDING, 10, 30, (130, SILENT)),
        (replace(STANDING, activity=900), 10, 30, (930, SILENT)),
        (replace(STANDING, restored_at=700), 10, 30, (730, SILENT)),
        (replace(STANDING, restored_at=700, activity=900), 10, 30, (930, SILENT)),
        (replace(STANDING, restored_at=20), 10, 30, (130, SILENT)),
        (STANDING, None, 30, (130, SILENT)),
        (STANDING, 10, None, None),
        (LOST, 10, 30, (510, GONE)),
        (replace(LOST, sighted_at=60), 10, 30, (110, GONE)),
        (replace(LOST, restored_at=700, activity=900), 10, 30, (510, GONE)),
        (LOST, 10, None, (510, GONE)),
        (LOST, None, 30, None),
    ],
)  # fmt: skip
def test_each_value_expires_by_its_own_threshold(value, retention_, standing, expected):
    """What stands counts from extraction, restore and activity; what is lost from its sighting."""
    assert decide.expires_at(value, retention_, standing) == expected


WAITS = "marked; waits for a scan that sees its root without error"


@pytest.mark.parametrize(
    ("value", "now", "seen", "expected"),
    [
        (LOST, 509.9, None, ("keep", "not expired")),
        (LOST, 510, None, ("mark", f"{GONE}; expired just now")),
        (LOST, 510 + 2 * DAY, 1e9, ("mark", f"{GONE}; expired 2 days ago")),
        (STANDING, 130, None, ("mark", f"{SILENT}; expired just now")),
        (replace(LOST, marked_at=510), 509, 1e9, ("unmark", "not expired any more")),
        (replace(LOST, marked_at=510), 600, None, ("keep", WAITS)),
        (replace(LOST, marked_at=510), 600, 509, ("keep", WAITS)),
        (replace(LOST, marked_at=510), 600, 510, ("keep", WAITS)),
        (replace(LOST, marked_at=510), 600, 511, ("delete", f"{GONE}; expired 1 minute ago")),
        (replace(STANDING, marked_at=510), 600, 511,
         ("delete", f"{SILENT}; expired 7 minutes ago")),
        (replace(STANDING, marked_at=510, activity=590), 600, 511,
         ("unmark", "not expired any more")),
    ],
)  # fmt: skip
def test_each_value_is_marked_before_it_is_deleted(value, now, seen, expected):
    """What expired is marked; what was marked goes when its root was seen since; or is unmarked."""
    verdict = decide.judge(value, 10, 30, now, seen_since=seen)

    assert (verdict.id, verdict.action, verdict.why) == (1, *expected)


@pytest.mark.parametrize("marked", [None, 5.0])
def test_what_is_kept_for_ever_is_never_marked(marked):
    """Without a threshold nothing expires, and what was marked before is unmarked."""
    verdict = decide.judge(replace(LOST, marked_at=marked), None, None, 1e12, seen_since=1e12)

    assert verdict.action == ("keep" if marked is None else "unmark")


@pytest.mark.parametrize(
    ("before", "found", "expected"),
    [
        (None, RootState(0), None),
        (None, RootState(7), None),
        (None, RootState(7, "cannot be listed"), "cannot be listed"),
        (RootState(7), RootState(7, "cannot be listed"), "cannot be listed"),
        (RootState(7), RootState(0), "it is suddenly empty (7 sessions before)"),
        (RootState(1), RootState(0), "it is suddenly empty (1 session before)"),
        (RootState(0), RootState(0), None),
        (RootState(9), RootState(4), "it lost more than half of its sessions (9 -> 4)"),
        (RootState(8), RootState(4), None),
        (RootState(9), RootState(5), None),
        (RootState(9), RootState(90), None),
        (RootState(7, "cannot be listed"), RootState(7), None),
        (
            RootState(7, "cannot be listed"),
            RootState(0),
            "it is suddenly empty (7 sessions before)",
        ),
    ],
)
def test_a_suspicious_root_is_braked(before, found, expected):
    """An error, a sudden emptiness, a loss of more than half: each says why nothing is deleted."""
    assert decide.brake(before, found) == expected


NOW = Moment(wall=1e9, boot=1e6, boot_id="this")


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        (None, None),
        (NOW, None),
        (Moment(1e9 - 6 * HOUR, 1e6 - 6 * HOUR, "this"), None),
        (Moment(1e9 - 7 * HOUR, 1e6 - 6 * HOUR, "this"), None),
        (Moment(1e9 - 7 * HOUR - 1, 1e6 - 6 * HOUR, "this"), "the wall clock jumped by +1 hours"),
        (Moment(1e9 - 5 * HOUR + 1, 1e6 - 6 * HOUR, "this"), "the wall clock jumped by -1 hours"),
        (Moment(1e9 - YEARS, 1e6 - 6, "this"), "the wall clock jumped by +87,672 hours"),
        (Moment(1e9 + YEARS, 1e6 - 6, "this"), "the wall clock jumped by -87,672 hours"),
        (Moment(1e9 - 7 * DAY, 5.0, "other"), None),
        (Moment(1e9 - 7 * DAY - 4 * HOUR, 5.0, "other"),
         "the wall clock moved by +172 hours across a reboot"),
        (Moment(1e9 + HOUR, 5.0, "other"), "the wall clock moved by -1 hours across a reboot"),
    ],
)  # fmt: skip
def test_a_wall_clock_that_jumped_is_not_believed(before, expected):
    """It is compared with the boot clock, and across a reboot with what is plausible."""
    assert decide.clock_jumped(before, NOW) == expected
