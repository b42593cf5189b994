"""The agent's own hand: purge_control, spoken to by the official SDK's own client."""

import json
import os
import sqlite3
import subprocess
import sys
import time

import anyio
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

from brainsurgeon import mcp_server
from brainsurgeon.mcp_server.answering import NOT_HERE
from brainsurgeon.operations.scope import Scope
from brainsurgeon.render import paging
from conftest import Conversation, dump

SESSION = "11111111-0000-4000-8000-000000000001"
OTHER = "22222222-0000-4000-8000-000000000002"
VALUE = "the first result: " + "naïve 😀 " * 300
CALL = {"action": "restore", "entry": "00000003"}


class Agent:
    """A conversation in a file, and the tool that its agent calls through the SDK's client."""

    def __init__(self, world, agent="main", session=SESSION):
        self.world, self.talk = world, Conversation(session)
        self.path = world.root / agent / "sessions" / f"{session}.jsonl"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.scope = Scope(agent)
        self.settings = {}
        self.written = b""

    def write(self, age=3600):
        """Write the conversation as it is now, last changed `age` seconds ago."""
        self.written = self.talk.bytes()
        self.path.write_bytes(self.written)
        os.utime(self.path, (time.time() - age,) * 2)
        return self

    def append(self, *, since):
        """Append what was said since so many lines, as an agent does."""
        said = b"".join(dump(line) for line in self.talk.lines[since:])
        with open(self.path, "ab") as file:
            file.write(said)
        self.written += said

    def entries(self):
        """Read the session."""
        return {one.get("id"): one for one in map(json.loads, self.path.read_bytes().splitlines())}

    def call(self, **arguments):
        """Call the tool; give whether it is an error, and the text."""

        async def talk():
            server = mcp_server.server_of(self.world.settings(**self.settings), self.scope)
            async with Client(server) as client:
                return await client.call_tool("purge_control", arguments)

        result = anyio.run(talk)
        (block,) = result.content
        return result.is_error, block.text

    def told(self, **arguments):
        """Call the tool and read its answer, which is no error."""
        failed, text = self.call(**arguments)
        assert not failed, text
        return json.loads(text)

    def refused(self, **arguments):
        """Call the tool and give the words of its error."""
        failed, text = self.call(**arguments)
        assert failed, text
        return text


def pruned(world, agent="main", session=SESSION, text=VALUE):
    """Give an agent with a session of four turns, of which the older results were cut."""
    one = Agent(world, agent, session)
    one.talk.turn(text)
    for number in range(3):
        one.talk.turn(f"result {number}: " + "y" * 900)
    one.write()
    world.scan()
    assert b"[[extracted-00000003]]" in one.path.read_bytes()
    return one


def asking(agent, arguments, name="brainsurgeon__purge_control"):
    """Let the agent open a turn in which it makes this call; nobody has answered it yet."""
    agent.talk.lines = list(map(json.loads, agent.path.read_bytes().splitlines()))
    before = len(agent.talk.lines)
    agent.talk.user("what did the first one say?", ident=f"ask{before}")
    agent.talk.call(name, arguments, call=f"call_{before}", ident=f"call{before}")
    agent.append(since=before)
    return before


def answered(agent, before, text):
    """Let the host write the answer down and the agent end its turn, an hour ago."""
    since = len(agent.talk.lines)
    agent.talk.result(text, "brainsurgeon__purge_control", call=f"call_{before}",
                      details={"mcpServer": "brainsurgeon"}, ident=f"answer{before}")  # fmt: skip
    agent.talk.assistant("it said so", ident=f"end{before}")
    agent.append(since=since)
    os.utime(agent.path, (time.time() - 3600,) * 2)


def state(path):
    """Give what OpenClaw's fence compares during a run."""
    found = os.stat(path)
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


# --- the server ----------------------------------------------------------------------------------


def test_the_server_answers_the_sdks_client_over_stdio(world):
    """As a process on stdin and stdout it lists one tool and gives the value it is asked for."""
    pruned(world)
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
                return tools, shown, unknown

        tools, shown, unknown = anyio.run(talk)
        errors.seek(0)
        assert errors.read() == ""

    assert [tool.name for tool in tools] == ["purge_control"]
    assert tools[0].input_schema["properties"]["action"]["enum"] == [
        "get_context", "restore", "show", "set_extractable"
    ]  # fmt: skip
    assert tools[0].description.index("show:") < tools[0].description.index("restore:")
    assert json.loads(shown.content[0].text)["content"] == {"message.content.0.text": VALUE}
    assert unknown.is_error


