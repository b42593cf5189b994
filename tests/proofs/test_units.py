"""systemd units and crontab, checked with the tools that read them."""

import configparser
import os
import pwd
import re
import shlex
import shutil
import stat
import subprocess
import sys
from datetime import UTC, datetime
from functools import cache

import pytest

from brainsurgeon import config
from brainsurgeon.agents import CLAUDE_CODE
from brainsurgeon.errors import StoreUnusableError
from brainsurgeon.schedule import cron_trigger
from building.processes import DaemonProcess, is_extracted, write_idle_session
from building.world import TOP
from proofs.power.tracing import strace_problem

SYSTEMD = TOP / "systemd"
UNITS = {
    "brainsurgeon.service", "brainsurgeon-scan.service", "brainsurgeon-scan.timer",
    "user/brainsurgeon.service", "brainsurgeon-failed@.service",
}  # fmt: skip
NOW = datetime.now(UTC)
SERVICES = sorted(unit for unit in UNITS if unit.endswith(".service") and "@" not in unit)
SYSTEM_SERVICES = [unit for unit in SERVICES if not unit.startswith("user/")]
PROGRAM = re.compile(r"/usr/local/bin/brainsurgeon|%h/\.local/bin/brainsurgeon")
# What `systemd-analyze security` may find at most, in tenths of 10.
#
# What remains of the user's is what it counts for a process of root: the capabilities that only a
# manager of the system drops, and that a user's process does not have.
EXPOSED = {
    "brainsurgeon.service": 10, "brainsurgeon-scan.service": 10, "user/brainsurgeon.service": 45,
}  # fmt: skip


# Where there is no systemd no unit runs; the gate has it.
with_systemd = pytest.mark.skipif(
    not shutil.which("systemd-analyze"), reason="systemd-analyze is not installed"
)
# Only a trace tells which calls are made; the gate has strace, a newcomer need not.
with_strace = pytest.mark.skipif(strace_problem() is not None, reason=str(strace_problem()))


class Unit(dict):
    """A unit's keys, each with the list of its values in order."""

    def __init__(self, name):
        super().__init__()
        for line in (SYSTEMD / name).read_text().splitlines():
            key, sign, value = line.partition("=")
            if sign and not line.startswith("#"):
                self.setdefault(key, []).append(value)

    def words(self, key):
        return " ".join(self.get(key, [])).split()


def commands_of(unit):
    """Return the words of each brainsurgeon command that a unit starts, without the program."""
    lines = [line for line in unit["ExecStart"] if PROGRAM.match(line)]
    return [line.split()[1:] for line in lines]


@pytest.fixture
def units(tmp_path):
    """Copy the units, with a program that exists here; return their directory."""
    for name in UNITS:
        copy = tmp_path / "units" / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(PROGRAM.sub("/bin/true", (SYSTEMD / name).read_text()))
    return tmp_path / "units"


def analyze(*words, runtime):
    return subprocess.run(
        ["systemd-analyze", *words], capture_output=True, check=False, text=True, timeout=60,
        env={**os.environ, "XDG_RUNTIME_DIR": str(runtime), "SYSTEMD_COLORS": "0"},
    )  # fmt: skip


def test_list_of_units_is_complete():
    """Every file below systemd/ is in the list of these tests."""
    files = {str(path.relative_to(SYSTEMD)) for path in SYSTEMD.rglob("*") if path.is_file()}

    assert files == UNITS


@with_systemd
@pytest.mark.parametrize("name", sorted(UNITS))
def test_systemd_verifies_the_unit(units, tmp_path, name):
    """`systemd-analyze verify` prints nothing about the unit."""
    words = ("--user",) if name.startswith("user/") else ()
    process = analyze(
        *words, "verify", "--man=no", "--recursive-errors=no", str(units / name), runtime=tmp_path
    )

    assert str(units) not in process.stderr
    assert process.returncode == 0, process.stderr


@with_systemd
def test_systemd_verify_fails_for_an_unknown_key(units, tmp_path):
    """This shows that the check above can fail."""
    unit = units / "brainsurgeon.service"
    unit.write_text(unit.read_text().replace("MemoryMax=", "MemoryMaximum="))
    process = analyze("verify", "--man=no", "--recursive-errors=no", str(unit), runtime=tmp_path)

    assert process.returncode != 0


@with_systemd
@pytest.mark.parametrize("name", SERVICES)
def test_exposure_of_a_service_is_below_its_threshold(units, tmp_path, name):
    """`systemd-analyze security` rates each service within its limit."""
    words = ("--user",) if name.startswith("user/") else ()
    process = analyze(
        *words, "security", "--offline=yes", f"--threshold={EXPOSED[name]}", str(units / name),
        runtime=tmp_path,
    )  # fmt: skip

    assert process.returncode == 0, process.stdout.splitlines()[-1]


