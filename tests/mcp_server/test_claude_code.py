"""Restore calls of Claude Code by the tool and the shell, and their redaction after the turn."""

import json
import os
import subprocess
import time

import pytest

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
from building.mcp_agent import call_tool
from building.processes import PROGRAM
from building.world import dump

WORLD = ClaudeWorld

OTHER = "22222222-2222-4222-8222-222222222222"
TOOL = "mcp__brainsurgeon__purge_control"
VALUE = "0 " + "naïve 😀 " * 300


class PrunedSession(ClaudeConversation):
    """A session file whose first result is extracted, and the restore call of its agent."""

    def __init__(self, world, session=SESSION):
        super().__init__(session)
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

    def open_call(self, tool, arguments):
        """Open a turn with a call that has no result yet, and return the call's uuid."""
        since = len(self.lines)
        self.user("what did the first one say?")
        call = self.call("toolu_asked", tool, arguments)
        self.append(*self.lines[since:])
        return call

    def close_call(self, content, shown):
        """Append the result of the call and end the turn, an hour ago; return the uuid."""
        since = len(self.lines)
        result = self.result(content, "toolu_asked", shown)
        self.assistant()
        self.append(*self.lines[since:], age=3600)
        return result


@pytest.fixture
def talk(world):
    return PrunedSession(world)


def call(world, scope=None, **arguments):
    failed, text = call_tool(world.settings(), scope or Scope(), arguments)
    assert not failed, text
    return text


def check_redacted(talk, call_uuid, result):
    """Check that the value is restored and the call and its answer redacted; return the call."""
    entries = read_entries(talk.path)
    answer = entries[result]["message"]["content"][0]
    block = entries[call_uuid]["message"]["content"][0]

    assert talk.content(talk.old) == VALUE
    assert entries[talk.old]["toolUseResult"]["stdout"] == VALUE
    assert list(entries[talk.old])[-1] == "_restored"
    assert answer["content"] == f"Restored {talk.old}." or (
        answer["content"] == [{"type": "text", "text": f"Restored {talk.old}."}]
    )
    assert answer["tool_use_id"] == block["id"] == "toolu_asked"
    for uuid in (call_uuid, result):
        assert entries[uuid]["_redacted"] is True
        assert VALUE not in json.dumps(entries[uuid], ensure_ascii=False)
    return block


@pytest.mark.parametrize("blocks", [True, False])
def test_restore_by_the_tool_is_redacted_after_the_turn(world, talk, blocks):
    """The call keeps its id, name and entry; both copies of the answer are redacted."""
    arguments = {"action": "restore", "entry": f"[[extracted-{talk.old}]]"}
    call_uuid = talk.open_call(TOOL, arguments)
    text = call(world, **arguments)
    answer = json.loads(text)

    assert answer["pending"] is True
    assert list(answer["content"]) == ["message.content.0.content"]
    assert answer["content"]["message.content.0.content"] == VALUE
    content = [{"type": "text", "text": text}]
    result = talk.close_call(content if blocks else text, content)
    world.scan()
    block = check_redacted(talk, call_uuid, result)
    assert block["name"] == TOOL
    assert block["input"] == {"action": "restore", "entry": talk.old}
    world.restore_all(pristine=True)
    assert talk.path.read_bytes() == talk.written


def test_restore_by_the_shell_is_redacted_after_the_turn(world, talk):
    """The command stays, and its output is redacted in both places."""
    command = {"command": f"brainsurgeon restore {talk.old} --json"}
    call_uuid = talk.open_call("Bash", command)
    answer = world.restore(talk.old)
    text = json.dumps(sessions.restored_json(answer, with_content=True), ensure_ascii=False)
    note_answer(world.store, answer, text)
    shown = {"stdout": text + "\n", "stderr": "", "interrupted": False, "isImage": False}
    result = talk.close_call(text, shown)
    world.scan()

    block = check_redacted(talk, call_uuid, result)
    assert block["input"] == command
    assert read_entries(talk.path)[result]["toolUseResult"]["stdout"] == f"Restored {talk.old}.\n"
    world.restore_all(pristine=True)
    assert talk.path.read_bytes() == talk.written


def test_answer_saved_to_a_file_is_redacted(world, talk):
    """If Claude Code saved a long answer to a file, its preview and its copy are redacted."""
    arguments = {"action": "restore", "entry": talk.old}
    call_uuid = talk.open_call(TOOL, arguments)
    text = call(world, **arguments)
    note = ("<persisted-output>\nOutput too large (69.6KB). Full output saved to: /t/x.json\n\n"
            f"Preview (first 2KB):\n[\n  {{\n    {json.dumps({'text': text})[1:2000]}\n...\n"
            "</persisted-output>")  # fmt: skip
    result = talk.close_call(note, [{"type": "text", "text": text}])
    world.scan()

    entry = read_entries(talk.path)[result]
    assert entry["toolUseResult"] == [{"type": "text", "text": f"Restored {talk.old}."}]
    assert VALUE[:40] not in json.dumps(entry, ensure_ascii=False)
    assert read_entries(talk.path)[call_uuid]["_redacted"] is True
    assert talk.content(talk.old) == VALUE
    world.restore_all(pristine=True)
    assert talk.path.read_bytes() == talk.written


