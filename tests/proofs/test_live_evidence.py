"""The live scenario: agents ask for evidence, and one that goes in circles is noticed."""

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
from proofs.live.program import lines_of, ours, wait

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

    def asks(self, name, given):
        """Give a call of a tool that is no command."""
        return name, given

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
    release = OPENCLAW

    def __init__(self, base, start, model):
        self.agent = OnMessages(base, start, model, self.release)
        self.roots = self.agent.state / "agents"
        self.agent.open()

    def sub_agent(self, prompt):
        return self.asks("sessions_spawn", {"task": prompt})

    def asks(self, name, given):
        """Give a call of a tool that is no command."""
        return name, given

    def child(self):
        """Give the name of the sub-agent's session, which runs beside the one that started it."""
        own = f"main/{self.agent.session}"

        def others():
            listed = json.loads(ours(self.agent, "sessions", "--json"))["sessions"]
            return [one["session"] for one in listed if one["session"] != own]

        return wait("the sub-agent has a session", others)[0]


class OfDatabases(OfOpenClaw):
    """The real OpenClaw that keeps its sessions in a database."""

    release = OPENCLAW_LATEST

    def asks(self, name, given):
        return "tool_call", {"id": name, "args": given}


EVERY = pytest.mark.parametrize(
    "kind", [OfClaudeCode, OfOpenClaw, OfDatabases], ids=lambda kind: kind.__name__
)


def shell(kind, command):
    return kind.tool, {"command": command, "description": "run it"}


def failing(kind, tag=""):
    return shell(kind, f"yes '{LINE}{tag}' | head -60; exit 3")


def printing(kind, tag):
    return shell(kind, lines_of(tag))


def told(request):
    """Give all that a request says since the model's last answer, as text."""
    said = request["messages"]
    answers = [at for at, one in enumerate(said) if one["role"] == "assistant"]
    return json.dumps(said[max(answers, default=-1) + 1 :], ensure_ascii=False)


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
        wait("it is done", lambda: f"done. [{number}]" in ours(agent, "show", child))
        del model.plans[number]  # OpenClaw quotes its prompt in later requests, too
        agent.turn([printing(one, "turn 3")])
        first = agent.session
        _prune(agent, first)

        requests = agent.turn([one.asks(one.ours, {"action": "evidence"})])
        assert has_all_lines(told(requests[-1]))
        requests = agent.turn([one.asks(one.ours, {"action": "evidence", "session": child})])
        assert has_all_lines(told(requests[-1]), " there")

        agent.session = str(uuid.uuid4())
        command = f"brainsurgeon evidence {first} --budget 16000"
        requests = agent.turn([shell(one, command)])
        assert has_all_lines(told(requests[-1]))
        assert "FAILED" in told(requests[-1])


def _prune(agent, session):
    """Prune all sessions once they are idle, and archive the turns of one, where that is done."""

    def extracted():
        ours(agent, "scan")
        return json.loads(ours(agent, "sessions", session, "--json"))["extracted"]

    wait("the session is pruned", lambda: extracted() or time.sleep(0.5))
    subprocess.run(
        [sys.executable, "-m", "brainsurgeon", "archive", session], env=agent.environment,
        capture_output=True, timeout=120, check=False,
    )  # fmt: skip


@EVERY
def test_an_agent_that_goes_in_circles_is_noticed_within_ten_seconds(tmp_path, start, kind):
    """Nine equal calls are one event, their cost is another, and on_signal runs once for each."""
    said, price = tmp_path / "said", "{input = 100, cache_read = 9, cache_write = 125, output = 9}"
    with Messages() as model:
        config = tmp_path / "config.toml"
        config.write_text("")
        one = kind(tmp_path, start, model)
        agent = one.agent
        config.write_text(
            f'state_dir = "{tmp_path}/state"\n[[roots]]\npath = "{one.roots}"\n'
            f'[prices]\n"*" = {price}\n'
        )
        times = []
        model.during = lambda _plan, _round: times.append(time.time())
        agent.turn([printing(one, "the first turn")])
        first = json.loads(ours(agent, "sessions", agent.session, "--json"))["costs"]
        ceiling = 5 * first["cost_dollars"] / first["calls"]
        script = json.dumps(["sh", "-c", f"cat >> {said}; echo >> {said}"])
        config.write_text(
            f"{config.read_text()}[signals]\non_signal = {script}\nmax_turn_cost_usd = {ceiling}\n"
        )
        start([sys.executable, "-m", "brainsurgeon", "run"], agent.environment, "daemon.log")
        time.sleep(5)
        times.clear()
        loop = shell(one, "sleep 2; false")
        agent.turn(*[[loop] for _ in range(9)])
        wait("the command has run", lambda: said.exists() and said.read_text().count("\n") > 1)
        time.sleep(12)
        events = json.loads(ours(agent, "history", "--events", "--kind", "signal", "--json"))[
            "events"
        ]

    assert first["calls"] > 1
    told = sorted(json.loads(line)["event_id"] for line in said.read_text().splitlines())
    assert told == sorted(event["event_id"] for event in events)
    noticed = {event["facts"]["signal"]: event for event in events}
    assert len(events) == len(noticed) == 2
    assert noticed["cost_ceiling"]["facts"]["cost_dollars"] >= ceiling
    # The answer with the fifth call was asked for at the fifth time; the cost of the sixth, which
    # has a longer prompt than those of the first turn, is surely above the ceiling.
    for name, request in (("repeated_tool_call", 5), ("cost_ceiling", 6)):
        at = subprocess.run(
            ["date", "-d", noticed[name]["at"], "+%s"], capture_output=True, check=True, text=True
        ).stdout  # fmt: skip
        assert float(at) - times[request - 1] < 10, name
