"""The hook of Claude Code: its advice at the end of a turn and at the start of a session."""

import json
import os
import sqlite3
import subprocess
import sys
import time
from contextlib import closing

import pytest

from brainsurgeon.operations.hook import advice, refusal
from brainsurgeon.store.database import STORE_LOCK_SECONDS, database_path
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


DEAR = {"max_session_cost_usd": 2, "stop_prompts": True}
PRICE = {"prices": {"*": {"input": 100, "cache_read": 1, "cache_write": 1, "output": 1}}}

# The program without the limits of 0.2 and 5 seconds, which a busy machine may exceed.
PATIENT = """
import sys
from brainsurgeon import cli
from brainsurgeon.cli import setup
setup.HOOK_TIMEOUT = setup.CEILING_TIMEOUT = 60.0
sys.exit(cli._run())
"""


@pytest.mark.parametrize(("signals", "refused"), [
    ({}, False), ({"max_session_cost_usd": 2}, False), ({"stop_prompts": True}, False),
    ({**DEAR, "max_session_cost_usd": 5}, False), (DEAR, True),
])  # fmt: skip
@pytest.mark.parametrize("scanned", [False, True])
def test_prompt_is_refused_above_the_ceiling_only(world, tmp_path, signals, refused, scanned):
    """A prompt is refused if `stop_prompts` is set and the session has cost its ceiling."""
    conversation = ClaudeConversation()
    for _ in range(3):
        conversation.turn()
        usage = {"input_tokens": 10_000, "output_tokens": 20}
        conversation.lines[-1]["message"]["usage"] = usage
    path = world.put(f"{conversation.lines[0]['sessionId']}.jsonl", conversation.bytes())
    if scanned:
        world.scan(**PRICE)
    why = refusal(world.settings(signals=signals, **PRICE), world.store, str(path))
    other = world.project / "new.jsonl"

    assert refusal(world.settings(signals=signals, **PRICE), world.store, str(other)) is None
    assert why == ((
        "this session has cost $3.00, its ceiling is $2.00: begin a new session,"
        " or raise `signals.max_session_cost_usd` (brainsurgeon)"
    ) if refused else None)  # fmt: skip


def test_hook_refuses_a_prompt_in_the_form_of_claude_code(world):
    """For UserPromptSubmit the command prints a decision to block, with its reason, and exits 0."""
    conversation = ClaudeConversation()
    conversation.turn()
    conversation.lines[-1]["message"]["usage"] = {"input_tokens": 30_000, "output_tokens": 20}
    path = world.put(f"{conversation.lines[0]['sessionId']}.jsonl", conversation.bytes())
    event = {"hook_event_name": "UserPromptSubmit", "transcript_path": str(path), "prompt": "go"}
    keys = {f"signals.{name}": value for name, value in DEAR.items()}
    prices = {f'prices."*".{name}': price for name, price in PRICE["prices"]["*"].items()}
    config = world.config_file(**keys, **prices)
    process = subprocess.run(
        [sys.executable, "-c", PATIENT, "hook", "--config", config],
        input=json.dumps(event).encode(), capture_output=True, check=False,
    )  # fmt: skip

    assert (process.returncode, process.stderr) == (0, b"")
    answer = json.loads(process.stdout)
    assert answer.pop("reason").startswith("this session has cost $3.00")
    assert answer == {"decision": "block"}


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
            [*PROGRAM, "hook"], input=event, capture_output=True, check=False,
            timeout=STORE_LOCK_SECONDS, env={**os.environ, "BRAINSURGEON_STATE_DIR": directory},
        )  # fmt: skip

    assert (process.returncode, process.stdout, process.stderr) == (0, b"", b"")
