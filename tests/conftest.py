"""What every test stands on: a home of its own, a world of sessions, and a guard."""

import itertools
import json
import os
import pwd
import shutil
import sys
import time
from pathlib import Path

import pytest

from brainsurgeon import config
from brainsurgeon.operations.restore import restore
from brainsurgeon.operations.restore_all import restore_all
from brainsurgeon.operations.scan import scan
from brainsurgeon.sessions import settling
from brainsurgeon.store import open_store
from workers.puppet import Puppet

SAMPLES = Path(__file__).parent / "samples"
LONG_AGO = 3 * 86_400

_REAL_HOME = pwd.getpwuid(os.getuid()).pw_dir
_FORBIDDEN = tuple(
    os.path.join(_REAL_HOME, place)
    for place in (
        ".openclaw", ".clawdbot", ".pi", ".claude", ".codex",
        ".local/state/brainsurgeon", ".config/brainsurgeon",
    )
)  # fmt: skip


ALLOWED_SKIPS = Path(__file__).parent / "allowed_skips.txt"


def pytest_addoption(parser):
    """Let the gate demand that nothing is skipped but for a reason that is committed."""
    parser.addoption("--strict-skips", action="store_true", help="fail on skips not allowed")


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session):
    """Fail, with `--strict-skips`, where a test was skipped for a reason that is not listed."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if not session.config.getoption("--strict-skips") or reporter is None:
        return
    allowed = [line for line in ALLOWED_SKIPS.read_text().splitlines() if line.strip()]
    for report in reporter.stats.get("skipped", ()):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        known = any(words in reason for words in allowed)
        reporter.write_line(f"skipped: {report.nodeid}: {reason}")
        if not known:
            reporter.write_line(f"not allowed to be skipped: {report.nodeid}", red=True)
            session.exitstatus = pytest.ExitCode.TESTS_FAILED


class TouchedTheRealHomeError(AssertionError):
    """A test reached into the home of whoever runs it instead of its own."""


def _guard(event, arguments):
    if event in ("open", "os.mkdir", "os.listdir", "os.scandir") and arguments:
        path = arguments[0]
        if isinstance(path, bytes):
            path = os.fsdecode(path)
        if isinstance(path, str) and path.startswith(_FORBIDDEN):
            raise TouchedTheRealHomeError(path)


sys.addaudithook(_guard)


@pytest.fixture(autouse=True)
def own_home(tmp_path, monkeypatch):
    """Give each test a home of its own and an environment without settings of ours."""
    for name in list(os.environ):
        if name.startswith(("BRAINSURGEON_", "OPENCLAW_", "XDG_")):
            monkeypatch.delenv(name)
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    return home


@pytest.fixture(autouse=True)
def short_look_back(monkeypatch):
    """Look at the old file for the last time after 20 ms: in-process tests make many rewrites."""
    monkeypatch.setattr(settling, "LOOK_BACK", 0.02)


class World:
    """A root with sessions, a store, and the verbs that act on them."""

    def __init__(self, base):
        self.base = base
        self.root = base / "agents"
        self.state = base / "state"
        self.directory = self.root / "main" / "sessions"
        self.directory.mkdir(parents=True)
        self.clock = time.time
        self._stores = []

    def settings(self, **keys):
        """Give settings for this world: no quiet time unless asked for."""
        table = {
            "roots": [{"path": str(self.root)}],
            "state_dir": str(self.state),
            "quiet_seconds": 0,
            "min_reclaim": 0,
            **keys,
        }
        return config.Settings.model_validate(table)

    def config_file(self, **keys):
        """Write a configuration file for this world and give its path."""
        lines = {
            "state_dir": str(self.state), "quiet_seconds": 0, "min_reclaim": 0, **keys,
        }  # fmt: skip
        text = "".join(f"{key} = {json.dumps(value)}\n" for key, value in lines.items())
        path = self.base / "config.toml"
        path.write_text(f'{text}[[roots]]\npath = "{self.root}"\n')
        return path

    def copy(self, *parts, name=None, age=LONG_AGO):
        """Copy a sample into the sessions directory, last changed `age` seconds ago."""
        source = SAMPLES.joinpath(*parts)
        return self.put(name or source.name, source.read_bytes(), age=age)

    def put(self, name, data, age=LONG_AGO):
        """Write a session file, last changed `age` seconds ago."""
        path = self.directory / name
        path.write_bytes(data)
        moment = time.time_ns() - int(age * 1e9)
        os.utime(path, ns=(moment, moment))
        return path

    @property
    def store(self):
        """The store of this world, opened for writing once."""
        if not self._stores:
            self._stores.append(open_store(str(self.state)))
        return self._stores[0]

    def scan(self, dry_run=False, only=(), **keys):
        """Do one pass."""
        return scan(self.settings(**keys), self.store, clock=self.clock, dry_run=dry_run, only=only)

    def restore(self, entry, session=None, keys=(), pristine=False, wait=False, **settings):
        """Put one entry back."""
        return restore(
            self.settings(**settings), self.store, entry, clock=self.clock, session=session,
            keys=keys, pristine=pristine, wait=wait,
        )  # fmt: skip

    def restore_all(self, session=None, pristine=False, **settings):
        """Put everything back."""
        return restore_all(
            self.settings(**settings), self.store, clock=self.clock, session=session,
            pristine=pristine,
        )  # fmt: skip

    def leftovers(self):
        """Name everything of ours that stands below the root."""
        return sorted(path.name for path in self.root.rglob(".brainsurgeon*"))

    def close(self):
        """Close what was opened."""
        while self._stores:
            self._stores.pop().close()


@pytest.fixture
def world(tmp_path):
    """Give an empty world."""
    one = World(tmp_path)
    yield one
    one.close()


class Conversation:
    """Builds a session line by line in the shape that OpenClaw 2026.7.35 writes."""

    def __init__(self, session="11111111-0000-4000-8000-000000000001", **header):
        self._ids = itertools.count(1)
        self.lines = [
            {"type": "session", "version": 3, "id": session,
             "timestamp": "2026-11-01T10:00:00.000Z", "cwd": "/w", **header}
        ]  # fmt: skip
        self.last = None

    def entry(self, kind="message", ident=None, **fields):
        """Add an entry on the branch and give its id."""
        ident = ident or f"{next(self._ids):08x}"
        self.lines.append({
            "type": kind, "id": ident, "parentId": self.last,
            "timestamp": "2026-11-01T10:00:01.000Z", **fields,
        })  # fmt: skip
        self.last = ident
        return ident

    def user(self, text="go on", **fields):
        """Add a user message."""
        return self.entry(message={"role": "user", "content": text, "timestamp": 1}, **fields)

    def call(self, name="exec", arguments=None, call="call_1", **fields):
        """Add an assistant message that calls a tool."""
        block = {"type": "toolCall", "id": call, "name": name,
                 "arguments": arguments or {"command": "ls"}}  # fmt: skip
        return self.assistant([block], stop="toolUse", **fields)

    def result(self, text, tool="exec", call="call_1", details=None, **fields):
        """Add a tool result."""
        message = {"role": "toolResult", "toolCallId": call, "toolName": tool,
                   "content": [{"type": "text", "text": text}], "isError": False}  # fmt: skip
        if details is not None:
            message["details"] = details
        return self.entry(message=message, **fields)

    def assistant(self, content="done.", stop="stop", api="openai-completions", **fields):
        """Add an assistant message."""
        if isinstance(content, str):
            content = [{"type": "text", "text": content}]
        message = {"role": "assistant", "content": content, "api": api, "stopReason": stop}
        return self.entry(message=message, **fields)

    def turn(self, text="x" * 2000, tool="exec"):
        """Add a whole turn: question, call, result, answer; give the id of the result."""
        self.user()
        self.call(tool)
        ident = self.result(text, tool)
        self.assistant()
        return ident

    def bytes(self):
        """Give the file, as JSON.stringify would write it."""
        return b"".join(dump(line) for line in self.lines)


def dump(line):
    """Write one line compactly, with its newline."""
    return json.dumps(line, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"


@pytest.fixture
def conversation():
    """Give an empty conversation."""
    return Conversation()


@pytest.fixture
def samples():
    """Give the directory of the sample sessions."""
    return SAMPLES


def copy_tree(source, target):
    """Copy a directory of samples with times long ago."""
    shutil.copytree(source, target, dirs_exist_ok=True)
    moment = time.time_ns() - LONG_AGO * 10**9
    for path in Path(target).rglob("*.jsonl"):
        os.utime(path, ns=(moment, moment))


@pytest.fixture
def puppet():
    """Give another process."""
    one = Puppet()
    yield one
    one.kill()


@pytest.fixture
def second_puppet():
    """Give one more process."""
    one = Puppet()
    yield one
    one.kill()
