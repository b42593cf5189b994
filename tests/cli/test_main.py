"""Every command: its help, its words, its JSON, its exit code."""

import sqlite3
from contextlib import closing

import pytest
import typer

from brainsurgeon.cli.commands import RENAMED, application
from building.processes import json_output, run, run_parallel
from building.world import file_states

COMMANDS = sorted(typer.main.get_command(application()).commands)
PATH = "message.content.0.text"


# --- help, options, JSON -------------------------------------------------------------------------


def test_every_command_explains_itself_with_an_example():
    """`--help` of each command has an example that calls it, within 80 columns."""
    of_store = [f"store {name}" for name in ("backup", "restore", "purge")]
    words = {(*name.split(), "--help"): name for name in (*COMMANDS, *of_store)}
    for asked, done in run_parallel(run, words).items():
        command = words[asked]
        assert done.returncode == 0
        assert b"xample" in done.stdout
        assert f"brainsurgeon {command}".encode() in done.stdout
        assert max(map(len, done.stdout.decode().splitlines())) <= 80


def test_the_promised_commands_are_there():
    """Every command that the main job needs exists."""
    wanted = {"scan", "restore", "show", "pin", "extract", "sessions"}

    assert wanted <= set(COMMANDS)


def test_the_configuration_is_named_on_either_side(world, session):
    """`--config` counts on either side of the command, and the nearer one wins."""
    config = world.config_file()
    other = world.base / "other.toml"
    other.write_text(f'state_dir = "{world.base}/none"\n[[roots]]\npath = "{world.base}/none"\n')
    before = run("--config", config, "sessions", "--json")
    after = run("sessions", "--json", "--config", config)
    both = run("--config", other, "sessions", "--json", "--config", config)
    by_environment = run("sessions", "--json", BRAINSURGEON_CONFIG=str(config))

    assert [one["session"] for one in json_output(before)["sessions"]] == ["main/s"]
    assert before.stdout == after.stdout == both.stdout == by_environment.stdout


def test_every_success_is_one_json_document(world, conversation, cli):
    """With `--json` each command puts one JSON document on stdout and nothing beside it."""
    ident = conversation.turn()
    conversation.turn("y" * 2000)
    world.put("s.jsonl", conversation.bytes())
    done = {"dry": cli("scan", "--once", "--dry-run", "--json")}
    done["scan"] = cli("scan", "--once", "--json")
    looks = {
        "sessions": ("sessions", "--json"),
        "context": ("sessions", "main/s", "--json"),
        "status": ("status", "--json"),
        "retention": ("scan", "--retention", "--dry-run", "--json"),
        "show": ("show", f"[[extracted-{ident}]]", "--json"),
    }
    looked = run_parallel(cli, looks.values())
    done |= {name: looked[words] for name, words in looks.items()}
    done["restore"] = cli("restore", ident, "--json")
    done["every"] = cli("restore", "--all", "--json")
    done["pinned"] = cli("pin", conversation.last, "--recent", "7", "--json")
    said = {name: (one.returncode, json_output(one), one.stderr) for name, one in done.items()}

    assert {(code, stderr) for code, _, stderr in said.values()} == {(0, b"")}
    assert said["dry"][1]["values_extracted"] == said["scan"][1]["values_extracted"] == 1
    assert (said["dry"][1]["dry_run"], said["scan"][1]["dry_run"]) == (True, False)
    assert said["sessions"][1]["sessions"][0]["session"] == "main/s"
    assert said["context"][1]["extracted"][0]["entry_id"] == ident
    assert said["show"][1]["entry_id"] == ident
    assert said["show"][1]["content"] == {PATH: "x" * 2000}
    assert said["restore"][1]["keys_restored"] == [PATH]
    assert said["every"][1]["sessions"][0]["state"] == "nothing to undo"
    assert said["pinned"][1]["extractable"] == 7


