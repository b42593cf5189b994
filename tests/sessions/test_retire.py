"""The old file goes, after a last look at what came late."""

import os
import time

import pytest

from brainsurgeon.sessions import retire
from brainsurgeon.sessions.late_lines import Ledger, Place, StaysError
from brainsurgeon.sessions.reading import open_session
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
    with pytest.raises(StaysError, match="a crash left it open"):
        settle(session, done, ledger=begun(path))

    assert path.read_bytes() == NEW + BEAT
    assert path.with_name(TEMPORARY).read_bytes() == OLD + BEAT


@pytest.mark.parametrize("rest", [b'{"id":4}\n', b'{"id":4}\n{"id":5}\n'])
def test_a_line_behind_half_a_line_is_freed_of_it(session, path, rest):
    """Killed in the midst of a line, with somebody else's right behind it: both are whole again."""
    done = replace(session)
    append(path.with_name(TEMPORARY), LATE)
    append(path, LATE[:7] + rest)
    settle(session, done, ledger=begun(path))

    assert path.read_bytes() == OLD + LATE + rest
    assert names(path) == [NAME]


def test_lines_between_moved_and_unmoved_ones_are_not_judged(session, path):
    """Where others stand behind some of the lines that were being moved, both files stay."""
    done = replace(session)
    append(path.with_name(TEMPORARY), LATE + b'{"id":4}\n')
    append(path, LATE + b'{"id":5}\n')
    with pytest.raises(StaysError, match="behind some of the last ones"):
        settle(session, done, ledger=begun(path))

    assert path.read_bytes() == NEW + LATE + b'{"id":5}\n'


def test_signs_that_differ_show_nothing(session, path):
    """A line that names a later time, but was written earlier, is not put in either order."""
    done = replace(session)
    append(path.with_name(TEMPORARY), AT.format(1, 30).encode())
    time.sleep(0.02)  # the clock of files is a coarse one
    append(path, AT.format(2, 20).encode())
    with pytest.raises(StaysError, match="first is not known"):
        settle(session, done)

    assert path.with_name(TEMPORARY).exists()


AT = '{{"n":{},"timestamp":"2026-11-01T10:00:{:02d}.000Z"}}\n'


@pytest.mark.parametrize("first", ["old", "new"])
def test_lines_that_say_when_come_in_that_order(session, path, first):
    """Several lines in both files are brought together by the times that they name."""
    done = replace(session)
    early, later = (
        "".join(AT.format(n, second) for n, second in enumerate(range(at, at + 3))).encode()
        for at in (10, 20)
    )
    append(path.with_name(TEMPORARY), early if first == "old" else later)
    append(path, later if first == "old" else early)
    settle(session, done)

    assert path.read_bytes() == (OLD if first == "old" else NEW) + early + later
    assert names(path) == [NAME]


def test_lines_of_which_nothing_says_which_was_first_both_stay(session, path):
    """Nothing is guessed: the old file stays with its lines, and the reason is given."""
    done = replace(session)
    append(path.with_name(TEMPORARY), b'{"n":1}\n{"n":2}\n')
    append(path, b'{"n":3}\n{"n":4}\n')
    with pytest.raises(StaysError, match="first is not known"):
        settle(session, done)

    assert path.read_bytes() == NEW + b'{"n":3}\n{"n":4}\n'
    assert path.with_name(TEMPORARY).read_bytes() == OLD + b'{"n":1}\n{"n":2}\n'


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
    place = Place(directory, NAME, TEMPORARY)
    saved = [retire.retire(place, ends=done.ends, deadline=0) for _ in "12"]
    os.close(directory)

    assert saved == [0, 0]
    assert names(path) == [NAME]
