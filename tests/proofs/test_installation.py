"""Installation as deploy/docs/operations.md describes it, typed in an empty home."""

import getpass
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from building import machine
from building.world import TOP, Conversation

OPERATIONS = (TOP / "deploy" / "docs" / "operations.md").read_text()
# What each agent's own page says, by the name of its command.
PAGES = {
    host: (TOP / "deploy" / page / "README.md").read_text()
    for host, page in (
        ("openclaw", "openclaw"),
        ("claude", "claude-code"),
        ("codex", "codex"),
        ("copilot", "copilot"),
        ("gemini", "gemini"),
    )
}
NEEDED = (
    "README.md", "LICENSE", "pyproject.toml", "config.toml.example", "src", "deploy", "systemd",
)  # fmt: skip
NO_NETWORK = re.compile(r"name resolution|NewConnectionError|Network is unreachable|ProxyError")
# What the first block says to put into the profile.
IN_PATH = 'export PATH="$HOME/.local/bin:$PATH"\n'
RECORDED = """#!/bin/sh
case "$*" in "--user is-system-running") echo running; exit ;; esac
printf '%s\\n' "$@" > "$0.said"
case "$1" in -|tee) cat > "$0.read" ;; -l) echo "no crontab for you" >&2; exit 1 ;; esac
"""


def section(title):
    return re.search(rf"\n## {title}\n(.*?)\n## ", OPERATIONS, re.DOTALL)[1]


def commands(text):
    return [
        "\n".join(re.findall(r"^\$ (.*)$", block, re.MULTILINE))
        for block in re.findall(r"```console\n(.*?)```", text, re.DOTALL)
    ]


class Account:
    """An account with an empty home, a clone, and recorded tools of the system."""

    def __init__(self, base):
        self.home, self.clone, self.tools = base / "account", base / "clone", base / "tools"
        self.home.mkdir()
        self.tools.mkdir()
        for name in NEEDED:
            copy = shutil.copytree if (TOP / name).is_dir() else shutil.copy
            (self.clone / name).parent.mkdir(exist_ok=True)
            copy(TOP / name, self.clone / name)
        for tool in (
            "systemctl",
            "sudo",
            "crontab",
            "openclaw",
            "claude",
            "codex",
            "copilot",
            "gemini",
        ):
            self._tool(tool, RECORDED)
        self._tool("python3", f'#!/bin/sh\nexec {shlex.quote(sys._base_executable)} "$@"\n')
        self.bare = {"HOME": str(self.home), "PATH": f"{self.tools}:/usr/bin:/bin"}
        config = Path(machine.real_homes()[0]) / ".config" / "pip" / "pip.conf"
        more = {"PIP_CONFIG_FILE": str(config)} if config.exists() else {}
        self.environment = {**self.bare, **machine.network(), **more}

    def _tool(self, name, text):
        path = self.tools / name
        path.write_text(text)
        path.chmod(0o755)

    def types(self, text):
        process = subprocess.run(
            ["sh"], input=text, text=True, capture_output=True, cwd=self.clone, timeout=900,
            env=self.environment, check=False,
        )  # fmt: skip
        if NO_NETWORK.search(process.stderr):
            pytest.skip("what brainsurgeon needs cannot be installed here")  # no network
        return process

    def arguments(self, tool):
        return (self.tools / f"{tool}.said").read_text().splitlines()

    def read(self, tool):
        return (self.tools / f"{tool}.read").read_text()


@pytest.fixture(scope="module")
def account(tmp_path_factory):
    """Return the account after the first block was typed, with a session to prune."""
    new_account = Account(tmp_path_factory.mktemp("use-it"))
    talk = Conversation()
    talk.turn()
    talk.turn()
    new_account.session = (
        new_account.home / ".openclaw" / "agents" / "main" / "sessions" / "s.jsonl"
    )
    new_account.session.parent.mkdir(parents=True)
    new_account.session.write_bytes(talk.bytes())
    os.utime(new_account.session, (10**9, 10**9))
    new_account.before = talk.bytes()
    new_account.shown = new_account.types("set -e\n" + commands(section("Install"))[0])
    return new_account


def test_install_block_installs_and_prunes(account):
    """In an empty home the block ends without an error, and the session is pruned."""
    assert account.shown.returncode == 0, account.shown.stderr
    assert "nothing was written" in account.shown.stdout
    assert "1 changed" in account.shown.stdout
    assert b"[[extracted-" in account.session.read_bytes()
    assert os.access(account.home / ".local/bin/brainsurgeon", os.X_OK)


