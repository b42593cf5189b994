"""The guard that keeps tests out of the real home."""

import os

import pytest

from guard import FORBIDDEN, TouchedTheRealHomeError


def test_opening_a_file_in_the_real_home_raises():
    """Each place of an agent is guarded, whether it exists or not."""
    for place in FORBIDDEN:
        with pytest.raises(TouchedTheRealHomeError):
            open(os.path.join(place, "anything"), "rb")  # noqa: SIM115


def test_each_test_has_its_own_home(own_home):
    """HOME is a directory below the test's own temporary one."""
    assert os.path.expanduser("~") == str(own_home)
