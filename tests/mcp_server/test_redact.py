"""Restore calls of an agent: the value is restored, and the call and its answer are redacted."""

import json
import os
import re
import time

import pytest

from building.mcp_agent import (
    SESSION,
    VALUE,
    Agent,
    append_answer,
    append_open_call,
    file_identity,
)
from building.processes import program_for
from building.world import append, dump, sql

CALL = {"action": "restore", "entry": "00000003"}
REDACTED = "Restored 00000003."


def text_of(entries, ident):
    return entries[ident]["message"]["content"][0]["text"]


def open_requests(world):
    return [action for (action,) in sql(world, "SELECT action FROM requests ORDER BY id")]


def scan_later(agent, seconds=60):
    """Scan some seconds after the last change of the session."""
    os.utime(agent.path, (time.time() + 1,) * 2)
    agent.world.clock = lambda: time.time() + seconds
    agent.world.scan()


def test_restore_call_is_carried_out_redacted_and_reversible(world, agent):
    """A scan restores the value and redacts call and answer; a pristine restore undoes it all."""
    position = append_open_call(agent, CALL)
    identity = file_identity(agent.path)

    failed, text = agent.call(**CALL)

    answer = json.loads(text)
    assert not failed
    assert file_identity(agent.path) == identity
    assert answer["restored"] is answer["pending"] is answer["redacted"] is True
    assert answer["content"] == {"message.content.0.text": VALUE}
    assert answer["keys_restored"] == ["message.content.0.text"]
    assert "previous_restored_at" not in answer
    append_answer(agent, position, text)
    world.scan()
    entries = agent.entries()
    assert text_of(entries, "00000003") == VALUE
    assert "_restored" in entries["00000003"]
    assert text_of(entries, f"answer{position}") == REDACTED
    assert entries[f"answer{position}"]["_redacted"] is True
    call = entries[f"call{position}"]["message"]["content"][0]
    assert call["arguments"] == {"action": "restore", "entry": "00000003"}
    assert entries[f"call{position}"]["_redacted"] is True
    assert entries[f"answer{position}"]["message"]["toolCallId"] == call["id"]
    assert VALUE not in json.dumps(entries[f"answer{position}"], ensure_ascii=False)
    world.scan(keep_recent=0)
    assert text_of(agent.entries(), "00000003") == VALUE
    world.clock = lambda: time.time() + 601
    world.scan(keep_recent=0)
    extracted = agent.entries()["00000003"]
    assert extracted["message"]["content"][0]["text"] == "[[extracted-00000003]]"
    assert extracted["_restored"] == entries["00000003"]["_restored"]

    world.clock = time.time
    next_position = append_open_call(agent, CALL)
    answer = agent.answer(**CALL)
    assert answer["previous_restored_at"] == entries["00000003"]["_restored"]
    assert "_extractable: false" in answer["suggestion"]
    append_answer(agent, next_position, json.dumps(answer, ensure_ascii=False))
    world.scan(keep_recent=0)
    assert text_of(agent.entries(), "00000003") == VALUE
    world.restore_all(pristine=True)
    assert agent.path.read_bytes() == agent.written


def test_two_restore_calls_in_a_turn_are_both_redacted(world, agent):
    """Both answers with pages of a value are redacted, and no request stays open."""
    position = append_open_call(agent, {**CALL, "limit": 100})
    _, first = agent.call(**CALL, limit=100)
    since = len(agent.conversation.lines)
    agent.conversation.result(first, "purge_control", call=f"call_{position}", ident="answer1")
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
        assert text_of(entries, ident) == REDACTED
    assert world.store.requests.count_open() == 0


def test_call_of_another_tool_named_restore_is_not_redacted(world, agent):
    """A call with the same arguments of a foreign tool named restore keeps its result."""
    position = append_open_call(agent, CALL, name="restore")
    agent.conversation.result(
        "restored from the backup tape " * 5, "restore", call=f"call_{position}", ident="foreign"
    )
    agent.conversation.assistant("fine", ident="fine")
    agent.append(since=len(agent.conversation.lines) - 2)
    os.utime(agent.path, (time.time() - 3600,) * 2)
    agent.answer(**CALL, session=SESSION)

    world.scan()

    assert "_redacted" not in agent.entries()["foreign"]
    assert "restored from the backup tape" in json.dumps(agent.entries()["foreign"])


