"""Live: turns of the real pi and OpenClaw are archived, restored, forked and compacted."""

import contextlib
import json
import subprocess
import time
from pathlib import Path

import pytest

from proofs.live.archived import Forgetful, Talk, archived_in
from proofs.live.claw_messages import OnMessages
from proofs.live.pi import Pi
from proofs.live.program import configure, wait

pytestmark = pytest.mark.long(
    proves=("formats", "planning", "rewrite", "operations", "mcp_server", "hosts")
)

PROTECTION = 4
PRISTINE = ("restore", "--all", "--pristine")


class OfPi(Pi):
    """pi: each turn in a process of its own, or several in one that runs on."""

    tool, quiet, running = "bash", 0, None

    def __init__(self, base, start, model):
        super().__init__(base, model)
        self.roots = self.sessions
        begun = super().turn([("bash", {"command": "echo begun"})])
        assert begun
        self.first = self.path

    def asks(self, path, rounds):
        if self.running:
            return self.running.turn(*rounds)
        return self.turn(*rounds, session=("--session", str(path)))

    @contextlib.contextmanager
    def running_on(self, talk):
        """Keep one process for several turns, which never reads its session again."""
        with self.conversation(("--session", str(talk.path))) as self.running:
            talk.whole = False
            yield
        talk.whole, self.running = True, None

    def by_its_tool(self, ident):
        """Return a call that restores a turn, with the values extracted from it."""
        return self.tool, {"command": f"brainsurgeon restore --values {ident}"}

    def fork(self, path, rounds):
        requests = self.turn(*rounds, session=("--fork", str(path)))
        return self.path, requests

    def compact(self, path):
        with self.conversation(("--session", str(path))) as running:
            running.ask("compact", until=None)


class OfOpenClaw(OnMessages):
    """OpenClaw's gateway, on a model that binds signatures to the history before them."""

    tool, quiet, name = "exec", 2, "claude-fable-5-1"

    def __init__(self, base, start, model):
        super().__init__(base, start, model)
        self.roots, self.first = self.state / "agents", self.path

    def asks(self, path, rounds):
        self.session = path.stem.rpartition("_")[2]
        return self.turn(*rounds)

    @contextlib.contextmanager
    def running_on(self, talk):
        """Do nothing: the gateway runs on, and reads a changed session again."""
        yield

    def by_its_tool(self, ident):
        """Return a call of `purge_control` that restores a turn."""
        return "brainsurgeon__purge_control", {"action": "restore", "entry": ident}

    def fork(self, path, rounds):
        """Do a turn in a fork of a session; return the fork's path and the requests."""
        created = self._call("sessions.create", parentSessionKey=_key(path), fork=True)
        fork = Path(created["entry"]["sessionFile"])
        return fork, self.asks(fork, rounds)

    def compact(self, path):
        result = self._call("sessions.compact", key=_key(path))
        assert result["compacted"], result

    def _call(self, method, **params):
        process = subprocess.run(
            [*self.program, "gateway", "call", method, "--json", "--params", json.dumps(params),
             "--timeout", "120000"],
            env=self.environment, cwd=self.base / "workspace", stdin=subprocess.DEVNULL,
            capture_output=True, timeout=300, check=False,
        )  # fmt: skip
        assert process.returncode == 0, (method, process.stdout[-2000:], process.stderr[-2000:])
        return json.loads(process.stdout)


def _key(path):
    return f"agent:main:explicit:{path.stem}"


def printing(agent, tag, lines=60):
    why = f": '{tag} has to be printed, as was said before' ; " * 20
    command = f"{why}yes 'this is a line of {tag}, which says nothing' | head -{lines}"
    return agent.tool, {"command": command}


def restoring(agent, ident):
    return agent.tool, {"command": f"brainsurgeon restore {ident}"}


@pytest.mark.parametrize("kind", [OfPi, OfOpenClaw], ids=["pi", "openclaw"])
def test_archiving_beside_a_running_agent_keeps_requests_valid(tmp_path, start, kind):
    """Every request over restores, a fork and a compaction is valid, and no turn fails.

    After each turn `show` prints the session as the agent wrote it, and at the end it is restored
    to the byte. A scan in the middle of a turn changes nothing.
    """
    start_time = time.monotonic()
    with Forgetful() as model:
        agent = kind(tmp_path, start, model)
        configure(
            tmp_path, agent.roots, "[archive]\nenabled = true\ntoken_threshold = 0\n",
            quiet_seconds=agent.quiet, keep_recent=2, keep_after_restore_seconds=PROTECTION,
        )  # fmt: skip
        if kind is OfOpenClaw:
            agent.open()
        talk = Talk(agent, agent.first)
        _archives(agent, talk)
        _restores(agent, talk)
        fork = _forks(agent, talk)
        _compacts(agent, talk)
        lean = talk.path.stat().st_size
        wait("it is at rest", lambda: time.time() - talk.path.stat().st_mtime > agent.quiet)
        talk.runs(*PRISTINE)
        assert talk.path.read_bytes() == b"".join(talk.lines)
        fork.check_lines(fork.path.read_bytes())
        model.forget()
        model.during = None
        agent.asks(talk.path, [[printing(agent, "after all")]])
        assert model.refused == []
        assert talk.touched == []
        assert talk.looks >= 9
        print(
            f"{talk.turns} turns, {talk.requests} requests, none refused; "
            f"{len(b''.join(talk.lines)):,} bytes, {lean:,} when archived; "
            f"{time.monotonic() - start_time:.0f} s"
        )


def _archives(agent, talk):
    """Do four turns; the older ones are archived while the agent goes on."""
    for number in range(4):
        two = [printing(agent, number), printing(agent, f"{number} too")]
        talk.turn(two, [printing(agent, f"{number} again")])
    assert len(talk.archived) >= 2


def _restores(agent, talk):
    """Restore an archived turn in the middle of another, let it be archived again, restore one."""
    ident = talk.archived[0]
    short = talk.ids
    talk.turn([restoring(agent, ident)], [printing(agent, "beside it")])
    assert len(talk.ids) > len(short)
    assert ident not in talk.archived
    with agent.running_on(talk):
        talk.turn([printing(agent, "while it is back")])
        time.sleep(PROTECTION)
        talk.scans()
        assert ident in talk.archived
    ident = talk.archived[-1]
    talk.turn([agent.by_its_tool(ident)], [printing(agent, "beside its tool")])
    assert ident not in talk.archived


def _forks(agent, talk):
    """Fork the session and go on in both; the parent is scanned before the fork is known."""
    before = talk.archived
    agent.model.during = lambda *_: talk.runs("scan", "--once")
    path, requests = agent.fork(talk.path, [[printing(agent, "fork")]])
    assert archived_in(requests[0]) == before
    fork = Talk(agent, path, talk)
    fork.turn([printing(agent, "in the fork")])
    talk.turn([printing(agent, "beside the fork")])
    return fork


def _compacts(agent, talk):
    """Compact the session and go on: no archive from before the compaction is sent."""
    agent.compact(talk.path)
    agent.model.forget()
    talk.scans()
    talk.whole = False
    requests = talk.turn([printing(agent, "after the compaction")])
    assert "a few words" in json.dumps(requests[0]["messages"])
    talk.turn([printing(agent, "the end")])
