"""The table of symptoms in the documentation: each is provoked, and its advice works."""

import json
import re
import sqlite3
import subprocess
import sys
from contextlib import closing

import pytest

from brainsurgeon.files import leases
from brainsurgeon.operations.retention import retention
from brainsurgeon.operations.status import status
from brainsurgeon.store.database import PAGE, hold_store
from building.claude import ClaudeConversation
from building.claw import Claw
from building.model_requests import add_answer, thinking_block
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
    """Mark the test as the proof of the table's row with this symptom."""
    [match] = [entry for entry in ROWS if symptom in entry[0]]

    def noted(test):
        PROVEN.add(match)
        return test

    return noted


def check_advice(symptom, *commands):
    """Check that the advice of a row names these commands."""
    [(_, text)] = [entry for entry in ROWS if symptom in entry[0]]
    assert all(entry in text for entry in commands), text


def shown(process, code=0):
    assert process.returncode == code, (process.stdout, process.stderr)
    return process.stdout.decode() + process.stderr.decode()


def too_long_session(error):
    """Return a session whose last prompt its provider refused."""
    talk = Conversation()
    for _ in range(20):
        talk.turn("x" * 3000)
    talk.user("and now?")
    talk.assistant([], stop="error", api="anthropic-messages")
    talk.lines[-1]["message"]["errorMessage"] = error
    return talk


@row("prompt is too long")
@pytest.mark.parametrize("error", TOO_LONG)
def test_relieve_makes_a_too_long_session_fit(world, cli, error):
    """In an open turn the request is recorded, and the next scan carries it out."""
    check_advice(
        "prompt is too long", "`brainsurgeon relieve SESSION`", "recorded", "the next scan"
    )
    talk = too_long_session(error)
    world.put("s.jsonl", talk.bytes())
    assert "it fits" in shown(cli("relieve", "main/s"))

    talk = too_long_session(error)
    talk.user("more")
    path = world.put("t.jsonl", talk.bytes(), age=5)
    assert "recorded" in shown(cli("relieve", "main/t"))
    assert path.read_bytes() == talk.bytes()
    talk.assistant("yes")
    world.put("t.jsonl", talk.bytes(), age=5)
    shown(cli("scan", "--once"))
    assert path.stat().st_size < len(talk.bytes()) / 2


@row("400 because of thinking")
def test_relieve_signatures_extracts_all_signed_thinking(world, cli):
    """All signed thinking of a session with a refused signature is extracted."""
    check_advice("400 because of thinking", "`brainsurgeon relieve SESSION --signatures`")
    talk = Conversation()
    talk.user()
    content = [thinking_block("it", "s" * 80), {"type": "text", "text": "so"}]
    add_answer(talk, content, "anthropic-messages", model="claude-fable-5-1")
    talk.user()
    talk.assistant([], stop="error", api="anthropic-messages")
    talk.lines[-1]["message"]["errorMessage"] = "400 The block is bound to a different conversation"
    path = world.put("s.jsonl", talk.bytes())
    shown(cli("relieve", "main/s", "--signatures"))

    assert b'"thinkingSignature":"s' not in path.read_bytes()


@row("nothing is pruned")
def test_reasons_why_nothing_is_pruned_are_shown(world):
    """`status` names what blocks, `sessions SESSION` the reason for each value that stays."""
    check_advice("nothing is pruned", "`brainsurgeon status`", "`brainsurgeon sessions SESSION`")
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
def test_uncovered_home_is_shown_with_its_configuration_lines(own_home):
    """With the lines from `status` in the configuration, its sessions are listed."""
    talk = ClaudeConversation()
    talk.turn("x" * 5000)
    path = own_home / ".claude/projects/-w/t.jsonl"
    claw = own_home / ".openclaw/agents/main/sessions/s.jsonl"
    claw.parent.mkdir(parents=True)
    claw.write_bytes(Conversation().bytes())
    path.parent.mkdir(parents=True)
    path.write_bytes(talk.bytes())
    assert "claude" not in shown(run("sessions"))
    status_report = json.loads(shown(run("status", "--json")))
    [home] = status_report["homes"]
    assert home["config"] in re.sub("(?m)^ +", "", shown(run("status"))) + "\n"
    config = own_home / ".config/brainsurgeon/config.toml"
    config.parent.mkdir(parents=True)
    config.write_text(home["config"])
    assert "claude-code:-w/t" in shown(run("sessions"))


