"""The hook of Claude Code: its advice at the end of a turn and at the start of a session."""

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


def write_session(world, *, compactions=0):
    """Write a session of eight turns without the last line and return its path."""
    conversation = ClaudeConversation()
    for _ in range(compactions):
        conversation.turn("z" * 10_000)
        conversation.compaction()
    for _ in range(8):
        conversation.turn()
    conversation.lines.pop()
    conversation.lines[-2]["message"]["usage"] = {"input_tokens": 5000, "output_tokens": 20}
    return world.put(f"{conversation.lines[0]['sessionId']}.jsonl", conversation.bytes())


def advice_for(world, path, *, resumed=False, **settings):
    settings = world.settings(**settings)
    return advice(settings, world.store, str(path), time.time(), resumed=resumed)


def test_hook_reports_a_full_context_and_the_share_after_a_scan(world):
    """The advice names the load now and after a scan; then a resumed session gets none."""
    path = write_session(world)
    line = advice_for(world, path, **SMALL)

    assert line == (
        "context 134 % full; `/exit`, and after the next scan `claude --continue` starts with 21 %"
        " (brainsurgeon)"
    )
    world.scan(**SMALL, abandoned_after_seconds=0)
    assert "context 126 % full" in advice_for(world, path, **SMALL)
    assert advice_for(world, path, resumed=True, **SMALL) is None


def test_hook_ignores_messages_before_a_compaction(world):
    """Messages before a compaction do not count, since the next request does not contain them."""
    line = advice_for(world, write_session(world), **SMALL)

    assert advice_for(world, write_session(world, compactions=2), **SMALL) == line


@pytest.mark.parametrize("settings", [
    {}, {**SMALL, "enabled": False}, {**SMALL, "exclude": ["agent:*"]},
])  # fmt: skip
def test_hook_prints_nothing_when_a_scan_would_not_help(world, settings):
    """There is no advice if the context is not full or the configuration excludes the session."""
    assert advice_for(world, write_session(world), **settings) is None


def test_hook_ignores_a_session_outside_the_roots_or_missing(world, tmp_path):
    """There is no advice for a file outside the roots or a file that does not exist."""
    assert advice_for(world, tmp_path / "s.jsonl", **SMALL) is None
    assert advice_for(world, world.project / "s.jsonl", **SMALL) is None


@pytest.mark.parametrize("event", [b"", b"{", b"{}", json.dumps({"transcript_path": 3}).encode()])
def test_hook_exits_0_for_an_invalid_event(world, event):
    """An empty, malformed or incomplete event yields no output and exit status 0."""
    process = subprocess.run([*PROGRAM, "hook"], input=event, capture_output=True, check=False)

    assert (process.returncode, process.stdout, process.stderr) == (0, b"", b"")


def test_hook_does_not_wait_for_a_locked_store(world):
    """If another process writes to the store, the hook ends in less time than a reader waits."""
    event = json.dumps({"transcript_path": str(write_session(world))}).encode()
    directory = world.store.directory
    with closing(sqlite3.connect(database_path(directory), isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        process = subprocess.run(
            [*PROGRAM, "hook"], input=event, capture_output=True, check=False, timeout=PATIENCE,
            env={**os.environ, "BRAINSURGEON_STATE_DIR": directory},
        )  # fmt: skip

    assert (process.returncode, process.stdout, process.stderr) == (0, b"", b"")
