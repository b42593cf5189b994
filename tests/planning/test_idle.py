"""When a session counts as quiet."""

import pytest

from brainsurgeon.model.sessions import Fingerprint
from brainsurgeon.planning import rules

NOW = 1_800_000_000.0


def modified_at(moment):
    return Fingerprint(1, 2, 3, int(moment * 1e9), 0)


@pytest.mark.parametrize(
    ("modified", "first_seen", "silent"),
    [
        (NOW - 40, NOW, 40),
        (NOW - 40, NOW - 1000, 40),
        (NOW, NOW - 1000, 0),
        (NOW + 500, NOW, 0),
        (NOW + 500, NOW - 25, 25),
        (NOW + 10**9, NOW - 3600, 3600),
        (NOW + 500, NOW + 100, 0),
        (0, NOW, NOW),
    ],
)
def test_silence_counts_from_the_change_or_the_first_sight(modified, first_seen, silent):
    """A past modification time counts; a future one counts from when it was first seen."""
    assert rules.silence(modified_at(modified), first_seen, NOW) == pytest.approx(silent)


def test_a_session_is_quiet_at_the_boundary_itself():
    """Exactly as long as asked for is quiet; a moment less is not, and the reason says so."""
    assert rules.changed_recently(30.0, 30) is None
    assert rules.changed_recently(0.0, 0) is None
    assert rules.changed_recently(29.9, 30) == "changed 30 s ago; it must be unchanged for 30 s"