def test_the_server_ends_when_its_client_goes(world, start):
    """When stdin ends the process ends with 0, and has printed nothing but the protocol."""
    pruned(world)
    process = start("mcp", "--agent", "main")
    said, errors = process.communicate(b"", timeout=30)

    assert process.returncode == 0
    assert (said, errors) == (b"", b"")


@pytest.fixture
def start(world):
    """Give a way to start a command of ours."""
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


# --- the actions ---------------------------------------------------------------------------------


def test_show_gives_the_value_and_touches_nothing(world):
    """`show` answers with the value under its path; file and store stay as they are."""
    agent = pruned(world)
    before = state(agent.path)

    told = agent.told(action="show", entry="[[extracted-00000003]]", session=SESSION)

    assert told == {
        "entry_id": "00000003", "session": f"main/{SESSION}",
        "content": {"message.content.0.text": VALUE},
    }  # fmt: skip
    assert state(agent.path) == before


def test_get_context_lists_what_is_extracted_and_what_is_next(world):
    """`get_context` says id, kind, tool, path, size, age, expiry and beginning of each value."""
    agent = pruned(world)
    before = state(agent.path)

    told = agent.told(action="get_context", session=SESSION)

    assert told["session"] == f"main/{SESSION}"
    assert told["state"] == "settled"
    assert told["extracted_total"] == len(told["extracted"]) == 3
    oldest = told["extracted"][-1]
    assert oldest["age_seconds"] < 600
    assert oldest["expires_at"] > oldest["extracted_at"]
    assert {key: oldest[key] for key in ("entry_id", "kind", "tool", "path")} == {
        "entry_id": "00000003", "kind": "tool_result",
        "tool": "exec", "path": "message.content.0.text",
    }  # fmt: skip
    assert oldest["chars"] == len(VALUE)
    assert oldest["size_bytes"] == len(json.dumps(VALUE, ensure_ascii=False).encode())
    assert oldest["preview"].startswith("the first result: naïve 😀")
    assert len(oldest["preview"]) <= 80
    assert told["next"] == []
    assert state(agent.path) == before


def test_get_context_is_given_in_pages(world):
    """`limit` and `offset` page through the list, the newest first, and say where to go on."""
    agent = pruned(world)
    whole = agent.told(action="get_context", session=SESSION)["extracted"]

    first = agent.told(action="get_context", session=SESSION, limit=2)
    second = agent.told(action="get_context", session=SESSION, limit=2, offset=2)

    assert first["next_offset"] == 2
    assert second["next_offset"] is None
    assert first["extracted_total"] == 3
    assert [one["entry_id"] for one in first["extracted"] + second["extracted"]] == [
        one["entry_id"] for one in whole
    ]


def test_what_will_be_next_is_told(world):
    """What the next scan would take is listed with its reason before it goes."""
    agent = Agent(world)
    for number in range(3):
        agent.talk.turn(f"{number}" + "z" * 900)
    agent.write()
    world.scan(enabled=False)

    told = agent.told(action="get_context", session=SESSION)

    assert told["extracted"] == []
    assert [one["entry_id"] for one in told["next"]] == ["00000003", "00000007"]
    assert told["next_total"] == 2
    assert "tool_result" in told["next"][0]["reason"]
    assert told["next_gain_bytes"] > 1500


def test_set_extractable_pins_an_entry_from_its_call_on(world):
    """A pin asked for in the middle of a turn is noted, binds, and is set when the turn is over."""
    agent = pruned(world)
    call = {"action": "set_extractable", "entry": "0000000b", "value": False}
    before = asking(agent, call)
    untouched = state(agent.path)

    told = agent.told(**call)

    assert told["set"] is True
    assert told["pending"] is True
    assert told["extractable"] is False
    assert state(agent.path) == untouched
    answered(agent, before, json.dumps(told))
    world.scan(keep_recent=0)
    assert agent.entries()["0000000b"]["_extractable"] is False


