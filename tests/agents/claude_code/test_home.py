"""Claude Code on this machine: session files, and processes at work on them."""

import json
import os
import subprocess
import sys
import threading
import time

import pytest

from brainsurgeon import agents
from brainsurgeon.agents.claude_code.home import Location, home_directory, location, project_of
from brainsurgeon.agents.claude_code.presence import presence
from building.claw import start_time

SESSION = "5a5a5a5a-0001-4000-8000-000000000001"
OTHER = "5a5a5a5a-0002-4000-8000-000000000002"
BUSY = "process {} of Claude Code is at work on it"
BESIDE = "process {} of Claude Code has it in memory"
UNREADABLE = "the record of process {} cannot be read"
HOUR = 3600.0


@pytest.fixture
def home(tmp_path):
    (tmp_path / ".claude" / "projects" / "-w").mkdir(parents=True)
    (tmp_path / ".claude" / "sessions").mkdir()
    return tmp_path / ".claude"


@pytest.fixture
def known_home(monkeypatch):
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", "/h/.claude")
    agents.note_roots([])
    return "/h/.claude"


@pytest.fixture
def process():
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield child
    child.kill()
    child.communicate()


@pytest.fixture
def ended_pid():
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    return child.pid


def start_of(pid):
    return str(start_time(pid))


def write_record(home, pid, **fields):
    values = {"pid": pid, "sessionId": SESSION, "cwd": "/w", "startedAt": time.time() * 1000,
            "version": "2.1.330", "kind": "interactive", **fields}  # fmt: skip
    path = home / "sessions" / f"{pid}.json"
    path.write_text(json.dumps({key: value for key, value in values.items() if value is not ...}))
    return path


def presence_on(home, session=SESSION):
    return presence(Location(str(home), "-w", session), time.time(), HOUR)


def test_home_is_claude_config_dir_or_in_the_users_home(monkeypatch):
    """The home is `$CLAUDE_CONFIG_DIR` if that is not blank, else `~/.claude`."""
    monkeypatch.setenv("HOME", "/home/me")
    assert home_directory() == "/home/me/.claude"
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", "/srv/claude")
    assert home_directory() == "/srv/claude"
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", " ")
    assert home_directory() == "/home/me/.claude"


@pytest.mark.parametrize(
    "path",
    [
        "history.jsonl", "projects/stray.jsonl",
        f"projects/-w/{SESSION}/tool-results/b1.jsonl", f"projects/-w/{SESSION}/resume-head.jsonl",
        f"projects/-w/{SESSION}/subagents/workflows/w1/journal.jsonl",
    ],
)  # fmt: skip
def test_other_files_of_a_home_are_no_sessions(path, known_home):
    """History, tool results and journals of a home are no sessions."""
    assert location(f"{known_home}/{path}") is None
    assert agents.is_no_session(f"{known_home}/{path}")
    assert agents.is_no_session(f"/srv/x/{path}") is (SESSION in path)


@pytest.mark.parametrize("between", ["", "workflows/w1/", "teams/t/workflows/w1/"])
def test_sub_agents_at_any_depth_belong_to_their_session(between):
    """A sub-agent of a workflow or team was started by the session whose directory it is in."""
    found = location(f"/h/.claude/projects/-w/{SESSION}/subagents/{between}agent-a1.jsonl")

    assert (found.home, found.subagent) == ("/h/.claude", "agent-a1")
    assert found.started_by == f"claude-code:-w/{SESSION}"


def test_sessions_in_a_users_own_projects_are_sessions(known_home):
    """A directory `projects/<name>/<uuid>` that is not Claude Code's may have sessions."""
    path = f"/srv/projects/app/{SESSION}/agents/main/sessions/s.jsonl"
    assert not path.startswith(known_home)
    assert not agents.is_no_session(path)


@pytest.mark.parametrize(
    ("directory", "name"), [("/w/a.b", "-w-a-b"), ("/w/é", "-w--"), ("/w/\U0001f600", "-w---")]
)
def test_project_directory_has_the_name_that_claude_code_gives_it(directory, name):
    """Each UTF-16 unit that is no ASCII letter or digit becomes `-`, as in JavaScript."""
    assert os.path.basename(project_of(directory)) == name


def test_place_accepts_only_jsonl_names():
    """A file without a name, or with another extension, is no session."""
    assert location("/h/.claude/projects/-w/x.json") is None
    assert location("/h/.claude/projects/-w/.jsonl") is None
    assert location(f"/h/.claude/projects/-w/{SESSION}.jsonl.compact.tmp.ab12cd34") is None


def test_session_without_records_is_not_busy(home):
    """Claude Code 2.0.76 writes no records, so only the end of the file counts."""
    assert presence_on(home) == presence(Location("/nowhere", "-w", SESSION), time.time(), HOUR)
    assert (presence_on(home).busy, presence_on(home).in_memory) == (None, None)


