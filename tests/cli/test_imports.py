"""What a command imports: agents wait for `show` and `mcp`, so both import only what they use."""

import subprocess
import sys

import pytest

from brainsurgeon import operations, render
from building.processes import PROGRAM, run

HEAVY = {
    "anyio", "apscheduler", "mcp", "rich", "sqlite_utils", "structlog", "watchfiles",
    "brainsurgeon.daemon", "brainsurgeon.operations.scan", "brainsurgeon.rewrite.turns",
    "brainsurgeon.render.sessions", "brainsurgeon.rewrite",
}  # fmt: skip


def imported(*words):
    done = subprocess.run(
        [sys.executable, "-v", *PROGRAM[1:], *map(str, words)],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True,
    )  # fmt: skip
    lines = done.stderr.splitlines()
    return {line.split("'")[1] for line in lines if line.startswith("import '")}


def test_show_imports_no_package_that_it_does_not_use(world, session):
    """`show` imports neither the scanner nor the packages of the daemon, the server and tables."""
    names = imported("show", session, "--config", world.config_file())

    assert "brainsurgeon.operations.show" in names
    assert names & HEAVY == set()


def test_the_server_answers_initialize_before_it_imports_operations(world, session):
    """`mcp` imports the SDK and the configuration; the first call imports the operations."""
    pytest.importorskip("mcp")
    names = imported("mcp", "--config", world.config_file())

    assert "mcp.server.lowlevel" in names
    assert names & {"structlog", "brainsurgeon.operations.show"} == set()
    assert names & {"brainsurgeon.formats", "brainsurgeon.lookup.sessions"} == set()


def test_a_server_that_cannot_start_says_why(world):
    """A damaged store and a missing configuration file end the server with their exit codes."""
    world.state.mkdir(exist_ok=True)
    (world.state / "store.db").write_bytes(b"no store")

    assert run("mcp", "--config", world.config_file()).returncode == 7
    assert run("mcp", "--config", world.base / "none.toml").returncode == 2


@pytest.mark.parametrize("room", [operations, render])
def test_a_room_has_no_attribute_for_a_module_that_it_lacks(room):
    """What looks into a room, such as `hasattr`, is told that a module is not there."""
    assert not hasattr(room, "nothing")