@pytest.mark.parametrize(
    ("given", "meant"), [(True, True), ("false", False), ("7", 7), (0, 0), ("TRUE", True)]
)
def test_what_models_write_for_a_value_is_understood(world, given, meant):
    """Booleans and numbers are taken as such and as words; 0 is a number and no `false`."""
    agent = pruned(world)

    told = agent.told(action="set_extractable", entry_id="0000000f", value=given, session=SESSION)

    assert told["extractable"] == meant
    assert type(told["extractable"]) is type(meant)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, "action"),
        ({"action": "purge"}, "action"),
        ({"action": "show"}, "entry"),
        ({"action": "restore", "entry": "00000003", "keys": 7}, "keys"),
        ({"action": "show", "entry": "00000003", "keys": ["nothing"]}, "there are message.content"),
        ({"action": "show", "entry": "00000003", "sesion": "x"}, "sesion"),
        ({"action": "show", "entry": "00000003", "limit": 0}, "limit"),
        ({"action": "show", "entry": "00000003", "offset": -1}, "offset"),
        ({"action": "set_extractable", "entry": "00000003"}, "value"),
        ({"action": "set_extractable", "entry": "00000003", "value": -1}, "value"),
        ({"action": "set_extractable", "entry": "00000003", "value": 1.5}, "value"),
        ({"action": "set_extractable", "entry": "00000003", "value": "perhaps"}, "value"),
    ],
)
def test_wrong_arguments_are_told_and_change_nothing(world, arguments, words):
    """What is wrong is named, as an error of the tool; session and store stay as they are."""
    agent = pruned(world, session=SESSION)
    agent.scope = Scope("main", SESSION)
    before = state(agent.path)

    assert words in agent.refused(**arguments)

    assert state(agent.path) == before
    assert world.store.connection.execute("SELECT count(*) FROM wishes").fetchone() == (0,)


def test_everything_that_is_wrong_is_told_at_once(world):
    """Two wrong arguments make one error that names both."""
    told = Agent(world).refused(action="purge", limit="many")

    assert "action" in told
    assert "limit" in told


@pytest.mark.parametrize(
    "keys", [["content"], "content", "content, nothing", ["message.content.0.text"]]
)
def test_keys_come_as_a_list_or_with_commas(world, keys):
    """`keys` is a list or words with commas between; a whole path or a name in it will do."""
    agent = pruned(world)

    told = agent.told(action="show", entry="00000003", keys=keys, session=SESSION)

    assert list(told["content"]) == ["message.content.0.text"]


def test_arguments_given_as_nothing_are_not_given(world):
    """Hosts that name every argument may give null for what is not meant."""
    agent = pruned(world)

    told = agent.told(
        action="show", entry="00000003", entry_id=None, session=SESSION, keys=None, value=None,
        limit=None, offset=None,
    )  # fmt: skip

    assert told["content"] == {"message.content.0.text": VALUE}


def test_a_bug_of_ours_is_told_without_what_it_was_about(world, monkeypatch):
    """An exception that nobody expected becomes an error of the tool that quotes nothing."""
    agent = pruned(world)

    def breaks(*_):
        raise ValueError(VALUE)

    monkeypatch.setattr(paging, "fitted", breaks)

    words = agent.refused(action="show", entry="00000003", session=SESSION)

    assert words.startswith("unexpected: ValueError at test_mcp.py:")
    assert VALUE[:20] not in words


# --- pages ---------------------------------------------------------------------------------------


def test_a_value_beyond_the_limit_comes_as_its_two_ends(world):
    """Head and tail are given with the range of bytes left out between them."""
    agent = pruned(world)
    data = VALUE.encode()

    told = agent.told(action="show", entry="00000003", session=SESSION, limit=101)
    ends = told["content"]["message.content.0.text"]

    start, end = ends["left_out"]
    assert ends["head"].encode() == data[:start]
    assert ends["tail"].encode() == data[end:]
    assert ends["size"] == len(data)
    assert start + (len(data) - end) <= 101


@pytest.mark.parametrize("limit", [1, 7, 500, 10**6])
def test_pages_put_together_are_the_value(world, limit):
    """`offset` and `limit` give every byte of a value exactly once, and no half characters."""
    agent = pruned(world, text="ä😀b" * 200)
    text, offset, pages = "", 0, 0
    while offset is not None:
        told = agent.told(
            action="show", entry="00000003", session=SESSION, limit=limit, offset=offset
        )
        page = told["content"]["message.content.0.text"]
        text += page["text"]
        assert page["range"][0] == offset
        assert page["next_offset"] is None or page["next_offset"] > offset
        offset, pages = page["next_offset"], pages + 1
        if pages == 20:  # enough of the tiny pages
            break

    assert text == "ä😀b" * 200 or (pages == 20 and ("ä😀b" * 200).startswith(text))


