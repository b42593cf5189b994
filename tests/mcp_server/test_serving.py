"""The MCP server as a process on standard input and output."""

import json
import signal
import subprocess
import sys

import anyio
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

from building.mcp_agent import SESSION, VALUE, agent_after_scan


def test_server_answers_the_sdk_client_over_stdio(world):
    """The server lists one tool and answers its calls; the description names no conversation."""
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
                entry = {"entry": "[[extracted-00000003]]", "session": SESSION}
                restored = [
                    await client.call_tool(name, entry) for name in ("restore", "restore_remote")
                ]
                return tools, shown, unknown, restored, client.instructions

        tools, shown, unknown, restored, instructions = anyio.run(talk)
        errors.seek(0)
        assert errors.read() == ""

    assert [tool.name for tool in tools] == ["purge_control"]
    assert tools[0].input_schema["properties"]["action"]["enum"] == [
        "get_context", "restore", "show", "set_extractable", "done", "search", "evidence"
    ]  # fmt: skip
    assert tools[0].description.index("show:") < tools[0].description.index("restore:")
    assert json.loads(shown.content[0].text)["content"] == {"message.content.0.text": VALUE}
    assert unknown.is_error
    assert [json.loads(result.content[0].text)["restored"] for result in restored] == [True, True]
    hints = tools[0].annotations
    for hint in (hints.read_only_hint, hints.destructive_hint, hints.open_world_hint):
        assert hint is False
    assert tools[0].title
    assert "[[extracted-" in instructions
    assert "purge_control" in instructions
    assert "this conversation" not in tools[0].description + instructions


def test_server_exits_at_the_end_of_its_input(world):
    """When standard input ends the process exits with 0 and has printed nothing."""
    agent_after_scan(world)
    process = subprocess.run(
        [sys.executable, "-m", "brainsurgeon", "mcp", "--agent", "main",
         "--config", str(world.config_file())],
        input=b"", capture_output=True, check=False, timeout=30,
    )  # fmt: skip

    assert (process.returncode, process.stdout, process.stderr) == (0, b"", b"")


def test_first_answer_loads_the_modules_of_all_actions():
    """An upgrade beside a running server must not mix modules of two versions in later calls."""
    words = "import sys, brainsurgeon.mcp_server.answering; print(*sys.modules)"
    process = subprocess.run([sys.executable, "-c", words], capture_output=True, check=True)
    package = "brainsurgeon.operations"
    actions = ("archive", "evidence", "restore", "sessions", "set_extractable", "show")

    assert {f"{package}.{action}" for action in actions} <= {*process.stdout.decode().split()}


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_ends_the_server_although_its_input_is_open(world, number):
    """The server does not wait for the end of its input, which a thread still reads."""
    words = sys.executable, "-m", "brainsurgeon", "mcp", "--config", str(world.config_file())
    ping = b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}\n'
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        process.stdin.write(ping)
        process.stdin.flush()
        process.stdout.readline()  # now it reads its input
        process.send_signal(number)
        try:
            assert process.wait(timeout=20) == 128 + number
        finally:
            process.kill()
