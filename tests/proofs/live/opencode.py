"""Driver of the real opencode: turns of its server, and of `run`, against a scripted model."""

import base64
import json
import os
import random
import socket
import struct
import subprocess
import sys
import urllib.request
import zlib
from contextlib import contextmanager
from pathlib import Path

from building.opencode import connected
from proofs.agent_packages import KILO, OPENCODE, package
from proofs.live.model import Model
from proofs.live.program import lines_of, wait

PATIENCE = 120
THOUGHT = "It is better to think about this first. " * 30


class OpencodeModel(Model):
    """Answers the requests of a turn in their order, whoever makes them, and thinks."""

    def __init__(self):
        super().__init__()
        self.summaries, self.during = [], None
        handler = self._server.RequestHandlerClass
        plain = handler._delta

        def thinking(self, delta, *words, **usage):
            if delta.get("content"):
                plain(self, {"role": "assistant", "reasoning_content": THOUGHT})
            plain(self, delta, *words, **usage)

        handler._delta = thinking

    def answer(self, request):
        if not request.get("tools"):
            self.summaries.append(request)
            return "a few words", []
        self.requests.append(request)
        done = len(self.requests) - 1
        if self.during:
            self.during(done)
        return ("one moment", self.plan[done]) if done < len(self.plan) else (self.closing, [])


