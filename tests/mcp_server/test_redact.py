"""From the call that asks to the value restored and the call shortened."""

import json
import os
import re
import sqlite3
import time

import pytest

from brainsurgeon.lookup.scope import Scope
from brainsurgeon.mcp_server.answering import NOT_HERE
from building.mcp_agent import (
    OTHER,
    SESSION,
    VALUE,
    Agent,
    agent_after_scan,
    agent_with_two_values,
    append_answer,
    append_open_call,
    file_identity,
)
from building.processes import program_for
from building.world import dump, sql

CALL = {"action": "restore", "entry": "00000003"}


# --- the whole circle ----------------------------------------------------------------------------


def test_the_whole_circle_of_a_restore_by_the_tool(world):
    """Removal, asked for in a turn, restored, its call redacted, cut again, undone to the byte."""
    agent = agent_after_scan(world)
    before = append_open_call(agent, CALL)
    untouched = file_identity(agent.path)

    failed, text = agent.call(**CALL)

    told = json.loads(text)
    assert not failed
    assert file_identity(agent.path) == untouched
    assert told["restored"] is told["pending"] is told["redacted"] is True
    assert told["content"] == {"message.content.0.text": VALUE}
    assert told["keys_restored"] == ["message.content.0.text"]
    assert "previous_restored_at" not in told
    append_answer(agent, before, text)
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
    second = append_open_call(agent, CALL)
    told = agent.answer(**CALL)
    assert told["previous_restored_at"] == entries["00000003"]["_restored"]
    assert "_extractable: false" in told["suggestion"]
    append_answer(agent, second, json.dumps(told, ensure_ascii=False))
    world.scan(keep_recent=0)
    assert agent.entries()["00000003"]["message"]["content"][0]["text"] == VALUE
    world.restore_all(pristine=True)
    assert agent.path.read_bytes() == agent.written


def test_asking_twice_in_a_turn_is_redacted_twice(world):
    """Both answers of a value asked for in pages are shortened, and no request stays open."""
    agent = agent_after_scan(world)
    before = append_open_call(agent, {**CALL, "limit": 100})
    _, first = agent.call(**CALL, limit=100)
    since = len(agent.conversation.lines)
    agent.conversation.result(first, "purge_control", call=f"call_{before}", ident="answer1")
    agent.conversation.call("purge_control", {**CALL, "offset": 50}, call="again", ident="call2")
    agent.append(since=since)
    _, second = agent.call(**CALL, offset=50)
    since = len(agent.conversation.lines)
    agent.conversation.result(second, "purge_control", call="again", ident="answer2")
    agent.conversation.assistant("thanks", ident="thanks")
    agent.append(since=since)
    os.utime(agent.path, (time.time() - 3600,) * 2)

    world.scan()

    entries = agent.entries()
    for ident in ("answer1", "answer2"):
        assert entries[ident]["message"]["content"][0]["text"] == "Restored 00000003."
    assert world.store.requests.count_open() == 0


def test_a_foreign_tool_of_that_name_is_untouched(world):
    """A tool of somebody else that is called restore, with our arguments, keeps what it said."""
    agent = agent_after_scan(world)
    before = append_open_call(agent, CALL, name="restore")
    agent.conversation.result(
        "restored from the backup tape " * 5, "restore", call=f"call_{before}", ident="foreign"
    )
    agent.conversation.assistant("fine", ident="fine")
    agent.append(since=len(agent.conversation.lines) - 2)
    os.utime(agent.path, (time.time() - 3600,) * 2)
    agent.answer(**CALL, session=SESSION)

    world.scan()

    assert "_redacted" not in agent.entries()["foreign"]
    assert "restored from the backup tape" in json.dumps(agent.entries()["foreign"])


@pytest.mark.parametrize("form", ["text", "json"])
@pytest.mark.parametrize("after", ["after", '\u2714 "all" \\ passed 😀\n' * 90])
@pytest.mark.parametrize("before", ["x\n", '{"event": "😀", "level": "\\u00e9\t"}\n' * 9])
def test_an_answer_is_found_inside_a_longer_output(world, form, before, after):
    """What a shell printed around the answer stays, as does the command; the answer goes."""
    agent = agent_after_scan(world)
    command = {"command": "echo x; brainsurgeon restore 00000003"}
    asked = append_open_call(agent, command, name="exec")
    said = program_for(world)("restore", "00000003", *(["--json"] if form == "json" else []))
    output = before + said.stdout.decode().rstrip() + "\n" + after
    since = len(agent.conversation.lines)
    agent.conversation.result(output, "exec", call=f"call_{asked}", ident="answer",
                      details={"aggregated": output + "\n", "cwd": "/w"})  # fmt: skip
    agent.conversation.assistant("so it is", ident="end")
    agent.append(since=since)
    os.utime(agent.path, (time.time() + 1,) * 2)
    world.clock = lambda: time.time() + 3600

    world.scan()

    entries = agent.entries()
    answer = entries["answer"]["message"]
    assert entries[f"call{asked}"]["message"]["content"][0]["arguments"] == command
    short = before + "Restored 00000003.\n" + after
    assert answer["content"][0]["text"] == short
    assert answer["details"] == {"aggregated": short + "\n", "cwd": "/w"}
    assert open_requests(world) == []
    world.restore_all(pristine=True)
    assert agent.path.read_bytes() == agent.written