def said_twice(world, again=VALUE):
    """Give an agent whose cut result has a second value, in its details."""
    agent = Agent(world)
    agent.talk.user()
    agent.talk.call()
    agent.talk.result(VALUE, details={"aggregated": again})
    agent.talk.assistant()
    for _ in range(3):
        agent.talk.turn("short")
    agent.write()
    world.scan()
    return agent


def test_a_restore_in_pages_wants_one_value(world):
    """An offset for several values at once is refused, and nothing is asked for."""
    agent = said_twice(world)

    before = state(agent.path)
    told = agent.refused(action="restore", entry="00000003", session=SESSION, offset=0)

    assert "message.details.aggregated" in told
    assert state(agent.path) == before
    assert world.store.connection.execute("SELECT count(*) FROM wishes").fetchone() == (0,)


def test_a_copy_that_does_not_fit_is_given_as_the_path_of_its_twin(world):
    """The same text twice in an entry does not fill the context twice."""
    agent = said_twice(world)

    limit = len(VALUE.encode()) + 10
    told = agent.told(action="show", entry="00000003", session=SESSION, limit=limit)

    assert told["content"] == {
        "message.content.0.text": VALUE,
        "message.details.aggregated": {"same_as": "message.content.0.text"},
    }


def test_half_a_character_survives_the_way(world):
    """A lone surrogate, which truncated output contains, arrives as what it is."""
    agent = Agent(world)
    value = "cut in two \ud83d" + "x" * 900
    agent.talk.turn("PLACE")
    for _ in range(3):
        agent.talk.turn("short")
    agent.path.write_bytes(agent.talk.bytes().replace(b'"PLACE"', json.dumps(value).encode()))
    os.utime(agent.path, (time.time() - 3600,) * 2)
    world.scan()

    told = agent.told(action="show", entry="00000003", session=SESSION)

    assert told["content"] == {"message.content.0.text": value}


# --- whose it is ---------------------------------------------------------------------------------


def expired(world, agent):
    """Let retention have deleted what the agent's session held."""
    with world.store.transaction() as connection:
        connection.execute(
            "UPDATE extractions SET blob_id = NULL, state = 'expired', expired_at = 1.0,"
            " expired_why = 'test' WHERE stub = '[[extracted-00000003]]'"
        )


def test_unknown_foreign_and_expired_are_one_answer(world):
    """An id of nobody, of another agent and of an expired value, and unknown sessions: one text."""
    agent = pruned(world)
    foreign = Agent(world, "other", OTHER)
    foreign.talk.turn("short")
    for number in range(8):
        foreign.talk.turn(f"secret of the other {number} " * 50)
    foreign.write()
    world.scan()
    foreign_only = "0000001f"
    assert f"[[extracted-{foreign_only}]]".encode() in foreign.path.read_bytes()
    before = foreign.path.read_bytes()
    answers = {
        agent.refused(action="show", entry="ffffffff", session=SESSION),
        agent.refused(action="show", entry=foreign_only, session=SESSION),
        agent.refused(action="restore", entry=foreign_only, session=SESSION),
        agent.refused(action="set_extractable", entry=foreign_only, value=True, session=SESSION),
        agent.refused(action="show", entry="00000003", session=OTHER),
        agent.refused(action="show", entry="00000003", session=f"other/{OTHER}"),
        agent.refused(action="show", entry="00000003", session=str(foreign.path)),
        agent.refused(action="get_context", session="nobody"),
        agent.refused(action="get_context", session=OTHER),
        agent.refused(action="set_extractable", entry="ffffffff", value=False, session=SESSION),
        agent.refused(action="set_extractable", entry="00000003", value=False, session=OTHER),
    }
    expired(world, agent)
    for action in ("show", "restore"):
        answers.add(agent.refused(action=action, entry="00000003", session=SESSION))

    assert answers == {NOT_HERE}
    assert foreign.path.read_bytes() == before
    assert world.store.connection.execute("SELECT count(*) FROM wishes").fetchone() == (0,)


def test_two_agents_never_see_each_other(world):
    """Servers of two agents with the same entry ids give and list their own values only."""
    one = pruned(world, "main", SESSION, text="of the first " * 100)
    two = pruned(world, "other", OTHER, text="of the second " * 100)

    for agent, own, foreign in ((one, SESSION, OTHER), (two, OTHER, SESSION)):
        told = agent.told(action="show", entry="00000003", session=own)
        assert ("first" in str(told)) == (agent is one)
        words = agent.refused(action="show", entry="00000003")
        assert own in words
        assert foreign not in words
        assert foreign not in str(agent.told(action="get_context", session=own))


