"""What agents, disks and crashes may do around an exchange, step against step.

Each test is one order of events by which a line was once lost, doubled, torn or left behind.
"""

import errno
import os
import signal
import threading
import time

import pytest

from brainsurgeon.rewrite import recover
from brainsurgeon.sessions import exchange, leases, retire
from brainsurgeon.sessions.reading import RefusedError, open_session
from brainsurgeon.sessions.retire import FilePair
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
from building.world import open_rewrites, write_two_turns

NEXT = b'{"id":5,"next":true}\n'
# The whole history as an agent writes it from memory, of another length than ours.
ANEW = OLD.replace(b'"id":1', b'"id":1,"v":3') + LATE
SAY_NEXT = f"os.write(fd, {NEXT!r})"


def everything(path):
    return b"".join(one.read_bytes() for one in path.parent.iterdir())


def exchanged(world, path):
    """Leave what a crash right after the exchange leaves."""
    new = path.with_name(TEMPORARY)
    new.write_bytes(NEW)
    status = path.stat()
    os.utime(new, ns=(status.st_atime_ns, status.st_mtime_ns))
    begin_interrupted_rewrite(world, path, new)
    directory = os.open(path.parent, os.O_RDONLY)
    leases.exchange(directory, TEMPORARY, NAME)
    os.close(directory)


# --- on the way back -----------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["the sync fails", "there is no room to move it"])
def test_a_line_survives_a_failure_on_the_way_back(
    session, path, other_process, second_process, race, short_closing_wait, monkeypatch, what
):
    """One agent keeps the old file, another writes into the new one: that is never removed."""
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

    if what == "the sync fails":
        monkeypatch.setattr(os, "fsync", failing)
    else:
        monkeypatch.setattr(retire, "append", full)
    with pytest.raises(OSError, match=r"I/O|full"):
        replace(session)
    for _ in range(3):
        second_process.receive()

    assert NEXT in everything(path)


@pytest.fixture
def interruptible():
    """Let Ctrl-C interrupt, also where a shell that runs us in the background had it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_a_line_survives_an_interrupt_on_the_way_back(
    session, path, other_process, second_process, race, short_closing_wait, monkeypatch
):
    """Ctrl-C while an opener of the new file is waited for: what it writes then is kept."""
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

    assert NEXT in everything(path)


@pytest.mark.parametrize(
    "error", [OSError(errno.ENOSPC, "full"), KeyboardInterrupt()], ids=["full disk", "interrupt"]
)
def test_recovery_moves_the_line_after_a_failed_way_back(
    world, conversation, other_process, second_process, race, short_closing_wait, monkeypatch, error
):
    """Stopped before a line was moved over, the next recovery moves it, and ends the rewrite."""
    one = write_two_turns(world, conversation)
    race.before = lambda: race.opens(other_process, race.leased[1], one, APPEND)
    race.after = lambda: race.opens(
        second_process, race.leased[0], one, APPEND, SAY_NEXT, "os.close(fd)"
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

    assert one.read_bytes() == conversation.bytes() + NEXT
    assert world.leftovers() == []
    assert world.store.journal.open_rewrites() == []


def test_a_history_in_the_new_file_wins_though_the_old_grew(
    session, path, other_process, second_process, race, short_closing_wait, monkeypatch
):
    """One agent writes all anew into the new file; the other's last line follows it."""
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


