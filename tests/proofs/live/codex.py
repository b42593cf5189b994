"""Driver of the real Codex: turns against a scripted model on loopback."""

import itertools
import json
import os
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

from proofs.agent_packages import CODEXES, package
from proofs.live.program import lines_of
from proofs.live.terminal import Terminal

PATIENCE = 120
# What its user has: a provider, and leave to work without asking.
CONFIGURATION = """
model = "scripted"
model_provider = "loopback"
model_context_window = 100000
approval_policy = "never"
sandbox_mode = "danger-full-access"
check_for_update_on_startup = false
[model_providers.loopback]
name = "loopback"
base_url = "http://127.0.0.1:{port}/v1"
env_key = "LOOPBACK_KEY"
wire_api = "responses"
request_max_retries = 0
stream_max_retries = 0
[analytics]
enabled = false
"""


class Codex:
    """One home with one workspace; each turn is a process of its own."""

    def __init__(self, base, model, release="0.169.0"):
        self.base, self.model = base, model
        self.home, self.workspace = base / "codex-home", base / "workspace"
        self.config = self.home / ".codex"
        for place in (self.config, self.workspace, base / "tmp"):
            place.mkdir(parents=True)
        self.use(release)
        (self.config / "config.toml").write_text(CONFIGURATION.format(port=model.port))
        self.environment = {
            "HOME": str(self.home), "TMPDIR": str(base / "tmp"), "LOOPBACK_KEY": "none",
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "NO_COLOR": "1", "CI": "1",
            "SHELL": "/bin/bash",
            "LANG": os.environ["LANG"],
        }  # fmt: skip

    def use(self, release):
        program = package(CODEXES[release]) / "@openai"
        self.program = next(
            path for path in program.glob("codex-*/vendor/*/*/codex") if path.is_file()
        )

    @property
    def path(self):
        return max(self.config.rglob("rollout-*.jsonl"), key=lambda path: path.stat().st_mtime_ns)

    def turn(self, *rounds, words=None):
        """Run a turn of the newest thread, or of the one that `words` name; return its requests."""
        number, prompt = self.model.script(*rounds)
        known = list(self.config.rglob("rollout-*.jsonl"))
        words = words or (["resume", "--last"] if known else [])
        process = self.run("exec", *words, "--json", "--skip-git-repo-check", prompt)
        output = process.stdout.decode(errors="replace")
        assert process.returncode == 0, (
            output[-1500:],
            process.stderr.decode(errors="replace")[-1500:],
        )
        assert f"done. [{number}]" in output, output[-1500:]
        requests = self.model.of(number)
        assert len(requests) == len(rounds) + 1
        return requests

    def run(self, *words):
        return subprocess.run(
            [self.program, *words],
            env=self.environment, cwd=self.workspace, stdin=subprocess.DEVNULL,
            capture_output=True, timeout=PATIENCE, check=False,
        )  # fmt: skip

    @contextmanager
    def serving(self):
        """Run an app server; yield a function that loads a thread by its id."""
        with subprocess.Popen(
            [self.program, "app-server"], env=self.environment, cwd=self.workspace,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        ) as server:  # fmt: skip
            numbers = itertools.count(1)

            def ask(method, **params):
                number = next(numbers)
                said = json.dumps({"id": number, "method": method, "params": params})
                server.stdin.write(said.encode() + b"\n")
                server.stdin.flush()
                answers = map(json.loads, server.stdout)
                answer = next(one for one in answers if one.get("id") == number)
                assert "error" not in answer, answer
                return answer["result"]

            ask("initialize", clientInfo={"name": "proof", "version": "1"})
            yield lambda thread, method="thread/resume", **more: ask(
                method, threadId=thread, **more
            )
            server.terminate()


# What the terminal program asks its terminal, and how a terminal answers.
_ANSWERS = {
    b"\x1b[6n": b"\x1b[1;1R", b"\x1b[c": b"\x1b[?1;2c", b"\x1b[?u": b"\x1b[?0u",
    b"\x1b]10;?": b"\x1b]10;rgb:ffff/ffff/ffff\x1b\\",
    b"\x1b]11;?": b"\x1b]11;rgb:0000/0000/0000\x1b\\",
}  # fmt: skip
_ESCAPE, _LEFT, _ENTER, _CLEAR, _QUIT = "\x1b", "\x1b[D", "\r", "\x15", "\x03"


class CodexTerminal(Terminal):
    """The terminal program with a thread, which a user drives by keys."""

    def __init__(self, codex, thread):
        self._codex = codex
        environment = {**codex.environment, "TERM": "xterm-256color"}
        for name in ("NO_COLOR", "CI"):
            environment.pop(name)
        command = [codex.program, "--no-daemon", "resume", thread]
        super().__init__(command, environment, codex.workspace)
        self._until(lambda: b"scripted" in self.output)
        time.sleep(3)  # it shows the thread

    def read(self, size):
        chunk = super().read(size)
        for question, answer in _ANSWERS.items():
            self.write(answer * chunk.count(question))
        return chunk

    def turn(self, *rounds):
        number, prompt = self._codex.model.script(*rounds)
        self._press(f"\x1b[200~{prompt}\x1b[201~", _ENTER)  # pasted
        self._until(lambda: self._ended(f"done. [{number}]".encode()))
        return self._codex.model.of(number)

    def compact(self):
        before = self._codex.path.read_bytes().count(b'"type":"compacted"')
        self._press("/compact", _ENTER)
        self._until(lambda: self._codex.path.read_bytes().count(b'"type":"compacted"') > before)
        time.sleep(1)

    def rewind(self):
        """Go back to the prompt before the last one."""
        self._press(_ESCAPE, _ESCAPE, "", _LEFT, _LEFT, _ENTER, "", _CLEAR)

    def quit(self):
        self._press(_QUIT, _QUIT)
        self._process.wait(timeout=PATIENCE)

    def _press(self, *keys):
        for key in keys:
            self.write(key.encode())
            time.sleep(1)

    def _ended(self, text):
        lines = self._codex.path.read_bytes().splitlines()
        return text in lines[-1] and b'"task_complete"' in lines[-1]

    def _until(self, happens):
        deadline = time.monotonic() + PATIENCE / 2
        while not happens():
            assert time.monotonic() < deadline, self.output[-2000:]
            time.sleep(0.1)


def printing(tag, lines=80):
    command = lines_of(tag, lines)
    return "exec_command", {"cmd": command, "yield_time_ms": 10000}


def outputs(request):
    """Return the tool results of a request as text, in order."""
    return [
        item["output"] if isinstance(item["output"], str) else json.dumps(item["output"])
        for item in request["input"] if item["type"] == "function_call_output"
    ]  # fmt: skip
