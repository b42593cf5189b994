"""Live: the plugin in releases of the real Claude Code."""

import json
import os
import re
import sys
import uuid
from pathlib import Path

import pytest

from proofs.agent_packages import CLAUDE_CODES
from proofs.live.claude import ClaudeCode, printing, started_by
from proofs.live.messages import Messages
from proofs.live.program import ours

pytestmark = pytest.mark.long(proves=("cli", "agents", "operations", "mcp_server"))

TOOL = "mcp__plugin_brainsurgeon_brainsurgeon__purge_control"


def hints(claude):
    shown = re.compile(r"context [0-9]+ % full; `/exit`[^(]*\(brainsurgeon\)")
    return shown.findall(claude.path.read_text())


def with_plugin(claude, tmp_path, *lines):
    """Install the plugin, with a configuration that has some more lines."""
    claude.with_server = []
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "claude").write_text(f'#!/bin/sh\nexec {" ".join(claude.words)} "$@"\n')
    (tools / "claude").chmod(0o755)
    (tools / "brainsurgeon").symlink_to(Path(sys.executable).parent / "brainsurgeon")
    claude.environment["PATH"] = f"{tools}:{os.environ['PATH']}"
    config = tmp_path / "config.toml"
    config.write_text(
        f'state_dir = "{tmp_path}/state"\nquiet_seconds = 0\nkeep_recent = 1\n'
        + "".join(f"{line}\n" for line in lines)
        + f'[[roots]]\npath = "{claude.config}/projects"\n'
    )
    ours(claude, "init", "--hooks", "claude", "--yes")
    return config


@pytest.mark.parametrize("release", CLAUDE_CODES)
def test_init_hooks_installs_the_plugin_and_undo_removes_it(tmp_path, release):
    """The first request has the tool, not deferred; a turn above the threshold shows the hint.

    After a scan nothing is shown. `init --undo` removes the tool again.
    """
    with Messages() as model:
        claude = ClaudeCode(tmp_path, started_by(release), model)
        config = with_plugin(claude, tmp_path)
        requests = claude.turn([printing(0)], [printing(1)])

        names = {tool["name"]: tool for tool in requests[0]["tools"]}
        assert TOOL in names
        assert "defer_loading" not in names[TOOL]
        assert "brainsurgeon:brainsurgeon" in json.dumps(requests[0]["messages"])
        load = requests[-1]["messages"]
        config.write_text(f'{config.read_text()}[windows]\n"*" = {len(json.dumps(load)) // 3}\n')
        for _ in range(20):  # on an overloaded machine the hint may be missing
            requests = claude.turn([printing(2)])
            if lines := hints(claude):
                break
        ours(claude, "scan", "--once")
        shown = json.dumps(requests[-1]["messages"])
        requests = claude.turn([printing(3, lines=2)])
        assert len(json.dumps(requests[0]["messages"])) < len(shown)
        print(f"{release}: {lines[-1]}")
        ours(claude, "init", "--undo", "--yes")
        # A session that is resumed is sent the tools that it had.
        requests = claude.turn([printing(4, lines=2)], session=str(uuid.uuid4()))
        assert TOOL not in {tool["name"] for tool in requests[-1]["tools"]}


def test_plugin_stops_prompts_above_the_ceiling(tmp_path):
    """No prompt of a session above its ceiling is sent, until the ceiling is raised.

    A new session is not stopped.
    """
    prices = '[prices."*"]\ninput = 1000\noutput = 1000\ncache_read = 1\ncache_write = 1\n'
    with Messages() as model:
        claude = ClaudeCode(tmp_path, started_by("2.1.332"), model)
        signals = "signals = {stop_prompts = true, max_session_cost_usd = 3}"
        config = with_plugin(claude, tmp_path, signals)
        config.write_text(config.read_text() + prices)
        claude.turn([printing(0)], [printing(1)])
        number, prompt = model.script([printing(2)])
        stopped = claude.runs(prompt, ["--resume", claude.session])

        assert model.of(number) == []
        assert b"this session has cost $" in stopped.stdout + stopped.stderr
        claude.turn([printing(3, lines=2)], session=str(uuid.uuid4()))
        config.write_text(config.read_text().replace("_usd = 3", "_usd = 3000"))
        claude.turn([printing(4, lines=2)])
