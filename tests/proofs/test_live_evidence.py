"""Live: agents call `evidence`, and an agent that repeats a call raises a signal."""

import json
import subprocess
import sys
import time
import uuid

import pytest

from proofs.agent_packages import CLAUDE_CODE, OPENCLAW, OPENCLAW_LATEST, package
from proofs.live.claude import ClaudeCode
from proofs.live.claw_messages import OnMessages
from proofs.live.messages import Messages
from proofs.live.program import configure, lines_of, ours, wait

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

    def asks(self, name, arguments):
        """Return a call of a tool that is not the shell."""
        return name, arguments

    def sub_agent(self, prompt):
        return self.spawn, {
            "description": "sub work", "subagent_type": "general-purpose", "prompt": prompt,
            "run_in_background": False,
        }  # fmt: skip

    def child(self):
        """Return the name of the sub-agent's session."""
        [path] = self.agent.project.glob(f"{self.agent.session}/subagents/agent-*.jsonl")
        return path.stem


class OfOpenClaw:
    """The real OpenClaw with its gateway."""

    tool, ours = "exec", "brainsurgeon__purge_control"
    release = OPENCLAW

    def __init__(self, base, start, model):
        self.agent = OnMessages(base, start, model, self.release)
        self.roots = self.agent.state / "agents"
        self.agent.open()

    def sub_agent(self, prompt):
        return self.asks("sessions_spawn", {"task": prompt})

    def asks(self, name, arguments):
        """Return a call of a tool that is not the shell."""
        return name, arguments

    def child(self):
        """Return the name of the sub-agent's session, which runs beside its parent's."""
        own = f"main/{self.agent.session}"

        def others():
            listed = json.loads(ours(self.agent, "sessions", "--json"))["sessions"]
            return [row["session"] for row in listed if row["session"] != own]

        return wait("the sub-agent has a session", others)[0]


class OfDatabases(OfOpenClaw):
    """The real OpenClaw that keeps its sessions in a database."""

    release = OPENCLAW_LATEST

    def asks(self, name, arguments):
        return "tool_call", {"id": name, "args": arguments}


EVERY = pytest.mark.parametrize(
    "kind", [OfClaudeCode, OfOpenClaw, OfDatabases], ids=lambda kind: kind.__name__
)


def shell(kind, command):
    return kind.tool, {"command": command, "description": "run it"}


def failing(kind, tag=""):
    return shell(kind, f"yes '{LINE}{tag}' | head -60; exit 3")


def printing(kind, tag):
    return shell(kind, lines_of(tag))


def newest(request):
    """Return everything in a request after the model's last answer, as text."""
    messages = request["messages"]
    answers = [at for at, message in enumerate(messages) if message["role"] == "assistant"]
    return json.dumps(messages[max(answers, default=-1) + 1 :], ensure_ascii=False)


def has_all_lines(text, tag=""):
    """Check whether a text has all sixty lines of a failed result in a row."""
    return "\\n".join([LINE + tag] * 60) in text or "\\\\n".join([LINE + tag] * 60) in text


