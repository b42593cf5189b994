"""Locks and registry of an agent: who is at work."""

import errno
import json
import os
import time

import pytest

from brainsurgeon.hosts import openclaw
from brainsurgeon.model.sessions import Signs
from building.processes import OtherProcess
from building.world import LATER

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

    def lock(self, payload, age=0.0):
        """Write the agent's lock, last modified `age` seconds before LATER."""
        path = self.path / f"{NAME}.lock"
        path.write_bytes(payload if isinstance(payload, bytes) else json.dumps(payload).encode())
        os.utime(path, (LATER - age, LATER - age))
        return path

    def held(self):
        return openclaw.lock_held(self.descriptor, NAME, LATER)

    def registry(self, **entry):
        text = json.dumps({"agent:main:main": entry})
        (self.path / "sessions.json").write_text(text)

    def busy(self, abandoned=HOUR):
        return openclaw.signs(self.descriptor, NAME, lambda: LATER, abandoned).read()


def started(pid):
    """Give the start time of a process as the agent writes it into its lock."""
    with open(f"/proc/{pid}/stat") as handle:
        return int(handle.read().rsplit(")", 1)[1].split()[19])


def new_lock(pid, starttime):
    text = json.dumps(
        {"pid": pid, "createdAt": "2026-11-21T04:27:00.000Z", "maxHoldMs": 300000,
         "starttime": starttime}, indent=2,
    )  # fmt: skip
    return text.encode()


def old_lock(pid):
    return {"pid": pid, "createdAt": "2026-02-20T04:27:00.000Z"}


def dead():
    one = OtherProcess()
    one.kill()
    return one.pid


def test_without_a_lock_nobody_holds_it(directory):
    """No lock file, no holder."""
    assert directory.held() is None


@pytest.mark.parametrize("age", [0, 10 * HOUR])
def test_the_lock_of_a_living_agent_is_respected(directory, other_process, age):
    """Locks of both versions hold while their process lives, however old they are."""
    directory.lock(new_lock(other_process.pid, started(other_process.pid)), age)
    new = directory.held()
    directory.lock(old_lock(other_process.pid), age)
    old = directory.held()

    assert new == f"locked by process {other_process.pid}"
    assert old == f"locked by process {other_process.pid}"


def test_the_lock_of_a_dead_agent_holds_nothing(directory):
    """A lock whose process has ended holds nothing, young as it may be."""
    pid = dead()
    directory.lock(new_lock(pid, 123))
    new = directory.held()
    directory.lock(old_lock(pid))

    assert (new, directory.held()) == (None, None)


def test_a_recycled_pid_is_not_the_agent(directory, other_process):
    """A process that only has the number of the lock's owner, but started otherwise, is another."""
    directory.lock(new_lock(other_process.pid, started(other_process.pid) - 1))

    assert directory.held() is None


# Root is refused no signal, and meets this case nowhere; any other account proves it.
@pytest.mark.skipif(os.geteuid() == 0, reason="root may signal everybody")
def test_a_process_that_may_not_be_signalled_lives(directory):
    """The process of another user counts as living."""
    directory.lock(old_lock(1))

    assert directory.held() == "locked by process 1"


UNTOLD = [
    b"", b"{", b"null", b"[]", b'"1"', b"\xff\xfe", b"{}", {"pid": None}, {"pid": "12"},
    {"pid": 0}, {"pid": -1}, {"pid": True}, {"pid": 1.5}, {"createdAt": "2026-11-21T04:27:00Z"},
]  # fmt: skip


@pytest.mark.parametrize("payload", UNTOLD, ids=repr)
def test_a_lock_without_an_owner_holds_while_it_is_young(directory, payload):
    """An empty lock is about to get its payload; unreadable ones hold for half an hour."""
    directory.lock(payload, HALF_AN_HOUR - 1)
    young = directory.held()
    directory.lock(payload, HALF_AN_HOUR)
    old = directory.held()

    assert young == "there is a lock file"
    assert old is None


@pytest.mark.parametrize("pid", [2**22 + 1, 2**31, 2**40, 2**63 - 1, 2**70])
def test_a_pid_beyond_every_process_is_dead(directory, pid):
    """A number that no process can have belongs to none."""
    directory.lock(old_lock(pid), HOUR)

    assert directory.held() is None


@pytest.mark.parametrize("kind", ["directory", "link", "loop"])
def test_a_lock_that_is_no_file_stands(directory, kind):
    """Some programs lock with a directory; a link is not followed: the session is left alone."""
    path = directory.path / f"{NAME}.lock"
    if kind == "directory":
        path.mkdir()
    else:
        os.symlink(path if kind == "loop" else directory.path / "elsewhere", path)

    assert directory.held() == "there is a lock file that cannot be read"


