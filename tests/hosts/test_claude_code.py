"""Claude Code on this machine: which files are sessions, whose, and who is at work on them."""

import json
import os
import subprocess
import sys
import threading
import time

import pytest

from brainsurgeon.hosts.claude_code import Place, is_no_session, place, presence
from brainsurgeon.hosts.home_paths import claude_code as home_of_this_user

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
def process():
    one = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield one
    one.kill()
    one.communicate()


@pytest.fixture
def gone():
    one = subprocess.Popen([sys.executable, "-c", ""])
    one.wait()
    return one.pid


def start_of(pid):
    with open(f"/proc/{pid}/stat") as handle:
        return handle.read().rsplit(")", 1)[1].split()[19]


def record(home, pid, **fields):
    said = {"pid": pid, "sessionId": SESSION, "cwd": "/w", "startedAt": time.time() * 1000,
            "version": "2.1.330", "kind": "interactive", **fields}  # fmt: skip
    path = home / "sessions" / f"{pid}.json"
    path.write_text(json.dumps({key: value for key, value in said.items() if value is not ...}))
    return path


def look(home, session=SESSION, abandoned=HOUR):
    return presence(Place(str(home), "-w", session), time.time(), abandoned)


def test_a_home_is_where_the_environment_says_or_below_the_users(monkeypatch):
    """`$CLAUDE_CONFIG_DIR` moves it."""
    monkeypatch.setenv("HOME", "/home/me")
    assert home_of_this_user() == "/home/me/.claude"
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", "/srv/claude")
    assert home_of_this_user() == "/srv/claude"
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", " ")
    assert home_of_this_user() == "/home/me/.claude"


@pytest.mark.parametrize(
    "path",
    [
        "history.jsonl", "projects/stray.jsonl",
        f"projects/-w/{SESSION}/tool-results/b1.jsonl", f"projects/-w/{SESSION}/resume-head.jsonl",
        f"projects/-w/{SESSION}/subagents/workflows/w1/agent-a1.jsonl",
        f"projects/-w/{SESSION}/subagents/workflows/w1/journal.jsonl",
    ],
)  # fmt: skip
def test_everything_else_in_a_home_is_no_session(path):
    """Whatever a file there says, it is not one."""
    assert place(f"/h/.claude/{path}") is None
    assert is_no_session(f"/h/.claude/{path}", "/h/.claude")
    assert is_no_session(f"/srv/x/{path}", "/h/.claude") is (SESSION in path)


def test_names_that_are_no_session_files_have_no_place():
    """Only `<name>.jsonl` is one."""
    assert place("/h/.claude/projects/-w/x.json") is None
    assert place("/h/.claude/projects/-w/.jsonl") is None
    assert place(f"/h/.claude/projects/-w/{SESSION}.jsonl.compact.tmp.ab12cd34") is None


def test_without_records_nobody_is_known_to_be_at_work(home):
    """2.0.76 keeps none: then the end of the file alone speaks."""
    assert look(home) == presence(Place("/nowhere", "-w", SESSION), time.time(), HOUR)
    assert (look(home).busy, look(home).in_memory) == (None, None)


@pytest.mark.parametrize(
    ("fields", "busy"),
    [
        ({"status": "busy"}, True), ({"status": "waiting"}, True), ({"status": 7}, True),
        ({"status": "idle"}, False), ({}, False), ({"status": None}, False),
        ({"status": "busy", "procStart": ...}, True),
    ],
)  # fmt: skip
def test_a_living_process_on_the_session_is_at_work_or_at_rest(home, process, fields, busy):
    """Only `idle` is at rest; a version that writes no status leaves it to the file's end."""
    record(home, process.pid, **{"procStart": start_of(process.pid), **fields})
    found = look(home)

    assert found.busy == (BUSY.format(process.pid) if busy else None)
    assert found.in_memory == (None if busy else BESIDE.format(process.pid))


