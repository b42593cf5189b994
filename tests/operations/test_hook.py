"""What Claude Code's user reads at the end of a turn and at the start of a session."""

import json
import os
import sqlite3
import subprocess
import time
from contextlib import closing

import pytest

from brainsurgeon.operations.hook import advice
from brainsurgeon.store.database import PATIENCE, database_path
from building.claude import ClaudeConversation, ClaudeWorld
from building.processes import PROGRAM

WORLD = ClaudeWorld

SMALL = {"windows": {"*": 4000}}


def put(world, *, compactions=0):
    """Write a session of eight turns whose last line is not written yet; give its path."""
    conversation = ClaudeConversation()
    for _ in range(compactions):
        conversation.turn("z" * 10_000)
        conversation.compaction()
    for _ in range(8):
        conversation.turn()
    conversation.lines.pop()
    conversation.lines[-2]["message"]["usage"] = {"input_tokens": 5000, "output_tokens": 20}
    return world.put(f"{conversation.lines[0]['sessionId']}.jsonl", conversation.bytes())


def told(world, path, *, resumed=False, **settings):
    return advice(
        world.settings(**settings), world.store, str(path), time.time(), resumed=resumed
    )  # fmt: skip


def test_a_full_context_is_told_with_what_a_scan_would_leave(world):
    """The line has both shares; after the scan only who still has the old values is told."""
    path = put(world)
    line = told(world, path, **SMALL)

    assert line == (
        "context 134 % full; `/exit`, and after the next scan `claude --continue` starts with 21 %"
        " (brainsurgeon)"
    )
    world.scan(**SMALL, abandoned_after_seconds=0)
    assert "context 126 % full" in told(world, path, **SMALL)
    assert told(world, path, resumed=True, **SMALL) is None


def test_what_precedes_a_compaction_is_not_counted(world):
    """The next request does not contain it."""
    line = told(world, put(world), **SMALL)

    assert told(world, put(world, compactions=2), **SMALL) == line


@pytest.mark.parametrize("settings", [{}, {**SMALL, "enabled": False}])
def test_nobody_is_told_what_does_not_help(world, settings):
    """There is room enough, or nothing would be extracted."""
    assert told(world, put(world), **settings) is None


def test_a_session_that_is_not_ours_is_left_alone(world, tmp_path):
    """It lies below no root, or is gone."""
    assert told(world, tmp_path / "s.jsonl", **SMALL) is None
    assert told(world, world.project / "s.jsonl", **SMALL) is None


@pytest.mark.parametrize("event", [b"", b"{", b"{}", json.dumps({"transcript_path": 3}).encode()])
def test_a_hook_never_fails_a_turn(world, event):
    """Whatever it is given, it ends with 0 and says nothing."""
    done = subprocess.run([*PROGRAM, "hook"], input=event, capture_output=True, check=False)

    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_a_hook_does_not_wait_for_a_store_in_use(world):
    """While another process writes to the store, it ends long before a reader gives up."""
    event = json.dumps({"transcript_path": str(put(world))}).encode()
    directory = world.store.directory
    with closing(sqlite3.connect(database_path(directory), isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        done = subprocess.run(
            [*PROGRAM, "hook"], input=event, capture_output=True, check=False, timeout=PATIENCE,
            env={**os.environ, "BRAINSURGEON_STATE_DIR": directory},
        )  # fmt: skip

    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
