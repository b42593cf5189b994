"""The contracts of an agent's home, presence and installation."""

import fcntl
import json
import os
import re
import time

import pytest

from brainsurgeon.agents import AGENTS
from brainsurgeon.agents.agent import NAME, Presence
from brainsurgeon.agents.claude_code import CLAUDE_CODE
from brainsurgeon.agents.codex import CODEX
from brainsurgeon.agents.copilot import COPILOT
from brainsurgeon.agents.described import DESCRIBED_AGENT
from brainsurgeon.agents.gemini import GEMINI
from brainsurgeon.agents.openclaw import OPENCLAW
from brainsurgeon.agents.opencode import KILO, OPENCODE
from brainsurgeon.agents.pi import PI
from brainsurgeon.files import configurations
from building.gemini import running
from building.quill import QUILL
from building.world import TOP, file_states

UUID = "11111111-0000-4000-8000-000000000001"
SERVER = ["/opt/brainsurgeon", "mcp", "--agent", "a b"]
HOUR = 3600.0
OPEN_COPILOT, OPEN_GEMINI = (
    f"an open {title} has it in memory: waits for its exit"
    for title in ("Copilot CLI", "Gemini CLI")
)


def files(home):
    return file_states(home, directories=True)


class HomeContract:
    """The promises of every home."""

    agent = None
    variable = ""  # in the environment, which moves the home
    # Paths of sessions below the root, and their owners. None: the format names the owner. "": the
    # session does.
    sessions = {}  # noqa: RUF012
    others = ()  # of files that are no sessions

    @pytest.fixture
    def root(self, own_home, monkeypatch):
        monkeypatch.setenv(self.variable, str(own_home / "moved"))
        self.agent.home.note_roots([])
        yield self.agent.home.root()
        monkeypatch.undo()
        self.agent.home.note_roots([])

    def test_variable_moves_the_root(self, own_home, root, monkeypatch):
        """The root is below the directory in the variable, else below that of the user."""
        assert root.startswith(f"{own_home}/moved/")
        for value in ("", " ", None):
            if value is not None:
                monkeypatch.setenv(self.variable, value)
            else:
                monkeypatch.delenv(self.variable)
            assert self.agent.home.root().startswith(f"{own_home}/.")
        assert files(own_home) == {}

    def test_sessions_have_owners_above_them(self, root):
        """The directory of a session's owner is one above the session; each has its name."""
        home = self.agent.home
        for place, name in self.sessions.items():
            owner = home.owner(f"{root}/{place}")
            assert (owner and owner.name) == name
            assert owner is None or f"{root}/{place}".startswith(f"{owner.directory}/")
            assert name not in home.names_before(name or "")

    def test_other_files_are_no_sessions(self, root):
        """What only lies beside sessions has another name, or no owner in the home."""
        home = self.agent.home
        for place in self.others:
            path = f"{root}/{place}"
            assert is_side_file(home, path) or (home.holds(path) and home.owner(path) is None)
        for place in self.sessions:
            path = f"{root}/{place}"
            assert not is_side_file(home, path)
            assert not home.holds(path) or home.owner(path)

    def test_missing_home_is_read_without_errors(self, own_home, root):
        """Questions about a session and a directory that are not there create nothing."""
        home = self.agent.home
        for place in self.sessions:
            path = f"{root}/{place}"
            directory, name = os.path.split(path)
            assert home.keys(directory, name) == []
            assert home.window(directory, name) is None
            assert home.index_problems(directory) == []
            assert not home.superseded(os.path.dirname(directory))
            assert not home.started(path, None)(path)
        assert files(own_home) == {}


def is_side_file(home, path):
    return bool(home.side_files) and re.search(home.side_files, os.path.basename(path)) is not None


