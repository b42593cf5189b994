"""Agents, disk errors and crashes around an exchange, step by step.

Each test is one order of events in which a line was once lost, doubled, torn or left behind.
"""

import errno
import os
import signal
import threading
import time

import pytest

from brainsurgeon.files import exchange, leases, retire
from brainsurgeon.files.reading import RefusedError
from brainsurgeon.files.retire import FilePair
from brainsurgeon.rewrite import recover
from brainsurgeon.sessions.discovery import open_session
from building.exchange import (
    APPEND,
    LATE,
    NAME,
    NEW,
    OLD,
    REWRITE,
    TEMPORARY,
    append_bytes,
    begin_interrupted_rewrite,
    directory_names,
    discovered,
    replace,
    replace_by_rename,
    retire_old_file,
)
from building.processes import wait_until
from building.world import write_two_turns

NEXT = b'{"id":5,"next":true}\n'
# The whole history as an agent writes it from memory, of another length than ours.
ANEW = OLD.replace(b'"id":1', b'"id":1,"v":3') + LATE
SAY_NEXT = f"os.write(fd, {NEXT!r})"


def all_content(path):
    return b"".join(file.read_bytes() for file in path.parent.iterdir())


def leave_a_crash_after_the_exchange(world, path, displaced=None):
    """Leave the files and the journal as a crash right after the exchange does.

    The agent may have renamed a file with the content `displaced` over the session before.
    """
    new = path.with_name(TEMPORARY)
    new.write_bytes(NEW)
    status = path.stat()
    os.utime(new, ns=(status.st_atime_ns, status.st_mtime_ns))
    begin_interrupted_rewrite(world, path, new)
    if displaced:
        replace_by_rename(path, displaced)
    directory = os.open(path.parent, os.O_RDONLY)
    leases.exchange(directory, TEMPORARY, NAME)
    os.close(directory)


# --- on the way back -----------------------------------------------------------------------------


@pytest.mark.parametrize("failure", ["the sync fails", "there is no room to move it"])
def test_error_on_the_way_back_keeps_the_line_in_the_new_file(
    session, path, other_process, second_process, race, short_closing_wait, monkeypatch, failure
):
    """The new file, which has a line of another agent, is not removed."""
    race.before = lambda: race.opens(other_process, session.descriptor, path, APPEND)
    race.after = lambda: race.opens(
        second_process, race.leased[0], path, APPEND, SAY_NEXT, "os.close(fd)"
    )
    fsync = os.fsync

    def failing(descriptor):
        if race.exchanges == 2 and os.path.isdir(f"/proc/self/fd/{descriptor}"):
            monkeypatch.setattr(os, "fsync", fsync)
            raise OSError(errno.EIO, "I/O")
        fsync(descriptor)

    def full(*_, **__):
        raise OSError(errno.ENOSPC, "full")

    if failure == "the sync fails":
        monkeypatch.setattr(os, "fsync", failing)
    else:
        monkeypatch.setattr(retire, "append", full)
    with pytest.raises(OSError, match=r"I/O|full"):
        replace(session)
    for _ in range(3):
        second_process.receive()

    assert NEXT in all_content(path)


@pytest.mark.usefixtures("interruptible")
def test_interrupt_on_the_way_back_keeps_the_new_file(
    session, path, other_process, second_process, race, short_closing_wait, monkeypatch
):
    """A line that is written after Ctrl-C, by an opener of the new file, is kept."""
    race.before = lambda: race.opens(other_process, session.descriptor, path, APPEND)
    race.after = lambda: race.opens(second_process, race.leased[0], path, APPEND)
    exchange = leases.exchange

    def exchanging(*both):
        exchange(*both)
        if race.exchanges == 2:
            threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()

    monkeypatch.setattr(leases, "exchange", exchanging)
    with pytest.raises(KeyboardInterrupt):
        replace(session)
    second_process.receive()
    second_process.evaluate(SAY_NEXT)

    assert NEXT in all_content(path)


@pytest.mark.parametrize(
    "error", [OSError(errno.ENOSPC, "full"), KeyboardInterrupt()], ids=["full disk", "interrupt"]
)
def test_recovery_moves_a_line_after_a_failed_way_back(
    world, conversation, other_process, second_process, race, short_closing_wait, monkeypatch, error
):
    """Recovery moves a line that was not moved before an error, and ends the rewrite."""
    file = write_two_turns(world, conversation)
    race.before = lambda: race.opens(other_process, race.leased[1], file, APPEND)
    race.after = lambda: race.opens(
        second_process, race.leased[0], file, APPEND, SAY_NEXT, "os.close(fd)"
    )
    move = retire.append

    def once(*_, **__):
        monkeypatch.setattr(retire, "append", move)
        raise error

    monkeypatch.setattr(retire, "append", once)
    try:
        world.scan(keep_recent=0)
    except KeyboardInterrupt:
        assert isinstance(error, KeyboardInterrupt)
    recover.recover(world.store)
    other_process.kill()
    second_process.kill()
    recover.recover(world.store)
    world.restore_all(pristine=True, abandoned_after_seconds=0)

    assert file.read_bytes() == conversation.bytes() + NEXT
    assert world.leftovers() == []
    assert world.store.journal.open_rewrites() == []