@pytest.mark.parametrize(
    ("fields", "busy"),
    [
        ({"status": "busy"}, True), ({"status": "waiting"}, True), ({"status": 7}, True),
        ({"status": "idle"}, False), ({}, False), ({"status": None}, False),
        ({"status": "busy", "procStart": ...}, True),
    ],
)  # fmt: skip
def test_session_of_a_living_process_is_busy_unless_idle(home, process, fields, busy):
    """A living process makes its session busy, unless its status is `idle` or missing."""
    write_record(home, process.pid, **{"procStart": start_of(process.pid), **fields})
    signs = presence_on(home)

    assert signs.busy == (BUSY.format(process.pid) if busy else None)
    assert signs.in_memory == (None if busy else BESIDE.format(process.pid))


def test_process_on_another_session_is_ignored(home, process):
    """A record names the session that its process works on."""
    write_record(home, process.pid, status="busy", sessionId=OTHER, procStart=start_of(process.pid))

    assert (presence_on(home).busy, presence_on(home).in_memory) == (None, None)
    assert presence_on(home, OTHER).busy


def test_record_of_a_killed_process_is_ignored(home, ended_pid):
    """A record of a killed process is ignored, although it says busy for ever."""
    write_record(home, ended_pid, status="busy", procStart="1")

    assert presence_on(home).busy is None


def test_record_of_a_zombie_is_ignored(home, process):
    """A killed process does no more work, though its parent has not waited for it yet."""
    write_record(home, process.pid, status="busy", procStart=start_of(process.pid))
    assert presence_on(home).busy

    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)

    assert (presence_on(home).busy, presence_on(home).in_memory) == (None, None)


def test_record_of_a_reused_pid_is_ignored(home, process):
    """A record is ignored if its start time, or its `startedAt`, is not that of the process."""
    write_record(home, process.pid, status="busy", procStart="1")
    assert presence_on(home).busy is None
    write_record(home, process.pid, status="busy", startedAt=(time.time() - 900) * 1000)
    assert presence_on(home).busy is None
    write_record(home, process.pid, status="busy")
    assert presence_on(home).busy


@pytest.mark.parametrize("text", ["", '{"pid":7,"sessi', "[]", '{"pid":7}', '{"sessionId":5}'])
def test_unreadable_record_of_a_living_process_means_busy(home, process, ended_pid, text):
    """The record may be about any session; after the process has ended it is ignored."""
    (home / "sessions" / f"{ended_pid}.json").write_text(text)
    assert presence_on(home).busy is None
    (home / "sessions" / f"{process.pid}.json").write_text(text)
    assert presence_on(home).busy == UNREADABLE.format(process.pid)


def test_partly_written_record_is_read_again(home, process):
    """A partly written record is read again, since Claude Code rewrites it in place."""
    path = write_record(home, process.pid, status="idle", procStart=start_of(process.pid))
    whole = path.read_text()
    readings = []
    for _ in range(10):
        path.write_text(whole[:20])
        writer = threading.Timer(0.03, path.write_text, [whole])
        writer.start()
        readings.append(presence_on(home).in_memory)
        writer.join()
        if readings[-1]:
            break

    assert readings[-1] == BESIDE.format(process.pid)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_records_without_read_permission_mean_busy(home, process):
    """A record, or a directory of records, without read permission makes the session busy."""
    path = write_record(home, process.pid, status="idle", procStart=start_of(process.pid))
    path.chmod(0)
    assert presence_on(home).busy == UNREADABLE.format(process.pid)
    (home / "sessions").chmod(0)
    try:
        assert "cannot be read" in presence_on(home).busy
    finally:
        (home / "sessions").chmod(0o700)


def test_records_that_are_not_a_directory_mean_busy(home):
    """A file in place of the directory of records has an unknown meaning."""
    (home / "sessions").rmdir()
    (home / "sessions").write_text("")

    assert "cannot be read" in presence_on(home).busy


def test_symlink_in_place_of_a_record_means_busy(home, process, tmp_path):
    """A symlink in place of a record is not followed, and makes the session busy."""
    path = write_record(home, process.pid, status="idle", procStart=start_of(process.pid))
    path.rename(tmp_path / "elsewhere.json")
    path.symlink_to(tmp_path / "elsewhere.json")

    assert presence_on(home).busy == UNREADABLE.format(process.pid)


def test_other_files_beside_the_records_are_ignored(home, process):
    """A file beside the records is ignored unless its name is `<pid>.json`."""
    (home / "sessions" / f"{process.pid}.abc.key").write_text("secret")
    (home / "sessions" / "x.json").write_text("{")

    assert (presence_on(home).busy, presence_on(home).in_memory) == (None, None)


@pytest.mark.parametrize("known_here", [False, True])
def test_fresh_record_of_another_pid_namespace_means_busy(home, ended_pid, known_here):
    """A record of another pid namespace cannot be checked, so it counts while it is fresh."""
    pid = os.getpid() if known_here else ended_pid
    path = write_record(home, pid, status="busy", procStart="1", pidDomain="linux:m:pid:[1]")
    assert presence_on(home).busy == BUSY.format(pid)
    os.utime(path, (time.time() - 2 * HOUR,) * 2)
    assert presence_on(home).busy is None


def test_record_of_this_pid_namespace_is_checked_by_pid(home, process):
    """A record of this pid namespace, as the kernel names it, is checked by pid and start time."""
    domain = f"linux:0123:{os.readlink('/proc/self/ns/pid')}"
    write_record(home, process.pid, status="busy", procStart="1", pidDomain=domain)
    assert presence_on(home).busy is None
