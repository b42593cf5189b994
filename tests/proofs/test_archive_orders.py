"""Scans, archives, restores and new turns of an agent, in random order."""

import os
import re
import tempfile
from itertools import pairwise
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.operations.archive import archive
from brainsurgeon.operations.show import cat
from building.turns import active_branch, add_long_turn, folding
from building.world import Clock, Conversation, World, append, pin

FIELDS = re.compile(rb',"_(?:restored|extractable)":(?:"[^"]*"|true|false|[0-9]+)')
ARCHIVE = {"enabled": True, "token_threshold": 0}
STEPS = (
    "scan", "archive by rule", "nest archives", "archive on request", "turn",
    "restore", "restore", "pin", "restore all", "restore pristine",
)  # fmt: skip


class Life:
    """A session in a world, its agent, and the operations on it."""

    def __init__(self, place):
        self.world = World(Path(place))
        self.world.clock = Clock(1_795_000_000)
        self.talk, self.ends = Conversation(), []
        self.path = self.world.directory / "s.jsonl"
        self.path.write_bytes(self.talk.bytes())
        for _ in range(3):
            self.turn()

    def turn(self):
        since = len(self.talk.lines)
        number = len(self.ends)
        self.ends.append(add_long_turn(self.talk, calls=1 + number % 3, answer=f"done {number}"))
        append(self.path, self.talk.lines[since:])

    def nest_archives(self):
        with folding(2):
            self.world.scan(archive=ARCHIVE | {"keep_turns": 0})

    def step(self, action, number):
        """Carry out one of STEPS; `number` chooses its turn and the time that passes."""
        world, modified = self.world, self.world.clock.now - 7200
        os.utime(self.path, (modified, modified))
        closing = self.ends[number % len(self.ends)][1]
        actions = {
            "scan": world.scan,
            "archive by rule": lambda: world.scan(archive=ARCHIVE | {"keep_turns": 1}),
            "nest archives": self.nest_archives,
            "archive on request": lambda: archive(
                world.settings(), world.store, str(self.path), clock=world.clock
            ),
            "turn": self.turn,
            "restore": lambda: world.restore(closing, session=str(self.path)),
            "pin": lambda: pin(world, closing, number % 2 == 0, session=str(self.path)),
            "restore all": world.restore_all,
            "restore pristine": lambda: world.restore_all(pristine=True),
        }  # fmt: skip
        try:
            actions[action]()
        except BrainsurgeonError:
            assert action == "restore"  # nothing of that entry is extracted
        world.clock.now += 700 * (number % 3)

    def check(self):
        """Check that `cat` gives the session as written, and that its branch is a valid history."""
        whole = b"".join(cat(self.world.settings(), self.world.store, str(self.path), 0.0))
        assert FIELDS.sub(b"", whole) == self.talk.bytes()
        entries = active_branch(self.path.read_bytes())
        messages = [entry["message"] for entry in entries if entry["type"] == "message"]
        calls = [block["id"] for message in messages if message["role"] == "assistant"
                 for block in message["content"] if block["type"] == "toolCall"]  # fmt: skip
        results = [message["toolCallId"] for message in messages if "toolCallId" in message]
        assert calls == results
        roles = [message["role"] for message in messages if "toolCallId" not in message]
        assert ("user", "user") not in list(pairwise(roles))


@settings(max_examples=25, derandomize=True)
@given(st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 11)), min_size=4, max_size=9))
def test_any_order_of_archives_and_restores_can_be_undone(steps):
    """After each step `cat` shows the session as written; a pristine restore gives its bytes."""
    with tempfile.TemporaryDirectory() as place:
        life = Life(place)
        try:
            for action, number in steps:
                life.step(action, number)
                life.check()
            life.step("restore pristine", 0)
            assert life.path.read_bytes() == life.talk.bytes()
        finally:
            life.world.close()