class Opencode:
    """One home with a database and one workspace."""

    name, binary = "opencode", (OPENCODE, "opencode-linux-x64/bin/opencode")
    offline = (
        "AUTOUPDATE", "MODELS_FETCH", "LSP_DOWNLOAD", "DEFAULT_PLUGINS",
    )  # fmt: skip

    def __init__(self, base, model, configuration=None):
        self.base, self.model = base, model
        self.home, self.workspace = base / f"{self.name}-home", base / "workspace"
        self.root = self.home / ".local/share" / self.name
        self.config = self.home / ".config" / self.name
        self.path, commands = self.root / f"{self.name}.db", base / "commands"
        for place in (self.config, self.root, self.workspace, commands, base / "tmp"):
            place.mkdir(parents=True)
        subprocess.run(["git", "init", "-q", self.workspace], check=True)
        release, program = self.binary
        (commands / self.name).symlink_to(package(release) / program)
        self.environment = {
            "HOME": str(self.home), "TMPDIR": str(base / "tmp"), "LANG": os.environ["LANG"],
            "PATH": f"{commands}:{Path(sys.executable).parent}:{os.environ['PATH']}",
            "SHELL": "/bin/bash", "NO_COLOR": "1", "NO_PROXY": "127.0.0.1",
            "TERM": "xterm-256color", "DO_NOT_TRACK": "1", "KILO_TELEMETRY_LEVEL": "off",
            "BRAINSURGEON_CONFIG": str(base / "config.toml"),
            **{f"{self.name.upper()}_DISABLE_{what}": "1" for what in self.offline},
        }  # fmt: skip
        self.configure(**(configuration or scripted(model.port)))

    def configure(self, **keys):
        (self.config / f"{self.name}.json").write_text(json.dumps({
            "autoupdate": False, "share": "disabled", "permission": {"*": "allow"}, **keys,
        }))  # fmt: skip

    @contextmanager
    def serving(self):
        """Run a server; yield a function that calls it."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        with subprocess.Popen(
            [self.name, "serve", "--port", str(port), "--hostname", "127.0.0.1"],
            env=self.environment, cwd=self.workspace, stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        ) as server:  # fmt: skip
            wait("the server", lambda: _answers(port))
            try:
                yield Served(self, f"http://127.0.0.1:{port}")
            finally:
                server.kill()

    def run(self, *words, calls=(), closing="done.", code=0):
        """Run a turn in a process of its own; return its requests."""
        requests = self.model.next_turn([[call] for call in calls], closing)
        process = subprocess.run(
            [self.name, *words], env=self.environment, cwd=self.workspace,
            stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE, check=False,
        )  # fmt: skip
        output = process.stdout.decode(errors="replace")
        assert process.returncode == code, (output[-800:], process.stderr.decode()[-800:])
        self.printed = output
        return requests

    def rows(self, table="part", session=None):
        with connected(self.path) as database:
            rows = database.execute(f"SELECT * FROM {table} ORDER BY 1").fetchall()
        return [row for row in rows if session is None or session in row]

    def parts(self, session):
        return [json.loads(row[-1]) for row in self.rows("part", session)]

    def sql(self, statement, *values):
        with connected(self.path) as database:
            return database.execute(statement, values).fetchall()


class Kilo(Opencode):
    """As opencode, with another name."""

    name, binary = "kilo", (KILO, "@kilocode/cli-linux-x64/bin/kilo")


class Served:
    """A server of opencode."""

    def __init__(self, opencode, url):
        self._opencode, self._url = opencode, url

    def __call__(self, method, path, body=None):
        request = urllib.request.Request(
            f"{self._url}{path}?directory={self._opencode.workspace}", method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"content-type": "application/json"},
        )  # fmt: skip
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            text = answer.read()
        return json.loads(text) if text else None

    def begin(self):
        return self("POST", "/session", {})["id"]

    def turn(self, session, *calls, parts=(), closing="done.", prompt="go on"):
        """Run a turn; return its requests."""
        requests = self._opencode.model.next_turn([[call] for call in calls], closing)
        body = {"parts": [{"type": "text", "text": prompt}, *parts], "model": MODEL}
        answer = self("POST", f"/session/{session}/message", body)
        assert not answer["info"].get("error"), answer["info"]
        return requests


MODEL = {"providerID": "loopback", "modelID": "scripted"}


def scripted(port, **keys):
    """Return the configuration of the scripted model."""
    model = {
        "tool_call": True, "attachment": True, "reasoning": True,
        "interleaved": {"field": "reasoning_content"},
        "modalities": {"input": ["text", "image"], "output": ["text"]},
        "limit": {"context": 200000, "output": 8000},
    }  # fmt: skip
    provider = {
        "npm": "@ai-sdk/openai-compatible", "models": {"scripted": model},
        "options": {"baseURL": f"http://127.0.0.1:{port}/v1", "apiKey": "none"},
    }  # fmt: skip
    name = "loopback/scripted"
    return {"model": name, "small_model": name, "provider": {"loopback": provider}, **keys}


def signing(port, name="scripted"):
    """Return the configuration of a model that signs its thinking."""
    thinking = {"thinking": {"type": "enabled", "budgetTokens": 4000}}
    model = {
        "tool_call": True, "reasoning": True, "options": thinking,
        "limit": {"context": 200000, "output": 8000},
    }  # fmt: skip
    provider = {
        "npm": "@ai-sdk/anthropic", "models": {name: model},
        "options": {"baseURL": f"http://127.0.0.1:{port}/v1", "apiKey": "none"},
    }  # fmt: skip
    name = f"loopback/{name}"
    return {"model": name, "small_model": name, "provider": {"loopback": provider}}


def printing(tag, lines=80):
    return "bash", {"command": lines_of(tag, lines), "description": "as asked"}


def reading(path):
    return "read", {"filePath": str(path)}


def picture(size=80, seed=1):
    """Return a PNG that cannot be compressed."""
    noise = random.Random(seed)
    rows = b"".join(b"\0" + noise.randbytes(3 * size) for _ in range(size))
    header = struct.pack(">IIBBBBB", size, size, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks
    )


def attached(png):
    data = base64.b64encode(png).decode()
    return {
        "type": "file", "mime": "image/png", "filename": "x.png",
        "url": f"data:image/png;base64,{data}",
    }  # fmt: skip


def _answers(port):
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/session/status", timeout=5):
            return True
    except OSError:
        return False
