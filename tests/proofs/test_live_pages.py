"""Live: the pages of pi and Codex, followed word by word with the real programs."""

import json
import os
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest

from building.world import TOP, Conversation
from proofs.live.codex import Codex, outputs
from proofs.live.codex import printing as printing_in_codex
from proofs.live.messages import Messages
from proofs.live.pi import Pi
from proofs.live.responses import Responses

pytestmark = pytest.mark.long(proves=("formats", "agents", "lookup", "operations", "mcp_server"))

PAGES = {name: (TOP / "deploy" / name / "README.md").read_text() for name in ("pi", "codex")}
TITLE = "Prune its sessions"
SKILL = (TOP / "deploy/claude-code/skills/brainsurgeon/SKILL.md").read_text()
PLACEHOLDER = re.compile(r"\[\[extracted-([0-9a-f]{8})\]\]")
LINE = "this is a line of turn {}, which says nothing"
VALUE = "\n".join([LINE.format(0)] * 60)
# Seconds after which a session is idle, by the defaults.
QUIET = 31


class Account:
    """The account of a reader: an agent that was used, and brainsurgeon in `~/.local/bin`."""

    def __init__(self, agent, **programs):
        self.agent, self.home = agent, agent.home
        place = self.home / ".local" / "bin"
        place.mkdir(parents=True)
        (place / "brainsurgeon").symlink_to(Path(sys.executable).parent / "brainsurgeon")
        for name, words in programs.items():
            (place / name).write_text(f'#!/bin/sh\nexec {shlex.join(map(str, words))} "$@"\n')
            (place / name).chmod(0o755)
        for name in ("BRAINSURGEON_CONFIG", "PI_CODING_AGENT_DIR"):
            agent.environment.pop(name, None)
        path = agent.environment["PATH"].replace(str(Path(sys.executable).parent), str(place))
        agent.environment["PATH"] = path

    def types(self, *lines, cwd=TOP):
        process = subprocess.run(
            ["sh", "-e"], input="\n".join(lines), text=True, capture_output=True, cwd=cwd,
            timeout=120, env=self.agent.environment, check=False,
        )  # fmt: skip
        assert process.returncode == 0, (process.stdout, process.stderr)
        return process.stdout

    def roots(self):
        settings = json.loads(self.types("brainsurgeon config --json"))["settings"]
        return next(setting["value"] for setting in settings if setting["key"] == "roots")

    def waits(self):
        time.sleep(max(0, QUIET - (time.time() - self.agent.path.stat().st_mtime)))


def typed(page, title):
    section = re.search(rf"\n## {title}\n(.*?)(\n## |\Z)", PAGES[page], re.DOTALL)[1]
    return re.findall(r"^\$ (.*)$", section, re.MULTILINE)


def printing(number):
    return "bash", {"command": f"yes '{LINE.format(number)}' | head -60"}


def results(pi):
    """Return the text of each result of a session by the id of its entry, in order."""
    lines = [json.loads(line) for line in pi.path.read_bytes().splitlines()]
    return {
        entry["id"]: entry["message"]["content"][0]["text"]
        for entry in lines if entry.get("message", {}).get("role") == "toolResult"
    }  # fmt: skip


def newest_result(request):
    [block] = [
        block for block in request["messages"][-1]["content"] if block["type"] == "tool_result"
    ]
    content = block["content"]
    return content if isinstance(content, str) else content[0]["text"]


def test_commands_of_the_pi_page_work_as_written(tmp_path):
    """The model of pi learns of placeholders, and each command works in its shell.

    A pi that runs on keeps sending its values, as the page says.
    """
    with Messages() as model:
        pi = Pi(tmp_path, model, name="claude-sonnet-4-5")
        account = Account(pi, pi=pi.program)
        for number in range(4):
            pi.turn([printing(number)])
        with pi.conversation() as running:
            running.turn([printing("in memory")])
            account.waits()
            shown = account.types(*typed("pi", "Prune its sessions"))
            extracted = set(PLACEHOLDER.findall(pi.path.read_text()))
            assert len(extracted) == 4
            assert f"pi:{pi.path.parent.name}/" in shown
            assert PLACEHOLDER.search(json.dumps(running.turn()[0]["messages"])) is None
        lesson = re.search(r"```text\n(.*?)```", PAGES["pi"], re.DOTALL)[1]
        ident = next(iter(results(pi)))
        (pi.place / "AGENTS.md").write_text(lesson.replace("4f9d2a11", ident))
        lines = re.findall(r"`(brainsurgeon [^`]*)`", (pi.place / "AGENTS.md").read_text())
        named = f'brainsurgeon show {ident} --session "$PI_SESSION_ID"'
        requests = pi.turn(*([("bash", {"command": line})] for line in (named, *lines)))
        assert "Never write a placeholder yourself" in json.dumps(requests[0]["system"])
        assert ident in PLACEHOLDER.findall(json.dumps(requests[0]["messages"]))
        assert len(lines) == 2
        assert all(VALUE in newest_result(request) for request in requests[1:])
        account.waits()
        account.types("brainsurgeon scan --once")
        assert results(pi)[ident].startswith(VALUE)
        _give_pi_the_tool(account, pi, ident)
        assert model.refused == []


