"""A root of sessions with a store, and helpers that write, change and read its files."""

import itertools
import json
import os
import random
import shutil
import sqlite3
import time
from contextlib import closing, contextmanager
from pathlib import Path

from brainsurgeon import config
from brainsurgeon.operations.restore import How, note_answer, restore, restore_all, rollback
from brainsurgeon.operations.scan import Chosen, scan
from brainsurgeon.operations.sessions import context
from brainsurgeon.operations.set_extractable import set_extractable
from brainsurgeon.render.formatting import document
from brainsurgeon.render.sessions import restored_json
from brainsurgeon.store import open_store, open_to_read

TESTS = Path(__file__).parent.parent
TOP = TESTS.parent
SAMPLES = TESTS / "samples"
LONG_AGO = 3 * 86_400
# When the newest of the samples was written (seconds since 1970).
WRITTEN = 1_795_275_520.0
# A day after the samples and after every file that these tests write, whenever they run.
LATER = float(int(max(WRITTEN, time.time()))) + 86_400


class World:
    """A root of sessions, a store, and the operations on them."""

    def __init__(self, base):
        self.base = base
        self.root = base / "agents"
        self.state = base / "state"
        self.directory = self.root / "main" / "sessions"
        self.directory.mkdir(parents=True)
        self.clock = time.time
        self.kept = None  # what scans have read, as a daemon keeps it
        self._stores = []

    def settings(self, **keys):
        """Return settings for this world; the quiet time is 0 by default."""
        table = {
            "roots": [{"path": str(self.root)}],
            "state_dir": str(self.state),
            "quiet_seconds": 0,
            "min_reclaim": 0,
            **keys,
        }
        return config.Settings.model_validate(table)

    def config_file(self, **keys):
        lines = {
            "state_dir": str(self.state), "quiet_seconds": 0, "min_reclaim": 0, **keys,
        }  # fmt: skip
        text = "".join(f"{key} = {json.dumps(value)}\n" for key, value in lines.items())
        path = self.base / "config.toml"
        path.write_text(f'{text}[[roots]]\npath = "{self.root}"\n')
        return path

    def copy(self, *parts, name=None):
        source = SAMPLES.joinpath(*parts)
        return self.put(name or source.name, source.read_bytes())

    def put(self, name, data, age=LONG_AGO):
        path = self.directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        moment = time.time_ns() - int(age * 1e9)
        os.utime(path, ns=(moment, moment))
        return path

    @property
    def no_store(self):
        """The empty store that is read where none exists."""
        return open_to_read(str(self.base / "no state"))

    @property
    def store(self):
        if not self._stores:
            self._stores.append(open_store(str(self.state)))
        return self._stores[0]

    def scan(self, dry_run=False, only=(), named=False, watch=None, **keys):
        return scan(
            self.settings(**keys), self.store, clock=self.clock, dry_run=dry_run,
            only=Chosen(only, named=named), watch=watch, transcripts=self.kept,
        )  # fmt: skip

    def restore(self, entry, session=None, keys=(), pristine=False, wait=False, **settings):
        return restore(
            self.settings(**settings), self.store, entry, clock=self.clock, session=session,
            how=How(keys, pristine=pristine, wait=600.0 * wait),
        )  # fmt: skip

    def restore_all(self, session=None, pristine=False, **settings):
        return restore_all(
            self.settings(**settings), self.store, clock=self.clock, session=session,
            pristine=pristine,
        )  # fmt: skip

    def rollback(self, number, sessions=(), **settings):
        return rollback(
            self.settings(**settings), self.store, number, clock=self.clock, sessions=sessions,
        )  # fmt: skip

    def leftovers(self):
        return sorted(path.name for path in self.root.rglob(".brainsurgeon*"))

    def close(self):
        while self._stores:
            self._stores.pop().close()


class Conversation:
    """Builds a session line by line in the format that OpenClaw 2026.7.35 writes."""

    def __init__(self, session="11111111-0000-4000-8000-000000000001", **header):
        self._ids = itertools.count(1)
        self.lines = [
            {"type": "session", "version": 3, "id": session,
             "timestamp": "2026-11-01T10:00:00.000Z", "cwd": "/w", **header}
        ]  # fmt: skip
        self.last = None

    def entry(self, kind="message", ident=None, **fields):
        ident = ident or f"{next(self._ids):08x}"
        self.lines.append({
            "type": kind, "id": ident, "parentId": self.last,
            "timestamp": "2026-11-01T10:00:01.000Z", **fields,
        })  # fmt: skip
        self.last = ident
        return ident

    def user(self, text="go on", **fields):
        return self.entry(message={"role": "user", "content": text, "timestamp": 1}, **fields)

    def call(self, name="exec", arguments=None, call="call_1", **fields):
        block = {"type": "toolCall", "id": call, "name": name,
                 "arguments": arguments or {"command": "ls"}}  # fmt: skip
        return self.assistant([block], stop="toolUse", **fields)

    def result(self, text, tool="exec", call="call_1", details=None, **fields):
        message = {"role": "toolResult", "toolCallId": call, "toolName": tool,
                   "content": [{"type": "text", "text": text}], "isError": False}  # fmt: skip
        if details is not None:
            message["details"] = details
        return self.entry(message=message, **fields)

    def assistant(self, content="done.", stop="stop", api="openai-completions", **fields):
        if isinstance(content, str):
            content = [{"type": "text", "text": content}]
        message = {"role": "assistant", "content": content, "api": api, "stopReason": stop}
        return self.entry(message=message, **fields)

    def turn(
        self, text="x" * 2000, tool="exec", *, prompt="go on", arguments=None, call="call_1", **more
    ):
        """Add a prompt, a call, its result with `more`, and an answer; return the result's id."""
        self.user(prompt)
        self.call(tool, arguments, call)
        ident = self.result(text, tool, call, **more)
        self.assistant()
        return ident

    def bytes(self):
        return b"".join(dump(line) for line in self.lines)


