"""Homes of agents on this machine: which are scanned, and what is said of the others."""

import json
import os
import time

import pytest

from brainsurgeon.agents import AGENTS, agent_of
from brainsurgeon.agents.described import DESCRIBED_AGENT
from brainsurgeon.config import RootTable, load
from brainsurgeon.operations.doctor import doctor
from brainsurgeon.operations.init import homes, linked, unused_homes, used_homes
from brainsurgeon.operations.report import report
from brainsurgeon.operations.retention import retention
from brainsurgeon.operations.scan import scan
from brainsurgeon.operations.sessions import sessions
from brainsurgeon.operations.status import status
from brainsurgeon.render import runs
from brainsurgeon.store import open_store, open_to_read
from building.claude import ClaudeConversation
from building.world import Conversation, dump

META = {
    "timestamp": "t",
    "type": "session_meta",
    "payload": {"id": "thread", "cwd": "/home/dev/demo"},
}


@pytest.fixture
def settings():
    return load()[0]


@pytest.fixture
def all_homes(own_home):
    """Create homes of four agents, and a session of Claude Code and of Codex."""
    for place in (".openclaw/agents/main", ".claude/projects/-w", ".pi/agent/sessions",
                  ".codex/sessions/2026/11/21"):  # fmt: skip
        (own_home / place).mkdir(parents=True)
    conversation = ClaudeConversation()
    conversation.turn()
    (own_home / ".claude/projects/-w/s.jsonl").write_bytes(conversation.bytes())
    rollout = own_home / ".codex/sessions/2026/11/21/rollout-1.jsonl"
    rollout.write_bytes(dump(META))
    return own_home


@pytest.fixture
def with_claw(all_homes):
    write_claw(all_homes)
    return all_homes


def write_claw(home):
    """Write a session of OpenClaw."""
    (home / ".openclaw/agents/main/sessions").mkdir()
    (home / ".openclaw/agents/main/sessions/s.jsonl").write_bytes(Conversation().bytes())


def listed(settings):
    return sessions(settings, open_to_read(settings.state_dir), time.time())


def with_root(directory, home):
    """Return the settings of a new file with the suggested configuration of a home."""
    path = directory / "config.toml"
    path.write_text(home.config)
    return load(str(path))[0]


def test_homes_lists_only_existing_homes(own_home):
    """A home is listed only if its directory exists."""
    assert homes() == []
    (own_home / ".claude" / "projects").mkdir(parents=True)
    assert [home.agent for home in homes()] == ["Claude Code"]


def test_an_unreadable_home_is_reported(unprivileged_world, monkeypatch):
    """Without configuration, its recorded sessions are unreadable, not gone, and a scan fails."""
    home = unprivileged_world.base
    monkeypatch.setenv("HOME", str(home))
    path = home / ".claude/projects/-w/s.jsonl"
    path.parent.mkdir(parents=True)
    conversation = ClaudeConversation()
    for _ in range(4):
        conversation.turn()
    path.write_bytes(conversation.bytes())
    os.utime(path, (time.time() - 9000,) * 2)
    settings = load()[0]
    with open_store(settings.state_dir) as store:
        assert scan(settings, store).values_extracted > 0
        (home / ".claude").chmod(0)
        report = scan(settings, store)
        [session] = listed(settings)
        found = [one.what for one in doctor(settings, store)]
        (home / ".claude").chmod(0o700)

    refused = f"{home}/.claude/projects: Permission denied"
    assert [(place.path, place.reason) for place in report.unreadable if place.failed] == [
        (f"{home}/.claude/projects", "Permission denied")
    ]
    assert (session.state, session.reason) == ("unreadable", refused)
    assert found.count(refused) == 1


def test_init_configures_the_target_of_a_linked_home(all_homes, settings, tmp_path):
    """A root that is a link is a trouble: `init` and scans without configuration use its target."""
    target = tmp_path / "elsewhere"
    (all_homes / ".claude/projects").rename(target)
    (all_homes / ".claude/projects").symlink_to(target)

    assert str(target) in [home.path for home in homes()]
    assert [home.path for home in used_homes(settings)] == [home.path for home in homes()]
    assert str(target) in [root.path for root in settings.root_directories()]


def test_homes_follow_the_agents_environment_variables(all_homes, monkeypatch, tmp_path):
    """Claude Code, pi and Codex each have a variable that moves the home."""
    assert [home.agent for home in homes()] == ["OpenClaw", "Claude Code", "pi", "Codex"]
    for name in ("CLAUDE_CONFIG_DIR", "PI_CODING_AGENT_DIR", "CODEX_HOME"):
        monkeypatch.setenv(name, str(tmp_path / "elsewhere"))
    assert [home.agent for home in homes()] == ["OpenClaw"]
    (tmp_path / "elsewhere" / "sessions").mkdir(parents=True)
    assert [home.agent for home in homes()] == ["OpenClaw", "pi", "Codex"]


def test_homes_covered_by_a_root_are_omitted(all_homes, settings):
    """A root in a home, or a directory above it, covers the home."""

    def unused(*names):
        roots = tuple(RootTable(path=str(all_homes / name)) for name in names)
        return [home.agent for home in unused_homes(settings.model_copy(update={"roots": roots}))]

    assert unused(".claude/projects/-w", ".pi") == ["OpenClaw", "Codex"]
    assert unused("") == []


def test_only_openclaw_is_scanned_without_configuration(with_claw, settings):
    """Without configured roots, no sessions of the other agents are listed."""
    assert [one.session for one in listed(settings)] == ["main/s"]