@pytest.mark.parametrize("form", ["text", "json"])
@pytest.mark.parametrize(
    "after", ["after", '\u2714 "all" \\ passed 😀\n' * 90], ids=["short end", "long end"]
)
@pytest.mark.parametrize(
    "before",
    ["x\n", '{"event": "😀", "level": "\\u00e9\t"}\n' * 9],
    ids=["short begin", "long begin"],
)
def test_answer_inside_a_longer_output_is_redacted(world, agent, form, before, after):
    """Only the answer is replaced: the command and what the shell printed around it stay."""
    command = {"command": "echo x; brainsurgeon restore 00000003"}
    position = append_open_call(agent, command, name="exec")
    process = program_for(world)("restore", "00000003", *(["--json"] if form == "json" else []))
    output = before + process.stdout.decode().rstrip() + "\n" + after
    since = len(agent.conversation.lines)
    agent.conversation.result(output, "exec", call=f"call_{position}", ident="answer",
                      details={"aggregated": output + "\n", "cwd": "/w"})  # fmt: skip
    agent.conversation.assistant("so it is", ident="end")
    agent.append(since=since)

    scan_later(agent)

    entries = agent.entries()
    answer = entries["answer"]["message"]
    assert entries[f"call{position}"]["message"]["content"][0]["arguments"] == command
    redacted = before + "Restored 00000003.\n" + after
    assert answer["content"][0]["text"] == redacted
    assert answer["details"] == {"aggregated": redacted + "\n", "cwd": "/w"}
    assert open_requests(world) == []
    world.restore_all(pristine=True)
    assert agent.path.read_bytes() == agent.written


def test_truncated_answer_is_not_redacted(world, agent):
    """An output that the host truncated inside the answer stays, and its request is closed."""
    command = {"command": "make test; brainsurgeon restore 00000003"}
    position = append_open_call(agent, command, name="exec")
    output = program_for(world)("restore", "00000003").stdout.decode()
    append_answer(agent, position, "a report\n" + output[:-200] + "[truncated]")
    before = agent.entries()

    scan_later(agent)

    entries = agent.entries()
    assert text_of(entries, "00000003") == VALUE
    for ident in (f"answer{position}", f"call{position}"):
        assert entries[ident] == before[ident]
    assert open_requests(world) == []


def test_two_answers_in_one_output_are_both_redacted(world, agent):
    """Two answers in a shell's output are redacted; the text around and between them stays."""
    position = append_open_call(agent, {"command": "restore both"}, name="exec")
    first, second = (
        program_for(world)("restore", ident).stdout.decode() for ident in ("00000003", "00000007")
    )
    append_answer(agent, position, f"a\n{first}\nb\n{second}\nc")

    world.scan()

    answer = text_of(agent.entries(), f"answer{position}")
    assert answer.split() == ["a", "Restored", "00000003.", "b", "Restored", "00000007.", "c"]
    assert open_requests(world) == []
    world.restore_all(pristine=True)
    assert agent.path.read_bytes() == agent.written


def test_each_answer_has_an_id_of_its_own(world, agent):
    """Two answers of the tool and one of the command have three different ids."""
    answer = agent.answer(**CALL, session=SESSION)
    other = agent.answer(action="restore", entry="00000007", session=SESSION)
    process = program_for(world)("restore", "0000000b", "--session", f"main/{SESSION}")
    ids = re.findall(r"answer ([0-9a-f]{16})", process.stdout.decode())

    assert len({answer["answer_id"], other["answer_id"], *ids}) == 3