def test_a_lock_that_is_a_pipe_does_not_hold_us_up(directory):
    """Nobody can make us wait by putting a pipe in the lock's place."""
    os.mkfifo(directory.path / f"{NAME}.lock")

    assert openclaw.lock_held(directory.descriptor, NAME, time.time()) == "there is a lock file"


def test_the_lock_is_only_looked_at(directory, other_process):
    """Looking never changes, removes or creates a lock."""
    path = directory.lock(new_lock(other_process.pid, started(other_process.pid)))
    before = path.read_bytes(), path.stat()
    directory.busy()
    path_after = path.read_bytes(), path.stat()
    path.unlink()
    directory.busy()

    assert path_after[0] == before[0]
    assert path_after[1].st_mtime_ns == before[1].st_mtime_ns
    assert path_after[1].st_ino == before[1].st_ino
    assert not path.exists()


def test_a_lock_of_another_session_says_nothing(directory, other_process):
    """Only the lock beside this very session counts."""
    (directory.path / "b2.jsonl.lock").write_bytes(
        new_lock(other_process.pid, started(other_process.pid))
    )

    assert directory.held() is None


@pytest.mark.parametrize(
    "entry",
    [
        {"sessionId": "a1", **FRESH},
        {"sessionId": "other", "sessionFile": f"/anywhere/{NAME}", **FRESH},
        {"sessionFile": NAME, **FRESH},
        {"sessionId": "a1"},  # a mark without a time counts as fresh
    ],
)
def test_a_session_marked_running_is_busy(directory, entry):
    """The gateway's mark counts for the session it names, by its id or by its file."""
    directory.registry(status="running", **entry)

    assert directory.busy() == "marked as running by its agent"


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
def test_other_marks_do_not_keep_a_session(directory, entry):
    """An abandoned run, another session's run, and a run that ended say nothing."""
    directory.registry(**entry)

    assert directory.busy() is None


def test_a_dead_owner_with_an_old_mark_is_not_at_work(directory):
    """After a crash of the gateway the lock's dead owner and the old mark free the session."""
    directory.lock(new_lock(dead(), 5))
    directory.registry(sessionId="a1", status="running", updatedAt=(LATER - 2 * HOUR) * 1000)

    assert directory.busy() is None


ODD = ["", "{", "[]", "null", "1", '{"a": 1}', '{"a": [], "c": null}', "\xff",
       '{"a": {"sessionId": "b2", "status": "done"}, "b"',
       '{"a": {"sessionId": "a1", "status": 7}}', '{"a": {"status": "running"}}',
       '{"a": {"sessionId": ["a1"], "status": "running"}}']  # fmt: skip


@pytest.mark.parametrize("text", ODD)
def test_a_torn_or_odd_registry_may_mean_a_run(directory, text):
    """What cannot be understood is no proof of rest: the session waits, and nothing is raised."""
    (directory.path / "sessions.json").write_text(text, "latin-1")

    assert "may be at work" in directory.busy()


@pytest.mark.parametrize("kind", ["directory", "link", "broken link", "pipe", "unreadable", "huge"])
def test_an_unreadable_registry_may_mean_that_the_agent_is_at_work(directory, kind, monkeypatch):
    """Whatever stands in the registry's place, nobody waits for it and nothing is extracted."""
    path = directory.path / "sessions.json"
    if kind == "directory":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "unreadable":
        path.write_text("{}")
        refused = PermissionError(errno.EACCES, "denied")
        monkeypatch.setattr(openclaw, "_opened", lambda name, place: _refuse(name, place, refused))
    elif kind == "huge":
        monkeypatch.setattr(openclaw, "LARGEST_REGISTRY", 10)
        path.write_text('{"agent:main:main": {}}')
    else:
        os.symlink(directory.path / (NAME if kind == "link" else "nowhere"), path)

    assert "may be at work" in directory.busy()
    assert openclaw.entries(str(directory.path)) == []


def _refuse(name, place, error, opened=openclaw._opened):
    if name == "sessions.json":
        raise error
    return opened(name, place)


def test_a_run_does_not_cut_beside_a_torn_registry(world, conversation):
    """The session is deferred with the reason until the registry is whole again."""
    conversation.turn("x" * 4000)
    path = world.put(NAME, conversation.bytes())
    registry = path.with_name("sessions.json")
    registry.write_text('{"agent:main:main": {"sessionId": "a1", "status": "runn')
    first = world.scan(keep_recent=0)
    untouched = path.read_bytes()
    registry.write_text('{"agent:main:main": {"sessionId": "a1", "status": "done"}}')
    second = world.scan(keep_recent=0)

    assert [one.outcome for one in first.sessions] == ["deferred"]
    assert "may be at work" in first.sessions[0].reason
    assert untouched == conversation.bytes()
    assert second.sessions_changed == 1


