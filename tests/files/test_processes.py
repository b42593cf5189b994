"""Processes of this machine."""

import os
import signal
import subprocess
import sys
import time

import pytest

from brainsurgeon.files.processes import ancestors, lives
from building.claw import start_time
from building.processes import wait_until


def test_process_is_identified_by_its_start_time(other_process):
    """A process with the same pid and another start time is another process."""
    start = start_time(other_process.pid)

    assert lives(other_process.pid)
    assert lives(other_process.pid, start)
    assert not lives(other_process.pid, start - 1)


def test_process_that_is_younger_than_its_record_is_another(other_process):
    """Without a start time, a process must have been there when the record was written."""
    assert lives(other_process.pid, None, time.time())
    assert not lives(other_process.pid, None, time.time() - 120)
    assert lives(other_process.pid, start_time(other_process.pid), time.time() - 120)


def test_ended_process_does_not_live():
    """An ended process does not live, even before its parent has collected it."""
    ended = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    ended.send_signal(signal.SIGKILL)
    wait_until(lambda: not lives(ended.pid))
    os.kill(ended.pid, 0)  # it is there still

    ended.communicate()
    assert not lives(ended.pid)


def test_malformed_start_time_is_ignored(other_process):
    """A process lives whatever its recorded start time, unless that is another number."""
    assert lives(other_process.pid, "yesterday")
    assert lives(other_process.pid, None)


def test_process_whose_status_is_hidden_lives(other_process):
    """Where /proc shows nothing about a process, it counts as the recorded one."""
    code = f"from brainsurgeon.files.processes import lives; print(lives({other_process.pid}, 1))"
    hidden = 'mount -t tmpfs none /proc && exec "$0" -c "$1"'
    result = subprocess.run(
        ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", hidden, sys.executable,
         code],
        capture_output=True, check=False,
    )  # fmt: skip
    if b"unshare" in result.stderr or b"mount" in result.stderr:
        pytest.skip("no user namespaces here")

    assert (result.stdout, result.stderr) == (b"True\n", b"")


def test_ancestors_begin_with_this_process():
    """The ancestors are this process, its parent, and so on."""
    assert list(ancestors())[:2] == [os.getpid(), os.getppid()]
