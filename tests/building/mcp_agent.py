"""An agent with a session file, which calls the MCP tool."""

import json
import os
import time

import anyio
from mcp import Client

from brainsurgeon import mcp_server
from brainsurgeon.lookup.scope import Scope
from building.world import Conversation, dump

SESSION = "11111111-0000-4000-8000-000000000001"
OTHER = "22222222-0000-4000-8000-000000000002"
VALUE = "the first result: " + "naïve 😀 " * 300


def call_tool(settings, scope, arguments):
    """Call the tool through the SDK's client; return whether the call failed, and the text."""

    async def call():
        async with Client(mcp_server.server_of(settings, scope)) as client:
            return await client.call_tool("purge_control", arguments)

    result = anyio.run(call)
    (block,) = result.content
    return result.is_error, block.text


class Agent:
    """An agent with a session file, which calls the tool through the SDK's client."""

    def __init__(self, world, agent="main", session=SESSION):
        self.world, self.conversation = world, Conversation(session)
        self.path = world.root / agent / "sessions" / f"{session}.jsonl"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.scope = Scope(agent)
        self.settings = {}
        self.written = b""

    def write(self, age=3600):
        self.written = self.conversation.bytes()
        self.path.write_bytes(self.written)
        os.utime(self.path, (time.time() - age,) * 2)
        return self

    def append(self, *, since):
        lines = b"".join(dump(line) for line in self.conversation.lines[since:])
        with open(self.path, "ab") as file:
            file.write(lines)
        self.written += lines

    def entries(self):
        return {
            entry.get("id"): entry for entry in map(json.loads, self.path.read_bytes().splitlines())
        }

    def call(self, **arguments):
        return call_tool(self.world.settings(**self.settings), self.scope, arguments)

    def answer(self, **arguments):
        failed, text = self.call(**arguments)
        assert not failed, text
        return json.loads(text)

    def error(self, **arguments):
        failed, text = self.call(**arguments)
        assert failed, text
        return text


def agent_after_scan(world, name="main", session=SESSION, text=VALUE):
    """Return an agent with a session of four turns whose older results are extracted."""
    agent = Agent(world, name, session)
    agent.conversation.turn(text)
    for number in range(3):
        agent.conversation.turn(f"result {number}: " + "y" * 900)
    agent.write()
    world.scan()
    assert b"[[extracted-00000003" in agent.path.read_bytes()
    return agent


def append_open_call(agent, arguments, name="brainsurgeon__purge_control"):
    """Append a turn in which the agent makes this call, without an answer."""
    agent.conversation.lines = list(map(json.loads, agent.path.read_bytes().splitlines()))
    before = len(agent.conversation.lines)
    agent.conversation.user("what did the first one say?", ident=f"ask{before}")
    agent.conversation.call(name, arguments, call=f"call_{before}", ident=f"call{before}")
    agent.append(since=before)
    return before


def append_answer(agent, before, text):
    """Append the answer of the call and the end of the turn, an hour ago."""
    since = len(agent.conversation.lines)
    agent.conversation.result(text, "brainsurgeon__purge_control", call=f"call_{before}",
                      details={"mcpServer": "brainsurgeon"}, ident=f"answer{before}")  # fmt: skip
    agent.conversation.assistant("it said so", ident=f"end{before}")
    agent.append(since=since)
    os.utime(agent.path, (time.time() - 3600,) * 2)


def file_identity(path):
    """Return the file status that OpenClaw compares during a run."""
    status = os.stat(path)
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def agent_with_two_values(world, details=VALUE):
    """Return an agent whose extracted result has a second value in its details."""
    agent = Agent(world)
    agent.conversation.user()
    agent.conversation.call()
    agent.conversation.result(VALUE, details={"aggregated": details})
    agent.conversation.assistant()
    for _ in range(3):
        agent.conversation.turn("short")
    agent.write()
    world.scan()
    return agent
