"""The homes of agents on this machine: named where they exist, walked only when asked for."""

import json
import time

import pytest

from brainsurgeon.config import load
from brainsurgeon.hosts.homes import homes, uncovered
from brainsurgeon.operations.init import unused_homes
from brainsurgeon.operations.report import report
from brainsurgeon.operations.scan import scan
from brainsurgeon.operations.sessions import sessions
from brainsurgeon.operations.status import status
from brainsurgeon.render import runs
from brainsurgeon.render import runs as standing
from brainsurgeon.store import open_to_read
from building.claude import ClaudeConversation
from building.world import dump

META = {"timestamp": "t", "type": "session_meta", "payload": {"id": "thread", "cwd": "/w"}}


@pytest.fixture
def settings():
    return load()[0]


@pytest.fixture
def everywhere(own_home):
    """Let all four agents have a home, and two of them a session."""
    for place in (".openclaw/agents", ".claude/projects/-w", ".pi/agent/sessions",
                  ".codex/sessions/2026/11/21"):  # fmt: skip
        (own_home / place).mkdir(parents=True)
    conversation = ClaudeConversation()
    conversation.turn()
    (own_home / ".claude/projects/-w/s.jsonl").write_bytes(conversation.bytes())
    rollout = own_home / ".codex/sessions/2026/11/21/rollout-1.jsonl"
    rollout.write_bytes(dump(META))
    return own_home


def test_only_homes_that_exist_are_named(own_home):
    """Where nobody works there is nothing to add."""
    assert homes() == []
    (own_home / ".claude" / "projects").mkdir(parents=True)
    assert [one.agent for one in homes()] == ["Claude Code"]


def test_homes_are_where_the_agents_settings_place_them(everywhere, monkeypatch, tmp_path):
    """Each agent has a variable that moves its home."""
    assert [one.agent for one in homes()] == ["OpenClaw", "Claude Code", "pi", "Codex"]
    for name in ("CLAUDE_CONFIG_DIR", "PI_CODING_AGENT_DIR", "CODEX_HOME"):
        monkeypatch.setenv(name, str(tmp_path / "elsewhere"))
    assert [one.agent for one in homes()] == ["OpenClaw"]
    (tmp_path / "elsewhere" / "sessions").mkdir(parents=True)
    assert [one.agent for one in homes()] == ["OpenClaw", "pi", "Codex"]


def test_what_a_root_covers_is_not_named(everywhere):
    """A part of a home, or a directory around it, is a choice that was made."""
    home = str(everywhere)

    assert [one.agent for one in uncovered([f"{home}/.claude/projects/-w", f"{home}/.pi"])] == [
        "OpenClaw", "Codex",
    ]  # fmt: skip
    assert uncovered([home]) == []


def test_nothing_but_openclaw_is_walked_without_being_asked_for(everywhere, settings):
    """The sessions of the others are named by nobody, and read by nobody."""
    assert sessions(settings, open_to_read(settings.state_dir), time.time()) == []


def test_the_lines_that_are_given_add_a_home_and_keep_what_was_walked(
    everywhere, settings, tmp_path
):
    """Naming a root replaces the default, so that the lines name that again."""
    [claude, pi, codex] = unused_homes(settings)
    (tmp_path / "config.toml").write_text(claude.config)
    fresh, _ = load(str(tmp_path / "config.toml"))

    assert (claude.agent, pi.agent, codex.agent) == ("Claude Code", "pi", "Codex")
    assert [root.path for root in fresh.root_directories()] == [
        str(everywhere / ".openclaw/agents"), claude.path,
    ]  # fmt: skip
    assert [one.session for one in sessions(fresh, open_to_read(fresh.state_dir), time.time())] == [
        "claude-code:-w/s"
    ]
    assert [one.agent for one in unused_homes(fresh)] == ["pi", "Codex"]
    assert unused_homes(fresh)[0].config == f'[[roots]]\npath = "{pi.path}"'


def test_status_and_the_first_dry_run_name_them(everywhere, settings, world):
    """Afterwards `status` alone does."""
    said = standing.status(
        status(settings, open_to_read(settings.state_dir), time.time()), time.time()
    )
    first = scan(settings, open_to_read(settings.state_dir), dry_run=True)

    for text in (said, "\n".join(runs.report(first))):
        assert f"Claude Code keeps sessions in {everywhere}/.claude/projects" in text
        assert f'  path = "{everywhere}/.claude/projects"' in text
        assert "its sessions are shown, never changed" in text
    told = json.loads(json.dumps(runs.report_json(first)))
    assert [one["agent"] for one in told["homes"]] == ["Claude Code", "pi", "Codex"]
    world.scan()
    assert scan(settings, world.store, dry_run=True).homes == []
    assert len(status(settings, world.store, time.time()).homes) == 3


def test_codex_is_recognised_sized_and_explained(everywhere, settings, tmp_path):
    """Its sessions are listed with their size, and with the reason why they stay as they are."""
    codex = unused_homes(settings)[2]
    (tmp_path / "config.toml").write_text(codex.config)
    fresh, _ = load(str(tmp_path / "config.toml"))
    [one] = sessions(fresh, open_to_read(fresh.state_dir), time.time())

    assert (one.session, one.format, one.state) == ("codex:-w/rollout-1", "codex", "skipped")
    assert one.size == len(dump(META))
    assert one.reason.startswith("Codex sessions are only read: a running Codex keeps its file")


def test_a_session_of_codex_is_named_by_its_working_directory(everywhere):
    """Not by the day on which it began; and the report does not say that it waits."""
    rollout = everywhere / ".codex/sessions/2026/11/21/rollout-1.jsonl"
    meta = {"type": "session_meta", "payload": {"id": "1", "cwd": "/home/dev/demo"}}
    rollout.write_bytes(dump(meta))
    config = everywhere / "codex.toml"
    config.write_text(f'[[roots]]\npath = "{everywhere}/.codex/sessions"\n')
    settings, _ = load(str(config))

    assert [
        one.session for one in sessions(settings, open_to_read(settings.state_dir), time.time())
    ] == ["codex:-home-dev-demo/rollout-1"]
    assert report(settings, open_to_read(settings.state_dir), time.time()).waiting == ()
