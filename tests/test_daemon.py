"""The daemon: as a real process beside agents and commands, and its parts in this process."""

import hashlib
import itertools
import json
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime, timedelta

import pytest
import structlog
from freezegun import freeze_time
from structlog.testing import capture_logs

from brainsurgeon import cli
from brainsurgeon import daemon as daemon_module
from brainsurgeon.daemon import _Daemon
from brainsurgeon.errors import ConfigError, StoppedError, StoreDamagedError
from brainsurgeon.model.reports import RetentionReport, ScanReport, Watch
from brainsurgeon.operations.scan import scan
from brainsurgeon.store import open_store
from building.database_pages import damage_pages, leaf_pages
from building.processes import (
    PROGRAM,
    TIMEOUT,
    DaemonProcess,
    OtherProcess,
    is_extracted,
    wait_until,
    write_idle_session,
)
from building.world import Conversation, append, dump, file_states, put_session, write_session
from proofs.power.tracing import strace_problem

HOURLY = {"scan_interval_seconds": 3600}
EACH_SECOND = {"scan_interval_seconds": 1}
# Seconds in which it ends on a machine that has nothing else to do.
SOON = 2.0


def stop_limit(world):
    """Return how long a stop may take: SOON plus the time of a large sync."""
    started = time.monotonic()
    with open(world.base / "as_large", "wb", buffering=0) as file:
        file.writelines([b"x" * 1_000_000] * 75)
        os.fsync(file.fileno())
    return SOON + 3 * (time.monotonic() - started)


@pytest.fixture
def start_daemon(world):
    """Return a function that starts a daemon, which is killed after the test."""
    daemons = []

    def start(*words, **options):
        daemons.append(DaemonProcess(world, *([words] if words else []), **options))
        return daemons[-1]

    yield start
    for daemon in daemons:
        daemon.kill()


def run_command(world, *words):
    return subprocess.run(
        [*PROGRAM, *words, "--config", world.base / "config.toml"],
        capture_output=True, check=False, timeout=60,
    )  # fmt: skip


def json_answer(world, *words):
    result = run_command(world, *words, "--json")

    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


# --- a process of its own ------------------------------------------------------------------------


def test_daemon_extracts_soon_after_an_agent_closes_its_turn(world, start_daemon):
    """A change wakes the daemon; it waits while a turn is open and extracts once it is closed."""
    daemon = start_daemon(quiet_seconds=1, **HOURLY)
    daemon.watching()
    daemon.wait_for("scan_finished")
    conversation = Conversation()
    ident = conversation.turn()
    conversation.turn("short")
    first, last = conversation.lines[:-1], conversation.lines[-1]
    path = world.directory / "s.jsonl"
    agent = OtherProcess(f"globals().update(path={str(path)!r})")
    try:
        agent.execute(f"with open(path, 'wb') as f: f.write({b''.join(map(dump, first))!r})")
        agent.receive()
        daemon.wait_for("scan_finished", files_deferred=1)

        assert path.read_bytes() == b"".join(map(dump, first))

        agent.execute(f"with open(path, 'ab') as f: f.write({dump(last)!r})")
        agent.receive()
        daemon.wait_for("scan_finished", sessions_changed=1, values_extracted=1)
    finally:
        agent.kill()

    assert is_extracted(path, ident)
    assert world.leftovers() == []
    assert daemon.stop()[1] == 0
    assert daemon.logged("daemon_stopped")
    assert daemon.out.read_bytes() == b""


def test_daemon_names_variables_that_it_ignores(start_daemon):
    """At the start and after SIGHUP, a misspelled variable is logged, as all else in JSON."""
    daemon = start_daemon(environment={"BRAINSURGEON_QUIETT": "1"}, **HOURLY)
    os.kill(daemon.started(), signal.SIGHUP)
    daemon.wait_for("reloaded")
    ignored = daemon.logged("setting_ignored", level="warning", module="daemon")

    assert len(ignored) == 2
    assert all("BRAINSURGEON_QUIETT" in entry["reason"] for entry in ignored)
    assert all(line.startswith("{") for line in daemon.err.read_text().splitlines())


