"""The cost of a daemon while nothing changes."""

import time

from bench.measuring import command_line, run, write_config
from bench.table import Row
from bench.walks import write_small_session
from bench.watched import Daemon

SESSIONS = 2000
# Seconds between two runs, the default.
INTERVAL = 30


def rows(place, options):
    root = place / "agents"
    for number in range(SESSIONS):
        write_small_session(root, number)
    config = write_config(place, root, scan_interval_seconds=INTERVAL)
    run(command_line("scan", "--once", config=config))
    runs = 4 if options.large else 2
    with Daemon(config, place / "log") as daemon:
        daemon.watching()
        daemon.wait_for(2, pause=0.5)
        started, before = time.monotonic(), daemon.cost()
        time.sleep(runs * INTERVAL)
        slept, after = time.monotonic() - started, daemon.cost()
        syncs = daemon.syncs(INTERVAL + 3, place / "traced")
    what = f"idle daemon, {SESSIONS:,} sessions"
    yield Row(f"{what}: processor", 100 * (after.cpu - before.cpu) / slept, "%", target="0.1 %")
    yield Row(f"{what}: wake-ups", (after.waits - before.waits) / slept, "/s", target="1 /s")
    if syncs is not None:
        yield Row(f"{what}: syncs", syncs, "a run", target="0")