class PresenceContract:
    """The promises of every presence that has signs of work."""

    agent = None
    session = ""  # a path below the root
    variable = ""

    def begin(self, path):
        """Write what an agent writes when it begins to work on the session at a path."""
        raise NotImplementedError  # a contract alone is never run: each agent tells its own

    @pytest.fixture
    def path(self, own_home, monkeypatch):
        monkeypatch.setenv(self.variable, str(own_home / "moved"))
        self.agent.home.note_roots([])
        path = f"{self.agent.home.root()}/{self.session}"
        os.makedirs(os.path.dirname(path))
        open(path, "x").close()
        yield path
        monkeypatch.undo()
        self.agent.home.note_roots([])

    @pytest.fixture
    def busy_check(self, path):
        directory = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY)
        yield self.agent.presence.busy_check(directory, path, time.time, 0.0, HOUR)
        os.close(directory)

    def test_busy_check_names_an_agent_at_work(self, own_home, path, busy_check):
        """There is a reason while it is at work, and none before. Reading writes nothing."""
        before = files(own_home)
        assert busy_check.read() is None
        assert busy_check.changed() is None
        assert files(own_home) == before

        self.begin(path)

        assert busy_check.changed()
        assert busy_check.read()
        assert busy_check.changed() is None

    def test_idle_session_is_in_no_process(self, path, monkeypatch):
        """Without a process of the agent, nothing is in memory, and nobody calls."""
        assert not self.agent.presence.in_memory(path, time.time(), HOUR)
        assert self.agent.presence.calling_session() is None


class InstallContract:
    """The promises of every installation."""

    agent = None
    written = ""  # the configuration with the JSON of our server's table in place of `%s`
    equals = ": "  # between a key and its value
    # Configurations with our server, and what is left of them, if no command removes it.
    with_server = without = ()

    @pytest.fixture
    def install(self, own_home):
        os.makedirs(os.path.dirname(self.agent.install.configuration()), exist_ok=True)
        return self.agent.install

    def write(self, text):
        with open(self.agent.install.configuration(), "w") as file:
            file.write(text)

    def test_configuration_tells_our_command_line(self, install):
        """It is None if there is none, [] if it cannot be read, else the command and its words."""
        assert install.configured() is None
        self.write("{")
        assert install.configured() == []
        self.write(self.written % "3")
        assert install.configured() == []
        server = {"command": SERVER[0], "args": SERVER[1:]}
        self.write(self.written % json.dumps(server, separators=(", ", self.equals)))
        assert install.configured() == SERVER

    def test_commands_add_and_remove_our_server(self, install):
        """Both are commands of the agent, name our server, and end with what they add."""
        added, removed = install.add(*SERVER), install.remove()

        assert {added[0], *removed[:1]} == {install.command}
        assert NAME in added
        assert NAME in removed or not removed
        assert all(word in " ".join(added) for word in SERVER)
        assert not install.is_removed(["another"])

    def test_server_is_removed_without_a_command(self, install):
        """If no command removes our server, the rest of the configuration stays as it was."""
        if install.remove():
            return
        for before in self.without:
            with pytest.raises(ValueError, match=r"mcp|brainsurgeon"):
                configurations.without(before, install.keys)
        for after, before in zip(self.with_server, self.without, strict=True):
            assert configurations.without(after, install.keys) == before

    def test_skill_is_in_the_clone(self, own_home, install):
        """The skill to copy exists, and the agent reads skills below the user's home."""
        assert (TOP / install.skill).read_text().startswith("---\nname: ")
        assert install.directory().startswith(str(own_home))
        assert install.title


class TestOpenClawHome(HomeContract):
    """Sessions in a directory of each agent, and databases."""

    agent, variable = OPENCLAW, "OPENCLAW_STATE_DIR"
    sessions = {  # noqa: RUF012
        "main/sessions/s.jsonl": "main", "a b/session-sqlite-import-archive/s.jsonl": "a b",
        f"main/agent/openclaw-agent.sqlite/{UUID}": "main", "main/s.jsonl": None,
    }  # fmt: skip
    others = (
        "main/sessions/s.trajectory.jsonl", f"main/sessions/s.checkpoint.{UUID}.jsonl",
        "main/sessions/s.jsonl.reset.2026-11-01",
    )  # fmt: skip


class TestClaudeCodeHome(HomeContract):
    """Sessions in a directory of each project, and of sub-agents below them."""

    agent, variable = CLAUDE_CODE, "CLAUDE_CONFIG_DIR"
    sessions = {  # noqa: RUF012
        f"-w/{UUID}.jsonl": "claude-code:-w",
        f"-w/{UUID}/subagents/agent-a1.jsonl": "claude-code:-w",
    }  # fmt: skip
    others = (f"-w/{UUID}/subagents/workflows/w/journal.jsonl", f"-w/{UUID}/tool-results/x.jsonl")


class TestPiHome(HomeContract):
    """Sessions in a directory of each working directory, whose name says nothing."""

    agent, variable = PI, "PI_CODING_AGENT_DIR"
    sessions = {f"--w--/2026-11-01T10-00-00-000Z_{UUID}.jsonl": None}  # noqa: RUF012


