"""Signs of an OpenClaw agent at work on a session file: its lock and its registry."""

import errno
import json
import os
import time
from datetime import UTC, datetime, timedelta

import pytest

from brainsurgeon.agents.openclaw import presence, registry
from brainsurgeon.model.entries import BOM
from brainsurgeon.model.session_files import BusyCheck
from building.claw import start_time
from building.processes import OtherProcess
from building.world import LATER, file_states, put_session

NAME = "a1.jsonl"
HALF_AN_HOUR = 1800.0
HOUR = 3600.0
FRESH = {"updatedAt": (LATER - 60) * 1000}


@pytest.fixture
def directory(tmp_path):
    path = tmp_path / "sessions"
    path.mkdir()
    (path / NAME).write_text("{}\n")
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    yield Place(path, descriptor)
    os.close(descriptor)


class Place:
    """A directory of sessions as a path and as a descriptor."""

    def __init__(self, path, descriptor):
        self.path, self.descriptor = path, descriptor

    def write_lock(self, payload, age=0.0):
        """Write the agent's lock, last modified `age` seconds before LATER."""
        path = self.path / f"{NAME}.lock"
        path.write_bytes(payload if isinstance(payload, bytes) else json.dumps(payload).encode())
        os.utime(path, (LATER - age, LATER - age))
        return path

    def lock_reason(self):
        return presence.lock_held(self.descriptor, NAME, LATER)

    def write_registry(self, **entry):
        text = json.dumps({"agent:main:main": entry})
        (self.path / "sessions.json").write_text(text)

    def busy_reason(self):
        return (
            presence.LockFiles().busy_check(self.descriptor, NAME, lambda: LATER, 0.0, HOUR).read()
        )


def new_lock(pid, start=None):
    text = json.dumps(
        {"pid": pid, "createdAt": "2026-11-21T04:27:00.000Z", "maxHoldMs": 300000,
         "starttime": start or start_time(pid)}, indent=2,
    )  # fmt: skip
    return text.encode()


def old_lock(pid, age=0.0):
    """Return the lock of an older version, without a start time, `age` seconds old."""
    created = datetime.now(UTC) - timedelta(seconds=age)
    return {"pid": pid, "createdAt": created.isoformat(timespec="milliseconds")}


def ended_pid():
    process = OtherProcess()
    process.kill()
    return process.pid


def test_session_without_a_lock_is_not_held(directory):
    """A session without a lock file is not held."""
    assert directory.lock_reason() is None


@pytest.mark.parametrize("age", [0, 10 * HOUR])
def test_lock_of_a_living_process_holds(directory, other_process, age):
    """Locks of both versions hold while their process lives, however old they are."""
    directory.write_lock(new_lock(other_process.pid), age)
    new = directory.lock_reason()
    directory.write_lock(old_lock(other_process.pid), age)
    old = directory.lock_reason()

    assert new == f"locked by process {other_process.pid}"
    assert old == f"locked by process {other_process.pid}"


def test_lock_of_an_ended_process_is_ignored(directory):
    """A lock whose process has ended is ignored, however young it is."""
    pid = ended_pid()
    directory.write_lock(new_lock(pid, 123))
    new = directory.lock_reason()
    directory.write_lock(old_lock(pid))

    assert (new, directory.lock_reason()) == (None, None)


def test_lock_of_a_reused_pid_is_ignored(directory, other_process):
    """The start time in the lock differs from that of the process."""
    directory.write_lock(new_lock(other_process.pid, start_time(other_process.pid) - 1))

    assert directory.lock_reason() is None


def test_lock_older_than_the_process_with_its_pid_is_ignored(directory, other_process):
    """Its process has ended: in containers, pids are small and return after each start."""
    directory.write_lock(old_lock(other_process.pid, age=120), HOUR)
    older = directory.lock_reason()
    directory.write_lock({"pid": other_process.pid, "createdAt": "yesterday"}, HOUR)

    assert older is None
    assert directory.lock_reason() == f"locked by process {other_process.pid}"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may signal everybody")
def test_process_of_another_user_counts_as_living(directory):
    """A process that must not be signalled counts as living."""
    directory.write_lock(old_lock(1))

    assert directory.lock_reason() == "locked by process 1"


