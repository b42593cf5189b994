"""All commands: help, options, JSON and exit codes."""

import pytest
import typer

from brainsurgeon.cli.commands import application
from building.processes import json_output, run, run_parallel
from building.world import file_states, sql

COMMANDS = sorted(typer.main.get_command(application()).commands)


def test_help_of_every_command_has_an_example():
    """`--help` of each command has an example that calls it, within 80 columns."""
    of_store = [f"store {name}" for name in ("backup", "restore", "purge")]
    words = {(*name.split(), "--help"): name for name in (*COMMANDS, *of_store)}
    for arguments, result in run_parallel(run, words).items():
        assert result.returncode == 0
        example = result.stdout.decode().partition("xample")[2]
        assert f"brainsurgeon {words[arguments]}" in example
        assert max(map(len, result.stdout.decode().splitlines())) <= 80


def test_config_option_works_before_and_after_the_command(world, entry_id):
    """`--config` after the command wins over one before it; both equal BRAINSURGEON_CONFIG."""
    config = world.config_file()
    other = world.base / "other.toml"
    other.write_text(f'state_dir = "{world.base}/none"\n[[roots]]\npath = "{world.base}/none"\n')
    before = run("--config", config, "sessions", "--json")
    after = run("sessions", "--json", "--config", config)
    both = run("--config", other, "sessions", "--json", "--config", config)
    by_environment = run("sessions", "--json", BRAINSURGEON_CONFIG=str(config))

    assert [row["session"] for row in json_output(before)["sessions"]] == ["main/s"]
    assert before.stdout == after.stdout == both.stdout == by_environment.stdout


def test_json_errors_are_one_document_with_the_exit_code(world, conversation, entry_id):
    """With `--json` an error is one document, whose `exit_code` is that of the program."""
    other = world.put("t.jsonl", conversation.bytes())
    overwritten = conversation.turn("g" * 2000)
    lost = conversation.turn("l" * 2000)
    conversation.turn("short")
    path = world.put("u.jsonl", conversation.bytes())
    world.scan()
    sql(world, "UPDATE extractions SET blob_id = NULL, expired_at = 1771581600.0,"
               " expired_why = 'retention' WHERE entry_id = ?", (lost,))  # fmt: skip
    path.write_bytes(path.read_bytes().replace(f"[[extracted-{overwritten}]]".encode(), b"back"))
    config = world.config_file()
    broken = world.base / "broken.toml"
    broken.write_text("keep_recent = -1\nno_such_key = 1\n")
    expected = {
        ("restore",): 2,
        ("restore", "--no-such-option"): 2,
        ("pin", entry_id, "--recent", "maybe"): 2,
        ("sessions", "--config", broken): 2,
        ("restore", "deadbeef"): 3,
        ("show", "deadbeef"): 3,
        ("sessions", "nobody"): 3,
        ("restore", entry_id): 4,
        ("sessions", "main/"): 4,
        ("restore", lost): 5,
        ("show", lost): 5,
        ("restore", overwritten): 3,
    }
    before = file_states(world.root)
    results = run_parallel(lambda *words: run("--config", config, *words, "--json"), expected)
    for words, code in expected.items():
        result, answer = results[words], json_output(results[words])

        assert (result.returncode, answer["exit_code"]) == (code, code), words
        assert answer["error"]
        if code == 4:
            assert len(answer["candidates"]) >= 2
        if code == 5:
            assert answer["tombstones"][0]["entry_id"] == lost
    assert file_states(world.root) == before
    assert other.exists()


def test_invalid_arguments_exit_2_and_change_nothing(world, cli):
    """Invalid arguments exit 2 with a reason on stderr, an empty stdout and no file changed."""
    commands = [
        ("scan", "--retention", "--verbose"), ("restore",), ("restore", "a", "--all"),
        ("restore", "--all", "--wait", "no"), ("restore", "a", "b"),
        ("restore", "a", "--wait", "b"),
        ("scan", "--verbose"), ("status", "--max-age", "5m"), ("status", "--session", "a"),
        ("status", "--estimate", "--check"), ("pause", "--end", "--until", "2h"),
        ("status", "--format", "html", "--output", ""),
        ("history", "--since", ""), ("pause", "--until", "soon"),
        ("restore", "--all", "--key", "text"), ("no-such-command",), ("show",),
        ("pin",), ("pin", "a", "--recent", "-1"), ("pin", "a", "--recent", "1.5"),
        ("pin", "a", "--undo", "--recent", "1"), ("archive",), ("restore", "a", "--run", "1"),
        ("status", "--open"), ("status", "--format", "prometheus", "--open"),
        ("status", "--max-age", "soon"), ("status", "--output", "a"),
        ("status", "--check", "--max-age", "soon"),
        ("set-extractable", "a", "false"), ("search", "a"),
    ]  # fmt: skip
    before = file_states(world.base)
    for words, result in run_parallel(cli, commands).items():
        assert result.returncode == 2, words
        assert result.stdout == b""
        assert result.stderr
    assert file_states(world.base) == before


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("--help",), 0), (("sessions", "--json"), 0), (("status", "--json"), 0),
        (("show", "{session}"), 0),
        (("restore", "nowhere"), 3), (("show",), 2), (("pin", "--help"), 0),
    ],
    ids=["help", "sessions", "status", "show", "unknown entry", "no entry", "help of a command"],
)  # fmt: skip
def test_forked_program_answers_like_a_fresh_process(cli, entry_id, words, code):
    """The program that tests run in a fork prints the same bytes as `python -m brainsurgeon`."""
    words = [word.format(session=entry_id) for word in words]
    prepared, fresh = cli(*words), cli(*words, fresh=True)

    assert prepared.returncode == fresh.returncode == code
    assert prepared.stdout == fresh.stdout
    assert prepared.stderr == fresh.stderr


def test_help_groups_at_most_18_commands():
    """The help lists at most 18 commands under four headings, each with one complete line."""
    text = run("--help").stdout.decode()
    headings = [line for line in text.splitlines() if line.endswith(":") and line[0] != " "]
    commands = typer.main.get_command(application()).commands.values()
    shown = [command for command in commands if not command.hidden]

    assert {"scan", "restore", "show", "pin", "extract", "sessions"} <= {*COMMANDS}
    assert len(shown) <= 18
    assert headings[-4:] == ["Every day:", "Inspecting:", "Setting up:", "When something is wrong:"]
    assert "..." not in text.partition("Options:")[2]
    assert max(map(len, text.splitlines())) <= 80


def test_a_renamed_command_works_and_names_its_successor(entry_id, cli):
    """A former name does the same as the present command and prints that command on stderr."""
    assert cli("set-extractable", entry_id).returncode == 2
    for former, now in (
        (("cat", "main/s"), ("show", "main/s")), (("context", "main/s"), ("sessions", "main/s")),
        (("retention", "--dry-run"), ("scan", "--retention", "--dry-run")),
    ):  # fmt: skip
        before, after = cli(*former), cli(*now)
        assert before.stdout == after.stdout != b"", former
        assert before.returncode == after.returncode == 0
        assert f"`{former[0]}` is now `" in before.stderr.decode()


def test_scan_deletes_expired_values_once_in_six_hours(entry_id, cli):
    """The first `scan` runs retention as well; another one within six hours does not."""
    first = json_output(cli("scan", "--json"))
    second = json_output(cli("scan", "--once", "--json"))
    alone = json_output(cli("scan", "--retention", "--json"))

    assert first["files_seen"] == second["files_seen"] == 1
    assert first["retention"] == {key: alone[key] for key in first["retention"]}
    assert "retention" not in second
