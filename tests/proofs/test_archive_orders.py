"""Scans, archives, restores and new turns of an agent, in random order and under changing rules."""

import json
import os
import re
import tempfile
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.files import processes
from brainsurgeon.operations.archive import archive
from brainsurgeon.operations.relieve import relieve
from brainsurgeon.operations.retention import retention
from brainsurgeon.operations.show import cat, show_turn
from brainsurgeon.rewrite.relief import Wanted
from building.claude import ClaudeConversation
from building.turns import active_branch, folding
from building.world import Clock, Conversation, World, append, dump, pin

DAY = 86_400
MARK = b'"[archived turn]'
FIELDS = re.compile(rb',"_(?:restored|extractable)":(?:"[^"]*"|true|false|[0-9]+)')
ARCHIVE = {"enabled": True, "token_threshold": 0}
ANSWERS = {
    "trigger_types": ["thinking", "tool_result", "assistant"], "min_value_length": 100,
    "keep_recent": 1,
}  # fmt: skip
RULES = (
    {},
    ANSWERS,
    {"archive": ARCHIVE | {"keep_turns": 1}},
    ANSWERS | {"archive": ARCHIVE | {"keep_turns": 0}},
    {"budget": {"max_messages": 5}, "archive": ARCHIVE},
    ANSWERS | {"budget": {"max_messages": 3}, "archive": ARCHIVE},
)
STEPS = (
    "scan", "scan", "scan", "nest archives", "archive", "relieve", "turn", "turn", "pin", "pin",
    "unpin", "restore", "restore all", "restore pristine", "roll back", "expire",
)  # fmt: skip
WORDS = "Was it this? It was. "


class Linked:
    """A session of OpenClaw. Answers have thinking, or several texts, in any order."""

    name, ident, form = "s.jsonl", "id", None

    def __init__(self):
        self.talk = Conversation()

    def turn(self, number, length):
        talk, call = self.talk, f"call-{number}"
        talk.user(f"do {number}")
        for step in range(1 + number % 3):
            arguments = {"path": f"/w/{step}", "text": WORDS * length}
            talk.call(call=f"{call}-{step}", arguments=arguments)
            talk.result(f"{WORDS * 20}{call}-{step}", call=f"{call}-{step}")
            talk.lines[-1]["message"]["isError"] = step == 1
        text = {"type": "text", "text": f"Answer {number}. {WORDS * length}"}
        thinking = {"type": "thinking", "thinking": f"Thought {number}. {WORDS * length}"}
        picture = {"type": "image", "data": f"{number}" * 900, "mimeType": "image/png"}
        contents = [text], [thinking, text], [text, {**text, "text": "So it is."}], [text, picture]
        talk.assistant(contents[(number + length) % len(contents)])


class Flat:
    """A session of Claude Code."""

    name, ident, form = "s.jsonl", "uuid", None

    def __init__(self):
        self.talk = ClaudeConversation()

    def turn(self, number, length):
        talk, call = self.talk, f"toolu-{number}"
        talk.user(f"do {number}")
        for step in range(2 + number % 2):
            talk.call(f"{call}-{step}")
            talk.result(f"{WORDS * 30}{call}-{step}", f"{call}-{step}")
        talk.assistant({"type": "text", "text": f"Answer {number}. {WORDS * length}"})


class Generic:
    """A session of an agent without a format of its own."""

    name, ident, form = "g.jsonl", "__id", "generic"

    def __init__(self):
        self.talk = self
        self.lines = []

    def turn(self, number, length):
        content = f"Answer {number}. {WORDS * length}"
        lines = [{"type": "message", "__id": f"u{number}", "role": "user", "content": "go"}]
        for step in range(2):
            names = {"name": "exec", "call_id": f"{number}-{step}"}
            lines += [
                {"type": "tool_call", "__id": f"c{number}-{step}", **names, "arguments": {"a": 1}},
                {"type": "tool_result", "__id": f"r{number}-{step}", **names, "output": WORDS * 30},
            ]
        lines.append({
            "type": "message", "__id": f"a{number}", "role": "assistant",
            "content": [{"type": "text", "text": content}] if number % 2 else content,
        })  # fmt: skip
        self.lines += lines

    def bytes(self):
        return b"".join(map(dump, self.lines))


