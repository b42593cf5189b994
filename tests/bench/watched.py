"""A daemon of ours that is watched: what it takes from one moment to another."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from typing import NamedTuple

from bench.measuring import ours, surroundings

# Seconds to wait for a run.
LONGEST = 900


class Taken(NamedTuple):
    """What a process took so far: processor seconds, waits, bytes read by calls."""

    cpu: float
    waits: int
    read: int


class Daemon:
    """The daemon on a configuration, with a log that is read."""

    def __init__(self, config, log):
        self._log = log
        with open(log, "wb") as out:
            self._process = subprocess.Popen(
                list(map(str, ours("run", config=config))), stdin=subprocess.DEVNULL,
                stdout=out, stderr=out, env={**surroundings(), "BRAINSURGEON_LOG_LEVEL": "debug",
                                             "BRAINSURGEON_LOG_FORMAT": "json"},
            )  # fmt: skip
        self.pid = self._process.pid

    def runs(self):
        text = self._log.read_text()
        lines = text[: text.rfind("\n") + 1].splitlines()
        events = [json.loads(line) for line in lines if '"scan_finished"' in line]
        return [one for one in events if one["event"] == "scan_finished"]

    def wait_for(self, count, pause=0.02):
        deadline = time.monotonic() + LONGEST
        while len(done := self.runs()) < count:
            if self._process.poll() is not None or time.monotonic() > deadline:
                sys.exit(f"the daemon does not go on:\n{self._log.read_text()[-2000:]}")
            time.sleep(pause)
        return done

    def watching(self):
        deadline = time.monotonic() + LONGEST
        while time.monotonic() < deadline:
            for name in os.listdir(f"/proc/{self.pid}/fdinfo"):
                with contextlib.suppress(OSError), open(f"/proc/{self.pid}/fdinfo/{name}") as said:
                    if "inotify wd:" in said.read():
                        return
            time.sleep(0.05)

    def taken(self):
        cpu = waits = 0
        for thread in os.listdir(f"/proc/{self.pid}/task"):
            with open(f"/proc/{self.pid}/task/{thread}/schedstat") as handle:
                cpu += int(handle.read().split()[0])
            with open(f"/proc/{self.pid}/task/{thread}/status") as handle:
                waits += sum(int(line.split()[1]) for line in handle if line.startswith("volun"))
        with open(f"/proc/{self.pid}/io") as handle:
            read = int(handle.readline().split()[1])
        return Taken(cpu / 1e9, waits, read)

    def syncs(self, seconds, out):
        if shutil.which("strace") is None:
            return None
        calls = "trace=fsync,fdatasync,sync_file_range,syncfs"
        tracer = subprocess.Popen(
            ["strace", "-f", "-qq", "-e", calls, "-o", str(out), "-p", str(self.pid)]
        )
        time.sleep(seconds)
        tracer.send_signal(signal.SIGINT)
        tracer.wait()
        return sum("sync" in line and "resumed" not in line for line in out.read_text().split("\n"))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._process.terminate()
        self._process.wait()


def idle(path):
    """Let a file be one that nobody has touched for a day."""
    os.utime(path, (time.time() - 86_400,) * 2)
