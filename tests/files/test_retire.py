"""Removing the old file after an exchange, and the lines appended to it late."""

import errno
import os
import resource
import time

import pytest

from brainsurgeon.files import leases, retire
from brainsurgeon.files.retire import FilePair, Ledger, StaysError
from brainsurgeon.sessions.discovery import open_session
from building.exchange import (
    APPEND,
    LATE,
    NAME,
    NEW,
    OLD,
    TEMPORARY,
    append_bytes,
    directory_names,
    discovered,
    replace,
    retire_old_file,
)
from building.processes import wait_until


def test_line_in_the_old_file_after_the_leases_is_kept_in_order(session, path, other_process):
    """The late line was written first, so the old file gets its name back, with both lines."""
    exchanged = replace(session)
    other_process.evaluate(
        f"globals().update(fd=os.open({str(path.with_name(TEMPORARY))!r}, {APPEND}))"
    )
    other_process.evaluate(f"os.write(fd, {LATE!r})")
    time.sleep(0.02)  # the clock of files is a coarse one
    append_bytes(path, b"{}\n")
    with pytest.raises(StaysError):
        retire_old_file(session, exchanged, patience=0.05)
    old_file = path.with_name(TEMPORARY).read_bytes()
    other_process.evaluate("os.close(fd)")
    saved = retire_old_file(session, exchanged)

    assert old_file == OLD + LATE
    assert saved == 3
    assert path.read_bytes() == OLD + LATE + b"{}\n"
    assert directory_names(path) == [NAME]


def test_moved_lines_are_not_moved_twice(session, path):
    """Removal may be repeated after it stopped between the move and the deletion."""
    exchanged = replace(session)
    append_bytes(path.with_name(TEMPORARY), LATE)
    append_bytes(path, LATE + b"{}\n")
    saved = retire_old_file(session, exchanged, ledger=ledger_of_a_begun_move(path))

    assert saved == 0
    assert path.read_bytes() == NEW + LATE + b"{}\n"
    assert directory_names(path) == [NAME]


def ledger_of_a_begun_move(path):
    """Return the ledger of a move of lines that has begun."""
    ledger = Ledger()
    ledger.unfinished_move = path.stat().st_ino
    ledger.identifies = lambda line: b'"id":' in line
    return ledger


NEXT = b'{"id":5}\n'
MORE = b'{"id":6}\n', b'{"id":7}\n'
BEAT = b'{"type":"beat"}\n'


def test_identical_lines_in_both_files_are_both_kept(session, path):
    """A line in the old file and the same line in the new one are two lines if none was moved."""
    exchanged = replace(session)
    append_bytes(path.with_name(TEMPORARY), BEAT)
    append_bytes(path, BEAT)
    retire_old_file(session, exchanged)

    assert path.read_bytes() in (OLD + BEAT * 2, NEW + BEAT * 2)
    assert directory_names(path) == [NAME]


def test_both_files_stay_if_a_line_may_have_been_moved(session, path):
    """After a crash that leaves open whether a line was moved, both files stay."""
    exchanged = replace(session)
    append_bytes(path.with_name(TEMPORARY), BEAT)
    append_bytes(path, BEAT)
    with pytest.raises(StaysError, match="after a crash it is unknown"):
        retire_old_file(session, exchanged, ledger=ledger_of_a_begun_move(path))

    assert path.read_bytes() == NEW + BEAT
    assert path.with_name(TEMPORARY).read_bytes() == OLD + BEAT


@pytest.mark.parametrize("moved", [0, 7, len(LATE), len(LATE) + 3])
def test_interrupted_move_keeps_later_lines_behind_moved_ones(session, path, moved):
    """A move that stopped anywhere, also within a line, is completed before lines written later."""
    exchanged = replace(session)
    late = LATE + b'{"id":4}\n'
    append_bytes(path.with_name(TEMPORARY), late)
    append_bytes(path, late[:moved] + NEXT)
    retire_old_file(session, exchanged, ledger=ledger_of_a_begun_move(path))

    assert path.read_bytes() == OLD + late + NEXT
    assert directory_names(path) == [NAME]