def test_user_and_system_service_have_the_same_filters():
    """A trace of one then holds for both; keys that a user's manager refuses are absent."""
    user, system = Unit("user/brainsurgeon.service"), Unit("brainsurgeon.service")

    for key in ("SystemCallFilter", "RestrictAddressFamilies", "WatchdogSec", "ProtectSystem"):
        assert user[key] == system[key]
    for key in ("CapabilityBoundingSet", "PrivateDevices", "ProtectClock", "ProtectKernelLogs",
                "ProtectKernelModules", "PrivateUsers"):  # fmt: skip
        assert key not in user  # with it a user's manager does not start a service


def test_services_have_a_failure_hook_to_enable():
    """The commented OnFailure line names the unit that exists for it."""
    for name in SERVICES:
        text = (SYSTEMD / name).read_text()

        assert "\n# OnFailure=brainsurgeon-failed@%n.service\n" in text
    assert "https://" in Unit("brainsurgeon-failed@.service")["ExecStart"][0]


@pytest.mark.parametrize("name", SERVICES)
def test_commands_of_a_service_are_valid(name):
    """Every ExecStart is a command of this program with valid options."""
    commands = commands_of(Unit(name))

    assert commands
    for words in commands:
        check_command(words)


def check_command(words):
    process = subprocess.run(
        [sys.executable, "-m", "brainsurgeon", *words, "--help"], capture_output=True, check=False,
        timeout=60,
    )  # fmt: skip

    assert process.returncode == 0, process.stderr
    assert b"Usage: " in process.stdout


# --- where it works ------------------------------------------------------------------------------


def homes(unit, monkeypatch):
    assert unit["User"] == ["agent"]
    assert "Group" not in unit  # a user's own group may be called anything

    home = f"/home/{unit['User'][0]}"
    monkeypatch.setenv("HOME", home)
    monkeypatch.setattr(config.loading, "config_path", lambda _: None)
    return home, config.load()[0]


@pytest.mark.parametrize("name", SYSTEM_SERVICES)
def test_system_service_has_the_state_directory_of_the_shell(monkeypatch, name):
    """It runs as the agent's user, creates that user's state directory, and may write sessions."""
    unit = Unit(name)
    home, settings = homes(unit, monkeypatch)
    writable = [path.lstrip("-") for path in unit.words("ReadWritePaths")]
    sessions = [
        *(root.path for root in settings.root_directories()),
        os.path.join(CLAUDE_CODE.home.root(), "-w"),
        f"{home}/.pi/agent/sessions/--w--",
    ]

    [prepare] = unit["ExecStartPre"]
    assert prepare.endswith(f" {unit['User'][0]} {settings.state_dir}")
    assert settings.state_dir == f"{home}/.local/state/brainsurgeon"
    for path in (settings.state_dir, *sessions):
        assert any(path.startswith(f"{place}/") for place in writable), path


@pytest.mark.parametrize("name", [*SYSTEM_SERVICES, "user/brainsurgeon.service"])
def test_service_makes_a_missing_state_directory_and_changes_no_other(tmp_path, name):
    """A new state directory has mode 0700; one that is there keeps its mode."""
    [prepare] = Unit(name)["ExecStartPre"]
    words = shlex.split(prepare.removeprefix("+").replace("$$", "$"))
    owner = pwd.getpwuid(os.geteuid()).pw_name
    words = [owner if word == "agent" else word for word in words[:-1]]
    (tmp_path / "there").mkdir(mode=0o755)
    for place in ("there", "new"):
        subprocess.run([*words, str(tmp_path / place)], check=True)

    assert stat.S_IMODE((tmp_path / "there").stat().st_mode) == 0o755
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o700


@pytest.mark.parametrize("name", SERVICES)
def test_services_do_not_change_paths_of_the_program(name):
    """No key of a unit changes the paths that the program uses in a shell."""
    unit = Unit(name)

    assert not unit.keys() & {"StateDirectory", "Environment", "EnvironmentFile", "DynamicUser",
                              "PassEnvironment", "RootDirectory", "ProtectHome"}  # fmt: skip
    assert "--config" not in " ".join(unit["ExecStart"])


@pytest.mark.parametrize("name", ["brainsurgeon.service", "user/brainsurgeon.service"])
def test_daemon_unit_notifies_reloads_and_is_not_throttled(name):
    """It is of type notify, reloads by SIGHUP, and no scheduling key slows it under a lease."""
    unit = Unit(name)

    assert unit["Type"] == ["notify"]
    assert unit["ExecReload"] == ["/bin/kill -HUP $MAINPID"]
    assert unit["UMask"] == ["0077"]
    assert int(unit["TimeoutStopSec"][0]) > 2
    assert not unit.keys() & {"Nice", "IOSchedulingClass", "CPUSchedulingPolicy", "KillSignal"}


@pytest.mark.parametrize("name", ["brainsurgeon.service", "user/brainsurgeon.service"])
def test_daemon_with_an_unusable_store_is_not_restarted(name):
    """After a failure the daemon starts again, except after exit code 7."""
    unit = Unit(name)

    assert unit["Restart"] == ["on-failure"]
    assert unit["RestartPreventExitStatus"] == [str(StoreUnusableError.exit_code)]


