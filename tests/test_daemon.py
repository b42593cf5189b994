"""The daemon: as a real process beside agents and commands, and its parts with passed clocks."""

import hashlib
import itertools
import json
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import threading
import time
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime, timedelta

import pytest
import structlog
from freezegun import freeze_time
from structlog.testing import capture_logs

from brainsurgeon import daemon as daemons
from brainsurgeon.daemon import _Daemon
from brainsurgeon.errors import StoppedError
from brainsurgeon.model.reports import RetentionReport, ScanReport, Watch
from brainsurgeon.operations.scan import scan
from brainsurgeon.store import open_store
from building.processes import (
    PROGRAM,
    TIMEOUT,
    DaemonProcess,
    OtherProcess,
    is_extracted,
    wait_until,
    write_idle_session,
)
from building.world import Conversation, append, dump, file_states, write_session

HOURLY = {"scan_interval_seconds": 3600}
EACH_SECOND = {"scan_interval_seconds": 1}
# Seconds in which it ends on a machine that has nothing else to do.
SOON = 2.0


def soon(world):
    """Give the seconds in which it ends on this machine, busy as it is: two, and a slow disk's.

    What it may have to wait for, a sync of what it wrote, is timed here and now.
    """
    begun = time.monotonic()
    with open(world.base / "as_large", "wb", buffering=0) as file:
        file.writelines([b"x" * 1_000_000] * 75)
        os.fsync(file.fileno())
    return SOON + 3 * (time.monotonic() - begun)


@pytest.fixture
def daemon(world):
    begun = []

    def start(*words, **given):
        begun.append(DaemonProcess(world, *([words] if words else []), **given))
        return begun[-1]

    yield start
    for one in begun:
        one.kill()


def command(world, *words):
    return subprocess.run(
        [*PROGRAM, *words, "--config", world.base / "config.toml"],
        capture_output=True, check=False, timeout=60,
    )  # fmt: skip


def answer(world, *words):
    done = command(world, *words, "--json")

    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


# --- a process of its own ------------------------------------------------------------------------


def test_it_prunes_what_an_agent_writes_and_leaves(world, daemon):
    """It wakes on a change, leaves an open turn alone, and prunes soon after the turn is closed."""
    one = daemon(quiet_seconds=1, **HOURLY)
    one.watching()
    one.wait_for("scan_finished")
    talk = Conversation()
    ident = talk.turn()
    talk.turn("short")
    first, last = talk.lines[:-1], talk.lines[-1]
    path = world.directory / "s.jsonl"
    agent = OtherProcess(f"globals().update(path={str(path)!r})")
    try:
        agent.execute(f"with open(path, 'wb') as f: f.write({b''.join(map(dump, first))!r})")
        agent.receive()
        one.wait_for("scan_finished", files_deferred=1)

        assert path.read_bytes() == b"".join(map(dump, first))

        agent.execute(f"with open(path, 'ab') as f: f.write({dump(last)!r})")
        agent.receive()
        one.wait_for("scan_finished", sessions_changed=1, values_extracted=1)
    finally:
        agent.kill()

    assert is_extracted(path, ident)
    assert world.leftovers() == []
    assert one.stop()[1] == 0
    assert one.logged("daemon_stopped")
    assert one.out.read_bytes() == b""


def test_a_loop_in_an_open_turn_is_one_signal_within_ten_seconds(world, daemon):
    """An agent makes the same call again and again: one event, and the command runs once."""
    said = world.base / "said"
    script = f"cat >> {said}; echo >> {said}"
    signals = {"on_signal": ["sh", "-c", script]}
    one = daemon(environment={"BRAINSURGEON_SIGNALS": json.dumps(signals)}, **HOURLY)
    one.watching()
    one.wait_for("scan_finished")
    talk = Conversation()
    talk.user("make it work")
    path = world.put("s.jsonl", talk.bytes(), age=0)
    times = []
    for number in range(12):
        before = len(talk.lines)
        talk.call(call=f"c{number}", arguments={"command": "make test"})
        talk.result("it failed", call=f"c{number}")
        append(path, talk.lines[before:])
        times.append(time.time())
        time.sleep(0.7)
    event = one.wait_for("signal")
    wait_until(lambda: said.exists() and said.read_text().endswith("\n"))
    signalled = datetime.fromisoformat(event["timestamp"]).timestamp()

    assert times[4] - 1 < signalled < times[4] + 10 + soon(world)
    time.sleep(2 * daemons.SIGNALS_INTERVAL)
    assert one.stop()[1] == 0
    assert len(one.logged("signal")) == 1
    [line] = filter(None, said.read_text().split("\n"))
    assert json.loads(line)["facts"]["signal"] == "repeated_tool_call"


