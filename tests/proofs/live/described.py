"""Drivers of real agents without code of their own here: one process for each turn."""

import json
import os
import subprocess
import sys
from pathlib import Path

from proofs.agent_packages import KIMI_CODE, QWEN_CODE, node_binary, package


class Described:
    """An agent with one session, against a scripted model on loopback."""

    def __init__(self, base, model):
        self.base, self.model = base, model
        self.home, self.workspace = base / "agent-home", base / "workspace"
        self.home.mkdir()
        self.workspace.mkdir()
        self.url = f"http://127.0.0.1:{model.port}/v1"
        self.environment = {
            "HOME": str(self.home), "LANG": os.environ["LANG"], "CI": "1", "NO_COLOR": "1",
            "PATH": ":".join((
                str(Path(sys.executable).parent), str(Path(node_binary()).parent),
                os.environ["PATH"],
            )),
            "BRAINSURGEON_CONFIG": str(base / "config.toml"),
        }  # fmt: skip
        self.begun = False

    @property
    def path(self):
        (path,) = self.root.glob(self.pattern)
        return path

    def turn(self, *commands, closing="done."):
        """Run commands by the agent in one turn; return the requests of the turn."""
        plan = [[(self.shell, {"command": command, "description": "as asked"})]
                for command in commands]  # fmt: skip
        requests = self.model.next_turn(plan, closing)
        process = subprocess.run(
            self.command("go on", resume=self.begun), env=self.environment, cwd=self.workspace,
            stdin=subprocess.DEVNULL, capture_output=True, timeout=180, check=False,
        )  # fmt: skip
        assert process.returncode == 0, (process.stdout[-900:], process.stderr[-900:])
        assert closing.encode() in process.stdout
        self.begun = True
        return requests


class KimiCode(Described):
    shell, pattern = "Bash", "*/*/agents/main/wire.jsonl"

    def __init__(self, base, model):
        super().__init__(base, model)
        place = self.home / ".kimi-code"
        place.mkdir()
        self.root = place / "sessions"
        provider = {"type": "openai", "base_url": self.url, "api_key": "none"}
        lines = ['default_model = "m"', 'default_permission_mode = "auto"', "telemetry = false",
                 "[providers.p]", *(f"{key} = {json.dumps(value)}"
                                    for key, value in provider.items()),
                 "[models.m]", 'provider = "p"', 'model = "scripted"',
                 "max_context_size = 200000"]  # fmt: skip
        (place / "config.toml").write_text("\n".join(lines))
        self.program = package(KIMI_CODE) / "@moonshot-ai/kimi-code/dist/main.mjs"

    def command(self, prompt, *, resume):
        more = ["--continue"] if resume else []
        return [node_binary(), str(self.program), *more, "-p", prompt]


class QwenCode(Described):
    shell, pattern = "run_shell_command", "*/chats/*.jsonl"

    def __init__(self, base, model):
        super().__init__(base, model)
        self.root = self.home / ".qwen" / "projects"
        directory = package(QWEN_CODE) / "@qwen-code/qwen-code"
        about = json.loads((directory / "package.json").read_text())
        self.program = directory / about["bin"]["qwen"]

    def command(self, prompt, *, resume):
        more = ["--continue"] if resume else []
        return [
            node_binary(), str(self.program), "--yolo", "--auth-type", "openai", "-m", "scripted",
            "--openai-api-key", "none", "--openai-base-url", self.url, *more, "-p", prompt,
        ]  # fmt: skip
