"""The database of an agent: who has moved."""

import os
import sqlite3
from contextlib import closing

import pytest

from brainsurgeon.hosts import openclaw
from building.processes import OtherProcess


@pytest.fixture(params=["plain", "o%20dd?mode=rw#x\n\udcff'\""])
def home(tmp_path, request):
    """Give an agent's directory, also of an odd name."""
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

    def beside(self):
        """Take down the database and everything beside it, bytes and all."""
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
        before = self.beside()
        answer = openclaw.migrated(self.path)
        assert self.beside() == before
        return answer


EVENTS = "CREATE TABLE transcript_events (id INTEGER PRIMARY KEY, event TEXT)"
ROW = "INSERT INTO transcript_events (event) VALUES ('{}')"
OTHER = "CREATE TABLE other (id)"


def test_without_a_database_an_agent_is_not_migrated(home):
    """An agent without the database keeps its sessions in files."""
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
def test_a_database_with_transcripts_makes_an_agent_migrated(home, wal, statements, expected):
    """Rows in the table of transcripts tell, in either journal mode, and asking leaves no trace."""
    home.make(*statements, wal=wal)

    assert home.migrated() is expected


@pytest.fixture
def gateway(home):
    """Give a running gateway whose rows stand in the write-ahead log alone."""
    home.make(EVENTS, wal=True)
    one = OtherProcess(
        "globals().update(sqlite3=__import__('sqlite3'))",
        f"globals().update(db=sqlite3.connect({home.database!r}, isolation_level=None))",
        "str(db.execute('PRAGMA wal_autocheckpoint = 0'))",
        f"str(db.execute({ROW!r}))",
    )
    yield one
    one.kill()


def test_rows_in_the_write_ahead_log_of_a_running_gateway_count(home, gateway):
    """What the gateway wrote and has not moved into the database yet is seen."""
    assert home.migrated()


def test_rows_in_the_write_ahead_log_of_a_killed_gateway_count(home, gateway):
    """The log that a killed gateway left behind is read, and neither removed nor moved."""
    gateway.kill()

    assert home.migrated()


def test_a_write_ahead_log_without_its_index_gets_none_from_us(home, gateway):
    """Where the log's index is missing none is made; what cannot be told counts as migrated."""
    gateway.kill()
    os.unlink(home.database + "-shm")

    assert home.migrated()


@pytest.mark.parametrize(
    "content", [b"garbage" * 1000, b"SQLite format 3\0" + b"\xff" * 4000, b"SQLite format 3\0"]
)
def test_a_database_that_cannot_be_read_counts_as_migrated(home, content):
    """In doubt nothing is written beside a database that nobody understands."""
    with open(home.database, "wb") as handle:
        handle.write(content)

    assert home.migrated()


def test_a_truncated_database_counts_as_migrated(home):
    """A database that lacks its end is not taken for an empty one."""
    home.make(EVENTS, *[ROW] * 50)
    os.truncate(home.database, 4096)

    assert home.migrated()


@pytest.mark.parametrize("kind", ["directory", "broken link", "pipe"])
def test_what_is_no_database_counts_as_migrated(home, kind):
    """Something else under the database's name is a doubt, too, and nobody waits for it."""
    if kind == "directory":
        os.mkdir(home.database)
    elif kind == "pipe":
        os.mkfifo(home.database)
    else:
        os.symlink(home.database + ".gone", home.database)

    assert home.migrated()


def test_an_empty_file_is_no_transcript(home):
    """A database that was only just created holds nothing."""
    with open(home.database, "wb"):
        pass

    assert not home.migrated()
