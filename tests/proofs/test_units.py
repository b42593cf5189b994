"""The units and the crontab: understood by those who read them, and enough."""

import configparser
import os
import re
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from functools import cache

import pytest

from brainsurgeon import config
from brainsurgeon.hosts import claude_code, home_paths
from brainsurgeon.schedule import cron_trigger
from building.processes import DaemonProcess, is_extracted, write_idle_session
from building.world import TOP

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
with_strace = pytest.mark.skipif(not shutil.which("strace"), reason="strace is not installed")


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
    """Give the words of each command of ours that a unit starts, without the program."""
    lines = [line for line in unit["ExecStart"] if PROGRAM.match(line)]
    return [line.split()[1:] for line in lines]


@pytest.fixture
def units(tmp_path):
    """Copy the units to where they start a program that exists here."""
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


def test_every_unit_is_known_here():
    """No unit is without a test."""
    found = {str(path.relative_to(SYSTEMD)) for path in SYSTEMD.rglob("*") if path.is_file()}

    assert found == UNITS


@with_systemd
@pytest.mark.parametrize("name", sorted(UNITS))
def test_systemd_understands_the_unit(units, tmp_path, name):
    """`systemd-analyze verify` has nothing to say about it."""
    words = ("--user",) if name.startswith("user/") else ()
    done = analyze(
        *words, "verify", "--man=no", "--recursive-errors=no", str(units / name), runtime=tmp_path
    )

    assert str(units) not in done.stderr
    assert done.returncode == 0, done.stderr


@with_systemd
def test_a_misspelt_key_would_be_noticed(units, tmp_path):
    """The check above fails for a key that systemd does not know."""
    unit = units / "brainsurgeon.service"
    unit.write_text(unit.read_text().replace("MemoryMax=", "MemoryMaximum="))
    done = analyze("verify", "--man=no", "--recursive-errors=no", str(unit), runtime=tmp_path)

    assert done.returncode != 0


@with_systemd
@pytest.mark.parametrize("name", SERVICES)
def test_a_service_is_shut_in(units, tmp_path, name):
    """What a service could reach beyond its work stays below a threshold."""
    words = ("--user",) if name.startswith("user/") else ()
    done = analyze(
        *words, "security", "--offline=yes", f"--threshold={EXPOSED[name]}", str(units / name),
        runtime=tmp_path,
    )  # fmt: skip

    assert done.returncode == 0, done.stdout.splitlines()[-1]


def test_a_users_service_may_do_what_the_systems_may():
    """What is filtered is the same, so that what is shown of one holds for both."""
    ours, systems = Unit("user/brainsurgeon.service"), Unit("brainsurgeon.service")

    for key in ("SystemCallFilter", "RestrictAddressFamilies", "WatchdogSec", "ProtectSystem"):
        assert ours[key] == systems[key]
    for key in ("CapabilityBoundingSet", "PrivateDevices", "ProtectClock", "ProtectKernelLogs",
                "ProtectKernelModules", "PrivateUsers"):  # fmt: skip
        assert key not in ours  # with it a user's manager does not start a service


def test_a_failure_can_be_told_to_an_address():
    """The line that is to be taken in names the unit that is there for it."""
    for name in SERVICES:
        text = (SYSTEMD / name).read_text()

        assert "\n# OnFailure=brainsurgeon-failed@%n.service\n" in text
    assert "https://" in Unit("brainsurgeon-failed@.service")["ExecStart"][0]


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_starts_commands_that_exist(name):
    """Every ExecStart is a command of this program with options that it has."""
    commands = commands_of(Unit(name))

    assert commands
    for words in commands:
        assert_understood(words)