def test_who_had_found_the_new_file_when_it_went_is_waited_for(
    session, path, other_process, second_process, race, short_closing_wait, monkeypatch
):
    """An opener between looking the name up and opening writes into a file that is kept."""
    race.before = lambda: race.opens(other_process, session.descriptor, path, APPEND)
    race.after = lambda: second_process.evaluate(
        f"globals().update(found=os.open({str(path)!r}, os.O_PATH))"
    )
    swap = leases.exchange

    def exchanging(*both):
        swap(*both)
        if race.exchanges == 2:
            second_process.send(
                "(time.sleep(0.003), globals().update(fd=os.open(f'/proc/self/fd/{found}',"
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

    assert NEXT in everything(path)


# --- the last look -------------------------------------------------------------------------------


@pytest.mark.parametrize("fails", ["unlink", "fsync"])
def test_what_was_moved_before_a_failure_is_not_moved_again(
    world, conversation, monkeypatch, fails
):
    """Stopped between moving a line and removing the old file, recovery does not move it twice."""
    one = write_two_turns(world, conversation)
    settle_now = retire.retire

    def settling_late(place, **keywords):
        append_bytes(one.with_name(place.temporary), LATE)
        time.sleep(0.02)  # the clock of files is a coarse one
        append_bytes(one, NEXT)
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
    assert one.read_bytes().count(LATE) == 1
    assert one.read_bytes().count(NEXT) == 1


@pytest.mark.parametrize("ahead", [3600, -1])
def test_a_session_from_the_future_is_given_back_as_well(path, ahead):
    """What was written anew wins also where the session's time lies ahead of the clock."""
    moment = time.time_ns() + ahead * 10**9
    os.utime(path, ns=(moment, moment))
    with open_session(discovered(path)) as opened:
        done = replace(opened)
        path.with_name(TEMPORARY).write_bytes(ANEW)
        retire_old_file(opened, done)

    assert path.read_bytes() == ANEW
    assert directory_names(path) == [NAME]


def test_a_writer_in_its_open_at_the_last_look_is_waited_for(
    session, path, other_process, monkeypatch
):
    """Somebody whom our own lease keeps from writing is seen before the old file goes."""
    done = replace(session)
    old = str(path.with_name(TEMPORARY))
    other_process.evaluate(f"globals().update(found=os.open({old!r}, os.O_PATH))")
    tail_of = retire.tail_of

    def looking(*arguments):
        found = tail_of(*arguments)
        monkeypatch.setattr(retire, "tail_of", tail_of)
        other_process.send(
            "(globals().update(fd=os.open(f'/proc/self/fd/{found}', os.O_WRONLY | os.O_APPEND)),"
            f" {SAY_NEXT}, os.close(fd))"
        )
        wait_until(lambda: not leases.held(session.descriptor))
        return found

    monkeypatch.setattr(retire, "tail_of", looking)
    retire_old_file(session, done, patience=2)
    other_process.receive()

    assert NEXT in path.read_bytes()


def test_a_line_moved_by_half_is_taken_back(
    session, path, other_process, second_process, race, long_closing_wait, monkeypatch
):
    """Where the disk fills up while a late line is moved, no other is glued to its half."""
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
def test_recovery_keeps_what_was_written_anew_after_a_crash(world, path, then):
    """The agent writes all anew into the old file, then goes on by name."""
    exchanged(world, path)
    path.with_name(TEMPORARY).write_bytes(ANEW)
    time.sleep(0.02)
    if then == "appends":
        append_bytes(path, NEXT)
    recover.recover(world.store)

    assert open_rewrites(world) == []
    assert directory_names(path) == [NAME]
    assert path.read_bytes() == ANEW + NEXT * (then == "appends")


def test_lines_of_a_session_that_is_gone_after_a_crash_are_kept(world, path):
    """It may have been deleted or moved: its old file is named until somebody removes it."""
    exchanged(world, path)
    append_bytes(path.with_name(TEMPORARY), LATE)
    path.unlink()
    first, second = recover.recover(world.store), recover.recover(world.store)
    kept = path.with_name(TEMPORARY)

    assert [one.what.endswith("both files stay") for one in first] == [True]
    assert second == []
    assert kept.read_bytes() == OLD + LATE
    kept.unlink()
    recover.recover(world.store)
    assert open_rewrites(world) == []


def test_lines_written_while_a_file_is_displaced_follow_it(world, path):
    """Killed with the agent's own new file under our name: lines by name since then are moved."""
    new = path.with_name(TEMPORARY)
    new.write_bytes(NEW)
    begin_interrupted_rewrite(world, path, new)
    replace_by_rename(path, ANEW)
    directory = os.open(path.parent, os.O_RDONLY)
    leases.exchange(directory, TEMPORARY, NAME)
    os.close(directory)
    append_bytes(path, NEXT)
    recover.recover(world.store)

    assert path.read_bytes() == ANEW + NEXT
    assert directory_names(path) == [NAME]


def test_a_session_deleted_while_displaced_stays_deleted(world, path):
    """Killed with the agent's own new file under our name; then the session was deleted."""
    new = path.with_name(TEMPORARY)
    new.write_bytes(NEW)
    begin_interrupted_rewrite(world, path, new)
    replace_by_rename(path, b"{}\n" * 9)
    directory = os.open(path.parent, os.O_RDONLY)
    leases.exchange(directory, TEMPORARY, NAME)
    os.close(directory)
    path.unlink()
    recover.recover(world.store)

    assert directory_names(path) == [TEMPORARY]
    [ended] = world.store.journal.open_rewrites()
    assert ended.ended_at is not None


def test_a_root_that_is_not_mounted_yet_keeps_its_open_rewrites(world, path):
    """Recovery before the filesystem is there leaves the journal's row for the next run."""
    exchanged(world, path)
    append_bytes(path.with_name(TEMPORARY), LATE)
    root = path.parent
    root.rename(root.with_name("unmounted"))
    first = recover.recover(world.store)
    root.with_name("unmounted").rename(root)
    recover.recover(world.store)

    assert "left for the next run" in first[0].what
    assert path.read_bytes() == NEW + LATE
    assert directory_names(path) == [NAME]
    assert open_rewrites(world) == []