def test_daemon_signals_a_tool_call_loop_once_within_ten_seconds(world, start_daemon):
    """A tool call repeated in an open turn logs one signal event and runs `on_signal` once."""
    output = world.base / "said"
    script = f"cat >> {output}; echo >> {output}"
    signals = {"on_signal": ["sh", "-c", script]}
    daemon = start_daemon(environment={"BRAINSURGEON_SIGNALS": json.dumps(signals)}, **HOURLY)
    daemon.watching()
    daemon.wait_for("scan_finished")
    conversation = Conversation()
    conversation.user("make it work")
    path = world.put("s.jsonl", conversation.bytes(), age=0)
    times = []
    for number in range(12):
        before = len(conversation.lines)
        conversation.call(call=f"c{number}", arguments={"command": "make test"})
        conversation.result("it failed", call=f"c{number}")
        append(path, conversation.lines[before:])
        times.append(time.time())
        time.sleep(0.7)
    event = daemon.wait_for("signal")
    wait_until(lambda: output.exists() and output.read_text().endswith("\n"))
    signalled = datetime.fromisoformat(event["timestamp"]).timestamp()

    assert times[4] - 1 < signalled < times[4] + 10 + stop_limit(world)
    time.sleep(2 * daemon_module.SIGNALS_INTERVAL)
    assert daemon.stop()[1] == 0
    assert len(daemon.logged("signal")) == 1
    [line] = filter(None, output.read_text().split("\n"))
    assert json.loads(line)["facts"]["signal"] == "repeated_tool_call"


def test_daemon_scans_by_interval_when_watching_is_off(world, start_daemon):
    """Without watching, interval scans extract a changed session; SIGINT ends the daemon."""
    daemon = start_daemon(watch=False, **EACH_SECOND)
    daemon.wait_for("scan_finished", files_seen=0)
    path, ident = write_idle_session(world)
    daemon.wait_for("scan_finished", sessions_changed=1)

    assert is_extracted(path, ident)

    daemon.wait_for("scan_finished", files_seen=1, files_unchanged=1)
    seconds, code = daemon.stop(signal.SIGINT)

    assert code == 0
    assert seconds < stop_limit(world)


def test_second_daemon_exits_6_and_names_the_first(world, start_daemon):
    """A second daemon exits 6 with the first one's pid; after that is killed, a new one starts."""
    daemon = start_daemon(**HOURLY)
    pid = daemon.started()
    second = run_command(world, "run")

    assert second.returncode == 6
    assert f"pid {pid}" in json.loads(second.stderr)["reason"]

    daemon.kill()
    second = start_daemon(**HOURLY)

    assert second.started() != pid


@pytest.mark.parametrize("how", ["removed", "replaced", "with its directory"])
def test_daemon_exits_7_when_its_store_vanishes(world, start_daemon, conversation, how):
    """A daemon whose store was removed or replaced ends and leaves new sessions as they are."""
    daemon = start_daemon(scan_interval_seconds=1, watch=False)
    daemon.started()
    wait_until(lambda: "scan_finished" in daemon.err.read_text())
    if how == "with its directory":
        world.state.rename(world.base / "elsewhere")
    else:
        (world.state / "store.db").rename(world.base / "elsewhere")
    if how == "replaced":
        shutil.copy(world.base / "elsewhere", world.state / "store.db")
    path = put_session(world, conversation, "late.jsonl")
    code = daemon.process.wait(TIMEOUT)

    assert code == 7
    assert "vanished or was replaced" in daemon.logged("daemon_failed")[0]["reason"]
    assert all(line.startswith("{") for line in daemon.err.read_text().splitlines())
    assert path.read_bytes() == conversation.bytes()


def test_daemon_continues_while_a_root_is_missing(world, start_daemon):
    """A missing root is logged, and its sessions are extracted once it is back."""
    daemon = start_daemon(**EACH_SECOND)
    daemon.wait_for("scan_finished")
    away = world.root.rename(world.base / "away")
    missing = daemon.wait_for("root_unreadable")

    assert (missing["path"], missing["reason"]) == (str(world.root), "no such directory")

    away.rename(world.root)
    path, ident = write_idle_session(world)
    daemon.wait_for("scan_finished", sessions_changed=1)

    assert is_extracted(path, ident)
    assert daemon.stop()[1] == 0


def test_commands_work_while_the_daemon_scans(world, start_daemon):
    """show, restore, extract, scan --once and status answer beside a scanning daemon."""
    path, ident = write_idle_session(world)
    before = path.read_bytes()
    daemon = start_daemon(**EACH_SECOND)
    daemon.wait_for("scan_finished", sessions_changed=1)

    assert run_command(world, "show", ident).stdout == b"x" * 2000

    restored = json_answer(world, "restore", ident)

    assert (restored["restored"], restored["pending"]) == (True, False)
    assert b"_restored" in path.read_bytes()
    assert len(path.read_bytes()) > len(before)

    daemon.wait_for("scan_finished", count=len(daemon.logged("scan_finished")) + 1)

    assert not is_extracted(path, ident)

    forced = json_answer(world, "extract", ident)
    wait_until(lambda: is_extracted(path, ident))

    assert forced["set"]  # the daemon, which sees the request at once, may have been first
    assert json_answer(world, "scan", "--once")["files_seen"] == 1

    now = json_answer(world, "status")

    assert now["daemon_pid"] == daemon.process.pid
    assert now["sessions_by_state"] == {"idle": 1}
    assert 0 <= (moment(now["next_run_at"]) - moment(now["last_run_at"])).total_seconds() <= 1

    assert daemon.stop()[1] == 0
    assert world.leftovers() == []

    later = json_answer(world, "status")

    assert (later["daemon_pid"], later["next_run_at"]) == (None, None)
    assert moment(later["last_run_at"]) >= moment(now["last_run_at"])
    assert not daemon.logged("scan_failed")