def assert_understood(words):
    done = subprocess.run(
        [sys.executable, "-m", "brainsurgeon", *words, "--help"], capture_output=True, check=False,
        timeout=60,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    assert b"Usage: " in done.stdout


# --- where it works ------------------------------------------------------------------------------


def homes(unit, monkeypatch):
    assert unit["User"] == ["agent"]
    assert "Group" not in unit  # a user's own group may be called anything

    home = f"/home/{unit['User'][0]}"
    monkeypatch.setenv("HOME", home)
    monkeypatch.setattr(config.loading, "config_path", lambda _: None)
    return home, config.load()[0]


@pytest.mark.parametrize("name", SYSTEM_SERVICES)
def test_a_system_service_keeps_its_state_where_the_shell_does(monkeypatch, name):
    """It runs as the agent's user, makes the directory that user's shell has, and may write it."""
    unit = Unit(name)
    home, settings = homes(unit, monkeypatch)
    made = next(line for line in unit["ExecStartPre"] if "install -d" in line).split()
    writable = [path.lstrip("-") for path in unit.words("ReadWritePaths")]
    sessions = [
        *(root.path for root in settings.root_directories()),
        os.path.join(home_paths.claude_code(), claude_code.PROJECTS, "-w"),
        f"{home}/.pi/agent/sessions/--w--",
    ]

    assert made[-1] == settings.state_dir == f"{home}/.local/state/brainsurgeon"
    assert made[made.index("-m") + 1] == "0700"
    assert made[made.index("-o") + 1] == unit["User"][0]
    for path in (settings.state_dir, *sessions):
        assert any(path.startswith(f"{place}/") for place in writable), path


@pytest.mark.parametrize("name", SERVICES)
def test_no_service_moves_the_state(name):
    """Nothing in a unit makes the program look elsewhere than the shell of the same user."""
    unit = Unit(name)

    assert not unit.keys() & {"StateDirectory", "Environment", "EnvironmentFile", "DynamicUser",
                              "PassEnvironment", "RootDirectory", "ProtectHome"}  # fmt: skip
    assert "--config" not in " ".join(unit["ExecStart"])


@pytest.mark.parametrize("name", ["brainsurgeon.service", "user/brainsurgeon.service"])
def test_a_daemon_is_waited_for_told_and_left_in_peace(name):
    """It says when it is ready, is reloaded by SIGHUP, and no scheduler slows it under a lease."""
    unit = Unit(name)

    assert unit["Type"] == ["notify"]
    assert unit["ExecReload"] == ["/bin/kill -HUP $MAINPID"]
    assert unit["UMask"] == ["0077"]
    assert int(unit["TimeoutStopSec"][0]) > 2
    assert not unit.keys() & {"Nice", "IOSchedulingClass", "CPUSchedulingPolicy", "KillSignal"}


def test_the_timer_starts_the_run():
    """Its service has its name, runs once, and the timer comes again and again."""
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
    """Give the sets of system calls that systemd knows, by their names."""
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
    """Give the system calls that the filter of a unit lets through."""
    allowed = members("@default")
    for line in unit["SystemCallFilter"]:
        denied = line.startswith("~")
        calls = {call for name in line.lstrip("~").split() for call in members(name)}
        allowed = allowed - calls if denied else allowed | calls
    return allowed


def calls_of(trace):
    """Give the names of all system calls in a trace, and the lines that made each of them."""
    made = {}
    for line in trace.read_text(errors="replace").splitlines():
        match = re.match(r"\d+ +(?:<\.\.\. )?(\w+)(?:\(| resumed)", line)
        if match:
            made.setdefault(match[1], []).append(line)
    return made


def check_calls(unit, made):
    for_root_alone = {"fchown"} if os.geteuid() == 0 else set()  # SQLite, for its journal

    assert made.keys() >= {"openat", "fcntl", "renameat2", "fsync"}
    assert made.keys() - for_root_alone - allowed_calls(unit) == set()
    assert unit.words("RestrictAddressFamilies") == ["AF_UNIX"]
    for line in made.get("socket", ()):
        assert "AF_UNIX" in line or "resumed" in line
    for line in made["mmap"] + made["mprotect"]:
        assert not ("PROT_WRITE" in line and "PROT_EXEC" in line)
    for name in ("clone", "clone3"):
        for line in made.get(name, ()):
            assert "CLONE_NEW" not in line


@with_systemd
@with_strace
def test_the_daemon_does_nothing_that_its_unit_forbids(world, tmp_path_factory):
    """Through a start, a cut, a put-back and an end it makes no system call that is filtered."""
    path, ident = write_idle_session(world)
    trace = world.base / "trace"
    before = ("strace", "-f", "-qq", "-o", str(trace))
    address = str(tmp_path_factory.mktemp("n") / "nobody")
    one = DaemonProcess(
        world, before=before, environment={"NOTIFY_SOCKET": address}, scan_interval_seconds=1
    )
    try:
        one.wait_for("scan_finished", sessions_changed=1)

        assert is_extracted(path, ident)

        world.restore(ident, quiet_seconds=10**6)
        one.wait_for("restoration")
        code = one.stop()[1]
    finally:
        one.kill()

    assert code == 0
    check_calls(Unit("brainsurgeon.service"), calls_of(trace))


@with_systemd
@with_strace
def test_a_run_does_nothing_that_its_unit_forbids(world):
    """Nor does the command that the timer starts, with and without retention."""
    path, ident = write_idle_session(world)
    made = {}
    for number, words in enumerate((("scan", "--once"), ("scan", "--retention"))):
        trace = world.base / f"trace{number}"
        subprocess.run(
            ["strace", "-f", "-qq", "-o", trace, sys.executable, "-m", "brainsurgeon", *words,
             "--config", world.config_file()],
            check=True, timeout=120, stdout=subprocess.DEVNULL,
        )  # fmt: skip
        for name, lines in calls_of(trace).items():
            made.setdefault(name, []).extend(lines)

    assert is_extracted(path, ident)
    check_calls(Unit("brainsurgeon-scan.service"), made)


# --- cron ---------------------------------------------------------------------------------------


def test_every_line_of_the_crontab_is_one_that_cron_runs():
    """Five fields and a command of this program, without a percent sign, which cron would eat."""
    lines = (TOP / "deploy" / "crontab").read_text().splitlines()
    jobs = [line for line in lines if line.strip() and not line.startswith("#")]

    assert jobs
    for job in jobs:
        *fields, command = job.split(None, 5)

        assert cron_trigger(" ".join(fields)).get_next_fire_time(None, NOW) is not None
        assert "%" not in command

        program, *words = command.split()

        assert program == '"$HOME/.local/bin/brainsurgeon"'  # of its user cron knows no PATH
        assert_understood(words)
