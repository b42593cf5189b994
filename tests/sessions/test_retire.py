"""The old file goes, after a last look at what came late."""

import os

import pytest

from brainsurgeon.sessions import retire
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
    """Who reaches the old file only after the leases were dropped has its line moved over too."""
    done = replace(session)
    puppet.ask(f"globals().update(fd=os.open({str(path.with_name(TEMPORARY))!r}, {APPEND}))")
    puppet.ask(f"os.write(fd, {LATE!r})")
    append(path, b"{}\n")
    with pytest.raises(retire.StillOpenError):
        settle(session, done, patience=0.05)
    kept = path.with_name(TEMPORARY).read_bytes()
    puppet.ask("os.close(fd)")
    saved = settle(session, done)

    assert kept == OLD + LATE
    assert saved == len(LATE)
    assert path.read_bytes() == NEW + b"{}\n" + LATE
    assert names(path) == [NAME]


def test_bytes_that_were_moved_over_already_are_not_moved_twice(session, path):
    """Settling that was stopped between moving and removing may be done again."""
    done = replace(session)
    append(path.with_name(TEMPORARY), LATE)
    append(path, LATE + b"{}\n")
    saved = settle(session, done)

    assert saved == 0
    assert path.read_bytes() == NEW + LATE + b"{}\n"


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
    saved = [retire.retire(directory, NAME, TEMPORARY, ends=done.ends, deadline=0) for _ in "12"]
    os.close(directory)

    assert saved == [0, 0]
    assert names(path) == [NAME]
