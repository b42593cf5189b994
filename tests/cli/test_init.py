"""`init`: what it finds, shows, asks for, does and undoes."""

import json
import os
import resource
import shlex
import subprocess
import sys
import tomllib
from contextlib import contextmanager
from pathlib import Path

import pytest

from brainsurgeon import __version__
from brainsurgeon.config import load
from brainsurgeon.errors import FailedError
from brainsurgeon.operations import init
from brainsurgeon.operations.init import digest_of
from building.claude import ClaudeConversation
from building.claw import Claw
from building.opencode import OPENCODE, unpack
from building.processes import PROGRAM, error_line, json_output, run
from building.world import TOP, Conversation

# Records each call and, as the real command does, the server that it is given. It refuses to be
# called elsewhere than at home: in a repository, some agents write files.
AGENT = """#!{python}
import json, os, sys
from pathlib import Path
home, words = Path(os.environ["HOME"]), sys.argv[1:]
if Path.cwd() != home.resolve():
    sys.exit("called elsewhere")
with open(home / "called", "a") as log:
    log.write(json.dumps(["{name}", *words]) + "\\n")
place = home / "{place}"
if "{name}" == "systemctl":
    print({{"is-system-running": "running"}}.get(words[1], ""))
    sys.exit((home / "refuse").exists() and words[1] == "enable")
if words[0] == "plugin":
    sys.exit()
if words[1] in ("unset", "remove"):
    place.unlink()
elif "{name}" == "openclaw":
    place.write_text(json.dumps({{"mcp": {{"servers": {{words[2]: json.loads(words[3])}}}}}}))
else:
    name = "brainsurgeon"
    command, *arguments = [word for word in words[words.index(name) + 1:] if word != "--"]
    server = {{"command": command, "args": arguments}}
    if "{name}" == "opencode":
        table = json.loads(place.read_text())
        table["mcp"] = {{name: {{"type": "local", "command": [command, *arguments]}}}}
        place.write_text(json.dumps(table))
    elif "{name}" == "codex":
        text = "".join(f"{{key}} = {{json.dumps(value)}}\\n" for key, value in server.items())
        place.write_text(f"[mcp_servers.{{name}}]\\n" + text)
    else:
        place.write_text(json.dumps({{"mcpServers": {{name: server}}}}))
"""
RECORDS = {
    "openclaw": ".openclaw/openclaw.json", "claude": ".claude.json", "codex": ".codex/config.toml",
    "copilot": ".copilot/mcp-config.json", "gemini": ".gemini/settings.json",
    "opencode": ".config/opencode/opencode.json",
    "systemctl": "nothing",
}  # fmt: skip
AGENTS = ("openclaw", "claude", "codex", "copilot", "gemini")
REGISTER_ALL = [word for agent in AGENTS for word in ("--mcp", agent)]


class Newcomer:
    """A home with sessions of two agents, the agents' commands, and nothing of brainsurgeon."""

    def __init__(self, home, tools):
        self.home, self.tools, self.path = home, tools, f"{tools}:{os.environ['PATH']}"
        self.config = home / ".config/brainsurgeon/config.toml"
        self.unit = home / ".config/systemd/user/brainsurgeon.service"
        self.page = home / ".local/share/man/man1/brainsurgeon.1"
        self.record = home / ".local/state/brainsurgeon/init.json"
        self._write(".openclaw/agents/main/sessions/s.jsonl", Conversation())
        self._write(".claude/projects/-w/t.jsonl", ClaudeConversation())
        for place in (".codex/sessions", ".copilot/session-state", ".gemini/tmp"):
            (home / place).mkdir(parents=True)

    def _write(self, place, conversation):
        conversation.turn("x" * 5000)
        conversation.turn("y" * 700)
        path = self.home / place
        path.parent.mkdir(parents=True)
        path.write_bytes(conversation.bytes())
        os.utime(path, (10**9, 10**9))

    def install(self, *names):
        self.tools.mkdir(exist_ok=True)
        for name in names:
            path = self.tools / name
            path.write_text(AGENT.format(python=PROGRAM[0], name=name, place=RECORDS[name]))
            path.chmod(0o755)

    def install_crontab(self, listing="cat {}"):
        table, path = self.home / "table", self.tools / "crontab"
        self.tools.mkdir(exist_ok=True)
        path.write_text(
            f"#!/bin/sh\ncase $1 in -) cat > {table}.new && mv {table}.new {table};;"
            f" -r) rm {table};; -l) {listing.format(table)};; esac\n"
        )
        path.chmod(0o755)
        return table

    def add_marketplace(self):
        path = self.home / ".claude/plugins/known_marketplaces.json"
        path.parent.mkdir(parents=True)
        path.write_text('{"brainsurgeon": {}}')
        return path

    def init(self, *words, **environment):
        return run("init", *words, PATH=self.path, XDG_RUNTIME_DIR="/nowhere", **environment)

    def calls(self):
        """Return the command lines of the agents and systemd that change something."""
        path = self.home / "called"
        calls = map(json.loads, path.read_text().splitlines()) if path.exists() else ()
        return [words for words in calls if words[2][:3] != "is-"]

    def files(self):
        return {
            path: (path.read_bytes() if path.is_file() else None, path.lstat().st_mode)
            for path in sorted(self.home.rglob("*")) if path.name != "called"
        }  # fmt: skip


