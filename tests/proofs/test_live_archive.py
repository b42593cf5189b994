"""Live: archiving in sessions of the real pi and OpenClaw, with restores, forks, compaction."""

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
    proves=("formats", "planning", "rewrite", "operations", "mcp_server", "agents")
)

KEEP_AFTER_RESTORE = 4
PRISTINE = ("restore", "--all", "--pristine")


class PiAgent(Pi):
    """pi, with one process for each turn, or one for several turns."""

    tool, quiet, running = "bash", 0, None

    def __init__(self, base, start, model):
        super().__init__(base, model)
        self.roots = self.sessions
        assert super().turn([("bash", {"command": "echo begun"})])
        self.first = self.path

    def do_turn(self, path, rounds):
        if self.running:
            return self.running.turn(*rounds)
        return self.turn(*rounds, session=("--session", str(path)))

    @contextlib.contextmanager
    def in_one_process(self, talk):
        """Use one process for several turns; it reads the session only when it starts."""
        with self.conversation(("--session", str(talk.path))) as self.running:
            talk.sends_all = False
            yield
        talk.sends_all, self.running = True, None

    def restore_call(self, ident):
        """Return a call that restores an archived turn and the values extracted from it."""
        return self.tool, {"command": f"brainsurgeon restore --values {ident}"}

    def fork(self, path, rounds):
        requests = self.turn(*rounds, session=("--fork", str(path)))
        return self.path, requests

    def compact(self, path):
        with self.conversation(("--session", str(path))) as running:
            running.ask("compact", until=None)


class OpenClawAgent(OnMessages):
    """OpenClaw's gateway, on a model that binds signatures to the history before them."""

    tool, quiet, name = "exec", 2, "claude-fable-5-1"

    def __init__(self, base, start, model):
        super().__init__(base, start, model)
        self.roots, self.first = self.state / "agents", self.path

    def do_turn(self, path, rounds):
        self.session = path.stem.rpartition("_")[2]
        return self.turn(*rounds)

    @contextlib.contextmanager
    def in_one_process(self, talk):
        """Do nothing: the gateway is one process, and reads a changed session again."""
        yield

    def restore_call(self, ident):
        """Return a call of `purge_control` that restores an archived turn."""
        return "brainsurgeon__purge_control", {"action": "restore", "entry": ident}

    def fork(self, path, rounds):
        """Do a turn in a fork of a session; return the fork's path and the requests."""
        created = self._call("sessions.create", parentSessionKey=_key(path), fork=True)
        fork = Path(created["entry"]["sessionFile"])
        return fork, self.do_turn(fork, rounds)

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


def print_call(agent, tag):
    comment = f": '{tag} has to be printed, as was said before' ; " * 20
    command = f"{comment}yes 'this is a line of {tag}, which says nothing' | head -60"
    return agent.tool, {"command": command}


def shell_restore_call(agent, ident):
    return agent.tool, {"command": f"brainsurgeon restore {ident}"}


@pytest.mark.parametrize("kind", [PiAgent, OpenClawAgent], ids=["pi", "openclaw"])
def test_archiving_beside_a_running_agent_keeps_requests_valid(tmp_path, start, kind):
    """All requests are valid despite archives, restores, a fork and a compaction; no turn fails.

    After each turn, `show` prints the session as the agent wrote it. A scan in the middle of a turn
    changes nothing. At the end, the session is restored to the byte.
    """
    start_time = time.monotonic()
    with Forgetful() as model:
        agent = kind(tmp_path, start, model)
        configure(
            tmp_path, agent.roots, "[archive]\nenabled = true\ntoken_threshold = 0\n",
            quiet_seconds=agent.quiet, keep_recent=2, keep_after_restore_seconds=KEEP_AFTER_RESTORE,
        )  # fmt: skip
        if kind is OpenClawAgent:
            agent.open()
        talk = Talk(agent, agent.first)
        _archive(agent, talk)
        _restore(agent, talk)
        fork = _fork(agent, talk)
        _compact(agent, talk)
        archived_bytes = talk.path.stat().st_size
        wait("the session is idle", lambda: time.time() - talk.path.stat().st_mtime > agent.quiet)
        talk.run(*PRISTINE)
        assert talk.path.read_bytes() == b"".join(talk.lines)
        fork.check_lines(fork.path.read_bytes())
        model.forget()
        model.during = None
        agent.do_turn(talk.path, [[print_call(agent, "after all")]])
        assert model.refused == []
        assert talk.changed_in_turns == []
        assert talk.scans_in_turns >= 9
        print(
            f"{talk.turns} turns, {talk.requests} requests, none refused; "
            f"{len(b''.join(talk.lines)):,} bytes, {archived_bytes:,} when archived; "
            f"{time.monotonic() - start_time:.0f} s"
        )


def _archive(agent, talk):
    """Do four turns with a scan after each, which archives the older turns."""
    for number in range(4):
        calls = [print_call(agent, number), print_call(agent, f"{number} too")]
        talk.turn(calls, [print_call(agent, f"{number} again")])
    assert len(talk.archived) >= 2


def _restore(agent, talk):
    """Restore a turn during another, archive it again, and restore one with the agent's tool."""
    ident = talk.archived[0]
    ids = talk.ids
    talk.turn([shell_restore_call(agent, ident)], [print_call(agent, "beside it")])
    assert len(talk.ids) > len(ids)
    assert ident not in talk.archived
    with agent.in_one_process(talk):
        talk.turn([print_call(agent, "while it is back")])
        time.sleep(KEEP_AFTER_RESTORE)
        talk.scan()
        assert ident in talk.archived
    ident = talk.archived[-1]
    talk.turn([agent.restore_call(ident)], [print_call(agent, "beside its tool")])
    assert ident not in talk.archived


def _fork(agent, talk):
    """Fork the session, with a scan during the fork's first turn; then do a turn in each."""
    before = talk.archived
    agent.model.during = lambda *_: talk.run("scan", "--once")
    path, requests = agent.fork(talk.path, [[print_call(agent, "fork")]])
    assert archived_in(requests[0]) == before
    fork = Talk(agent, path, talk)
    fork.turn([print_call(agent, "in the fork")])
    talk.turn([print_call(agent, "beside the fork")])
    return fork


def _compact(agent, talk):
    """Compact the session and do two turns, which send the compaction's summary."""
    agent.compact(talk.path)
    agent.model.forget()
    talk.scan()
    talk.sends_all = False
    requests = talk.turn([print_call(agent, "after the compaction")])
    assert "a few words" in json.dumps(requests[0]["messages"])
    talk.turn([print_call(agent, "the end")])
