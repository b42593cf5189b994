"""Whether an OpenClaw agent has moved its sessions into its database."""

import os
import sqlite3
from contextlib import closing

import pytest

from brainsurgeon.hosts import openclaw
from building.processes import OtherProcess


@pytest.fixture(params=["plain", "o%20dd?mode=rw#x\n\udcff'\""])
def home(tmp_path, request):
    """Return an agent's directory, with a plain and an unusual name."""
    path = os.path.join(tmp_path, request.param)
    os.makedirs(os.path.join(path, "agent"))
    return Home(path)


class Home:
    """An agent's own directory, with its database."""

    def __init__(self, path):
        self.path = path
        self.database = os.path.join(path, "agent", "openclaw-agent.sqlite")

    def make(self, *statements, wal=False):
        with closing(sqlite3.connect(self.database)) as connection, connection:
            connection.execute(f"PRAGMA journal_mode = {'WAL' if wal else 'DELETE'}")
            for statement in statements:
                connection.execute(statement)

    def files(self):
        """Return the contents of the database and of the files beside it."""
        state = {}
        for name in os.listdir(os.path.dirname(self.database)):
            path = os.path.join(os.path.dirname(self.database), name)
            if not name.endswith("-shm") and os.path.isfile(path):
                with open(path, "rb") as handle:
                    state[name] = handle.read()
            else:
                state[name] = None
        return state

    def migrated(self):
        before = self.files()
        answer = openclaw.migrated(self.path)
        assert self.files() == before
        return answer


EVENTS = "CREATE TABLE transcript_events (id INTEGER PRIMARY KEY, event TEXT)"
ROW = "INSERT INTO transcript_events (event) VALUES ('{}')"
OTHER = "CREATE TABLE other (id)"


def test_agent_without_a_database_is_not_migrated(home):
    """An agent without a database has its sessions in files."""
    assert not home.migrated()


@pytest.mark.parametrize("wal", [False, True])
@pytest.mark.parametrize(
    ("statements", "expected"),
    [
        ([EVENTS, ROW], True),
        ([EVENTS], False),
        ([OTHER], False),
        (["CREATE VIEW transcript_events AS SELECT 1"], True),  # unknown: nothing is written
    ],
)
def test_agent_with_transcript_rows_is_migrated(home, wal, statements, expected):
    """Rows of transcripts are found in either journal mode, and the check changes no file."""
    home.make(*statements, wal=wal)

    assert home.migrated() is expected


@pytest.fixture
def gateway(home):
    """Return a running gateway whose rows are only in the write-ahead log."""
    home.make(EVENTS, wal=True)
    other = OtherProcess(
        "globals().update(sqlite3=__import__('sqlite3'))",
        f"globals().update(db=sqlite3.connect({home.database!r}, isolation_level=None))",
        "str(db.execute('PRAGMA wal_autocheckpoint = 0'))",
        f"str(db.execute({ROW!r}))",
    )
    yield other
    other.kill()


def test_wal_rows_of_a_running_gateway_count(home, gateway):
    """Rows that are not yet in the database file are seen."""
    assert home.migrated()


def test_wal_rows_of_a_killed_gateway_count(home, gateway):
    """The log is read, and neither removed nor checkpointed."""
    gateway.kill()

    assert home.migrated()


def test_wal_without_its_index_counts_as_migrated(home, gateway):
    """A log without its index counts as migrated, and no index is created."""
    gateway.kill()
    os.unlink(home.database + "-shm")

    assert home.migrated()


@pytest.mark.parametrize(
    "content", [b"garbage" * 1000, b"SQLite format 3\0" + b"\xff" * 4000, b"SQLite format 3\0"]
)
def test_unreadable_database_counts_as_migrated(home, content):
    """A database of unknown contents counts as migrated, so that nothing is written beside it."""
    with open(home.database, "wb") as handle:
        handle.write(content)

    assert home.migrated()


def test_truncated_database_counts_as_migrated(home):
    """A truncated database is not taken for an empty one."""
    home.make(EVENTS, *[ROW] * 50)
    os.truncate(home.database, 4096)

    assert home.migrated()


@pytest.mark.parametrize("kind", ["directory", "broken link", "pipe"])
def test_other_file_in_place_of_the_database_counts_as_migrated(home, kind):
    """A directory, broken link or pipe counts as migrated, and the check does not block."""
    if kind == "directory":
        os.mkdir(home.database)
    elif kind == "pipe":
        os.mkfifo(home.database)
    else:
        os.symlink(home.database + ".gone", home.database)

    assert home.migrated()


def test_empty_database_file_is_not_migrated(home):
    """A database that was just created has no transcripts."""
    with open(home.database, "wb"):
        pass

    assert not home.migrated()
