"""The live scenario with a recorded agent, whose run fails if its file changes meanwhile."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from proofs.live.program import lines_of, wait

LIVE = Path(__file__).parent / "live"
SESSION = "11111111-0000-4000-8000-0000000000aa"
PROTECTION = 2
DEADLINE = 30


class Recorded:
    """The recorded agent as a process of its own; its commands find brainsurgeon."""

    def __init__(self, process, path):
        self._process, self.path = process, path
        self.placeholders, self.gaps, self.written, self.turns = [], [], b"", 0

    def turn(self, *rounds, may_fail=False):
        """Order one turn, which succeeds unless it `may_fail`; return its result."""
        self.turns += 1
        order = {"text": f"turn {self.turns}", "rounds": rounds}
        self._process.stdin.write(json.dumps(order).encode() + b"\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, "the agent died"
        result = json.loads(answer)
        assert result["ok"] or may_fail, result["why"]
        self.placeholders.append(result["placeholders"])
        self.gaps, self.written = result["gaps"], result["written"].encode()
        return result

    def entries(self):
        return [json.loads(line) for line in self.path.read_bytes().splitlines()]


@pytest.fixture
def started(world):
    """Yield a function that starts a process with this world's configuration."""
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "BRAINSURGEON_CONFIG": str(world.base / "config.toml"),
    }
    with ExitStack() as stack:

        def start(*words, **streams):
            process = subprocess.Popen(
                [sys.executable, *map(str, words)], env=environment, cwd=world.base, **streams
            )
            stack.enter_context(process)
            stack.callback(process.kill)
            return process

        yield start


@pytest.fixture
def agent(world, started):
    """Yield a recorded agent with a session that is not on disk yet."""
    process = started(
        LIVE / "recorded.py", world.directory, SESSION, 7,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    return Recorded(process, world.directory / f"{SESSION}.jsonl")


@contextmanager
def scans(started, world):
    """Scan without pause; yield a dict that gets the counts of the runs at the end."""
    process = started(LIVE / "scanning.py", world.base / "config.toml", stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"scanning\n"
    counts = {}
    yield counts
    process.terminate()
    counts |= json.loads(process.stdout.readline())
    assert process.wait(DEADLINE) == 0


@contextmanager
def daemon(started, world):
    with open(world.base / "daemon.log", "wb") as log:
        process = started("-m", "brainsurgeon", "run", stdout=log, stderr=log)
    yield {}
    process.send_signal(signal.SIGTERM)
    assert process.wait(DEADLINE) == 0


def text(entry):
    return entry["message"]["content"][0]["text"]


def results(entries):
    return [entry for entry in entries if entry.get("message", {}).get("role") == "toolResult"]


def extracted(agent, ident=None):
    """Wait until the first tool result, or this one, is a placeholder; return it."""

    def look():
        entries = results(agent.entries())
        return next(
            (entry for entry in entries if text(entry) == f"[[extracted-{entry['id']}]]"
             and ident in (None, entry["id"])), None,
        )  # fmt: skip

    return wait("a placeholder stands in the session", look)


def scenario(agent, between, turns):
    """Prune, restore in the middle of a turn, protect, prune again; return the entry's id."""
    first = agent.turn([lines_of("the first turn")])
    for number in range(turns):
        between()
        agent.turn([lines_of(f"turn {number}")], [lines_of(f"turn {number}, more", lines=200)])
    ident = extracted(agent)["id"]

    answer = agent.turn([f"brainsurgeon restore '[[extracted-{ident}]]'"], ["echo short"])

    assert first["outputs"][0] in answer["outputs"][0]
    assert agent.placeholders[-1] > 0
    call = results(agent.entries())[-2]["id"]
    restored, redacted = wait("the value is back", lambda: _restored(agent, ident, call))
    assert text(restored) == first["outputs"][0] == restored["message"]["details"]["aggregated"]
    assert redacted["_redacted"] is True
    assert text(redacted) == f"Restored {ident}."
    assert first["outputs"][0] not in json.dumps(redacted)
    extracted(agent, ident)
    agent.turn([lines_of("the last turn")])
    assert agent.placeholders[-1] > 0
    return ident


def _restored(agent, ident, call):
    """Return the restored entry and the redacted call, which one rewrite makes, or None."""
    now = {entry.get("id"): entry for entry in agent.entries()}
    both = "_restored" in now[ident] and "_redacted" in now[call]
    return (now[ident], now[call]) if both else None


def check_undo(world, agent):
    """Restore everything by the command line; check that the session is as it was written."""
    wait("the session is quiet", lambda: time.time() - agent.path.stat().st_mtime > 1.1)
    process = subprocess.run(
        [sys.executable, "-m", "brainsurgeon", "restore", "--all", "--pristine",
         "--config", world.base / "config.toml"],
        capture_output=True, timeout=DEADLINE, check=False,
    )  # fmt: skip
    assert process.returncode == 0, process.stderr.decode()
    assert agent.path.read_bytes() == agent.written
    assert world.leftovers() == []


def test_recorded_agent_works_beside_the_daemon(world, started, agent):
    """No run fails, a requested value is restored, and the undo restores every byte."""
    world.config_file(
        quiet_seconds=1, scan_interval_seconds=1, keep_recent=0,
        keep_after_restore_seconds=PROTECTION,
    )  # fmt: skip

    with daemon(started, world):
        scenario(agent, between=lambda: extracted(agent), turns=0)

    check_undo(world, agent)
    assert len(agent.placeholders) == agent.turns


def test_scan_without_quiet_time_never_rewrites_during_a_run(world, started, agent):
    """Lock, status and open turn defer scans without a quiet time."""
    world.config_file(quiet_seconds=0, keep_recent=0, keep_after_restore_seconds=PROTECTION)
    dice = random.Random(11)

    with scans(started, world) as counts:
        scenario(agent, between=lambda: time.sleep(dice.uniform(0.0, 0.4)), turns=1)
        extracted(agent)

    check_undo(world, agent)
    print(f"{counts['runs']} runs, {counts['changed']} rewrites, {counts['deferred']} deferrals, "
          f"{len(agent.gaps)} gaps in the lock, {agent.turns} runs")  # fmt: skip
    assert counts["changed"] >= 3  # cut, restored, cut again


def test_recorded_agent_fails_its_run_on_a_foreign_write(world, started, agent):
    """Even equal bytes written by another process fail the run; the next run succeeds."""
    world.config_file()
    agent.turn(["echo one"])

    result = agent.turn([f"cp {agent.path} copy; cat copy > {agent.path}"], may_fail=True)
    after = agent.turn(["echo three"])

    assert not result["ok"]
    assert "session file changed" in result["why"]
    assert after["ok"]
