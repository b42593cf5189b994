"""The live scenario: agents ask for evidence, and one that goes in circles is noticed."""

import json
import subprocess
import sys
import time
import uuid

import pytest

from proofs.agent_packages import CLAUDE_CODE, OPENCLAW, package
from proofs.live.claude import ClaudeCode
from proofs.live.claw_messages import OnMessages
from proofs.live.gateway import wait
from proofs.live.messages import Messages

pytestmark = pytest.mark.long(
    proves=("planning", "lookup", "operations", "rewrite", "mcp_server", "daemon")
)

QUIET = 1
LINE = "it failed because the disk is full"
FAILED = "\n".join([LINE] * 60)


class OfClaudeCode:
    """The real Claude Code, each turn in a process of its own."""

    tool, ours, spawn = "Bash", "mcp__brainsurgeon__purge_control", "Agent"

    def __init__(self, base, start, model):
        places = (package(CLAUDE_CODE) / "@anthropic-ai").glob("claude-code-*/claude")
        self.agent = ClaudeCode(base, [str(next(p for p in places if p.is_file()))], model)
        self.roots = self.agent.config / "projects"

    def sub_agent(self, prompt):
        return self.spawn, {
            "description": "sub work", "subagent_type": "general-purpose", "prompt": prompt,
            "run_in_background": False,
        }  # fmt: skip

    def child(self):
        """Give the name of the sub-agent's session."""
        [path] = self.agent.project.glob(f"{self.agent.session}/subagents/agent-*.jsonl")
        return path.stem


class OfOpenClaw:
    """The real OpenClaw with its gateway."""

    tool, ours = "exec", "brainsurgeon__purge_control"

    def __init__(self, base, start, model):
        self.agent = OnMessages(base, start, model, OPENCLAW)
        self.roots = self.agent.state / "agents"
        self.agent.open()

    def sub_agent(self, prompt):
        return "sessions_spawn", {"task": prompt}

    def child(self):
        """Give the name of the sub-agent's session, which runs beside the one that started it."""
        own = f"main/{self.agent.session}"

        def others():
            listed = json.loads(runs(self.agent, "sessions", "--json"))["sessions"]
            return [one["session"] for one in listed if one["session"] != own]

        return wait("the sub-agent has a session", others)[0]


EVERY = pytest.mark.parametrize("kind", [OfClaudeCode, OfOpenClaw], ids=lambda kind: kind.__name__)


def runs(agent, *words):
    """Run our program as the user does; give what it prints."""
    done = subprocess.run(
        [sys.executable, "-m", "brainsurgeon", *words], env=agent.environment,
        capture_output=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, (words, done.stdout[-800:], done.stderr[-800:])
    return done.stdout.decode()


def shell(kind, command):
    return kind.tool, {"command": command, "description": "run it"}


def failing(kind, tag=""):
    return shell(kind, f"yes '{LINE}{tag}' | head -60; exit 3")


def printing(kind, tag):
    return shell(kind, f"yes 'this is a line of {tag}, which says nothing' | head -80")


def told(request):
    """Give all that the newest message of a request says, as text."""
    return json.dumps(request["messages"][-1], ensure_ascii=False)


def has_all_lines(text, tag=""):
    """Check whether all sixty lines of a failed result stand in a text, one after the other."""
    return "\\n".join([LINE + tag] * 60) in text or "\\\\n".join([LINE + tag] * 60) in text


@EVERY
def test_agents_ask_for_the_evidence_of_pruned_and_archived_sessions(tmp_path, start, kind):
    """By shell a later session asks for an earlier one's, by tool for its own and a sub-agent's.

    Each gets the failed result whole, although it was extracted and its turn archived.
    """
    with Messages() as model:
        (tmp_path / "config.toml").write_text(
            f'state_dir = "{tmp_path}/state"\nquiet = "{QUIET}s"\nkeep_recent = 0\n'
            f'min_reclaim = 0\n[[roots]]\npath = "{tmp_path}/nothing"\n'
        )
        one = kind(tmp_path, start, model)
        agent = one.agent
        config = tmp_path / "config.toml"
        config.write_text(config.read_text().replace(f"{tmp_path}/nothing", str(one.roots)))
        agent.turn([failing(one)], [printing(one, "turn 1")])
        number, prompt = model.script([failing(one, " there")], [printing(one, "the sub-agent")])

        def once(plan, asked):
            """Let the plan end, since OpenClaw quotes its prompt when the sub-agent is done."""
            if (plan, asked) == (number, 3):
                model.plans[number] = ((), model.plans[number][1])

        model.during = once
        agent.turn([one.sub_agent(prompt)])
        child = one.child()
        agent.turn([printing(one, "turn 3")])
        first = agent.session
        _prune(agent, first)

        requests = agent.turn([(one.ours, {"action": "evidence"})])
        assert has_all_lines(told(requests[-1]))
        requests = agent.turn([(one.ours, {"action": "evidence", "session": child})])
        assert has_all_lines(told(requests[-1]), " there")

        agent.session = str(uuid.uuid4())
        command = f"brainsurgeon evidence {first} --budget 16000"
        requests = agent.turn([shell(one, command)])
        assert has_all_lines(told(requests[-1]))
        assert "FAILED" in told(requests[-1])


def _prune(agent, session):
    """Prune all sessions once they are idle, and archive the turns of one, where that is done."""

    def extracted():
        runs(agent, "scan")
        return json.loads(runs(agent, "sessions", session, "--json"))["extracted"]

    wait("the session is pruned", lambda: extracted() or time.sleep(0.5))
    subprocess.run(
        [sys.executable, "-m", "brainsurgeon", "archive", session], env=agent.environment,
        capture_output=True, timeout=120, check=False,
    )  # fmt: skip


@EVERY
def test_an_agent_that_goes_in_circles_is_noticed_within_ten_seconds(tmp_path, start, kind):
    """Nine equal calls of a scripted agent are one event, and on_signal runs once."""
    said = tmp_path / "said"
    with Messages() as model:
        (tmp_path / "config.toml").write_text("")
        one = kind(tmp_path, start, model)
        agent = one.agent
        script = json.dumps(["sh", "-c", f"cat >> {said}; echo >> {said}"])
        (tmp_path / "config.toml").write_text(
            f'state_dir = "{tmp_path}/state"\n[[roots]]\npath = "{one.roots}"\n'
            f"[signals]\non_signal = {script}\n"
        )
        times = []
        model.during = lambda _plan, _round: times.append(time.time())
        agent.turn([printing(one, "the first turn")])
        start([sys.executable, "-m", "brainsurgeon", "run"], agent.environment, "daemon.log")
        time.sleep(5)
        times.clear()
        loop = shell(one, "sleep 2; false")
        agent.turn(*[[loop] for _ in range(9)])
        wait("the command has run", lambda: said.exists() and said.read_text().endswith("\n"))
        time.sleep(12)
        events = json.loads(runs(agent, "history", "--events", "--kind", "signal", "--json"))[
            "events"
        ]

    [event] = events
    [line] = said.read_text().splitlines()
    assert event["facts"]["signal"] == "repeated_tool_call"
    assert json.loads(line)["event_id"] == event["event_id"]
    at = subprocess.run(
        ["date", "-d", event["at"], "+%s"], capture_output=True, check=True, text=True
    ).stdout  # fmt: skip
    assert float(at) - times[4] < 10  # the answer with the fifth call was asked for then
