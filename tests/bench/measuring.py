"""Wall time, processor time and memory of processes, as medians over alternating runs."""

import atexit
import functools
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from typing import NamedTuple

# The bare operations, as programs.
LIMITS = {
    "python": "",
    "read": "import sys\nfor line in open(sys.argv[1], 'rb'): pass",
    "loads": "import sys, orjson\nfor line in open(sys.argv[1], 'rb'): orjson.loads(line)",
    "rewrite": (
        "import os, sys, orjson\n"
        "for path in sys.argv[1:]:\n"
        "    with open(path + '.copy', 'wb') as out:\n"
        "        for line in open(path, 'rb'):\n"
        "            out.write(orjson.dumps(orjson.loads(line)) + b'\\n')\n"
        "        out.flush(); os.fsync(out.fileno())\n"
        "    os.rename(path + '.copy', path + '.done')"
    ),
    "sdk": "import mcp.server.lowlevel, mcp.server.stdio",
    "cp": (
        "import os, shutil, sys\n"
        "shutil.copyfile(sys.argv[1], sys.argv[1] + '.copy')\n"
        "f = os.open(sys.argv[1] + '.copy', os.O_RDONLY); os.fsync(f)"
    ),
}
LAUNCHER = """
import os, sys, time
begun = time.monotonic()
null = os.open(os.devnull, os.O_RDWR)
pid = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ,
                     file_actions=[(os.POSIX_SPAWN_DUP2, null, at) for at in (0, 1, 2)])
_, status, usage = os.wait4(pid, 0)
print(time.monotonic() - begun, usage.ru_utime + usage.ru_stime, usage.ru_maxrss,
      os.waitstatus_to_exitcode(status))
"""
PROGRAM = [sys.executable, "-m", "brainsurgeon"]


class Figure(NamedTuple):
    """The cost of a process: seconds, processor seconds, megabytes at its peak.

    `least` is the lowest number of processor seconds of a run.
    """

    wall: float
    cpu: float
    peak: float
    least: float


@functools.cache
def environment():
    """Return the environment of measured processes; bytecode is cached, as if installed."""
    variables = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    cache = tempfile.TemporaryDirectory(prefix="brainsurgeon-bytecode-")
    atexit.register(cache.cleanup)
    return {**variables, "PYTHONPYCACHEPREFIX": cache.name}


def limit(name, *words):
    return [sys.executable, "-c", LIMITS[name], *words]


def command_line(*words, config):
    return [*PROGRAM, *words, "--config", config]


def run(words):
    subprocess.run(list(map(str, words)), check=True, stdout=subprocess.DEVNULL, env=environment())


def measure(words):
    """Run a process and return its cost.

    A small launcher starts it and waits, because the kernel counts the memory of the forking
    process into the child's peak.
    """
    words = list(map(str, words))
    launched = subprocess.run(
        [sys.executable, "-S", "-E", "-c", LAUNCHER, *words], check=True, stdout=subprocess.PIPE,
        env=environment(),
    )  # fmt: skip
    wall, cpu, peak, code = map(float, launched.stdout.split())
    if code:
        sys.exit(f"{words}: exit {code:.0f}")
    return Figure(wall, cpu, peak / 1024, cpu)


def instructions(words):
    """Count the instructions of a process; None without valgrind."""
    if shutil.which("valgrind") is None:
        return None
    counting = [
        "valgrind",
        "--tool=cachegrind",
        "--cache-sim=no",
        "--cachegrind-out-file=/dev/null",
    ]
    result = subprocess.run(
        [*counting, *map(str, words)], check=True, stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE, text=True, env={**environment(), "PYTHONHASHSEED": "0"},
    )  # fmt: skip
    return int(re.search(r"I\s+refs:\s+([0-9,]+)", result.stderr)[1].replace(",", ""))


def trace_syncs(out):
    calls = "trace=fsync,fdatasync,sync_file_range,syncfs"
    return ["strace", "-f", "-qq", "-e", calls, "-o", str(out)]


def traced_syncs(out):
    return sum("sync" in line and "resumed" not in line for line in out.read_text().splitlines())


def alternate(measures, runs, warm=True):
    """Run every measure, (words, setup or None), in alternation; return the medians.

    With `warm` the first round does not count.
    """
    figures = {name: [] for name in measures}
    for number in range(runs + warm):
        for name, (words, setup) in measures.items():
            if setup:
                setup()
            figure = measure(words)
            if number >= warm:
                figures[name].append(figure)
    return {name: median(runs) for name, runs in figures.items()}


def median(figures):
    *medians, _ = map(statistics.median, zip(*figures, strict=True))
    return Figure(*medians, min(figure.least for figure in figures))


@functools.cache
def empty():
    return median([measure(limit("python")) for _ in range(5)])


def above_empty(peak):
    return peak - empty().peak


def timed(call):
    """Return the processor milliseconds that a call takes in this process."""
    started = time.process_time()
    call()
    return 1000 * (time.process_time() - started)


def sessions_below(root):
    """Create the directory of an agent's sessions."""
    sessions = root / "main" / "sessions"
    sessions.mkdir(parents=True)
    return sessions


def write_config(place, root, **keys):
    lines = {"state_dir": f"{place}/state", **keys}
    text = "".join(f"{key} = {json.dumps(value)}\n" for key, value in lines.items())
    path = place / "config.toml"
    path.write_text(f'{text}[[roots]]\npath = "{root}"\n')
    return path
