"""Scan without pause until SIGTERM; then print the number of runs and of each outcome.

python scanning.py CONFIG [restore]

With `restore`, everything is restored after each scan.
"""

import collections
import contextlib
import json
import signal
import sys
import threading
import time

from brainsurgeon import config
from brainsurgeon.errors import StoppedError
from brainsurgeon.operations.restore import restore_all
from brainsurgeon.operations.scan import scan
from brainsurgeon.store import open_store


def main():
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    settings, _ = config.load(sys.argv[1])
    store = open_store(settings.state_dir)
    counts = collections.Counter()
    restores = restore_all if "restore" in sys.argv else lambda *_, **__: ()
    print("scanning", flush=True)
    while not stop.is_set():
        report = scan(settings, store)
        counts["runs"] += 1
        for session in report.sessions:
            counts[session.outcome] += 1
        with contextlib.suppress(StoppedError):
            for session in restores(settings, store, clock=time.time):
                counts[session.state] += 1
        time.sleep(0.002)
    store.close()
    print(json.dumps(counts), flush=True)


if __name__ == "__main__":
    main()