def test_every_failure_is_one_json_document_with_its_exit_code(world, conversation, session):
    """With `--json` an error is a document too, with the code that the program exits with."""
    other = world.put("t.jsonl", conversation.bytes())
    gone = conversation.turn("g" * 2000)
    lost = conversation.turn("l" * 2000)
    conversation.turn("short")
    path = world.put("u.jsonl", conversation.bytes())
    world.scan()
    forget(world, lost)
    path.write_bytes(path.read_bytes().replace(f"[[extracted-{gone}]]".encode(), b"back"))
    config = world.config_file()
    broken = world.base / "broken.toml"
    broken.write_text("keep_recent = -1\nno_such_key = 1\n")
    expected = {
        ("restore",): 2,
        ("restore", "--no-such-option"): 2,
        ("pin", session, "--recent", "maybe"): 2,
        ("sessions", "--config", broken): 2,
        ("restore", "deadbeef"): 3,
        ("show", "deadbeef"): 3,
        ("sessions", "nobody"): 3,
        ("restore", session): 4,
        ("sessions", "main/"): 4,
        ("restore", lost): 5,
        ("show", lost): 5,
        ("restore", gone): 3,
    }
    before = file_states(world.root)
    went = run_parallel(lambda *words: run("--config", config, *words, "--json"), expected)
    for words, code in expected.items():
        done, told = went[words], json_output(went[words])

        assert (done.returncode, told["exit_code"]) == (code, code), words
        assert told["error"]
        if code == 4:
            assert len(told["candidates"]) >= 2
        if code == 5:
            assert told["tombstones"][0]["entry_id"] == lost
    assert file_states(world.root) == before
    assert other.exists()


def forget(world, entry):
    with closing(sqlite3.connect(world.state / "store.db")) as database, database:
        database.execute(
            "UPDATE extractions SET blob_id = NULL, expired_at = 1771581600.0,"
            " expired_why = 'retention' WHERE entry_id = ?",
            (entry,),
        )


def test_wrong_words_are_usage_errors(world, cli):
    """Words that do not fit together exit 2, say why on stderr and touch nothing."""
    commands = [
        ("scan", "--retention", "--verbose"), ("restore",), ("restore", "a", "--all"),
        ("restore", "--all", "--wait", "no"),
        ("restore", "--all", "--key", "text"), ("no-such-command",), ("show",),
        ("pin",), ("pin", "a", "--recent", "-1"), ("pin", "a", "--recent", "1.5"),
        ("pin", "a", "--undo", "--recent", "1"), ("archive",), ("restore", "a", "--run", "1"),
        ("status", "--open"), ("set-extractable", "a", "false"), ("search", "a"),
    ]  # fmt: skip
    before = file_states(world.base)
    for words, done in run_parallel(cli, commands).items():
        assert done.returncode == 2, words
        assert done.stdout == b""
        assert done.stderr
    assert file_states(world.base) == before


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("--help",), 0), (("sessions", "--json"), 0), (("status", "--json"), 0),
        (("show", "{session}"), 0),
        (("restore", "nowhere"), 3), (("show",), 2), (("pin", "--help"), 0),
    ],
)  # fmt: skip
def test_the_prepared_program_is_the_program(cli, session, words, code):
    """What tests run in a fork answers as a fresh `python -m brainsurgeon` does, byte for byte."""
    words = [word.format(session=session) for word in words]
    prepared, fresh = cli(*words), cli(*words, fresh=True)

    assert prepared.returncode == fresh.returncode == code
    assert prepared.stdout == fresh.stdout
    assert prepared.stderr == fresh.stderr


# --- one way for each thing ----------------------------------------------------------------------


def test_the_help_is_short_and_grouped():
    """At most 18 commands below four headings, each explained in its line, without an ellipsis."""
    text = run("--help").stdout.decode()
    headings = [line for line in text.splitlines() if line.endswith(":") and line[0] != " "]

    shown = [
        made for made in typer.main.get_command(application()).commands.values() if not made.hidden
    ]

    assert len(shown) <= 18
    assert headings[-4:] == ["Every day:", "Looking:", "Setting up:", "When something is wrong:"]
    assert "..." not in text.partition("Options:")[2]
    assert max(map(len, text.splitlines())) <= 80


def test_a_former_name_leads_to_the_present_one(world, session, cli):
    """It does the same, and says on stderr how that is written now."""
    for former, words in RENAMED.items():
        done = cli(*former.split(), *{"unpin": ("nothing",)}.get(former, ()))
        assert done.returncode == 2 or former == "unpin" or words.encode() in done.stderr, former
    for former, now in (
        (("cat", "main/s"), ("show", "main/s")), (("runs",), ("history",)),
        (("archives",), ("archive", "--list")),
    ):  # fmt: skip
        before, after = cli(*former), cli(*now)
        assert before.stdout == after.stdout != b"", former
        assert before.returncode == after.returncode == 0
        assert f"`{former[0]}` is now `" in before.stderr.decode()


def test_a_scan_is_one_run_that_also_deletes_what_expired(world, session, cli):
    """With or without --once it ends; the first in six hours deletes expired values, too."""
    first = json_output(cli("scan", "--json"))
    second = json_output(cli("scan", "--once", "--json"))
    alone = json_output(cli("scan", "--retention", "--json"))

    assert first["files_seen"] == second["files_seen"] == 1
    assert first["retention"] == {key: alone[key] for key in first["retention"]}
    assert "retention" not in second