def test_an_answer_that_does_not_stand_whole_is_left_alone(world):
    """Where a host shortened what a shell printed, all of it stays, and the request ends."""
    agent = agent_after_scan(world)
    asked = append_open_call(
        agent, {"command": "make test; brainsurgeon restore 00000003"}, name="exec"
    )
    said = program_for(world)("restore", "00000003").stdout.decode()
    append_answer(agent, asked, "a report\n" + said[:-200] + "[truncated]")
    os.utime(agent.path, (time.time() + 1,) * 2)
    world.clock = lambda: time.time() + 60
    before = agent.entries()

    world.scan()

    entries = agent.entries()
    assert entries["00000003"]["message"]["content"][0]["text"] == VALUE
    for ident in (f"answer{asked}", f"call{asked}"):
        assert entries[ident] == before[ident]
    assert open_requests(world) == []


def test_several_answers_in_one_output_are_each_shortened(world):
    """A shell that asked twice in one call keeps what it printed between and around both."""
    agent = agent_after_scan(world)
    asked = append_open_call(agent, {"command": "restore both"}, name="exec")
    first, second = (
        program_for(world)("restore", ident).stdout.decode() for ident in ("00000003", "00000007")
    )
    append_answer(agent, asked, f"a\n{first}\nb\n{second}\nc")

    world.scan()

    answer = agent.entries()[f"answer{asked}"]["message"]["content"][0]["text"]
    assert answer.split() == ["a", "Restored", "00000003.", "b", "Restored", "00000007.", "c"]
    assert open_requests(world) == []
    world.restore_all(pristine=True)
    assert agent.path.read_bytes() == agent.written


def test_every_answer_has_an_id_of_its_own(world):
    """In text and in JSON, pending or not, an answer carries an id that no other has."""
    agent = agent_after_scan(world)
    told = agent.answer(**CALL, session=SESSION)
    again = agent.answer(action="restore", entry="00000007", session=SESSION)
    said = program_for(world)("restore", "0000000b", "--session", f"main/{SESSION}").stdout.decode()

    ids = {told["answer_id"], again["answer_id"], *re.findall(r"answer ([0-9a-f]{16})", said)}
    assert len(ids) == 3


@pytest.mark.parametrize("turn_follows", [True, False])
def test_a_redaction_that_finds_nothing_ends_with_its_reason(world, turn_follows):
    """A person's restore during a run is no call of the agent's: its request ends with the turn."""
    agent = agent_after_scan(world)
    agent.conversation.lines = list(map(json.loads, agent.path.read_bytes().splitlines()))
    since = len(agent.conversation.lines)
    agent.conversation.user("do something long")
    agent.append(since=since)
    if not turn_follows:
        os.utime(agent.path, (time.time() - 60,) * 2)
    program_for(world, abandoned_after_seconds=120)("restore", "00000003")
    assert [one[0] for one in open_requests(world)] == ["restore", "redact"]
    if turn_follows:
        agent.conversation.assistant("done")
        agent.append(since=since + 1)
        os.utime(agent.path, (time.time() + 1,) * 2)

    for later in (60, 300, 1200):
        world.clock = lambda later=later: time.time() + later
        world.scan(abandoned_after_seconds=120)
        left = open_requests(world)
        if turn_follows:
            assert left == []

    assert left == []
    [event] = world.store.events.after(0, kinds=("lapse",))
    assert event.facts == {
        "action": "redact", "entry_id": "00000003",
        "reason": "the turn that made the request contains no whole answer from brainsurgeon",
    }  # fmt: skip


def test_a_turn_that_the_agent_has_not_written_yet_is_waited_for(world):
    """Asked by the tool before the turn stands in the file, the answer is found when it does."""
    agent = agent_after_scan(world)
    _, text = agent.call(**CALL, session=SESSION)
    world.scan()
    world.scan(keep_recent=0)
    assert [one[0] for one in open_requests(world)] == ["redact"]
    before = append_open_call(agent, CALL)
    append_answer(agent, before, text)
    os.utime(agent.path, (time.time() + 1,) * 2)
    world.clock = lambda: time.time() + 60

    world.scan()

    assert agent.entries()[f"answer{before}"]["message"]["content"][0]["text"] == (
        "Restored 00000003."
    )
    assert open_requests(world) == []


