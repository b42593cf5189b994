"""Whether an OpenClaw agent has moved its sessions into its database."""

import os
import sqlite3
from contextlib import closing

import pytest

from brainsurgeon.agents import OPENCLAW
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

    def write(self, content):
        with open(self.database, "wb") as handle:
            handle.write(content)

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
        answer = OPENCLAW.home.superseded(self.path)
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


@pytest.mark.parametrize("killed", [False, True])
def test_wal_rows_of_a_gateway_count(home, gateway, killed):
    """Rows in the log of a running or killed gateway are seen, and the log stays as it is."""
    if killed:
        gateway.kill()

    assert home.migrated()


def test_wal_without_its_index_counts_as_migrated(home, gateway):
    """A log without its index counts as migrated, and no index is created."""
    gateway.kill()
    os.unlink(home.database + "-shm")

    assert home.migrated()


UNREADABLE = {
    "garbage": lambda home: home.write(b"garbage" * 1000),
    "damaged": lambda home: home.write(b"SQLite format 3\0" + b"\xff" * 4000),
    "a header alone": lambda home: home.write(b"SQLite format 3\0"),
    "truncated": lambda home: (home.make(EVENTS, *[ROW] * 50), os.truncate(home.database, 4096)),
    "a directory": lambda home: os.mkdir(home.database),
    "a broken link": lambda home: os.symlink(home.database + ".gone", home.database),
    "a pipe": lambda home: os.mkfifo(home.database),
}


@pytest.mark.parametrize("case", UNREADABLE)
def test_unreadable_database_counts_as_migrated(home, case):
    """Nothing may be written beside a database of unknown contents, and a pipe does not block."""
    UNREADABLE[case](home)

    assert home.migrated()


def test_empty_database_file_is_not_migrated(home):
    """A database that was just created has no transcripts."""
    home.write(b"")

    assert not home.migrated()
