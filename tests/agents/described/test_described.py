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


@pytest.mark.parametrize(("stop", "cut"), [("length", True), ("max_tokens", True), ("stop", False)])
def test_reply_may_be_cut_short_by_its_provider(stop, cut):
    """It ends its turn, and is known for a part of an answer."""
    *_, entry = Reading(OPENAI, chat(USER, {**ANSWER, "finish_reason": stop})).transcript.entries

    assert (entry.closes, entry.cut_short) == (True, cut)


@pytest.mark.parametrize(("path", "name"), DESCRIBED.items(), ids=DESCRIBED.values())
def test_each_result_is_counted_once(path, name):
    """Also one with several texts, which is found by each of them and by its place."""
    for entry in Reading(FORMATS[name], path.read_bytes()).transcript.entries:
        calls = [result.call_id for result in entry.results]
        assert len(calls) == len(set(calls))


def test_finding_of_a_result_is_its_first_text_with_words():
    """A failed result in several blocks is one failure, and its first line is reported."""
    blocks = [{"type": "text", "text": text} for text in ("", "no such file", "other")]
    result = {**RESULT, "content": blocks, "is_error": True}
    *_, entry = Reading(OPENAI, chat(USER, CALL, result)).transcript.entries
    [found] = FORMATS["generic"].read({"type": "message", "id": "r", **result}).step.results

    assert [one.call_id for one in entry.results] == ["c1"]
    assert (found.failed, found.finding) == (True, "no such file")


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


GOOSE_RESULTS = {
    "role": "user", "created": 1,
    "content": [
        {"type": "toolResponse", "id": "c1", "toolResult": {"status": "error", "error": "no file"}},
        {"type": "toolResponse", "id": "c2", "toolResult": {
            "status": "success", "value": [{"type": "text", "text": "x"}]}},
        {"type": "toolResponse", "id": "c3", "toolResult": {"status": "error"}},
        {"type": "toolResponse", "id": "c4", "toolResult": {"status": "success", "value": []}},
    ],
}  # fmt: skip
BLOCK_RESULTS = {
    "role": "user",
    "content": [
        {"type": "tool_result", "tool_use_id": f"c{number}", "content": "x", "is_error": is_error}
        for number, is_error in enumerate((True, False, True, False), 1)
    ],
}


@pytest.mark.parametrize(
    ("form", "entry"), [(FORMATS["goose"], GOOSE_RESULTS), (OPENAI, BLOCK_RESULTS)]
)
def test_only_results_that_failed_count_as_failed(form, entry):
    """Not the others in the same line, whether they have a text or not."""
    (read,) = Reading(form, chat(entry)).transcript.entries
    failed = {result.call_id: result.failed for result in read.results}

    assert failed == {"c1": True, "c2": False, "c3": True, "c4": False}


PICTURE = "data:image/png;base64," + "A" * 400


@pytest.mark.parametrize(
    ("form", "message", "path", "is_block"),
    [
        (OPENAI, {**USER, "content": [{"type": "image_url", "image_url": {"url": PICTURE}}]},
         ("content", 0), True),
        (OPENAI, {**USER, "content": [{"type": "image_url", "image_url": PICTURE}]},
         ("content", 0), True),
        (OPENAI, {**USER, "content": [{"type": "resource", "resource": {"text": "x"}}]},
         ("content", 0, "resource", "text"), False),
        (OPENAI, {"role": "function", "name": "exec", "content": "x"}, ("content",), False),
        (FORMATS["goose"], {"role": "user", "created": 1, "content": [
            {"type": "toolResponse", "id": "c", "toolResult": {"status": "success", "value": [
                {"type": "image", "data": "AAAA", "mimeType": "image/png"}]}}]},
         ("content", 0, "toolResult", "value", 0), True),
    ],
)  # fmt: skip
def test_pictures_are_extracted_as_blocks_and_texts_as_texts(form, message, path, is_block):
    """In all the forms in which providers write them."""
    (value,) = Reading(form, chat(message)).transcript.values(0)

    assert (value.path, value.block) == (path, is_block)


def test_an_address_of_a_picture_stays():
    """It is short, and a provider could not read a placeholder there."""
    block = {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}

    assert not [*Reading(OPENAI, chat({**USER, "content": [block]})).transcript.values(0)]


def test_a_former_function_call_is_a_call():
    """OpenAI's first form has one call in a message, without an id."""
    call = {"role": "assistant", "content": None,
            "function_call": {"name": "exec", "arguments": "{}"}}  # fmt: skip
    (entry,) = Reading(OPENAI, chat(call)).transcript.entries

    assert [one.tool for one in entry.calls] == ["exec"]
