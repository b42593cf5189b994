"""Processes that strace kills, or fails with a disk error, at their n-th system call of a kind.

With and without an agent that keeps appending. After each fault a new process recovers and checks
that every line and value is there and that undoing everything gives the original bytes.
"""

import collections
import contextlib
import json
import os
import re
import select
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest

from brainsurgeon.operations.restore import restore_all
from brainsurgeon.rewrite import recover
from brainsurgeon.store import open_store
from building.store_rows import is_restorable
from building.world import Conversation
from proofs.power import operation as operations
from proofs.power import striking
from proofs.power.tracing import strace_problem

FAULTS = {"KILL": "signal=KILL", "EIO": "error=EIO", "ENOSPC": "error=ENOSPC"}
# Each operation, and the operations before it.
VERBS = {"scan": (), "restore-entry": ("scan",), "pin": ("scan",), "expire": ("scan", "undo")}
TIMEOUT = 60.0
PLACEHOLDER = re.compile(rb"\[\[extracted-[^\]]*\]\]")

STRACE_PROBLEM = strace_problem()
# strace is needed to develop the rewrite, not to try the other tests.
pytestmark = pytest.mark.skipif(STRACE_PROBLEM is not None, reason=str(STRACE_PROBLEM))


class Striker:
    """A process that forks for every operation, and an strace that injects one kind of fault."""

    def __init__(self, base, fault):
        self.log = f"{base}/strace.{fault}"
        kinds = ",".join(striking.KINDS)
        injections = [
            word for kind in striking.KINDS
            for word in ("-e", f"inject={kind}:{FAULTS[fault]}:when={striking.STRIKE}")
        ]  # fmt: skip
        self._process = subprocess.Popen(
            ["strace", "-f", "-o", self.log, "-e", f"trace={kinds}", *injections,
             sys.executable, striking.__file__],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0,
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        )  # fmt: skip

    def do(self, base, verb, kind="", number=0):
        """Carry out one operation; return its pid and exit code."""
        self._process.stdin.write(json.dumps([base, verb, kind, number]).encode() + b"\n")
        assert select.select([self._process.stdout], [], [], TIMEOUT)[0], "no answer"
        return json.loads(self._process.stdout.readline())

    def points(self, base, verb):
        pid, code = self.do(base, verb)
        assert code == 0
        counts = self.calls(pid)
        return [(kind, number) for kind in striking.KINDS for number in range(1, counts[kind] + 1)]

    def calls(self, pid):
        with open(self.log, encoding="utf-8", errors="replace") as lines:
            calls = [line.split(None, 1)[1] for line in lines if line.startswith(f"{pid} ")]
        return collections.Counter(call.partition("(")[0] for call in calls)

    def close(self):
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait(TIMEOUT)


class Agent(threading.Thread):
    """An agent that appends bursts of three lines, opening the session by its path."""

    def __init__(self, path):
        super().__init__()
        self.path, self.sent, self._over = path, [], threading.Event()

    def run(self):
        """Append until the block is left; a line whose file is missing does not count as sent."""
        while not self._over.is_set():
            line = b'{"type":"custom","id":"late%d","data":1}\n' % len(self.sent)
            with contextlib.suppress(FileNotFoundError):
                descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND)
                os.write(descriptor, line)
                os.close(descriptor)
                self.sent.append(line)
            self._over.wait(0.002 if len(self.sent) % 3 else 0.15)

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *error):
        self._over.set()
        self.join(TIMEOUT)