def test_one_agent_name_below_two_roots_is_never_mixed(world):
    """Where two agents have the name, nothing is told until the directory says which."""
    one = pruned(world, "main", SESSION, text="of the first " * 100)
    elsewhere = world.base / "elsewhere"
    elsewhere.mkdir()
    roots = [{"path": str(world.root)}, {"path": str(elsewhere)}]
    two = Agent(world, session=OTHER)
    two.path = elsewhere / "main" / "sessions" / f"{OTHER}.jsonl"
    two.path.parent.mkdir(parents=True)
    two.talk.turn("of the second " * 100)
    two.talk.turn()
    two.write()
    world.scan(roots=roots)
    one.settings = {"roots": roots}

    assert one.refused(action="show", entry="00000003", session=SESSION) == NOT_HERE
    one.scope = Scope(str(world.root / "main"))
    assert "first" in str(one.told(action="show", entry="00000003", session=SESSION))
    assert one.refused(action="show", entry="00000003", session=OTHER) == NOT_HERE


def test_a_server_for_one_session_gives_only_that(world):
    """With --session the same entry id means that session, and no other can be named."""
    pruned(world, "main", SESSION, text="of the first " * 100)
    two = pruned(world, "main", OTHER, text="of the second " * 100)
    two.scope = Scope("main", str(two.path))

    assert "second" in str(two.told(action="show", entry="00000003"))
    assert "second" in str(two.told(action="show", entry="00000003", session=OTHER[:4]))
    assert two.refused(action="show", entry="00000003", session=SESSION) == NOT_HERE


def test_the_session_is_the_one_whose_open_turn_holds_the_call(world):
    """With the same entry id in two sessions, the one that is calling is meant."""
    pruned(world, "main", SESSION, text="of the first " * 100)
    two = pruned(world, "main", OTHER, text="of the second " * 100)
    call = {"action": "show", "entry": "00000003"}

    assert SESSION in two.refused(**call)
    asking(two, call)

    assert "second" in str(two.told(**call))


def test_without_a_session_that_can_be_told_the_candidates_are_listed(world):
    """Nobody calls, or two make the same call at once: the sessions are listed, nothing is done."""
    one = pruned(world, "main", SESSION)
    two = pruned(world, "main", OTHER)
    call = {"action": "restore", "entry": "00000003"}
    for agent in (one, two):
        asking(agent, call)

    words = one.refused(**call)

    assert f"main/{SESSION}" in words
    assert f"main/{OTHER}" in words
    assert world.store.connection.execute("SELECT count(*) FROM wishes").fetchone() == (0,)


@pytest.mark.parametrize("name", [SESSION, SESSION[:6], f"main/{SESSION}", "agent:main:main", None])
def test_a_session_is_named_in_every_way(world, name):
    """By id, its beginning, agent and id, session key, or path."""
    agent = pruned(world)
    pruned(world, "main", OTHER)
    (agent.path.parent / "sessions.json").write_text(
        json.dumps({"agent:main:main": {"sessionId": SESSION}})
    )

    told = agent.told(action="show", entry="00000003", session=name or str(agent.path))

    assert told["session"] == f"main/{SESSION}"


# --- the whole circle ----------------------------------------------------------------------------