def test_answer_stays_if_its_restore_came_too_late(world, agent):
    """After a turn of more than ten minutes, the answer is the only copy that the agent has."""
    position = append_open_call(agent, CALL)
    _, text = agent.call(**CALL)
    append_answer(agent, position, text)
    scan_later(agent, 1200)

    entries = agent.entries()
    assert text_of(entries, "00000003") == "[[extracted-00000003]]"
    assert text_of(entries, f"answer{position}") == text
    assert open_requests(world) == []


@pytest.mark.parametrize("turn_ends", [True, False], ids=["turn ends", "turn stays open"])
def test_redaction_that_finds_no_call_lapses(world, agent, turn_ends):
    """If a person, not the agent, restores a value in a turn, the redact request lapses."""
    agent.conversation.lines = list(map(json.loads, agent.path.read_bytes().splitlines()))
    since = len(agent.conversation.lines)
    agent.conversation.user("do something long")
    agent.append(since=since)
    if not turn_ends:
        os.utime(agent.path, (time.time() - 60,) * 2)
    program_for(world, abandoned_after_seconds=120)("restore", "00000003")
    assert open_requests(world) == ["restore", "redact"]
    if turn_ends:
        agent.conversation.assistant("done")
        agent.append(since=since + 1)
        os.utime(agent.path, (time.time() + 1,) * 2)

    for later in (60, 300, 1200):
        world.clock = lambda later=later: time.time() + later
        world.scan(abandoned_after_seconds=120)
        assert open_requests(world) == [] or not turn_ends

    assert open_requests(world) == []
    [event] = world.store.events.after(0, kinds=("lapse",))
    assert event.facts == {
        "action": "redact", "entry_id": "00000003",
        "reason": "the turn of the request contains no complete answer from brainsurgeon",
    }  # fmt: skip


def test_redaction_waits_for_the_turn_to_be_written(world, agent):
    """If the call is not in the file yet, the redaction stays pending until a scan finds it."""
    _, text = agent.call(**CALL, session=SESSION)
    world.scan()
    world.scan(keep_recent=0)
    assert open_requests(world) == ["redact"]
    position = append_open_call(agent, CALL)
    append_answer(agent, position, text)

    scan_later(agent)

    assert text_of(agent.entries(), f"answer{position}") == REDACTED
    assert open_requests(world) == []


def test_answer_about_a_restored_value_is_redacted(world, agent):
    """A restore call for a value that is already back is redacted like any other."""
    agent.answer(**CALL, session=SESSION)
    world.clock = lambda: time.time() + 60
    world.scan()
    position = append_open_call(agent, CALL)
    _, text = agent.call(**CALL)
    os.utime(agent.path, (time.time() + 1,) * 2)
    world.scan()
    append_answer(agent, position, text)
    os.utime(agent.path, (time.time() + 2,) * 2)

    world.scan()

    assert json.loads(text)["already"] is True
    assert text_of(agent.entries(), f"answer{position}") == REDACTED
    assert open_requests(world) == []


def test_answer_in_the_result_of_another_tool_is_redacted(agent):
    """The answer in a result of another tool is redacted, and the arguments of its call stay."""
    poll = {"action": "poll", "sessionId": "brisk-otter"}
    position = append_open_call(agent, poll, name="process")
    _, text = agent.call(**CALL, session=SESSION)
    append_answer(agent, position, "Process exited.\n" + text)

    scan_later(agent)

    entries = agent.entries()
    assert entries[f"call{position}"]["message"]["content"][0]["arguments"] == poll
    assert text_of(entries, f"answer{position}") == ("Process exited.\nRestored 00000003.")


