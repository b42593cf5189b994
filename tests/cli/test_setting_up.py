"""`init` as a newcomer meets it: what it finds, shows, asks for, does, and takes back."""

import json
import os
import pty
import shlex
import subprocess
import tomllib
from pathlib import Path

import pytest

from brainsurgeon import __version__
from brainsurgeon.config import load
from brainsurgeon.operations.init import digest_of
from building.claude import ClaudeConversation
from building.claw import Claw
from building.processes import PROGRAM, error_line, json_output, run
from building.world import TOP, Conversation

# Notes how it was called and, like the agent of its name, what it was told.
AGENT = """#!{python}
import json, os, sys
from pathlib import Path
home, words = Path(os.environ["HOME"]), sys.argv[1:]
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
    command, *arguments = words[words.index("--") + 1:]
    name = words[words.index("--") - 1]
    server = {{"command": command, "args": arguments}}
    if "{name}" == "codex":
        text = "".join(f"{{key}} = {{json.dumps(value)}}\\n" for key, value in server.items())
        place.write_text(f"[mcp_servers.{{name}}]\\n" + text)
    else:
        place.write_text(json.dumps({{"mcpServers": {{name: server}}}}))
"""
NOTED = {
    "openclaw": ".openclaw/openclaw.json", "claude": ".claude.json", "codex": ".codex/config.toml",
    "systemctl": "nothing",
}  # fmt: skip