def test_the_whole_circle_of_a_restore_by_the_tool(world):
    """Cut, asked for in a turn, put back, its call redacted, cut again, undone to the byte."""
    agent = pruned(world)
    before = asking(agent, CALL)
    untouched = state(agent.path)

    failed, text = agent.call(**CALL)

    told = json.loads(text)
    assert not failed
    assert state(agent.path) == untouched
    assert told["restored"] is told["pending"] is told["redacted"] is True
    assert told["content"] == {"message.content.0.text": VALUE}
    assert told["keys_restored"] == ["message.content.0.text"]
    assert "previous_restored_at" not in told
    answered(agent, before, text)
    world.scan()
    entries = agent.entries()
    assert entries["00000003"]["message"]["content"][0]["text"] == VALUE
    assert "_restored" in entries["00000003"]
    assert entries[f"answer{before}"]["message"]["content"][0]["text"] == "Restored 00000003."
    assert entries[f"answer{before}"]["_redacted"] is True
    call = entries[f"call{before}"]["message"]["content"][0]
    assert call["arguments"] == {"action": "restore", "entry": "00000003"}
    assert entries[f"call{before}"]["_redacted"] is True
    assert entries[f"answer{before}"]["message"]["toolCallId"] == call["id"]
    assert VALUE not in json.dumps(entries[f"answer{before}"], ensure_ascii=False)
    world.scan(keep_recent=0)
    assert agent.entries()["00000003"]["message"]["content"][0]["text"] == VALUE
    world.clock = lambda: time.time() + 601
    world.scan(keep_recent=0)
    again = agent.entries()["00000003"]
    assert again["message"]["content"][0]["text"] == "[[extracted-00000003]]"
    assert again["_restored"] == entries["00000003"]["_restored"]

    world.clock = time.time
    second = asking(agent, CALL)
    told = agent.told(**CALL)
    assert told["previous_restored_at"] == entries["00000003"]["_restored"]
    assert "_extractable: false" in told["suggestion"]
    answered(agent, second, json.dumps(told, ensure_ascii=False))
    world.scan(keep_recent=0)
    assert agent.entries()["00000003"]["message"]["content"][0]["text"] == VALUE
    world.restore_all(pristine=True)
    assert agent.path.read_bytes() == agent.written


def test_asking_twice_in_a_turn_is_redacted_twice(world):
    """Both answers of a value asked for in pages are shortened, and no wish stays open."""
    agent = pruned(world)
    before = asking(agent, {**CALL, "limit": 100})
    _, first = agent.call(**CALL, limit=100)
    since = len(agent.talk.lines)
    agent.talk.result(first, "purge_control", call=f"call_{before}", ident="answer1")
    agent.talk.call("purge_control", {**CALL, "offset": 50}, call="again", ident="call2")
    agent.append(since=since)
    _, second = agent.call(**CALL, offset=50)
    since = len(agent.talk.lines)
    agent.talk.result(second, "purge_control", call="again", ident="answer2")
    agent.talk.assistant("thanks", ident="thanks")
    agent.append(since=since)
    os.utime(agent.path, (time.time() - 3600,) * 2)

    world.scan()

    entries = agent.entries()
    for ident in ("answer1", "answer2"):
        assert entries[ident]["message"]["content"][0]["text"] == "Restored 00000003."
    left = "SELECT count(*) FROM wishes WHERE state = 'open'"
    assert world.store.connection.execute(left).fetchone() == (0,)


def test_a_foreign_tool_of_that_name_is_untouched(world):
    """A tool of somebody else that is called restore, with our arguments, keeps what it said."""
    agent = pruned(world)
    before = asking(agent, CALL, name="restore")
    agent.talk.result("restored from the backup tape " * 5, "restore", call=f"call_{before}",
                      ident="foreign")  # fmt: skip
    agent.talk.assistant("fine", ident="fine")
    agent.append(since=len(agent.talk.lines) - 2)
    os.utime(agent.path, (time.time() - 3600,) * 2)
    agent.told(**CALL, session=SESSION)

    world.scan()

    assert "_redacted" not in agent.entries()["foreign"]
    assert "restored from the backup tape" in json.dumps(agent.entries()["foreign"])


def test_a_shell_command_that_asked_stays_and_its_answer_goes(world):
    """Asked by the shell, the answer is shortened; the command itself is nothing but a command."""
    agent = pruned(world)
    command = {"command": "brainsurgeon restore 00000003"}
    before = asking(agent, command, name="exec")
    _, text = agent.call(**CALL, session=SESSION)
    answered(agent, before, text)

    world.scan()

    entries = agent.entries()
    assert entries[f"call{before}"]["message"]["content"][0]["arguments"] == command
    assert entries[f"answer{before}"]["message"]["content"][0]["text"] == "Restored 00000003."


def test_a_call_that_its_provider_signed_stays(world):
    """Arguments under a provider's signature are left as they are; the answer is shortened."""
    agent = pruned(world)
    before = asking(agent, {**CALL, "keys": "content"})
    signed = agent.path.read_bytes().replace(
        b'"name":"brainsurgeon__purge_control"',
        b'"thoughtSignature":"c2ln","name":"brainsurgeon__purge_control"',
    )
    agent.path.write_bytes(signed)
    _, text = agent.call(**CALL, keys="content")
    answered(agent, before, text)

    world.scan()

    entries = agent.entries()
    assert entries[f"call{before}"]["message"]["content"][0]["arguments"]["keys"] == "content"
    assert entries[f"answer{before}"]["message"]["content"][0]["text"] == "Restored 00000003."


