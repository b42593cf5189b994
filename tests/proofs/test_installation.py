"""Installation as deploy/docs/operations.md describes it, typed in an empty home; the release."""

import email
import getpass
import glob
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import zipfile
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
    ".gitignore",
)  # fmt: skip
NO_NETWORK = re.compile(r"name resolution|NewConnectionError|Network is unreachable|ProxyError")
# What the first block says to put into the profile.
IN_PATH = 'export PATH="$HOME/.local/bin:$PATH"\n'
RECORDED = """#!/bin/sh
case "$*" in "--user is-system-running") echo running; exit ;; esac
printf '%s\\n' "$@" > "$0.said"
case "$1" in -|tee) cat > "$0.read" ;; -l) echo "no crontab for you" >&2; exit 1 ;; esac
"""


# What else a source archive has.
OF_THE_ARCHIVE = {".gitignore", "PKG-INFO"}
# The variables with which two builds of the same sources must be equal.
BUILD = {"PATH": "/usr/bin:/bin", "SOURCE_DATE_EPOCH": "1000000000"}


def pythons():
    """Return the Pythons from 3.11 on that are here, one of each minor version."""
    versions = machine.outside().get("PYENV_ROOT") or f"{machine.real_homes()[0]}/.pyenv"
    found = {f"3.{sys.version_info.minor}": sys._base_executable}
    for minor in range(11, 30):
        name = f"python3.{minor}"
        for path in (shutil.which(name), *glob.glob(f"{versions}/versions/*/bin/{name}")):
            if path and _makes_environments(path):
                found.setdefault(f"3.{minor}", path)
    return found


def _makes_environments(path):
    words = [path, "-c", "import ensurepip, venv"]
    return subprocess.run(words, capture_output=True, check=False).returncode == 0


PYTHONS = pythons()


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


def build(sources, place, **variables):
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-d", place], cwd=sources, check=True,
        capture_output=True, env=BUILD | variables, timeout=120,
    )  # fmt: skip
    return sorted(place.iterdir())


@pytest.fixture(scope="module")
def release(tmp_path_factory):
    """Return the wheel and the source archive, built in a copy of the sources."""
    place = tmp_path_factory.mktemp("release")
    return build(Account(place).clone, place / "dist")


def test_builds_of_equal_sources_are_equal(tmp_path, release):
    """Modes, times, caches and the directory of the sources do not change a byte.

    The wheel that is built from the source archive is the same, too.
    """
    other = Account(tmp_path).clone
    cache = other / "src" / "brainsurgeon" / "__pycache__"
    cache.mkdir(exist_ok=True)
    (cache / "x.cpython-311.pyc").write_bytes(b"x")
    for path in [*other.rglob("*")]:
        path.chmod(0o700 if path.is_dir() else 0o600)
        os.utime(path, (10**9, 10**9))
    with tarfile.open(release[1]) as archive:
        archive.extractall(tmp_path, filter="data")
    (unpacked,) = tmp_path.glob("brainsurgeon-*")

    again = build(other, tmp_path / "again", LC_ALL="C", TZ="Asia/Tokyo")
    from_archive = build(unpacked, tmp_path / "from")

    for built, same, third in zip(release, again, from_archive, strict=True):
        assert built.name == same.name == third.name
        assert built.read_bytes() == same.read_bytes() == third.read_bytes()