@pytest.fixture
def newcomer(own_home, tmp_path, monkeypatch):
    monkeypatch.delenv("SHELL", raising=False)  # the machine's, for which completion is installed
    return Newcomer(own_home, tmp_path / "tools")


def test_init_dry_run_lists_agents_and_savings(newcomer):
    """It prints each agent and session with its gain, no content, and writes nothing."""
    before = newcomer.files()
    result = newcomer.init("--dry-run")
    lines = result.stdout.decode().splitlines()

    assert result.returncode == 0
    assert [line.split()[1] for line in lines if line.startswith("found ")] == [
        "OpenClaw:", "Claude", "Codex:", "Copilot", "Gemini",
    ]  # fmt: skip
    gains = [line for line in lines if line.startswith(("main/s", "claude-code:-w/t"))]
    assert len(gains) == 2
    assert sum("2 would change" in line for line in lines) == 1
    assert "xxx" not in result.stdout.decode()
    assert newcomer.files() == before


def test_init_examines_databases(newcomer):
    """Those of each agent are counted, and their sessions are among those that would change."""
    Claw(newcomer.home / ".openclaw", agent="other")
    unpack(OPENCODE, newcomer.home / ".local/share/opencode/opencode.db")
    output = newcomer.init("--dry-run").stdout.decode()

    assert "found 1 database of OpenClaw" in output
    assert "found 1 database of opencode\n" in output
    assert "other/00000000-0000-4000-8000-" in output


def test_init_lists_few_sessions_unless_verbose(newcomer):
    """The largest dozen sessions are listed, the others counted; `--verbose` lists each value."""
    directory = newcomer.home / ".openclaw/agents/main/sessions"
    for number in range(30):
        copy = directory / f"more{number}.jsonl"
        copy.write_bytes((directory / "s.jsonl").read_bytes())
        os.utime(copy, (10**9, 10**9))
    short = newcomer.init("--dry-run").stdout.decode()
    long = newcomer.init("--dry-run", "--verbose").stdout.decode()

    assert len(short.splitlines()) < 30
    assert "… and 20 more sessions (--verbose" in short
    assert short.endswith(
        "nothing was done: this was a dry run; --yes instead of --dry-run does it\n"
    )
    assert long.count("tool_result of 5,000 characters") >= 31


def test_init_requires_yes_without_a_terminal(newcomer):
    """Without a terminal and `--yes` it shows its steps, writes nothing and exits 2."""
    before = newcomer.files()
    result = newcomer.init()

    assert result.returncode == 2
    assert b"add --yes" in result.stderr
    assert b"config.toml" in result.stdout
    assert newcomer.files() == before


def test_init_without_agents_writes_the_default_roots(own_home):
    """A home without sessions gets a configuration that finds OpenClaw's sessions later."""
    result = run("init", "--yes")
    settings, _ = load()

    assert result.returncode == 0
    assert b"you have no sessions yet" in result.stdout
    assert [root.path for root in settings.root_directories()] == [
        str(own_home / ".openclaw/agents")
    ]
    assert not settings.roots


def test_init_writes_a_configuration_for_every_agent(newcomer):
    """The file has the comments of the example, sets the roots only, and works for `scan`."""
    result = newcomer.init("--yes")
    text = newcomer.config.read_text()
    settings, warnings = load()

    assert (result.returncode, result.stderr, warnings) == (0, b"", [])
    assert set(tomllib.loads(text)) == {"roots"}
    assert [root.path for root in settings.roots] == [
        str(newcomer.home / place)
        for place in (
            ".openclaw/agents",
            ".claude/projects",
            ".codex/sessions",
            ".copilot/session-state",
            ".gemini/tmp",
        )
    ]
    assert settings.model_copy(update={"roots": ()}) == load(os.devnull)[0]
    for line in (TOP / "config.toml.example").read_text().partition("# [[roots]]")[0].splitlines():
        assert line in text
    assert newcomer.config.stat().st_mode & 0o777 == 0o600
    assert b"2 sessions: 2 changed" in run("scan", "--once").stdout


