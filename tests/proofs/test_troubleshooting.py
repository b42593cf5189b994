"""The table of troubles: each symptom is provoked, and its advice followed until well."""

import json
import re
import sqlite3
import subprocess
import sys
from contextlib import closing

import pytest

from brainsurgeon.operations.retention import retention
from brainsurgeon.operations.scan import scan
from brainsurgeon.operations.status import status
from brainsurgeon.sessions import leases
from brainsurgeon.store.database import PAGE, hold_store
from building.claude import ClaudeConversation
from building.claw import Claw
from building.processes import is_extracted, program_for, run, write_idle_session
from building.world import TOP, Clock, Conversation

TABLE = re.search(
    r"\n## What you see.*?\n(.*?)\n## ",
    (TOP / "deploy" / "docs" / "troubleshooting.md").read_text(),
    re.DOTALL,
)[1]  # fmt: skip
ROWS = [tuple(row) for row in re.findall(r"^\| (.*?) \| (.*) \|$", TABLE, re.MULTILINE)][2:]
PROVEN = set()
TOO_LONG = ("prompt is too long: 9999 tokens > 6000 maximum", "context_length_exceeded")
WITHOUT_THE_EXTRA = """
import runpy, sys
sys.modules["mcp"] = None
runpy.run_module("brainsurgeon", run_name="__main__")
"""


@pytest.fixture
def cli(world):
    return program_for(world)


def row(symptom):
    """Say which row of the table a test proves: the one whose symptom says this."""
    [found] = [one for one in ROWS if symptom in one[0]]

    def noted(test):
        PROVEN.add(found)
        return test

    return noted


def advice(symptom, *commands):
    """Check that the advice of a row names these commands."""
    [(_, said)] = [one for one in ROWS if symptom in one[0]]
    assert all(one in said for one in commands), said


def shown(done, code=0):
    assert done.returncode == code, (done.stdout, done.stderr)
    return done.stdout.decode() + done.stderr.decode()


def full(error, turns=20):
    """Give a session whose last prompt its provider refused."""
    one = Conversation()
    for _ in range(turns):
        one.turn("x" * 3000)
    one.user("and now?")
    one.assistant([], stop="error", api="anthropic-messages")
    one.lines[-1]["message"]["errorMessage"] = error
    return one


def think(one, model="claude-fable-5-1"):
    one.user()
    block = {"type": "thinking", "thinking": "t" * 40, "thinkingSignature": "s" * 80}
    one.assistant([block, {"type": "text", "text": "so"}], api="anthropic-messages")
    one.lines[-1]["message"]["model"] = model


@row("prompt is too long")
@pytest.mark.parametrize("error", TOO_LONG)
def test_a_session_that_is_too_long_is_relieved(world, cli, error):
    """`relieve` makes it fit; in an open turn it is recorded, and the next scan does it."""
    advice("prompt is too long", "`brainsurgeon relieve SESSION`", "recorded", "the next scan")
    one = full(error)
    world.put("s.jsonl", one.bytes())
    assert "it fits" in shown(cli("relieve", "main/s"))

    one = full(error)
    one.user("more")
    path = world.put("t.jsonl", one.bytes(), age=5)
    assert "recorded" in shown(cli("relieve", "main/t"))
    assert path.read_bytes() == one.bytes()
    one.assistant("yes")
    world.put("t.jsonl", one.bytes(), age=5)
    shown(cli("scan", "--once"))
    assert path.stat().st_size < len(one.bytes()) / 2


@row("400 because of thinking")
def test_a_refused_signature_leaves_with_the_others(world, cli):
    """`relieve --signatures` takes out all signed thinking where one was refused."""
    advice("400 because of thinking", "`brainsurgeon relieve SESSION --signatures`")
    one = Conversation()
    think(one)
    one.user()
    one.assistant([], stop="error", api="anthropic-messages")
    one.lines[-1]["message"]["errorMessage"] = "400 The block is bound to a different conversation"
    path = world.put("s.jsonl", one.bytes())
    shown(cli("relieve", "main/s", "--signatures"))

    assert b'"thinkingSignature":"s' not in path.read_bytes()


@row("nothing is pruned")
def test_why_nothing_is_pruned_is_said(world):
    """`status` names what blocks, and `sessions SESSION` the reason of each value that stays."""
    advice("nothing is pruned", "`brainsurgeon status`", "`brainsurgeon sessions SESSION`")
    path, ident = write_idle_session(world)
    off = program_for(world, enabled=False)
    shown(off("scan", "--once"))
    assert not is_extracted(path, ident)
    assert "enabled = false" in shown(off("status"))
    short = program_for(world, min_value_length=5000)
    assert "1 tool_result of exec (2,000 characters): short" in shown(short("sessions", "main/s"))
    shown(program_for(world, keep_recent=0)("scan", "--once"))
    assert is_extracted(path, ident)


