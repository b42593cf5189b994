"""A daemon whose cost is read from the kernel."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from typing import NamedTuple

from bench.measuring import command_line, environment, trace_syncs, traced_syncs

# Seconds to wait for a run.
LONGEST = 900


class Cost(NamedTuple):
    """The cost of a process so far: processor seconds, waits, bytes read by calls."""

    cpu: float
    waits: int
    read: int


class Daemon:
    """The daemon with a configuration and a log."""

    def __init__(self, config, log):
        self._log = log
        with open(log, "wb") as out:
            self._process = subprocess.Popen(
                list(map(str, command_line("run", config=config))), stdin=subprocess.DEVNULL,
                stdout=out, stderr=out, env={**environment(), "BRAINSURGEON_LOG_LEVEL": "debug"},
            )  # fmt: skip
        self.pid = self._process.pid

    def runs(self):
        text = self._log.read_text()
        lines = text[: text.rfind("\n") + 1].splitlines()
        events = [json.loads(line) for line in lines if '"scan_finished"' in line]
        return [event for event in events if event["event"] == "scan_finished"]

    def wait_for(self, count, pause=0.02):
        deadline = time.monotonic() + LONGEST
        while len(runs := self.runs()) < count:
            if self._process.poll() is not None or time.monotonic() > deadline:
                sys.exit(f"the daemon does not go on:\n{self._log.read_text()[-2000:]}")
            time.sleep(pause)
        return runs

    def watching(self):
        deadline = time.monotonic() + LONGEST
        while time.monotonic() < deadline:
            for name in os.listdir(f"/proc/{self.pid}/fdinfo"):
                with contextlib.suppress(OSError), open(f"/proc/{self.pid}/fdinfo/{name}") as info:
                    if "inotify wd:" in info.read():
                        return
            time.sleep(0.05)

    def cost(self):
        cpu = waits = 0
        for thread in os.listdir(f"/proc/{self.pid}/task"):
            with open(f"/proc/{self.pid}/task/{thread}/schedstat") as handle:
                cpu += int(handle.read().split()[0])
            with open(f"/proc/{self.pid}/task/{thread}/status") as handle:
                waits += sum(int(line.split()[1]) for line in handle if line.startswith("volun"))
        with open(f"/proc/{self.pid}/io") as handle:
            read = int(handle.readline().split()[1])
        return Cost(cpu / 1e9, waits, read)

    def syncs(self, seconds, out):
        if shutil.which("strace") is None:
            return None
        tracer = subprocess.Popen([*trace_syncs(out), "-p", str(self.pid)])
        time.sleep(seconds)
        tracer.send_signal(signal.SIGINT)
        tracer.wait()
        return traced_syncs(out)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._process.terminate()
        self._process.wait()