def test_init_keeps_an_existing_configuration(newcomer):
    """An existing file is not changed, also on undo; `init` names the roots that it lacks."""
    newcomer.config.parent.mkdir(parents=True)
    newcomer.config.write_text("keep_recent = 7\n")
    result = newcomer.init("--yes")

    assert result.returncode == 0
    assert newcomer.config.read_text() == "keep_recent = 7\n"
    assert b"is there already" in result.stdout
    assert b"Claude Code keeps sessions in" in result.stdout
    assert newcomer.init("--undo", "--yes").returncode == 0
    assert newcomer.config.read_text() == "keep_recent = 7\n"


def test_init_passes_xdg_directories_on_to_the_service(newcomer, tmp_path):
    """The configuration records the state directory; the unit names the configuration file."""
    newcomer.install("systemctl")
    places = {"XDG_STATE_HOME": str(tmp_path / "st ate"), "XDG_CONFIG_HOME": str(tmp_path / "c")}
    result = newcomer.init("--yes", "--systemd", **places)
    config = tmp_path / "c/brainsurgeon/config.toml"
    unit = newcomer.unit.read_text()

    assert result.returncode == 0, result.stderr
    assert load(str(config))[0].state_dir == str(tmp_path / "st ate/brainsurgeon")
    assert f"run --config {config}\n" in unit
    assert f'ReadWritePaths="-{tmp_path}/st ate/brainsurgeon"\n' in unit


def test_init_registers_the_tool_with_the_agents_commands(newcomer):
    """Each agent's command gets absolute paths, user scope and its agent; skills are installed."""
    newcomer.install("systemctl", *AGENTS)
    result = newcomer.init("--yes", "--systemd", *REGISTER_ALL)
    program = newcomer.unit.read_text().partition("ExecStart=")[2].split()[0]

    assert (result.returncode, result.stderr) == (0, b"")
    assert os.path.isabs(program)
    assert newcomer.calls() == [
        ["systemctl", "--user", "daemon-reload"],
        ["systemctl", "--user", "enable", "--now", "brainsurgeon"],
        ["openclaw", "mcp", "set", "brainsurgeon",
         json.dumps({"command": program, "args": ["mcp", "--agent", "main"]})],
        ["claude", "mcp", "add", "--scope", "user", "brainsurgeon", "--", program, "mcp",
         "--agent", "."],
        ["codex", "mcp", "add", "brainsurgeon", "--", program, "mcp"],
        ["copilot", "mcp", "add", "brainsurgeon", "--", program, "mcp"],
        ["gemini", "mcp", "add", "--scope", "user", "brainsurgeon", program, "--", "mcp"],
    ]  # fmt: skip
    for agent, name in (
        (".openclaw", "openclaw"), (".claude", "claude-code"), (".codex", "codex"),
        (".copilot", "copilot"), (".gemini", "gemini"),
    ):  # fmt: skip
        skill = "skills/brainsurgeon/SKILL.md"
        assert (newcomer.home / agent / skill).read_text() == (
            TOP / "deploy" / name / skill
        ).read_text()


def test_init_installs_the_claude_code_plugin_once(newcomer):
    """`--hooks claude` installs the plugin instead of the tool; `--undo` removes it."""
    newcomer.install("claude")
    refused = newcomer.init("--hooks", "codex")
    result = newcomer.init("--yes", "--hooks", "claude", "--mcp", "claude")
    directory = str(TOP / "deploy" / "claude-code")

    assert refused.returncode == 2
    assert (result.returncode, result.stderr) == (0, b"")
    assert newcomer.calls() == [
        ["claude", "plugin", "marketplace", "add", directory],
        ["claude", "plugin", "install", "brainsurgeon@brainsurgeon"],
    ]
    settings = newcomer.home / ".claude/settings.json"
    settings.write_text('{"enabledPlugins": {"brainsurgeon@brainsurgeon": true}}')
    newcomer.init("--yes", "--hooks", "claude")
    assert len(newcomer.calls()) == 2
    newcomer.init("--undo", "--yes")
    assert newcomer.calls()[2:] == [
        ["claude", "plugin", "uninstall", "brainsurgeon@brainsurgeon"],
        ["claude", "plugin", "marketplace", "remove", "brainsurgeon"],
    ]