WITHOUT_OWNER = [
    b"", b"{", b"null", b"[]", b'"1"', b"\xff\xfe", b"{}", {"pid": None}, {"pid": "12"},
    {"pid": 0}, {"pid": -1}, {"pid": True}, {"pid": 1.5}, {"createdAt": "2026-11-21T04:27:00Z"},
]  # fmt: skip


@pytest.mark.parametrize("payload", WITHOUT_OWNER, ids=repr)
def test_lock_without_an_owner_holds_for_half_an_hour(directory, payload):
    """An empty lock is about to get its contents; others cannot be read."""
    directory.write_lock(payload, HALF_AN_HOUR - 1)
    young = directory.lock_reason()
    directory.write_lock(payload, HALF_AN_HOUR)
    old = directory.lock_reason()

    assert young == "there is a lock file"
    assert old is None


@pytest.mark.parametrize("pid", [2**22 + 1, 2**31, 2**40, 2**63 - 1, 2**70])
def test_lock_of_an_impossible_pid_is_ignored(directory, pid):
    """A lock with a pid above the kernel's limit is ignored."""
    directory.write_lock(old_lock(pid), HOUR)

    assert directory.lock_reason() is None


@pytest.mark.parametrize("kind", ["directory", "link", "loop"])
def test_lock_that_is_not_a_file_holds(directory, kind):
    """A directory or link in place of the lock holds, and the link is not followed."""
    path = directory.path / f"{NAME}.lock"
    if kind == "directory":
        path.mkdir()
    else:
        os.symlink(path if kind == "loop" else directory.path / "elsewhere", path)

    assert directory.lock_reason() == "there is a lock file that cannot be read"


def test_lock_that_is_a_pipe_does_not_block(directory):
    """A pipe in place of the lock holds like a lock without an owner, and does not block."""
    os.mkfifo(directory.path / f"{NAME}.lock")

    assert presence.lock_held(directory.descriptor, NAME, time.time()) == "there is a lock file"


def test_reading_the_signs_leaves_the_lock_unchanged(directory, other_process):
    """Reading the signs changes, removes and creates no lock."""
    path = directory.write_lock(new_lock(other_process.pid))
    before = file_states(directory.path), path.read_bytes()
    directory.busy_reason()
    after = file_states(directory.path), path.read_bytes()
    path.unlink()
    directory.busy_reason()

    assert after == before
    assert not path.exists()


def test_lock_of_another_session_is_ignored(directory, other_process):
    """Only the lock beside the session itself counts."""
    (directory.path / "b2.jsonl.lock").write_bytes(new_lock(other_process.pid))

    assert directory.lock_reason() is None


@pytest.mark.parametrize(
    "entry",
    [
        {"sessionId": "a1", **FRESH},
        {"sessionId": "other", "sessionFile": f"/anywhere/{NAME}", **FRESH},
        {"sessionFile": NAME, **FRESH},
        {"sessionId": "a1"},  # a mark without a time counts as fresh
    ],
)
def test_session_marked_running_is_busy(directory, entry):
    """The registry's mark names the session by its id or by its file."""
    directory.write_registry(status="running", **entry)

    assert directory.busy_reason() == "marked as running by its agent"


@pytest.mark.parametrize(
    "entry",
    [
        {"sessionId": "a1", "status": "running", "updatedAt": (LATER - HOUR) * 1000},
        {"sessionId": "b2", "status": "running", "updatedAt": LATER * 1000},
        {"sessionFile": "/anywhere/b2.jsonl", "status": "running", "updatedAt": LATER * 1000},
        {"sessionId": "a1", "status": "done", "updatedAt": LATER * 1000},
        {"sessionId": "a1", "status": None, "updatedAt": LATER * 1000},
        {"sessionId": "a1", "updatedAt": LATER * 1000},
        {},
    ],
    ids=["an old run", "another id", "another file", "done", "null", "no status", "nothing"],
)
def test_other_marks_leave_a_session_idle(directory, entry):
    """An abandoned run, another session's run and an ended run do not count."""
    directory.write_registry(**entry)

    assert directory.busy_reason() is None


