"""The progress bar: drawn on a terminal, erased at the end, absent in a pipe."""

from contextlib import ExitStack

import pytest


@pytest.fixture
def unscanned(world, conversation, monkeypatch):
    monkeypatch.setenv("BRAINSURGEON_CONFIG", str(world.config_file()))
    conversation.turn()
    conversation.turn("y" * 2000)
    world.put("s.jsonl", conversation.bytes())
    return world


def test_scan_shows_a_progress_bar_on_a_terminal(unscanned, run_on_terminal):
    """The bar counts sessions and names the current one; its line is erased at the end."""
    shown = run_on_terminal("scan", "--once")

    assert "1 of 1" in shown
    assert "looking at main/s" in shown
    assert "\x1b[2K" in shown.rpartition("1 of 1")[2]
    assert "1 extracted" in shown


def test_restore_all_shows_a_progress_bar_on_a_terminal(unscanned, run_on_terminal):
    """`restore --all` names the session that it restores in its bar."""
    unscanned.scan()
    unscanned.close()

    assert "restoring main/s" in run_on_terminal("restore", "--all")


def test_restore_wait_names_the_session_it_waits_for(unscanned, run_on_terminal):
    """`restore --all --wait` shows which session another process has open, and then restores it."""
    unscanned.scan()
    unscanned.close()
    path = unscanned.directory / "s.jsonl"
    with ExitStack() as opened:
        opened.enter_context(open(path, "rb"))

        def close(shown):
            if b"waiting for" in shown:
                opened.close()

        shown = run_on_terminal("restore", "--all", "--wait", watch=close)

    assert "waiting for main/s: " in shown
    assert shown.splitlines()[-2] == "1 value restored in 1 session; no placeholder is left"
    assert b"[[extracted-" not in path.read_bytes()


def test_progress_bar_is_absent_without_a_capable_terminal(unscanned, run_on_terminal, cli):
    """Nothing is drawn in a pipe or on a terminal without cursor control (TERM=dumb)."""
    dumb = run_on_terminal("scan", "--once", "--dry-run", TERM="dumb")

    assert "\x1b" not in dumb
    assert cli("scan", "--once").stderr == b""
