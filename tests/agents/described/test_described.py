"""Logs that are only described: who is recognised, what stays, and when a turn is open."""

import base64
import json

import pytest

from brainsurgeon.agents import FORMATS
from brainsurgeon.formats.recognition import HEAD_LINES, recognise
from brainsurgeon.model.session_files import ANY, AUTO
from building.format_reading import Reading, survey
from building.world import SAMPLES, dump

DESCRIBED = {
    path: path.stem.removesuffix("-nanobot") for path in sorted((SAMPLES / "described").iterdir())
}
OPENAI, KIMI, QWEN = (FORMATS[name] for name in ("openai-chat", "kimi-code", "qwen-code"))
# Signatures of Claude: one that covers the request, and one of before.
COVERS, OWN = (base64.b64encode(bytes([*start, 2, 9, 9])).decode() for start in
               ((0x08, 4, 0x12), (0x12,)))  # fmt: skip


def head(path):
    return path.read_bytes().split(b"\n")[:HEAD_LINES]


@pytest.mark.parametrize(("path", "name"), DESCRIBED.items(), ids=DESCRIBED.values())
def test_a_described_log_needs_the_wish_of_the_user(path, name):
    """It is recognised below a root that the user wrote or that names its format, never else."""
    for hint in (ANY, name, "generic"):
        assert recognise(head(path), FORMATS, hint)[:2] == (FORMATS[name], "")
    assert recognise(head(path), FORMATS, AUTO).reason == "not a known session format"
    for other in {*DESCRIBED.values(), "openclaw"} - {name}:
        beginning = recognise(head(path), FORMATS, other)
        fits = other == "openai-chat" and name in ("goose", "kimi-cli")  # they are wider
        assert (beginning.form is not None) == fits


def test_example_of_the_manual_stays_generic():
    """Lines with `type`, a role and an id are read as before, also below a root `generic`."""
    line = dump({"type": "message", "id": "m1", "role": "user", "content": "go on"})

    assert recognise([line], FORMATS, "generic").name == "generic"
    assert recognise([line], FORMATS, ANY).form is None


def chat(*messages):
    return b"".join(dump(message) for message in messages)


USER = {"role": "user", "content": "go on"}
CALL = {
    "role": "assistant",
    "content": "",
    "tool_calls": [
        {"id": "c1", "type": "function", "function": {"name": "exec", "arguments": '{"a": "b"}'}}
    ],
}
RESULT = {"role": "tool", "tool_call_id": "c1", "content": "x" * 900}
ANSWER = {"role": "assistant", "content": "done"}
KIMI_RESULT = {
    "type": "context.append_loop_event",
    "event": {"type": "tool.result", "toolCallId": "c", "result": {"output": "x"}},
}
KIMI_USER = {
    "type": "context.append_message",
    "message": {"role": "user", "content": "x", "origin": {"kind": "user"}},
}
REMINDER = {
    "type": "context.append_message",
    "message": {"role": "user", "content": "x", "origin": {"kind": "injection"}},
}
TELEMETRY = {"type": "system", "subtype": "ui_telemetry", "systemPayload": {}}
QWEN_USER = {"type": "user", "message": {"role": "user", "parts": [{"text": "x"}]}}
QWEN_ANSWER = {"type": "assistant", "message": {"role": "model", "parts": [{"text": "x"}]}}
QWEN_RESULT = {
    "type": "tool_result",
    "message": {
        "role": "user",
        "parts": [{"functionResponse": {"id": "c", "name": "n", "response": {"output": "x"}}}],
    },
}


@pytest.mark.parametrize(
    ("form", "messages", "left"),
    [
        (OPENAI, (USER,), "a user message"),
        (OPENAI, (USER, CALL), "a tool call"),
        (OPENAI, (USER, CALL, RESULT), "a tool result"),
        (OPENAI, (USER, CALL, RESULT, ANSWER), None),
        (OPENAI, (USER, {"role": "system", "content": "x"}), "a user message"),
        (KIMI, (KIMI_USER, REMINDER), "a user message"),
        (KIMI, (KIMI_USER, KIMI_RESULT, {"type": "turn.ended"}), None),
        (QWEN, (QWEN_USER, QWEN_ANSWER, TELEMETRY), None),
        (QWEN, (QWEN_USER, QWEN_RESULT, TELEMETRY), "a tool result"),
    ],
)  # fmt: skip
def test_last_entry_of_the_conversation_opens_the_turn(form, messages, left):
    """Telemetry and reminders say nothing about the turn; what ends a turn does."""
    open_turn = survey(form, chat(*messages)).open_turn

    assert open_turn == (left and f"the last turn is open: {left}")


def locks(form, data):
    """Return, by entry, why its values may not be extracted."""
    transcript = Reading(form, data).transcript
    return [
        {value.locked for value in transcript.values(index)}
        for index in range(len(transcript.entries))
    ]  # fmt: skip


def test_newest_two_messages_stay():
    """Whatever `keep_recent` says, since nobody knows what the agent does with them."""
    *before, last, answer = locks(OPENAI, chat(USER, CALL, RESULT, ANSWER, USER, RESULT))

    assert {None} in before
    assert last == answer
    assert all("newest" in why for why in last | answer)


def test_arguments_in_a_text_stay():
    """A placeholder in their place would be no JSON; they are named all the same."""
    assert locks(OPENAI, chat(CALL, USER, ANSWER, USER))[0] == {
        "arguments in a text, which must stay JSON"
    }


@pytest.mark.parametrize(
    ("signature", "model", "bound"),
    [(COVERS, "a-model", True), (OWN, "a-model", False), ("s", "claude-opus-5-1", False)],
)
def test_signed_thinking_stays_and_may_cover_the_request(signature, model, bound):
    """Only its form is judged here; by its model, thinking may be bound as well."""
    block = {"type": "thinking", "thinking": "t" * 600, "signature": signature}
    data = chat({**ANSWER, "content": [block], "model": model}, USER, ANSWER)
    (entry, *_), (why, *_) = Reading(OPENAI, data).transcript.entries, locks(OPENAI, data)

    assert why == {"thinking signed by its provider"}
    assert (entry.thoughts.models, entry.thoughts.bound) == ((model,), bound)


def test_an_id_may_be_missing():
    """The number of the line and a digest of what no extraction changes name the entry then."""
    data = chat(USER, CALL, RESULT, ANSWER)
    pruned = chat(USER, CALL, {**RESULT, "content": "[[extracted-x]]", "_restored": "t"}, ANSWER)
    names, same = ([entry.ident for entry in Reading(OPENAI, one).transcript.entries]
                   for one in (data, pruned))  # fmt: skip

    assert names == same
    assert [name.split("-")[0] for name in names] == ["L1", "L2", "L3", "L4"]


def test_calls_have_the_names_of_their_results():
    """A result names its call; a call whose arguments are JSON in a text is read."""
    transcript = Reading(OPENAI, chat(USER, CALL, RESULT, ANSWER)).transcript
    (value,) = transcript.values(2)

    assert (value.tool, value.call) == ("exec", "c1")
    assert json.loads(CALL["tool_calls"][0]["function"]["arguments"]) == {"a": "b"}
