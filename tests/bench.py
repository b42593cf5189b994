"""Measure brainsurgeon beside the limits of the same bytes, in the same run.

Run it with `sh deploy/bench.sh [--mb 100] [--runs 5]`. Each measure is a process of its own, its
start included; the runs take turns; what is printed are medians of wall time, processor time and
peak memory, and the ratio of the processor time to the limit.

Limits: `cat` (reading), a walk with one stat per file (looking), `orjson.loads` of each line
(parsing), loads + dumps + write + fsync + rename (rewriting by parse and dump), `cp` with fsync.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from building import claw_agent
from building.claw import GATEWAY, WRITTEN, Claw
from building.processes import WORKERS
from building.world import Conversation, write_session

LONGEST_HOLD = 5
"""Milliseconds for which a usual change of rows may hold OpenClaw's lock."""

LIMITS = {
    "read": "import sys\nfor line in open(sys.argv[1], 'rb'): pass",
    "walk": (
        "import os, sys\n"
        "for d, _, names in os.walk(sys.argv[1]):\n"
        "    for n in names: os.stat(os.path.join(d, n))"
    ),
    "loads": "import sys, orjson\nfor line in open(sys.argv[1], 'rb'): orjson.loads(line)",
    "rewrite": (
        "import os, sys, orjson\n"
        "with open(sys.argv[1] + '.copy', 'wb') as out:\n"
        "    for line in open(sys.argv[1], 'rb'):\n"
        "        out.write(orjson.dumps(orjson.loads(line)) + b'\\n')\n"
        "    out.flush(); os.fsync(out.fileno())\n"
        "os.rename(sys.argv[1] + '.copy', sys.argv[1] + '.done')"
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


def main():
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mb", type=int, default=100)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--files", type=int, default=2000)
    wanted = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="brainsurgeon-bench-") as scratch:
        one_session(Path(scratch), wanted.mb, wanted.runs)
        unchanged_tree(Path(scratch), wanted.files, wanted.runs)
        starts(Path(scratch), wanted.runs)
        rows(Path(scratch), wanted.runs)


def one_session(scratch, megabytes, runs):
    """Compare a scan that cuts a large session, and one that only looks, with the limits."""
    root = scratch / "one" / "main" / "sessions"
    root.mkdir(parents=True)
    session = root / "big.jsonl"
    size = write_session(session, megabytes * 1_000_000)
    original = scratch / "original.jsonl"
    shutil.copy2(session, original)
    config = write_config(scratch, scratch / "one")

    def fresh():
        """Start with the original and an empty store, as after the very first pass."""
        shutil.rmtree(scratch / "state", ignore_errors=True)
        session.unlink()
        subprocess.run([*program, "scan", "--once", "--config", config], check=True)
        shutil.copy2(original, session)

    program = [sys.executable, "-m", "brainsurgeon"]
    measures = {
        "read each line": ([sys.executable, "-c", LIMITS["read"], original], None),
        "orjson.loads each line": ([sys.executable, "-c", LIMITS["loads"], original], None),
        "loads+dumps+write+fsync": ([sys.executable, "-c", LIMITS["rewrite"], original], None),
        "cp + fsync": ([sys.executable, "-c", LIMITS["cp"], original], None),
        "scan --dry-run": ([*program, "scan", "--once", "--dry-run", "--config", config], fresh),
        "scan --once (cuts)": ([*program, "scan", "--once", "--config", config], fresh),
        "restore --all --pristine": (
            [*program, "restore", "--all", "--pristine", "--config", config], None,
        ),
    }  # fmt: skip
    print(f"\none session of {size / 1e6:,.0f} MB, {runs} runs")
    report(take_turns(measures, runs), "loads+dumps+write+fsync")
    same = session.read_bytes() == original.read_bytes()
    print("after the last restore the bytes are", "the same" if same else "DIFFERENT")


