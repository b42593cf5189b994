"""How long a process that opens a session waits while its file is exchanged."""

import json
import os
import shutil
import statistics
import subprocess
import sys
import time

from bench.measuring import command_line, run, sessions_below, write_config
from bench.table import Row
from building.world import write_session

OPENER = """
import json, os, random, select, sys, time
chance, waits = random.Random(1), []
print("ready", flush=True)
while not select.select([sys.stdin], [], [], chance.random() / 500)[0]:
    begun = time.monotonic()
    try:
        descriptor = os.open(sys.argv[1], os.O_RDWR | os.O_APPEND if len(sys.argv) > 2 else 0)
    except FileNotFoundError:
        continue
    waits.append(time.monotonic() - begun)
    os.close(descriptor)
print(json.dumps([len(waits), max(waits)]))
"""


def rows(place, options):
    """Open sessions of two sizes repeatedly while values are extracted."""
    for megabytes in (1, options.mb):
        yield longest_wait(place / str(megabytes), megabytes, 2 * options.runs)


def longest_wait(place, megabytes, runs):
    """Measure the longest wait of a process that opens a session every millisecond."""
    sessions = sessions_below(place / "agents")
    session = sessions / "s.jsonl"
    size = write_session(session, megabytes * 1_000_000)
    config = write_config(place, place / "agents")
    original = place / "original"
    shutil.copy2(session, original)
    longest, exchanged, opened = [], 0, 0
    for _ in range(runs):
        shutil.rmtree(place / "state", ignore_errors=True)
        session.unlink()
        shutil.copy2(original, session)
        before = session.stat().st_ino
        opener = subprocess.Popen(
            [sys.executable, "-c", OPENER, session], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        opener.stdout.readline()
        run(command_line("scan", "--once", config=config))
        output, _ = opener.communicate(b"end\n")
        count, wait = json.loads(output)
        opened += count
        exchanged += session.stat().st_ino != before
        longest.append(1000 * wait)
    return Row(
        f"an opener's longest wait, {size / 1e6:,.0f} MB", max(longest), "ms", "10 ms + one fsync",
        10 + longest_sync(sessions), target="at the limit",
        note=f"median {statistics.median(longest):.1f} ms of {runs} scans with {exchanged}"
        f" exchanges, {opened:,} opens",
    )  # fmt: skip


def longest_sync(directory):
    """Return the longest milliseconds that a sync of a changed directory takes."""
    milliseconds = []
    descriptor = os.open(directory, os.O_RDONLY)
    for number in range(20):
        (directory / ".bench").write_bytes(b"")
        os.rename(directory / ".bench", directory / f".bench{number % 2}")
        started = time.monotonic()
        os.fsync(descriptor)
        milliseconds.append(1000 * (time.monotonic() - started))
    os.close(descriptor)
    for number in range(2):
        (directory / f".bench{number}").unlink()
    return max(milliseconds)
