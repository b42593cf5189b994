"""The server as a process, spoken to over its standard input and output."""

import json
import subprocess
import sys

import anyio
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

from building.mcp_agent import SESSION, VALUE, agent_after_scan

# --- the server ----------------------------------------------------------------------------------


def test_the_server_answers_the_sdks_client_over_stdio(world):
    """As a process on stdin and stdout it lists one tool and gives the value it is asked for."""
    agent_after_scan(world)
    server = StdioServerParameters(
        command=sys.executable,
        args=["-m", "brainsurgeon", "mcp", "--agent", "main", "--config", str(world.config_file())],
    )
    with open(world.base / "stderr", "w+") as errors:

        async def talk():
            async with Client(stdio_client(server, errlog=errors)) as client:
                tools = (await client.list_tools()).tools
                shown = await client.call_tool(
                    "purge_control", {"action": "show", "entry": "00000003", "session": SESSION}
                )
                unknown = await client.call_tool("another_tool", {})
                asked = {"entry": "[[extracted-00000003]]", "session": SESSION}
                also = [
                    await client.call_tool(name, asked) for name in ("restore", "restore_remote")
                ]
                return tools, shown, unknown, also, client.instructions

        tools, shown, unknown, also, said = anyio.run(talk)
        errors.seek(0)
        assert errors.read() == ""

    assert [tool.name for tool in tools] == ["purge_control"]
    assert tools[0].input_schema["properties"]["action"]["enum"] == [
        "get_context", "restore", "show", "set_extractable", "done", "search", "evidence"
    ]  # fmt: skip
    assert tools[0].description.index("show:") < tools[0].description.index("restore:")
    assert json.loads(shown.content[0].text)["content"] == {"message.content.0.text": VALUE}
    assert unknown.is_error
    assert [json.loads(one.content[0].text)["restored"] for one in also] == [True, True]
    hints = tools[0].annotations
    assert (hints.read_only_hint, hints.destructive_hint, hints.open_world_hint) == (
        False, False, False,
    )  # fmt: skip
    assert tools[0].title
    assert "[[extracted-" in said
    assert "purge_control" in said
    assert "this conversation" not in tools[0].description + said


def test_the_server_ends_when_its_client_goes(world, start):
    """When stdin ends the process ends with 0, and has printed nothing but the protocol."""
    agent_after_scan(world)
    process = start("mcp", "--agent", "main")
    said, errors = process.communicate(b"", timeout=30)

    assert process.returncode == 0
    assert (said, errors) == (b"", b"")


@pytest.fixture
def start(world):
    processes = []

    def begin(*words):
        process = subprocess.Popen(
            [sys.executable, "-m", "brainsurgeon", *words, "--config", str(world.config_file())],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        processes.append(process)
        return process

    yield begin
    for process in processes:
        process.kill()
        process.communicate()
