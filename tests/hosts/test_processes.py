"""Processes of this machine."""

import os
import signal
import subprocess
import sys

from brainsurgeon.hosts.processes import ancestors, lives, start_of
from building.processes import wait_until


def test_a_process_is_the_one_that_began_then(other_process):
    """Who got the number of another process later is not that one."""
    began = start_of(other_process.pid)

    assert lives(other_process.pid)
    assert lives(other_process.pid, began)
    assert not lives(other_process.pid, began - 1)


def test_what_has_ended_does_not_live():
    """Also while its parent has not collected it, for nobody can be at work any more."""
    ended = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    ended.send_signal(signal.SIGKILL)
    wait_until(lambda: not lives(ended.pid))
    os.kill(ended.pid, 0)  # it is there still

    ended.communicate()
    assert not lives(ended.pid)


def test_a_start_that_is_no_number_says_nothing(other_process):
    """An odd time of its start does not make a living process a dead one."""
    assert lives(other_process.pid, "yesterday")
    assert lives(other_process.pid, None)


def test_who_started_a_process_is_found():
    """This process comes first, then its parent."""
    assert list(ancestors())[:2] == [os.getpid(), os.getppid()]
