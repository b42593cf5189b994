"""What is answered before the command line is parsed in full is what the command answers."""

import json
import os
import subprocess
import sys

import pytest

from brainsurgeon.cli import quick
from building.processes import PROGRAM, run
from building.world import fork, sql, two_values

IN_FULL = {"BRAINSURGEON_LOG_LEVEL": "info"}
"""A setting in the environment is nothing that is understood at once."""
HEAVY = {
    "anyio", "apscheduler", "dataclasses", "hashlib", "inspect", "mcp", "orjson", "pydantic",
    "rich", "sqlite_utils", "structlog", "tomllib", "typer", "urllib", "watchfiles",
    "brainsurgeon.config", "brainsurgeon.formats", "brainsurgeon.operations",
}  # fmt: skip


def imported(words):
    """Name what the program imports while it does what the words say."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", *PROGRAM[1:], *map(str, words)],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}


def test_a_shown_value_waits_for_no_heavy_package(world, session):
    """`show`, which an agent calls in the middle of its turn, imports next to nothing."""
    names = imported(["show", session, "--config", world.config_file()])

    assert "brainsurgeon.store.glance" in names
    assert names & HEAVY == set()


def test_the_server_is_there_before_what_its_answers_need(world, session):
    """`mcp` imports the SDK and the configuration; the first call imports what answers it."""
    # The server is an extra: where it is not installed it imports nothing.
    pytest.importorskip("mcp")
    names = imported(["mcp", "--config", world.config_file()])

    assert "mcp.server.lowlevel" in names
    assert names & {"typer", "structlog", "brainsurgeon.operations.show"} == set()
    assert names & {"brainsurgeon.formats", "brainsurgeon.lookup.sessions"} == set()


@pytest.fixture
def alike(world):
    """Give a way to run a command both ways: at once where that can be done, and in full."""
    config = world.config_file()

    def both(*words, **environment):
        at_once, in_full = (
            (done.returncode, done.stdout, done.stderr)
            for done in (
                run(*words, "--config", config, **environment),
                run(*words, "--config", config, **environment, **IN_FULL),
            )
        )
        assert at_once == in_full, words
        return at_once

    return both


def test_what_is_shown_at_once_is_what_the_command_shows(world, conversation, alike):
    """Values, choices among them, copies and mistakes: output, errors and exit code are equal."""
    ident = two_values(conversation)
    copied = conversation.result(
        "z" * 900, details={"aggregated": "z" * 900, "q": {"r": "q" * 800}}
    )
    conversation.assistant()
    for _ in range(4):
        conversation.turn("short")
    world.put("s.jsonl", conversation.bytes())

    assert world.scan().values_extracted == 6

    world.close()
    assert alike("show", ident)[0] == alike("show", copied)[0] == 0
    assert b"same" not in alike("show", f"'[[extracted-{copied}]]'")[1]
    for words in (
        ("--key", "details"), ("--key=aggregated",), ("--key", "text", "--key", "r"),
        ("--key", "nothing"), ("--session", "main/s"), ("--session", "nobody"), ("--json",),
        ("--no-such",), ("--key", "-k"), ("--help",),
    ):  # fmt: skip
        alike("show", ident, *words)
    for entry in ("nothing", "", "[[extracted-nothing]]", "ä"):
        assert alike("show", entry)[0] == 3
    assert alike("--config", world.base / "none.toml", "show", ident)[0] == 0


def test_where_a_look_is_not_enough_the_command_is_asked(world, conversation, alike):
    """Expired and damaged values, entries of several sessions, older stores: all equal."""
    ident = two_values(conversation)
    path = world.put("s.jsonl", conversation.bytes())
    world.scan()
    fork(path, "f")
    os.utime(path.parent / "f.jsonl", (1, 1))

    assert alike("show", ident)[0] == 0

    world.scan()
    world.close()

    assert alike("show", ident)[0] == 4

    (path.parent / "f.jsonl").unlink()
    sql(world, "DELETE FROM extractions WHERE session_id = 2")
    sql(world, "UPDATE blobs SET data = x'00' WHERE id = 1")

    assert alike("show", ident)[0] == 7

    sql(world, "UPDATE extractions SET blob_id = NULL, state = 'expired', expired_at = 1.0,"
        " expired_why = 'retention' WHERE blob_id = 1")  # fmt: skip

    assert alike("show", ident)[0] == 0

    sql(world, "UPDATE extractions SET blob_id = NULL, state = 'expired', expired_at = 1.0,"
        " expired_why = 'retention'")  # fmt: skip

    assert alike("show", ident)[0] == 5

    sql(world, "INSERT INTO _sqlite_migrations (migration_set, name, applied_at)"
        " VALUES ('brainsurgeon', 'm999', '')")  # fmt: skip

    assert alike("show", ident)[0] == 7


def test_the_session_of_claude_code_that_calls_comes_first(world, session, own_home, alike):
    """Where a process of Claude Code may have started the command, its session is looked for."""
    records = own_home / ".claude" / "sessions"
    records.mkdir(parents=True)
    (records / f"{os.getpid()}.json").write_text(json.dumps({"sessionId": "x", "cwd": "/"}))
    words = ["show", session, "--config", world.config_file()]

    assert "brainsurgeon.operations.show" in imported(words)
    assert alike("show", session)[0] == 0


def test_a_configuration_with_a_mistake_is_told_as_ever(world, session, alike):
    """Nothing is shown at once where the configuration would be refused or warned about."""
    path = world.config_file()
    good = path.read_text()
    for bad in ("keep_recent = -1", "no_such = 1", 'state_dir = "relative"', "last_run_at = 1"):
        path.write_text(f"{bad}\n{good}")
        alike("show", session)
    path.write_text(good)

    assert alike("show", session, BRAINSURGEON_NO_SUCH="1")[2]


def test_words_that_are_not_plain_are_left_to_the_command():
    """Only `show ENTRY` with its keys and a configuration is read, on either side of its name."""
    assert quick._read(["show", "a"]) == ("a", [], None)
    assert quick._read(["--config", "c", "show", "--key=k", "a", "--key", "l"]) == (
        "a", ["k", "l"], "c",
    )  # fmt: skip
    for words in (
        [], ["show"], ["show", "a", "b"], ["restore", "a"], ["show", "a", "--json"],
        ["show", "a", "--key"], ["show", "-a"], ["show", "a", "--config", "c", "--config", "d"],
        ["--version"], ["show", "--", "a"],
    ):  # fmt: skip
        assert quick._read(words) is None


def test_a_server_whose_words_are_not_plain_is_left_to_the_command():
    """`mcp` is started at once with options that are each given once, behind its name."""
    assert quick._read_server(["mcp"]) == {}
    assert quick._read_server(["mcp", "--agent", "a", "--config", "c"]) == {
        "--agent": "a", "--config": "c",
    }  # fmt: skip
    for words in (
        [], ["show"], ["mcp", "--help"], ["mcp", "--agent"], ["mcp", "--agent=a"],
        ["mcp", "--agent", "a", "--agent", "b"], ["mcp", "--agent", "-x"], ["mcp", "a", "b"],
        ["--config", "c", "mcp"],
    ):  # fmt: skip
        assert quick._read_server(words) is None


def test_a_server_that_cannot_start_says_why(world, alike):
    """A configuration, a scope or a store with something wrong: one line and its exit code."""
    world.put("s.jsonl", b"")
    alike("mcp", "--agent", "nobody")
    (world.state).mkdir(exist_ok=True)
    (world.state / "store.db").write_bytes(b"no store")

    assert alike("mcp")[0] == 7
    assert run("mcp", "--config", world.base / "none.toml").returncode == 2