def unchanged_tree(scratch, files, runs):
    """Compare a pass over an unchanged tree with a walk that stats each file."""
    root = scratch / "many"
    for number in range(files):
        directory = root / f"agent{number % 20}" / "sessions"
        directory.mkdir(parents=True, exist_ok=True)
        talk = Conversation(f"{number:08x}-0000-4000-8000-000000000000")
        for _ in range(4):
            talk.turn("y" * 900)
        path = directory / f"{number:08x}.jsonl"
        path.write_bytes(talk.bytes())
        os.utime(path, (time.time() - 86_400,) * 2)
    config = write_config(scratch, root)
    shutil.rmtree(scratch / "state", ignore_errors=True)
    program = [sys.executable, "-m", "brainsurgeon", "scan", "--once", "--config", config]
    subprocess.run(program, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    measures = {
        "walk + stat": ([sys.executable, "-c", LIMITS["walk"], root], None),
        "brainsurgeon --version": ([sys.executable, "-m", "brainsurgeon", "--version"], None),
        "scan --once (unchanged)": (program, None),
    }
    print(f"\n{files:,} unchanged sessions, {runs} runs")
    report(take_turns(measures, runs), "walk + stat")


def starts(scratch, runs):
    """Compare what an agent waits for in the middle of its turn with its packages alone."""
    root = scratch / "starts"
    sessions = root / "main" / "sessions"
    sessions.mkdir(parents=True)
    talk = Conversation()
    for _ in range(5):
        talk.turn("y" * 900)
    (sessions / "s.jsonl").write_bytes(talk.bytes())
    os.utime(sessions / "s.jsonl", (time.time() - 86_400,) * 2)
    config = write_config(scratch, root)
    program = [sys.executable, "-m", "brainsurgeon"]
    shutil.rmtree(scratch / "state", ignore_errors=True)
    subprocess.run(
        [*program, "scan", "--once", "--config", config], check=True, stdout=subprocess.DEVNULL
    )
    measures = {
        "python": ([sys.executable, "-c", ""], None),
        "import of the MCP SDK": ([sys.executable, "-c", LIMITS["sdk"]], None),
        "mcp, until stdin ends": ([*program, "mcp", "--config", config], None),
        "show": ([*program, "show", "00000003", "--config", config], None),
    }
    print(f"\nwhat an agent waits for, {runs} runs")
    report(take_turns(measures, runs), "import of the MCP SDK")


def rows(scratch, runs, turns=700):
    """Tell for how long OpenClaw would have to wait for us: under the lock of its database."""
    template = Claw(scratch / "template")
    with claw_agent.at_work(template.path) as agent:
        for number in range(turns):
            grow(agent, number)
    place = scratch / "claw"
    config = write_config(scratch, place / "agents")
    print(f"\na session of {turns} turns in a database, {runs} runs")
    verbs = {"scan --once": [], "restore --all --pristine": []}
    for _ in range(runs):
        shutil.rmtree(scratch / "state", ignore_errors=True)
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(template.base, place)
        for verb in verbs:
            verbs[verb] += timed(scratch / "held.jsonl", verb.split(), config)
    for verb, told in verbs.items():
        held = sorted(1000 * one["held"] for one in told)
        median = statistics.median(held)
        slow = verb.startswith("scan") and median > LONGEST_HOLD  # the others wait for the disk
        verdict = f", MORE than {LONGEST_HOLD} ms" if slow else ""
        print(
            f"{verb:28}{len(held)} changes of {sum(one['rows'] for one in told)} rows, lock held"
            f" for {median:.1f} ms (median{verdict}), {held[-1]:.1f} ms (worst)"
        )


def grow(agent, number):
    """Let OpenClaw's agent do a turn long ago."""
    now, ids = int(WRITTEN * 1000), [f"{number:08x}-{place}" for place in range(4)]
    call = {"type": "toolCall", "id": f"c{number}", "name": "exec", "arguments": {}}
    text = "".join(f"row {number} line {line} ä {number * line}\n" for line in range(200))
    messages = (
        {"role": "user", "content": "go on"},
        {"role": "assistant", "content": [call], "stopReason": "toolUse"},
        {"role": "toolResult", "toolCallId": f"c{number}", "toolName": "exec",
         "content": [{"type": "text", "text": text}], "isError": False},
        {"role": "assistant", "content": [{"type": "text", "text": "done."}],
         "stopReason": "stop"},
    )  # fmt: skip
    for ident, message in zip(ids, messages, strict=True):
        entry = {"type": "message", "id": ident, "timestamp": now, "message": message}
        packed = message["role"] == "toolResult"
        claw_agent.append(agent, GATEWAY, json.dumps(entry).encode(), now, packed=packed)


def timed(held, verb, config):
    """Run a command of ours; give what each of its changes of rows cost."""
    held.unlink(missing_ok=True)
    words = [sys.executable, WORKERS / "timed.py", held, *verb, "--config", config]
    subprocess.run(list(map(str, words)), check=True, stdout=subprocess.DEVNULL)
    return [json.loads(line) for line in held.read_text().splitlines()]


def write_config(scratch, root):
    """Write a configuration for one root."""
    config = scratch / f"{root.name}.toml"
    config.write_text(f'state_dir = "{scratch}/state"\n[[roots]]\npath = "{root}"\n')
    return config


def take_turns(measures, runs):
    """Run every measure `runs` times, in turns, after one round that does not count."""
    figures = {name: [] for name in measures}
    for number in range(runs + 1):
        for name, (words, before) in measures.items():
            if before:
                before()
            figure = measure([str(word) for word in words])
            if number:
                figures[name].append(figure)
    return figures


def measure(words):
    """Run a process; give its wall seconds, processor seconds and peak memory in MB.

    A small process in between starts it and waits: the kernel counts the memory of whoever forks
    into the peak of the child.
    """
    launched = subprocess.run(
        [sys.executable, "-S", "-E", "-c", LAUNCHER, *words], check=True, stdout=subprocess.PIPE
    )
    wall, cpu, peak, code = map(float, launched.stdout.split())
    if code:
        sys.exit(f"{words}: exit {code:.0f}")
    return wall, cpu, peak / 1024


def report(figures, limit):
    """Print medians, and how many times the limit's processor time each took."""
    medians = {
        name: [statistics.median(column) for column in zip(*runs, strict=True)]
        for name, runs in figures.items()
    }
    print(f"{'':28}{'wall s':>8}{'cpu s':>8}{'peak MB':>9}  cpu x limit")
    for name, (wall, cpu, peak) in medians.items():
        ratio = cpu / medians[limit][1]
        print(f"{name:28}{wall:8.3f}{cpu:8.3f}{peak:9.0f}{ratio:8.2f}")


if __name__ == "__main__":
    main()