@EVERY
def test_evidence_returns_extracted_failures_in_full(tmp_path, start, kind):
    """By shell for an earlier session, by tool for its own session and a sub-agent's."""
    with Messages() as model:
        configure(tmp_path, tmp_path / "nothing", quiet_seconds=QUIET, keep_recent=0)
        host = kind(tmp_path, start, model)
        agent = host.agent
        configure(tmp_path, host.roots, quiet_seconds=QUIET, keep_recent=0)
        agent.turn([failing(host)], [printing(host, "turn 1")])
        number, prompt = model.script([failing(host, " there")], [printing(host, "the sub-agent")])

        def once(plan, requests):
            """End the plan, since OpenClaw quotes its prompt when the sub-agent is done."""
            if (plan, requests) == (number, 3):
                model.plans[number] = ((), model.plans[number][1])

        model.during = once
        agent.turn([host.sub_agent(prompt)])
        child = host.child()
        wait("it is done", lambda: f"done. [{number}]" in ours(agent, "show", child))
        del model.plans[number]  # OpenClaw quotes its prompt in later requests, too
        agent.turn([printing(host, "turn 3")])
        first = agent.session
        _prune(agent, first)

        requests = agent.turn([host.asks(host.ours, {"action": "evidence"})])
        assert has_all_lines(newest(requests[-1]))
        requests = agent.turn([host.asks(host.ours, {"action": "evidence", "session": child})])
        assert has_all_lines(newest(requests[-1]), " there")

        agent.session = str(uuid.uuid4())
        command = f"brainsurgeon evidence {first} --budget 16000"
        requests = agent.turn([shell(host, command)])
        assert has_all_lines(newest(requests[-1]))
        assert "FAILED" in newest(requests[-1])


def _prune(agent, session):
    """Prune all sessions once they are idle, and archive the turns of one where possible."""

    def extracted():
        ours(agent, "scan")
        return json.loads(ours(agent, "sessions", session, "--json"))["extracted"]

    wait("the session is pruned", lambda: extracted() or time.sleep(0.5))
    subprocess.run(
        [sys.executable, "-m", "brainsurgeon", "archive", session], env=agent.environment,
        capture_output=True, timeout=120, check=False,
    )  # fmt: skip


@EVERY
def test_repeated_call_is_signalled_within_ten_seconds(tmp_path, start, kind):
    """Nine equal calls raise one event, their cost another; on_signal runs once for each."""
    output, price = (
        tmp_path / "said",
        "{input = 100, cache_read = 9, cache_write = 125, output = 9}",
    )
    with Messages() as model:
        config = tmp_path / "config.toml"
        config.write_text("")
        host = kind(tmp_path, start, model)
        agent = host.agent
        config.write_text(
            f'state_dir = "{tmp_path}/state"\n[[roots]]\npath = "{host.roots}"\n'
            f'[prices]\n"*" = {price}\n'
        )
        times = []
        model.during = lambda _plan, _round: times.append(time.time())
        agent.turn([printing(host, "the first turn")])
        first = json.loads(ours(agent, "sessions", agent.session, "--json"))["costs"]
        ceiling = 5 * first["cost_dollars"] / first["calls"]
        script = json.dumps(["sh", "-c", f"cat >> {output}; echo >> {output}"])
        config.write_text(
            f"{config.read_text()}[signals]\non_signal = {script}\nmax_turn_cost_usd = {ceiling}\n"
        )
        start([sys.executable, "-m", "brainsurgeon", "run"], agent.environment, "daemon.log")
        time.sleep(5)
        times.clear()
        loop = shell(host, "sleep 2; false")
        agent.turn(*[[loop] for _ in range(9)])
        wait("the command has run", lambda: output.exists() and output.read_text().count("\n") > 1)
        time.sleep(12)
        events = json.loads(ours(agent, "history", "--events", "--kind", "signal", "--json"))[
            "events"
        ]

    assert first["calls"] > 1
    reported = sorted(json.loads(line)["event_id"] for line in output.read_text().splitlines())
    assert reported == sorted(event["event_id"] for event in events)
    signals = {event["facts"]["signal"]: event for event in events}
    assert len(events) == len(signals) == 2
    assert signals["cost_ceiling"]["facts"]["cost_dollars"] >= ceiling
    # The answer with the fifth call was asked for at the fifth time; the cost of the sixth, which
    # has a longer prompt than those of the first turn, is surely above the ceiling.
    for name, request in (("repeated_tool_call", 5), ("cost_ceiling", 6)):
        at = subprocess.run(
            ["date", "-d", signals[name]["at"], "+%s"], capture_output=True, check=True, text=True
        ).stdout  # fmt: skip
        assert float(at) - times[request - 1] < 10, name
