"""Scans, archives, restores and an agent that goes on, in any order: all of it can be undone."""

import os
import re
import tempfile
from itertools import pairwise
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.operations.archive import archive
from brainsurgeon.operations.cat import cat
from building.turns import branch, folding, long_turn
from building.world import Clock, Conversation, World, dump, pin

OURS = re.compile(rb',"_(?:restored|extractable)":(?:"[^"]*"|true|false|[0-9]+)')
ANY = {"archive": {"enabled": True, "token_threshold": 0, "keep_turns": 1}}
ROWS = {"archive": {"enabled": True, "token_threshold": 0, "keep_turns": 0}}
STEPS = (
    "scan", "archive", "rows", "by hand", "turn", "restore", "restore", "pin", "restore all",
    "pristine",
)  # fmt: skip


class Life:
    """One session in a world, and what its agent wrote."""

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
        self.ends.append(long_turn(self.talk, calls=1 + number % 3, answer=f"done {number}"))
        with open(self.path, "ab") as handle:
            handle.write(b"".join(map(dump, self.talk.lines[since:])))

    def _rows(self):
        with folding(2):
            self.world.scan(**ROWS)

    def step(self, what, at):
        world, later = self.world, self.world.clock.now - 7200
        os.utime(self.path, (later, later))
        closing = self.ends[at % len(self.ends)][1]
        acts = {
            "scan": world.scan,
            "archive": lambda: world.scan(**ANY),
            "rows": self._rows,
            "by hand": lambda: archive(
                world.settings(), world.store, str(self.path), clock=world.clock
            ),
            "turn": self.turn,
            "restore": lambda: world.restore(closing, session=str(self.path)),
            "pin": lambda: pin(world, closing, at % 2 == 0, session=str(self.path)),
            "restore all": world.restore_all,
            "pristine": lambda: world.restore_all(pristine=True),
        }  # fmt: skip
        try:
            acts[what]()
        except BrainsurgeonError:
            assert what == "restore"  # nothing of that entry is extracted
        world.clock.now += 700 * (at % 3)

    def check(self):
        written = self.talk.bytes()
        whole = b"".join(cat(self.world.settings(), self.world.store, str(self.path), 0.0))
        assert OURS.sub(b"", whole) == written
        live = [one for one in branch(self.path.read_bytes()) if one["type"] == "message"]
        calls = [block["id"] for one in live if one["message"]["role"] == "assistant"
                 for block in one["message"]["content"] if block["type"] == "toolCall"]  # fmt: skip
        results = [one["message"]["toolCallId"] for one in live
                   if one["message"]["role"] == "toolResult"]  # fmt: skip
        assert calls == results
        asked = [one["message"]["role"] for one in live if "toolCallId" not in one["message"]]
        assert ("user", "user") not in list(pairwise(asked))


@settings(max_examples=25, derandomize=True)
@given(st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 11)), min_size=4, max_size=9))
def test_everything_comes_back_whatever_was_done_in_whatever_order(steps):
    """After each step the whole session can be read as it was written, and at the end undone."""
    with tempfile.TemporaryDirectory() as place:
        life = Life(place)
        try:
            for what, at in steps:
                life.step(what, at)
                life.check()
            life.step("pristine", 0)
            assert life.path.read_bytes() == life.talk.bytes()
        finally:
            life.world.close()
