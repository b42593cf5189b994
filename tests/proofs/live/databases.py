"""Driver of the real OpenClaw that keeps its sessions in a database, and checks of it."""

import hashlib
import itertools
import json
import os
import re
import signal
import subprocess
import time
from collections import defaultdict
from contextlib import closing, suppress

from building.claw import event_text, plain_connection
from proofs.live.gateway import OpenClaw
from proofs.live.model import Model
from proofs.live.program import wait
from proofs.live.witness import Watching

PLAN = re.compile(r"#PLAN(\{.*?\})#", re.DOTALL)
PLACEHOLDER = re.compile(r"\[\[extracted-([0-9a-f-]+)\]\]")


class Planned(Model):
    """Reads the plan of a turn from its first message, so that turns may overlap."""

    def __init__(self):
        super().__init__()
        self.requests_of = defaultdict(list)

    def answer(self, request):
        if not request.get("tools"):
            return "what was said before, in a few words", []
        calls = 0
        for message in reversed(request["messages"]):
            if match := PLAN.search(text_said(message)):
                plan = json.loads(match[1])
                self.requests_of[plan["tag"]].append(request)
                if calls < len(plan["calls"]):
                    return "one moment", plan["calls"][calls]
                return f"{plan['tag']} is done", []
            calls += bool(message.get("tool_calls"))
        return "nothing to do", []


class Databases(OpenClaw):
    """A gateway whose agent keeps its sessions in a database."""

    def __init__(self, base, start, model, wanted):
        super().__init__(base, start, model, wanted)
        self.path = self.state / "agents" / "main" / "agent" / "openclaw-agent.sqlite"
        self._numbers = itertools.count(1)
        self.gateway = None

    def open(self):
        self.gateway = super().open()
        return self.gateway

    def end(self, how=signal.SIGTERM):
        """End the gateway with a signal, and kill it after 60 seconds."""
        os.killpg(self.gateway.pid, how)
        with suppress(subprocess.TimeoutExpired):
            self.gateway.wait(60)
        with suppress(ProcessLookupError):
            os.killpg(self.gateway.pid, signal.SIGKILL)
        self.gateway.wait(60)

    def begin(self, session, *calls, local=False):
        """Begin a turn with these calls; return its tag and the process that waits for it."""
        tag = f"turn-{next(self._numbers)}"
        plan = json.dumps({"tag": tag, "calls": calls})
        where = ["--local"] if local else []
        return tag, subprocess.Popen(
            [*self.program, "agent", *where, "--agent", "main", "--session-id", session, "--json",
             "--message", f"please go on #PLAN{plan}#", "--timeout", "900"],
            env=self.environment, cwd=self.base / "workspace", stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace",
        )  # fmt: skip

    def ask(self, session, *calls, local=False):
        start = time.monotonic()
        tag, process = self.begin(session, *calls, local=local)
        output, errors = process.communicate(timeout=960)
        self.seconds.append(time.monotonic() - start)
        assert process.returncode == 0, (output[-2000:], errors[-2000:])
        assert f"{tag} is done" in output, (output[-2000:], errors[-2000:])
        self.turns += 1
        requests = self.model.requests_of[tag]
        assert len(requests) == len(calls) + 1
        return requests

    def call(self, method, **params):
        return json.loads(self.run(
            "gateway", "call", method, "--json", "--params", json.dumps(params),
            "--token", "only-here", "--port", str(self.port), "--timeout", "120000",
        ))  # fmt: skip

    def run(self, *words):
        process = subprocess.run(
            [*self.program, *words], env=self.environment, cwd=self.base / "workspace",
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip
        assert process.returncode == 0, (words, process.stdout[-2000:], process.stderr[-2000:])
        return process.stdout

    def key(self, session):
        query = "SELECT session_key FROM session_windows WHERE session_id = ?"
        return self.sql(query, session)[0][0]

    def idle(self, session):
        (row,) = self.sql(
            "SELECT w.status, (SELECT count(*) FROM session_pending_inputs p"
            " WHERE p.session_id = w.session_id AND p.state = 'queued')"
            " FROM session_windows w WHERE w.session_id = ?", session,
        )  # fmt: skip
        return row[0] != "running" and not row[1]

    def sql(self, statement, *values):
        with closing(plain_connection(self.path)) as agent:
            return agent.execute(statement, values).fetchall()

    def texts(self, session):
        with closing(plain_connection(self.path)) as agent:
            return [text for of, _, text in events(agent) if of == session]

    def placeholders(self, session):
        return [
            ident for text in self.texts(session) for ident in PLACEHOLDER.findall(text.decode())
        ]

    def sound(self):
        """Return the problems that SQLite's own checks find in the database."""
        problems = [row for row in self.sql("PRAGMA integrity_check") if row != ("ok",)]
        problems += self.sql("PRAGMA foreign_key_check")
        return problems


def events(agent):
    """Yield session, number and text of every event in the database."""
    columns = [name for (name,) in agent.execute(
        "SELECT name FROM pragma_table_info('transcript_events')")]  # fmt: skip
    packed = "event_zstd, event_utf8_bytes" if "event_zstd" in columns else "NULL, NULL"
    for session, seq, text, zstd, size in agent.execute(
        f"SELECT session_id, seq, event_json, {packed} FROM transcript_events"
        " ORDER BY session_id, seq"
    ).fetchall():
        yield session, seq, event_text((text, zstd, size, None))


class Rows(Watching):
    """Watches all sessions, and keeps each event as OpenClaw first wrote it."""

    every = 0.2

    def __init__(self, claw):
        self.claw, self.first = claw, {}

    def state(self):
        files = (self.claw.path, f"{self.claw.path}-wal")
        return tuple((status.st_size, status.st_mtime_ns) for status in map(os.stat, files))

    def look(self):
        agent = plain_connection(self.claw.path)
        with closing(agent):
            for _, _, text in events(agent):
                ident = json.loads(text).get("id")
                if ident and not PLACEHOLDER.search(text.decode()):
                    self.first.setdefault(ident, hashlib.sha256(text).digest())

    def differing(self):
        with closing(plain_connection(self.claw.path)) as agent:
            return [
                (session, seq) for session, seq, text in events(agent)
                if (ident := json.loads(text).get("id"))
                and self.first.get(ident) != hashlib.sha256(text).digest()
            ]  # fmt: skip


def text_said(message):
    if message["role"] != "user":
        return ""
    content = message["content"]
    return content if isinstance(content, str) else "".join(
        block.get("text", "") for block in content
    )  # fmt: skip


def placeholders(request):
    shown = [message["content"] for message in request["messages"] if message["role"] == "tool"]
    return set(PLACEHOLDER.findall(json.dumps(shown)))


__all__ = ["Databases", "Planned", "Rows", "placeholders", "wait"]
