"""What a daemon takes while nothing happens."""

import time

from bench.measuring import ours, run, write_config
from bench.table import Row
from bench.walks import write
from bench.watched import Daemon

SESSIONS = 2000
# Seconds between two runs, as is usual.
INTERVAL = 30


def rows(place, wanted):
    root = place / "agents"
    for number in range(SESSIONS):
        write(root, number)
    config = write_config(place, root, scan_interval_seconds=INTERVAL)
    run(ours("scan", "--once", config=config))
    runs = 4 if wanted.large else 2
    with Daemon(config, place / "log") as daemon:
        daemon.watching()
        daemon.wait_for(2, pause=0.5)
        begun, before = time.monotonic(), daemon.taken()
        time.sleep(runs * INTERVAL)
        slept, after = time.monotonic() - begun, daemon.taken()
        syncs = daemon.syncs(INTERVAL + 3, place / "traced")
    what = f"idle daemon, {SESSIONS:,} sessions"
    yield Row(f"{what}: processor", 100 * (after.cpu - before.cpu) / slept, "%", target="0.1 %")
    yield Row(f"{what}: wake-ups", (after.waits - before.waits) / slept, "/s", target="1 /s")
    if syncs is not None:
        yield Row(f"{what}: syncs", syncs, "a run", target="0")