class TestCodexHome(HomeContract):
    """Sessions in a directory of each day, which name their working directory."""

    agent, variable = CODEX, "CODEX_HOME"
    sessions = {f"2026/11/01/rollout-2026-11-01T10-00-00-{UUID}.jsonl": ""}  # noqa: RUF012


class TestCopilotHome(HomeContract):
    """One file of events in a directory of each session, beside others."""

    agent, variable = COPILOT, "COPILOT_HOME"
    sessions = {f"{UUID}/events.jsonl": f"copilot:{UUID}"}  # noqa: RUF012
    others = (f"{UUID}/files/rows.jsonl", f"{UUID}/research/events.jsonl")


class TestOpencodeHome(HomeContract):
    """Sessions of all projects in one database, and in those of other channels."""

    agent, variable = OPENCODE, "XDG_DATA_HOME"
    sessions = {  # noqa: RUF012
        "opencode.db/ses_1": "opencode", "opencode-dev.db/ses_1": "opencode-dev",
    }  # fmt: skip
    others = (
        "log/x.jsonl", "storage/session_diff/ses_1.json", "kilo.db/ses_1", "my.db/ses_1",
        "opencode-backup.db/ses_1",
    )  # fmt: skip

    def test_named_database_is_the_home(self, own_home, monkeypatch):
        """OPENCODE_DB names another file. A directory of others is no root by itself."""
        data = f"{own_home}/.local/share/opencode"
        for named, path, root in (
            ("/d/my.db", "/d/my.db", ""), ("my.db", f"{data}/my.db", data),
        ):  # fmt: skip
            monkeypatch.setenv("OPENCODE_DB", named)
            assert self.agent.home.root() == root
            assert self.agent.home.owner(f"{path}/ses_1").name == "opencode:my"
        monkeypatch.setenv("OPENCODE_DB", ":memory:")
        assert self.agent.home.root() == f"{own_home}/.local/share/opencode"


class TestKiloHome(HomeContract):
    """As that of opencode."""

    agent, variable = KILO, "XDG_DATA_HOME"
    sessions = {"kilo.db/ses_1": "kilo"}  # noqa: RUF012
    others = ("opencode.db/ses_1",)


class TestGeminiHome(HomeContract):
    """Sessions in a directory of each project, and of sub-agents below them."""

    agent, variable = GEMINI, "GEMINI_CLI_HOME"
    sessions = {  # noqa: RUF012
        "w/chats/session-2026-11-01T10-00-11111111.jsonl": "gemini:w",
        f"w/chats/{UUID}/{UUID}.jsonl": "gemini:w",
    }  # fmt: skip
    others = ("w/chats/notes.jsonl", "w/logs.jsonl")


class TestQuillHome(HomeContract):
    """Talks in a directory of each desk."""

    agent, variable = QUILL, "QUILL_HOME"
    sessions = {"oak/one.jsonl": "quill:oak"}  # noqa: RUF012
    others = ("oak/one.draft.jsonl",)


class TestOpenClawPresence(PresenceContract):
    """A lock file beside the session."""

    agent, variable, session = OPENCLAW, "OPENCLAW_STATE_DIR", "main/sessions/s.jsonl"

    def begin(self, path):
        with open(f"{path}.lock", "x") as file:
            json.dump({"pid": os.getpid()}, file)


class TestPiPresence(TestOpenClawPresence):
    """As that of OpenClaw: another program may work with its sessions."""

    agent, variable, session = PI, "PI_CODING_AGENT_DIR", "--w--/s.jsonl"


class TestClaudeCodePresence(PresenceContract):
    """A record of each process."""

    agent, variable, session = CLAUDE_CODE, "CLAUDE_CONFIG_DIR", f"-w/{UUID}.jsonl"

    def begin(self, path):
        records = f"{os.path.dirname(self.agent.home.root())}/sessions"
        os.mkdir(records)
        with open(f"{records}/{os.getpid()}.json", "x") as file:
            json.dump({"pid": os.getpid(), "sessionId": UUID, "cwd": "/w", "status": "busy"}, file)


class TestCodexPresence(PresenceContract):
    """A Codex that works on a thread has its file open, which refuses a lease."""

    agent, variable, session = CODEX, "CODEX_HOME", f"2026/11/01/rollout-2026-11-01-{UUID}.jsonl"

    def test_busy_check_names_an_agent_at_work(self, own_home, path, busy_check):
        """There are no other signs, and reading them writes nothing."""
        before = files(own_home)

        assert busy_check.read() is None
        assert busy_check.changed() is None
        assert files(own_home) == before