def moment(text):
    return datetime.fromisoformat(text)


def test_status_shows_the_next_cron_runs(world, start_daemon):
    """Beside a daemon with cron expressions, status shows their next times."""
    daemon = start_daemon(auto_cron="0 0 1 1 *", retention_cron="0 0 * * sun")
    daemon.wait_for("scan_finished")
    now = json_answer(world, "status")
    scans, retention = (
        moment(now[key]).astimezone() for key in ("next_run_at", "next_retention_run_at")
    )

    assert (scans.month, scans.day, scans.hour, scans.minute) == (1, 1, 0, 0)
    assert (retention.isoweekday(), retention.hour, retention.minute) == (7, 0, 0)
    assert datetime.now(UTC) < retention < datetime.now(UTC) + timedelta(days=7, hours=2)
    assert now["last_retention_run_at"] is None


@pytest.mark.parametrize("zone", ["UTC0", "CET-1CEST", "Bogus/Zone"])
def test_daemon_and_status_run_in_any_time_zone(world, start_daemon, monkeypatch, zone):
    """A TZ that is no name of a zone is read as the C library does."""
    monkeypatch.setenv("TZ", zone)
    daemon = start_daemon(**HOURLY)
    daemon.wait_for("scan_finished")

    assert json_answer(world, "status")["next_retention_run_at"]


def test_sighup_reloads_a_valid_configuration_only(world, start_daemon):
    """An invalid configuration is reported and the old one stays; a valid one applies at once."""
    path, ident = write_idle_session(world)
    daemon = start_daemon(trigger_types=["system"], **HOURLY)
    daemon.wait_for("scan_finished")
    for bad in ({"keep_recnt": 1}, {"auto_cron": "99 * * * *"}, {"quiet_seconds": -1}):
        world.config_file(**bad)
        failed = len(daemon.logged("reload_failed")) + 1
        os.kill(daemon.started(), signal.SIGHUP)

        assert next(iter(bad)) in str(daemon.wait_for("reload_failed", count=failed)["problems"])
    assert not daemon.logged("reloaded")
    assert not is_extracted(path, ident)
    problems = [text for event in daemon.logged("reload_failed") for text in event["problems"]]
    assert all("\n" not in text and "nothing was run" not in text for text in problems)
    assert "the former settings stay in force" in daemon.logged("reload_failed")[0]["reason"]

    world.config_file(**HOURLY)
    os.kill(daemon.started(), signal.SIGHUP)
    daemon.wait_for("reloaded")
    daemon.wait_for("scan_finished", sessions_changed=1)

    assert is_extracted(path, ident)
    assert daemon.stop()[1] == 0


