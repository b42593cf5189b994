"""Driver of the real Gemini CLI: turns against a scripted model on loopback."""

import fcntl
import itertools
import json
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path

from proofs.agent_packages import GEMINI, node, package
from proofs.live.acp import asking, prompt
from proofs.live.program import lines_of
from proofs.live.served import Served, Streaming

PATIENCE = 120
SETTINGS = {
    "security": {"auth": {"selectedType": "gemini-api-key"}, "folderTrust": {"enabled": False}},
    "privacy": {"usageStatisticsEnabled": False}, "telemetry": {"enabled": False},
    # Else a start without `--resume` deletes sessions that were resumed.
    "general": {"enableAutoUpdate": False, "enableAutoUpdateNotification": False,
                "sessionRetention": {"enabled": False}},
    "model": {"name": "gemini-2.5-pro"},
}  # fmt: skip


class GeminiModel(Served):
    """Answers a turn by its plan: tool calls one after the other, then a text."""

    def __init__(self):
        super().__init__(_Handler)
        self.plan, self.closing, self.requests = [], "nothing to do", []
        self.numbers = itertools.count(1)
        self.waiting = threading.Event()  # set: the last answer comes at once
        self.waiting.set()

    def next_turn(self, plan, closing):
        """Script the next turn; return the list that its requests are added to."""
        self.plan, self.closing, self.requests = plan, closing, []
        return self.requests

    def answer(self, request):
        if not request.get("tools"):
            return [{"text": "a summary of a few words"}]
        self.requests.append(request)
        done = 0
        for content in reversed(request["contents"]):
            if content["role"] == "user":
                if not any("functionResponse" in part for part in content["parts"]):
                    break
                done += 1
        if done < len(self.plan):
            name, arguments = self.plan[done]
            ident = f"call_{next(self.numbers):024}"
            call = {"functionCall": {"name": name, "args": arguments, "id": ident}}
            return [{"text": "one moment"}, call]
        self.waiting.wait(PATIENCE)
        return [{"text": self.closing}]


class _Handler(Streaming, BaseHTTPRequestHandler):
    def do_POST(self):
        request = json.loads(self.body())
        if "countTokens" in self.path:
            self.whole({"totalTokens": len(str(request)) // 4})
            return
        parts = self.model.answer(request)
        answer = {
            "candidates": [{"content": {"role": "model", "parts": parts}, "index": 0,
                            "finishReason": "STOP"}],
            "usageMetadata": {"promptTokenCount": len(str(request)) // 4, "totalTokenCount": 9,
                              "candidatesTokenCount": 5},
            "modelVersion": "scripted",
        }  # fmt: skip
        if "stream" not in self.path:
            self.whole(answer)
            return
        self.begin()
        self.write(f"data: {json.dumps(answer)}\r\n\r\n")


class GeminiCli:
    """One home and one project. A turn is a process of its own, or one of a `serving` process."""

    def __init__(self, base, model):
        self.base, self.model = base, model
        self.home, self.workspace, commands = (
            base / "gemini-home",
            base / "workspace",
            base / "commands",
        )
        for place in (self.home / ".gemini", self.workspace, commands, base / "tmp"):
            place.mkdir(parents=True)
        program = package(GEMINI) / "@google/gemini-cli/bundle/gemini.js"
        (commands / "gemini").symlink_to(program)
        self.settings = self.home / ".gemini" / "settings.json"
        self.settings.write_text(json.dumps(SETTINGS))
        self.environment = {
            "HOME": str(self.home), "TMPDIR": str(base / "tmp"), "LANG": os.environ["LANG"],
            "PATH": f"{commands}:{node() / 'bin'}:{Path(sys.executable).parent}:"
            f"{os.environ['PATH']}",
            "SHELL": "/bin/bash", "NO_COLOR": "1", "TERM": "xterm-256color",
            "GEMINI_API_KEY": "none", "GEMINI_CLI_TRUST_WORKSPACE": "true",
            "GOOGLE_GEMINI_BASE_URL": f"http://127.0.0.1:{model.port}",
            "BRAINSURGEON_CONFIG": str(base / "config.toml"),
        }  # fmt: skip

    @property
    def root(self):
        return self.home / ".gemini" / "tmp"

    @property
    def path(self):
        """The largest of its sessions: a resume writes a stub beside it."""
        found = self.root.glob("*/chats/session-*.jsonl")
        return max(found, key=lambda path: path.stat().st_size)

    def start(self, *words, prompt="go on"):
        return subprocess.Popen(
            [self.base / "commands" / "gemini", "--yolo", *words, "-p", prompt],
            env=self.environment, cwd=self.workspace, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip

    def turn(self, *calls, closing="done.", words=None):
        """Run a turn in a process of its own; return its requests."""
        if words is None:
            words = ["--resume", "latest"] if [*self.root.glob("*/chats/*")] else []
        requests = self.model.next_turn(calls, closing)
        process = self.start(*words)
        output = process.communicate(timeout=PATIENCE)[0]
        assert process.returncode == 0, output[-1500:]
        assert closing.encode() in output
        return requests

    @contextmanager
    def serving(self):
        """Run a process with a new session; yield a function that runs a turn in it."""
        with asking(self, self.base / "commands" / "gemini", "--yolo", "--acp") as ask:
            session = ask("session/new", cwd=str(self.workspace), mcpServers=[])["sessionId"]

            def turn(*calls, closing="done."):
                requests = self.model.next_turn(calls, closing)
                prompt(ask, session)
                return requests

            yield turn

    @contextmanager
    def shown(self, *words):
        """Run a process in a terminal; yield its output, and what types a line or a key."""
        child, terminal = pty.fork()
        if child == 0:
            os.chdir(self.workspace)
            program = str(self.base / "commands" / "gemini")
            os.execve(program, [program, "--yolo", *words], self.environment)
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 120, 0, 0))
        shown = bytearray()
        reading = threading.Thread(target=_read, args=[terminal, shown], daemon=True)
        reading.start()

        def types(text):
            if text in (ESCAPE, UP, RETURN):
                os.write(terminal, text.encode())
                return
            for key in text:  # else it is taken for a paste, in which Return is a new line
                os.write(terminal, key.encode())
                time.sleep(0.01)
            time.sleep(0.7)
            os.write(terminal, RETURN.encode())

        try:
            yield shown, types
        finally:
            os.killpg(child, signal.SIGKILL)  # it ignores SIGTERM, and has a child
            os.waitpid(child, 0)
            reading.join(PATIENCE)
            os.close(terminal)


ESCAPE, UP, RETURN = "\x1b", "\x1b[A", "\r"


def _read(terminal, shown):
    """Read what is printed, and answer the questions of the terminal's abilities."""
    try:
        while data := os.read(terminal, 65536):
            shown += data
            if b"\x1b[6n" in data:
                os.write(terminal, b"\x1b[1;1R")
            if b"\x1b[c" in data:
                os.write(terminal, b"\x1b[?62;c")
    except OSError:  # the process ended
        pass


def printing(tag, lines=80):
    return "run_shell_command", {"command": lines_of(tag, lines), "description": "as asked"}
