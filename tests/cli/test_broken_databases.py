"""Whatever an agent's database does, every command goes on and names that database."""

import os
import shutil
import sqlite3
from contextlib import closing

import pytest

from building.claw import Claw
from building.processes import bound
from building.world import LONG_AGO

COMMANDS = (
    ("scan", "--once"), ("scan", "--once", "--dry-run"), ("status",), ("status", "--check"),
    ("doctor",), ("doctor", "--repair"), ("sessions",), ("sessions", "main/s"),
    ("status", "--format", "html"),
    ("status", "--format", "prometheus"), ("show", "--search", "xxx"),
    ("scan", "--retention"), ("history", "--events"), ("restore", "--all"),
    ("store", "purge", "--yes"),
)  # fmt: skip


def undecodable_schema(path):
    """Put a byte that is no UTF-8 into the text of the schema."""
    data = bytearray(path.read_bytes())
    data[data.find(b"CREATE TABLE") + 3] = 0xFF
    path.write_bytes(data)


def undecodable_value(path):
    """Put a byte that is no UTF-8 into a session's key."""
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA foreign_keys = OFF")
        database.execute("UPDATE session_windows SET session_key = CAST(x'61ff62' AS TEXT)")
        database.commit()


def corrupt(path):
    """Overwrite every page but the first."""
    with open(path, "r+b") as file:
        file.seek(4096)
        file.write(b"\xa5" * (os.path.getsize(path) - 4096))


def cut_off(path):
    os.truncate(path, 1000)


def no_database(path):
    path.write_bytes(b"not a database" * 1000)


def directory(path):
    path.unlink()
    path.mkdir()


def pipe(path):
    path.unlink()
    os.mkfifo(path)


def other_schema(path):
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA legacy_alter_table = ON")
        database.execute("ALTER TABLE transcript_events RENAME TO another_name")
        database.commit()


FAULTS = (
    undecodable_schema, undecodable_value, corrupt, cut_off, no_database, directory, pipe,
    other_schema,
)  # fmt: skip


@pytest.fixture
def broken(world, conversation):
    """Let a session in a file stand beside another agent, whose database is broken."""

    def broken(fault):
        claw = Claw(world.base / "claw", agent="other")
        shutil.move(claw.root / "other", world.root / "other")
        path = world.root / "other" / "agent" / "openclaw-agent.sqlite"
        fault(path)
        conversation.turn("x" * 3000)
        conversation.turn("short")
        world.put("s.jsonl", conversation.bytes(), age=LONG_AGO)
        return path

    return broken


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_a_broken_database_stops_no_command(world, broken, fault):
    """Each command ends in its own way, without a bug of ours; the other session is pruned."""
    path = broken(fault)
    cli = bound(world, keep_recent=0)
    for words in COMMANDS:
        done = cli(*words)
        printed = (done.stdout + done.stderr).decode()
        assert done.returncode in (0, 1), (words, done.returncode, printed)
        assert "unexpected" not in printed, (words, printed)
        if words == ("scan", "--once"):
            assert b"[[extracted-" in (world.directory / "s.jsonl").read_bytes()
        if words in {("status",), ("doctor",)}:
            assert str(path) in printed, (words, printed)
        if words == ("restore", "--all"):
            assert b"[[extracted-" not in (world.directory / "s.jsonl").read_bytes()


def test_a_database_without_tables_for_sessions_is_no_problem(world, broken):
    """`openclaw doctor` of 2026.7 makes one: no command names it, and all end with 0."""

    def without_sessions(path):
        path.unlink()
        with closing(sqlite3.connect(path)) as database:
            database.execute("CREATE TABLE schema_meta (meta_key TEXT, role TEXT)")
            database.execute("CREATE TABLE auth_profiles (id TEXT PRIMARY KEY)")

    path = broken(without_sessions)
    cli = bound(world, keep_recent=0)
    for words in COMMANDS:
        done = cli(*words)
        printed = (done.stdout + done.stderr).decode()
        assert (done.returncode, str(path) in printed) == (0, False), (words, printed)
