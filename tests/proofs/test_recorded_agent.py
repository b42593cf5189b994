"""The live scenario against a recorded agent: it fails its run when its file changes meanwhile."""

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
    """The recorded agent as a process of its own; its commands find our program."""

    def __init__(self, process, path):
        self._process, self.path = process, path
        self.placeholders, self.gaps, self.written, self.turns = [], [], b"", 0

    def turn(self, *rounds, may_fail=False):
        """Have it do one turn; whatever we do meanwhile, the turn succeeds."""
        self.turns += 1
        order = {"text": f"turn {self.turns}", "rounds": rounds}
        self._process.stdin.write(json.dumps(order).encode() + b"\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, "the agent died"
        told = json.loads(answer)
        assert told["ok"] or may_fail, told["why"]
        self.placeholders.append(told["placeholders"])
        self.gaps, self.written = told["gaps"], told["written"].encode()
        return told

    def entries(self):
        return [json.loads(line) for line in self.path.read_bytes().splitlines()]


@pytest.fixture
def started(world):
    """Give a way to start processes that see this world and are gone at the end."""
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ.get('PATH', os.defpath)}",
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
    """Give a recorded agent with a session that does not stand on disk yet."""
    process = started(
        LIVE / "recorded.py", world.directory, SESSION, 7,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    return Recorded(process, world.directory / f"{SESSION}.jsonl")


@contextmanager
def scans(started, world):
    """Scan without pause; give what the runs did once they were stopped."""
    process = started(LIVE / "scanning.py", world.base / "config.toml", stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"scanning\n"
    told = {}
    yield told
    process.terminate()
    told |= json.loads(process.stdout.readline())
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
    """Give the first tool result (or this one) once a placeholder stands in it."""

    def look():
        found = results(agent.entries())
        return next(
            (one for one in found if text(one) == f"[[extracted-{one['id']}]]"
             and ident in (None, one["id"])), None,
        )  # fmt: skip

    return wait("a placeholder stands in the session", look)


def circle(agent, between, turns):
    """Prune, restore in the midst of a turn, protect, prune again; give the entry's id."""
    first = agent.turn([lines_of("the first turn")])
    for number in range(turns):
        between()
        agent.turn([lines_of(f"turn {number}")], [lines_of(f"turn {number}, more", lines=200)])
    ident = extracted(agent)["id"]

    told = agent.turn([f"brainsurgeon restore '[[extracted-{ident}]]'"], ["echo short"])

    assert first["outputs"][0] in told["outputs"][0]
    assert agent.placeholders[-1] > 0
    call = results(agent.entries())[-2]["id"]
    back, redacted = wait("the value is back", lambda: _restored(agent, ident, call))
    assert text(back) == first["outputs"][0] == back["message"]["details"]["aggregated"]
    assert redacted["_redacted"] is True
    assert text(redacted) == f"Restored {ident}."
    assert first["outputs"][0] not in json.dumps(redacted)
    extracted(agent, ident)
    agent.turn([lines_of("the last turn")])
    assert agent.placeholders[-1] > 0
    return ident


def _restored(agent, ident, call):
    """Give the entry restored and the call redacted, which one rewrite does, from one reading."""
    now = {entry.get("id"): entry for entry in agent.entries()}
    both = "_restored" in now[ident] and "_redacted" in now[call]
    return (now[ident], now[call]) if both else None


def undone(world, agent):
    """Undo everything by the command line: what the agent wrote stands there, to the byte."""
    wait("the session is quiet", lambda: time.time() - agent.path.stat().st_mtime > 1.1)
    done = subprocess.run(
        [sys.executable, "-m", "brainsurgeon", "restore", "--all", "--pristine",
         "--config", world.base / "config.toml"],
        capture_output=True, timeout=DEADLINE, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr.decode()
    assert agent.path.read_bytes() == agent.written
    assert world.leftovers() == []


def test_a_recorded_agent_completes_the_circle(world, started, agent):
    """Beside the daemon no run fails, a value asked for comes, and undoing gives every byte."""
    world.config_file(
        quiet_seconds=1, scan_interval_seconds=1, keep_recent=0,
        keep_after_restore_seconds=PROTECTION,
    )  # fmt: skip

    with daemon(started, world):
        circle(agent, between=lambda: extracted(agent), turns=0)

    undone(world, agent)
    assert len(agent.placeholders) == agent.turns


def test_without_quiet_time_lock_status_and_turn_protect(world, started, agent):
    """Scans without pause and without quiet time rewrite between runs and never during one."""
    world.config_file(quiet_seconds=0, keep_recent=0, keep_after_restore_seconds=PROTECTION)
    dice = random.Random(11)

    with scans(started, world) as told:
        circle(agent, between=lambda: time.sleep(dice.uniform(0.0, 0.4)), turns=1)
        extracted(agent)

    undone(world, agent)
    print(f"{told['runs']} runs, {told['changed']} rewrites, {told['deferred']} deferrals, "
          f"{len(agent.gaps)} gaps in the lock, {agent.turns} runs")  # fmt: skip
    assert told["changed"] >= 3  # cut, restored, cut again


def test_the_recorded_agent_notices_a_foreign_write(world, started, agent):
    """The instrument works: the same bytes written by somebody else fail the run that is under way.

    What follows finds the session usable again, as the real one does.
    """
    world.config_file()
    agent.turn(["echo one"])

    told = agent.turn([f"cp {agent.path} copy; cat copy > {agent.path}"], may_fail=True)
    after = agent.turn(["echo three"])

    assert not told["ok"]
    assert "session file changed" in told["why"]
    assert after["ok"]