def test_it_prunes_by_the_interval_without_watching(world, daemon):
    """Without watching the schedule finds what changed; SIGINT ends it too."""
    one = daemon(watch=False, **EACH_SECOND)
    one.wait_for("scan_finished", files_seen=0)
    path, ident = write_idle_session(world)
    one.wait_for("scan_finished", sessions_changed=1)

    assert is_extracted(path, ident)

    one.wait_for("scan_finished", files_seen=1, files_unchanged=1)
    took, code = one.stop(signal.SIGINT)

    assert code == 0
    assert took < soon(world)


def test_only_one_runs_at_a_time(world, daemon):
    """A second one exits with 6 and names the first; when the first is killed the next may run."""
    one = daemon(**HOURLY)
    pid = one.started()
    second = command(world, "run")

    assert second.returncode == 6
    assert f"pid {pid}".encode() in second.stderr

    one.kill()
    second = daemon(**HOURLY)

    assert second.started() != pid


@pytest.mark.parametrize("how", ["removed", "replaced", "with its directory"])
def test_a_daemon_whose_store_vanished_ends_with_7_and_says_so(world, daemon, conversation, how):
    """What it would store could not be found again: it ends, and the sessions stay as they are."""
    one = daemon(scan_interval_seconds=1, watch=False)
    one.started()
    wait_until(lambda: "scan_finished" in one.err.read_text())
    if how == "with its directory":
        world.state.rename(world.base / "elsewhere")
    else:
        (world.state / "store.db").rename(world.base / "elsewhere")
    if how == "replaced":
        shutil.copy(world.base / "elsewhere", world.state / "store.db")
    conversation.turn("x" * 4000)
    path = world.put("late.jsonl", conversation.bytes())
    code = one.process.wait(TIMEOUT)

    assert code == 7
    assert "vanished or was replaced" in one.err.read_text().splitlines()[-1]
    assert path.read_bytes() == conversation.bytes()


def test_a_root_that_vanishes_and_comes_back_is_survived(world, daemon):
    """It says that the root is missing, goes on, and prunes there once it is back."""
    one = daemon(**EACH_SECOND)
    one.wait_for("scan_finished")
    away = world.root.rename(world.base / "away")
    missing = one.wait_for("root_unreadable")

    assert (missing["path"], missing["reason"]) == (str(world.root), "no such directory")

    away.rename(world.root)
    path, ident = write_idle_session(world)
    one.wait_for("scan_finished", sessions_changed=1)

    assert is_extracted(path, ident)
    assert one.stop()[1] == 0


def test_commands_work_beside_it(world, daemon):
    """Show, restore, set-extractable, scan --once and status all answer while it scans."""
    path, ident = write_idle_session(world)
    before = path.read_bytes()
    one = daemon(**EACH_SECOND)
    one.wait_for("scan_finished", sessions_changed=1)

    assert command(world, "show", ident).stdout == b"x" * 2000

    restored = answer(world, "restore", ident)

    assert (restored["restored"], restored["pending"]) == (True, False)
    assert b"_restored" in path.read_bytes()
    assert len(path.read_bytes()) > len(before)

    one.wait_for("scan_finished", count=len(one.logged("scan_finished")) + 1)

    assert not is_extracted(path, ident)

    forced = answer(world, "extract", ident)
    wait_until(lambda: is_extracted(path, ident))

    assert forced["set"]  # the daemon, which sees the request at once, may have been first
    assert answer(world, "scan", "--once")["files_seen"] == 1

    now = answer(world, "status")

    assert now["daemon_pid"] == one.process.pid
    assert now["sessions_by_state"] == {"idle": 1}
    assert 0 <= (moment(now["next_run_at"]) - moment(now["last_run_at"])).total_seconds() <= 1

    assert one.stop()[1] == 0
    assert world.leftovers() == []

    later = answer(world, "status")

    assert (later["daemon_pid"], later["next_run_at"]) == (None, None)
    assert moment(later["last_run_at"]) >= moment(now["last_run_at"])
    assert not one.logged("scan_failed")