@row("deferred again and again")
def test_deferred_session_is_shown_with_its_reason(world, cli):
    """`sessions` shows the open turn; the session is pruned after it is closed."""
    talk = Conversation()
    ident = talk.turn()
    talk.turn("short")
    talk.user("one more thing")
    path = world.put("s.jsonl", talk.bytes(), age=60)
    shown(cli("scan", "--once"))
    assert path.read_bytes() == talk.bytes()
    assert "a user message" in shown(cli("sessions"))
    talk.assistant("done")
    world.put("s.jsonl", talk.bytes(), age=60)
    shown(cli("scan", "--once"))
    assert is_extracted(path, ident)


@row("nothing: leases prove nothing on")
def test_unproven_filesystem_needs_an_exclusive_root(world, monkeypatch):
    """`status` names the filesystem; the session is pruned only with `exclusive = true`."""
    path, ident = write_idle_session(world)
    for name in ("unproven", "unproven_at"):
        monkeypatch.setattr(leases, name, lambda *_: "nfs")
    [root] = status(world.settings(), world.store, world.clock()).places.roots
    assert root.protocol == "nothing: leases prove nothing on nfs"
    assert world.scan(keep_recent=0).sessions_changed == 0
    roots = [{"path": str(world.root), "exclusive": True}]
    assert world.scan(keep_recent=0, roots=roots).sessions_changed == 1
    assert is_extracted(path, ident)


@row("nothing: no lease can be had")
def test_root_without_leases_is_shown_in_status(world, monkeypatch):
    """`status` shows it where leases are refused; with leases the session is pruned."""
    path, ident = write_idle_session(world)
    with monkeypatch.context() as others:
        others.setattr(leases, "supported", lambda _: False)
        [root] = status(world.settings(), world.store, world.clock()).places.roots
        assert root.protocol == "nothing: no lease can be had"
    assert world.scan(keep_recent=0).sessions_changed == 1
    assert is_extracted(path, ident)


@row("a database is left alone")
def test_database_of_an_unknown_layout_is_shown_in_status(tmp_path):
    """`status` shows that the database is left alone because of its layout."""
    claw = Claw(tmp_path / "claw")
    claw.sql("PRAGMA user_version = 24")
    config = tmp_path / "config.toml"
    config.write_text(f'state_dir = "{tmp_path}/ours"\n[[roots]]\npath = "{claw.root}"\n')
    output = shown(run("status", "--config", config))
    assert "left alone" in output
    assert "layout" in output


@row("a placeholder expired")
def test_expired_value_is_shown_from_a_backup(world, cli, tmp_path, monkeypatch):
    """`show` exits with 5; with a backup as the store it shows the value, and changes nothing."""
    check_advice("a placeholder expired", "`BRAINSURGEON_STATE_DIR=DIRECTORY brainsurgeon show ID`")
    path, ident = write_idle_session(world)
    shown(cli("scan", "--once"))
    backup = tmp_path / "backup" / "store.db"
    backup.parent.mkdir()
    shown(cli("store", "backup", backup))
    before, clock = backup.read_bytes(), Clock()
    monkeypatch.setattr("brainsurgeon.files.processes.boot_clock", clock)
    for _ in range(3):
        retention(world.settings(retention_standing="1s"), world.store, clock=clock)
        clock.now += 60
    world.close()
    assert f"{ident}: the value expired at" in shown(cli("show", ident), 5)
    beside = cli("show", ident, BRAINSURGEON_STATE_DIR=str(backup.parent))
    assert "x" * 2000 in shown(beside)
    assert backup.read_bytes() == before
    assert is_extracted(path, ident)


@row("there is no store, but")
def test_no_store_is_begun_where_sessions_have_placeholders(world, cli):
    """`scan` refuses with 7; with `--new-store` it begins one."""
    write_idle_session(world)
    shown(cli("scan", "--once"))
    world.close()
    world.state.rename(world.base / "elsewhere")
    assert "--new-store" in shown(cli("scan", "--once"), 7)
    shown(cli("scan", "--once", "--new-store"))