SHAPES = {
    "flat": (
        {"type": "tool_call", "__id": "c1", "call_id": "k", "arguments": "ARGUMENTS"},
        {"type": "tool_result", "__id": "r1", "call_id": "k", "output": "TEXT"},
    ),
    "as text": (
        {"type": "tool_call", "__id": "c1", "arguments": "ARGUMENTS AS TEXT"},
        {"type": "tool_result", "__id": "r1", "output": "TEXT"},
    ),
    "blocks": (
        {"type": "message", "__id": "c1", "message": {"role": "assistant", "content": [
            {"type": "tool_use", "id": "k", "name": "x", "input": "ARGUMENTS"}]}},
        {"type": "message", "__id": "r1", "message": {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "k",
             "content": [{"type": "text", "text": "TEXT"}]}]}},
    ),
}  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES)
def test_generic_calls_are_redacted_in_every_shape(world, shape):
    """The whole circle in a generic session: asked in a turn, put back, both entries shortened."""
    agent, (call, result) = Agent(world), SHAPES[shape]
    first = {"type": "tool_result", "__id": "m1", "output": VALUE}
    old = [first, *({"type": "assistant", "__id": f"a{n}", "text": "short"} for n in range(4))]
    agent.path.write_bytes(b"".join(map(dump, old)))
    os.utime(agent.path, (time.time() - 3600,) * 2)
    world.scan()
    arguments = {"action": "restore", "entry": "m1", "keys": "output"}
    said = json.dumps(call).replace('"ARGUMENTS AS TEXT"', json.dumps(json.dumps(arguments)))
    call = json.loads(said.replace('"ARGUMENTS"', json.dumps(arguments)))
    asked = dump({"type": "user", "__id": "u1", "content": "what?"}) + dump(call)
    with open(agent.path, "ab") as file:
        file.write(asked)

    _, text = agent.call(**arguments)
    rest = dump(json.loads(json.dumps(result).replace('"TEXT"', json.dumps(text))))
    rest += dump({"type": "assistant", "__id": "end", "text": "thanks"})
    with open(agent.path, "ab") as file:
        file.write(rest)
    os.utime(agent.path, (time.time() - 3600,) * 2)
    world.scan()

    entries = {one["__id"]: one for one in map(json.loads, agent.path.read_bytes().splitlines())}
    short = {"action": "restore", "entry": "m1"}
    assert entries["m1"]["output"] == VALUE
    assert "_redacted" in entries["c1"]
    assert "_redacted" in entries["r1"]
    assert "keys" not in json.dumps(entries["c1"])
    assert "Restored m1." in json.dumps(entries["r1"])
    assert VALUE[:30] not in json.dumps(entries["r1"], ensure_ascii=False)
    plain = entries["c1"].get("arguments", short)
    assert (json.loads(plain) if isinstance(plain, str) else plain) == short
    world.restore_all(pristine=True)
    assert agent.path.read_bytes() == b"".join(map(dump, old)) + asked + rest


def test_calls_are_kept_where_the_configuration_says_so(world):
    """`keep_purge_control_calls` holds also when it is set after the value was asked for."""
    agent = pruned(world)
    before = asking(agent, CALL)
    _, text = agent.call(**CALL)
    answered(agent, before, text)

    world.scan(keep_purge_control_calls=True)

    entries = agent.entries()
    assert entries["00000003"]["message"]["content"][0]["text"] == VALUE
    assert entries[f"answer{before}"]["message"]["content"][0]["text"] == text
    assert "_redacted" not in entries[f"call{before}"]


