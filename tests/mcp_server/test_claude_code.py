"""Restoring inside a turn of Claude Code: by the tool and by the shell, redacted after the turn."""

import json
import os
import subprocess
import sys
import time

import anyio
import pytest
from mcp import Client

from brainsurgeon import mcp_server
from brainsurgeon.errors import NotFoundError
from brainsurgeon.lookup import scope
from brainsurgeon.lookup.scope import Scope
from brainsurgeon.operations.restore import note_answer
from brainsurgeon.render import sessions
from building.claude import (
    SESSION,
    ClaudeConversation,
    ClaudeWorld,
    fork_claude_session,
    read_entries,
)
from building.world import dump

WORLD = ClaudeWorld

OTHER = "22222222-2222-4222-8222-222222222222"
TOOL = "mcp__brainsurgeon__purge_control"
VALUE = "0 " + "naïve 😀 " * 300


class Talk(ClaudeConversation):
    """A session in a file, of which the older results are extracted, whose agent asks for one."""

    def __init__(self, world, session=SESSION):
        super().__init__(session)
        self.world = world
        self.old = self.turn(VALUE)
        for number in range(1, 5):
            self.turn(f"{number} " + "x" * 900)
        self.path = world.put(f"{session}.jsonl", self.bytes())
        world.scan()
        assert self.content(self.old) == f"[[extracted-{self.old}]]"
        self.written = self.bytes()

    def content(self, uuid):
        return read_entries(self.path)[uuid]["message"]["content"][0]["content"]

    def append(self, *lines, age=0):
        fresh = b"".join(map(dump, lines))
        with open(self.path, "ab") as file:
            file.write(fresh)
        self.written += fresh
        os.utime(self.path, (time.time() - age,) * 2)

    def ask(self, tool, given):
        """Open a turn in which the agent makes a call; nobody has answered it yet."""
        since = len(self.lines)
        self.user("what did the first one say?")
        call = self.call("toolu_asked", tool, given)
        self.append(*self.lines[since:])
        return call

    def answer(self, content, shown):
        """Write the answer down and end the turn, an hour ago."""
        since = len(self.lines)
        result = self.result(content, "toolu_asked", shown)
        self.assistant()
        self.append(*self.lines[since:], age=3600)
        return result


def call(world, scope=None, **arguments):
    async def talk():
        server = mcp_server.server_of(world.settings(), scope or Scope())
        async with Client(server) as client:
            return await client.call_tool("purge_control", arguments)

    result = anyio.run(talk)
    (block,) = result.content
    assert not result.is_error, block.text
    return block.text


def check_redacted(talk, asked, result):
    """Check that the value is back, and that call and answer are short and paired."""
    said = read_entries(talk.path)
    answer = said[result]["message"]["content"][0]
    block = said[asked]["message"]["content"][0]

    assert talk.content(talk.old) == VALUE
    assert said[talk.old]["toolUseResult"]["stdout"] == VALUE
    assert list(said[talk.old])[-1] == "_restored"
    assert answer["content"] == f"Restored {talk.old}." or (
        answer["content"] == [{"type": "text", "text": f"Restored {talk.old}."}]
    )
    assert answer["tool_use_id"] == block["id"] == "toolu_asked"
    assert said[asked]["_redacted"] is said[result]["_redacted"] is True
    for one in (asked, result):
        assert VALUE not in json.dumps(said[one], ensure_ascii=False)
    return block


@pytest.mark.parametrize("blocks", [True, False])
def test_a_restore_by_the_tool_is_redacted_after_the_turn(world, blocks):
    """The call keeps its id, its name and what it asked; both copies of the answer go."""
    talk = Talk(world)
    given = {"action": "restore", "entry": f"[[extracted-{talk.old}]]"}
    asked = talk.ask(TOOL, given)
    text = call(world, **given)
    told = json.loads(text)

    assert told["pending"] is True
    assert list(told["content"]) == ["message.content.0.content"]
    assert told["content"]["message.content.0.content"] == VALUE
    content = [{"type": "text", "text": text}]
    result = talk.answer(content if blocks else text, content)
    world.scan()
    block = check_redacted(talk, asked, result)
    assert block["name"] == TOOL
    assert block["input"] == {"action": "restore", "entry": talk.old}
    world.restore_all(pristine=True)
    assert talk.path.read_bytes() == talk.written