def test_daemon_does_not_fall_back_to_the_defaults(tmp_path, monkeypatch):
    """A file that the daemon finds at its start or later must be there at every later reload."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setattr(sys, "argv", ["brainsurgeon", "run"])
    runs = []
    monkeypatch.setattr(daemon_module, "run", runs.append)
    cli._run()
    [load] = runs
    default, _ = load()
    file = tmp_path / "brainsurgeon/config.toml"
    file.parent.mkdir()
    file.write_text("quiet = 77\n")

    assert load()[0].quiet == 77 != default.quiet

    file.unlink()
    with pytest.raises(ConfigError, match="No such file"):
        load()


def test_sighup_does_not_move_the_state_directory(world, start_daemon):
    """A new `state_dir` is logged and ignored until a restart; the other settings apply."""
    path, ident = write_idle_session(world)
    daemon = start_daemon(trigger_types=["system"], **HOURLY)
    daemon.wait_for("scan_finished")
    world.config_file(state_dir=str(world.base / "elsewhere"), **HOURLY)
    os.kill(daemon.started(), signal.SIGHUP)
    daemon.wait_for("state_dir_kept")
    daemon.wait_for("scan_finished", sessions_changed=1)

    assert is_extracted(path, ident)
    assert not (world.base / "elsewhere").exists()


def listener(address):
    line = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    line.bind("\0" + address[1:] if address.startswith("@") else address)
    line.settimeout(20)
    return line


def test_sigterm_during_the_start_ends_the_daemon_as_later(world):
    """A daemon that gets SIGTERM while it reads its configuration exits with 0, once started."""
    path = str(world.config_file(**HOURLY))
    program = (
        "import os, signal; from brainsurgeon import config, daemon;"
        f"daemon.run(lambda: (os.kill(os.getpid(), signal.SIGTERM), config.load({path!r}))[1])"
    )
    process = subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.DEVNULL)

    assert process.wait(timeout=60) == 0


@pytest.mark.parametrize("kind", ["path", "abstract"])
def test_daemon_notifies_systemd_of_start_and_stop(world, start_daemon, tmp_path_factory, kind):
    """READY=1 is sent once lock and schedule are set, STOPPING=1 after SIGTERM."""
    address = f"@brainsurgeon-test-{os.getpid()}"
    if kind == "path":
        address = str(tmp_path_factory.mktemp("n") / "s")
    with closing(listener(address)) as line:
        daemon = start_daemon(environment={"NOTIFY_SOCKET": address}, **HOURLY)

        assert line.recv(100) == b"READY=1"
        assert run_command(world, "run").returncode == 6

        assert daemon.stop()[1] == 0
        assert line.recv(100) == b"STOPPING=1"


def longest_silence(line, seconds):
    longest, deadline = 0.0, time.monotonic() + 60
    while longest < seconds and time.monotonic() < deadline:
        started = time.monotonic()
        with suppress(TimeoutError):
            line.recv(100)
        longest = max(longest, time.monotonic() - started)
    return longest


def test_watchdog_messages_pause_while_the_worker_is_blocked(world, start_daemon, tmp_path_factory):
    """WATCHDOG=1 is sent at rest and in runs, and not while the worker waits for a locked store."""
    address = str(tmp_path_factory.mktemp("n") / "s")
    write_idle_session(world)
    with closing(listener(address)) as line:
        environment = {"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "1000000"}
        daemon = start_daemon(environment=environment, **EACH_SECOND)
        daemon.wait_for("scan_finished", sessions_changed=1)
        before = [line.recv(100) for _ in range(20)]
        line.settimeout(4)
        with closing(sqlite3.connect(world.state / "store.db")) as other:
            other.execute("BEGIN EXCLUSIVE")

            assert longest_silence(line, 4) >= 4

            other.execute("ROLLBACK")
        line.settimeout(20)

        assert before.count(b"WATCHDOG=1") >= 19
        assert [line.recv(100) for _ in range(3)] == [b"WATCHDOG=1"] * 3
        assert daemon.stop()[1] == 0


def test_no_watchdog_messages_for_another_process(start_daemon, tmp_path_factory):
    """With WATCHDOG_PID of another process, only READY=1 and STOPPING=1 are sent."""
    address = str(tmp_path_factory.mktemp("n") / "s")
    with closing(listener(address)) as line:
        environment = {"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "100000", "WATCHDOG_PID": "1"}
        daemon = start_daemon(environment=environment, **EACH_SECOND)
        daemon.wait_for("scan_finished", count=2)

        assert daemon.stop()[1] == 0
        assert (line.recv(100), line.recv(100)) == (b"READY=1", b"STOPPING=1")


def test_daemon_runs_with_an_unserved_notify_socket(world, start_daemon):
    """A NOTIFY_SOCKET without a listener stops neither start, scan nor exit."""
    daemon = start_daemon(environment={"NOTIFY_SOCKET": str(world.base / "nobody")}, **HOURLY)
    daemon.wait_for("scan_finished")

    assert daemon.stop()[1] == 0


# --- ending --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def large_session(tmp_path_factory):
    """Return a 25 MB session with thousands of values to extract, then 50 MB that stay."""
    path = tmp_path_factory.mktemp("large") / "large.jsonl"
    write_session(path, 25_000_000)
    conversation = Conversation()
    for _ in range(50):
        conversation.user("ü" * 500_000)
    conversation.turn("short")
    with open(path, "ab") as out:
        out.writelines(map(dump, conversation.lines[1:]))
    return path


def has_open(pid, path):
    listed = (f"/proc/{pid}/fd/{name}" for name in os.listdir(f"/proc/{pid}/fd"))
    return any(links_to(link) == str(path) for link in listed)


def links_to(path):
    try:
        return os.readlink(path)
    except FileNotFoundError:
        return None


def is_reading(world, pid):
    return has_open(pid, world.directory / "large.jsonl")


def is_storing(world, pid):
    return (world.state / "store.db").stat().st_size > 2_000_000


def is_writing(world, pid):
    return world.leftovers() != []


@pytest.mark.parametrize("phase", [is_reading, is_storing, is_writing])
def test_sigterm_ends_a_long_scan_within_two_seconds(world, start_daemon, large_session, phase):
    """In each phase of a rewrite, SIGTERM leaves the old session or the new one, no other file."""
    path = world.directory / "large.jsonl"
    for _ in range(20):  # beside other work the phase may be over before it is seen
        shutil.copy2(large_session, path)
        os.utime(path, (time.time() - 3600,) * 2)
        before = path.read_bytes()
        daemon = start_daemon(**HOURLY)
        pid = daemon.started()
        wait_until(lambda: phase(world, pid) or daemon.logged("scan_finished"))  # noqa: B023
        if not daemon.logged("scan_finished"):
            break
        daemon.stop()
        shutil.rmtree(world.state)
    seconds, code = daemon.stop()

    assert code == 0
    assert seconds < stop_limit(world)
    assert world.leftovers() == []
    assert daemon.logged("daemon_stopped")
    if path.read_bytes() != before:  # on a busy machine a phase may be over when it is seen
        whole = run_command(world, "show", "main/large").stdout

        assert hashlib.sha256(whole).digest() == hashlib.sha256(before).digest()


def test_a_stop_while_the_new_file_is_written_discards_it(world):
    """A stop before the last byte removes the new file; the session is extracted later."""
    conversation = Conversation()
    conversation.turn()
    for _ in range(4):
        conversation.user("x" * 1_000_000)
    conversation.turn("short")
    path = world.put("s.jsonl", conversation.bytes())
    before = file_states(world.root)
    written = []

    def check():
        written[:] = [file.stat().st_size for file in world.root.rglob(".brainsurgeon*")]
        if written and written[0] > 3_000_000:
            raise StoppedError

    report = scan(world.settings(), world.store, watch=Watch(check_stop=check))

    assert written[0] > 3_000_000
    assert (report.stopped, report.sessions_changed) == (True, 0)
    assert (world.leftovers(), file_states(world.root)) == ([], before)
    assert path.read_bytes() == conversation.bytes()
    assert world.scan().sessions_changed == 1


def test_sigterm_does_not_wait_for_a_locked_session(world, start_daemon):
    """The daemon stops at once while another process holds the lock of a session it wants."""
    path, _ = write_idle_session(world)
    daemon = start_daemon(**HOURLY)
    daemon.wait_for("scan_finished", sessions_changed=1)
    with closing(open_store(str(world.state))) as other, other.lock(1):
        conversation = Conversation()
        conversation._ids = iter(range(100, 200))
        conversation.turn()
        conversation.turn("short")
        append(path, conversation.lines[1:])
        os.utime(path, (time.time() - 3600,) * 2)
        before = path.read_bytes()
        os.kill(daemon.started(), signal.SIGHUP)
        daemon.wait_for("reloaded")
        wait_until(lambda: keeps_open(daemon.process.pid, path))
        seconds, code = daemon.stop()

        assert code == 0
        assert seconds < stop_limit(world)
    assert path.read_bytes() == before
    assert world.leftovers() == []


def keeps_open(pid, path):
    """Check whether a process has a file open for 0.3 seconds."""
    for _ in range(10):
        if not has_open(pid, path):
            return False
        time.sleep(0.03)
    return True


def test_repeated_signals_end_the_daemon_like_one(world, start_daemon):
    """Hundreds of SIGHUP, SIGTERM and SIGINT in a row end the daemon with exit code 0."""
    daemon = start_daemon(**HOURLY)
    pid = daemon.started()
    started = time.monotonic()
    for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGINT) * 100:
        if daemon.process.poll() is None:
            os.kill(pid, number)
    code = daemon.process.wait(30)
    seconds = time.monotonic() - started

    assert code == 0
    assert seconds < stop_limit(world)


# --- a tree in which nothing changes -------------------------------------------------------------


# Only the kernel can tell what was opened; the gate has strace, a newcomer need not.
@pytest.mark.skipif(strace_problem() is not None, reason=str(strace_problem()))
def test_scans_do_not_open_unchanged_sessions(world, start_daemon):
    """Scans over 2,000 unchanged sessions open none of them, only one that changes later."""
    conversation = Conversation()
    conversation.turn("short")
    for number in range(2000):
        directory = world.root / f"agent{number % 20}" / "sessions"
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / f"{number:08x}.jsonl"
        path.write_bytes(conversation.bytes())
        os.utime(path, (time.time() - 3600,) * 2)

    assert world.scan().files_scanned == 2000

    trace = world.base / "trace"
    before = ("strace", "-f", "-qq", "-e", "trace=open,openat,openat2", "-o", str(trace))
    daemon = start_daemon(before=before, **EACH_SECOND)
    daemon.wait_for("scan_finished", count=3, files_seen=2000, files_unchanged=2000)
    opened = trace.read_text()

    assert opened.count('.jsonl"') == 0
    assert opened.count('"agent7"') >= 3

    append(path, conversation.lines[-1:])
    wait_until(lambda: any(
        finished["files_unchanged"] != finished["files_seen"]
        for finished in daemon.logged("scan_finished")
    ))  # fmt: skip
    seconds = [line for line in trace.read_text().splitlines() if '.jsonl"' in line]

    assert {line.split('"')[1] for line in seconds} == {path.name}
    assert daemon.stop()[1] == 0


# --- watching ------------------------------------------------------------------------------------


def daemon_in_process(world, **keys):
    settings = world.settings(**keys)
    return _Daemon(lambda: (settings, []), settings, world.store)


@contextmanager
def watching_daemon(world, monkeypatch, **keys):
    monkeypatch.setattr(daemon_module, "ROOTS_INTERVAL", 0.2)
    daemon = daemon_in_process(world, **keys)
    due = []
    monkeypatch.setattr(daemon, "_scan_soon", due.append)
    thread = threading.Thread(target=daemon._watch)
    thread.start()
    try:
        yield daemon, due
    finally:
        daemon._stop.set()
        thread.join(5)

        assert not thread.is_alive()


def append_until_due(due, path):
    """Append to a file until it is due, since the watch may not have begun."""

    def marked():
        with open(path, "ab") as handle:
            handle.write(b"{}\n")
        time.sleep(0.05)
        return str(path) in due

    wait_until(marked)


def test_watching_marks_changed_sessions_only(world, monkeypatch):
    """Temporary files, locks, archives and registries that change do not make a scan due."""
    with watching_daemon(world, monkeypatch) as (_, due):
        append_until_due(due, world.directory / "first.jsonl")
        for name in (
            ".brainsurgeon-0123456789abcdef.tmp", "s.jsonl.lock", "sessions.json",
            "s.trajectory.jsonl", "s.jsonl.reset.2026-11-21T10-00-00.000Z", "notes.txt",
        ):  # fmt: skip
            (world.directory / name).write_bytes(b"{}\n")
        time.sleep(0.3)
        append_until_due(due, world.directory / "last.jsonl")

    assert set(due) == {str(world.directory / name) for name in ("first.jsonl", "last.jsonl")}


def test_watching_covers_a_root_whenever_it_exists(world, monkeypatch):
    """A root that is missing at the start, or vanishes, is watched each time it appears."""
    later = world.base / "later"
    roots = [{"path": str(world.root)}, {"path": str(later)}]
    with watching_daemon(world, monkeypatch, roots=roots) as (_, due):
        append_until_due(due, world.directory / "s.jsonl")
        for number in range(2):
            later.mkdir()
            append_until_due(due, later / f"{number}.jsonl")
            later.rename(world.base / f"away{number}")


def test_watching_follows_a_replaced_root(world, monkeypatch):
    """A new directory under a root's name is watched, however quickly it replaced the old one."""
    with watching_daemon(world, monkeypatch) as (_, due):
        append_until_due(due, world.directory / "s.jsonl")
        world.root.rename(world.base / "away")
        world.directory.mkdir(parents=True)
        append_until_due(due, world.directory / "t.jsonl")