def _give_pi_the_tool(account, pi, ident):
    """Add server and skill, and let the model make the calls of the skill."""
    account.types(*typed("pi", "Give it the tool"))
    assert "brainsurgeon: connected, 1 tool" in account.types("pi mcp list")
    [tool] = set(re.findall(r"`(\w*purge_control)`", SKILL))
    calls = ({"action": "get_context"}, {"action": "show", "entry": ident},
             {"action": "restore", "entry": ident})  # fmt: skip
    requests = pi.turn(*([(tool, arguments)] for arguments in calls))
    assert "skills/brainsurgeon/SKILL.md" in json.dumps(requests[0]["system"])
    assert pi.path.stem in json.loads(newest_result(requests[1]))["session"]
    assert list(json.loads(newest_result(requests[2]))["content"].values()) == [f"{VALUE}\n"]
    account.waits()
    account.types("brainsurgeon scan --once")
    texts = results(pi)
    assert texts[ident] == f"{VALUE}\n"
    assert [line.strip() for line in texts.values()].count(f"Restored {ident}.") == 2

    bound = shlex.quote(str(pi.path.parent))
    [line] = [line for line in typed("pi", "Give it the tool") if line.startswith("pi mcp add")]
    account.types(f"{line} --agent {bound}")
    [_, request] = pi.turn([(tool, {"action": "show", "entry": _another(pi, ident)})])
    assert "content" in json.loads(newest_result(request))
    account.types(f"{line} --agent elsewhere")
    [_, request] = pi.turn([(tool, {"action": "show", "entry": _another(pi, ident)})])
    assert newest_result(request).startswith("Nothing is extracted under that name here")


def _another(pi, ident):
    return next(
        placeholder
        for placeholder in PLACEHOLDER.findall(pi.path.read_text())
        if placeholder != ident
    )


@pytest.mark.parametrize("agent", PAGES)
def test_init_has_the_same_effect_as_the_lines_of_a_page(tmp_path, agent):
    """`init --yes` sets the roots used without it, `init --mcp` adds the same tool."""
    driver, speaker = (Pi, Messages) if agent == "pi" else (Codex, Responses)
    with speaker() as model:
        driven = driver(tmp_path, model)
        account = Account(driven, **({"codex": [driven.program]} if agent == "codex" else {}))
        driven.turn()
        without = account.roots()
        account.types("brainsurgeon init --yes")
        assert account.roots() == without
        if agent == "codex":
            _add_by_init(account, driven)


def _add_by_init(account, driven):
    skill = driven.config / "skills/brainsurgeon/SKILL.md"
    account.types(*typed("codex", "Give it the tool"))
    by_hand = (driven.config / "config.toml").read_text(), skill.read_text()
    account.types("codex mcp remove brainsurgeon", f"rm -r {skill.parent}")
    account.types("brainsurgeon init --yes --mcp codex")
    assert ((driven.config / "config.toml").read_text(), skill.read_text()) == by_hand


def test_commands_of_the_codex_page_work_as_written(tmp_path):
    """A Codex session is pruned, and its model reads another agent's value."""
    with Responses() as model:
        codex = Codex(tmp_path, model)
        account = Account(codex, codex=[codex.program])
        other = Conversation()
        other.turn()
        other.turn()
        place = codex.home / ".openclaw/agents/main/sessions/s.jsonl"
        place.parent.mkdir(parents=True)
        place.write_bytes(other.bytes())
        os.utime(place, (10**9, 10**9))
        account.types("brainsurgeon scan --once")
        for number in range(4):
            codex.turn(printing_in_codex(f"turn {number}"))
        account.waits()
        before = codex.path.read_bytes()
        shown = account.types("brainsurgeon init --yes", *typed("codex", TITLE))
        assert codex.path.stem in shown
        weighed = account.types(f"brainsurgeon context {codex.path.stem[-36:]}")
        assert "recorded by the agent" in weighed
        pruned = codex.path.read_bytes()
        assert b"[[extracted-" in pruned
        assert len(pruned) == len(before)
        account.types(*typed("codex", "Give it the tool"))
        _ask_from_codex(codex, PLACEHOLDER.findall(place.read_text())[0])


def _ask_from_codex(codex, ident):
    """Require the server as the page says, and show a value by a call of the model."""
    with open(codex.config / "config.toml", "a") as text:
        text.write("required = true\n")
    requests = codex.turn(("mcp__brainsurgeon:purge_control", {"action": "show", "entry": ident}))
    listed = json.dumps(requests[0]["tools"])
    assert '"mcp__brainsurgeon"' in listed
    assert '"purge_control"' in listed
    assert "Values behind" not in json.dumps(requests[0])
    assert "brainsurgeon/SKILL.md" in json.dumps(requests[0])
    assert "main/s" in outputs(requests[1])[-1]
    assert '\\"content\\"' in outputs(requests[1])[-1]