def test_init_names_a_tool_that_the_plugin_replaces(newcomer):
    """A tool registered before the plugin would exist twice: it prints how to remove it."""
    newcomer.install("claude")
    newcomer.init("--yes", "--mcp", "claude")
    result = newcomer.init("--yes", "--hooks", "claude")

    assert b"remove the earlier tool: claude mcp remove" in result.stdout


def test_init_accepts_a_named_agent_without_sessions(newcomer):
    """The agent's directory becomes a root before its first turn."""
    newcomer.install("claude")
    away = newcomer.home / "away"
    result = newcomer.init("--yes", "--hooks", "claude", CLAUDE_CONFIG_DIR=str(away))

    assert result.returncode == 0
    assert f"found Claude Code: {away}/projects (no sessions yet)" in result.stdout.decode()
    assert f'path = "{away}/projects"' in newcomer.config.read_text()


def test_init_warns_of_what_the_plugin_cannot_find(newcomer):
    """The plugin starts `brainsurgeon` from PATH, with the default configuration."""
    newcomer.install("claude")
    own = newcomer.home / "own.toml"
    other = newcomer.init("--dry-run", "--hooks", "claude", "--config", str(own))
    link = newcomer.home / ".local/bin/brainsurgeon"
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to("/bin/true")
    usual = newcomer.init("--dry-run", "--hooks", "claude")

    assert f"the default configuration, not {own}".encode() in other.stdout
    assert b"link brainsurgeon into PATH" in other.stdout
    assert b"default configuration" not in usual.stdout
    assert b"link brainsurgeon" not in usual.stdout


def test_init_undo_accepts_a_plugin_removed_by_the_user(newcomer):
    """A plugin that is gone counts as undone; a marketplace that stays remains recorded."""
    newcomer.install("claude")
    newcomer.init("--yes", "--hooks", "claude")
    (newcomer.tools / "claude").write_text("#!/bin/sh\nexit 1\n")
    known = newcomer.add_marketplace()
    first = newcomer.init("--undo", "--yes")
    known.write_text("{}")
    second = newcomer.init("--undo", "--yes")

    assert first.returncode == 1
    assert b"plugin of Claude Code: was already removed" in first.stdout
    assert second.returncode == 0
    assert b"marketplace of Claude Code: was already removed" in second.stdout


def test_init_undo_keeps_an_earlier_marketplace(newcomer):
    """Only the plugin is installed from it, and undo removes only the plugin."""
    newcomer.install("claude")
    newcomer.add_marketplace()
    newcomer.init("--yes", "--hooks", "claude")
    newcomer.init("--undo", "--yes")

    assert [words[2] for words in newcomer.calls()] == ["install", "uninstall"]


def test_plugin_files_match_the_program():
    """The plugin has the program's version, and its hooks and server run the program."""
    place = TOP / "deploy" / "claude-code"
    about = json.loads((place / ".claude-plugin/plugin.json").read_text())
    hooks = json.loads((place / "hooks/hooks.json").read_text())["hooks"]
    server = json.loads((place / ".mcp.json").read_text())["mcpServers"]["brainsurgeon"]

    assert about["version"] == __version__
    assert hooks.keys() == {"Stop", "SessionStart", "UserPromptSubmit"}
    for listed in hooks.values():
        assert "brainsurgeon hook" in listed[0]["hooks"][0]["command"]
    assert "exec brainsurgeon mcp" in server["args"][-1]
    assert server["alwaysLoad"] is True


def test_init_undo_restores_every_file(newcomer):
    """Files and registrations are as before; a second undo finds nothing to do."""
    newcomer.install("systemctl", *AGENTS)
    before = newcomer.files()
    newcomer.init("--yes", "--systemd", *REGISTER_ALL)

    assert newcomer.files() != before
    preview = newcomer.init("--undo", "--dry-run")
    result = newcomer.init("--undo", "--yes")

    assert preview.stdout in result.stdout
    assert (result.returncode, result.stderr) == (0, b"")
    assert newcomer.files() == before
    assert [words[0:3] for words in newcomer.calls()][-7:] == [
        ["gemini", "mcp", "remove"], ["copilot", "mcp", "remove"], ["codex", "mcp", "remove"],
        ["claude", "mcp", "remove"], ["openclaw", "mcp", "unset"],
        ["systemctl", "--user", "disable"], ["systemctl", "--user", "daemon-reload"],
    ]  # fmt: skip
    second = newcomer.init("--undo", "--yes")
    assert b"store purge" not in result.stdout  # nothing was ever stored
    assert (second.returncode, second.stdout) == (0, b"there is nothing to undo\n")