UNUSABLE = ["", "{", "[]", "null", "1", '{"a": NaN}',
            '{"a": {"sessionId": "b2", "status": "done"}, "b"']  # fmt: skip


@pytest.mark.parametrize("text", UNUSABLE)
def test_unusable_registry_may_hide_a_run_for_a_while(directory, text):
    """After `abandoned_after` without a change, only the lock and the last turn count."""
    path = directory.path / "sessions.json"
    path.write_text(text)
    os.utime(path, (LATER, LATER - HOUR + 1))
    young = directory.busy_reason()
    os.utime(path, (LATER, LATER - HOUR))

    assert "may be at work" in young
    assert directory.busy_reason() is None
    assert registry.entries(str(directory.path)) == []
    assert [key for key, _ in registry.registry_problems(str(directory.path))] == [None]


ODD = ["null", '"a1"', "[]", "7", '{"sessionId": "a1", "status": 7}', '{"status": "running"}',
       '{"sessionId": ["a1"], "status": "running"}']  # fmt: skip


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("before", [b"", BOM, b'{"\xff": {}, '], ids=["plain", "BOM", "not UTF-8"])
def test_odd_entry_of_a_registry_says_nothing_about_the_others(directory, odd, before):
    """It is named, and the others count, also beside a byte order mark and invalid UTF-8."""
    running = json.dumps({"sessionId": "a1", "status": "running", **FRESH})
    texts = [f'"odd": {odd}', f'"odd": {odd}, "agent:main:main": {running}']
    reasons = []
    for text in texts:
        begin = before if before.endswith(b" ") else before + b"{"
        (directory.path / "sessions.json").write_bytes(begin + text.encode() + b"}")
        reasons.append(directory.busy_reason())
    keys = [key for key, _ in registry.registry_problems(str(directory.path))]

    assert reasons == [None, "marked as running by its agent"]
    assert keys == ["odd"]


@pytest.mark.parametrize("kind", ["directory", "link", "broken link", "pipe", "unreadable", "huge"])
def test_unreadable_registry_means_the_agent_may_be_at_work(directory, kind, monkeypatch):
    """Any other kind of file in place of the registry makes the session busy and blocks nothing."""
    path = directory.path / "sessions.json"
    if kind == "directory":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "unreadable":
        path.write_text("{}")
        refused = PermissionError(errno.EACCES, "denied")
        monkeypatch.setattr(registry, "opened", lambda name, place: _refuse(name, place, refused))
    elif kind == "huge":
        monkeypatch.setattr(registry, "LARGEST_REGISTRY", 10)
        path.write_text('{"agent:main:main": {}}')
    else:
        os.symlink(directory.path / (NAME if kind == "link" else "nowhere"), path)
    os.utime(path, (LATER, LATER - HOUR + 1), follow_symlinks=False)
    young = directory.busy_reason()
    os.utime(path, (LATER, LATER - HOUR), follow_symlinks=False)

    assert "may be at work" in young
    assert directory.busy_reason() is None
    assert registry.entries(str(directory.path)) == []


def _refuse(name, place, error, opened=registry.opened):
    if name == "sessions.json":
        raise error
    return opened(name, place)


def test_registry_is_not_parsed_under_the_lease(world, conversation, monkeypatch):
    """Under the lease only its file status is compared, so that an opener waits briefly."""
    path = put_session(world, conversation, NAME)
    path.with_name("sessions.json").write_text("{}")
    # For each call, whether the lease was held.
    parses, comparisons = [], []
    parse, changed = registry.parse, BusyCheck.changed
    monkeypatch.setattr(registry, "parse", lambda raw: parses.append(has_lease(path)) or parse(raw))
    monkeypatch.setattr(
        BusyCheck, "changed", lambda check: comparisons.append(has_lease(path)) or changed(check)
    )
    report = world.scan(keep_recent=0)

    assert report.sessions_changed == 1
    assert (set(parses), comparisons) == ({False}, [True])


def has_lease(path):
    """Check in the kernel's list whether a process has a lease on a file."""
    inode = f":{path.stat().st_ino} "
    with open("/proc/locks") as listed:
        return any("LEASE" in line and inode in line for line in listed)