def test_unwritten_call_is_attributed_by_the_process_record(world, talk, monkeypatch):
    """Before the call is in a file, the record of the process names the calling session."""
    copy = fork_claude_session(talk.path, OTHER)
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(world.home))
    world.record(os.getpid(), session=OTHER, cwd="/w", status="busy")
    before = talk.path.read_bytes()

    answer = json.loads(call(world, action="restore", entry=talk.old))
    assert OTHER in answer["session"]
    assert world.restore(talk.old).session.endswith(OTHER)  # and so it is from its shell
    world.record(os.getpid(), session=OTHER, cwd="/w", status="idle")
    world.scan(named=True, only={str(copy)})
    assert read_entries(copy)[talk.old]["toolUseResult"]["stdout"] == VALUE
    with pytest.raises(NotFoundError):
        world.restore(talk.old)
    assert talk.path.read_bytes() == before


def test_server_waits_for_a_call_to_be_written(world, talk, monkeypatch):
    """Claude Code writes lines late: the call in a fork is attributed to the fork."""
    before = talk.path.read_bytes()
    copy = fork_claude_session(talk.path, OTHER)
    os.utime(copy)
    arguments = {"action": "restore", "entry": talk.old}
    late = ClaudeConversation(OTHER)
    late.last = json.loads(copy.read_bytes().splitlines()[-1])["uuid"]
    late.user("what did the first one say?")
    late.call("toolu_asked", TOOL, arguments)

    sleep = time.sleep

    def write(_seconds):
        monkeypatch.setattr(scope.time, "sleep", sleep)
        with open(copy, "ab") as file:
            file.write(late.bytes())

    monkeypatch.setattr(scope.time, "sleep", write)
    answer = json.loads(call(world, **arguments))

    assert answer["session"].endswith(OTHER)
    assert talk.path.read_bytes() == before


def test_server_does_not_wait_if_one_session_has_the_placeholder(world, talk, monkeypatch):
    """A whole placeholder that only one session has names this session, even without a call."""
    other = ClaudeConversation(OTHER)
    other.user("what did the first one say?")
    world.put(f"{OTHER}.jsonl", other.bytes(), age=0)
    os.utime(talk.path)
    waits = []
    monkeypatch.setattr(scope.time, "sleep", waits.append)

    answer = json.loads(call(world, action="show", entry=f"[[extracted-{talk.old}]]"))

    assert (answer["session"].endswith(SESSION), waits) == (True, [])


@pytest.mark.parametrize(
    "arguments",
    [{"action": "show"}, {"action": "restore"}, {"action": "set_extractable", "value": 9}],
)
def test_sub_agent_means_the_entry_of_its_parent(world, talk, arguments):
    """If an entry is in the parent of a sub-agent and in a fork, the parent's is meant."""
    fork_claude_session(talk.path, OTHER)
    world.scan()
    arguments = {**arguments, "entry": talk.old}
    side = ClaudeConversation(side=True)
    side.user("what did the first one say?")
    side.call("toolu_asked", TOOL, arguments)
    path = world.project / SESSION / "subagents" / "agent-a1.jsonl"
    path.parent.mkdir(parents=True)
    path.write_bytes(side.bytes())

    assert json.loads(call(world, **arguments))["session"].endswith(SESSION)


def test_shell_of_a_new_session_restores_in_the_older_one(world, talk, monkeypatch):
    """If the calling session lacks the entry, the only session with it is meant."""
    fresh = ClaudeConversation(OTHER)
    fresh.user("what did the first one say?")
    fresh.call(arguments={"command": f"brainsurgeon restore {talk.old}"})
    world.put(f"{OTHER}.jsonl", fresh.bytes(), age=1)
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(world.home))
    world.record(os.getpid(), session=OTHER, cwd="/w", status="busy")

    assert world.restore(talk.old).session.endswith(SESSION)


def test_new_session_gets_the_value_of_the_newest_copy(world, talk):
    """After `/clear` the entry is in no file of the caller: the newest copy is meant."""
    fresh = ClaudeConversation("33333333-3333-4333-8333-333333333333")
    os.utime(fork_claude_session(talk.path, OTHER), (time.time() - 60,) * 2)
    os.utime(talk.path, (time.time() - 90,) * 2)
    arguments = {"action": "show", "entry": talk.old}
    fresh.user("what did the first one say?")
    fresh.call("toolu_asked", TOOL, arguments)
    world.put("33333333-3333-4333-8333-333333333333.jsonl", fresh.bytes(), age=1)

    answer = json.loads(call(world, **arguments))
    assert answer["session"].endswith(OTHER)
    assert VALUE in answer["content"].values()


def test_shell_of_claude_code_prints_the_restored_value(world, talk):
    """`brainsurgeon restore` in a session of Claude Code restores and prints the value at once."""
    world.record(os.getpid(), session=OTHER, cwd="/w", status="busy")
    process = subprocess.run(
        [*PROGRAM, "restore", talk.old],
        env={**os.environ, "CLAUDE_CONFIG_DIR": str(world.home),
             "BRAINSURGEON_ROOTS": json.dumps([{"path": str(world.root)}]),
             "BRAINSURGEON_STATE_DIR": str(world.settings().state_dir)},
        capture_output=True, check=True,
    )  # fmt: skip

    assert VALUE in process.stdout.decode()
    assert talk.content(talk.old) == VALUE


def test_agent_dot_limits_the_server_to_the_project(world, talk, monkeypatch, tmp_path):
    """`--agent .` limits the server to the project of its working directory."""
    work = tmp_path / "work"
    work.mkdir()
    project = world.root / "".join(letter if letter.isalnum() else "-" for letter in str(work))
    copy = fork_claude_session(talk.path, OTHER, directory=project)
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(world.home))
    monkeypatch.chdir(work)

    answer = json.loads(call(world, Scope("."), action="get_context", session=OTHER))
    assert answer["session"].endswith(f"/{OTHER}")
    assert copy.exists()
    with pytest.raises(AssertionError, match="Nothing is extracted"):
        call(world, Scope("."), action="get_context", session=SESSION)