def moment(text):
    return datetime.fromisoformat(text)


def test_status_says_when_cron_runs_next(world, daemon):
    """Beside a daemon that goes by cron, the next runs are those of the expressions."""
    one = daemon(auto_cron="0 0 1 1 *", retention_cron="0 0 * * sun")
    one.wait_for("scan_finished")
    now = answer(world, "status")
    scans, kept = (
        moment(now[key]).astimezone() for key in ("next_run_at", "next_retention_run_at")
    )

    assert (scans.month, scans.day, scans.hour, scans.minute) == (1, 1, 0, 0)
    assert (kept.isoweekday(), kept.hour, kept.minute) == (7, 0, 0)
    assert datetime.now(UTC) < kept < datetime.now(UTC) + timedelta(days=7, hours=2)
    assert now["last_retention_run_at"] is None


def test_the_configuration_is_read_again_on_sighup(world, daemon):
    """A bad one is reported and the old one kept; a good one takes effect at once."""
    path, ident = write_idle_session(world)
    one = daemon(trigger_types=["system"], **HOURLY)
    one.wait_for("scan_finished")
    for bad in ({"keep_recnt": 1}, {"auto_cron": "99 * * * *"}, {"quiet_seconds": -1}):
        world.config_file(**bad)
        failed = len(one.logged("reload_failed")) + 1
        os.kill(one.started(), signal.SIGHUP)

        assert next(iter(bad)) in str(one.wait_for("reload_failed", count=failed)["problems"])
    assert not one.logged("reloaded")
    assert not is_extracted(path, ident)
    told = [text for event in one.logged("reload_failed") for text in event["problems"]]
    assert all("\n" not in text and "nothing was run" not in text for text in told)
    assert "the settings in force stay" in one.logged("reload_failed")[0]["reason"]

    world.config_file(**HOURLY)
    os.kill(one.started(), signal.SIGHUP)
    one.wait_for("reloaded")
    one.wait_for("scan_finished", sessions_changed=1)

    assert is_extracted(path, ident)
    assert one.stop()[1] == 0


def test_the_state_directory_stays_where_it_is_on_sighup(world, daemon):
    """The store of a running daemon is not moved; it says so and takes the rest."""
    path, ident = write_idle_session(world)
    one = daemon(trigger_types=["system"], **HOURLY)
    one.wait_for("scan_finished")
    world.config_file(state_dir=str(world.base / "elsewhere"), **HOURLY)
    os.kill(one.started(), signal.SIGHUP)
    one.wait_for("state_dir_kept")
    one.wait_for("scan_finished", sessions_changed=1)

    assert is_extracted(path, ident)
    assert not (world.base / "elsewhere").exists()


def listener(address):
    line = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    line.bind("\0" + address[1:] if address.startswith("@") else address)
    line.settimeout(20)
    return line


@pytest.mark.parametrize("kind", ["path", "abstract"])
def test_systemd_is_told_how_it_stands(world, daemon, tmp_path_factory, kind):
    """READY=1 when it holds its lock and its schedule, STOPPING=1 when it was told to end."""
    address = f"@brainsurgeon-test-{os.getpid()}"
    if kind == "path":
        address = str(tmp_path_factory.mktemp("n") / "s")
    with closing(listener(address)) as line:
        one = daemon(environment={"NOTIFY_SOCKET": address}, **HOURLY)

        assert line.recv(100) == b"READY=1"
        assert command(world, "run").returncode == 6

        assert one.stop()[1] == 0
        assert line.recv(100) == b"STOPPING=1"


def longest_silence(line, seconds):
    longest, deadline = 0.0, time.monotonic() + 60
    while longest < seconds and time.monotonic() < deadline:
        begun = time.monotonic()
        with suppress(TimeoutError):
            line.recv(100)
        longest = max(longest, time.monotonic() - begun)
    return longest