def test_watching_resolves_a_root_that_is_a_link(world, monkeypatch):
    """The path marked as due is the one that a scan finds behind the link."""
    link = world.base / "link"
    link.symlink_to(world.root)
    with watching_daemon(world, monkeypatch, roots=[{"path": str(link)}]) as (_, due):
        append_until_due(due, world.directory / "s.jsonl")


def test_a_changed_session_is_due_after_the_quiet_time(world):
    """A second change of a path postpones its one job instead of adding another."""
    daemon = daemon_in_process(world, quiet_seconds=30)
    with freeze_time("2026-11-21 12:00:00") as frozen:
        daemon._scan_soon("/s.jsonl")
        frozen.tick(10)
        daemon._scan_soon("/s.jsonl")
    daemon._scheduler.start(paused=True)
    [job] = daemon._scheduler.get_jobs()
    daemon._scheduler.shutdown()

    assert job.trigger.run_date == datetime(2026, 11, 21, 12, 0, 40, 500_000, tzinfo=UTC)


def test_paths_that_are_due_are_scanned_in_one_run(world, monkeypatch):
    """The first due job scans all paths that are due, the others only those that are due later."""
    daemon, scanned = daemon_in_process(world, quiet_seconds=30), []
    monkeypatch.setattr(daemon, "_scan", lambda *paths: scanned.append(paths))
    with freeze_time("2026-11-21 12:00:00") as frozen:
        daemon._scan_soon("/changed again.jsonl")
        for number in range(3):
            daemon._scan_soon(f"/{number}.jsonl")
        frozen.tick(10)
        daemon._scan_soon("/changed again.jsonl")
        for seconds in (20, 1, 1, 9):
            frozen.tick(seconds)
            daemon._scan_due()

    assert scanned == [("/0.jsonl", "/1.jsonl", "/2.jsonl"), ("/changed again.jsonl",)]