def test_an_answer_about_what_stands_already_is_redacted_too(world):
    """Asked in a turn for what was restored long before, the call is shortened like any other."""
    agent = agent_after_scan(world)
    agent.answer(**CALL, session=SESSION)
    world.clock = lambda: time.time() + 60
    world.scan()
    before = append_open_call(agent, CALL)
    _, text = agent.call(**CALL)
    os.utime(agent.path, (time.time() + 1,) * 2)
    world.scan()
    append_answer(agent, before, text)
    os.utime(agent.path, (time.time() + 2,) * 2)

    world.scan()

    assert json.loads(text)["already"] is True
    answer = agent.entries()[f"answer{before}"]
    assert answer["message"]["content"][0]["text"] == "Restored 00000003."
    assert open_requests(world) == []


def test_an_answer_in_a_call_of_another_tool_leaves_that_call_alone(world):
    """Only our own call is shortened: one with an action of its own, such as polling, stays."""
    agent = agent_after_scan(world)
    asked = append_open_call(agent, {"action": "poll", "sessionId": "brisk-otter"}, name="process")
    _, text = agent.call(**CALL, session=SESSION)
    append_answer(agent, asked, "Process exited.\n" + text)
    os.utime(agent.path, (time.time() + 1,) * 2)
    world.clock = lambda: time.time() + 60

    world.scan()

    entries = agent.entries()
    assert entries[f"call{asked}"]["message"]["content"][0]["arguments"] == {
        "action": "poll", "sessionId": "brisk-otter",
    }  # fmt: skip
    assert entries[f"answer{asked}"]["message"]["content"][0]["text"] == (
        "Process exited.\nRestored 00000003."
    )


def open_requests(world):
    return sql(world, "SELECT action, answer FROM requests ORDER BY id")


