"""Output streams that are closed, full or without a reader, and control characters in output."""

import os
import re
import subprocess
import sys

import pytest
import structlog

from brainsurgeon import log
from brainsurgeon.model.reports import Watch
from brainsurgeon.operations.scan import scan
from building.processes import PROGRAM
from building.world import Conversation, put_session

CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]")
READ_ONLY = ("sessions", "status", "doctor", "scan --once --dry-run", "scan --retention --dry-run")


@pytest.fixture
def shell(world):
    """Return a function that runs a line of bash: $B is the program, $C its configuration."""
    config = world.config_file(keep_recent=0)
    # As at a user's terminal: the tests themselves run unbuffered.
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}

    def run(line):
        words = " ".join(PROGRAM)
        return subprocess.run(
            ["bash", "-c", f"B='{words}'; C='--config {config}'; {line}"], check=False,
            env=buffered, capture_output=True, text=True, timeout=120, cwd="/",
        )  # fmt: skip

    return run


@pytest.fixture
def many_sessions(world):
    """Return one session with a value, beside 400 empty ones."""
    conversation = Conversation()
    conversation.turn("x" * 4000)
    for number in range(400):
        world.put(f"{number:04d}-{'n' * 60}.jsonl", b"")
    return world.put("s.jsonl", conversation.bytes())


@pytest.fixture
def reset_log():
    """Reset the log, which would go on to write to a stream of this test."""
    yield
    structlog.reset_defaults()


def test_a_pipe_closed_by_its_reader_is_no_error(shell, world, many_sessions):
    """A command whose reader closes the pipe, before or after the first line, exits 0 silently."""
    world.copy("pi", "large-session.derived-v3.jsonl", name="large.jsonl")
    for line in ("$B sessions $C", "$B status $C --json", "$B show main/large $C", "$B --help"):
        for reader in ("head -n 1", "true"):
            result = shell(f"{line} | {reader}; exit ${{PIPESTATUS[0]}}")

            assert (result.returncode, result.stderr) == (0, ""), (line, reader)


@pytest.mark.parametrize(
    "words", [*READ_ONLY, "status --json", "show main/s", "show main/s --json"]
)
def test_a_full_output_device_exits_1_with_one_line(shell, world, conversation, words):
    """Output that cannot be written exits 1 with one line on stderr."""
    put_session(world, conversation)
    result = shell(f"$B {words} $C > /dev/full")

    assert result.returncode == 1
    assert result.stderr == (
        "brainsurgeon: standard output cannot be written: No space left on device\n"
    )


@pytest.mark.parametrize("closed", ["1>&-", "2>&-", "1>&- 2>&-", "0<&- 1>&- 2>&-", "2>/dev/full"])
def test_closed_streams_do_not_stop_a_scan(shell, many_sessions, closed):
    """With closed streams a scan completes, and its database gets no stream's descriptor."""
    result = shell(f"$B scan --once $C {closed}")
    doctor = shell("$B doctor $C")

    assert (result.returncode, result.stderr) == (0, "")
    assert b"[[extracted-" in many_sessions.read_bytes()
    assert doctor.returncode == 0, doctor.stdout


def test_init_asks_nothing_if_stdin_is_closed(shell):
    """`init` with a closed standard input does nothing, exits 2 and names `--yes`."""
    result = shell("$B init 0<&-")

    assert result.returncode == 2
    assert "add --yes" in result.stderr


def test_an_error_that_cannot_be_printed_keeps_its_code(shell):
    """A failed command exits with the code of its error if stderr is closed or full."""
    assert shell("$B show nothing $C 1>&- 2>&-").returncode == 3
    assert shell("$B show nothing $C 2>/dev/full").returncode == 3


@pytest.mark.parametrize("style", ["console", "json"])
def test_the_log_contains_no_control_characters(
    world, conversation, capsys, monkeypatch, reset_log, style
):
    """Control characters in directories, sessions, ids, keys and tools are escaped in the log."""
    hostile = "evil\x1b[31m\x07\r\x9b\u202e\nx"
    world.directory = world.root / hostile / "sessions"
    world.directory.mkdir(parents=True)
    conversation.turn("y" * 2000, hostile, ident=hostile, details={hostile: "z" * 2000})
    world.put(f"{hostile}.jsonl", conversation.bytes())
    os.symlink("/nowhere", world.directory.parent / "link")
    settings = world.settings(
        keep_recent=0, log_level="debug",
        roots=[{"path": str(world.root)}, {"path": str(world.base / hostile)}],
    )  # fmt: skip
    monkeypatch.setattr(sys.stderr, "isatty", lambda: style == "console")
    monkeypatch.setenv("NO_COLOR", "1")
    log.set_up(settings)
    watch = Watch(ended=log.session)
    log.scan_finished(scan(settings, world.store, clock=world.clock, watch=watch))
    output = capsys.readouterr()

    assert "evil" in output.err
    assert "extraction" in output.err
    assert not CONTROL.search(output.out + output.err.replace("\x1b[0m", ""))


def test_command_output_contains_no_control_characters(shell, world, conversation):
    """Control characters in names are escaped wherever a command prints the name."""
    hostile = "evil\x1b[31m\x07\x9b\u202e"
    conversation.turn("x" * 4000, tool=hostile)
    world.directory = world.root / hostile / "sessions"
    world.directory.mkdir(parents=True)
    world.put("s.jsonl", conversation.bytes())
    world.put("odd.jsonl", b"{}\n")
    config = world.config_file(exclude=[f"agent:{hostile}*"])
    text = config.read_text().replace(
        f'path = "{world.root}"',
        f'path = "{world.root}"\n[[roots]]\npath = "{world.base}/\\u001b[31m"',
    )
    config.write_text(text)
    for words in (*READ_ONLY, "sessions s", "scan", "run --nonsense"):
        result = shell(f"$B {words} $C")

        assert not CONTROL.search(result.stdout + result.stderr), words