def test_init_takes_its_server_out_of_a_file_itself(newcomer):
    """If the agent has no command for it, the rest of the file and its mode stay as they were."""
    newcomer.install("opencode")
    path = newcomer.home / RECORDS["opencode"]
    path.parent.mkdir(parents=True)
    path.write_text('{"share": "disabled"}')
    path.chmod(0o600)
    before = newcomer.files()

    newcomer.init("--yes", "--mcp", "opencode")
    assert json.loads(path.read_text())["mcp"]["brainsurgeon"]["command"][1:] == ["mcp"]
    assert b"is there already" in newcomer.init("--dry-run", "--mcp", "opencode").stdout
    assert b"remove the tool of opencode" in newcomer.init("--undo", "--dry-run").stdout
    result = newcomer.init("--undo", "--yes")

    assert f"brainsurgeon is removed from {path}".encode() in result.stdout
    assert (result.returncode, newcomer.files()) == (0, before)
    newcomer.init("--yes", "--mcp", "opencode")
    path.write_text(path.read_text().replace('"mcp"]', '"mcp", "--agent", "x"]'))
    changed = newcomer.init("--undo", "--yes")
    assert b"was changed and is kept (undo: remove brainsurgeon from" in changed.stdout
    path.write_text("{")
    assert b"was changed and is kept" in newcomer.init("--undo", "--yes").stdout


def test_init_undo_keeps_what_was_changed_since(newcomer):
    """A changed file, unit or server stays and is named by each undo, which exits 1."""
    newcomer.install("systemctl", "claude")
    newcomer.init("--yes", "--systemd", "--mcp", "claude")
    for path in (newcomer.config, newcomer.unit):
        path.write_text(path.read_text() + "# mine\n")
    other = {"mcpServers": {"brainsurgeon": {"command": "/opt/other", "args": []}}}
    (newcomer.home / ".claude.json").write_text(json.dumps(other))
    count = len(newcomer.calls())
    for _ in range(2):
        result = newcomer.init("--undo", "--yes")
        output = result.stdout.decode()

        assert result.returncode == 1
        assert f"! configuration: {newcomer.config} was changed and is kept" in output
        assert f"! user unit: {newcomer.unit} was changed and is kept" in output
        assert "! tool of Claude Code: was changed and is kept" in output
    assert newcomer.calls()[count:] == []
    assert newcomer.config.read_text().endswith("# mine\n")
    assert not (newcomer.home / ".claude/skills").exists()


def test_init_keeps_files_that_are_not_its_own(newcomer):
    """An existing unit, skill and server of the user survive `init` and its undo."""
    newcomer.install("systemctl", "claude")
    skill = newcomer.home / ".claude/skills/brainsurgeon/SKILL.md"
    for path in (newcomer.unit, skill):
        path.parent.mkdir(parents=True)
        path.write_text("mine\n")
    server = {"mcpServers": {"brainsurgeon": {"command": "/opt/other"}}}
    (newcomer.home / ".claude.json").write_text(json.dumps(server))
    before = newcomer.files()
    result = newcomer.init("--yes", "--systemd", "--mcp", "claude")

    assert result.returncode == 0
    assert result.stdout.decode().count("(exists and differs: left unchanged)") == 4
    newcomer.init("--undo", "--yes")
    assert newcomer.files() == before
    assert newcomer.calls() == []


def test_init_twice_changes_nothing_more(newcomer):
    """The second time every step is reported as present already."""
    newcomer.install("openclaw", "claude")
    newcomer.init("--yes", "--mcp", "openclaw")
    after, called = newcomer.files(), newcomer.calls()
    result = newcomer.init("--yes", "--mcp", "openclaw")

    assert result.returncode == 0
    assert result.stdout.decode().count("is there already") == 4
    assert (newcomer.files(), newcomer.calls()) == (after, called)


def test_init_updates_a_skill_of_an_older_version(newcomer):
    """A skill that is unchanged since an older `init` is overwritten, and undo removes it."""
    newcomer.install("claude")
    before = newcomer.files()
    newcomer.init("--yes", "--mcp", "claude")
    skill = newcomer.home / ".claude/skills/brainsurgeon/SKILL.md"
    text = skill.read_text()
    record = json.loads(newcomer.record.read_text())
    old = next(step for step in record["done"] if step.get("path") == str(skill))
    skill.write_text("of an older version\n")
    old["digest"] = digest_of(str(skill))
    newcomer.record.write_text(json.dumps(record))
    result = newcomer.init("--yes", "--mcp", "claude")

    assert b"overwrite" in result.stdout
    assert skill.read_text() == text
    assert newcomer.init("--undo", "--yes").returncode == 0
    assert newcomer.files() == before