class Newcomer:
    """Somebody with sessions of two agents, the agents' commands, and nothing of ours."""

    def __init__(self, home, tools):
        self.home, self.tools = home, tools
        self.config = home / ".config/brainsurgeon/config.toml"
        self.unit = home / ".config/systemd/user/brainsurgeon.service"
        self.page = home / ".local/share/man/man1/brainsurgeon.1"
        self.record = home / ".local/state/brainsurgeon/init.json"
        self._sessions(".openclaw/agents/main/sessions/s.jsonl", Conversation())
        self._sessions(".claude/projects/-w/t.jsonl", ClaudeConversation())
        (home / ".codex/sessions").mkdir(parents=True)

    def _sessions(self, place, talk):
        talk.turn("x" * 5000)
        talk.turn("y" * 700)
        path = self.home / place
        path.parent.mkdir(parents=True)
        path.write_bytes(talk.bytes())
        os.utime(path, (10**9, 10**9))

    def has(self, *names):
        self.tools.mkdir(exist_ok=True)
        for name in names:
            path = self.tools / name
            path.write_text(AGENT.format(python=PROGRAM[0], name=name, place=NOTED[name]))
            path.chmod(0o755)

    def crontab(self, listing="cat {}"):
        table, path = self.home / "table", self.tools / "crontab"
        self.tools.mkdir(exist_ok=True)
        path.write_text(
            f"#!/bin/sh\ncase $1 in -) cat > {table}.new && mv {table}.new {table};;"
            f" -r) rm {table};; -l) {listing.format(table)};; esac\n"
        )
        path.chmod(0o755)
        return table

    def types(self, *words, **environment):
        path = f"{self.tools}:/usr/bin:/bin"
        return run("init", *words, PATH=path, XDG_RUNTIME_DIR="/nowhere", **environment)

    def answers(self, *words, typed="y\n"):
        """Run `init` on a terminal, and type an answer to each question; give what is shown."""
        ours, theirs = pty.openpty()
        with subprocess.Popen(
            [*PROGRAM, "init", *words], stdin=theirs, stdout=theirs, stderr=theirs,
            env={**os.environ, "PATH": f"{self.tools}:/usr/bin:/bin"},
        ) as process:  # fmt: skip
            os.close(theirs)
            os.write(ours, typed.encode())
            shown = b""
            while chunk := _read(ours):
                shown += chunk
        os.close(ours)
        return process.returncode, shown.decode()

    def called(self):
        """Give the words of each command of others that was run to change something."""
        path = self.home / "called"
        listed = (
            [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        )
        return [one for one in listed if one[2][:3] != "is-"]

    def files(self):
        return {
            path.relative_to(self.home): (path.read_bytes() if path.is_file() else None,
                                          path.lstat().st_mode)
            for path in sorted(self.home.rglob("*")) if path.name != "called"
        }  # fmt: skip


def _read(descriptor):
    try:
        return os.read(descriptor, 10_000)
    except OSError:  # so says a terminal whose other end was closed
        return b""


@pytest.fixture
def newcomer(own_home, tmp_path):
    return Newcomer(own_home, tmp_path / "tools")


# --- looking -------------------------------------------------------------------------------------


def test_it_finds_the_agents_and_says_what_a_run_would_do(newcomer):
    """A line a session, the largest gain first, and the sum; of the values only how many."""
    before = newcomer.files()
    said = newcomer.types("--dry-run")
    lines = said.stdout.decode().splitlines()

    assert said.returncode == 0
    assert [line.split()[1] for line in lines if line.startswith("found ")] == [
        "OpenClaw:", "Claude", "Codex:",
    ]  # fmt: skip
    gains = [line for line in lines if line.startswith(("main/s", "claude-code:-w/t"))]
    assert len(gains) == 2
    assert sum("2 would change" in line for line in lines) == 1
    assert "xxx" not in said.stdout.decode()
    assert newcomer.files() == before


def test_databases_are_found_as_files_are(newcomer):
    """Those of OpenClaw are counted, and the sessions in them would change, too."""
    Claw(newcomer.home / ".openclaw", agent="other")
    said = newcomer.types("--dry-run").stdout.decode()

    assert "1 database of OpenClaw examined" in said
    assert "other/00000000-0000-4000-8000-" in said


def test_many_sessions_are_counted_not_listed(newcomer):
    """A dozen of lines is what a person reads; with `--verbose` there is one for each value."""
    directory = newcomer.home / ".openclaw/agents/main/sessions"
    for number in range(30):
        copy = directory / f"more{number}.jsonl"
        copy.write_bytes((directory / "s.jsonl").read_bytes())
        os.utime(copy, (10**9, 10**9))
    short = newcomer.types("--dry-run").stdout.decode()
    long = newcomer.types("--dry-run", "--verbose").stdout.decode()

    assert len(short.splitlines()) < 30
    assert "… and 20 more sessions (--verbose" in short
    assert short.endswith("nothing was done: this was a dry run; brainsurgeon init --yes does it\n")
    assert long.count("tool_result of 5,000 characters") >= 31


def test_nothing_is_done_where_nobody_can_be_asked(newcomer):
    """It shows everything, and ends with 2 and what to add."""
    before = newcomer.files()
    done = newcomer.types()

    assert done.returncode == 2
    assert b"add --yes" in done.stderr
    assert b"config.toml" in done.stdout
    assert newcomer.files() == before


def test_a_home_without_agents_is_told_where_they_would_be(own_home):
    """And gets a configuration that looks there once they are."""
    done = run("init", "--yes")
    settings, _ = load()

    assert done.returncode == 0
    assert b"no agent has sessions here yet" in done.stdout
    assert [root.path for root in settings.root_directories()] == [
        str(own_home / ".openclaw/agents")
    ]
    assert not settings.roots


# --- doing and undoing ---------------------------------------------------------------------------


def test_a_configuration_is_written_that_covers_every_agent(newcomer):
    """It keeps the comments of the example, sets nothing but the roots, and can be read by all."""
    done = newcomer.types("--yes")
    text = newcomer.config.read_text()
    settings, warnings = load()

    assert (done.returncode, done.stderr, warnings) == (0, b"", [])
    assert set(tomllib.loads(text)) == {"roots"}
    assert [root.path for root in settings.roots] == [
        str(newcomer.home / place)
        for place in (".openclaw/agents", ".claude/projects", ".codex/sessions")
    ]
    assert settings.model_copy(update={"roots": ()}) == load(os.devnull)[0]
    for line in (TOP / "config.toml.example").read_text().partition("# [[roots]]")[0].splitlines():
        assert line in text
    assert newcomer.config.stat().st_mode & 0o777 == 0o600
    assert b"2 sessions: 2 changed" in run("scan", "--once").stdout


def test_a_configuration_that_is_there_is_never_written_over(newcomer):
    """It is read, kept, and said what it leaves out."""
    newcomer.config.parent.mkdir(parents=True)
    newcomer.config.write_text("keep_recent = 7\n")
    done = newcomer.types("--yes")

    assert done.returncode == 0
    assert newcomer.config.read_text() == "keep_recent = 7\n"
    assert b"is there already" in done.stdout
    assert b"Claude Code keeps sessions in" in done.stdout
    assert newcomer.types("--undo", "--yes").returncode == 0
    assert newcomer.config.read_text() == "keep_recent = 7\n"


def test_what_the_environment_moves_a_service_finds_too(newcomer, tmp_path):
    """A state directory of the shell is written down, and a file elsewhere is named to all."""
    newcomer.has("systemctl")
    moved = {"XDG_STATE_HOME": str(tmp_path / "st ate"), "XDG_CONFIG_HOME": str(tmp_path / "c")}
    done = newcomer.types("--yes", "--systemd", **moved)
    config = tmp_path / "c/brainsurgeon/config.toml"
    unit = newcomer.unit.read_text()

    assert done.returncode == 0, done.stderr
    assert load(str(config))[0].state_dir == str(tmp_path / "st ate/brainsurgeon")
    assert f"run --config {config}\n" in unit
    assert f'ReadWritePaths="-{tmp_path}/st ate/brainsurgeon"\n' in unit


def test_everything_that_is_asked_for_is_done_by_the_agents_own_commands(newcomer):
    """Absolute paths, the scope of the user, each bound to what its agent may see."""
    newcomer.has("systemctl", "openclaw", "claude", "codex")
    words = [word for agent in ("openclaw", "claude", "codex") for word in ("--mcp", agent)]
    done = newcomer.types("--yes", "--systemd", *words)
    program = newcomer.unit.read_text().partition("ExecStart=")[2].split()[0]

    assert (done.returncode, done.stderr) == (0, b"")
    assert os.path.isabs(program)
    assert newcomer.called() == [
        ["systemctl", "--user", "daemon-reload"],
        ["systemctl", "--user", "enable", "--now", "brainsurgeon"],
        ["openclaw", "mcp", "set", "brainsurgeon",
         json.dumps({"command": program, "args": ["mcp", "--agent", "main"]})],
        ["claude", "mcp", "add", "--scope", "user", "brainsurgeon", "--", program, "mcp",
         "--agent", "."],
        ["codex", "mcp", "add", "brainsurgeon", "--", program, "mcp"],
    ]  # fmt: skip
    for agent, name in (
        (".openclaw", "openclaw"), (".claude", "claude-code"), (".codex", "claude-code"),
    ):  # fmt: skip
        skill = "skills/brainsurgeon/SKILL.md"
        assert (newcomer.home / agent / skill).read_text() == (
            TOP / "deploy" / name / skill
        ).read_text()


def test_the_plugin_of_claude_code_brings_tool_skill_and_hooks(newcomer):
    """Its own commands install it, and it takes the place of the tool; undoing removes it."""
    newcomer.has("claude")
    refused = newcomer.types("--hooks", "codex")
    done = newcomer.types("--yes", "--hooks", "claude", "--mcp", "claude")
    directory = str(TOP / "deploy" / "claude-code")

    assert refused.returncode == 2
    assert (done.returncode, done.stderr) == (0, b"")
    assert newcomer.called() == [
        ["claude", "plugin", "marketplace", "add", directory],
        ["claude", "plugin", "install", "brainsurgeon@brainsurgeon"],
    ]
    settings = newcomer.home / ".claude/settings.json"
    settings.write_text('{"enabledPlugins": {"brainsurgeon@brainsurgeon": true}}')
    newcomer.types("--yes", "--hooks", "claude")
    assert len(newcomer.called()) == 2
    newcomer.types("--undo", "--yes")
    assert newcomer.called()[2:] == [
        ["claude", "plugin", "uninstall", "brainsurgeon@brainsurgeon"],
        ["claude", "plugin", "marketplace", "remove", "brainsurgeon"],
    ]


def test_a_tool_that_the_plugin_makes_superfluous_is_named(newcomer):
    """Otherwise the agent has it twice, even if `init` registered the first one."""
    newcomer.has("claude")
    newcomer.types("--yes", "--mcp", "claude")
    done = newcomer.types("--yes", "--hooks", "claude")

    assert b"unregister the second tool: claude mcp remove" in done.stdout


def test_an_agent_that_is_named_needs_no_sessions_yet(newcomer):
    """Its directory becomes a root, so that a new machine can be set up before its first turn."""
    newcomer.has("claude")
    away = newcomer.home / "away"
    done = newcomer.types("--yes", "--hooks", "claude", CLAUDE_CONFIG_DIR=str(away))

    assert done.returncode == 0
    assert f"found Claude Code: {away}/projects (no sessions yet)" in done.stdout.decode()
    assert f'path = "{away}/projects"' in newcomer.config.read_text()


def test_what_the_plugin_will_not_find_is_said(newcomer):
    """It starts the program by its name and without options, unlike a registered tool."""
    newcomer.has("claude")
    own = newcomer.home / "own.toml"
    other = newcomer.types("--dry-run", "--hooks", "claude", "--config", str(own))
    link = newcomer.home / ".local/bin/brainsurgeon"
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to("/bin/true")
    usual = newcomer.types("--dry-run", "--hooks", "claude")

    assert f"the usual configuration, not {own}".encode() in other.stdout
    assert b"put a link there" in other.stdout
    assert b"usual configuration" not in usual.stdout
    assert b"put a link there" not in usual.stdout


def test_undoing_ends_where_the_user_removed_the_plugin(newcomer):
    """What Claude Code no longer has counts as undone; what it cannot remove stays recorded."""
    newcomer.has("claude")
    newcomer.types("--yes", "--hooks", "claude")
    (newcomer.tools / "claude").write_text("#!/bin/sh\nexit 1\n")
    known = newcomer.home / ".claude/plugins/known_marketplaces.json"
    known.parent.mkdir(parents=True)
    known.write_text('{"brainsurgeon": {}}')
    first = newcomer.types("--undo", "--yes")
    known.write_text("{}")
    second = newcomer.types("--undo", "--yes")

    assert first.returncode == 1
    assert b"plugin of Claude Code: was gone already" in first.stdout
    assert second.returncode == 0
    assert b"marketplace of Claude Code: was gone already" in second.stdout


def test_a_marketplace_that_was_there_before_stays(newcomer):
    """Only the plugin is installed from it, and undoing removes only that."""
    newcomer.has("claude")
    known = newcomer.home / ".claude/plugins/known_marketplaces.json"
    known.parent.mkdir(parents=True)
    known.write_text('{"brainsurgeon": {}}')
    newcomer.types("--yes", "--hooks", "claude")
    newcomer.types("--undo", "--yes")

    assert [words[2] for words in newcomer.called()] == ["install", "uninstall"]


def test_the_files_of_the_plugin_say_what_the_program_is(newcomer):
    """Its version is ours, and its hooks and its server begin with commands of ours."""
    place = TOP / "deploy" / "claude-code"
    about = json.loads((place / ".claude-plugin/plugin.json").read_text())
    hooks = json.loads((place / "hooks/hooks.json").read_text())["hooks"]
    server = json.loads((place / ".mcp.json").read_text())["mcpServers"]["brainsurgeon"]

    assert about["version"] == __version__
    assert hooks.keys() == {"Stop", "SessionStart"}
    for listed in hooks.values():
        assert "brainsurgeon hook" in listed[0]["hooks"][0]["command"]
    assert "exec brainsurgeon mcp" in server["args"][-1]
    assert server["alwaysLoad"] is True


def test_undoing_takes_back_exactly_what_was_done(newcomer):
    """Files, directories and what others were told are as they were before; twice is no error."""
    newcomer.has("systemctl", "openclaw", "claude", "codex")
    before = newcomer.files()
    words = [word for agent in ("openclaw", "claude", "codex") for word in ("--mcp", agent)]
    newcomer.types("--yes", "--systemd", *words)

    assert newcomer.files() != before
    looked = newcomer.types("--undo", "--dry-run")
    done = newcomer.types("--undo", "--yes")

    assert looked.stdout in done.stdout
    assert (done.returncode, done.stderr) == (0, b"")
    assert newcomer.files() == before
    assert [one[0:3] for one in newcomer.called()][-5:] == [
        ["codex", "mcp", "remove"], ["claude", "mcp", "remove"], ["openclaw", "mcp", "unset"],
        ["systemctl", "--user", "disable"], ["systemctl", "--user", "daemon-reload"],
    ]  # fmt: skip
    again = newcomer.types("--undo", "--yes")
    assert b"store purge" not in done.stdout  # nothing was ever stored
    assert (again.returncode, again.stdout) == (0, b"there is nothing to undo\n")


def test_what_was_changed_since_is_left_and_named(newcomer):
    """A file, a unit and a server that somebody changed stay, and are named again next time."""
    newcomer.has("systemctl", "claude")
    newcomer.types("--yes", "--systemd", "--mcp", "claude")
    for path in (newcomer.config, newcomer.unit):
        path.write_text(path.read_text() + "# mine\n")
    other = {"mcpServers": {"brainsurgeon": {"command": "/opt/other", "args": []}}}
    (newcomer.home / ".claude.json").write_text(json.dumps(other))
    count = len(newcomer.called())
    for _ in range(2):
        done = newcomer.types("--undo", "--yes")
        said = done.stdout.decode()

        assert done.returncode == 1
        assert f"! configuration: {newcomer.config} was changed since: it stays" in said
        assert f"! user unit: {newcomer.unit} was changed since" in said
        assert "! tool of Claude Code: was changed since" in said
    assert newcomer.called()[count:] == []
    assert newcomer.config.read_text().endswith("# mine\n")
    assert not (newcomer.home / ".claude/skills").exists()


def test_what_was_there_before_is_neither_written_over_nor_taken_back(newcomer):
    """A unit, a skill and a server of somebody else's stay as they are."""
    newcomer.has("systemctl", "claude")
    skill = newcomer.home / ".claude/skills/brainsurgeon/SKILL.md"
    for path in (newcomer.unit, skill):
        path.parent.mkdir(parents=True)
        path.write_text("mine\n")
    server = {"mcpServers": {"brainsurgeon": {"command": "/opt/other"}}}
    (newcomer.home / ".claude.json").write_text(json.dumps(server))
    before = newcomer.files()
    done = newcomer.types("--yes", "--systemd", "--mcp", "claude")

    assert done.returncode == 0
    assert done.stdout.decode().count("exists and is not brainsurgeon's: left unchanged") == 4
    newcomer.types("--undo", "--yes")
    assert newcomer.files() == before
    assert newcomer.called() == []


def test_doing_it_twice_changes_nothing_more(newcomer):
    """The second time everything is there already."""
    newcomer.has("openclaw", "claude")
    newcomer.types("--yes", "--mcp", "openclaw")
    after, called = newcomer.files(), newcomer.called()
    done = newcomer.types("--yes", "--mcp", "openclaw")

    assert done.returncode == 0
    assert done.stdout.decode().count("is there already") == 4
    assert (newcomer.files(), newcomer.called()) == (after, called)


def test_a_later_version_brings_its_own_files_up_to_date(newcomer):
    """A skill that is as we wrote it gives way; undone is what stands then."""
    newcomer.has("claude")
    before = newcomer.files()
    newcomer.types("--yes", "--mcp", "claude")
    skill = newcomer.home / ".claude/skills/brainsurgeon/SKILL.md"
    text = skill.read_text()
    record = json.loads(newcomer.record.read_text())
    old = next(one for one in record["done"] if one.get("path") == str(skill))
    skill.write_text("of an older version\n")
    old["digest"] = digest_of(str(skill))
    newcomer.record.write_text(json.dumps(record))
    done = newcomer.types("--yes", "--mcp", "claude")

    assert b"overwrite" in done.stdout
    assert skill.read_text() == text
    assert newcomer.types("--undo", "--yes").returncode == 0
    assert newcomer.files() == before


def test_what_fails_is_said_with_the_last_words_of_the_command(newcomer):
    """The unit stays noted and can be taken back; it ends with 1."""
    newcomer.has("systemctl")
    before = newcomer.files()
    refuse = newcomer.home / "refuse"
    refuse.touch()
    done = newcomer.types("--yes", "--systemd")
    refuse.unlink()

    assert done.returncode == 1
    assert b"`systemctl --user enable --now brainsurgeon` ended with 1" in done.stdout
    assert newcomer.types("--undo", "--yes").returncode == 0
    assert newcomer.files() == before


# --- being refused -------------------------------------------------------------------------------


def test_an_agent_that_is_not_there_is_named_before_anything_is_done(newcomer):
    """No such agent: exit code 2, no file."""
    before = newcomer.files()
    tool = newcomer.types("--yes", "--mcp", "claude")

    assert tool.returncode == 2
    assert "there is no command claude in PATH" in error_line(tool)
    assert newcomer.files() == before


def test_a_line_for_cron_is_added_once_and_taken_back(newcomer):
    """However often it runs, one line stands in the crontab; others stay, also when undone."""
    table = newcomer.crontab()
    table.write_text("0 5 * * * backup\n")
    done = [newcomer.types("--yes", "--cron") for _ in range(3)]

    assert [one.returncode for one in done] == [0, 0, 0]
    first, ours = table.read_text().splitlines()
    assert first == "0 5 * * * backup"
    assert ours.startswith("*/2 * * * * ")
    assert ours.endswith("scan --once")
    assert newcomer.types("--undo", "--yes").returncode == 0
    assert table.read_text() == "0 5 * * * backup\n"


@pytest.mark.parametrize("fails", [False, True])
def test_undoing_leaves_no_empty_crontab_and_empties_none(newcomer, fails):
    """A table that was made for our line goes; one that cannot be read now stays."""
    table = newcomer.crontab()
    newcomer.types("--yes", "--cron")
    assert table.exists()
    if fails:
        newcomer.crontab("echo no entry >&2; exit 1")
    done = newcomer.types("--undo", "--yes")

    assert (done.returncode == 1, table.exists()) == (fails, fails)
    assert not fails or table.read_text()


def test_a_configuration_with_problems_is_named_as_ever(newcomer):
    """It ends with 2 and every problem, and writes nothing."""
    newcomer.config.parent.mkdir(parents=True)
    newcomer.config.write_text("keep_recent = 'x'\n")
    done = newcomer.types("--yes")

    assert done.returncode == 2
    assert b"keep_recent: wants a whole number" in done.stderr
    assert not newcomer.record.exists()


def test_a_home_that_cannot_be_written_is_one_line(own_home):
    """It says what cannot be written, and leaves nothing behind."""
    own_home.chmod(0o500)
    os.chmod(own_home.parent, 0o755)
    for above in own_home.parents:
        if str(above).startswith("/tmp/pytest"):
            os.chmod(above, 0o755)
    done = run("init", "--yes", ordinary=True)
    own_home.chmod(0o700)

    assert done.returncode in (1, 7)
    assert b"cannot be" in done.stdout + done.stderr
    assert list(own_home.iterdir()) == []


def test_a_damaged_record_is_named(newcomer):
    """Nothing is taken back by guessing."""
    newcomer.record.parent.mkdir(parents=True)
    newcomer.record.write_text("{")
    done = newcomer.types("--undo", "--yes")

    assert done.returncode == 1
    assert f"{newcomer.record}: cannot be read: it is damaged" in error_line(done)


# --- being asked ---------------------------------------------------------------------------------


def test_on_a_terminal_each_offer_is_a_question(newcomer):
    """What is at hand is offered as well; a no leaves it alone."""
    newcomer.has("claude")
    code, shown = newcomer.answers(typed="y\nn\n")

    assert code == 0
    assert shown.count("do this?") == 2
    assert "claude mcp add --scope user brainsurgeon" in shown
    assert newcomer.config.exists()
    assert newcomer.called() == []


def test_the_answer_to_a_program_is_one_document(newcomer):
    """With `--json` what was found, offered and done; and nobody is asked."""
    refused = newcomer.types("--json")
    done = newcomer.types("--json", "--yes")
    said = json_output(done)

    assert refused.returncode == 2
    assert done.returncode == 0
    assert [one["agent"] for one in said["homes"]] == ["OpenClaw", "Claude Code", "Codex"]
    assert said["offers"][0]["steps"] == [
        {"what": "configuration", "state": "new", "path": str(newcomer.config)},
        {"what": "man page", "state": "new", "path": str(newcomer.page)},
    ]
    assert said["sessions_changed"] == 2
    assert said["steps"][0]["outcome"] == "done"
    assert json_output(newcomer.types("--undo", "--json", "--yes"))["steps"][1]["what"] == (
        "configuration"
    )
    assert Path(said["offers"][0]["steps"][0]["path"]).exists() is False


def test_after_an_undo_the_store_is_found_where_it_lies(newcomer):
    """Where only the configuration that went named the directory, what is typed next says it."""
    state = newcomer.home / "kept here"
    assert newcomer.types("--yes", BRAINSURGEON_STATE_DIR=str(state)).returncode == 0
    assert run("scan", "--once").returncode == 0
    assert run("restore", "--all", "--pristine").returncode == 0
    done = newcomer.types("--undo", "--yes")
    said = done.stdout.decode().splitlines()[-1]
    *_, variable, program, store, purge = shlex.split(said)
    name, _, directory = variable.partition("=")

    assert (program, store, purge) == ("brainsurgeon", "store", "purge")
    assert directory == str(state)
    assert run("store", "purge", "--yes", **{name: directory}).returncode == 0
    assert not state.exists()
