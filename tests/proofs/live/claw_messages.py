"""The real OpenClaw's gateway on a model that speaks Anthropic's Messages API."""

import json
import subprocess

from proofs.live.gateway import OpenClaw


class OnMessages(OpenClaw):
    """A gateway with one session on such a model: its `name`, and its `window` in tokens."""

    name, window = "claude-sonnet-4-5", 1_000_000

    def _configure(self):
        super()._configure()
        path = self.state / "openclaw.json"
        said = json.loads(path.read_text())
        model = {"id": self.name, "name": self.name, "reasoning": True, "input": ["text"],
                 "contextWindow": self.window, "maxTokens": 16384}  # fmt: skip
        said["models"]["providers"]["loopback"] = {
            "baseUrl": f"http://127.0.0.1:{self.model.port}", "apiKey": "none",
            "api": "anthropic-messages", "models": [model],
        }  # fmt: skip
        said["agents"]["defaults"]["model"]["primary"] = f"loopback/{self.name}"
        path.write_text(json.dumps(said))

    def turn(self, *plan):
        self.turns += 1
        number, prompt = self.model.script(*plan)
        done = subprocess.run(
            [*self.program, "agent", "--agent", "main", "--session-id", self.session, "--json",
             "--thinking", "high", "--message", prompt, "--timeout", "240"],
            env=self.environment, cwd=self.base / "workspace", stdin=subprocess.DEVNULL,
            capture_output=True, timeout=300, check=False,
        )  # fmt: skip
        said = done.stdout.decode(errors="replace")
        assert done.returncode == 0, (said[-2000:], done.stderr.decode(errors="replace")[-2000:])
        assert f"[{number}]" in said, said[-2000:]
        return self.model.of(number)