@pytest.mark.parametrize(
    "error",
    [
        OSError(28, "No space left on device"),
        OSError("OS file watch limit reached. about ['/agents']"),
        RuntimeError("error in underlying watcher: OS file watch limit reached."),
    ],
)
def test_a_failing_watch_is_logged_and_retried(world, monkeypatch, error):
    """An error of the watcher is logged as a warning with advice, and its thread goes on."""

    def fail(*_, **__):
        raise error

    monkeypatch.setattr("watchfiles.watch", fail)
    structlog.reset_defaults()
    with capture_logs() as logs, watching_daemon(world, monkeypatch) as (daemon, _):
        wait_until(lambda: logs)
        thread_lives = any(
            thread.is_alive() and thread._target == daemon._watch
            for thread in threading.enumerate()
        )

    assert thread_lives
    assert [(entry["event"], entry["log_level"]) for entry in logs] == [("watch_failed", "warning")]
    assert "fs.inotify.max_user_watches" in logs[0]["advice"]


LOWER = 'echo 1 > /proc/sys/user/max_inotify_watches && exec "$@"'


def can_lower_watch_limit():
    """Check whether a user namespace can lower the limit of inotify watches for a process."""
    words = ("unshare", "-Ur", "sh", "-c", LOWER, "sh", "true")
    return (
        bool(shutil.which("unshare"))
        and not subprocess.run(words, check=False, stderr=subprocess.DEVNULL).returncode
    )


