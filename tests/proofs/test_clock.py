"""The wall clock is set back by a day, under a real daemon and between two runs."""

import itertools
import os
import shutil
import signal
import socket
import subprocess
import threading
import time
from contextlib import closing

import pytest

from brainsurgeon.operations.status import check, status
from building.processes import WORKERS, DaemonProcess, is_extracted, write_idle_session
from building.world import Clock, sql

DAY = 86_400
# Seconds without a sign of life after which systemd would end it.
LIMIT = 4


@pytest.fixture(scope="module")
def preload(tmp_path_factory):
    """Build what gives one process a wall clock of its own: the machine's is everybody's."""
    if not shutil.which("cc"):
        pytest.skip("no compiler here")  # a wall clock of its own takes a library in C
    path = tmp_path_factory.mktemp("clock") / "clock.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", path, WORKERS / "clock.c"], check=True)
    return path


@pytest.fixture
def daemon(world, preload):
    """Start a daemon whose clock is a day ahead; give it, what sets its clock, and its signs."""
    ahead = world.base / "ahead"

    def turn(seconds):
        (world.base / "fresh").write_text(str(seconds))
        os.replace(world.base / "fresh", ahead)

    turn(DAY)
    signs = []
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) as line:
        line.bind(str(world.base / "signs"))

        def listen():
            while sign := line.recv(100):
                signs.append((sign, time.monotonic()))

        threading.Thread(target=listen, daemon=True).start()
        process = DaemonProcess(
            world, environment={
                "LD_PRELOAD": str(preload), "AHEAD": str(ahead),
                "WATCHDOG_USEC": str(LIMIT * 10**6), "NOTIFY_SOCKET": str(world.base / "signs"),
            }, scan_interval_seconds=2, retention_cron="* * * * *", quiet_seconds=1, watch=False,
        )  # fmt: skip
        yield process, turn, signs
        process.kill()
        line.shutdown(socket.SHUT_RD)


def test_all_goes_on_after_the_clock_was_set_back(world, daemon):
    """Scans, retention and signs of life come as before, and the log tells of the clock."""
    process, turn, signs = daemon
    write_idle_session(world)
    process.wait_for("scan_finished", sessions_changed=1)
    retained = len(process.logged("retention_finished"))
    turn(57 - int(time.time()) % 60)  # cron is due in three seconds
    process.wait_for("clock_set", level="warning")
    path, ident = write_idle_session(world, "later")
    process.wait_for("scan_finished", count=2, sessions_changed=1)
    process.wait_for("retention_finished", count=retained + 1)
    count = len(process.logged("scan_finished"))
    process.wait_for("scan_finished", count=count + 2)

    assert is_extracted(path, ident)
    assert process.logged("clock_set")[0]["seconds"] == pytest.approx(60 - DAY, abs=62)
    lived = [at for sign, at in signs if sign == b"WATCHDOG=1"]
    assert max(after - before for before, after in itertools.pairwise(lived)) < LIMIT
    assert process.stop(signal.SIGTERM)[1] == 0


def test_what_was_noted_in_days_to_come_keeps_no_session_waiting(world):
    """A request of today is met, though its session was last looked at tomorrow."""
    path, ident = write_idle_session(world)
    world.clock = Clock(time.time() + DAY)
    world.scan()
    assert is_extracted(path, ident)
    world.clock.now -= DAY
    sql(world, "INSERT INTO requests (session_id, entry_id, action, asked_at, lapses_at)"
               " VALUES (1, ?, 'restore', ?, ?)",
        (ident, world.clock.now, world.clock.now + DAY))  # fmt: skip
    world.scan()
    world.clock.now += 60
    world.scan()

    assert not is_extracted(path, ident)
    assert world.scan().files_unchanged == 1


def test_a_file_that_was_to_be_read_in_days_to_come_is_read_today(world):
    """A whole run reads it now, and from then on it rests again until it is due."""
    write_idle_session(world)
    world.clock = Clock(time.time() + DAY)
    world.scan(trigger_types=["system"])
    sql(world, "UPDATE files SET due_at = looked_at + 3600")
    world.close()
    world.clock.now -= DAY
    first, second = world.scan(trigger_types=["system"]), world.scan(trigger_types=["system"])

    assert (first.files_scanned, first.files_unchanged) == (1, 0)
    assert (second.files_scanned, second.files_unchanged) == (0, 1)


def test_a_last_run_that_lies_ahead_is_said(world):
    """A scheduler that stopped shows also after the clock was set back."""
    write_idle_session(world)
    world.clock = Clock(time.time() + DAY)
    world.scan()
    world.clock.now -= DAY

    def troubles():
        now = status(world.settings(), world.store, world.clock.now)
        return check(now, world.clock.now, max_age=900)

    assert troubles() == ["the last run is recorded 1 d ahead: the clock was set back since"]
    world.scan()
    assert troubles() == []