def test_change_of_lock_or_registry_is_detected(directory):
    """A lock or registry that appeared after the signs were read is a change."""
    busy_check = presence.LockFiles().busy_check(
        directory.descriptor, NAME, lambda: LATER, 0.0, HOUR
    )
    before = busy_check.read(), busy_check.changed()
    directory.write_registry(sessionId="a1", status="running", updatedAt=LATER * 1000)
    marked = busy_check.changed()
    busy_check.read()
    same = busy_check.changed()
    directory.write_lock(b"")

    assert before == (None, None)
    assert "changed" in marked
    assert same is None
    assert "changed" in busy_check.changed()


def test_lock_is_checked_again_after_the_registry(directory, other_process, monkeypatch):
    """A lock that appears while the registry is read is seen."""

    def marking(*arguments):
        directory.write_lock(new_lock(other_process.pid))

    monkeypatch.setattr(presence, "_marked_running", marking)

    assert directory.busy_reason() == f"locked by process {other_process.pid}"


@pytest.mark.parametrize(
    ("sign", "reason"),
    [("lock", "locked by process "), ("running mark", "marked as running by its agent"),
     ("torn registry", "may be at work")],
)  # fmt: skip
def test_scan_defers_a_busy_session_until_its_signs_are_gone(
    world, conversation, other_process, sign, reason
):
    """The reason names the agent's sign, and the next run extracts."""
    path = put_session(world, conversation, NAME)
    mark = {"sessionId": "a1", "status": "running", "updatedAt": time.time() * 1000}
    registry = json.dumps({"agent:main:main": mark}).encode()
    contents = {"lock": new_lock(other_process.pid), "running mark": registry,
                "torn registry": registry[:50]}  # fmt: skip
    beside = path.with_name(f"{NAME}.lock" if sign == "lock" else "sessions.json")
    beside.write_bytes(contents[sign])
    (deferred,) = world.scan(keep_recent=0).sessions
    untouched = path.read_bytes()
    beside.unlink()
    second = world.scan(keep_recent=0)

    assert deferred.outcome == "deferred"
    assert reason in deferred.reason
    assert untouched == conversation.bytes()
    assert second.sessions_changed == 1


def test_lock_that_appears_before_the_exchange_stops_it(
    world, conversation, other_process, monkeypatch
):
    """The signs are checked once more just before the exchange, and the new file is removed."""
    path = put_session(world, conversation, NAME)
    assert world.store
    fsync, ready = os.fsync, []

    def syncing(descriptor):
        ready.append(world.leftovers())
        path.with_name(f"{NAME}.lock").write_bytes(new_lock(other_process.pid))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", syncing)
    report = world.scan(keep_recent=0)

    assert [(session.outcome, session.reason) for session in report.sessions] == [
        ("deferred", f"locked by process {other_process.pid}")
    ]
    assert len(ready[0]) == 1
    assert path.read_bytes() == conversation.bytes()
    assert world.leftovers() == []


def test_registry_gives_session_keys_and_the_context_window(directory):
    """Sessions are matched by file or id; a malformed registry or number gives nothing."""
    path = directory.path / "sessions.json"
    path.write_text(json.dumps({
        "agent:main:cron:daily": {"sessionId": "a1", "contextTokens": 32_000},
        "agent:main:main": {"sessionFile": f"/elsewhere/{NAME}"},
        "agent:main:other": {"sessionId": "b2", "contextTokens": 5},
    }))  # fmt: skip
    place = str(directory.path)

    assert registry.keys_of(place, NAME) == ["agent:main:cron:daily", "agent:main:main"]
    assert registry.context_tokens(place, NAME) == 32_000
    assert registry.context_tokens(place, "c3.jsonl") is None
    for malformed in ("[]", "{", '{"k": {"sessionId": "a1", "contextTokens": true}}',
                '{"k": {"sessionId": "a1", "contextTokens": 0}}'):  # fmt: skip
        path.write_text(malformed)
        assert registry.context_tokens(place, NAME) is None
    path.unlink()
    assert registry.keys_of(place, NAME) == []