# The limit is a whole user's: it is lowered where nobody else is, or nowhere.
@pytest.mark.skipif(not can_lower_watch_limit(), reason="no user namespaces here")
def test_daemon_scans_by_interval_at_the_inotify_limit(world, start_daemon):
    """Where the kernel refuses watches, the daemon warns and extracts by the interval."""
    daemon = start_daemon(before=("unshare", "-Ur", "sh", "-c", LOWER, "sh"), **EACH_SECOND)
    daemon.wait_for("watch_failed", level="warning")
    path, ident = write_idle_session(world)
    daemon.wait_for("scan_finished", sessions_changed=1)

    assert is_extracted(path, ident)
    assert daemon.stop()[1] == 0


# --- one thing at a time -------------------------------------------------------------------------


class Work:
    """Replaces scans and retention runs: takes given durations and records the spans."""

    def __init__(self, *durations):
        self.durations = list(durations)
        self.spans = []

    def __call__(self, *_, **__):
        begun = time.monotonic()
        time.sleep(self.durations.pop(0) if self.durations else 0)
        self.spans.append((begun, time.monotonic()))


def test_due_jobs_run_one_at_a_time(world, monkeypatch):
    """Scans, changed paths and retention that fall due together run one after the other."""
    work = Work(*[0.1] * 3)
    monkeypatch.setattr(daemon_module, "scan", lambda *_, **__: work() or ScanReport(dry_run=False))
    monkeypatch.setattr(
        daemon_module, "retention", lambda *_, **__: work() or RetentionReport(False)
    )
    daemon = daemon_in_process(world, **HOURLY)
    daemon._schedule()
    daemon._scan_soon("/s.jsonl")
    daemon._scheduler.add_job(daemon._run_retention)
    daemon._scheduler.start()
    wait_until(lambda: len(work.spans) == 3)
    daemon._scheduler.shutdown()
    spans = sorted(work.spans)

    assert all(ended <= started for (_, ended), (started, _) in itertools.pairwise(spans))


