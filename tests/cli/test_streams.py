"""Streams that are closed, full, or whose reader goes away; and what may steer a terminal."""

import os
import re
import subprocess

import pytest
import structlog

from brainsurgeon import log
from brainsurgeon.operations.scan import scan
from building.processes import PROGRAM
from building.world import Conversation

CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]")
LOOKS = ("sessions", "status", "doctor", "scan --once --dry-run", "scan --retention --dry-run")


@pytest.fixture
def shell(world):
    """Give a shell in which $B is the program, its streams as buffered as people have them."""
    config = world.config_file(keep_recent=0)
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}

    def run(line):
        words = " ".join(PROGRAM)
        return subprocess.run(
            ["bash", "-c", f"B='{words}'; C='--config {config}'; {line}"], check=False,
            env=buffered, capture_output=True, text=True, timeout=120, cwd="/",
        )  # fmt: skip

    return run


@pytest.fixture
def many(world):
    conversation = Conversation()
    conversation.turn("x" * 4000)
    for number in range(400):
        world.put(f"{number:04d}-{'n' * 60}.jsonl", conversation.lines and b"")
    return world.put("s.jsonl", conversation.bytes())


@pytest.fixture
def passing_log():
    """Leave no log behind that would write to a stream of this test."""
    yield
    structlog.reset_defaults()


def test_a_reader_that_has_seen_enough_is_no_error(shell, world, many):
    """`sessions | head -1` ends with 0 and says nothing, whether it waits in a buffer or not."""
    world.copy("pi", "large-session.derived-v3.jsonl", name="large.jsonl")
    for line in ("$B sessions $C", "$B status $C --json", "$B show main/large $C", "$B --help"):
        done = shell(f"{line} | head -n 1; exit ${{PIPESTATUS[0]}}")
        gone = shell(f"{line} | true; exit ${{PIPESTATUS[0]}}")

        assert (done.returncode, done.stderr) == (0, ""), line
        assert (gone.returncode, gone.stderr) == (0, ""), line


@pytest.mark.parametrize("words", [*LOOKS, "status --json", "show main/s", "show main/s --json"])
def test_a_full_output_is_one_line(shell, world, conversation, words):
    """Where the output has no room, that is one line on standard error, and the exit code 1."""
    conversation.turn("x" * 4000)
    world.put("s.jsonl", conversation.bytes())
    done = shell(f"$B {words} $C > /dev/full")

    assert done.returncode == 1
    assert done.stderr == (
        "brainsurgeon: standard output cannot be written: No space left on device\n"
    )


@pytest.mark.parametrize("closed", ["1>&-", "2>&-", "1>&- 2>&-", "0<&- 1>&- 2>&-", "2>/dev/full"])
def test_closed_streams_do_not_stop_a_scan(shell, world, many, closed):
    """What cannot be said is not said: the run is made, and its database is nobody's output."""
    done = shell(f"$B scan --once $C {closed}")
    sound = shell("$B doctor $C")

    assert (done.returncode, done.stderr) == (0, "")
    assert b"[[extracted-" in many.read_bytes()
    assert sound.returncode == 0, sound.stdout


def test_an_error_that_cannot_be_said_keeps_its_code(shell):
    """Without any stream a command still ends with the code of what went wrong."""
    assert shell("$B show nothing $C 1>&- 2>&-").returncode == 3
    assert shell("$B show nothing $C 2>/dev/full").returncode == 3


@pytest.mark.parametrize("style", ["console", "json"])
def test_the_log_does_not_steer_a_terminal(world, conversation, capsys, passing_log, style):
    """Escapes in directories, sessions, ids, keys and tools reach no stream as they are."""
    hostile = "evil\x1b[31m\x07\r\x9b\u202e\nx"
    world.directory = world.root / hostile / "sessions"
    world.directory.mkdir(parents=True)
    conversation.turn("y" * 2000, hostile, ident=hostile, details={hostile: "z" * 2000})
    world.put(f"{hostile}.jsonl", conversation.bytes())
    unreadable = world.put("torn.jsonl", b"")
    unreadable.unlink()
    os.symlink("/nowhere", world.directory.parent / "link")
    settings = world.settings(
        keep_recent=0, log_level="debug", log_format=style,
        roots=[{"path": str(world.root)}, {"path": str(world.base / hostile)}],
    )  # fmt: skip
    log.set_up(settings)
    log.scanned(scan(settings, world.store, clock=world.clock))
    said = capsys.readouterr()

    assert "evil" in said.err
    assert "extraction" in said.err
    assert not CONTROL.search(said.out + said.err.replace("\x1b[0m", ""))


def test_no_command_steers_a_terminal(shell, world, conversation):
    """The same for what commands print, whatever quotes the name: reasons and problems too."""
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
    for words in (*LOOKS, "sessions s", "scan", "run --nonsense"):
        done = shell(f"$B {words} $C")

        assert not CONTROL.search(done.stdout + done.stderr), words