def test_init_reports_a_command_that_fails(newcomer):
    """It names the command and its exit code, exits 1, and can be undone.

    A service is enabled before it is started, so undo disables it even if it did not start.
    """
    newcomer.install("systemctl")
    before = newcomer.files()
    refuse = newcomer.home / "refuse"
    refuse.touch()
    result = newcomer.init("--yes", "--systemd")
    refuse.unlink()

    assert result.returncode == 1
    assert b"`systemctl --user enable --now brainsurgeon` ended with 1" in result.stdout
    assert newcomer.init("--undo", "--yes").returncode == 0
    assert ["systemctl", "--user", "disable", "--now", "brainsurgeon"] in newcomer.calls()
    assert newcomer.files() == before


@contextmanager
def largest_file(size):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_init_leaves_no_part_of_a_file_on_a_full_disk(tmp_path):
    """A part of a file would be kept as the user's. An older file stays recorded and removable."""
    path, record = tmp_path / "SKILL.md", init.Record(str(tmp_path / "state"))
    with largest_file(2000):
        [failed] = init.carry_out([init.FileStep("skill", str(path), "x" * 5000, "new")], record)
    assert (failed.left, path.exists(), record.entries) == (True, False, [])

    init.carry_out([init.FileStep("skill", str(path), "old", "new")], record)
    with largest_file(2000):
        init.carry_out([init.FileStep("skill", str(path), "x" * 5000, "ours")], record)
    assert path.read_text() == "old"
    assert [*tmp_path.glob("SKILL.md*")] == [path]
    assert [done.left for done in init.undo(record)] == [False]


def test_init_replaces_no_other_file_and_keeps_the_mode(tmp_path):
    """Files and links of others beside it stay as they are, whatever their names."""
    path, record = tmp_path / "SKILL.md", init.Record(str(tmp_path / "state"))
    init.carry_out([init.FileStep("skill", str(path), "old", "new")], record)
    path.chmod(0o640)
    (tmp_path / "other").write_text("theirs")
    (tmp_path / "SKILL.md.new").symlink_to(tmp_path / "other")

    [done] = init.carry_out([init.FileStep("skill", str(path), "new", "ours")], record)

    assert (done.left, path.read_text(), path.stat().st_mode & 0o777) == (False, "new", 0o640)
    assert (tmp_path / "other").read_text() == "theirs"
    assert sorted(each.name for each in tmp_path.glob("SKILL*")) == ["SKILL.md", "SKILL.md.new"]
    assert (tmp_path / "SKILL.md.new").is_symlink()


def test_init_does_nothing_that_it_cannot_record(tmp_path):
    """On a full disk, one line says so, and no file is left that undo would not remove."""
    path, record = tmp_path / "SKILL.md", init.Record(str(tmp_path / "state"))
    with (
        largest_file(10),
        pytest.raises(FailedError, match=r"init\.json cannot be written: File too large; nothing"),
    ):
        init.carry_out([init.FileStep("skill", str(path), "x", "new")], record)

    assert not path.exists()


def test_init_records_a_file_once_that_the_user_removed(tmp_path):
    """If `init` writes it again, undo removes it once."""
    path, record = tmp_path / "SKILL.md", init.Record(str(tmp_path / "state"))
    for content in ("old", "new"):
        path.unlink(missing_ok=True)
        init.carry_out([init.FileStep("skill", str(path), content, "new")], record)
    done = init.undo(record)

    assert len(done) == 1
    assert not path.exists()


def test_init_refuses_an_agent_that_is_not_installed(newcomer):
    """Without the agent's command in PATH it exits 2 before it writes a file."""
    before = newcomer.files()
    result = newcomer.init("--yes", "--mcp", "claude")

    assert result.returncode == 2
    assert "there is no command claude in PATH" in error_line(result)
    assert newcomer.files() == before


def test_init_adds_one_line_to_the_crontab(newcomer):
    """Repeated, it adds no second line; undo removes the line and keeps the others."""
    table = newcomer.install_crontab()
    table.write_text("0 5 * * * backup\n")
    codes = [newcomer.init("--yes", "--cron").returncode for _ in range(3)]

    assert codes == [0, 0, 0]
    first, ours = table.read_text().splitlines()
    assert first == "0 5 * * * backup"
    assert ours.startswith("*/2 * * * * ")
    assert ours.endswith("scan --once")
    assert newcomer.init("--undo", "--yes").returncode == 0
    assert table.read_text() == "0 5 * * * backup\n"