def test_nothing_is_parsed_while_an_opener_would_wait(world, conversation, monkeypatch):
    """Under the lease the registry's status is compared, and not a byte of it read."""
    conversation.turn("x" * 4000)
    path = world.put(NAME, conversation.bytes())
    path.with_name("sessions.json").write_text("{}")
    parsed, compared = [], []
    parse, changed = openclaw.parse, Signs.changed
    monkeypatch.setattr(openclaw, "parse", lambda raw: parsed.append(leased(path)) or parse(raw))
    monkeypatch.setattr(
        Signs, "changed", lambda signs: compared.append(leased(path)) or changed(signs)
    )
    done = world.scan(keep_recent=0)

    assert done.sessions_changed == 1
    assert (set(parsed), compared) == ({False}, [True])


def leased(path):
    """Tell by the kernel's list whether somebody has a lease on a file."""
    inode = f":{path.stat().st_ino} "
    with open("/proc/locks") as listed:
        return any("LEASE" in line and inode in line for line in listed)


def test_a_run_that_begins_under_the_lease_is_seen(directory):
    """A lock or a mark that was not there when the signs were read differs, and so does its end."""
    signs = openclaw.signs(directory.descriptor, NAME, lambda: LATER, HOUR)
    before = signs.read(), signs.changed()
    directory.registry(sessionId="a1", status="running", updatedAt=LATER * 1000)
    marked = signs.changed()
    signs.read()
    same = signs.changed()
    directory.lock(b"")

    assert before == (None, None)
    assert "changed" in marked
    assert same is None
    assert "changed" in signs.changed()


def test_the_lock_is_looked_at_again_after_the_mark(directory, other_process, monkeypatch):
    """A run that begins between the look at the lock and the look at the mark is seen."""

    def marking(*arguments):
        directory.lock(new_lock(other_process.pid, started(other_process.pid)))

    monkeypatch.setattr(openclaw, "_marked_running", marking)

    assert directory.busy() == f"locked by process {other_process.pid}"


@pytest.mark.parametrize("sign", ["lock", "mark"])
def test_a_run_leaves_a_session_at_work_alone_and_comes_back(
    world, conversation, other_process, sign
):
    """A busy session is deferred with the agent's sign as the reason, and done when it is gone."""
    conversation.turn("x" * 4000)
    path = world.put(NAME, conversation.bytes())
    if sign == "lock":
        beside = path.with_name(f"{NAME}.lock")
        beside.write_bytes(new_lock(other_process.pid, started(other_process.pid)))
    else:
        beside = path.with_name("sessions.json")
        fresh = {"sessionId": "a1", "status": "running", "updatedAt": time.time() * 1000}
        beside.write_text(json.dumps({"agent:main:main": fresh}))
    first = world.scan(keep_recent=0)
    untouched = path.read_bytes()
    beside.unlink()
    second = world.scan(keep_recent=0)

    assert [one.outcome for one in first.sessions] == ["deferred"]
    assert untouched == conversation.bytes()
    assert second.sessions_changed == 1


def test_a_run_that_begins_meanwhile_stops_the_exchange(
    world, conversation, other_process, monkeypatch
):
    """The agent's signs are looked at once more right before the names are exchanged."""
    conversation.turn("x" * 4000)
    path = world.put(NAME, conversation.bytes())
    assert world.store
    fsync, ready = os.fsync, []

    def syncing(descriptor):
        ready.append(world.leftovers())
        path.with_name(f"{NAME}.lock").write_bytes(
            new_lock(other_process.pid, started(other_process.pid))
        )
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", syncing)
    report = world.scan(keep_recent=0)

    assert [(one.outcome, one.reason) for one in report.sessions] == [
        ("deferred", f"locked by process {other_process.pid}")
    ]
    assert len(ready[0]) == 1
    assert path.read_bytes() == conversation.bytes()
    assert world.leftovers() == []


def test_the_registry_tells_a_sessions_keys_and_what_its_model_takes(directory):
    """By file or by id; where it is odd, torn or says no number, nothing is told."""
    path = directory.path / "sessions.json"
    path.write_text(json.dumps({
        "agent:main:cron:daily": {"sessionId": "a1", "contextTokens": 32_000},
        "agent:main:main": {"sessionFile": f"/elsewhere/{NAME}"},
        "agent:main:other": {"sessionId": "b2", "contextTokens": 5},
    }))  # fmt: skip
    place = str(directory.path)

    assert openclaw.keys_of(place, NAME) == ["agent:main:cron:daily", "agent:main:main"]
    assert openclaw.context_tokens(place, NAME) == 32_000
    assert openclaw.context_tokens(place, "c3.jsonl") is None
    for odd in ("[]", "{", '{"k": {"sessionId": "a1", "contextTokens": true}}',
                '{"k": {"sessionId": "a1", "contextTokens": 0}}'):  # fmt: skip
        path.write_text(odd)
        assert openclaw.context_tokens(place, NAME) is None
    path.unlink()
    assert openclaw.keys_of(place, NAME) == []