def test_installed_versions_are_pinned_by_hash(account):
    """The versions are those of the requirements files, which the container uses as well."""
    whole = (TOP / "requirements.txt").read_text()
    text = "".join(
        (TOP / "deploy" / name).read_text() for name in ("requirements.txt", "requirements-mcp.txt")
    )
    pins = re.findall(r"^[a-z0-9_.-]+==.*\n(?:    --hash=.*\n)+", text, re.MULTILINE)
    listed = subprocess.run(
        [account.home / ".local/share/brainsurgeon/bin/pip", "list", "--format", "json"],
        capture_output=True, check=True, env=account.environment,
    )  # fmt: skip
    wanted = dict(re.findall(r"^([a-z0-9_.-]+)==([^ ;\\]+)", text, re.MULTILINE))
    installed = {package["name"].lower().replace("_", "-"): package["version"]
             for package in json.loads(listed.stdout)}  # fmt: skip

    assert len(pins) > 30
    assert all(pin.strip("\\ \n") in whole for pin in pins)
    assert installed.keys() - {"brainsurgeon", "pip", "setuptools"} <= wanted.keys()
    assert all(wanted[name] == installed[name] for name in installed.keys() & wanted.keys())
    docker = (TOP / "Dockerfile").read_text()
    assert re.search(r"--require-hashes \\\s+-r deploy/requirements.txt", docker)
    assert "--no-deps --no-build-isolation" in docker


def test_keep_running_block_installs_unit_and_cron_job(account):
    """The user's unit and the cron job start the installed program."""
    process = account.types(IN_PATH + commands(section("Keep it running"))[0])
    own = account.home / ".config/systemd/user/brainsurgeon.service"

    assert process.returncode == 0, process.stderr
    assert f"ExecStart={account.home}/.local/bin/brainsurgeon run\n" in own.read_text()
    assert account.arguments("systemctl") == ["--user", "enable", "--now", "brainsurgeon"]
    [job] = account.read("crontab").splitlines()
    job_run = subprocess.run(
        ["/bin/sh", "-c", job.split(None, 5)[5]], capture_output=True, check=False,
        env={"HOME": str(account.home), "PATH": "/usr/bin:/bin", "SHELL": "/bin/sh"},
    )  # fmt: skip
    assert (job_run.returncode, job_run.stdout, job_run.stderr) == (0, b"", b""), job
    assert account.arguments("sudo") == ["systemctl", "enable", "--now", "brainsurgeon"]


def test_system_unit_is_written_for_the_current_user(account):
    """User, home and program in the unit are those of the user who types the command."""
    own, other = account.home / ".openclaw", account.home / ".pi/agent/sessions"
    unit = account.types(IN_PATH + "brainsurgeon init --systemd --system").stdout

    assert f"User={getpass.getuser()}\n" in unit
    assert f"ExecStart={account.home}/.local/bin/brainsurgeon run --config " in unit
    assert f"ReadWritePaths=-{own}\n" in unit
    assert str(other) not in unit
    assert f" sh {getpass.getuser()} {account.home}/.local/state/brainsurgeon\n" in unit
    assert "/home/agent" not in unit


def test_registered_mcp_server_starts_without_a_path(account):
    """The command that each agent's page registers starts in an empty environment, and answers."""
    for host, page in PAGES.items():
        [row] = re.findall(rf"^\$ ({host} mcp .*)$", page, re.MULTILINE)
        assert account.types(row).returncode == 0, row
        words = account.arguments(host)
        if host == "openclaw":
            server = json.loads(words[-1])
            start = [server["command"], *server["args"]]
        else:
            start = [word for word in words[words.index("brainsurgeon") + 1 :] if word != "--"]
        hello = {
            "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
                "protocolVersion": "2025-06-18", "capabilities": {},
                "clientInfo": {"name": "test", "version": "1"},
            },
        }  # fmt: skip
        process = subprocess.run(
            start, input=json.dumps(hello) + "\n", text=True, capture_output=True, check=False,
            cwd="/", env={"HOME": str(account.home)}, timeout=60,
        )  # fmt: skip

        assert Path(start[0]).is_absolute(), row
        assert '"brainsurgeon"' in process.stdout, (row, process.stderr)
        assert host != "claude" or words[2:5] == ["--scope", "user", "brainsurgeon"]
