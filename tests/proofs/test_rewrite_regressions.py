"""Rewrites: bugs that the long proofs found, each reproduced by a short test."""

import errno
import os
import subprocess
import sys
import threading
import time

import pytest

from brainsurgeon.files import leases, retire
from brainsurgeon.files.reading import OpenFile
from brainsurgeon.rewrite import recover
from building.processes import wait_until
from building.world import write_two_turns


@pytest.mark.parametrize("failures", [1, 99])
def test_journal_names_a_new_file_until_it_can_be_removed(
    world, conversation, monkeypatch, failures
):
    """A refused rewrite whose new file cannot be removed stays in the journal for the next run."""
    path = write_two_turns(world, conversation)
    unlink, failed = os.unlink, []

    def fail_at_first(name, *arguments, **keywords):
        if ".brainsurgeon-" in str(name) and len(failed) < failures:
            failed.append(name)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return unlink(name, *arguments, **keywords)

    with monkeypatch.context() as patch:
        patch.setattr(OpenFile, "differs", lambda *_, **__: "the file changed meanwhile")
        patch.setattr(os, "unlink", fail_at_first)
        report = world.scan(keep_recent=0)
    assert failed
    assert not report.sessions_changed
    assert path.read_bytes() == conversation.bytes()
    temporaries = [rewrite.temporary for rewrite in world.store.journal.open_rewrites()]
    assert temporaries == world.leftovers()
    world.scan(keep_recent=0)
    assert world.leftovers() == []
    world.restore_all(pristine=True)
    assert path.read_bytes() == conversation.bytes()


# --- late openers, and agents that rewrite their whole file meanwhile -----------------------------


@pytest.fixture
def start_late_opener(monkeypatch):
    """Yield a function that runs code in a process which waits in `open` during the exchange.

    The function returns a list that holds the process once it is started.
    """
    started, leased = [], []

    def start(code, *words):
        exchange, take = leases.exchange, leases.take

        def record_and_take(descriptor):
            leased.append(descriptor)
            return take(descriptor)

        def start_and_exchange(*names):
            if not started:
                started.append(subprocess.Popen(
                    [sys.executable, "-c", f"import os, sys, time\n{code}", *map(str, words)],
                    stdout=subprocess.PIPE,
                ))  # fmt: skip
                wait_until(lambda: not all(map(leases.held, leased)))  # it waits in its open
            exchange(*names)

        monkeypatch.setattr(leases, "take", record_and_take)
        monkeypatch.setattr(leases, "exchange", start_and_exchange)
        return started

    yield start
    for process in started:
        process.kill()
        process.communicate()


APPEND = "fd = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND); os.write(fd, sys.argv[2].encode())"
KEEP_OPEN = "fd = os.open(sys.argv[1], {}); print(flush=True); time.sleep(1.2)"


def rewrite(path, content, how):
    """Write a whole file as agents do: in place, or beside it and renamed."""
    if how == "in place":
        path.write_bytes(content)
    else:
        path.with_suffix(".new").write_bytes(content)
        os.rename(path.with_suffix(".new"), path)


def check_undone(world, path, expected):
    """Recover and restore; check the file's bytes and that nothing stays beside it."""
    recover.recover(world.store)
    world.restore_all(pristine=True, abandoned_after_seconds=0)
    assert path.read_bytes() == expected
    assert world.leftovers() == []
    assert world.store.journal.open_rewrites() == []


@pytest.mark.parametrize("how", ["in place", "by rename"])
@pytest.mark.parametrize("operation", ["extract", "restore"])
def test_a_moved_late_line_comes_once_if_the_agent_rewrites_it(
    world, conversation, monkeypatch, start_late_opener, how, operation
):
    """A line moved under the lease is not moved again if the agent's new history has it as well."""
    path = write_two_turns(world, conversation)
    original = conversation.bytes()
    conversation.user("the next turn")
    line = conversation.bytes()[len(original) :]
    if operation == "restore":
        world.scan(keep_recent=0)
    memory = path.read_bytes()
    opener, remove = start_late_opener(APPEND, path, line.decode()), retire.retire

    def rewrite_and_remove(*arguments, **keywords):
        if opener:
            opener.pop().communicate()
            assert path.read_bytes().count(line) == 1  # it was moved under the lease
            rewrite(path, memory + line, how)
        return remove(*arguments, **keywords)

    monkeypatch.setattr(retire, "retire", rewrite_and_remove)
    world.scan(keep_recent=0) if operation == "extract" else world.restore_all(pristine=True)
    monkeypatch.undo()

    assert opener == []
    check_undone(world, path, original + line)


@pytest.mark.parametrize("how", ["in place", "by rename"])
@pytest.mark.parametrize("flags", ["os.O_RDONLY", "os.O_WRONLY | os.O_APPEND"])
def test_a_history_rewritten_beside_a_late_opener_stays(
    world, conversation, start_late_opener, how, flags
):
    """A late reader or writer of the old file does not make that older history the session."""
    path = write_two_turns(world, conversation)
    conversation.turn("z" * 3000)
    opener = start_late_opener(KEEP_OPEN.format(flags), path)

    def agent():
        while not opener:
            time.sleep(0.01)
        opener[0].stdout.readline()
        time.sleep(0.1)
        rewrite(path, conversation.bytes(), how)

    thread = threading.Thread(target=agent)
    thread.start()
    world.scan(keep_recent=0)
    thread.join()
    opener[0].wait()

    check_undone(world, path, conversation.bytes())


def test_a_late_reader_does_not_undo_the_exchange(world, conversation, start_late_opener):
    """Nor does a reader that keeps the old file open keep its name beside the session."""
    path = write_two_turns(world, conversation)
    opener = start_late_opener(KEEP_OPEN.format("os.O_RDONLY").replace("1.2", "60"), path)

    report = world.scan(keep_recent=0)

    assert opener[0].poll() is None
    assert report.sessions_changed == 1
    assert report.interrupted == []
    assert world.leftovers() == []


def test_two_rewritten_histories_are_both_kept(world, conversation, monkeypatch):
    """The later one stays the session, the other stays beside it, and the report names it."""
    path = write_two_turns(world, conversation)
    remove, temporaries = retire.retire, []

    def rewrite_both_and_remove(place, **keywords):
        monkeypatch.setattr(retire, "retire", remove)
        temporary = path.with_name(place.temporary)
        temporary.write_bytes(b'{"type":"session","id":"other"}\n' * 9)
        temporaries.append(temporary)
        time.sleep(0.02)
        path.write_bytes(conversation.bytes())
        return remove(place, **keywords)

    monkeypatch.setattr(retire, "retire", rewrite_both_and_remove)
    report = world.scan(keep_recent=0)

    assert report.interrupted == ["one.jsonl"]
    assert path.read_bytes() == conversation.bytes()
    assert temporaries[0].read_bytes().count(b"other") == 9