def test_source_archive_has_only_what_a_build_needs(release):
    """Without any of its files, the wheel would be another one or could not be built."""
    with tarfile.open(release[1]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
        contents = {member.name.partition("/")[2]: archive.extractfile(member).read()
                    for member in archive.getmembers()}  # fmt: skip
    with zipfile.ZipFile(release[0]) as wheel:
        packed = {wheel.read(name) for name in wheel.namelist()}
    made = {"pyproject.toml", "README.md", "deploy/long_description.py"}

    others = {name for name in names - OF_THE_ARCHIVE if contents[name] not in packed}
    assert others == made


def test_links_of_the_long_description_lead_to_the_version(release):
    """Outside of a clone, each link of README names a file of this version."""
    with zipfile.ZipFile(release[0]) as wheel:
        (name,) = [name for name in wheel.namelist() if name.endswith("/METADATA")]
        metadata = email.message_from_bytes(wheel.read(name))
    text = metadata.get_payload(decode=True).decode()
    places = dict(url.split(", ") for url in metadata.get_all("Project-URL"))
    links = re.findall(r"\]\(([^)]*)\)", text)
    relative = re.findall(r"\]\(([^)]*)\)", (TOP / "README.md").read_text())

    for link, target in zip(links, relative, strict=True):
        assert re.fullmatch(
            rf"{re.escape(places['Source'])}/(raw|blob)/v{re.escape(metadata['Version'])}/"
            + re.escape(target), link,
        )  # fmt: skip


# The gate tries one Python in `deploy/dependencies.sh`, in the same way.
@pytest.mark.long(proves=("agents", "cli", "daemon", "mcp_server"))
@pytest.mark.parametrize("version", PYTHONS)
def test_wheel_runs_on_every_python(tmp_path, release, version):
    """In an empty environment, with the tested versions, every part of the program works."""
    shown = Account(tmp_path).types(
        f"""set -e
        cd {shlex.quote(str(release[0].parents[1] / "clone"))}
        {shlex.quote(PYTHONS[version])} -m venv {tmp_path}/venv
        {tmp_path}/venv/bin/pip install --quiet --require-hashes \\
            -r deploy/requirements.txt -r deploy/requirements-mcp.txt
        {tmp_path}/venv/bin/pip install --quiet --no-deps {shlex.quote(str(release[0]))}
        {tmp_path}/venv/bin/python -I deploy/smoke.py"""
    )

    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.startswith("apscheduler ")


@pytest.fixture
def account_to_release(tmp_path):
    """Return an account whose clone is a repository, with samples and the .venv of the tests."""
    account = Account(tmp_path)
    shutil.copy(TOP / "requirements.txt", account.clone)
    samples = Path("tests", "samples", "openclaw", "2026.7.35")
    shutil.copytree(TOP / samples, account.clone / samples)
    program = account.clone / ".venv" / "bin"
    program.mkdir(parents=True)
    (program / "python").write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n')
    (program / "python").chmod(0o755)
    process = account.types(
        """set -e
        cat requirements.txt pyproject.toml | cksum > .venv/.set-up
        git init --quiet
        git config user.name test
        git config user.email test@example.org"""
    )
    assert process.returncode == 0, process.stderr
    return account


COMMIT = "git add -A && git commit --quiet -m release && "
RELEASE = "sh deploy/release.sh"


def dated(account, date):
    """Write the date of the version's release into the changelog; return the version."""
    version = re.search(r'\nversion = "(.*)"', (TOP / "pyproject.toml").read_text())[1]
    changelog = account.clone / "deploy" / "docs" / "changelog.md"
    text = re.sub(r"\n## .*", f"\n## {version} ({date})", changelog.read_text(), count=1)
    changelog.write_text(text)
    return version


def test_release_needs_a_clean_tree_a_dated_version_and_no_tag(account_to_release):
    """A tree with changes, a version without a date, and one with a tag are refused."""
    account = account_to_release
    version = dated(account, "not released yet")
    changed = account.types(RELEASE)
    undated = account.types(COMMIT + RELEASE)
    dated(account, "2026-12-01")
    again = account.types(f"{COMMIT}git tag v{version} && {RELEASE}")

    assert changed.returncode == undated.returncode == again.returncode == 1
    assert "no release: commit these files" in changed.stderr
    assert f"needs a heading '## {version} (date)'" in undated.stderr
    assert f"the tag v{version} exists" in again.stderr


@pytest.mark.long(proves=("cli",))
@pytest.mark.timeout(1200)  # seconds: it downloads packages, on a busy machine, too
def test_release_is_built_and_tried_but_not_uploaded(account_to_release):
    """It prunes and restores samples, and prints the commands that upload and tag it."""
    account = account_to_release
    version = dated(account, "2026-12-01")
    done = account.types(COMMIT + RELEASE)

    assert done.returncode == 0, done.stderr
    assert " extracted, " in done.stdout
    assert f"git tag --annotate v{version}" in done.stdout
    upload = re.search("twine upload (.*)", done.stdout)[1].split()
    assert all((account.clone / name).is_file() for name in upload)
    assert account.types("git status --porcelain; git tag").stdout == ""