@row("no sessions found")
def test_homes_that_no_root_covers_are_named_with_their_lines(own_home):
    """The lines that `status` prints, put into the configuration, make the sessions seen."""
    talk = ClaudeConversation()
    talk.turn("x" * 5000)
    path = own_home / ".claude/projects/-w/t.jsonl"
    path.parent.mkdir(parents=True)
    path.write_bytes(talk.bytes())
    assert "no sessions found" in shown(run("sessions"))
    told = json.loads(shown(run("status", "--json")))
    [home] = told["homes"]
    assert home["config"] in re.sub("(?m)^ +", "", shown(run("status"))) + "\n"
    config = own_home / ".config/brainsurgeon/config.toml"
    config.parent.mkdir(parents=True)
    config.write_text(home["config"])
    assert "claude-code:-w/t" in shown(run("sessions"))


@row("deferred again and again")
def test_why_a_session_is_deferred_is_said(world, cli):
    """`sessions` says that a turn is open; when it is closed, the session is pruned."""
    one = Conversation()
    ident = one.turn()
    one.turn("short")
    one.user("one more thing")
    path = world.put("s.jsonl", one.bytes(), age=60)
    shown(cli("scan", "--once"))
    assert path.read_bytes() == one.bytes()
    assert "a user message" in shown(cli("sessions"))
    one.assistant("done")
    world.put("s.jsonl", one.bytes(), age=60)
    shown(cli("scan", "--once"))
    assert is_extracted(path, ident)


@row("nothing: leases prove nothing on")
def test_a_filesystem_that_proves_nothing_wants_a_word(world, monkeypatch):
    """`status` says so, nothing is touched, and `exclusive = true` lets it be."""
    path, ident = write_idle_session(world)
    for name in ("unproven", "unproven_at"):
        monkeypatch.setattr(leases, name, lambda *_: "nfs")
    [root] = status(world.settings(), world.store, world.clock()).roots
    assert root.protocol == "nothing: leases prove nothing on nfs"
    assert world.scan(keep_recent=0).sessions_changed == 0
    roots = [{"path": str(world.root), "exclusive": True}]
    assert world.scan(keep_recent=0, roots=roots).sessions_changed == 1
    assert is_extracted(path, ident)


@row("nothing: no lease can be had")
def test_without_a_lease_nothing_is_touched(world, monkeypatch):
    """`status` says so where leases are refused; with the owner's lease the session is pruned."""
    path, ident = write_idle_session(world)
    with monkeypatch.context() as others:
        others.setattr(leases, "supported", lambda _: False)
        [root] = status(world.settings(), world.store, world.clock()).roots
        assert root.protocol == "nothing: no lease can be had"
    assert world.scan(keep_recent=0).sessions_changed == 1
    assert is_extracted(path, ident)


@row("a database is left alone")
def test_why_a_database_is_left_alone_is_said(tmp_path):
    """`status` names the database, and the layout that nobody knows."""
    claw = Claw(tmp_path / "claw")
    claw.sql("PRAGMA user_version = 24")
    config = tmp_path / "config.toml"
    config.write_text(f'state_dir = "{tmp_path}/ours"\n[[roots]]\npath = "{claw.root}"\n')
    told = shown(run("status", "--config", config))
    assert "left alone" in told
    assert "layout" in told


@row("a placeholder expired")
def test_a_value_that_expired_is_printed_from_a_backup(world, cli, tmp_path):
    """The tombstone says when it went, with 5; a backup as the store has it, and is unchanged."""
    advice("a placeholder expired", "`BRAINSURGEON_STATE_DIR=DIRECTORY brainsurgeon show ID`")
    path, ident = write_idle_session(world)
    for number in range(6):  # where most of a root is silent at once, a brake holds it
        other = Conversation(f"{number:08x}-0000-4000-8000-000000000009")
        other.user("hello")
        world.put(f"{number}.jsonl", other.bytes())
    shown(cli("scan", "--once"))
    backup = tmp_path / "backup" / "store.db"
    backup.parent.mkdir()
    shown(cli("store", "backup", backup))
    before, clock = backup.read_bytes(), Clock()
    for seconds in (31 * 86_400, 60):
        clock.now += seconds
        retention(world.settings(), world.store, clock=clock)
        clock.now += 1
        scan(world.settings(), world.store, clock=clock)
    world.close()
    assert f"{ident}: the value expired at" in shown(cli("show", ident), 5)
    beside = cli("show", ident, BRAINSURGEON_STATE_DIR=str(backup.parent))
    assert "x" * 2000 in shown(beside)
    assert backup.read_bytes() == before
    assert is_extracted(path, ident)


