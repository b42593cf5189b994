"""The old file goes, after a last look at what came late."""

import os
import time

import pytest

from brainsurgeon.sessions import leases, retire
from brainsurgeon.sessions.reading import open_session
from brainsurgeon.sessions.retire import FilePair, Ledger, StaysError
from building.exchange import (
    APPEND,
    LATE,
    NAME,
    NEW,
    OLD,
    TEMPORARY,
    append,
    found_at,
    names,
    replace,
    settle,
)
from building.processes import wait_until


def test_bytes_after_the_leases_are_found_by_the_last_look(session, path, puppet):
    """Who reaches the old file after the leases were dropped keeps its line, in its order.

    It was written before the one in the new file, so that the old file gets its name back.
    """
    done = replace(session)
    puppet.ask(f"globals().update(fd=os.open({str(path.with_name(TEMPORARY))!r}, {APPEND}))")
    puppet.ask(f"os.write(fd, {LATE!r})")
    time.sleep(0.02)  # the clock of files is a coarse one
    append(path, b"{}\n")
    with pytest.raises(StaysError):
        settle(session, done, patience=0.05)
    kept = path.with_name(TEMPORARY).read_bytes()
    puppet.ask("os.close(fd)")
    saved = settle(session, done)

    assert kept == OLD + LATE
    assert saved == 3
    assert path.read_bytes() == OLD + LATE + b"{}\n"
    assert names(path) == [NAME]


def test_bytes_that_were_moved_over_already_are_not_moved_twice(session, path):
    """Settling that was stopped between moving and removing may be done again."""
    done = replace(session)
    append(path.with_name(TEMPORARY), LATE)
    append(path, LATE + b"{}\n")
    saved = settle(session, done, ledger=begun(path))

    assert saved == 0
    assert path.read_bytes() == NEW + LATE + b"{}\n"
    assert names(path) == [NAME]


def begun(path):
    """Give a ledger in which it stands that lines were being moved to a file."""
    ledger = Ledger()
    ledger.begun = path.stat().st_ino
    return ledger


NEXT = b'{"id":5}\n'
MORE = b'{"id":6}\n', b'{"id":7}\n'
BEAT = b'{"type":"beat"}\n'


def test_identical_lines_are_two_lines(session, path):
    """A line in the old file and the same in the new one are both kept: nothing had been moved."""
    done = replace(session)
    append(path.with_name(TEMPORARY), BEAT)
    append(path, BEAT)
    settle(session, done)

    assert path.read_bytes() in (OLD + BEAT * 2, NEW + BEAT * 2)
    assert names(path) == [NAME]


def test_identical_lines_that_may_have_been_moved_both_stay(session, path):
    """Where a crash leaves it open whether the line is the other's, nothing is guessed."""
    done = replace(session)
    append(path.with_name(TEMPORARY), BEAT)
    append(path, BEAT)
    with pytest.raises(StaysError, match="after a crash it is unknown"):
        settle(session, done, ledger=begun(path))

    assert path.read_bytes() == NEW + BEAT
    assert path.with_name(TEMPORARY).read_bytes() == OLD + BEAT


@pytest.mark.parametrize("done", [0, 7, len(LATE), len(LATE) + 3])
def test_lines_behind_some_that_were_moved_come_after_all_of_them(session, path, done):
    """Where a crash stopped the moving, also within a line, and others wrote behind it."""
    done_before = replace(session)
    late = LATE + b'{"id":4}\n'
    append(path.with_name(TEMPORARY), late)
    append(path, late[:done] + NEXT)
    settle(session, done_before, ledger=begun(path))

    assert path.read_bytes() == OLD + late + NEXT
    assert names(path) == [NAME]


def test_lines_in_both_files_come_in_the_order_of_the_files(session, path):
    """Whoever writes the old file had opened it earlier: it gets its name back, and its lines."""
    done = replace(session)
    append(path, NEXT)
    append(path.with_name(TEMPORARY), LATE)
    settle(session, done)

    assert path.read_bytes() == OLD + LATE + NEXT
    assert names(path) == [NAME]


def test_lines_keep_their_order_while_the_old_file_gets_its_name_back(
    session, path, puppet, race, monkeypatch
):
    """Who waits to open the new file meanwhile has its line moved before anybody's next one."""
    done = replace(session)
    append(path, NEXT)
    append(path.with_name(TEMPORARY), LATE)
    exchange_names, steps = FilePair.exchange_names, []
    for line in MORE:
        steps += [f"globals().update(fd=os.open({str(path)!r}, {APPEND}))"]
        steps += [f"os.write(fd, {line!r})", "os.close(fd)"]

    def exchanging(pair):
        puppet.say(*steps)
        wait_until(lambda: not leases.held(race.leased[-2]))
        exchange_names(pair)

    monkeypatch.setattr(FilePair, "exchange_names", exchanging)
    settle(session, done, patience=20)
    for _ in steps:
        puppet.hear()

    assert path.read_bytes() == OLD + LATE + NEXT + MORE[0] + MORE[1]
    assert names(path) == [NAME]


@pytest.mark.parametrize("anew", [False, True])
def test_a_file_that_got_its_name_back_keeps_it(path, monkeypatch, anew):
    """Lines that come still later, in both files, cost none of those that came before."""
    with open_session(found_at(path)) as session:
        done = replace(session)
    append(path, NEXT)
    old = path.with_name(TEMPORARY)
    if anew:
        old.write_bytes(LATE)
    else:
        append(old, LATE)
    retiring = retire.retire

    def appending(*arguments, **keywords):
        monkeypatch.setattr(retire, "retire", retiring)
        append(old, MORE[0])
        append(path, MORE[1])
        return retiring(*arguments, **keywords)

    monkeypatch.setattr(retire, "retire", appending)
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    pair = FilePair(directory, NAME, TEMPORARY, done.pair.ends, done.fingerprint.inode)
    retiring(pair, deadline=time.monotonic() + 20)
    os.close(directory)
    kept = [line for line in path.read_bytes().splitlines(keepends=True) if line not in OLD]

    assert sorted(kept) == sorted([LATE, NEXT, *MORE])
    assert names(path) == [NAME]


def test_a_session_deleted_after_the_exchange_stays_deleted(session, path):
    """The last look removes the old file and brings nothing back."""
    done = replace(session)
    append(path.with_name(TEMPORARY), LATE)
    path.unlink()
    settle(session, done)

    assert names(path) == []


def test_settling_twice_is_no_error(path):
    """Where the old file is gone already there is nothing to do."""
    with open_session(found_at(path)) as session:
        done = replace(session)
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    pair = FilePair(directory, NAME, TEMPORARY, done.pair.ends)
    saved = [retire.retire(pair, deadline=0) for _ in "12"]
    os.close(directory)

    assert saved == [0, 0]
    assert names(path) == [NAME]
