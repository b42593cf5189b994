"""A wall clock that is set back by a day, under a daemon and between two runs."""

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
# Seconds without a watchdog signal after which systemd would end the daemon.
LIMIT = 4


@pytest.fixture(scope="module")
def preload(tmp_path_factory):
    """Build a library that gives one process its own wall clock."""
    path = tmp_path_factory.mktemp("clock") / "clock.so"
    words = ["cc", "-shared", "-fPIC", "-O1", "-o", path]
    if (
        not shutil.which("cc")
        or subprocess.run(
            [*words, "-x", "c", "-"], input=b"#include <unistd.h>\n", check=False
        ).returncode
    ):  # a compiler may lack the C library's headers
        pytest.skip("no compiler here")  # the library is written in C
    subprocess.run([*words, WORKERS / "clock.c"], check=True)
    return path


@pytest.fixture
def daemon(world, preload):
    """Yield a daemon whose clock is a day ahead, a function that sets it, and its signals."""
    offset = world.base / "ahead"

    def set_clock(seconds):
        (world.base / "fresh").write_text(str(seconds))
        os.replace(world.base / "fresh", offset)

    set_clock(DAY)
    signals = []
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) as line:
        line.bind(str(world.base / "signals"))

        def listen():
            while message := line.recv(100):
                signals.append((message, time.monotonic()))

        threading.Thread(target=listen, daemon=True).start()
        process = DaemonProcess(
            world, environment={
                "LD_PRELOAD": str(preload), "AHEAD": str(offset),
                "WATCHDOG_USEC": str(LIMIT * 10**6), "NOTIFY_SOCKET": str(world.base / "signals"),
            }, scan_interval_seconds=2, retention_cron="* * * * *", quiet_seconds=1, watch=False,
        )  # fmt: skip
        yield process, set_clock, signals
        process.kill()
        line.shutdown(socket.SHUT_RD)


@pytest.fixture
def tomorrow(world):
    """Set the clock of the runs a day ahead."""
    world.clock = Clock(time.time() + DAY)


def test_daemon_continues_after_the_clock_is_set_back(world, daemon):
    """Scans, retention runs and watchdog signals go on, and the log reports the change."""
    process, set_clock, signals = daemon
    write_idle_session(world)
    process.wait_for("scan_finished", sessions_changed=1)
    retention_runs = len(process.logged("retention_finished"))
    set_clock(57 - int(time.time()) % 60)  # the retention run is due in three seconds
    process.wait_for("clock_set", level="warning")
    path, ident = write_idle_session(world, "later")
    process.wait_for("scan_finished", count=2, sessions_changed=1)
    process.wait_for("retention_finished", count=retention_runs + 1)
    scans = len(process.logged("scan_finished"))
    process.wait_for("scan_finished", count=scans + 2)

    assert is_extracted(path, ident)
    assert process.logged("clock_set")[0]["seconds"] == pytest.approx(60 - DAY, abs=62)
    times = [moment for message, moment in signals if message == b"WATCHDOG=1"]
    assert max(after - before for before, after in itertools.pairwise(times)) < LIMIT
    assert process.stop(signal.SIGTERM)[1] == 0


def test_a_request_is_met_though_the_last_scan_lies_in_the_future(world, tomorrow):
    """After the clock was set back by a day, the next scans carry out a new restore request."""
    path, ident = write_idle_session(world)
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


def test_a_file_due_in_the_future_is_read_after_the_clock_is_set_back(world, tomorrow):
    """The first scan reads it, and the next one skips it as unchanged."""
    write_idle_session(world)
    world.scan(trigger_types=["system"])
    sql(world, "UPDATE files SET due_at = looked_at + 3600")
    world.close()
    world.clock.now -= DAY
    first, second = world.scan(trigger_types=["system"]), world.scan(trigger_types=["system"])

    assert (first.files_scanned, first.files_unchanged) == (1, 0)
    assert (second.files_scanned, second.files_unchanged) == (0, 1)


def test_status_check_reports_a_last_run_in_the_future(world, tomorrow):
    """A stopped scheduler is noticed even after the clock was set back."""
    write_idle_session(world)
    world.scan()
    world.clock.now -= DAY

    def problems():
        report = status(world.settings(), world.store, world.clock.now)
        return check(report, world.clock.now, max_age=900)

    assert problems() == [
        "the last run is recorded 1 d in the future: the clock was set back since then"
    ]
    world.scan()
    assert problems() == []