def test_a_restore_by_the_shell_is_redacted_after_the_turn(world):
    """The command stays as it was, and what it printed goes in both places."""
    talk = Talk(world)
    command = {"command": f"brainsurgeon restore {talk.old} --json"}
    asked = talk.ask("Bash", command)
    answer = world.restore(talk.old)
    text = json.dumps(sessions.restored_json(answer, content=True), ensure_ascii=False)
    note_answer(world.store, answer, text)
    shown = {"stdout": text + "\n", "stderr": "", "interrupted": False, "isImage": False}
    result = talk.answer(text, shown)
    world.scan()

    block = check_redacted(talk, asked, result)
    assert block["input"] == command
    assert read_entries(talk.path)[result]["toolUseResult"]["stdout"] == f"Restored {talk.old}.\n"
    world.restore_all(pristine=True)
    assert talk.path.read_bytes() == talk.written


def test_an_answer_saved_to_a_file_is_redacted_where_it_is_shown(world):
    """Claude Code leaves a note with the beginning; the screen has more of it."""
    talk = Talk(world)
    given = {"action": "restore", "entry": talk.old}
    asked = talk.ask(TOOL, given)
    text = call(world, **given)
    note = ("<persisted-output>\nOutput too large (69.6KB). Full output saved to: /t/x.json\n\n"
            f"Preview (first 2KB):\n[\n  {{\n    {json.dumps({'text': text})[1:2000]}\n...\n"
            "</persisted-output>")  # fmt: skip
    result = talk.answer(note, [{"type": "text", "text": text}])
    world.scan()

    said = read_entries(talk.path)[result]
    assert said["toolUseResult"] == [{"type": "text", "text": f"Restored {talk.old}."}]
    assert VALUE[:40] not in json.dumps(said, ensure_ascii=False)
    assert read_entries(talk.path)[asked]["_redacted"] is True
    assert talk.content(talk.old) == VALUE
    world.restore_all(pristine=True)
    assert talk.path.read_bytes() == talk.written


def test_a_call_not_written_down_yet_is_known_by_its_process(world, monkeypatch):
    """Claude Code writes a call down a moment after it was made; its record says who calls."""
    talk = Talk(world)
    copy = fork_claude_session(talk.path, OTHER)
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(world.home))
    world.record(os.getpid(), session=OTHER, cwd="/w", status="busy")
    before = talk.path.read_bytes()

    told = json.loads(call(world, action="restore", entry=talk.old))
    assert OTHER in told["session"]
    assert world.restore(talk.old).session.endswith(OTHER)  # and so it is from its shell
    world.record(os.getpid(), session=OTHER, cwd="/w", status="idle")
    world.scan(named=True, only={str(copy)})
    assert read_entries(copy)[talk.old]["toolUseResult"]["stdout"] == VALUE
    with pytest.raises(NotFoundError):
        world.restore(talk.old)
    assert talk.path.read_bytes() == before


def test_a_call_that_is_written_down_late_is_waited_for(world, monkeypatch):
    """Claude Code collects its lines: the fork that calls is meant, not the session it is of."""
    talk = Talk(world)
    before = talk.path.read_bytes()
    copy = fork_claude_session(talk.path, OTHER)
    os.utime(copy)
    given = {"action": "restore", "entry": talk.old}
    late = ClaudeConversation(OTHER)
    late.last = json.loads(copy.read_bytes().splitlines()[-1])["uuid"]
    late.user("what did the first one say?")
    late.call("toolu_asked", TOOL, given)

    sleep = time.sleep

    def write(_seconds):
        monkeypatch.setattr(scope.time, "sleep", sleep)
        with open(copy, "ab") as file:
            file.write(late.bytes())

    monkeypatch.setattr(scope.time, "sleep", write)
    told = json.loads(call(world, **given))

    assert told["session"].endswith(OTHER)
    assert talk.path.read_bytes() == before