def test_rewrite_of_the_new_file_wins_over_the_old_file(
    session, path, other_process, second_process, race, short_closing_wait, monkeypatch
):
    """A late line of the old file follows the history that another agent wrote."""
    race.before = lambda: race.opens(other_process, session.descriptor, path, APPEND)
    race.after = lambda: race.opens(
        second_process, race.leased[0], path, REWRITE, f"os.write(fd, {ANEW!r})", "os.close(fd)"
    )
    wait = retire._wait_until_closed

    def waiting_once(descriptor, deadline):
        certain = wait(descriptor, deadline)
        if race.exchanges == 2:
            monkeypatch.setattr(retire, "_wait_until_closed", wait)
            other_process.receive()
            time.sleep(0.02)
            other_process.evaluate(SAY_NEXT)
            other_process.evaluate("os.close(fd)")
        return certain

    monkeypatch.setattr(retire, "_wait_until_closed", waiting_once)
    with pytest.raises(RefusedError):
        replace(session)

    assert path.read_bytes() == ANEW + NEXT
    assert directory_names(path) == [NAME]


def test_opener_that_resolved_the_new_name_loses_no_line(
    session, path, other_process, second_process, race, short_closing_wait, monkeypatch
):
    """An opener between its lookup and its open writes into a file that is kept."""
    race.before = lambda: race.opens(other_process, session.descriptor, path, APPEND)
    race.after = lambda: second_process.evaluate(
        f"globals().update(resolved=os.open({str(path)!r}, os.O_PATH))"
    )
    swap = leases.exchange

    def exchanging(*both):
        swap(*both)
        if race.exchanges == 2:
            second_process.send(
                "(time.sleep(0.003), globals().update(fd=os.open(f'/proc/self/fd/{resolved}',"
                f" os.O_WRONLY | os.O_APPEND)), {SAY_NEXT}, os.close(fd))"
            )

    def waiting_for_openers(seconds):
        if seconds == exchange.WAIT_FOR_OPENERS:  # long enough for this one, however busy it is
            wait_until(lambda: not leases.held(race.leased[0]))
        else:
            sleep(seconds)

    sleep = time.sleep
    monkeypatch.setattr(time, "sleep", waiting_for_openers)
    monkeypatch.setattr(leases, "exchange", exchanging)
    with pytest.raises(RefusedError):
        replace(session)
    second_process.receive()

    assert NEXT in all_content(path)


# --- the last look -------------------------------------------------------------------------------


@pytest.mark.parametrize("fails", ["unlink", "fsync"])
def test_recovery_does_not_move_a_line_twice(world, conversation, monkeypatch, fails):
    """An error between moving a line and removing the old file leaves each line once."""
    file = write_two_turns(world, conversation)
    settle_now = retire.retire

    def settling_late(place, **keywords):
        append_bytes(file.with_name(place.temporary), LATE)
        time.sleep(0.02)  # the clock of files is a coarse one
        append_bytes(file, NEXT)
        real = getattr(os, fails)

        def failing(*arguments, **options):
            if fails == "fsync" and os.path.isdir(f"/proc/self/fd/{arguments[0]}"):
                return real(*arguments, **options)
            monkeypatch.setattr(os, fails, real)
            raise OSError(errno.EIO, "struck")

        monkeypatch.setattr(os, fails, failing)
        monkeypatch.setattr(retire, "retire", settle_now)
        return settle_now(place, **keywords)

    monkeypatch.setattr(retire, "retire", settling_late)
    world.scan(keep_recent=0)
    recover.recover(world.store)

    assert world.leftovers() == []
    assert file.read_bytes().count(LATE) == 1
    assert file.read_bytes().count(NEXT) == 1


@pytest.mark.parametrize("ahead", [3600, -1])
def test_late_rewrite_wins_if_the_session_time_is_in_the_future(path, ahead):
    """The old file that was rewritten gets its name back at any time of the session."""
    moment = time.time_ns() + ahead * 10**9
    os.utime(path, ns=(moment, moment))
    with open_session(discovered(path)) as opened:
        rewrite = replace(opened)
        path.with_name(TEMPORARY).write_bytes(ANEW)
        retire_old_file(opened, rewrite)

    assert path.read_bytes() == ANEW
    assert directory_names(path) == [NAME]