def test_lines_of_the_old_file_come_before_lines_of_the_new_one(session, path):
    """Who writes the old file opened it first, so it gets its name back, with both lines."""
    exchanged = replace(session)
    append_bytes(path, NEXT)
    append_bytes(path.with_name(TEMPORARY), LATE)
    retire_old_file(session, exchanged)

    assert path.read_bytes() == OLD + LATE + NEXT
    assert directory_names(path) == [NAME]


def test_order_is_kept_while_the_old_file_gets_its_name_back(
    session, path, other_process, race, monkeypatch
):
    """The line of an opener that waits for the new file comes before the next opener's."""
    exchanged = replace(session)
    append_bytes(path, NEXT)
    append_bytes(path.with_name(TEMPORARY), LATE)
    exchange_names, steps = FilePair.exchange_names, []
    for line in MORE:
        steps += [f"globals().update(fd=os.open({str(path)!r}, {APPEND}))"]
        steps += [f"os.write(fd, {line!r})", "os.close(fd)"]

    def exchanging(pair):
        other_process.send(*steps)
        wait_until(lambda: not leases.held(race.leased[-2]))
        exchange_names(pair)

    monkeypatch.setattr(FilePair, "exchange_names", exchanging)
    retire_old_file(session, exchanged, patience=20)
    for _ in steps:
        other_process.receive()

    assert path.read_bytes() == OLD + LATE + NEXT + MORE[0] + MORE[1]
    assert directory_names(path) == [NAME]


@pytest.mark.parametrize("follows", [b"", NEXT], ids=["alone", "another line follows"])
def test_half_moved_line_is_removed_only_if_nothing_follows(
    session, path, other_process, monkeypatch, follows
):
    """After a failed move, half a line is removed unless another program's line follows it."""
    exchanged, write = replace(session), retire.write
    append_bytes(path.with_name(TEMPORARY), LATE)
    if follows:
        other_process.evaluate(f"globals().update(fd=os.open({str(path)!r}, {APPEND}))")

    def writing(descriptor, data):
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(NEW) + 7, limits[1]))
        try:
            write(descriptor, data)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
            if follows:
                other_process.evaluate(f"os.write(fd, {follows!r})")

    monkeypatch.setattr(retire, "write", writing)
    with pytest.raises(OSError, match=os.strerror(errno.EFBIG)):
        retire_old_file(session, exchanged)

    assert path.read_bytes() == NEW + (LATE[:7] + follows if follows else b"")
    assert path.with_name(TEMPORARY).read_bytes() == OLD + LATE


@pytest.mark.parametrize("anew", [False, True])
def test_old_file_that_got_its_name_back_loses_no_later_line(path, monkeypatch, anew):
    """Lines appended to both files during the way back are kept with all before."""
    with open_session(discovered(path)) as session:
        exchanged = replace(session)
    append_bytes(path, NEXT)
    old = path.with_name(TEMPORARY)
    if anew:
        old.write_bytes(LATE)
    else:
        append_bytes(old, LATE)
    retiring = retire.retire

    def appending(*arguments, **keywords):
        monkeypatch.setattr(retire, "retire", retiring)
        append_bytes(old, MORE[0])
        append_bytes(path, MORE[1])
        return retiring(*arguments, **keywords)

    monkeypatch.setattr(retire, "retire", appending)
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    pair = FilePair(directory, NAME, TEMPORARY, exchanged.pair.ends, exchanged.fingerprint.inode)
    retiring(pair, deadline=time.monotonic() + 20)
    os.close(directory)
    lines = [line for line in path.read_bytes().splitlines(keepends=True) if line not in OLD]

    assert sorted(lines) == sorted([LATE, NEXT, *MORE])
    assert directory_names(path) == [NAME]


def test_session_deleted_after_the_exchange_stays_deleted(session, path):
    """Removing the old file does not recreate the session, even with a late line."""
    exchanged = replace(session)
    append_bytes(path.with_name(TEMPORARY), LATE)
    path.unlink()
    retire_old_file(session, exchanged)

    assert directory_names(path) == []


def test_removing_the_old_file_twice_is_no_error(path):
    """If the old file is gone, there is nothing to do."""
    with open_session(discovered(path)) as session:
        exchanged = replace(session)
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    pair = FilePair(directory, NAME, TEMPORARY, exchanged.pair.ends)
    saved = [retire.retire(pair, deadline=0) for _ in "12"]
    os.close(directory)

    assert saved == [0, 0]
    assert directory_names(path) == [NAME]