def test_timer_starts_the_oneshot_scan_repeatedly():
    """The service of the timer's name runs `scan --once` as a oneshot."""
    parser = configparser.ConfigParser(interpolation=None)
    parser.optionxform = str
    parser.read(SYSTEMD / "brainsurgeon-scan.timer")

    assert set(parser["Timer"]) == {"OnBootSec", "OnUnitInactiveSec"}
    assert parser["Install"]["WantedBy"] == "timers.target"
    assert Unit("brainsurgeon-scan.service")["Type"] == ["oneshot"]
    assert commands_of(Unit("brainsurgeon-scan.service")) == [["scan", "--once"]]


# --- what it may do ------------------------------------------------------------------------------


@cache
def sets_of_calls():
    """Return the sets of system calls that systemd defines, by name."""
    shown = subprocess.run(
        ["systemd-analyze", "syscall-filter", "--no-pager"], capture_output=True, check=True,
        text=True, timeout=60,
    )  # fmt: skip
    sets = {}
    for line in shown.stdout.splitlines():
        word = line.strip()
        if line.startswith("@"):
            sets[word] = []
        elif word and not word.startswith("#") and sets:
            sets[next(reversed(sets))].append(word)
    return sets


def members(name):
    if not name.startswith("@"):
        return {name}
    return {call for inner in sets_of_calls()[name] for call in members(inner)}


def allowed_calls(unit):
    """Return the system calls that the filter of a unit allows."""
    allowed = members("@default")
    for line in unit["SystemCallFilter"]:
        denied = line.startswith("~")
        calls = {call for name in line.lstrip("~").split() for call in members(name)}
        allowed = allowed - calls if denied else allowed | calls
    return allowed


def calls_of(trace):
    """Return the lines of a trace by the name of their system call."""
    lines_of = {}
    for line in trace.read_text(errors="replace").splitlines():
        match = re.match(r"\d+ +(?:<\.\.\. )?(\w+)(?:\(| resumed)", line)
        if match:
            lines_of.setdefault(match[1], []).append(line)
    return lines_of


def check_calls(unit, lines_of):
    for_root_alone = {"fchown"} if os.geteuid() == 0 else set()  # SQLite, for its journal

    assert lines_of.keys() >= {"openat", "fcntl", "renameat2", "fsync"}
    assert lines_of.keys() - for_root_alone - allowed_calls(unit) == set()
    assert unit.words("RestrictAddressFamilies") == ["AF_UNIX"]
    for line in lines_of.get("socket", ()):
        assert "AF_UNIX" in line or "resumed" in line
    for line in lines_of["mmap"] + lines_of["mprotect"]:
        assert not ("PROT_WRITE" in line and "PROT_EXEC" in line)
    for name in ("clone", "clone3"):
        for line in lines_of.get(name, ()):
            assert "CLONE_NEW" not in line


@with_systemd
@with_strace
def test_daemon_makes_only_calls_that_its_unit_allows(world, tmp_path_factory):
    """From start to stop, with an extraction and a restore, it makes no filtered call."""
    path, ident = write_idle_session(world)
    trace = world.base / "trace"
    before = ("strace", "-f", "-qq", "-o", str(trace))
    address = str(tmp_path_factory.mktemp("n") / "nobody")
    daemon = DaemonProcess(
        world, before=before, environment={"NOTIFY_SOCKET": address}, scan_interval_seconds=1
    )
    try:
        daemon.wait_for("scan_finished", sessions_changed=1)

        assert is_extracted(path, ident)

        world.restore(ident, quiet_seconds=10**6)
        daemon.wait_for("restoration")
        code = daemon.stop()[1]
    finally:
        daemon.kill()

    assert code == 0
    check_calls(Unit("brainsurgeon.service"), calls_of(trace))


@with_systemd
@with_strace
def test_scan_makes_only_calls_that_its_unit_allows(world):
    """The timer's command makes no filtered call, with and without retention."""
    path, ident = write_idle_session(world)
    all_lines = {}
    for number, words in enumerate((("scan", "--once"), ("scan", "--retention"))):
        trace = world.base / f"trace{number}"
        subprocess.run(
            ["strace", "-f", "-qq", "-o", trace, sys.executable, "-m", "brainsurgeon", *words,
             "--config", world.config_file()],
            check=True, timeout=120, stdout=subprocess.DEVNULL,
        )  # fmt: skip
        for name, lines in calls_of(trace).items():
            all_lines.setdefault(name, []).extend(lines)

    assert is_extracted(path, ident)
    check_calls(Unit("brainsurgeon-scan.service"), all_lines)


# --- cron ---------------------------------------------------------------------------------------


def test_crontab_lines_are_valid():
    """Five fields and a command of this program, without a percent sign, which ends it in cron."""
    lines = (TOP / "deploy" / "crontab").read_text().splitlines()
    jobs = [line for line in lines if line.strip() and not line.startswith("#")]

    assert jobs
    for job in jobs:
        *fields, command = job.split(None, 5)

        assert cron_trigger(" ".join(fields)).get_next_fire_time(None, NOW) is not None
        assert "%" not in command

        program, *words = command.split()

        assert program == '"$HOME/.local/bin/brainsurgeon"'  # of its user cron knows no PATH
        check_command(words)