def test_writer_blocked_at_the_last_look_is_waited_for(session, path, other_process, monkeypatch):
    """The line of a process that waits for our own lease is kept."""
    rewrite = replace(session)
    old = str(path.with_name(TEMPORARY))
    other_process.evaluate(f"globals().update(resolved=os.open({old!r}, os.O_PATH))")
    tail_of = retire.tail_of

    def looking(*arguments):
        tail = tail_of(*arguments)
        monkeypatch.setattr(retire, "tail_of", tail_of)
        other_process.send(
            "(globals().update(fd=os.open(f'/proc/self/fd/{resolved}', os.O_WRONLY | os.O_APPEND)),"
            f" {SAY_NEXT}, os.close(fd))"
        )
        wait_until(lambda: not leases.held(session.descriptor))
        return tail

    monkeypatch.setattr(retire, "tail_of", looking)
    retire_old_file(session, rewrite, patience=2)
    other_process.receive()

    assert NEXT in path.read_bytes()


def test_half_moved_line_is_taken_back(
    session, path, other_process, second_process, race, long_closing_wait, monkeypatch
):
    """If the disk fills up while a late line is moved, the next line is not glued to its half."""
    race.before = lambda: race.opens(
        other_process, session.descriptor, path, APPEND, f"os.write(fd, {LATE!r})", "os.close(fd)"
    )
    race.after = lambda: race.opens(
        second_process, race.leased[0], path, APPEND, "time.sleep(0.02)", SAY_NEXT, "os.close(fd)"
    )
    write, ends = retire.write, []

    def partly(descriptor, data):
        if data == LATE:
            os.write(descriptor, data[:7])
            raise OSError(errno.ENOSPC, "full")
        write(descriptor, data)

    monkeypatch.setattr(retire, "write", partly)
    with pytest.raises(OSError, match="full"):
        replace(session, filled=lambda _, both: ends.append(both))
    monkeypatch.setattr(retire, "write", write)
    for _ in range(4):
        second_process.receive()
    retire.retire(
        FilePair(session.directory, NAME, TEMPORARY, ends[0]), deadline=time.monotonic() + 1,
        leased=session.descriptor,
    )  # fmt: skip

    assert path.read_bytes() == OLD + LATE + NEXT


# --- after a crash -------------------------------------------------------------------------------


@pytest.mark.parametrize("then", ["nothing", "appends"])
def test_recovery_keeps_a_rewrite_of_the_old_file(world, path, then):
    """The history that the agent wrote after a crash is kept, with lines appended since."""
    leave_a_crash_after_the_exchange(world, path)
    path.with_name(TEMPORARY).write_bytes(ANEW)
    time.sleep(0.02)
    if then == "appends":
        append_bytes(path, NEXT)
    recover.recover(world.store)

    assert world.store.journal.open_rewrites() == []
    assert directory_names(path) == [NAME]
    assert path.read_bytes() == ANEW + NEXT * (then == "appends")


def test_recovery_keeps_the_old_file_of_a_missing_session(world, path):
    """The session may have been deleted or moved, so its old file stays until it is removed."""
    leave_a_crash_after_the_exchange(world, path)
    append_bytes(path.with_name(TEMPORARY), LATE)
    path.unlink()
    first, second = recover.recover(world.store), recover.recover(world.store)
    old_file = path.with_name(TEMPORARY)

    assert [event.what.endswith("both files stay") for event in first] == [True]
    assert second == []
    assert old_file.read_bytes() == OLD + LATE
    old_file.unlink()
    recover.recover(world.store)
    assert world.store.journal.open_rewrites() == []


def test_recovery_moves_lines_behind_a_displaced_file(world, path):
    """Lines appended by name while the agent's own file was displaced are moved to it."""
    leave_a_crash_after_the_exchange(world, path, displaced=ANEW)
    append_bytes(path, NEXT)
    recover.recover(world.store)

    assert path.read_bytes() == ANEW + NEXT
    assert directory_names(path) == [NAME]


def test_session_deleted_while_displaced_stays_deleted(world, path):
    """The agent's own file under the temporary name is left, and the rewrite ends."""
    leave_a_crash_after_the_exchange(world, path, displaced=b"{}\n" * 9)
    path.unlink()
    recover.recover(world.store)

    assert directory_names(path) == [TEMPORARY]
    [ended] = world.store.journal.open_rewrites()
    assert ended.ended_at is not None


def test_recovery_waits_for_a_root_that_is_not_mounted(world, path):
    """The journal entry is left for the next run, which completes it."""
    leave_a_crash_after_the_exchange(world, path)
    append_bytes(path.with_name(TEMPORARY), LATE)
    root = path.parent
    root.rename(root.with_name("unmounted"))
    first = recover.recover(world.store)
    root.with_name("unmounted").rename(root)
    recover.recover(world.store)

    assert "left for the next run" in first[0].what
    assert path.read_bytes() == NEW + LATE
    assert directory_names(path) == [NAME]
    assert world.store.journal.open_rewrites() == []