@row("says that no systemd runs")
def test_where_no_systemd_runs_cron_does_as_well(world, own_home):
    """`init --systemd` does the rest, names a way out, and `scan --once` from cron prunes."""
    path, ident = write_idle_session(world)
    done = run("init", "--systemd", "--yes", PATH="/nowhere", XDG_RUNTIME_DIR="/nowhere")
    told = shown(done, 1)
    assert "no systemd runs" in told
    assert (own_home / ".config/brainsurgeon/config.toml").exists()
    assert "brainsurgeon run" in told
    shown(program_for(world, keep_recent=0)("scan", "--once"))
    assert is_extracted(path, ident)


@row("the agent's tool does not start")
def test_a_server_that_does_not_start_says_why(world):
    """Without the extra it names it, and with it a server that is asked nothing ends well."""
    advice("the agent's tool does not start", "mcp --agent main </dev/null", "`[mcp]`")
    write_idle_session(world)
    words = ("mcp", "--agent", "main", "--config", str(world.config_file()))
    without = subprocess.run(
        [sys.executable, "-c", WITHOUT_THE_EXTRA, *words], stdin=subprocess.DEVNULL,
        capture_output=True, check=False,
    )  # fmt: skip
    assert "brainsurgeon[mcp]" in shown(without, 2)
    assert shown(run(*words)) == ""


@row("is unusable")
def test_a_damaged_store_is_named_and_repaired(world, cli, tmp_path):
    """Its message is the one in the table, nothing is touched, and a repair makes it well."""
    advice("is unusable", "`brainsurgeon store restore FILE`", "`brainsurgeon doctor --repair`")
    path, ident = write_idle_session(world)
    shown(cli("scan", "--once"))
    backup = tmp_path / "backup.db"
    shown(cli("store", "backup", backup))
    world.close()
    store = world.state / "store.db"
    with closing(sqlite3.connect(store)) as database:
        [(page,)] = database.execute("SELECT rootpage FROM sqlite_master WHERE name = 'events'")
    with open(store, "r+b") as file:
        file.seek((page - 1) * PAGE)
        file.write(b"\xa5" * PAGE)
    before = path.read_bytes()
    told = shown(cli("history", "--events"), 7)
    [quoted] = re.findall(r"\*(.*?)\*", next(one for one, _ in ROWS if "is unusable" in one))
    assert quoted in told
    assert "nothing was touched" in told
    assert path.read_bytes() == before
    shown(cli("doctor", "--repair"))
    assert "x" * 2000 in shown(cli("show", ident))
    store.write_bytes(b"\xff" * PAGE)
    assert quoted in shown(cli("sessions"), 7)
    shown(cli("store", "restore", backup, "--yes"))
    assert "x" * 2000 in shown(cli("show", ident))


@row("exit code 6")
def test_what_is_in_other_hands_is_tried_again(world, cli, tmp_path):
    """While somebody holds the store a command ends with 6; afterwards it is done."""
    write_idle_session(world)
    shown(cli("scan", "--once"))
    backup = tmp_path / "backup.db"
    shown(cli("store", "backup", backup))
    world.close()
    with hold_store(str(world.state)):
        shown(cli("store", "restore", backup, "--yes"), 6)
    shown(cli("store", "restore", backup, "--yes"))


@row("anything else")
def test_the_doctor_looks_at_what_the_table_says(world, cli):
    """Its findings are about configuration, permissions, roots, store and rewrites."""
    write_idle_session(world)
    shown(cli("scan", "--once"))
    told = shown(cli("doctor"))
    for said in (
        "only this user has access",
        "the database is sound",
        f"{world.root}: leases work",
    ):
        assert said in told
    (world.base / "config.toml").write_text("keep_recent = -1\n")
    assert "keep_recent" in shown(cli("doctor"), 2)


def test_every_row_of_the_table_is_proven_here():
    """A row that no test provokes is no advice; a test of a row that is gone fails by itself."""
    assert len(ROWS) > 10
    assert set(ROWS) == PROVEN
