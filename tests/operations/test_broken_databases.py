"""Damaged databases of an agent: every command names them and handles all other sessions."""

import os
import sqlite3
import subprocess
import sys
from contextlib import closing, suppress

import pytest

from brainsurgeon.errors import BusyError
from brainsurgeon.model.reports import Watch
from brainsurgeon.operations.doctor import doctor
from brainsurgeon.operations.restore import restore_all
from brainsurgeon.operations.scan import scan
from brainsurgeon.operations.sessions import sessions as list_sessions
from brainsurgeon.operations.show import cat
from brainsurgeon.operations.status import describe_databases
from brainsurgeon.store import database
from brainsurgeon.store.database import PAGE
from building import claw_agent
from building.claw import DAY_BEFORE, GATEWAY, Claw, ClawWorld, plain_connection
from building.database_pages import leaf_pages
from building.processes import program_for
from building.world import Conversation, World

UNREADABLE = "it cannot be read (SQLITE_CORRUPT)"
SCHEMA = "UPDATE sqlite_master SET sql = CAST(replace(sql, ?, ?) AS TEXT) WHERE name = ?"


def edit(path, statement, values=()):
    with closing(plain_connection(path)) as connection:
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute("PRAGMA ignore_check_constraints = ON")
        assert connection.execute(statement, values).rowcount
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def undecodable_keyword(path):
    """Put a byte 0xff where SQLite expects a word, so that its own message quotes the byte."""
    edit(path, SCHEMA, ("CREATE TABLE", b"CREATE TAB\xffE", "board_tabs"))


def undecodable_name(path):
    """Put a byte 0xff into the name of a column, which SQLite accepts."""
    edit(path, SCHEMA, ("updated_at", b"updated_\xff", "transcript_rewrite_watermarks"))


def undecodable_value(path):
    """Put a byte 0xff into the descriptions of the sessions."""
    edit(path, "UPDATE session_windows SET model = CAST(X'61ff' AS TEXT),"
               " agent_harness_id = CAST(X'61ff' AS TEXT)")  # fmt: skip


def corrupt_page(path):
    """Overwrite the first page of each table of events."""
    with closing(sqlite3.connect(path)) as connection:
        size = connection.execute("PRAGMA page_size").fetchone()[0]
        query = "SELECT rootpage FROM sqlite_master WHERE tbl_name IN (?, ?) AND rootpage > 0"
        pages = connection.execute(query, ("transcript_events", "session_windows")).fetchall()
    with open(path, "r+b") as handle:
        for (page,) in pages:
            handle.seek((page - 1) * size)
            handle.write(b"\xff" * size)


def cut_off(path):
    os.truncate(path, 1000)


def no_database(path):
    path.write_bytes(b"\xff" * 5000)


def other_schema(path):
    edit(path, "ALTER TABLE session_windows RENAME COLUMN session_key TO novelty")


def other_types(path):
    """Replace the known tables by tables with other column types."""
    with closing(plain_connection(path)) as connection:
        connection.execute("PRAGMA foreign_keys = OFF")
        connection.execute("PRAGMA legacy_alter_table = ON")
        for table in ("session_windows", "transcript_events"):
            connection.execute(f"CREATE TABLE copied AS SELECT * FROM {table}")
            connection.execute(f"DROP TABLE {table}")
            connection.execute(f"ALTER TABLE copied RENAME TO {table}")
        connection.execute("UPDATE session_windows SET updated_at = X'ff', status = 5")
        connection.execute(
            "INSERT INTO session_windows (session_id, session_key) VALUES (X'ff', 7)"
        )


def directory(path):
    path.unlink()
    path.mkdir()


def pipe(path):
    """Replace it by a pipe: to open that would wait for a writer."""
    path.unlink()
    os.mkfifo(path)


def missing(path):
    path.unlink()