def test_ids_that_begin_alike_are_not_mixed_up(world):
    """Two answers that are the same for their first hundreds of characters keep their entries."""
    agent = Agent(world)
    ids = ["i" * 200 + end for end in "ab"]
    for ident in ids:
        agent.talk.user()
        agent.talk.call()
        agent.talk.result(f"of {ident[-1]} " * 200, ident=ident)
        agent.talk.assistant()
    for _ in range(2):
        agent.talk.turn("short")
    agent.write()
    world.scan()
    calls = [{"action": "restore", "entry": ident} for ident in ids]
    before = asking(agent, calls[0])
    agent.talk.lines[-1]["message"]["content"].append(
        {"type": "toolCall", "id": "second", "name": "x", "arguments": calls[1]}
    )
    said = agent.path.read_bytes().splitlines(keepends=True)[:-1]
    agent.path.write_bytes(b"".join(said) + dump(agent.talk.lines[-1]))
    texts = [agent.call(**call)[1] for call in calls]
    since = len(agent.talk.lines)
    agent.talk.result(texts[0], call=f"call_{before}", ident="r1")
    agent.talk.result(texts[1], call="second", ident="r2")
    agent.talk.assistant(ident="end")
    agent.append(since=since)
    os.utime(agent.path, (time.time() - 3600,) * 2)

    world.scan()

    entries = agent.entries()
    for name, ident in zip(("r1", "r2"), ids, strict=True):
        assert entries[name]["message"]["content"][0]["text"] == f"Restored {ident}."


def test_a_fork_sees_nothing_that_its_parent_said_later(world):
    """A server for a fork gives what stands in it as a stub, and nothing its parent cut since."""
    parent = pruned(world)
    fork = Agent(world, session=OTHER)
    inherited = list(map(json.loads, parent.path.read_bytes().splitlines()))[:5]
    fork.talk.lines = [{**inherited[0], "id": OTHER, "parentSession": str(parent.path)}]
    fork.talk.lines += inherited[1:]
    fork.write()
    world.scan()
    fork.scope = Scope("main", str(fork.path))

    assert fork.told(action="show", entry="00000003")["content"] == {
        "message.content.0.text": VALUE
    }
    assert b"[[extracted-00000007]]" in parent.path.read_bytes()
    assert fork.refused(action="show", entry="00000007") == NOT_HERE


def test_what_is_left_of_an_entry_is_shown_and_what_is_gone_is_named(world):
    """Where one value of an entry has expired, the others come, and it is listed as missed."""
    agent = said_twice(world, VALUE + "more")
    with world.store.transaction() as connection:
        connection.execute(
            "UPDATE extractions SET blob_id = NULL, state = 'expired', expired_at = 1.0,"
            " expired_why = 'test' WHERE path LIKE '%aggregated%'"
        )

    told = agent.told(action="show", entry="00000003", session=SESSION)

    assert told["content"] == {"message.content.0.text": VALUE}
    assert told["missed"] == ["message.details.aggregated: expired"]


def test_a_pin_where_the_file_is_gone_says_so(world):
    """A session whose file is gone cannot be written; that is told, as `show` still works."""
    agent = pruned(world)
    agent.path.unlink()

    words = agent.refused(action="set_extractable", entry="00000003", value=False, session=SESSION)

    assert "its file is gone" in words
    assert agent.told(action="show", entry="00000003", session=SESSION)


@pytest.mark.parametrize("value", [10**30, "9" * 4000, 2**53 + 1])
def test_a_number_that_no_reader_keeps_is_refused(world, value):
    """A window so large that JavaScript would round it is refused, and nothing is set."""
    agent = pruned(world)

    agent.refused(action="set_extractable", entry="0000000b", value=value, session=SESSION)

    assert world.store.connection.execute("SELECT count(*) FROM wishes").fetchone() == (0,)


@pytest.mark.parametrize(
    "named", [" 00000003\n", "`[[extracted-00000003]]`", "'[[extracted-00000003]]'"]
)
def test_an_entry_may_be_pasted_with_what_stood_around_it(world, named):
    """Spaces, back quotes and quotes around an id or a stub do not matter."""
    agent = pruned(world)

    told = agent.told(action="show", entry=named, entry_id=named, session=SESSION)

    assert told["entry_id"] == "00000003"


def test_a_migrated_agent_still_gets_its_values(world):
    """Where the agent moved to SQLite and its file is gone, context and values are still given."""
    agent = pruned(world)
    database = agent.path.parent.parent / "agent" / "openclaw-agent.sqlite"
    database.parent.mkdir()
    with sqlite3.connect(database) as connection:
        connection.execute("CREATE TABLE transcript_events (x)")
        connection.execute("INSERT INTO transcript_events VALUES (1)")
    connection.close()
    agent.path.unlink()

    listed = agent.told(action="get_context", session=SESSION)
    shown = agent.told(action="show", entry="00000003", session=SESSION)

    assert listed["state"] == "its file is gone"
    assert listed["extracted_total"] == 3
    assert listed["extracted"][0]["expires_at"] is None
    assert shown["content"] == {"message.content.0.text": VALUE}