@pytest.mark.parametrize("fails", [False, True], ids=["readable", "unreadable"])
def test_init_undo_removes_a_crontab_that_it_made(newcomer, fails):
    """A crontab that cannot be read at undo is kept, and undo exits 1."""
    table = newcomer.install_crontab()
    newcomer.init("--yes", "--cron")
    assert table.exists()
    if fails:
        newcomer.install_crontab("echo no entry >&2; exit 1")
    result = newcomer.init("--undo", "--yes")

    assert (result.returncode == 1, table.exists()) == (fails, fails)
    assert not fails or table.read_text()


def test_init_refuses_an_invalid_configuration(newcomer):
    """It exits 2 with the problems and writes nothing."""
    newcomer.config.parent.mkdir(parents=True)
    newcomer.config.write_text("keep_recent = 'x'\n")
    result = newcomer.init("--yes")

    assert result.returncode == 2
    assert b"keep_recent: wants a whole number" in result.stderr
    assert not newcomer.record.exists()


def test_init_reports_a_home_that_cannot_be_written(own_home):
    """It says what cannot be written and leaves no file behind."""
    own_home.chmod(0o500)
    os.chmod(own_home.parent, 0o755)
    for above in own_home.parents:
        if str(above).startswith("/tmp/pytest"):
            os.chmod(above, 0o755)
    result = run("init", "--yes", ordinary=True)
    own_home.chmod(0o700)

    assert result.returncode in (1, 7)
    assert b"cannot be" in result.stdout + result.stderr
    assert list(own_home.iterdir()) == []


def test_init_undo_refuses_a_damaged_record(newcomer):
    """A record that does not parse ends undo with one line and exit code 1."""
    newcomer.record.parent.mkdir(parents=True)
    newcomer.record.write_text("{")
    result = newcomer.init("--undo", "--yes")

    assert result.returncode == 1
    assert f"{newcomer.record}: cannot be read: it is damaged" in error_line(result)


def test_init_asks_before_each_step_on_a_terminal(newcomer, run_on_terminal):
    """An offer that is answered with no is not carried out."""
    newcomer.install("claude")
    shown = run_on_terminal("init", typed="y\nn\n", PATH=newcomer.path)

    assert shown.count("do this?") == 2
    assert "claude mcp add --scope user brainsurgeon" in shown
    assert newcomer.config.exists()
    assert newcomer.calls() == []


def test_init_exits_with_2_if_the_answer_is_no(newcomer, run_on_terminal):
    """It does so if what was asked for is declined, and says what was done; `--undo` likewise."""
    newcomer.install("claude")
    before, words = newcomer.files(), ("init", "--mcp", "claude")
    declined = run_on_terminal(*words, typed="n\nn\n", code=2, PATH=newcomer.path)
    assert newcomer.files() == before
    partly = run_on_terminal(*words, typed="y\nn\n", code=2, PATH=newcomer.path)
    before = newcomer.files()
    kept = run_on_terminal("init", "--undo", typed="n\n", code=2)

    assert "nothing was done: the answer was no" in declined
    assert "not everything was done: the answer was no" in partly
    assert "nothing was done: the answer was no" in kept
    assert newcomer.files() == before


def test_init_names_the_directory_that_may_not_be_entered(unprivileged_world):
    """The record is not said to be damaged, and nothing is done."""
    shut = unprivileged_world.base / "shut"
    shut.mkdir()
    config = unprivileged_world.config_file(state_dir=str(shut / "state"))
    shut.chmod(0)
    for words in (("--undo", "--yes"), ("--yes",)):
        line = error_line(run("init", *words, "--config", config, ordinary=True))
        assert f"cannot be read: this user may not enter {shut}; nothing was done" in line
    result = run("config", "--config", shut / "config.toml", ordinary=True)
    assert f"cannot be read: this user may not enter {shut}".encode() in result.stderr