@pytest.mark.parametrize(
    "given", [{"action": "show"}, {"action": "restore"}, {"action": "set_extractable", "value": 9}]
)
def test_a_sub_agent_gets_what_its_session_holds(world, given):
    """Where an entry stands in its parent and a fork of that, its parent is meant, and named."""
    talk = Talk(world)
    fork_claude_session(talk.path, OTHER)
    world.scan()
    given = {**given, "entry": talk.old}
    side = ClaudeConversation(side=True)
    side.user("what did the first one say?")
    side.call("toolu_asked", TOOL, given)
    path = world.project / SESSION / "subagents" / "agent-a1.jsonl"
    path.parent.mkdir(parents=True)
    path.write_bytes(side.bytes())

    assert json.loads(call(world, **given))["session"].endswith(SESSION)


def test_a_shell_of_a_new_session_means_the_one_that_holds_it(world, monkeypatch):
    """Its own lines only name the entry: the one session that holds it is meant."""
    talk, anew = Talk(world), ClaudeConversation(OTHER)
    anew.user("what did the first one say?")
    anew.call(given={"command": f"brainsurgeon restore {talk.old}"})
    world.put(f"{OTHER}.jsonl", anew.bytes(), age=1)
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(world.home))
    world.record(os.getpid(), session=OTHER, cwd="/w", status="busy")

    assert world.restore(talk.old).session.endswith(SESSION)


def test_a_new_session_gets_what_an_older_one_and_its_fork_hold(world):
    """After `/clear` the entry stands in no file of the caller; the newest copy is meant."""
    talk, anew = Talk(world), ClaudeConversation("33333333-3333-4333-8333-333333333333")
    os.utime(fork_claude_session(talk.path, OTHER), (time.time() - 60,) * 2)
    os.utime(talk.path, (time.time() - 90,) * 2)
    given = {"action": "show", "entry": talk.old}
    anew.user("what did the first one say?")
    anew.call("toolu_asked", TOOL, given)
    world.put("33333333-3333-4333-8333-333333333333.jsonl", anew.bytes(), age=1)

    told = json.loads(call(world, **given))
    assert told["session"].endswith(OTHER)
    assert VALUE in told["content"].values()


def test_a_shell_of_claude_code_gets_the_restored_value(world):
    """The session that asks may be another one, and its process never reads a file again."""
    talk = Talk(world)
    world.record(os.getpid(), session=OTHER, cwd="/w", status="busy")
    done = subprocess.run(
        [sys.executable, "-m", "brainsurgeon", "restore", talk.old],
        env={**os.environ, "CLAUDE_CONFIG_DIR": str(world.home),
             "BRAINSURGEON_ROOTS": json.dumps([{"path": str(world.root)}]),
             "BRAINSURGEON_STATE_DIR": str(world.settings().state_dir)},
        capture_output=True, check=True,
    )  # fmt: skip

    assert VALUE in done.stdout.decode()
    assert talk.content(talk.old) == VALUE


def test_a_server_started_in_a_project_sees_that_project_alone(world, monkeypatch, tmp_path):
    """`--agent .` means the project of the directory that the server is started in."""
    talk = Talk(world)
    work = tmp_path / "work"
    work.mkdir()
    project = world.root / "".join(c if c.isalnum() else "-" for c in str(work))
    copy = fork_claude_session(talk.path, OTHER, directory=project)
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(world.home))
    monkeypatch.chdir(work)

    told = json.loads(call(world, Scope("."), action="get_context", session=OTHER))
    assert told["session"].endswith(f"/{OTHER}")
    assert copy.exists()
    with pytest.raises(AssertionError, match="Nothing is extracted"):
        call(world, Scope("."), action="get_context", session=SESSION)
