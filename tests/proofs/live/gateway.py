"""Driver of the real OpenClaw's gateway: turns against a scripted model on loopback."""

import json
import os
import socket
import subprocess
import sys
import time
import uuid
from pathlib import Path

from proofs.agent_packages import OPENCLAW, node_binary, package
from proofs.live.program import lines_of, wait


class OpenClaw:
    """A gateway of its own with one session."""

    def __init__(self, base, start, model, wanted=OPENCLAW):
        self.base, self.model, self._start = base, model, start
        self.session = str(uuid.uuid4())
        self.state = base / "claw" / ".openclaw"
        self.path = self.state / "agents" / "main" / "sessions" / f"{self.session}.jsonl"
        self.program = [node_binary(), str(package(wanted) / "openclaw" / "openclaw.mjs")]
        self.turns, self.seconds = 0, []
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self._configure()

    def _configure(self):
        model = {"id": "scripted", "name": "scripted", "reasoning": False, "input": ["text"],
                 "contextWindow": 1_000_000, "maxTokens": 8192}  # fmt: skip
        provider = {"baseUrl": f"http://127.0.0.1:{self.model.port}/v1", "apiKey": "none",
                    "api": "openai-completions", "models": [model]}  # fmt: skip
        workspace = self.base / "workspace"
        workspace.mkdir()
        (self.state / "agents").mkdir(parents=True)
        (self.state / "openclaw.json").write_text(json.dumps({
            "models": {"mode": "replace", "providers": {"loopback": provider}},
            "agents": {"defaults": {
                "model": {"primary": "loopback/scripted"}, "workspace": str(workspace),
                "skipBootstrap": True, "timeoutSeconds": 900, "heartbeat": {"every": "0m"},
            }},
            "tools": {"exec": {"host": "gateway", "security": "full", "ask": "off"}},
            "mcp": {"servers": {"brainsurgeon": {
                "command": sys.executable,
                "args": ["-m", "brainsurgeon", "mcp", "--agent", "main",
                         "--config", str(self.base / "config.toml")],
            }}},
            "gateway": {"mode": "local", "bind": "loopback", "port": self.port,
                        "auth": {"mode": "token", "token": "only-here"}},
        }))  # fmt: skip
        self.environment = {
            "HOME": str(self.base / "claw"),
            "PATH": ":".join(
                (
                    str(Path(sys.executable).parent),
                    str(Path(self.program[0]).parent),
                    os.environ["PATH"],
                )
            ),
            "OPENCLAW_HOME": str(self.base / "claw"),
            "OPENCLAW_STATE_DIR": str(self.state),
            "OPENCLAW_CONFIG_PATH": str(self.state / "openclaw.json"),
            "OPENCLAW_SKIP_CHANNELS": "1",
            "OPENCLAW_NO_RESPAWN": "1",
            "OPENCLAW_NO_AUTO_UPDATE": "1",
            "OPENCLAW_DISABLE_BONJOUR": "1",
            "BRAINSURGEON_CONFIG": str(self.base / "config.toml"),
            "NO_COLOR": "1",
            "CI": "1",
            "LANG": os.environ["LANG"],
        }

    def open(self):
        words = [*self.program, "gateway", "run", "--port", str(self.port), "--bind", "loopback",
                 "--token", "only-here"]  # fmt: skip
        gateway = self._start(words, self.environment, "gateway.log")

        def answers():
            assert gateway.poll() is None, (self.base / "gateway.log").read_text()[-2000:]
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
            except OSError:
                return False
            return True

        wait("the gateway listens", answers)
        return gateway

    def turn(self, *plan):
        """Do one turn through the gateway, check its reply, and return its requests."""
        self.turns += 1
        closing = f"turn {self.turns} is done"
        requests = self.model.next_turn(plan, closing)
        start = time.monotonic()
        process = subprocess.run(
            [*self.program, "agent", "--agent", "main", "--session-id", self.session, "--json",
             "--message", f"please do turn {self.turns}", "--timeout", "900"],
            env=self.environment, cwd=self.base / "workspace", stdin=subprocess.DEVNULL,
            capture_output=True, timeout=960, check=False,
        )  # fmt: skip
        self.seconds.append(time.monotonic() - start)
        output = process.stdout.decode(errors="replace")
        assert process.returncode == 0, (
            output[-2000:],
            process.stderr.decode(errors="replace")[-2000:],
        )
        assert closing in output, output[-2000:]
        assert len(requests) == len(plan) + 1
        return requests

    def results(self):
        entries = [json.loads(line) for line in self.path.read_bytes().splitlines()]
        return [entry for entry in entries if entry.get("message", {}).get("role") == "toolResult"]

    def result(self, ident):
        return next(entry for entry in self.results() if entry["id"] == ident)


def running(command):
    """Return a call that runs a command and waits up to two minutes for it."""
    return "exec", {"command": command, "yieldMs": 120_000}


def printing(tag, lines=80):
    return running(lines_of(tag, lines))
