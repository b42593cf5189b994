"""Driver of the real OpenClaw's gateway on a scripted Messages API."""

import json
import subprocess

from proofs.live.gateway import OpenClaw


class OnMessages(OpenClaw):
    """A gateway with one session on a model of this `name` and `window` (tokens)."""

    name, window = "claude-sonnet-4-5", 1_000_000

    def _configure(self):
        super()._configure()
        path = self.state / "openclaw.json"
        settings = json.loads(path.read_text())
        model = {"id": self.name, "name": self.name, "reasoning": True, "input": ["text"],
                 "contextWindow": self.window, "maxTokens": 16384}  # fmt: skip
        settings["models"]["providers"]["loopback"] = {
            "baseUrl": f"http://127.0.0.1:{self.model.port}", "apiKey": "none",
            "api": "anthropic-messages", "models": [model],
        }  # fmt: skip
        settings["agents"]["defaults"]["model"]["primary"] = f"loopback/{self.name}"
        path.write_text(json.dumps(settings))

    def turn(self, *plan):
        self.turns += 1
        number, prompt = self.model.script(*plan)
        process = subprocess.run(
            [*self.program, "agent", "--agent", "main", "--session-id", self.session, "--json",
             "--thinking", "high", "--message", prompt, "--timeout", "240"],
            env=self.environment, cwd=self.base / "workspace", stdin=subprocess.DEVNULL,
            capture_output=True, timeout=300, check=False,
        )  # fmt: skip
        output = process.stdout.decode(errors="replace")
        assert process.returncode == 0, (
            output[-2000:],
            process.stderr.decode(errors="replace")[-2000:],
        )
        assert f"[{number}]" in output, output[-2000:]
        return self.model.of(number)