def dump(line):
    return json.dumps(line, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"


def copy_tree(source, target):
    shutil.copytree(source, target, dirs_exist_ok=True)
    moment = time.time_ns() - LONG_AGO * 10**9
    for path in Path(target).rglob("*.jsonl"):
        os.utime(path, ns=(moment, moment))


NOBODY = 65534


class Clock:
    """A clock that stands still until it is moved."""

    def __init__(self, now=None):
        self.now = time.time() if now is None else now

    def __call__(self):
        return self.now


def file_states(directory, *, directories=False):
    """Return the status of every file below a directory, without reading any."""
    return {
        path: (seen.st_ino, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns, seen.st_mode)
        for path in sorted(directory.rglob("*"))
        if (directories or not path.is_dir()) and (seen := path.lstat())
    }


def value_at(line, *steps):
    value = json.loads(line)
    for step in steps:
        value = value[step]
    return value


def entry_text(path, entry_id):
    for line in path.read_bytes().split(b"\n"):
        if line and json.loads(line).get("id") == entry_id:
            return value_at(line, "message", "content", 0, "text")
    raise AssertionError(f"{entry_id} is not in {path}")


def set_mtime(path, moment):
    os.utime(path, (int(moment), int(moment)))
    return int(moment)


def append(path, entries):
    with open(path, "ab") as file:
        file.write(b"".join(map(dump, entries)))


@contextmanager
def appending(path, conversation):
    """Append to a session what is added to its conversation meanwhile."""
    before = len(conversation.lines)
    yield
    append(path, conversation.lines[before:])


def pin(world, entry, value, session=None):
    return set_extractable(
        world.settings(), world.store, entry, value, clock=world.clock, session=session
    )


def read_entry(path, ident):
    lines = [json.loads(line) for line in path.read_bytes().splitlines()]
    return next(line for line in lines if line.get("id") == ident)


def raw_line(data, ident):
    return next(line for line in data.split(b"\n") if f'"id":"{ident}"'.encode() in line)


def open_turn(path, conversation, clock):
    conversation.user("and now?")
    append(path, conversation.lines[-1:])
    clock.now = int(time.time()) + 1


def close_turn(path, conversation, clock):
    conversation.assistant("that is all.")
    append(path, conversation.lines[-1:])
    clock.now += 2


def kept_reasons(world):
    """Count the values of the session s that stay, by reason."""
    session_context = context(world.settings(), world.store, "main/s", world.clock())
    counts = {}
    for part in session_context.plan.kept:
        counts[part.reason] = counts.get(part.reason, 0) + part.values
    return counts


def sql(world, *statement):
    with closing(sqlite3.connect(world.state / "store.db")) as database, database:
        return database.execute(*statement).fetchall()


def open_rewrites(world):
    """Return the paths of the rewrites that the journal holds open."""
    return [rewrite.path for rewrite in world.store.journal.open_rewrites()]


def note_answered(world, answer):
    """Record the answer of a restore as given to an agent; return its text."""
    text = document(restored_json(answer))
    note_answer(world.store, answer, text)
    return text


def add_two_values(conversation):
    """Add a result whose text and details are both long; return its id."""
    ident = conversation.turn(details={"aggregated": "a" * 3000, "content": "c" * 2500})
    conversation.turn("short")
    return ident


def fork(path, name, *, ending=(), directory=None, parent=None):
    """Copy a session to a new file as pi forks it: another header, the same entries."""
    header, *lines = path.read_bytes().splitlines(keepends=True)
    fresh = {**json.loads(header), "id": name, "parentSession": parent or str(path)}
    copy = (directory or path.parent) / f"{name}.jsonl"
    copy.write_bytes(b"".join([dump(fresh), *lines, *map(dump, ending)]))
    return copy


def put_session(world, conversation, name="s.jsonl"):
    """Write an idle session with one long result; return its path."""
    conversation.turn("x" * 4000)
    return world.put(name, conversation.bytes())


def write_two_turns(world, conversation):
    conversation.turn("x" * 3000)
    conversation.turn("y" * 3000)
    return world.put("one.jsonl", conversation.bytes())


def write_session(path, size):
    """Write an OpenClaw session of about `size` bytes, most of them tool results.

    The name determines the content.
    """
    dice = random.Random(Path(path).name)
    words = [f"{dice.randrange(1 << 40):x}" for _ in range(5000)]
    conversation = Conversation(Path(path).stem)
    written = 0
    with open(path, "wb") as out:
        while written < size:
            length = dice.choice((300, 2_000, 20_000, 40_000))
            text = " ".join(dice.choices(words, k=length // 10)) + "\n\tü"
            conversation.turn(text, dice.choice(("exec", "read")))
            block = conversation.bytes()
            conversation.lines.clear()
            out.write(block)
            written += len(block)
    os.utime(path, (time.time() - 86_400,) * 2)
    return written
