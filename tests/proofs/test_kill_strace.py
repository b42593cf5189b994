"""Real processes, struck by strace at their n-th real system call: killed, or failed by the disk.

Quiet, and with an agent that goes on appending. After each blow a fresh look recovers, finds every
line and every value, nothing of ours beside the session, and undoing gives the original bytes.
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

from brainsurgeon.model.entries import id_named
from brainsurgeon.operations.restore import restore_all
from brainsurgeon.rewrite import recover
from brainsurgeon.store import open_store
from building.world import Conversation
from proofs.power import operation as operations
from proofs.power import striking
from proofs.power.tracing import why_not

FAULTS = {"KILL": "signal=KILL", "EIO": "error=EIO", "ENOSPC": "error=ENOSPC"}
# What is struck, and what had been done before.
VERBS = {"cut": (), "put-back": ("cut",), "pin": ("cut",), "let-go": ("cut", "undo")}
PATIENCE = 60.0
PLACEHOLDER = re.compile(rb"\[\[extracted-[^\]]*\]\]")


CANNOT = why_not()
# Nothing else strikes at every call; the gate has strace, a newcomer need not.
pytestmark = pytest.mark.skipif(CANNOT is not None, reason=str(CANNOT))


class Striker:
    """One strace over one process that forks for every operation."""

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
        """Do one operation; give its pid and exit code."""
        self._process.stdin.write(json.dumps([base, verb, kind, number]).encode() + b"\n")
        assert select.select([self._process.stdout], [], [], PATIENCE)[0], "nobody answers"
        return json.loads(self._process.stdout.readline())

    def points(self, base, verb):
        pid, code = self.do(base, verb)
        assert code == 0
        counts = self.calls(pid)
        return [(kind, number) for kind in striking.KINDS for number in range(1, counts[kind] + 1)]

    def calls(self, pid):
        with open(self.log, encoding="utf-8", errors="replace") as lines:
            made = [line.split(None, 1)[1] for line in lines if line.startswith(f"{pid} ")]
        return collections.Counter(line.partition("(")[0] for line in made)

    def close(self):
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait(PATIENCE)


class Agent(threading.Thread):
    """Appends three lines in a burst, again and again, opening the session by its path."""

    def __init__(self, path):
        super().__init__()
        self.path, self.sent, self._over = path, [], threading.Event()

    def run(self):
        """Append until told to stop; a failed line is not sent."""
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
        self.join(PATIENCE)


class Ground:
    """A world that can be restored to how it was before each blow."""

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
        for before in VERBS[verb]:
            operations.act(self.base, before)
        os.rename(self.base, self.template)

    def _age(self):
        os.utime(self.session, (operations.NOW - 7 * operations.DAY,) * 2)

    def reset(self):
        shutil.rmtree(self.base, ignore_errors=True)
        shutil.copytree(self.template, self.base)

    def problems(self, sent):
        """Recover, and say what does not hold; `sent` are the lines that were appended."""
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
                if not _resolves(store, placeholder.decode()):
                    yield "a placeholder leads nowhere"
            bare = "SELECT count(*) FROM extractions WHERE blob_id IS NULL AND expired_at IS NULL"
            if store._connection.execute(bare).fetchone()[0]:
                yield "bytes went without a tombstone"
            settings = operations.settings_of(self.base)
            for _ in range(2):  # a field that was asked for is set first
                restore_all(settings, store, clock=time.time, pristine=True)
            if Path(self.session).read_bytes() != self.original + late:
                yield "undoing everything does not give the original back"
        finally:
            store.close()


def _resolves(store, placeholder):
    rows = store._connection.execute(
        "SELECT blob_id, digest FROM extractions WHERE name = ? AND replacement IS NULL"
        " AND blob_id IS NOT NULL AND journal_id IS NULL",
        (id_named(placeholder),),
    ).fetchall()
    return rows and all(store.blobs.get(*row) for row in rows)


@pytest.fixture(scope="module")
def place():
    """Give a directory where syncing costs nothing: a killed process loses nothing."""
    base = tempfile.mkdtemp(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None)
    yield base
    shutil.rmtree(base)


def strike(place, verb, fault, *, appending, wanted):
    """Strike one operation at `wanted` of its calls, evenly spread (0: at all of them)."""
    ground, striker = Ground(place, verb), Striker(place, fault)
    outcomes, bad = collections.Counter(), []
    try:
        ground.reset()
        points = striker.points(ground.base, verb)
        every = max(1, len(points) // wanted) if wanted else 1
        for kind, number in points[len(fault) % every :: every]:
            ground.reset()
            agent = Agent(ground.session)
            with agent if appending else contextlib.nullcontext():
                pid, code = striker.do(ground.base, verb, kind, number)
            assert code in (0, 3, -9), f"{kind} {number}: {code}"
            changed = bool(PLACEHOLDER.search(Path(ground.session).read_bytes()))
            said = {0: "went on", 3: "raised", -9: "killed"}[code]
            if code == 0 and striker.calls(pid)[kind] < striking.STRIKE:
                said = "over before"  # how often a lease is looked at depends on the time it takes
            outcomes[f"{said}, {'with' if changed else 'without'} placeholders"] += 1
            bad += [(kind, number, why) for why in ground.problems(agent.sent)]
    finally:
        striker.close()
    print(
        f"strace, {verb}, {fault}, {'appending' if appending else 'quiet'}:"
        f" {outcomes.total()} of {len(points)} points, {dict(outcomes)}, violations {bad or 0}"
    )
    return outcomes, bad


@pytest.mark.parametrize(
    ("verb", "fault"), [*((verb, "KILL") for verb in VERBS), ("cut", "EIO"), ("put-back", "ENOSPC")]
)
def test_struck_anywhere_nothing_is_lost(place, verb, fault):
    """Killed or failed by the disk at a real system call, each operation leaves a sound whole."""
    outcomes, bad = strike(place, verb, fault, appending=False, wanted=8)
    assert not bad
    assert outcomes.total() >= 8
    if fault == "KILL":
        assert {one.partition(",")[0] for one in outcomes} <= {"killed", "over before"}
        assert any(one.startswith("killed") for one in outcomes)


@pytest.mark.parametrize("fault", ["KILL", "EIO"])
def test_struck_beside_a_live_agent_no_line_is_lost(place, fault):
    """The same while an agent appends: not a line of it is lost, doubled or moved."""
    _, bad = strike(place, "cut", fault, appending=True, wanted=10)
    assert not bad


@pytest.mark.long(proves=("store", "sessions", "rewrite", "operations"))
@pytest.mark.parametrize("appending", [False, True])
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("verb", VERBS)
def test_struck_at_every_call_nothing_is_lost(place, verb, fault, appending):
    """The same at every single call that changes something."""
    outcomes, bad = strike(place, verb, fault, appending=appending, wanted=0)
    assert not bad
    assert outcomes.total() > 20