def test_init_undo_of_a_named_configuration_leaves_others(newcomer):
    """Only the steps done for it are undone; without a name, all are."""
    newcomer.install("claude")
    assert newcomer.init("--yes").returncode == 0
    before = newcomer.files()
    config = newcomer.home / "other.toml"
    for name in (config, config.relative_to("/")):  # the program runs in /
        words = ("--config", name, "--yes")
        assert newcomer.init("--mcp", "claude", *words).returncode == 0
        assert newcomer.calls()[-1][-2:] == ["--config", str(config)]
        result = newcomer.init("--undo", *words)

        assert (result.returncode, result.stderr) == (0, b"")
        after = {path: is_ for path, is_ in newcomer.files().items() if path != newcomer.record}
        assert {path: before.get(path) for path in after} == after
        assert newcomer.config in after
        assert newcomer.page in after
    assert newcomer.init("--undo", *words).stdout == b"there is nothing to undo\n"
    newcomer.init("--undo", "--yes")
    assert not newcomer.config.exists()
    assert not newcomer.record.exists()


def test_init_undo_removes_what_earlier_versions_recorded(newcomer):
    """Steps whose configuration was not recorded are undone with the last configuration."""
    newcomer.init("--yes")
    record = json.loads(newcomer.record.read_text())
    for entry in record["done"]:
        entry.pop("config", None)
    newcomer.record.write_text(json.dumps(record))
    newcomer.init("--undo", "--yes", "--config", newcomer.config)

    assert not newcomer.page.exists()
    assert not newcomer.record.exists()


def test_init_as_json_is_one_document(newcomer):
    """With `--json` homes, offers and steps are one document, and no question is asked."""
    refused = newcomer.init("--json")
    result = newcomer.init("--json", "--yes")
    answer = json_output(result)

    assert refused.returncode == json_output(refused)["exit_code"] == 2
    assert result.returncode == 0
    assert [home["agent"] for home in answer["homes"]] == [
        "OpenClaw", "Claude Code", "Codex", "Copilot CLI", "Gemini CLI",
    ]  # fmt: skip
    assert answer["offers"][0]["steps"] == [
        {"what": "configuration", "state": "new", "path": str(newcomer.config)},
        {"what": "man page", "state": "new", "path": str(newcomer.page)},
    ]
    assert answer["sessions_changed"] == 2
    assert answer["steps"][0]["outcome"] == "done"
    assert json_output(newcomer.init("--undo", "--json", "--yes"))["steps"][1]["what"] == (
        "configuration"
    )
    assert Path(answer["offers"][0]["steps"][0]["path"]).exists() is False


@pytest.mark.parametrize("data", [".local/share", "data"])
def test_init_installs_completion_for_the_shell(newcomer, data):
    """In bash, a command line is completed after `init`, and `--undo` removes the file."""
    place = {} if data == ".local/share" else {"XDG_DATA_HOME": str(newcomer.home / data)}
    newcomer.init("--yes", SHELL="/bin/bash", **place)
    script = newcomer.home / data / "bash-completion/completions/brainsurgeon"
    words = "COMP_WORDS=(brainsurgeon doc) COMP_CWORD=1"
    completed = subprocess.run(
        ["bash", "-c", f'. "$1"; {words}; _brainsurgeon_completion "$2"; echo "$COMPREPLY"', "-",
         script, Path(sys.executable).parent / "brainsurgeon"],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    newcomer.init("--undo", "--yes")

    assert completed == "doctor\n"
    assert not script.exists()


@pytest.mark.parametrize("program", [
    ("/nowhere/brainsurgeon",), ("sh", "-c", "echo half; exit 1"), (sys.executable, "-m", "no"),
], ids=["missing", "fails", "module"])  # fmt: skip
def test_init_installs_no_completion_that_the_program_did_not_print(newcomer, monkeypatch, program):
    """If the program cannot print a complete script, the other files are installed without it."""
    monkeypatch.setenv("SHELL", "/bin/bash")
    setup = init.set_up(
        program, None, systemd=False, cron=False, mcp=(), plugin=None, offer_more=False
    )

    assert [step.what for step in setup.offers[0].steps] == ["configuration", "man page"]


def test_init_undo_prints_how_to_purge_the_store(newcomer):
    """If only the removed configuration named the state directory, the printed command names it."""
    state = newcomer.home / "state directory"
    assert newcomer.init("--yes", BRAINSURGEON_STATE_DIR=str(state)).returncode == 0
    assert run("scan", "--once").returncode == 0
    assert run("restore", "--all", "--pristine").returncode == 0
    result = newcomer.init("--undo", "--yes")
    last_line = result.stdout.decode().splitlines()[-1]
    *_, variable, program, store, purge = shlex.split(last_line)
    name, _, directory = variable.partition("=")

    assert (program, store, purge) == ("brainsurgeon", "store", "purge")
    assert directory == str(state)
    assert run("store", "purge", "--yes", **{name: directory}).returncode == 0
    assert not state.exists()