class TestCopilotPresence(PresenceContract):
    """A lock on a file beside the session, which only shows what is in memory."""

    agent, variable, session = COPILOT, "COPILOT_HOME", f"{UUID}/events.jsonl"

    def test_busy_check_names_an_agent_at_work(self, own_home, path, busy_check):
        """A file that is locked, not one that a killed process left, means an open process."""
        hold = f"{os.path.dirname(path)}/inuse.{os.getpid()}.hold"
        with open(hold, "x") as file:
            assert not self.agent.presence.in_memory(path, time.time(), HOUR)
            fcntl.flock(file, fcntl.LOCK_EX)
            before = files(own_home)
            assert self.agent.presence.in_memory(path, time.time(), HOUR) == OPEN_COPILOT
        assert not self.agent.presence.in_memory(path, time.time(), HOUR)
        assert busy_check.read() is busy_check.changed() is None
        assert files(own_home) == before

    def test_a_lock_is_found_by_the_inode_of_its_file(self, path, tmp_path):
        """A listing may have another number, as for a link, or a file that is mounted there."""
        (tmp_path / "elsewhere").touch()
        os.symlink(tmp_path / "elsewhere", f"{os.path.dirname(path)}/inuse.7.hold")
        with open(tmp_path / "elsewhere") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            assert self.agent.presence.in_memory(path, time.time(), HOUR) == OPEN_COPILOT

    def test_what_cannot_be_read_counts_as_open(self, path):
        """The directory of the session, or such a file in it; the reason names which."""
        hold = f"{os.path.dirname(path)}/inuse.7.hold"
        os.symlink("inuse.7.hold", hold)
        for session, why in (
            (path, f"{hold}: Too many levels of symbolic links"),
            (f"{path}/events.jsonl", f"{path}: Not a directory"),
        ):
            reason = self.agent.presence.in_memory(session, time.time(), HOUR)
            assert reason == f"a Copilot CLI may have it in memory: {why}; waits"


class TestGeminiPresence(PresenceContract):
    """A process in the directory of the project, which only shows what may be in memory."""

    agent, variable = GEMINI, "GEMINI_CLI_HOME"
    session = "w/chats/session-2026-11-01T10-00-11111111.jsonl"

    @pytest.fixture(autouse=True)
    def named_in(self, own_home, path, tmp_path):
        names = own_home / "moved/.gemini/tmp/w/.project_root"
        names.write_text(str(tmp_path))
        return names

    def test_busy_check_names_an_agent_at_work(self, own_home, path, busy_check, tmp_path):
        """A process of Gemini CLI in the project, not another or elsewhere, has it in memory."""
        before = files(own_home)
        for name, place, found in (
            ("gemini", tmp_path, OPEN_GEMINI), ("gemini", own_home, None),
            ("other", tmp_path, None),
        ):  # fmt: skip
            with running(place / name):
                assert self.agent.presence.in_memory(path, time.time(), HOUR) == found
            (place / name).unlink()
        assert self.agent.presence.in_memory(path, time.time(), HOUR) is None
        assert busy_check.read() is busy_check.changed() is None
        assert files(own_home) == before

    @pytest.mark.parametrize(
        ("script", "found"),
        [
            ("lib/node_modules/@google/gemini-cli/bundle/gemini.js", True),
            ("lib/node_modules/@google/gemini-cli/dist/index.js", True),
            ("lib/node_modules/@google/gemini-cli", True),
            (".npm/_npx/0a1b/node_modules/.bin/gemini", True),
            ("gemini-cli/packages/cli/dist/index.js", True),
            ("gemini-cli/packages/cli", True), ("other/dist/index.js", False),
            ("gemini-cli/scripts/lint.js", False), ("gemini/other.js", False),
        ],
    )  # fmt: skip
    def test_each_release_is_known_by_its_script(self, path, tmp_path, script, found):
        """By the path that npm, npx or a clone gives to node, after options and before words."""
        with running(tmp_path / script, tmp_path, "gemini"):
            assert self.agent.presence.in_memory(path, time.time(), HOUR) == (
                OPEN_GEMINI if found else None
            )

    @pytest.mark.parametrize(
        ("content", "why"), [(None, "No such file or directory"), ("", "it names no directory")]
    )
    def test_any_process_may_be_in_an_unknown_project(self, named_in, path, tmp_path, content, why):
        """The reason names the file that does not name the project."""
        named_in.unlink()
        if content is not None:
            named_in.write_text(content)
        with running(tmp_path / "gemini"):
            reason = self.agent.presence.in_memory(path, time.time(), HOUR)
        assert reason == f"a Gemini CLI may have it in memory: {named_in}: {why}; waits"


