"""Driver of the real Copilot CLI: turns against a scripted model on loopback."""

import json
import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

from proofs.agent_packages import COPILOT, package
from proofs.live import acp
from proofs.live.acp import asking
from proofs.live.model import Model
from proofs.live.program import lines_of

PATIENCE = 120


class CopilotModel(Model):
    """Keeps the requests without tools, too: those of compactions."""

    def __init__(self):
        super().__init__()
        self.compactions = []

    def answer(self, request):
        if not request.get("tools"):
            self.compactions.append(request)
        return super().answer(request)


class Copilot:
    """One home with one session. A turn is a process of its own, or one of a `serving` process."""

    def __init__(self, base, model):
        self.base, self.model = base, model
        self.home, self.workspace = base / "copilot-home", base / "workspace"
        self.config, commands = self.home / ".copilot", base / "commands"
        for place in (self.config, self.workspace, commands, base / "tmp"):
            place.mkdir(parents=True)
        (program,) = (package(COPILOT) / "@github").glob("copilot-*/copilot")
        (commands / "copilot").symlink_to(program)
        self.environment = {
            "HOME": str(self.home), "TMPDIR": str(base / "tmp"), "LANG": os.environ["LANG"],
            "PATH": f"{commands}:{Path(sys.executable).parent}:{os.environ['PATH']}",
            "SHELL": "/bin/bash", "NO_COLOR": "1", "CI": "1",
            "COPILOT_OFFLINE": "true", "COPILOT_ALLOW_ALL": "1", "COPILOT_AUTO_UPDATE": "false",
            "COPILOT_PROVIDER_BASE_URL": f"http://127.0.0.1:{model.port}/v1",
            "COPILOT_PROVIDER_API_KEY": "none", "COPILOT_MODEL": "scripted",
            "COPILOT_PROVIDER_MAX_PROMPT_TOKENS": "200000",
            "BRAINSURGEON_CONFIG": str(base / "config.toml"),
        }  # fmt: skip

    @property
    def sessions(self):
        return self.config / "session-state"

    @property
    def path(self):
        (path,) = self.sessions.glob("*/events.jsonl")
        return path

    @property
    def session(self):
        return self.path.parent.name

    def events(self, kind):
        lines = map(json.loads, self.path.read_bytes().splitlines())
        return [line["data"] for line in lines if line["type"] == kind and "agentId" not in line]

    def command(self, prompt):
        resumed = ["--resume", self.session] if self.sessions.exists() else []
        return [self.base / "commands" / "copilot", *resumed, "-p", prompt, "--allow-all-tools"]

    def begin(self, *calls, closing="done."):
        """Begin a turn in a process of its own; return it, and a list of the turn's requests."""
        requests = self.model.next_turn([[call] for call in calls], closing)
        return self.start("go on"), requests

    def start(self, prompt):
        return subprocess.Popen(
            self.command(prompt), env=self.environment, cwd=self.workspace,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip

    def turn(self, *calls, closing="done."):
        """Run a turn in a process of its own; return its requests."""
        process, requests = self.begin(*calls, closing=closing)
        finish(process, closing)
        return requests

    @contextmanager
    def serving(self):
        """Run a process with the session; yield a function that runs a turn and returns it."""
        begun = self.sessions.exists()
        program = self.base / "commands" / "copilot"
        with asking(self, program, "--acp", "--allow-all-tools") as ask:
            place = {"cwd": str(self.workspace), "mcpServers": []}
            if begun:
                ask("session/load", sessionId=self.session, **place)
            session = self.session if begun else ask("session/new", **place)["sessionId"]

            def turn(*calls, closing="done.", prompt="go on"):
                requests = self.model.next_turn([[call] for call in calls], closing)
                acp.prompt(ask, session, prompt)
                return requests

            yield turn


class ClaudeCopilot(Copilot):
    """A Copilot CLI that asks a scripted Claude, whose thinking is signed."""

    def __init__(self, base, model, name):
        super().__init__(base, model)
        self.environment |= {
            "COPILOT_PROVIDER_TYPE": "anthropic", "COPILOT_MODEL": name,
            "COPILOT_PROVIDER_BASE_URL": f"http://127.0.0.1:{model.port}",
        }  # fmt: skip

    def turn(self, *calls):
        number, prompt = self.model.script(*([call] for call in calls))
        finish(self.start(prompt), f"[{number}]")
        return self.model.of(number)


def finish(process, closing):
    output = process.communicate(timeout=PATIENCE)[0]
    assert process.returncode == 0, output[-1500:]
    assert closing.encode() in output


def printing(tag, lines=80):
    return "bash", {"command": lines_of(tag, lines), "description": "as asked"}