def test_every_agent_is_scanned_without_openclaw(all_homes, settings):
    """A user of other agents needs no configuration; the first scan says what it found."""
    first = scan(settings, open_to_read(settings.state_dir), dry_run=True)

    assert sorted(session.session for session in listed(settings)) == [
        "claude-code:-w/s", "codex:-home-dev-demo/rollout-1",
    ]  # fmt: skip
    text = "\n".join(runs.report(first, "config.toml"))
    assert f"Claude Code: {all_homes}/.claude/projects" in text
    assert f'  path = "{all_homes}/.claude/projects"' in text
    assert unused_homes(settings) == []


def test_no_session_is_missing_since_openclaw_came(all_homes, settings):
    """Without configuration, values stay although only OpenClaw's sessions are scanned now."""
    conversation = ClaudeConversation()
    for _ in range(4):
        conversation.turn()
    path = all_homes / ".claude/projects/-w/s.jsonl"
    path.write_bytes(conversation.bytes())
    os.utime(path, (time.time() - 9000,) * 2)
    with open_store(settings.state_dir) as store:
        assert scan(settings, store).values_extracted > 0
        write_claw(all_homes)
        for day in range(40):
            later = time.time() + day * 86_400
            retention(settings, store, clock=lambda later=later: later)

        assert [session.missed_at for session in store.sessions.all()] == [None]


def test_suggested_configuration_adds_a_home_and_keeps_the_default(with_claw, settings, tmp_path):
    """A configured root replaces the default root, so the suggestion repeats it."""
    [claude, pi, codex] = unused_homes(settings)
    fresh = with_root(tmp_path, claude)

    assert (claude.agent, pi.agent, codex.agent) == ("Claude Code", "pi", "Codex")
    assert [root.path for root in fresh.root_directories()] == [
        str(with_claw / ".openclaw/agents"), claude.path,
    ]  # fmt: skip
    assert [session.session for session in listed(fresh)] == ["claude-code:-w/s", "main/s"]
    assert [home.agent for home in unused_homes(fresh)] == ["pi", "Codex"]
    assert unused_homes(fresh)[0].config == f'[[roots]]\npath = "{pi.path}"'


def test_status_and_the_first_dry_run_report_unused_homes(with_claw, settings, world):
    """`status` and the first dry run report unused homes; later dry runs do not."""
    state = status(settings, open_to_read(settings.state_dir), time.time())
    first = scan(settings, open_to_read(settings.state_dir), dry_run=True)

    for text in (
        runs.status(state, time.time(), "config.toml"),
        "\n".join(runs.report(first, "config.toml")),
    ):
        assert f"Claude Code keeps sessions in {with_claw}/.claude/projects" in text
        assert f'  path = "{with_claw}/.claude/projects"' in text
        assert "placeholders save tokens, but no bytes" in text
    document = json.loads(json.dumps(runs.report_json(first)))
    assert [home["agent"] for home in document["homes"]] == ["Claude Code", "pi", "Codex"]
    world.scan()
    assert scan(settings, world.store, dry_run=True).homes == []
    assert len(status(settings, world.store, time.time()).places.homes) == 3


def test_codex_session_is_listed_by_its_working_directory(with_claw, settings, tmp_path):
    """Codex names no agents, so the title of a session begins with its working directory."""
    fresh = with_root(tmp_path, unused_homes(settings)[2])
    [session] = [one for one in listed(fresh) if one.format == "codex"]

    assert session.session == "codex:-home-dev-demo/rollout-1"
    assert (session.format, session.state, session.size_bytes) == ("codex", "busy", len(dump(META)))
    waiting = report(fresh, open_to_read(fresh.state_dir), time.time()).waiting
    assert session.session in [one.session for one in waiting]


def test_link_below_a_root_is_named_with_the_lines_that_add_it(own_home, tmp_path):
    """The first scan, status, sessions and doctor name the link, which no walk follows."""
    root, real = own_home / ".claude" / "projects", tmp_path / "elsewhere"
    root.mkdir(parents=True)
    real.mkdir()
    (root / "-w").symlink_to(real)
    conversation = ClaudeConversation()
    conversation.turn()
    (real / "s.jsonl").write_bytes(conversation.bytes())
    config = tmp_path / "config.toml"
    config.write_text(f'[[roots]]\npath = "{root}"\n')
    config_of = load(str(config))[0]

    [home] = linked(config_of)
    assert (home.path, home.note) == (str(real), f"behind the link {root}/-w")
    text = "\n".join(runs.homes([home], "/x/config.toml"))
    assert str(real) in text
    assert "put this into /x/config.toml:" in text
    with open_store(config_of.state_dir) as store:
        assert scan(config_of, store).homes == [home]
        assert scan(config_of, store).homes == []  # once
        assert home in status(config_of, store, time.time()).places.homes
        [finding] = [one for one in doctor(config_of, store) if f"{root}/-w" in one.what]
        assert str(real) in finding.advice
    config.write_text(config.read_text() + home.config)
    assert linked(load(str(config))[0]) == []
    assert [row.session for row in listed(load(str(config))[0])] == ["claude-code:elsewhere/s"]


def test_session_outside_all_homes_is_of_the_agent_of_its_format(own_home):
    """Wherever it is, the presence of the agent that writes its format decides."""
    for form in {agent.format for agent in AGENTS}:
        assert agent_of("/elsewhere/session.jsonl", form).format == form
    assert agent_of("/elsewhere/session.jsonl", None) is DESCRIBED_AGENT