def test_missed_interval_scans_are_not_repeated(world, monkeypatch):
    """After a scan longer than two intervals one scan follows at once, the next one on time."""
    work = Work(2.2)
    monkeypatch.setattr(daemon_module, "scan", lambda *_, **__: work() or ScanReport(dry_run=False))
    daemon = daemon_in_process(world, **EACH_SECOND)
    daemon._schedule()
    daemon._scheduler.start()
    wait_until(lambda: len(work.spans) == 3)
    daemon._scheduler.shutdown()
    started = [span[0] - work.spans[0][0] for span in work.spans]

    assert started[1] == pytest.approx(2.2, abs=0.3)
    assert started[2] == pytest.approx(3, abs=0.3)


@pytest.mark.parametrize("job", ["scan", "retention"])
def test_an_unexpected_error_is_logged_by_its_type(world, monkeypatch, job):
    """A job survives any error and logs only its type, because its text may quote a session."""

    def fail(*_, **__):
        raise ValueError("canary")

    monkeypatch.setattr(daemon_module, job, fail)
    daemon = daemon_in_process(world)
    structlog.reset_defaults()
    with capture_logs() as logs:
        {"scan": daemon._scan, "retention": daemon._run_retention}[job]()

    assert [(entry["event"], entry["log_level"]) for entry in logs] == [(f"{job}_failed", "error")]
    assert logs[0]["reason"] == "ValueError"


def daemon_with_recorded_end(world, monkeypatch):
    """Return a daemon, and a list of the signals that it sends to end itself."""
    sent = []
    monkeypatch.setattr(daemon_module.os, "kill", lambda _, number: sent.append(number))
    structlog.reset_defaults()
    return daemon_in_process(world), sent


def test_a_daemon_that_finds_its_store_damaged_ends(world, monkeypatch, conversation):
    """The log says as the command line what is damaged, and no further session is changed."""
    put_session(world, conversation)
    world.scan(keep_recent=0)
    world.close()
    store = str(world.state / "store.db")
    damage_pages(store, *leaf_pages(store, "blobs"))
    path = put_session(world, Conversation("later"), "later.jsonl")
    before = path.read_bytes()
    daemon, sent = daemon_with_recorded_end(world, monkeypatch)
    with capture_logs() as logs:
        daemon._run_retention()
        daemon._scan()

    assert [entry["event"] for entry in logs] == ["retention_failed"]
    assert logs[0]["reason"].startswith(f"{store} is unusable (SQLITE_CORRUPT) and was left")
    assert isinstance(daemon._store_error, StoreDamagedError)
    assert sent == [signal.SIGTERM]
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "code", ["SQLITE_BUSY", "SQLITE_FULL", "SQLITE_CANTOPEN", "SQLITE_IOERR_FSYNC"]
)
def test_a_daemon_with_a_busy_or_full_store_continues(world, monkeypatch, code):
    """The failure is logged with the path of the store, and the next run tries again.

    On a full disk, SQLite may also be unable to create its journal, or to sync a file.
    """

    def fail(*_, **__):
        error = sqlite3.OperationalError()
        error.sqlite_errorname = code
        raise error

    monkeypatch.setattr(daemon_module, "scan", fail)
    daemon, sent = daemon_with_recorded_end(world, monkeypatch)
    with capture_logs() as logs:
        daemon._scan()

    assert str(world.state / "store.db") in logs[0]["reason"]
    assert (daemon._store_error, sent, daemon._stop.is_set()) == (None, [], False)


def test_a_stopping_daemon_starts_no_job(world):
    """Queued jobs do nothing after a stop, and a running one raises StoppedError."""
    path, ident = write_idle_session(world)
    daemon = daemon_in_process(world)
    daemon._stop.set()
    daemon._scan()
    daemon._run_retention()

    assert not is_extracted(path, ident)
    with pytest.raises(StoppedError):
        daemon._check_stop_and_beat()


# --- what falls due by time ----------------------------------------------------------------------


def test_an_idle_daemon_wakes_about_once_a_second(world, start_daemon):
    """While nothing changes, its threads wake at most four times a second."""
    write_idle_session(world)
    daemon = start_daemon(**HOURLY)
    daemon.watching()
    pid = daemon.started()
    daemon.wait_for("scan_finished")

    def asleep():
        """Watch it for a while; on a machine that is busy its threads may wait for each other."""
        started, before = time.monotonic(), wake_ups(pid)
        time.sleep(1.5)
        return wake_ups(pid) - before <= 4 * (time.monotonic() - started)

    wait_until(asleep, patience=3 * TIMEOUT)


def wake_ups(pid):
    """Count the voluntary context switches of a process's threads."""
    count = 0
    for thread in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{thread}/status") as handle:
            count += sum(int(line.split()[1]) for line in handle if line.startswith("voluntary"))
    return count