def test_signed_call_keeps_its_arguments(world, agent):
    """Arguments under a provider's signature stay; the answer is redacted."""
    position = append_open_call(agent, {**CALL, "keys": "content"})
    signed = agent.path.read_bytes().replace(
        b'"name":"brainsurgeon__purge_control"',
        b'"thoughtSignature":"c2ln","name":"brainsurgeon__purge_control"',
    )
    agent.path.write_bytes(signed)
    _, text = agent.call(**CALL, keys="content")
    append_answer(agent, position, text)

    world.scan()

    entries = agent.entries()
    assert entries[f"call{position}"]["message"]["content"][0]["arguments"]["keys"] == "content"
    assert text_of(entries, f"answer{position}") == REDACTED


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
def test_generic_calls_of_every_shape_are_redacted(world, shape):
    """In a generic session calls and answers of each shape are redacted and restored."""
    agent, (call, result) = Agent(world), SHAPES[shape]
    first = {"type": "tool_result", "__id": "m1", "output": VALUE}
    old = [
        first,
        *({"type": "assistant", "__id": f"a{number}", "text": "short"} for number in range(4)),
    ]
    agent.path.write_bytes(b"".join(map(dump, old)))
    os.utime(agent.path, (time.time() - 3600,) * 2)
    world.scan()
    arguments = {"action": "restore", "entry": "m1", "keys": "output"}
    template = json.dumps(call).replace('"ARGUMENTS AS TEXT"', json.dumps(json.dumps(arguments)))
    call = json.loads(template.replace('"ARGUMENTS"', json.dumps(arguments)))
    prompt = {"type": "user", "__id": "u1", "content": "what?"}
    append(agent.path, [prompt, call])

    _, text = agent.call(**arguments)
    result = json.loads(json.dumps(result).replace('"TEXT"', json.dumps(text)))
    end = {"type": "assistant", "__id": "end", "text": "thanks"}
    append(agent.path, [result, end])
    os.utime(agent.path, (time.time() - 3600,) * 2)
    world.scan()

    entries = {line["__id"]: line for line in map(json.loads, agent.path.read_bytes().splitlines())}
    redacted = {"action": "restore", "entry": "m1"}
    assert entries["m1"]["output"] == VALUE
    assert "_redacted" in entries["c1"]
    assert "_redacted" in entries["r1"]
    assert "keys" not in json.dumps(entries["c1"])
    assert "Restored m1." in json.dumps(entries["r1"])
    assert VALUE[:30] not in json.dumps(entries["r1"], ensure_ascii=False)
    plain = entries["c1"].get("arguments") or entries["c1"].get("input", redacted)
    assert (json.loads(plain) if isinstance(plain, str) else plain) == redacted
    world.restore_all(pristine=True)
    assert agent.path.read_bytes() == b"".join(map(dump, [*old, prompt, call, result, end]))


def test_keep_purge_control_calls_prevents_redaction(world, agent):
    """`keep_purge_control_calls` also applies if it was set after the call."""
    position = append_open_call(agent, CALL)
    _, text = agent.call(**CALL)
    append_answer(agent, position, text)

    world.scan(keep_purge_control_calls=True)

    entries = agent.entries()
    assert text_of(entries, "00000003") == VALUE
    assert text_of(entries, f"answer{position}") == text
    assert "_redacted" not in entries[f"call{position}"]
    assert open_requests(world) == []


def test_redacted_answers_keep_their_own_long_ids(world):
    """Two ids with the same first 200 characters are not confused when answers are redacted."""
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
    position = append_open_call(agent, calls[0])
    agent.conversation.lines[-1]["message"]["content"].append(
        {"type": "toolCall", "id": "second", "name": "x", "arguments": calls[1]}
    )
    lines = agent.path.read_bytes().splitlines(keepends=True)[:-1]
    agent.path.write_bytes(b"".join(lines) + dump(agent.conversation.lines[-1]))
    texts = [agent.call(**call)[1] for call in calls]
    since = len(agent.conversation.lines)
    agent.conversation.result(texts[0], call=f"call_{position}", ident="r1")
    agent.conversation.result(texts[1], call="second", ident="r2")
    agent.conversation.assistant(ident="end")
    agent.append(since=since)
    os.utime(agent.path, (time.time() - 3600,) * 2)

    world.scan()

    entries = agent.entries()
    for name, ident in zip(("r1", "r2"), ids, strict=True):
        assert text_of(entries, name) == f"Restored {ident}."
