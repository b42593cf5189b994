"""A conversation in a file, and the tool that its agent calls."""

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


class Agent:
    """A conversation in a file, and the tool that its agent calls through the SDK's client."""

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
        said = b"".join(dump(line) for line in self.conversation.lines[since:])
        with open(self.path, "ab") as file:
            file.write(said)
        self.written += said

    def entries(self):
        return {one.get("id"): one for one in map(json.loads, self.path.read_bytes().splitlines())}

    def call(self, **arguments):
        async def talk():
            server = mcp_server.server_of(self.world.settings(**self.settings), self.scope)
            async with Client(server) as client:
                return await client.call_tool("purge_control", arguments)

        result = anyio.run(talk)
        (block,) = result.content
        return result.is_error, block.text

    def answer(self, **arguments):
        failed, text = self.call(**arguments)
        assert not failed, text
        return json.loads(text)

    def error(self, **arguments):
        failed, text = self.call(**arguments)
        assert failed, text
        return text


def agent_after_scan(world, agent="main", session=SESSION, text=VALUE):
    """Give an agent with a session of four turns, of which the older results were extracted."""
    one = Agent(world, agent, session)
    one.conversation.turn(text)
    for number in range(3):
        one.conversation.turn(f"result {number}: " + "y" * 900)
    one.write()
    world.scan()
    assert b"[[extracted-00000003" in one.path.read_bytes()
    return one


def append_open_call(agent, arguments, name="brainsurgeon__purge_control"):
    """Let the agent open a turn in which it makes this call; nobody has answered it yet."""
    agent.conversation.lines = list(map(json.loads, agent.path.read_bytes().splitlines()))
    before = len(agent.conversation.lines)
    agent.conversation.user("what did the first one say?", ident=f"ask{before}")
    agent.conversation.call(name, arguments, call=f"call_{before}", ident=f"call{before}")
    agent.append(since=before)
    return before


def append_answer(agent, before, text):
    """Let the host write the answer down and the agent end its turn, an hour ago."""
    since = len(agent.conversation.lines)
    agent.conversation.result(text, "brainsurgeon__purge_control", call=f"call_{before}",
                      details={"mcpServer": "brainsurgeon"}, ident=f"answer{before}")  # fmt: skip
    agent.conversation.assistant("it said so", ident=f"end{before}")
    agent.append(since=since)
    os.utime(agent.path, (time.time() - 3600,) * 2)


def file_identity(path):
    """Give what OpenClaw's fence compares during a run."""
    found = os.stat(path)
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def agent_with_two_values(world, again=VALUE):
    """Give an agent whose cut result has a second value, in its details."""
    agent = Agent(world)
    agent.conversation.user()
    agent.conversation.call()
    agent.conversation.result(VALUE, details={"aggregated": again})
    agent.conversation.assistant()
    for _ in range(3):
        agent.conversation.turn("short")
    agent.write()
    world.scan()
    return agent