def test_a_process_on_another_session_is_not_on_this_one(home, process):
    """Each record names the session that its process is on."""
    record(home, process.pid, status="busy", sessionId=OTHER, procStart=start_of(process.pid))

    assert (look(home).busy, look(home).in_memory) == (None, None)
    assert look(home, OTHER).busy


def test_the_record_of_a_killed_process_holds_nothing(home, gone):
    """It says busy for ever, since nobody takes it away."""
    record(home, gone, status="busy", procStart="1")

    assert look(home).busy is None


def test_a_number_that_was_given_again_is_another_process(home, process):
    """The start time tells; where a version records none, the time at which it says it began."""
    record(home, process.pid, status="busy", procStart="1")
    assert look(home).busy is None
    record(home, process.pid, status="busy", startedAt=(time.time() - 900) * 1000)
    assert look(home).busy is None
    record(home, process.pid, status="busy")
    assert look(home).busy


@pytest.mark.parametrize("text", ["", '{"pid":7,"sessi', "[]", '{"pid":7}', '{"sessionId":5}'])
def test_what_cannot_be_read_counts_as_busy_while_the_process_lives(home, process, gone, text):
    """Whichever session it is on: until it can be read nobody knows."""
    (home / "sessions" / f"{gone}.json").write_text(text)
    assert look(home).busy is None
    (home / "sessions" / f"{process.pid}.json").write_text(text)
    assert look(home).busy == UNREADABLE.format(process.pid)


def test_half_a_record_is_read_again(home, process):
    """A record is rewritten in place: whoever meets half of it looks again."""
    path = record(home, process.pid, status="idle", procStart=start_of(process.pid))
    whole = path.read_text()
    met = []
    for _ in range(10):
        path.write_text(whole[:20])
        writer = threading.Timer(0.03, path.write_text, [whole])
        writer.start()
        met.append(look(home).in_memory)
        writer.join()
        if met[-1]:
            break

    assert met[-1] == BESIDE.format(process.pid)


# No directory is closed to root, who meets this case nowhere; any other account proves it.
@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_records_that_may_not_be_read_count_as_busy(home, process):
    """A directory that is closed to us says nothing, and nothing is not at rest."""
    path = record(home, process.pid, status="idle", procStart=start_of(process.pid))
    path.chmod(0)
    assert look(home).busy == UNREADABLE.format(process.pid)
    (home / "sessions").chmod(0)
    try:
        assert "cannot be read" in look(home).busy
    finally:
        (home / "sessions").chmod(0o700)


def test_a_place_of_records_that_is_no_directory_counts_as_busy(home):
    """Nobody knows what it means."""
    (home / "sessions").rmdir()
    (home / "sessions").write_text("")

    assert "cannot be read" in look(home).busy


def test_a_record_is_never_read_through_a_link(home, process, tmp_path):
    """A link could lead anywhere."""
    path = record(home, process.pid, status="idle", procStart=start_of(process.pid))
    path.rename(tmp_path / "elsewhere.json")
    path.symlink_to(tmp_path / "elsewhere.json")

    assert look(home).busy == UNREADABLE.format(process.pid)


def test_keys_and_sockets_beside_the_records_are_none(home, process):
    """Only `<pid>.json` is a record."""
    (home / "sessions" / f"{process.pid}.abc.key").write_text("secret")
    (home / "sessions" / "x.json").write_text("{")

    assert (look(home).busy, look(home).in_memory) == (None, None)


def test_a_process_elsewhere_counts_while_its_record_is_fresh(home):
    """Its number means nothing here."""
    path = record(home, os.getpid(), status="busy", procStart="1", pidDomain="linux:m:pid:[1]")
    assert look(home).busy == BUSY.format(os.getpid())
    os.utime(path, (time.time() - 2 * HOUR,) * 2)
    assert look(home).busy is None


def test_the_pid_namespace_is_written_as_the_kernel_names_it(home, process):
    """A record of our own namespace is checked by number and start time."""
    domain = f"linux:0123:{os.readlink('/proc/self/ns/pid')}"
    record(home, process.pid, status="busy", procStart="1", pidDomain=domain)
    assert look(home).busy is None
