"""The bar: there on a terminal, silent in a pipe, gone at the end."""

import os
import pty
import subprocess
import sys
from contextlib import ExitStack

import pytest


def on_a_terminal(world, *words, columns=80, seen=lambda _: None, **environment):
    """Run the program with a terminal as its standard error and output; give what it shows.

    Each time that it shows more, `seen` is called with all of it.
    """
    ours, theirs = pty.openpty()
    surroundings = {**os.environ, "TERM": "xterm", "COLUMNS": str(columns), **environment}
    config = str(world.config_file())
    program = subprocess.Popen(
        [sys.executable, "-m", "brainsurgeon", *words, "--config", config],
        stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs, env=surroundings,
    )  # fmt: skip
    os.close(theirs)
    shown = b""
    while True:
        try:
            piece = os.read(ours, 65536)
        except OSError:  # EIO: the last one who had it open is gone
            break
        if not piece:
            break
        shown += piece
        seen(shown)
    os.close(ours)
    assert program.wait() == 0
    return shown.decode()


@pytest.fixture
def unscanned(world, conversation):
    world.ident = conversation.turn()
    conversation.turn("y" * 2000)
    world.put("s.jsonl", conversation.bytes())
    return world


def test_a_scan_on_a_terminal_shows_how_far_it_is(unscanned):
    """The bar counts sessions and bytes, and its line is erased at the end."""
    shown = on_a_terminal(unscanned, "scan", "--once")

    assert "1 of 1" in shown
    assert "looking at main/s" in shown
    assert "\x1b[2K" in shown.rpartition("1 of 1")[2]
    assert "1 extracted" in shown


def test_putting_everything_back_shows_how_far_it_is(unscanned):
    """`restore --all` has the bar, too."""
    unscanned.scan()
    unscanned.close()

    assert "restoring main/s" in on_a_terminal(unscanned, "restore", "--all")


def test_waiting_shows_for_which_session_and_why(unscanned):
    """`restore --all --wait` names a session that somebody has open, and why it waits for it."""
    unscanned.scan()
    unscanned.close()
    path = unscanned.directory / "s.jsonl"
    with ExitStack() as opened:
        opened.enter_context(open(path, "rb"))

        def close(shown):
            if b"waiting for" in shown:
                opened.close()

        shown = on_a_terminal(unscanned, "restore", "--all", "--wait", seen=close)

    assert "waiting for main/s: " in shown
    assert shown.splitlines()[-1] == "1 value restored in 1 session; no placeholder is left"
    assert b"[[extracted-" not in path.read_bytes()


def test_without_a_terminal_there_is_no_bar(unscanned, cli):
    """In a pipe, from cron and on a terminal that can only type nothing is drawn."""
    dumb = on_a_terminal(unscanned, "scan", "--once", "--dry-run", TERM="dumb")

    assert "\x1b" not in dumb
    assert cli("scan", "--once").stderr == b""


@pytest.mark.parametrize("columns", [40, 80, 200])
@pytest.mark.parametrize("locale", [{}, {"LANG": "C", "LC_ALL": "C"}, {"NO_COLOR": "1"}])
def test_tables_fit_terminals_of_any_width(unscanned, columns, locale):
    """With names of wide characters, too, no line of `sessions` is wider than the terminal."""
    wide = unscanned.directory.parent.parent / "名前の長いエージェント" / "sessions"
    wide.mkdir(parents=True)
    (unscanned.directory / "s.jsonl").rename(wide / "長い名前のセッション.jsonl")
    shown = on_a_terminal(unscanned, "sessions", columns=columns, **locale)
    head = shown.splitlines()[:2]

    assert max(sum(2 if ord(c) > 0x2E80 else 1 for c in line) for line in head) <= columns
    assert "1 session, " in shown
    assert "\x1b" not in shown