def test_signs_of_life_come_while_it_works_and_none_while_it_stands_still(
    world, daemon, tmp_path_factory
):
    """At rest and in runs they come; not while its worker waits for a lock; and then again."""
    address = str(tmp_path_factory.mktemp("n") / "s")
    write_idle_session(world)
    with closing(listener(address)) as line:
        given = {"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "1000000"}
        one = daemon(environment=given, **EACH_SECOND)
        one.wait_for("scan_finished", sessions_changed=1)
        before = [line.recv(100) for _ in range(20)]
        line.settimeout(4)
        with closing(sqlite3.connect(world.state / "store.db")) as other:
            other.execute("BEGIN EXCLUSIVE")

            assert longest_silence(line, 4) >= 4

            other.execute("ROLLBACK")
        line.settimeout(20)

        assert before.count(b"WATCHDOG=1") >= 19
        assert [line.recv(100) for _ in range(3)] == [b"WATCHDOG=1"] * 3
        assert one.stop()[1] == 0


def test_nobody_is_told_who_does_not_wait_for_it(world, daemon, tmp_path_factory):
    """Without a watchdog, or with one for another process, there are no signs of life."""
    address = str(tmp_path_factory.mktemp("n") / "s")
    with closing(listener(address)) as line:
        given = {"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "100000", "WATCHDOG_PID": "1"}
        one = daemon(environment=given, **EACH_SECOND)
        one.wait_for("scan_finished", count=2)

        assert one.stop()[1] == 0
        assert (line.recv(100), line.recv(100)) == (b"READY=1", b"STOPPING=1")


def test_a_notify_socket_that_nobody_serves_is_no_obstacle(world, daemon):
    """It runs and ends as if there were none."""
    one = daemon(environment={"NOTIFY_SOCKET": str(world.base / "nobody")}, **HOURLY)
    one.wait_for("scan_finished")

    assert one.stop()[1] == 0


# --- ending --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """Give a session of 25 MB with thousands of values to cut, and 50 MB that stay, at its end."""
    path = tmp_path_factory.mktemp("large") / "large.jsonl"
    write_session(path, 25_000_000)
    talk = Conversation()
    for _ in range(50):
        talk.user("ü" * 500_000)
    talk.turn("short")
    with open(path, "ab") as out:
        out.writelines(map(dump, talk.lines[1:]))
    return path


def reading(world, pid):
    listed = (f"/proc/{pid}/fd/{name}" for name in os.listdir(f"/proc/{pid}/fd"))
    return any(links_to(one) == str(world.directory / "large.jsonl") for one in listed)


def links_to(path):
    try:
        return os.readlink(path)
    except FileNotFoundError:
        return None


def shelving(world, pid):
    return (world.state / "store.db").stat().st_size > 2_000_000


def writing(world, pid):
    return world.leftovers() != []


@pytest.mark.parametrize("phase", [reading, shelving, writing])
def test_sigterm_ends_a_long_scan_within_two_seconds(world, daemon, large, phase):
    """The session stays as it was, or is the new one, whole; nothing is left beside it."""
    path = world.directory / "large.jsonl"
    for _ in range(20):  # beside other work the phase may be over before it is seen
        shutil.copy2(large, path)
        os.utime(path, (time.time() - 3600,) * 2)
        before = path.read_bytes()
        one = daemon(**HOURLY)
        pid = one.started()
        wait_until(lambda: phase(world, pid) or one.logged("scan_finished"))  # noqa: B023
        if not one.logged("scan_finished"):
            break
        one.stop()
        shutil.rmtree(world.state)
    took, code = one.stop()

    assert code == 0
    assert took < soon(world)
    assert world.leftovers() == []
    assert one.logged("daemon_stopped")
    if path.read_bytes() != before:  # on a busy machine a phase may be over when it is seen
        whole = command(world, "show", "main/large").stdout

        assert hashlib.sha256(whole).digest() == hashlib.sha256(before).digest()


def test_the_word_to_stop_is_heard_while_the_new_file_is_written(world):
    """Up to its last byte the new file can be given up: then it is gone and the old one stays."""
    talk = Conversation()
    talk.turn()
    for _ in range(4):
        talk.user("x" * 1_000_000)
    talk.turn("short")
    path = world.put("s.jsonl", talk.bytes())
    before = file_states(world.root)
    written = []

    def check():
        written[:] = [one.stat().st_size for one in world.root.rglob(".brainsurgeon*")]
        if written and written[0] > 3_000_000:
            raise StoppedError

    report = scan(world.settings(), world.store, watch=Watch(check_stop=check))

    assert written[0] > 3_000_000
    assert (report.stopped, report.sessions_changed) == (True, 0)
    assert (world.leftovers(), file_states(world.root)) == ([], before)
    assert path.read_bytes() == talk.bytes()
    assert world.scan().sessions_changed == 1


def test_sigterm_does_not_wait_for_somebody_elses_lock(world, daemon):
    """A session that another process of ours is rewriting does not hold up the end."""
    path, _ = write_idle_session(world)
    one = daemon(**HOURLY)
    one.wait_for("scan_finished", sessions_changed=1)
    with closing(open_store(str(world.state))) as other, other.lock(1):
        talk = Conversation()
        talk._ids = iter(range(100, 200))
        talk.turn()
        talk.turn("short")
        append(path, talk.lines[1:])
        os.utime(path, (time.time() - 3600,) * 2)
        before = path.read_bytes()
        os.kill(one.started(), signal.SIGHUP)
        one.wait_for("reloaded")
        wait_until(lambda: reads_for_long(one.process.pid, path))
        took, code = one.stop()

        assert code == 0
        assert took < soon(world)
    assert path.read_bytes() == before
    assert world.leftovers() == []


def reads_for_long(pid, path):
    """Tell whether a process has a file open, now and a moment later."""
    for _ in range(10):
        listed = (f"/proc/{pid}/fd/{name}" for name in os.listdir(f"/proc/{pid}/fd"))
        if not any(links_to(one) == str(path) for one in listed):
            return False
        time.sleep(0.03)
    return True


def test_impatience_does_not_hang_it(world, daemon):
    """Signals that come in a row, of any sort, end it as one does."""
    one = daemon(**HOURLY)
    pid = one.started()
    begun = time.monotonic()
    for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGINT) * 100:
        if one.process.poll() is None:
            os.kill(pid, number)
    code = one.process.wait(30)
    took = time.monotonic() - begun

    assert code == 0
    assert took < soon(world)


# --- a tree in which nothing changes -------------------------------------------------------------


# Only the kernel can tell what was opened; the gate has strace, a newcomer need not.
@pytest.mark.skipif(not shutil.which("strace"), reason="strace is not installed")
def test_an_unchanged_tree_is_never_read(world, daemon):
    """Runs over 2,000 unchanged sessions open none of them; one that changed is opened alone."""
    talk = Conversation()
    talk.turn("short")
    for number in range(2000):
        directory = world.root / f"agent{number % 20}" / "sessions"
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / f"{number:08x}.jsonl"
        path.write_bytes(talk.bytes())
        os.utime(path, (time.time() - 3600,) * 2)

    assert world.scan().files_scanned == 2000

    trace = world.base / "trace"
    before = ("strace", "-f", "-qq", "-e", "trace=open,openat,openat2", "-o", str(trace))
    one = daemon(before=before, **EACH_SECOND)
    one.wait_for("scan_finished", count=3, files_seen=2000, files_unchanged=2000)
    opened = trace.read_text()

    assert opened.count('.jsonl"') == 0
    assert opened.count('"agent7"') >= 3

    append(path, talk.lines[-1:])
    wait_until(lambda: any(
        finished["files_unchanged"] != finished["files_seen"]
        for finished in one.logged("scan_finished")
    ))  # fmt: skip
    took = [line for line in trace.read_text().splitlines() if '.jsonl"' in line]

    assert {line.split('"')[1] for line in took} == {path.name}
    assert one.stop()[1] == 0


# --- watching ------------------------------------------------------------------------------------


def in_process(world, **keys):
    settings = world.settings(**keys)
    return _Daemon(lambda: settings, settings, world.store)


@contextmanager
def watched(world, monkeypatch, **keys):
    monkeypatch.setattr(daemons, "ROOTS_INTERVAL", 0.2)
    one = in_process(world, **keys)
    due = []
    monkeypatch.setattr(one, "_scan_soon", due.append)
    thread = threading.Thread(target=one._watch)
    thread.start()
    try:
        yield one, due
    finally:
        one._stop.set()
        thread.join(5)

        assert not thread.is_alive()


def touched_until(due, path, data=b"{}\n"):
    """Write to a file again and again until it is marked: the watch begins when it begins."""

    def marked():
        with open(path, "ab") as handle:
            handle.write(data)
        time.sleep(0.05)
        return str(path) in due

    wait_until(marked)


def test_a_change_marks_its_own_path_and_nothing_of_ours(world, monkeypatch):
    """Temporary files of ours, locks, archives and registries wake nobody."""
    with watched(world, monkeypatch) as (_, due):
        touched_until(due, world.directory / "first.jsonl")
        for name in (
            ".brainsurgeon-0123456789abcdef.tmp", "s.jsonl.lock", "sessions.json",
            "s.trajectory.jsonl", "s.jsonl.reset.2026-11-21T10-00-00.000Z", "notes.txt",
        ):  # fmt: skip
            (world.directory / name).write_bytes(b"{}\n")
        time.sleep(0.3)
        touched_until(due, world.directory / "last.jsonl")

    assert set(due) == {str(world.directory / name) for name in ("first.jsonl", "last.jsonl")}


def test_a_root_that_comes_later_is_watched(world, monkeypatch):
    """One that is missing at first, and vanishes, is watched whenever it is there."""
    later = world.base / "later"
    roots = [{"path": str(world.root)}, {"path": str(later)}]
    with watched(world, monkeypatch, roots=roots) as (_, due):
        touched_until(due, world.directory / "s.jsonl")
        for number in range(2):
            later.mkdir()
            touched_until(due, later / f"{number}.jsonl")
            later.rename(world.base / f"away{number}")


def test_a_root_that_was_replaced_is_watched(world, monkeypatch):
    """Another directory under the name of a root is noticed, however fast they were exchanged."""
    with watched(world, monkeypatch) as (_, due):
        touched_until(due, world.directory / "s.jsonl")
        world.root.rename(world.base / "away")
        world.directory.mkdir(parents=True)
        touched_until(due, world.directory / "t.jsonl")


def test_a_link_as_root_is_watched_where_it_leads(world, monkeypatch):
    """The path that is marked is the one that a scan finds."""
    link = world.base / "link"
    link.symlink_to(world.root)
    with watched(world, monkeypatch, roots=[{"path": str(link)}]) as (_, due):
        touched_until(due, world.directory / "s.jsonl")


def test_what_changed_is_due_after_the_quiet_time(world):
    """A later change of the same path moves the one job; the quiet time is that of now."""
    one = in_process(world, quiet_seconds=30)
    with freeze_time("2026-11-21 12:00:00") as frozen:
        one._scan_soon("/s.jsonl")
        frozen.tick(10)
        one._scan_soon("/s.jsonl")
    one._scheduler.start(paused=True)
    [job] = one._scheduler.get_jobs()
    one._scheduler.shutdown()

    assert job.trigger.run_date == datetime(2026, 11, 21, 12, 0, 40, 500_000, tzinfo=UTC)
    assert job.args == ("/s.jsonl",)


@pytest.mark.parametrize(
    "error",
    [
        OSError(28, "No space left on device"),
        OSError("OS file watch limit reached. about ['/agents']"),
        RuntimeError("error in underlying watcher: OS file watch limit reached."),
    ],
)
def test_a_watch_that_fails_is_said_and_not_fatal(world, monkeypatch, error):
    """The limit of inotify, met at first or later, is a visible warning; the thread lives on."""

    def fail(*_, **__):
        raise error

    monkeypatch.setattr("watchfiles.watch", fail)
    structlog.reset_defaults()
    with capture_logs() as logs, watched(world, monkeypatch) as (one, _):
        wait_until(lambda: logs)
        thread_lives = any(
            thread.is_alive() and thread._target == one._watch for thread in threading.enumerate()
        )

    assert thread_lives
    assert [(entry["event"], entry["log_level"]) for entry in logs] == [("watch_failed", "warning")]
    assert "fs.inotify.max_user_watches" in logs[0]["advice"]


LOWER = 'echo 1 > /proc/sys/user/max_inotify_watches && exec "$@"'


def can_lower_the_limit():
    """Tell whether the limit can be lowered for a process, in a user namespace of its own."""
    words = ("unshare", "-Ur", "sh", "-c", LOWER, "sh", "true")
    return (
        bool(shutil.which("unshare"))
        and not subprocess.run(words, check=False, stderr=subprocess.DEVNULL).returncode
    )


# The limit is a whole user's: it is lowered where nobody else is, or nowhere.
@pytest.mark.skipif(not can_lower_the_limit(), reason="no user namespaces here")
def test_at_the_real_limit_the_schedule_goes_on(world, daemon):
    """Where the kernel refuses watches it warns, and prunes by the interval."""
    one = daemon(before=("unshare", "-Ur", "sh", "-c", LOWER, "sh"), **EACH_SECOND)
    one.wait_for("watch_failed", level="warning")
    path, ident = write_idle_session(world)
    one.wait_for("scan_finished", sessions_changed=1)

    assert is_extracted(path, ident)
    assert one.stop()[1] == 0


# --- one thing at a time -------------------------------------------------------------------------


class Work:
    """Stands in for scans and retention: takes its time and notes when it was at work."""

    def __init__(self, *durations):
        self.durations = list(durations)
        self.spans = []

    def __call__(self, *_, **__):
        begun = time.monotonic()
        time.sleep(self.durations.pop(0) if self.durations else 0)
        self.spans.append((begun, time.monotonic()))


def test_scans_requests_and_retention_take_turns(world, monkeypatch):
    """Whatever falls due at once is done one after the other, by one worker."""
    work = Work(*[0.1] * 6)
    monkeypatch.setattr(daemons, "scan", lambda *_, **__: work() or ScanReport(dry_run=False))
    monkeypatch.setattr(daemons, "retention", lambda *_, **__: work() or RetentionReport(False))
    one = in_process(world, **HOURLY)
    one._schedule()
    for number in range(4):
        one._scan_soon(f"/{number}.jsonl")
    one._scheduler.add_job(one._run_retention)
    one._scheduler.start()
    wait_until(lambda: len(work.spans) == 6)
    one._scheduler.shutdown()
    spans = sorted(work.spans)

    assert all(ended <= begun for (_, ended), (begun, _) in itertools.pairwise(spans))


def test_a_missed_scan_is_not_made_up_for(world, monkeypatch):
    """After a scan longer than two intervals one follows, and then the next at its time."""
    work = Work(2.2)
    monkeypatch.setattr(daemons, "scan", lambda *_, **__: work() or ScanReport(dry_run=False))
    one = in_process(world, **EACH_SECOND)
    one._schedule()
    one._scheduler.start()
    wait_until(lambda: len(work.spans) == 3)
    one._scheduler.shutdown()
    begun = [span[0] - work.spans[0][0] for span in work.spans]

    assert begun[1] == pytest.approx(2.2, abs=0.3)
    assert begun[2] == pytest.approx(3, abs=0.3)


@pytest.mark.parametrize("job", ["scan", "retention"])
def test_whatever_goes_wrong_is_said_and_the_next_run_comes(world, monkeypatch, job):
    """An error that nobody expected is logged by its kind alone, since its words may quote."""

    def fail(*_, **__):
        raise ValueError("canary")

    monkeypatch.setattr(daemons, job, fail)
    one = in_process(world)
    structlog.reset_defaults()
    with capture_logs() as logs:
        {"scan": one._scan, "retention": one._run_retention}[job]()

    assert [(entry["event"], entry["log_level"]) for entry in logs] == [(f"{job}_failed", "error")]
    assert logs[0]["reason"] == "ValueError"


def test_a_daemon_that_was_told_to_stop_begins_nothing(world, monkeypatch):
    """Jobs that are still in the queue do nothing, and what is under way is told to stop."""
    path, ident = write_idle_session(world)
    one = in_process(world)
    one._stop.set()
    one._scan()
    one._run_retention()

    assert not is_extracted(path, ident)
    with pytest.raises(StoppedError):
        one._check()


# --- what falls due by time ----------------------------------------------------------------------


def runs(one):
    structlog.reset_defaults()
    with capture_logs() as logs:
        one._scan()
    [finished] = [entry for entry in logs if entry["event"] == "scan_finished"]
    return finished


def test_an_idle_daemon_sleeps(world, daemon):
    """While nothing changes it wakes up about once a second, not twenty times."""
    write_idle_session(world)
    one = daemon(**HOURLY)
    one.watching()
    pid = one.started()
    one.wait_for("scan_finished")

    def asleep():
        """Watch it for a while; on a machine that is busy its threads may wait for each other."""
        begun, before = time.monotonic(), wake_ups(pid)
        time.sleep(1.5)
        return wake_ups(pid) - before <= 4 * (time.monotonic() - begun)

    wait_until(asleep, patience=3 * TIMEOUT)


def wake_ups(pid):
    """Count how often the threads of a process have waited for something and were woken up."""
    told = 0
    for thread in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{thread}/status") as handle:
            told += sum(int(line.split()[1]) for line in handle if line.startswith("voluntary"))
    return told
