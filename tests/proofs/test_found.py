"""What the long proofs found once, brought back by itself in an instant."""

import errno
import os
import subprocess
import sys
import threading
import time

import pytest

from brainsurgeon.rewrite import recover
from brainsurgeon.sessions import leases, retire
from brainsurgeon.sessions.reading import OpenSession
from building.processes import wait_until
from building.world import write_two_turns


@pytest.mark.parametrize("times", [1, 99])
def test_a_temporary_file_that_cannot_be_removed_stays_named(
    world, conversation, monkeypatch, times
):
    """Where a refused rewrite cannot remove its new file, the journal names it until it is gone."""
    conversation.turn("x" * 3000)
    conversation.turn("y" * 3000)
    path = world.put("one.jsonl", conversation.bytes())
    unlink, failed = os.unlink, []

    def full(name, *arguments, **keywords):
        if ".brainsurgeon-" in str(name) and len(failed) < times:
            failed.append(name)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return unlink(name, *arguments, **keywords)

    with monkeypatch.context() as patch:
        patch.setattr(OpenSession, "differs", lambda *_, **__: "the file changed meanwhile")
        patch.setattr(os, "unlink", full)
        report = world.scan(keep_recent=0)
    assert failed
    assert not report.sessions_changed
    assert path.read_bytes() == conversation.bytes()
    named = [rewrite.temporary for rewrite in world.store.journal.open_rewrites()]
    assert named == world.leftovers()
    world.scan(keep_recent=0)
    assert world.leftovers() == []
    world.restore_all(pristine=True)
    assert path.read_bytes() == conversation.bytes()


# --- openers who come late, and agents who write their whole file anew just then ------------------


@pytest.fixture
def late(monkeypatch):
    started, leased = [], []

    def start(code, *words):
        exchange, take = leases.exchange, leases.take

        def taking(descriptor):
            leased.append(descriptor)
            return take(descriptor)

        def exchanging(*names):
            if not started:
                started.append(subprocess.Popen(
                    [sys.executable, "-c", f"import os, sys, time\n{code}", *map(str, words)],
                    stdout=subprocess.PIPE,
                ))  # fmt: skip
                wait_until(lambda: not all(map(leases.held, leased)))  # it stands in its open
            exchange(*names)

        monkeypatch.setattr(leases, "take", taking)
        monkeypatch.setattr(leases, "exchange", exchanging)
        return started

    yield start
    for process in started:
        process.kill()
        process.communicate()


APPENDS = "fd = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND); os.write(fd, sys.argv[2].encode())"
KEEPS = "fd = os.open(sys.argv[1], {}); print(flush=True); time.sleep(1.2)"


def write_anew(path, content, how):
    """Write a whole file as agents do: in place, or beside it and renamed."""
    if how == "in place":
        path.write_bytes(content)
    else:
        path.with_suffix(".new").write_bytes(content)
        os.rename(path.with_suffix(".new"), path)


def nothing_is_left(world, path, expected):
    """Put everything back: the file is what the agent wrote, and nothing stands beside it."""
    recover.recover(world.store)
    world.restore_all(pristine=True, abandoned_after_seconds=0)
    assert path.read_bytes() == expected
    assert world.leftovers() == []
    assert world.store.journal.open_rewrites() == []


@pytest.mark.parametrize("how", ["in place", "by rename"])
@pytest.mark.parametrize("verb", ["cut", "restored"])
def test_a_late_line_comes_once_though_all_is_written_anew(
    world, conversation, monkeypatch, late, how, verb
):
    """A line moved over under the lease is not moved again when the agent has said it itself."""
    path = write_two_turns(world, conversation)
    original = conversation.bytes()
    conversation.user("the next turn")
    line = conversation.bytes()[len(original) :]
    if verb == "restored":
        world.scan(keep_recent=0)
    memory = path.read_bytes()
    opener, settle = late(APPENDS, path, line.decode()), retire.retire

    def settling_late(*arguments, **keywords):
        if opener:
            opener.pop().communicate()
            assert path.read_bytes().count(line) == 1  # it was moved over under the lease
            write_anew(path, memory + line, how)
        return settle(*arguments, **keywords)

    monkeypatch.setattr(retire, "retire", settling_late)
    world.scan(keep_recent=0) if verb == "cut" else world.restore_all(pristine=True)
    monkeypatch.undo()

    assert opener == []
    nothing_is_left(world, path, original + line)


@pytest.mark.parametrize("how", ["in place", "by rename"])
@pytest.mark.parametrize("flags", ["os.O_RDONLY", "os.O_WRONLY | os.O_APPEND"])
def test_what_is_written_beside_a_late_opener_is_the_session(world, conversation, late, how, flags):
    """A late pager or writer does not let an older history win over the one written meanwhile."""
    path = write_two_turns(world, conversation)
    conversation.turn("z" * 3000)
    opener = late(KEEPS.format(flags), path)

    def agent():
        while not opener:
            time.sleep(0.01)
        opener[0].stdout.readline()
        time.sleep(0.1)
        write_anew(path, conversation.bytes(), how)

    writing = threading.Thread(target=agent)
    writing.start()
    world.scan(keep_recent=0)
    writing.join()
    opener[0].wait()

    nothing_is_left(world, path, conversation.bytes())


def test_a_late_pager_costs_no_rewrite(world, conversation, late):
    """Whoever only reads the old file on neither undoes the exchange nor keeps the file there."""
    path = write_two_turns(world, conversation)
    opener = late(KEEPS.format("os.O_RDONLY").replace("1.2", "60"), path)

    report = world.scan(keep_recent=0)

    assert opener[0].poll() is None
    assert report.sessions_changed == 1
    assert report.interrupted == []
    assert world.leftovers() == []


def test_of_two_histories_written_anew_none_is_thrown_away(world, conversation, monkeypatch):
    """Where the session was written anew as well, later, that stays and the other stays beside."""
    path = write_two_turns(world, conversation)
    settle, temporaries = retire.retire, []

    def settling_late(place, **keywords):
        monkeypatch.setattr(retire, "retire", settle)
        path.with_name(place.temporary).write_bytes(b'{"type":"session","id":"other"}\n' * 9)
        temporaries.append(path.with_name(place.temporary))
        time.sleep(0.02)
        path.write_bytes(conversation.bytes())
        return settle(place, **keywords)

    monkeypatch.setattr(retire, "retire", settling_late)
    report = world.scan(keep_recent=0)

    assert report.interrupted == ["one.jsonl"]
    assert path.read_bytes() == conversation.bytes()
    assert temporaries[0].read_bytes().count(b"other") == 9