def test_a_call_that_its_provider_signed_stays(world):
    """Arguments under a provider's signature are left as they are; the answer is shortened."""
    agent = agent_after_scan(world)
    before = append_open_call(agent, {**CALL, "keys": "content"})
    signed = agent.path.read_bytes().replace(
        b'"name":"brainsurgeon__purge_control"',
        b'"thoughtSignature":"c2ln","name":"brainsurgeon__purge_control"',
    )
    agent.path.write_bytes(signed)
    _, text = agent.call(**CALL, keys="content")
    append_answer(agent, before, text)

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
    "input as text": (
        {"type": "tool_call", "__id": "c1", "input": "ARGUMENTS AS TEXT"},
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
    """The whole circle in a generic session: asked in a turn, restored, both entries shortened."""
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
    plain = entries["c1"].get("arguments") or entries["c1"].get("input", short)
    assert (json.loads(plain) if isinstance(plain, str) else plain) == short
    world.restore_all(pristine=True)
    assert agent.path.read_bytes() == b"".join(map(dump, old)) + asked + rest


def test_calls_are_kept_where_the_configuration_says_so(world):
    """`keep_purge_control_calls` holds also when it is set after the value was asked for."""
    agent = agent_after_scan(world)
    before = append_open_call(agent, CALL)
    _, text = agent.call(**CALL)
    append_answer(agent, before, text)

    world.scan(keep_purge_control_calls=True)

    entries = agent.entries()
    assert entries["00000003"]["message"]["content"][0]["text"] == VALUE
    assert entries[f"answer{before}"]["message"]["content"][0]["text"] == text
    assert "_redacted" not in entries[f"call{before}"]
    assert open_requests(world) == []


def test_ids_that_begin_alike_are_not_mixed_up(world):
    """Two answers that are the same for their first hundreds of characters keep their entries."""
    agent = Agent(world)
    ids = ["i" * 200 + end for end in "ab"]
    for ident in ids:
        agent.conversation.user()
        agent.conversation.call()
        agent.conversation.result(f"of {ident[-1]} " * 200, ident=ident)
        agent.conversation.assistant()
    for _ in range(2):
        agent.conversation.turn("short")
    agent.write()
    world.scan()
    calls = [{"action": "restore", "entry": ident} for ident in ids]
    before = append_open_call(agent, calls[0])
    agent.conversation.lines[-1]["message"]["content"].append(
        {"type": "toolCall", "id": "second", "name": "x", "arguments": calls[1]}
    )
    said = agent.path.read_bytes().splitlines(keepends=True)[:-1]
    agent.path.write_bytes(b"".join(said) + dump(agent.conversation.lines[-1]))
    texts = [agent.call(**call)[1] for call in calls]
    since = len(agent.conversation.lines)
    agent.conversation.result(texts[0], call=f"call_{before}", ident="r1")
    agent.conversation.result(texts[1], call="second", ident="r2")
    agent.conversation.assistant(ident="end")
    agent.append(since=since)
    os.utime(agent.path, (time.time() - 3600,) * 2)

    world.scan()

    entries = agent.entries()
    for name, ident in zip(("r1", "r2"), ids, strict=True):
        assert entries[name]["message"]["content"][0]["text"] == f"Restored {ident}."


def test_a_fork_sees_nothing_that_its_parent_said_later(world):
    """A server for a fork gives the fork's placeholders, and nothing its parent cut since."""
    parent = agent_after_scan(world)
    fork = Agent(world, session=OTHER)
    inherited = list(map(json.loads, parent.path.read_bytes().splitlines()))[:5]
    fork.conversation.lines = [{**inherited[0], "id": OTHER, "parentSession": str(parent.path)}]
    fork.conversation.lines += inherited[1:]
    fork.write()
    world.scan()
    fork.scope = Scope("main", str(fork.path))

    assert fork.answer(action="show", entry="00000003")["content"] == {
        "message.content.0.text": VALUE
    }
    assert b"[[extracted-00000007]]" in parent.path.read_bytes()
    assert fork.error(action="show", entry="00000007") == NOT_HERE


def _expire_details(world):
    with world.store.transaction():
        world.store._connection.execute(
            "UPDATE extractions SET blob_id = NULL, expired_at = 1.0,"
            " expired_why = 'test' WHERE path LIKE '%aggregated%'"
        )


def test_of_an_entry_what_is_left_is_shown_what_is_gone_named(world):
    """Where one value of an entry has expired, the others come, and it is listed as missed."""
    agent = agent_with_two_values(world, VALUE + "more")
    _expire_details(world)

    told = agent.answer(action="show", entry="00000003", session=SESSION)

    assert told["content"] == {"message.content.0.text": VALUE}
    assert told["missed"] == ["message.details.aggregated: expired"]


def test_the_values_end_the_answer_to_a_restore(world):
    """What could not be done stands before the values that are given: they may be very long."""
    agent = agent_with_two_values(world, VALUE + "more")
    _expire_details(world)

    told = agent.answer(action="restore", entry="00000003", session=SESSION)

    assert list(told)[-2:] == ["missed", "content"]


def test_a_pin_where_the_file_is_gone_says_so(world):
    """A session whose file is gone cannot be written; that is told, as `show` still works."""
    agent = agent_after_scan(world)
    agent.path.unlink()

    words = agent.error(action="set_extractable", entry="00000003", value=False, session=SESSION)

    assert "its file is gone" in words
    assert "the action `show`" in words
    assert "brainsurgeon show" not in words
    assert agent.answer(action="show", entry="00000003", session=SESSION)


def test_errors_speak_of_actions_and_arguments(world):
    """What a command would be told by its words and options, an agent is told by the tool's."""
    agent = agent_after_scan(world)
    placeholder, other = b"[[extracted-00000003]]", b"something else"
    agent.path.write_bytes(agent.path.read_bytes().replace(placeholder, other))
    os.utime(agent.path, (time.time() - 3600,) * 2)

    changed = agent.error(**CALL, session=SESSION)
    agent_after_scan(world, "main", OTHER)
    twice = agent.error(action="show", entry="00000003")

    assert "the action `show` still" in changed
    assert "give `session`" in twice
    assert "--" not in changed + twice


@pytest.mark.parametrize(
    "named", [" 00000003\n", "`[[extracted-00000003]]`", "'[[extracted-00000003]]'"]
)
def test_an_entry_may_be_pasted_with_what_stood_around_it(world, named):
    """Spaces, back quotes and quotes around an id or a placeholder do not matter."""
    agent = agent_after_scan(world)

    told = agent.answer(action="show", entry=named, entry_id=named, session=SESSION)

    assert told["entry_id"] == "00000003"


def test_a_migrated_agent_still_gets_its_values(world):
    """Where the agent moved to SQLite and its file is gone, context and values are still given."""
    agent = agent_after_scan(world)
    database = agent.path.parent.parent / "agent" / "openclaw-agent.sqlite"
    database.parent.mkdir()
    with sqlite3.connect(database) as connection:
        connection.execute("CREATE TABLE transcript_events (x)")
        connection.execute("INSERT INTO transcript_events VALUES (1)")
    connection.close()
    agent.path.unlink()

    listed = agent.answer(action="get_context", session=SESSION)
    shown = agent.answer(action="show", entry="00000003", session=SESSION)

    assert listed["state"] == "its file is gone"
    assert listed["extracted_total"] == 3
    assert shown["content"] == {"message.content.0.text": VALUE}