@row("placeholders in sessions have no stored value")
def test_placeholders_without_a_store_are_shown_in_status(world, cli):
    """`status` counts them, and `doctor` names their entries."""
    _, ident = write_idle_session(world)
    shown(cli("scan", "--once"))
    world.close()
    world.state.rename(world.base / "elsewhere")
    assert "no stored value" in shown(cli("status"))
    assert ident in shown(cli("doctor"), 1)


@row("says that no systemd runs")
def test_init_systemd_without_systemd_names_the_alternatives(world, own_home):
    """The configuration is written all the same, and `scan --once` prunes."""
    path, ident = write_idle_session(world)
    process = run("init", "--systemd", "--yes", PATH="/nowhere", XDG_RUNTIME_DIR="/nowhere")
    output = shown(process, 1)
    assert "no systemd runs" in output
    assert (own_home / ".config/brainsurgeon/config.toml").exists()
    assert "brainsurgeon run" in output
    shown(program_for(world, keep_recent=0)("scan", "--once"))
    assert is_extracted(path, ident)


@row("the agent's tool does not start")
def test_mcp_server_without_the_extra_names_it(world):
    """With the extra, a server that gets no request exits with 0."""
    check_advice("the agent's tool does not start", "mcp --agent main </dev/null", "`[mcp]`")
    write_idle_session(world)
    words = ("mcp", "--agent", "main", "--config", str(world.config_file()))
    without = subprocess.run(
        [sys.executable, "-c", WITHOUT_THE_EXTRA, *words], stdin=subprocess.DEVNULL,
        capture_output=True, check=False,
    )  # fmt: skip
    assert "brainsurgeon[mcp]" in shown(without, 2)
    assert shown(run(*words)) == ""


@row("is unusable")
def test_damaged_store_is_reported_and_repaired(world, cli, tmp_path):
    """The message is that of the table, no session changes, and repair and backup both work."""
    check_advice(
        "is unusable", "`brainsurgeon store restore FILE`", "`brainsurgeon doctor --repair`"
    )
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
    output = shown(cli("history", "--events"), 7)
    [quoted] = re.findall(r"\*(.*?)\*", next(entry for entry, _ in ROWS if "is unusable" in entry))
    assert quoted in output
    assert "left as it is" in output
    assert path.read_bytes() == before
    shown(cli("doctor", "--repair"))
    assert "x" * 2000 in shown(cli("show", ident))
    store.write_bytes(b"\xff" * PAGE)
    assert quoted in shown(cli("sessions"), 7)
    shown(cli("store", "restore", backup, "--yes"))
    assert "x" * 2000 in shown(cli("show", ident))


@row("the log has `daemon_failed`")
def test_daemon_that_failed_names_the_cause(world, cli):
    """Its log names the cause. Once that is removed, `status` says that no daemon runs."""
    check_advice("the log has `daemon_failed`", "`systemctl --user start brainsurgeon`")
    write_idle_session(world)
    shown(cli("scan", "--once"))
    world.close()
    store, sound = world.state / "store.db", world.base / "sound.db"
    store.rename(sound)
    store.write_bytes(b"\xff" * PAGE)
    output = shown(cli("run"), 7)
    assert "daemon_failed" in output
    assert f"{store} is unusable" in output
    sound.rename(store)
    assert "not running" in shown(cli("status"))


@row("exit code 6")
def test_command_on_a_held_store_exits_with_6(world, cli, tmp_path):
    """After the store is released, the same command succeeds."""
    write_idle_session(world)
    shown(cli("scan", "--once"))
    backup = tmp_path / "backup.db"
    shown(cli("store", "backup", backup))
    world.close()
    with hold_store(str(world.state)):
        shown(cli("store", "restore", backup, "--yes"), 6)
    shown(cli("store", "restore", backup, "--yes"))


@row("anything else")
def test_doctor_checks_permissions_store_and_roots(world, cli):
    """Its findings name each of them, and it reports an invalid configuration."""
    write_idle_session(world)
    shown(cli("scan", "--once"))
    output = shown(cli("doctor"))
    for finding in (
        "only this user has access",
        "the database is sound",
        f"{world.root}: leases work",
    ):
        assert finding in output
    (world.base / "config.toml").write_text("keep_recent = -1\n")
    assert "keep_recent" in shown(cli("doctor"), 2)


def test_every_row_of_the_table_has_a_test():
    """Each row of the table is provoked by a test here."""
    assert len(ROWS) > 10
    assert set(ROWS) == PROVEN
