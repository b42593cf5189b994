"""The guard that keeps tests out of the real home."""

import os

import pytest

from guard import FORBIDDEN, TouchedTheRealHomeError


def test_a_test_that_touches_the_real_home_fails_by_name():
    """Opening or listing a place of an agent in the real home raises, whether it exists or not."""
    for place in FORBIDDEN:
        with pytest.raises(TouchedTheRealHomeError):
            open(os.path.join(place, "anything"), "rb")  # noqa: SIM115


def test_each_test_has_a_home_of_its_own(own_home):
    """HOME points below the test's own directory."""
    assert os.path.expanduser("~") == str(own_home)