class Life:
    """A session in a world, its agent, and the operations on it."""

    def __init__(self, place, kind):
        self.world = World(Path(place))
        self.world.clock = Clock(1_795_000_000)
        self.agent, self.turns = kind(), 0
        self.path = self.world.directory / self.agent.name
        self.path.write_bytes(self.agent.talk.bytes())
        self.session = str(self.path)
        self.roots = {"roots": [{"path": str(self.world.root)}]}
        if kind.form:
            self.roots["roots"][0]["format"] = kind.form
        for number in range(4):
            self.turn(number)

    def turn(self, number):
        since = len(self.agent.talk.lines)
        self.agent.turn(self.turns, (0, 8, 60)[number % 3])
        self.turns += 1
        append(self.path, self.agent.talk.lines[since:])

    def settings(self, number):
        keys = {"retention": "1h", "retention_standing": "never"}
        return self.roots | keys | RULES[number % len(RULES)]

    def nest_archives(self, number):
        with folding(2):
            self.world.scan(**self.settings(3 + number % 3))

    def expire(self):
        for _ in range(3):
            self.world.clock.now += DAY
            retention(self.world.settings(**self.settings(0)), self.world.store,
                      clock=self.world.clock)  # fmt: skip

    def step(self, action, number):
        """Carry out one of STEPS; `number` chooses its rules, entry and time."""
        world, keys = self.world, self.settings(number)
        os.utime(self.path, (world.clock.now - 7200,) * 2)
        lines = self.agent.talk.lines
        entries = [line[self.agent.ident] for line in lines if line.get("type") != "session"]
        answers = [
            ident for ident, after in pairwise([*entries, None])
            if after is None or self.is_prompt(after)
        ]  # fmt: skip
        chosen = entries if number % 3 == 0 else answers
        entry = chosen[number % len(chosen)]
        configured = world.settings(**keys)
        actions = {
            "scan": lambda: world.scan(**keys),
            "nest archives": lambda: self.nest_archives(number),
            "archive": lambda: archive(configured, world.store, self.session, clock=world.clock),
            "relieve": lambda: relieve(
                configured, world.store, self.session, Wanted(to=300.0 * (number % 4) + 2),
                clock=world.clock,
            ),
            "turn": lambda: self.turn(number),
            "pin": lambda: pin(world, entry, number % 4 != 0, session=self.session),
            "unpin": lambda: pin(world, entry, None, session=self.session),
            "restore": lambda: world.restore(entry, session=self.session, **self.roots),
            "restore all": lambda: world.restore_all(**self.roots),
            "restore pristine": self.restore_pristine,
            "roll back": lambda: world.rollback(world.store.runs.last, **self.roots),
            "expire": self.expire,
        }  # fmt: skip
        try:
            actions[action]()
        except BrainsurgeonError:
            assert action in ("restore", "roll back", "pin", "unpin")  # nothing to do there
        world.clock.now += 700 * (number % 3)

    def is_prompt(self, ident):
        line = next(line for line in self.agent.talk.lines if line.get(self.agent.ident) == ident)
        message = line.get("message", line)
        return message.get("role") == "user" and isinstance(message.get("content"), str)

    def restore_pristine(self):
        answers = self.world.restore_all(pristine=True, **self.roots)
        assert not any(answer.unfinished or answer.missed for answer in answers)
        assert self.path.read_bytes() == self.agent.talk.bytes()

    def check(self):
        """Check that each value comes back as written, and that archives quote no placeholder."""
        world, written = self.world, self.agent.talk.bytes()
        configured = world.settings(**self.roots)
        whole = b"".join(cat(configured, world.store, self.session, 0.0))
        assert FIELDS.sub(b"", whole) == written
        lines = written.splitlines()
        for raw in self.path.read_bytes().splitlines():
            if MARK in raw:
                assert b"[[extracted-" not in raw.partition(MARK)[2].partition(b'"}')[0]
                ident = json.loads(raw)[self.agent.ident]
                turn = show_turn(configured, world.store, ident, self.session, 0.0)
                last = next(n for n, line in enumerate(lines) if ident.encode() in line[:300])
                shown = [FIELDS.sub(b"", line) for line in turn.lines]
                assert shown == lines[last + 1 - len(shown) : last + 1]
                assert turn.archive.prompt_id.encode() in shown[0]

    def check_branch(self):
        """Check that the active branch is a valid history."""
        entries = active_branch(self.path.read_bytes())
        messages = [entry["message"] for entry in entries if entry["type"] == "message"]
        calls = [block["id"] for message in messages if message["role"] == "assistant"
                 for block in message["content"] if block["type"] == "toolCall"]  # fmt: skip
        results = [message["toolCallId"] for message in messages if "toolCallId" in message]
        assert calls == results
        roles = [message["role"] for message in messages if "toolCallId" not in message]
        assert ("user", "user") not in list(pairwise(roles))


def live(kind, steps):
    with tempfile.TemporaryDirectory() as place, pytest.MonkeyPatch.context() as patch:
        life = Life(place, kind)
        patch.setattr(processes, "boot_clock", lambda: life.world.clock.now)
        try:
            for action, number in steps:
                life.step(action, number)
                life.check()
                if kind is Linked:
                    life.check_branch()
            life.step("restore pristine", 0)
        finally:
            life.world.close()


def any_steps(most):
    return st.lists(
        st.tuples(st.sampled_from(STEPS), st.integers(0, 35)), min_size=4, max_size=most
    )


@settings(max_examples=25, derandomize=True)
@given(st.sampled_from((Linked, Linked, Flat, Generic)), any_steps(10))
def test_any_order_of_archives_and_restores_can_be_undone(kind, steps):
    """After each step `show` gives what was written; a pristine restore gives back the bytes."""
    live(kind, steps)


@pytest.mark.long(proves=("planning", "rewrite", "operations"))
@settings(max_examples=400, database=None)
@given(st.sampled_from((Linked, Linked, Flat, Generic)), any_steps(25))
def test_any_long_order_of_archives_and_restores_can_be_undone(kind, steps):
    """The same for more and longer sequences, which differ each time."""
    live(kind, steps)