class TestQuillPresence(PresenceContract):
    """Wet ink beside the talk."""

    agent, variable, session = QUILL, "QUILL_HOME", "oak/one.jsonl"

    def begin(self, path):
        open(f"{path}.ink", "x").close()


class TestOpenClawInstall(InstallContract):
    """JSON5."""

    agent, written = OPENCLAW, f"{{mcp: {{servers: {{{NAME}: %s}}}}}}"

    def test_one_server_is_bound_to_one_agent(self, install):
        """It is `main` if there is one, else the first. For the others, init prints advice."""
        for name, advised in ("b", ""), ("a", "For b, "), ("main", "For a, b, "):
            os.makedirs(os.path.join(install.directory(), "agents", name))
            assert install.options() == ("--agent", name)
            assert advised in install.advice()
            assert bool(advised) == bool(install.advice())


class TestClaudeCodeInstall(InstallContract):
    """JSON."""

    agent, written = CLAUDE_CODE, f'{{"mcpServers": {{"{NAME}": %s}}}}'


class TestCodexInstall(InstallContract):
    """TOML."""

    agent, written, equals = CODEX, f"mcp_servers.{NAME} = %s", " = "


class TestCopilotInstall(InstallContract):
    """JSON."""

    agent, written = COPILOT, f'{{"mcpServers": {{"{NAME}": %s}}}}'


class TestOpencodeInstall(InstallContract):
    """JSON with comments, in which a command is a list."""

    agent = OPENCODE
    written = f'{{/* ours */ "mcp": {{"{NAME}": %s,}},\n}} // the end'
    with_server = (
        f'{{"a": 1, // ü\n "mcp": {{"{NAME}": {{"command": ["x"]}}, "b": {{}}}}}}',
        f'{{"mcp": {{"b": {{}}, "{NAME}": {{"command": ["x"]}}}}, "c": []}}',
        f'{{"a": "{NAME}",\n "mcp": {{"{NAME}": {{"command": ["x"]}}}}}}',
        f'{{"mcp": {{\n"{NAME}": {{"command": ["x"]}}}}, "c": []}}',
    )
    without = (
        '{"a": 1, // ü\n "mcp": {"b": {}}}', '{"mcp": {"b": {}}, "c": []}',
        f'{{"a": "{NAME}"}}', '{"c": []}',
    )  # fmt: skip

    def test_configuration_tells_our_command_line(self, install):
        """Its command is a list of words. A file with the other ending counts, too."""
        assert install.configured() is None
        self.write("{")
        assert install.configured() == []
        self.write(self.written % "3")
        assert install.configured() == []
        self.write(self.written % json.dumps({"type": "local", "command": SERVER}))
        assert install.configured() == SERVER
        path = install.configuration()
        os.rename(path, f"{path}c")
        assert install.configured() == SERVER


class TestKiloInstall(TestOpencodeInstall):
    """As that of opencode."""

    agent = KILO


class TestGeminiInstall(InstallContract):
    """JSON."""

    agent, written = GEMINI, f'{{"mcpServers": {{"{NAME}": %s}}}}'


class TestQuillInstall(InstallContract):
    """JSON."""

    agent, written = QUILL, f'{{"tools": {{"{NAME}": %s}}}}'


def joined(contract):
    found = {contract}
    while more := {sub for one in found for sub in one.__subclasses__()} - found:
        found |= more
    return {one.agent.title for one in found if one.agent}


def test_every_registered_agent_has_joined_the_contracts():
    """A new agent fails until it has a subclass of each contract that concerns it."""
    homes = {agent.title for agent in AGENTS if agent.home.root()}
    presences = {
        agent.title for agent in AGENTS
        if type(agent.presence) is not Presence and agent is not DESCRIBED_AGENT
    }  # fmt: skip

    assert joined(HomeContract) == homes | {QUILL.title}
    assert joined(PresenceContract) == presences | {QUILL.title}
    assert joined(InstallContract) == {a.title for a in AGENTS if a.install} | {QUILL.title}