def locked(path):
    """Return a process that keeps the database locked."""
    code = (
        "import sqlite3, sys; c = sqlite3.connect(sys.argv[1], isolation_level=None);"
        " c.execute('PRAGMA locking_mode = EXCLUSIVE');"
        " c.execute('UPDATE schema_meta SET updated_at = updated_at + 1');"
        " print(flush=True); sys.stdin.read()"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", code, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert holder.stdout.readline()
    return holder


FAULTS = (
    undecodable_keyword, undecodable_name, undecodable_value, corrupt_page, cut_off, no_database,
    other_schema, other_types, directory, pipe, missing, locked,
)  # fmt: skip
READ_ONLY = {other_schema, other_types}  # an unknown layout is read, which is no failure
SESSION = "odd/00000000-0000-4000-8000-000000000001"
# The commands in order, each with its exit code, its exit code for a layout that is only read (None
# if 0 and 1 are right), and whether its output names the database.
COMMANDS = {
    ("status",): (0, 0, True),
    ("doctor",): (1, 0, True),
    ("status", "--format", "html"): (0, 0, True),
    ("sessions",): (0, 0, True),
    ("sessions", SESSION): (0, 0, True),
    ("sessions", "files/s"): (0, 0, False),
    ("show", "--search", "results"): (0, 0, False),
    ("status", "--format", "prometheus"): (0, 0, False),
    ("scan", "--retention"): (0, 0, True),
    ("scan", "--once", "--dry-run"): (1, 0, True),
    ("scan", "--once"): (1, 0, True),
    ("status", "--check"): (1, None, True),
    # Where the layout prevents a search for placeholders, nothing expires: that is an error.
    ("doctor", "--repair"): (1, None, True),
    ("history", "--events"): (0, 0, False),
    ("restore", "--all"): (1, 1, True),
    ("store", "purge", "--yes"): (1, None, False),
}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_a_damaged_database_is_named_and_stops_no_command(world, fault):
    """Each command names the damaged database and handles every other session."""
    world.state = world.base / "ours"
    path = Claw(world.base, agent="odd").path
    Claw(world.base)
    conversation = Conversation("s")
    for number in range(3):
        conversation.turn(f"{number} " + "x" * 2000)
    world.directory = world.root / "files" / "sessions"
    world.put("s.jsonl", conversation.bytes())
    call = program_for(world)
    assert call("scan", "--once").returncode == 0
    assert call("scan", "--retention").returncode == 0
    world.put("t.jsonl", conversation.bytes())
    holder = fault(path)
    for command, (code, read_only, names_database) in COMMANDS.items():
        result = call(*command)
        output = (result.stdout + result.stderr).decode()
        if "html" in command:
            output += (world.state / "report.html").read_text()

        assert "unexpected" not in output, command
        assert "Errno" not in output, command
        expected = read_only if fault in READ_ONLY else code
        if fault is missing:  # its sessions are gone with it
            expected = 0
        assert result.returncode in ({0, 1} if expected is None else {expected}), command
        if names_database and fault not in (missing, other_types):  # the latter: sessions are named
            assert str(path) in output, command
        if command[0] == "status" and "html" not in command:
            assert f"database of odd {path}" not in output or "left alone" in output, command
        if command == ("scan", "--once"):
            assert "files/t: " in output
        if command[0] == "restore":
            assert "files/s: restored" in output
            assert "main/00000000-0000-4000-8000-000000000001: restored" in output
    if holder:
        holder.communicate()


def test_a_database_without_session_tables_is_ignored(tmp_path):
    """`openclaw doctor` of 2026.7 makes one: no command names it, and all exit 0."""
    world = World(tmp_path)
    world.state = world.base / "ours"
    path = Claw(world.base, agent="odd").path
    path.unlink()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE schema_meta (meta_key TEXT, role TEXT)")
        connection.execute("CREATE TABLE auth_profiles (id TEXT PRIMARY KEY)")
    conversation = Conversation("s")
    conversation.turn()
    world.put("s.jsonl", conversation.bytes())
    call = program_for(world, keep_recent=0)
    for command in [("scan", "--once"), *COMMANDS]:
        result = call(
            *(word.replace(SESSION, "main/s").replace("files/s", "s") for word in command)
        )
        output = (result.stdout + result.stderr).decode()
        assert (result.returncode, str(path) in output) == (0, False), (command, output)


@pytest.mark.parametrize("locked_for", ["scan", "restore"])
def test_a_locked_store_fails_one_session_of_a_run(world, monkeypatch, locked_for):
    """While another process locks the store one or two sessions fail, and the run goes on."""
    monkeypatch.setattr(database, "STORE_LOCK_SECONDS", 0.1)
    for name in ("a", "b", "c"):
        conversation = Conversation(name)
        for number in range(3):
            conversation.turn(f"{name}{number} " + "x" * 2000)
        world.put(f"{name}.jsonl", conversation.bytes())
    if locked_for == "restore":
        world.scan()
    path = world.store.directory + "/store.db"
    other = sqlite3.connect(path, isolation_level=None)
    visited = []

    def progress(file):
        visited.append(file.session)
        if len(visited) == 2:
            other.execute("BEGIN EXCLUSIVE")

    def unlock(error, *words):
        if other.in_transaction:
            other.execute("ROLLBACK")
        error.args = words

    monkeypatch.setattr(BusyError, "__init__", unlock)
    with closing(other):
        if locked_for == "scan":
            report = scan(world.settings(), world.store, watch=Watch(progress))
            results = [(outcome.outcome, outcome.reason) for outcome in report.sessions]
        else:
            answers = restore_all(
                world.settings(), world.store, clock=world.clock, watch=Watch(progress)
            )
            results = [(outcome.state, outcome.reason) for outcome in answers]
    states, reasons = zip(*results, strict=True)

    assert len(states) == 3
    assert states.count("changed" if locked_for == "scan" else "restored") >= 1
    assert 1 <= sum("writing to the store" in reason for reason in reasons) <= 2


def readable_sessions(path):
    """Return the sessions of a database whose events SQLite can read."""
    readable = set()
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        for (session,) in connection.execute("SELECT session_id FROM session_windows").fetchall():
            query = "SELECT * FROM transcript_events WHERE session_id = ?"
            with suppress(sqlite3.DatabaseError):
                if connection.execute(query, (session,)).fetchall():
                    readable.add(session)
    return readable


def damage_one_session(path, table="transcript_events"):
    """Zero a leaf page that only one session needs; return that session."""
    every, whole = readable_sessions(path), path.read_bytes()
    for page in leaf_pages(path, table):
        with open(path, "r+b") as handle:
            handle.seek((page - 1) * PAGE)
            handle.write(bytes(PAGE))
        lost = every - readable_sessions(path)
        if len(lost) == 1:
            return lost.pop()
        path.write_bytes(whole)
    raise AssertionError("no leaf page is needed by only one session")


@pytest.mark.parametrize("pruned", [False, True], ids=["before a scan", "after a scan"])
def test_a_damaged_leaf_hides_only_its_session(tmp_path, pruned):
    """Every other session of the database is listed, read, pruned and restored to the byte."""
    world = ClawWorld(tmp_path)
    sessions = sorted(readable_sessions(world.claw.path))
    before = {session: world.claw.events(session) for session in sessions}
    if pruned:
        world.scan(keep_recent=0)
    lost = damage_one_session(world.claw.path)
    path = f"{world.claw.path}/{lost}"
    report = world.scan(keep_recent=0)
    outcomes = {one.session: (one.outcome, one.reason) for one in report.sessions}
    shown = {
        session: b"".join(cat(world.settings(), world.store, session, world.clock()))
        for session in sessions if session != lost
    }  # fmt: skip
    listed = {one.session for one in list_sessions(world.settings(), world.store, world.clock())}
    findings = [one for one in doctor(world.settings(), world.store) if path in one.what]
    placeholders = {session: world.placeholders(session) for session in shown}
    again = world.scan(keep_recent=0)
    answers = {one.session: one for one in world.restore_all(pristine=True)}

    assert not report.unreadable
    assert (report.sessions_changed == 0) == pruned
    assert outcomes[f"main/{lost}"] == ("failed", "its database cannot be read (SQLITE_CORRUPT)")
    assert sum(bool(ids) for ids in placeholders.values()) > 2
    assert again.sessions_changed == 0
    assert listed >= {f"main/{session}" for session in sessions}
    assert [(one.level, one.what.partition(": ")[2]) for one in findings] == [
        ("error", "its database cannot be read (SQLITE_CORRUPT)")
    ]
    assert answers[f"main/{lost}"].state == "failed"
    assert "SQLITE_CORRUPT" in answers[f"main/{lost}"].reason
    for session, text in shown.items():
        assert text == b"".join(event + b"\n" for _, event in before[session])
        assert world.claw.events(session) == before[session]


@pytest.mark.parametrize("table", ["sqlite_autoindex_transcript_events_1", "session_windows"])
def test_a_damaged_page_of_an_index_hides_no_other_session(tmp_path, table):
    """A session whose own record cannot be read is a problem, and the others are scanned."""
    world = ClawWorld(tmp_path)
    with claw_agent.transaction(world.claw.path) as agent:
        events = claw_agent.texts(agent, GATEWAY)[:3]
        for number in range(60):
            claw_agent.begin_session(agent, GATEWAY, f"more-{number}", DAY_BEFORE)
            for _, text in events:
                claw_agent.append(agent, f"more-{number}", text, DAY_BEFORE)
    sessions = readable_sessions(world.claw.path)
    page = leaf_pages(world.claw.path, table)[-1]
    with open(world.claw.path, "r+b") as handle:
        handle.seek((page - 1) * PAGE)
        handle.write(bytes(PAGE))
    report = world.scan(keep_recent=0)
    lost = {os.path.basename(one.path) for one in report.unreadable}
    lines = [one.what for one in doctor(world.settings(), world.store) if one.level == "error"]

    assert len(sessions) > 60
    assert 0 < len(lost) < len(sessions)
    assert {one.reason for one in report.unreadable} == {UNREADABLE}
    assert {f"{world.claw.path}/{session}: {UNREADABLE}" for session in lost} <= set(lines)
    assert report.files_seen == len(sessions) - len(lost)
    assert report.files_failed == 0
    assert report.sessions_changed > 0


def test_the_status_names_the_agent_whose_database_is_no_file(tmp_path):
    """What is at its place may be a directory or a link: its agent is known by the place."""
    world = ClawWorld(tmp_path)
    for name, place in ("a", "directory"), ("b", "link"):
        above = world.root / name / "agent"
        above.mkdir(parents=True)
        if place == "directory":
            (above / "openclaw-agent.sqlite").mkdir()
        else:
            (above / "openclaw-agent.sqlite").symlink_to(world.claw.path)

    databases = describe_databases(world.settings())

    assert {one.agent: one.left_alone for one in databases} == {
        "a": "not a plain file", "b": "not a plain file", "main": None,
    }  # fmt: skip
    world.close()