class Ground:
    """A world that can be reset to its state before the operation."""

    def __init__(self, base, verb):
        self.base, self.template = f"{base}/world", f"{base}/template-{verb}"
        self.session = f"{self.base}/agents/main/sessions/one.jsonl"
        for place in (self.base, self.template):
            shutil.rmtree(place, ignore_errors=True)
        os.makedirs(os.path.dirname(self.session))
        conversation = Conversation()
        conversation.turn("first " + "x" * 900)
        conversation.turn("second " + "y" * 700)
        self.original = conversation.bytes()
        Path(self.session).write_bytes(self.original)
        self._age()
        open_store(f"{self.base}/state").close()
        for earlier in VERBS[verb]:
            operations.act(self.base, earlier)
        os.rename(self.base, self.template)

    def _age(self):
        os.utime(self.session, (operations.NOW - 7 * operations.DAY,) * 2)

    def reset(self):
        shutil.rmtree(self.base, ignore_errors=True)
        shutil.copytree(self.template, self.base)

    def problems(self, sent):
        """Recover, undo everything, and yield each violation; `sent` are the appended lines."""
        late = b"".join(sent)
        store = open_store(f"{self.base}/state")
        try:
            recover.recover(store)
            if store.journal.open_rewrites():
                yield "the journal is not empty"
            if left := set(os.listdir(os.path.dirname(self.session))) - {"one.jsonl"}:
                yield f"left beside: {sorted(left)}"
            if store._connection.execute("PRAGMA integrity_check").fetchone()[0] != "ok":
                yield "the store is damaged"
            content = Path(self.session).read_bytes()
            if not content.endswith(late):
                yield "lines of the agent are lost, doubled, torn or moved"
            for placeholder in PLACEHOLDER.findall(content):
                if not is_restorable(store, placeholder.decode()):
                    yield "a placeholder leads nowhere"
            bare = "SELECT count(*) FROM extractions WHERE blob_id IS NULL AND expired_at IS NULL"
            if store._connection.execute(bare).fetchone()[0]:
                yield "bytes went without a tombstone"
            settings = operations.settings_of(self.base)
            for _ in range(2):  # the first one may set a requested field
                restore_all(settings, store, clock=time.time, pristine=True)
            if Path(self.session).read_bytes() != self.original + late:
                yield "undoing everything does not give the original back"
        finally:
            store.close()


@pytest.fixture(scope="module")
def place():
    """Yield a directory in memory: a killed process loses nothing that it did not sync."""
    base = tempfile.mkdtemp(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None)
    yield base
    shutil.rmtree(base)


def strike(place, verb, fault, *, appending, count):
    """Inject the fault at `count` of an operation's calls, evenly spread (0: at all of them)."""
    ground, striker = Ground(place, verb), Striker(place, fault)
    outcomes, bad = collections.Counter(), []
    try:
        ground.reset()
        points = striker.points(ground.base, verb)
        step = max(1, len(points) // count) if count else 1
        for kind, number in points[len(fault) % step :: step]:
            ground.reset()
            agent = Agent(ground.session)
            with agent if appending else contextlib.nullcontext():
                pid, code = striker.do(ground.base, verb, kind, number)
            assert code in (0, 3, -9), f"{kind} {number}: {code}"
            changed = bool(PLACEHOLDER.search(Path(ground.session).read_bytes()))
            outcome = {0: "went on", 3: "raised", -9: "killed"}[code]
            if code == 0 and striker.calls(pid)[kind] < striking.STRIKE:
                outcome = "over before"  # how often a lease is checked depends on the time it takes
            outcomes[f"{outcome}, {'with' if changed else 'without'} placeholders"] += 1
            bad += [(kind, number, why) for why in ground.problems(agent.sent)]
    finally:
        striker.close()
    print(
        f"strace, {verb}, {fault}, {'appending' if appending else 'quiet'}:"
        f" {outcomes.total()} of {len(points)} points, {dict(outcomes)}, violations {bad or 0}"
    )
    return outcomes, bad


@pytest.mark.parametrize(
    ("verb", "fault"),
    [*((verb, "KILL") for verb in VERBS), ("scan", "EIO"), ("restore-entry", "ENOSPC")],
)
def test_faults_at_some_system_calls_lose_nothing(place, verb, fault):
    """After a kill or a disk error at a real call, recovery and undoing give the original bytes."""
    outcomes, bad = strike(place, verb, fault, appending=False, count=8)
    assert not bad
    assert outcomes.total() >= 8
    if fault == "KILL":
        assert {outcome.partition(",")[0] for outcome in outcomes} <= {"killed", "over before"}
        assert any(outcome.startswith("killed") for outcome in outcomes)


@pytest.mark.parametrize("fault", ["KILL", "EIO"])
def test_faults_while_an_agent_appends_lose_no_line(place, fault):
    """No line of the agent is lost, doubled, torn or moved."""
    _, bad = strike(place, "scan", fault, appending=True, count=10)
    assert not bad


@pytest.mark.long(proves=("store", "sessions", "rewrite", "operations"))
@pytest.mark.parametrize("appending", [False, True], ids=["quiet", "appending"])
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("verb", VERBS)
def test_faults_at_every_system_call_lose_nothing(place, verb, fault, appending):
    """The same at every call that changes something, with and without an agent that appends."""
    outcomes, bad = strike(place, verb, fault, appending=appending, count=0)
    assert not bad
    assert outcomes.total() > 20
