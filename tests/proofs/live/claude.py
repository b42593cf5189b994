"""Driver of the real Claude Code: turns against a scripted model on loopback."""

import contextlib
import json
import os
import pty
import select
import subprocess
import sys
import termios
import time
import uuid
from pathlib import Path

from proofs.agent_packages import CLAUDE_CODES, node_binary, package
from proofs.live.program import lines_of, wait

NEWEST = list(CLAUDE_CODES)[-1]
KEY = "test-key-only-here"
TOOLS = "Bash,Read,Write,Edit,Agent,Task,mcp__brainsurgeon__purge_control,Skill"
PATIENCE = 180
PROMPT = "\N{HEAVY RIGHT-POINTING ANGLE QUOTATION MARK ORNAMENT}".encode()


def started_by(release):
    place = package(CLAUDE_CODES[release]) / "@anthropic-ai"
    if (bundle := place / "claude-code" / "cli.js").exists():
        return [node_binary(), str(bundle)]
    return [str(next(path for path in place.glob("claude-code-*/claude") if path.is_file()))]


class ClaudeCode:
    """One home with one project; `words` start the program, `model` answers it."""

    def __init__(self, base, words, model, named=None):
        self.base, self.words, self.model = base, words, model
        self.home = base / "claude-home"
        self.config = self.home / ".claude"
        self.workspace = base / "workspace"
        for place in (self.config, self.workspace, base / "tmp"):
            place.mkdir(parents=True)
        self.session = str(uuid.uuid4())
        self.turns, self.seconds = 0, []
        self.with_server = ["--mcp-config", str(base / "mcp.json"), "--strict-mcp-config"]
        self._configure(named)

    def _configure(self, named):
        """Skip the dialogs of a first start, allow the tools of the script, choose the model."""
        (self.config / "settings.json").write_text(json.dumps({
            "permissions": {"allow": TOOLS.split(","), "defaultMode": "acceptEdits"},
        }))  # fmt: skip
        (self.config / ".claude.json").write_text(json.dumps({
            "hasCompletedOnboarding": True, "lastOnboardingVersion": "99.0.0",
            "customApiKeyResponses": {"approved": [KEY[-20:]], "rejected": []},
            "projects": {str(self.workspace): {"hasTrustDialogAccepted": True}},
        }))  # fmt: skip
        (self.base / "mcp.json").write_text(json.dumps({"mcpServers": {"brainsurgeon": {
            "command": sys.executable, "args": ["-m", "brainsurgeon", "mcp"],
        }}}))  # fmt: skip
        self.environment = {
            "HOME": str(self.home),
            "CLAUDE_CONFIG_DIR": str(self.config),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "SHELL": "/bin/bash",
            "TMPDIR": str(self.base / "tmp"),
            "CLAUDE_CODE_TMPDIR": str(self.base / "tmp"),
            "ANTHROPIC_API_KEY": KEY,
            "ANTHROPIC_BASE_URL": f"http://127.0.0.1:{self.model.port}",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
            "DISABLE_TELEMETRY": "1",
            "DISABLE_ERROR_REPORTING": "1",
            "BRAINSURGEON_CONFIG": str(self.base / "config.toml"),
            "NO_COLOR": "1",
            **({"ANTHROPIC_MODEL": named} if named else {}),
            "LANG": os.environ["LANG"],
        }

    @property
    def project(self):
        return next((self.config / "projects").iterdir())

    @property
    def path(self):
        return self.project / f"{self.session}.jsonl"

    def file(self, session):
        return self.project / f"{session}.jsonl"

    def turn(self, *rounds, session=None, fork=False):
        """Do one turn in a process of its own; return its requests."""
        number, prompt = self.model.script(*rounds)
        result = self._run(prompt, session or self.session, fork=fork)
        assert self.model.plans[number][1] in str(result.get("result")), result
        return self._asked(number, rounds)

    def fork(self, *rounds):
        number, prompt = self.model.script(*rounds)
        result = self._run(prompt, self.session, fork=True)
        assert self.model.plans[number][1] in str(result.get("result")), result
        return result["session_id"], self._asked(number, rounds)

    def compact(self):
        return self._run("/compact", self.session)

    def _asked(self, number, rounds):
        self.turns += 1
        requests = self.model.of(number)
        assert self.model.refused == [], self.model.refused
        assert len(requests) == len(rounds) + 1
        return requests

    def tries(self, *rounds):
        _, prompt = self.model.script(*rounds)
        return self._end(prompt, self.session).returncode == 0

    def _run(self, prompt, session, *, fork=False):
        process = self._end(prompt, session, fork=fork)
        shown = (process.stdout[-2000:], process.stderr[-2000:], self.model.refused)
        assert process.returncode == 0, shown
        result = json.loads(process.stdout)
        result = result[-1] if isinstance(result, list) else result
        assert not result.get("is_error"), shown
        return result

    def _end(self, prompt, session, *, fork=False):
        """Run the program to its end; return the finished process."""
        return self.runs(prompt, self._session(session, fork=fork))

    def runs(self, prompt, options):
        start = time.monotonic()
        process = subprocess.run(
            [*self.words, "-p", "--output-format", "json", *self._options(), *options],
            env=self.environment, cwd=self.workspace, input=prompt.encode(),
            capture_output=True, timeout=PATIENCE, check=False,
        )  # fmt: skip
        self.seconds.append(time.monotonic() - start)
        return process

    def _options(self):
        return ["--permission-mode", "acceptEdits", "--allowedTools", TOOLS, *self.with_server]

    def _session(self, session, *, fork=False):
        known = list((self.config / "projects").glob(f"*/{session}.jsonl"))
        return [
            *(["--resume", session] if known else ["--session-id", session]),
            *(["--fork-session"] if fork else []),
        ]  # fmt: skip

    @contextlib.contextmanager
    def stay(self):
        """Yield a function that does a turn in one process that runs on."""
        words = [*self.words, "-p", "--input-format", "stream-json", "--output-format",
                 "stream-json", "--verbose", *self._options(),
                 *self._session(self.session)]  # fmt: skip
        with open(self.base / "stream.log", "ab") as log:
            process = subprocess.Popen(
                words, env=self.environment, cwd=self.workspace,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
            )  # fmt: skip
            try:
                yield lambda *rounds: self._say(process, rounds)
                process.stdin.close()
                process.stdout.read()
                assert process.wait(60) == 0
            finally:
                if process.poll() is None:
                    process.kill()
                    process.wait()
                process.stdout.close()

    def _say(self, process, rounds):
        number, prompt = self.model.script(*rounds)
        message = {"role": "user", "content": [{"type": "text", "text": prompt}]}
        process.stdin.write(json.dumps({"type": "user", "message": message}).encode() + b"\n")
        process.stdin.flush()
        for line in process.stdout:
            event = json.loads(line)
            if event.get("type") == "result":
                assert not event.get("is_error"), (event, self.model.refused)
                if self.model.plans[number][1] in str(event.get("result")):
                    return self._asked(number, rounds)
        raise AssertionError(f"the process ended: {self.model.refused}")

    def types(self, keys, *rounds, options=()):
        """Type keys on a terminal one by one, then do one turn; return its requests.

        A dialog that the turn opens is answered with its first choice.
        """
        number, prompt = self.model.script(*rounds)
        terminal, inner = pty.openpty()
        termios.tcsetwinsize(inner, (50, 120))
        process = subprocess.Popen(
            [*self.words, *self._options(), *self._session(self.session), *options],
            cwd=self.workspace,
            env={**self.environment, "TERM": "xterm"}, stdin=inner, stdout=inner, stderr=inner,
            start_new_session=True,
        )  # fmt: skip
        os.close(inner)

        def ended():
            _shown(terminal)
            if len(self.model.of(number)) > len(rounds):
                return True
            os.write(terminal, b"\r")
            return False

        try:
            wait("the prompt is shown", lambda: PROMPT in _shown(terminal))
            dismissed = "\x1b"  # what a new release may ask at its first start
            for key in (dismissed, *keys, prompt, "\r"):
                os.write(terminal, key.encode())
                _shown(terminal)
            wait("the turn ends", ended)
            for key in ("/exit", "\r"):
                os.write(terminal, key.encode())
                _shown(terminal)
            assert process.wait(60) == 0
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
            os.close(terminal)
        return self._asked(number, rounds)


def _shown(terminal):
    """Return the output of a terminal until there is none for 1.5 seconds."""
    shown, end = b"", time.monotonic() + PATIENCE
    with contextlib.suppress(OSError):  # the program has ended
        while select.select([terminal], [], [], 1.5)[0] and time.monotonic() < end:
            shown += os.read(terminal, 1 << 16)
    return shown


def printing(tag, lines=80):
    command = lines_of(tag, lines)
    return "Bash", {"command": command, "description": "print"}


def reading(path):
    return "Read", {"file_path": str(path)}


def writing(path, tag):
    return "Write", {"file_path": str(path), "content": f"{tag} is written down.\n" * 150}


def text_of(content):
    if isinstance(content, str):
        return content
    return "".join(block.get("text", "") for block in content)


def sent(request):
    """Return the texts of all results of a request by the id of the call."""
    return {
        block["tool_use_id"]: text_of(block["content"])
        for message in request["messages"] if isinstance(message["content"], list)
        for block in message["content"] if block["type"] == "tool_result"
    }  # fmt: skip
