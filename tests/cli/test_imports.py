"""Imports of a command: agents wait for `show` and `mcp`, so both import only what they use."""

import subprocess
import sys

import pytest

from brainsurgeon import operations, render
from building.processes import PROGRAM, run

HEAVY = {
    "anyio", "apscheduler", "mcp", "rich", "sqlite_utils", "structlog", "watchfiles",
    "brainsurgeon.daemon", "brainsurgeon.operations.scan", "brainsurgeon.rewrite.archived_turns",
    "brainsurgeon.render.sessions", "brainsurgeon.rewrite", "brainsurgeon.planning.budget",
}  # fmt: skip


def imported_modules(*words):
    result = subprocess.run(
        [sys.executable, "-v", *PROGRAM[1:], *map(str, words)],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True,
    )  # fmt: skip
    lines = result.stderr.splitlines()
    return {line.split("'")[1] for line in lines if line.startswith("import '")}


def test_show_imports_no_package_that_it_does_not_need(world, entry_id):
    """`show` imports neither the scanner nor the packages of the daemon, the server and tables."""
    names = imported_modules("show", entry_id, "--config", world.config_file())

    assert "brainsurgeon.operations.show" in names
    assert names & HEAVY == set()


def test_mcp_starts_without_importing_operations(world, entry_id):
    """`mcp` starts with the SDK and the configuration; the first call imports the operations."""
    pytest.importorskip("mcp")
    names = imported_modules("mcp", "--config", world.config_file())

    assert "mcp.server.lowlevel" in names
    assert names & {"structlog", "brainsurgeon.operations.show"} == set()
    rooms = {"brainsurgeon.agents", "brainsurgeon.formats", "brainsurgeon.lookup.sessions"}
    assert names & rooms == set()


def test_mcp_exits_with_the_code_of_a_failed_start(world):
    """`mcp` exits 7 for a damaged store and 2 for a missing configuration file."""
    world.state.mkdir(exist_ok=True)
    (world.state / "store.db").write_bytes(b"no store")

    assert run("mcp", "--config", world.config_file()).returncode == 7
    assert run("mcp", "--config", world.base / "none.toml").returncode == 2


@pytest.mark.parametrize("room", [operations, render])
def test_a_package_lacks_attributes_for_missing_modules(room):
    """`hasattr` is false for a module that is not in the package."""
    assert not hasattr(room, "nothing")
