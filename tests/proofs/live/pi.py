"""Driver of the real pi: turns against a scripted model on loopback."""

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path

from proofs.agent_packages import PI_LATEST, node_binary, package

EXTENSION = """
export default function (pi) {
  const command = (name, run) => pi.registerCommand(name, {
    description: "for the test",
    handler: async (argument, context) => { await run(argument.trim(), context); },
  });
  const messages = (context, role) => context.sessionManager.getBranch()
    .filter((entry) => entry.type === "message" && entry.message.role === role);
  command("back-to", async (argument, context) => {
    const target = messages(context, "user").at(Number(argument)).id;
    await context.navigateTree(target, { summarize: false });
  });
  command("edit-away", async (argument, context) => {
    const target = messages(context, "toolResult").at(Number(argument)).id;
    context.sessionManager.appendContextEdit(target, { content: "taken out by its user" });
  });
}
"""


class Pi:
    """One pi with one session; a process does one turn or a whole conversation.

    `more` is what the user has configured about the model.
    """

    def __init__(self, base, model, name="claude-fable-5-1", api="anthropic-messages", **more):
        self.base, self.model, self.name = base, model, name
        self.home = base / "pi-home"
        self.place = self.home / ".pi" / "agent"
        self.sessions = self.place / "sessions"
        self.workspace = base / "workspace"
        self.program = [
            node_binary(),
            str(package(PI_LATEST) / "@earendil-works/pi-coding-agent/dist/bundle/cli.js"),
        ]
        self.turns = 0
        self._configure(api, more)

    def _configure(self, api, more):
        agent = self.place
        (agent / "extensions").mkdir(parents=True)
        self.workspace.mkdir()
        (agent / "extensions" / "test.js").write_text(EXTENSION)
        model = {"id": self.name, "name": self.name, "reasoning": True, "input": ["text", "image"],
                 "contextWindow": 2_000_000, "maxTokens": 8192,
                 "cost": {"input": 1, "output": 1, "cacheRead": 1, "cacheWrite": 1},
                 **more}  # fmt: skip
        provider = {"baseUrl": f"http://127.0.0.1:{self.model.port}", "apiKey": "none",
                    "api": api, "models": [model]}  # fmt: skip
        (agent / "models.json").write_text(json.dumps({"providers": {"loopback": provider}}))
        compaction = {"enabled": False, "keepRecentTokens": 1000, "reserveTokens": 16384}
        (agent / "settings.json").write_text(
            json.dumps({"compaction": compaction, "quietStartup": True})
        )
        self.environment = {
            "HOME": str(self.home),
            "PATH": ":".join((
                str(Path(sys.executable).parent), str(Path(self.program[0]).parent),
                os.environ["PATH"],
            )),
            "PI_CODING_AGENT_DIR": str(agent), "PI_OFFLINE": "1", "PI_TELEMETRY": "0",
            "PI_SKIP_VERSION_CHECK": "1", "NO_COLOR": "1", "CI": "1",
            "BRAINSURGEON_CONFIG": str(self.base / "config.toml"),
            "LANG": os.environ["LANG"],
        }  # fmt: skip

    def command(self, *options):
        return [*self.program, "--model", f"loopback/{self.name}:high", *options]

    @property
    def path(self):
        return max(self.sessions.rglob("*.jsonl"), key=lambda path: path.stat().st_mtime_ns)

    def turn(self, *rounds, session=("--session-id", "s1"), more=()):
        number, prompt = self._script(rounds)
        process = subprocess.run(
            self.command("-p", "--mode", "json", *session, *more, prompt), env=self.environment,
            cwd=self.workspace, stdin=subprocess.DEVNULL, capture_output=True, timeout=120,
            check=False,
        )  # fmt: skip
        output = process.stdout.decode(errors="replace")
        assert process.returncode == 0, (
            output[-1500:],
            process.stderr.decode(errors="replace")[-1500:],
        )
        assert f"[{number}]" in output, output[-1500:]
        return self.model.of(number)

    def _script(self, rounds):
        self.turns += 1
        return self.model.script(*rounds)

    @contextlib.contextmanager
    def conversation(self, session=("--session-id", "s1")):
        """Yield one process for several turns; it reads its session only when it starts."""
        process = subprocess.Popen(
            self.command("--mode", "rpc", *session), env=self.environment, cwd=self.workspace,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            yield Conversation(self, process)
            process.stdin.close()
            process.wait(30)
        finally:
            process.kill()
            process.wait()
            process.stdout.close()
            process.stdin.close()


class Conversation:
    """A running pi, controlled by remote procedure calls."""

    def __init__(self, pi, process):
        self._pi, self._process = pi, process

    def ask(self, kind, until="agent_settled", **fields):
        """Send a command, and wait for its answer and the event `until`; return the events."""
        line = json.dumps({"id": "1", "type": kind, **fields})
        self._process.stdin.write(line.encode() + b"\n")
        self._process.stdin.flush()
        events, response = [], None
        for raw in self._process.stdout:
            event = json.loads(raw)
            events.append(event)
            if event.get("type") == "response":
                response = event
                assert event["success"], event
            if response and (until is None or event.get("type") == until):
                return events
        raise AssertionError("pi ended")

    def turn(self, *rounds):
        number, prompt = self._pi._script(rounds)
        events = self.ask("prompt", message=prompt)
        assert f"[{number}]" in json.dumps(events[-6:])
        return self._pi.model.of(number)
