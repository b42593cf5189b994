"""OpenClaw's and pi's entries: extractable parts, signatures, dead entries and closed turns."""

import base64
import itertools
import json

import pytest

from brainsurgeon.agents import FORMATS
from brainsurgeon.agents.openclaw.format import EMPTIED
from brainsurgeon.formats.base import DAMAGED, HOLLOW, covers_request, is_damaged
from brainsurgeon.model.session_files import BEFORE_COMPACTION, EDITED_AWAY, OFF_BRANCH
from brainsurgeon.model.transcript import Thoughts
from brainsurgeon.model.turns import Sent
from building.format_reading import (
    HEADER,
    WINDOW,
    Reading,
    parts,
    record,
    survey,
    unlocked_paths,
)
from building.world import Conversation, dump

OPENCLAW = FORMATS["openclaw"]


# Parts.


def message(role, content=None, **fields):
    body = {"role": role, **fields} if content is None else {"role": role, "content": content}
    return {"type": "message", "id": "a1", "parentId": None, "message": {**body, **fields}}


def thinking(api, signature=None, model="model-1", **fields):
    block = {"type": "thinking", "thinking": "hm" * 300, **fields}
    if signature is not None:
        block["thinkingSignature"] = signature
    return message("assistant", [block], api=api, model=model, stopReason="stop")


TEXT = {"type": "text", "text": "words"}
IMAGE = {"type": "image", "data": "aGk=", "mimeType": "image/png"}


@pytest.mark.parametrize(
    ("entry", "kind", "tool", "listed"),
    [
        (message("user", "a plain string"), "user", None, {"message.content"}),
        (message("user", [TEXT]), "user", None, {"message.content.0.text"}),
        (message("user", [TEXT, IMAGE]), "user", None,
         {"message.content.0.text", "message.content.1"}),
        (message("assistant", [TEXT]), "assistant", None, {"message.content.0.text"}),
        (message("assistant", "a plain string"), "assistant", None, {"message.content"}),
        (message("custom", "words"), "custom", None, {"message.content"}),
        (message("bashExecution", command="ls", output="words"), "tool_result", "bash",
         {"message.output"}),
        (message("toolResult", [TEXT, IMAGE], toolName="read"), "tool_result", "read",
         {"message.content.0.text", "message.content.1"}),
        (message("toolResult", [TEXT], toolName="exec", details={
            "status": "completed", "exitCode": 0, "aggregated": "words", "cwd": "/w",
            "truncation": {"content": "words", "truncated": True}}), "tool_result", "exec",
         {"message.content.0.text", "message.details.status", "message.details.aggregated",
          "message.details.cwd", "message.details.truncation.content"}),
        ({"type": "custom_message", "id": "a1", "content": "words"}, "custom", None, {"content"}),
        ({"type": "custom_message", "id": "a1", "content": [TEXT]}, "custom", None,
         {"content.0.text"}),
    ],
)  # fmt: skip
def test_openclaw_parts_are_contents_details_and_images(entry, kind, tool, listed):
    """Content is a string or a list of blocks; the kind is that of the message."""
    entry_parts = parts(OPENCLAW, entry)

    assert {".".join(map(str, part.path)) for part in entry_parts} == listed
    assert {(part.kind, part.tool, part.locked) for part in entry_parts} == {(kind, tool, None)}
    assert {part.path[-1] for part in entry_parts if part.block} <= {1}


def test_openclaw_call_parts_are_strings_of_its_arguments():
    """The call's `partialArgs`, `partialJson`, id and name stay."""
    call = {"type": "toolCall", "id": "call_1|fc_1", "name": "write",
            "arguments": {"path": "/w/a", "edits": [{"newText": "words"}], "n": 1},
            "partialArgs": '{"path":"/w/a"}', "partialJson": '{"path":"/w/a"}'}  # fmt: skip
    entry = message("assistant", [call], stopReason="toolUse")

    assert {(part.kind, part.tool) for part in parts(OPENCLAW, entry)} == {("tool_call", "write")}
    assert unlocked_paths(OPENCLAW, entry) == {
        "message.content.0.arguments.path", "message.content.0.arguments.edits.0.newText",
    }  # fmt: skip


@pytest.mark.parametrize("arguments", ['{"path":"/w/a"}', None, ["words"], 7])
def test_openclaw_arguments_that_are_not_an_object_have_no_parts(arguments):
    """Arguments stored as text are parsed as JSON, which a bare placeholder is not."""
    call = {"type": "toolCall", "id": "call_1", "name": "write", "arguments": arguments}

    assert parts(OPENCLAW, message("assistant", [call])) == []


@pytest.mark.parametrize(
    "entry",
    [
        {"type": "session", "version": 3, "id": "s", "cwd": "words" * 200},
        {"type": "compaction", "id": "c", "summary": "words", "details": {"readFiles": ["words"]}},
        {"type": "branch_summary", "id": "b", "fromId": "a", "summary": "words"},
        {"type": "custom", "id": "c", "customType": "model-snapshot", "data": {"text": "words"}},
        {"type": "label", "id": "l", "targetId": "a", "label": "words"},
        {"type": "model_change", "id": "m", "provider": "words", "modelId": "words"},
        {"type": "session_info", "id": "i", "name": "words"},
        {"type": "leaf", "id": "l", "targetId": "a", "message": {"role": "user", "content": "x"}},
        {"type": "metadata", "id": "x", "message": {"role": "user", "content": "words"}},
        {"type": "message", "id": "m", "message": "words"},
        {"type": "message", "id": "m", "message": {"role": "hookMessage", "content": "words"}},
        {"type": "message", "id": "m", "message": {"content": "words"}},
        {"message": {"role": "user", "content": "words"}},
        *({"type": kind, "id": "a", "parentId": None} for kind in ({}, [], None, 7)),
    ],
)
def test_openclaw_other_entries_have_no_parts(entry):
    """Headers, summaries, labels, state and unknown types stay whole."""
    assert parts(OPENCLAW, entry) == []


@pytest.mark.parametrize(
    "api",
    ["anthropic-messages", "bedrock-converse-stream", "openai-responses", "openai-completions",
     "google-generative-ai", "somebody-else", None],
)  # fmt: skip
def test_unsigned_thinking_is_a_string_part(api):
    """Unsigned thinking is plain text to every provider, before and after the last prompt."""
    for before in (True, False):
        (part,) = parts(OPENCLAW, thinking(api), before_last_user=before)

        assert part.path == ("message", "content", 0, "thinking")
        assert (part.kind, part.chars, part.block, part.locked) == ("thinking", 600, False, None)


@pytest.mark.parametrize("api", ["anthropic-messages", "bedrock-converse-stream"])
def test_anthropic_thinking_is_a_block_part_before_the_last_prompt(api):
    """Text and signature are emptied together, and only in turns before the last prompt.

    pi-ai providers/anthropic.js sends the pair as it is; a changed text is refused with 400. An
    emptied block is not sent, so that no model imitates it.
    """
    entry = thinking(api, "EqQBCkYIBRgC")
    entry["message"]["content"].append(TEXT)

    _, before = parts(OPENCLAW, entry)
    _, after = parts(OPENCLAW, entry, before_last_user=False)

    assert (before.path, before.block, before.locked) == (("message", "content", 0), True, None)
    assert json.loads(before.instead) == {
        "type": "thinking", "thinking": "", "thinkingSignature": "",
    }  # fmt: skip
    assert after.locked == "signed thinking of the last turn"


@pytest.mark.parametrize("beside", [[], [{"type": "text", "text": " "}]])
def test_signed_thinking_alone_in_its_message_is_locked(beside):
    """A message without other sent content would become empty."""
    entry = thinking("anthropic-messages", "EqQBCkYIBRgC")
    entry["message"]["content"] += beside

    (locked,) = [part.locked for part in parts(OPENCLAW, entry) if part.kind == "thinking"]

    assert locked == "nothing else is in its message"


# Signatures.


def thoughts_of(block, **message):
    """Return the thoughts of a reply with this thinking block and a text."""
    entry = thinking("anthropic-messages", model="claude-fable-5-1", **block)
    entry["message"] |= message
    entry["message"]["content"].append(TEXT)
    return record(OPENCLAW, entry).thoughts


@pytest.mark.parametrize(
    ("block", "chars"),
    [
        ({"signature": "c2ln"}, 600),
        ({"signature": "c2ln", "thinking": ""}, 4),
        ({"signature": "b3BhcXVl", "thinking": "[Reasoning redacted]", "redacted": True}, 20),
    ],
)
def test_thoughts_include_hollow_and_redacted_blocks(block, chars):
    """A signature without text and a redacted block are sent like any other signature."""
    path = ("message", "content", 0)
    unsound = {} if block.get("thinking", "x") else {path: HOLLOW}
    assert thoughts_of(block) == Thoughts(
        ("claude-fable-5-1",), ((path, chars),), EMPTIED, unsound=unsound
    )


@pytest.mark.parametrize(
    "fields",
    [
        {"stopReason": "error"}, {"stopReason": "aborted"}, {"api": "openai-responses"},
        {"api": "google-vertex"},
    ],
    ids=str,
)  # fmt: skip
def test_replies_that_bind_no_signature_have_no_thoughts(fields):
    """A failed reply is not sent again, and other APIs do not bind a signature to its prefix."""
    assert thoughts_of({"signature": "c2ln"}, **fields) is None


@pytest.mark.parametrize(
    ("signature", "bound"),
    [
        ("CAQSswgKZwgREAMqQ", True), ("CAUSswgKZwgREAMqQ", True), ("CAISswgKZwgREAMqQ", False),
        ("ErMCCkYIBxgCKkCV", False), ("CAQa", False), ("CA", False), ("c2ln", False), ("", False),
        ("CAQé", False), ("reasoning_content", False),
    ],
)  # fmt: skip
def test_form_of_a_signature_tells_what_it_covers(signature, bound):
    """Signatures of Claude 5.1 and later begin with another version of their envelope."""
    assert covers_request(signature) is bound
    assert thoughts_of({"signature": signature}).bound is bound


def _signature(version=b"", size=100):
    """Return a signature in Claude's form, of made-up bytes."""
    return base64.b64encode(version + b"\x12\x64" + bytes(range(size)) + b"\x18\x01").decode()


@pytest.mark.parametrize(
    ("signature", "damaged"),
    [
        (_signature(), False), (_signature(b"\x08\x04"), False), ("c2ln", False), ("c2lnbg", False),
        (_signature().rstrip("="), False),
        (_signature()[:40], True), (_signature(b"\x08\x04")[:40], True), ("Eg", True),
        (_signature()[:6] + "…" + _signature()[-4:], True),
        (_signature()[:6] + "..." + _signature()[-4:], True), ("***", True), ("[REDACTED]", True),
    ],
)  # fmt: skip
def test_form_of_a_signature_tells_whether_it_is_whole(signature, damaged):
    """A masked signature is no base64, and one that was cut off is shorter than it says."""
    assert is_damaged(signature, ["house-1", "anthropic/claude-opus-5"]) is damaged
    assert not is_damaged(signature, ["house-1"])
    path = ("message", "content", 0)
    assert thoughts_of({"signature": signature}).unsound == ({path: DAMAGED} if damaged else {})


def test_unsigned_and_emptied_thinking_have_no_signature():
    """Thinking without a signature, or emptied by an extraction, is not listed."""
    assert thoughts_of({}).blocks == ()
    assert thoughts_of({"signature": "", "thinking": ""}).blocks == ()


def test_thoughts_record_models_and_drop_requests():
    """Thoughts record the models, a request to drop blocks, and whether nothing else is sent.

    pi from 0.85.1 on writes `providerThinkingLevel` only with requests that ask for `drop_block`.
    """
    alone = thinking("anthropic-messages", "c2ln", model="latest")
    alone["message"] |= {"responseModel": "claude-opus-6", "providerThinkingLevel": "high"}

    thoughts = record(OPENCLAW, alone).thoughts

    assert (thoughts.only_content, thoughts.models) == (True, ("latest", "claude-opus-6"))
    assert thoughts.asked_to_drop
    assert not thoughts_of({"signature": "c2ln"}).only_content
    assert not thoughts_of({"signature": "c2ln"}).asked_to_drop


# Dead entries.


def model_change(conversation, provider, model):
    conversation.entry("model_change", provider=provider, modelId=model)


def snapshot(conversation, provider, model):
    data = {"timestamp": 1, "provider": provider, "modelApi": "api", "modelId": model}
    conversation.entry("custom", customType="model-snapshot", data=data)


def answer(conversation, provider, model):
    conversation.assistant()
    conversation.lines[-1]["message"] |= {"provider": provider, "model": model}


def delivery(conversation, provider, model):
    answer(conversation, provider, model)
    conversation.lines[-1]["message"] |= {"provider": "openclaw", "model": "delivery-mirror"}


SONNET, OPUS, OPUS_5 = "claude-sonnet-4-6", "claude-opus-4-6", "claude-opus-5-5"
FABLE, GPT = "claude-fable-5-1", "gpt-6.2-sol"


@pytest.mark.parametrize(
    ("by", "then", "sent"),
    [
        (SONNET, [], 900),
        (SONNET, [(answer, "anthropic", SONNET)], 900),
        (SONNET, [(answer, "anthropic", OPUS)], 0),
        (SONNET, [(answer, "bedrock", SONNET)], 0),
        (SONNET, [(model_change, "anthropic", OPUS)], 0),
        (SONNET, [(answer, "openai", GPT), (model_change, "anthropic", SONNET)], 900),
        (SONNET, [(delivery, "anthropic", OPUS)], 900),
        (SONNET, [(snapshot, "anthropic", OPUS)], 900),
        (SONNET, [(snapshot, "anthropic", OPUS_5)], 0),
        (OPUS_5, [(snapshot, "openai", GPT)], 0),
        (SONNET, [(snapshot, "anthropic", FABLE)], 900),
        (GPT, [(snapshot, "anthropic", FABLE)], 0),
    ],
)
def test_thinking_of_a_former_model_or_account_is_not_sent(by, then, sent):
    """OpenClaw, which writes snapshots of the model, leaves it out with a Claude 5, pi always.

    After a return to the model it is sent again, so it is not dead.
    """
    conversation = Conversation()
    conversation.user()
    block = {"type": "thinking", "thinking": "t" * 900, "thinkingSignature": "c2ln"}
    conversation.assistant([block], api="anthropic-messages")
    conversation.lines[-1]["message"] |= {"provider": "anthropic", "model": by}
    for add, provider, model in then:
        add(conversation, provider, model)
    transcript = Reading(OPENCLAW, conversation.bytes()).transcript
    [thought] = transcript.values(2)  # after the header and the prompt

    assert transcript.sent(2).chars == thought.size[0] == sent
    assert not thought.dead


def reasons_dead(*lines):
    """Return why each entry of a chain is not sent, or None if it is sent."""
    chained, last = [dump(HEADER)], None
    for number, line in enumerate(lines):
        entry = {"id": f"e{number}", "parentId": last, **line}
        last = entry["id"]
        chained.append(dump(entry))
    look = survey(OPENCLAW, b"".join(chained))
    starts = itertools.accumulate(map(len, chained))
    return [look.dead(start) for start in list(starts)[:-1]]


PROMPT = {"type": "message", "message": {"role": "user", "content": "words"}}
COMPACTION = {"type": "compaction", "summary": "so far", "firstKeptEntryId": "e1"}


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        ([PROMPT, PROMPT], [None, None]),
        ([PROMPT, {**PROMPT, "parentId": None}], [OFF_BRANCH, None]),
        ([PROMPT, PROMPT, {**PROMPT, "parentId": "e0"}], [None, OFF_BRANCH, None]),
        ([PROMPT, PROMPT, COMPACTION, PROMPT], [BEFORE_COMPACTION, None, None, None]),
        ([PROMPT, PROMPT, {**COMPACTION, "firstKeptEntryId": "e2"}, PROMPT],
         [BEFORE_COMPACTION, BEFORE_COMPACTION, None, None]),
        ([PROMPT, PROMPT, COMPACTION, {**COMPACTION, "firstKeptEntryId": "e2"}],
         [BEFORE_COMPACTION, BEFORE_COMPACTION, None, None]),
        ([PROMPT, {**COMPACTION, "firstKeptEntryId": "gone"}], [None, None]),
        ([PROMPT, {"type": "reset"}, PROMPT], ["before the last reset", None, None]),
        ([PROMPT, PROMPT, {"type": "context_edit", "targetId": "e0", "replacement": None}],
         [EDITED_AWAY, None, None]),
        ([PROMPT, {"type": "context_edit", "targetId": "e0"}, {**PROMPT, "parentId": "e0"}],
         [None, OFF_BRANCH, None]),
        ([PROMPT, PROMPT, {"type": "context_edit", "targetId": "e0", "parentId": "e0"},
          {"type": "usage"}, PROMPT], [EDITED_AWAY, OFF_BRANCH, None, None, None]),
    ],
)  # fmt: skip
def test_entries_that_the_next_request_omits_are_dead(lines, why):
    """Other branches, entries before a compaction or reset, and edited entries are not sent.

    pi's session manager 1.5.2 (`buildSessionProjection`) omits the same entries.
    """
    assert reasons_dead(*lines) == why


def test_details_of_a_result_are_dead():
    """The details of a result are dead and its text is live: only the screen shows details."""
    details = {"diff": "d" * 9, "patch": "p" * 9}
    entry = message("toolResult", [TEXT], toolName="edit", details=details)

    assert {part.path[-1]: part.dead for part in parts(OPENCLAW, entry)} == {
        "text": False, "diff": True, "patch": True,
    }  # fmt: skip


def test_system_messages_have_no_parts():
    """A system message, and its copy in a compaction, has no parts and does not count."""
    prompt = {"role": "system", "content": "", "sections": {"preamble": "x" * 9000},
              "toolsAdded": [{"name": "read", "description": "y" * 9000}]}  # fmt: skip

    assert parts(OPENCLAW, {"type": "message", "id": "a", "message": prompt}) == []
    assert parts(OPENCLAW, {**COMPACTION, "id": "b", "systemMessage": prompt}) == []
    assert not record(OPENCLAW, {"type": "message", "id": "a", "message": prompt}).is_message


def signed_call():
    call = {"type": "toolCall", "id": "call_1", "name": "write", "thoughtSignature": "c2ln",
            "arguments": {"path": "/w/a"}}  # fmt: skip
    return message("assistant", [call], stopReason="toolUse")


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        (signed_call(), "call signed by its provider"),
        *((thinking(api, signature), "thinking signed by its provider") for api, signature in (
            ("openai-responses", '{"type":"reasoning","id":"rs_1","encrypted_content":"x"}'),
            ("openai-codex-responses", '{"type":"reasoning","id":"rs_1"}'),
            ("azure-openai-responses", "rs_1"),
            ("google-generative-ai", "c2lnbmVk"),
            ("google-vertex", "c2lnbmVk"),
            ("google-vertex", "reasoning_content"),
            ("openai-completions", '[{"type":"reasoning.encrypted"}]'),
            ("openai-completions", {"id": "rs_1"}),
            ("somebody-else", "c2lnbmVk"),
            (None, "c2lnbmVk"),
        )),
        *((thinking(api, "c2lnbmVk", redacted=True), "redacted thinking")
          for api in ("anthropic-messages", "openai-completions", None)),
    ],
)  # fmt: skip
def test_openclaw_signed_and_redacted_parts_are_locked(entry, reason):
    """Providers verify signatures or pair them with their text, and redacted blocks are opaque.

    See pi-ai providers; Gemini signs a call with `thoughtSignature`.
    """
    (part,) = parts(OPENCLAW, entry)

    assert part.locked == reason


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning", "reasoning_text"])
def test_field_name_in_place_of_a_signature_is_not_a_signature(name):
    """openai-completions stores the provider's field name there, so the text is extractable.

    The name stays (pi-ai providers/openai-completions.js writes the text under it).
    """
    assert unlocked_paths(OPENCLAW, thinking("openai-completions", name)) == {
        "message.content.0.thinking"
    }


def test_thinking_without_text_has_no_part():
    """Thinking that is empty or not a string cannot be extracted, signed or not."""
    assert parts(OPENCLAW, thinking("anthropic-messages", "c2lnbmVk", thinking="")) == []
    assert parts(OPENCLAW, thinking("anthropic-messages", "c2lnbmVk", thinking=7)) == []


@pytest.mark.parametrize(
    ("entry", "counts"),
    [
        (message("user", "x"), True),
        (message("assistant", []), True),
        (message("toolResult", []), True),
        (message("bashExecution"), True),
        (message("custom", "x"), True),
        ({"type": "custom_message", "content": "x"}, True),
        ({"type": "compaction", "summary": "x"}, False),
        ({"type": "custom", "data": {}}, False),
        ({"type": "label"}, False),
        ({"type": "session"}, False),
        ({"type": "leaf"}, False),
        ({"type": "message", "message": {"role": "other"}}, False),
        ({"type": "message"}, False),
    ],
)
def test_openclaw_counts_messages_but_not_control_entries(entry, counts):
    """Messages of every known role and custom messages count."""
    assert record(OPENCLAW, entry).is_message is counts


def test_openclaw_entry_id_is_its_id_except_for_the_header():
    """The header's id is the session's; an entry without an id has none."""
    assert record(OPENCLAW, message("user", "x"), 2).ident == "a1"
    assert record(OPENCLAW, HEADER, 1).ident is None
    assert record(OPENCLAW, {"type": "message"}, 2).ident is None


def test_openclaw_call_and_answer_share_their_call_id():
    """Call arguments and the result text are anchored to the call id; other texts are not."""
    call = {"type": "toolCall", "id": "call_1", "name": "exec", "arguments": {"command": "ls"}}
    reply = message("assistant", [TEXT, call, {**call, "id": "call_2", "arguments": "text"}])
    result = message("toolResult", [{"type": "text", "text": "a\n"}, IMAGE], toolCallId="call_1",
                   details={"aggregated": "a", "cwd": "b"})  # fmt: skip

    call, other = OPENCLAW.read(reply).calls
    (answer,) = OPENCLAW.read(result).result_texts

    assert (call.path, call.call_id) == (("message", "content", 1, "arguments"), "call_1")
    assert (other.call_id, other.arguments) == ("call_2", "text")
    assert (answer.path, answer.call_id) == (("message", "content", 0, "text"), "call_1")
    assert list(OPENCLAW.read(reply).result_texts) == list(OPENCLAW.read(result).calls) == []
    calls = {value.path: value.call for value in OPENCLAW.read(reply).values}
    assert calls == {("message", "content", 0, "text"): None, (*call.path, "command"): "call_1"}
    assert {value.call for value in OPENCLAW.read(result).values} == {"call_1"}


# Closed and open turns.


def last_turn(*steps):
    """Return why the last turn is open in a session that ends with `steps`."""
    conversation = Conversation()
    conversation.turn()
    for step in steps:
        step(conversation)
    return survey(OPENCLAW, conversation.bytes()).open_turn


def says(role, **fields):
    return lambda conversation: conversation.entry(message={"role": role, **fields})


def adds(kind, **fields):
    return lambda conversation: conversation.entry(kind, **fields)


def stops(reason, content="done."):
    return lambda conversation: conversation.assistant(content, stop=reason)


def calls(stop="toolUse"):
    return lambda conversation: conversation.assistant(
        [{"type": "toolCall", "id": "call_1", "name": "exec", "arguments": {}}], stop=stop
    )


@pytest.mark.parametrize("reason", ["stop", "length", "error", "aborted"])
def test_openclaw_turn_that_stopped_is_closed(reason):
    """A reply with any final stop reason and no call closes the turn."""
    assert last_turn(stops(reason)) is None
    assert last_turn(stops(reason, [])) is None


@pytest.mark.parametrize(
    ("steps", "reason"),
    [
        ([says("user", content="go on")], "a user message"),
        ([says("toolResult", toolCallId="c", toolName="exec", content=[], isError=False)],
         "a tool result"),
        ([calls()], "a tool call"),
        ([calls("aborted")], "a tool call"),
        ([stops("toolUse")], "has not stopped"),
        ([stops(None)], "has not stopped"),
        ([stops([])], "has not stopped"),
        ([stops("something new")], "has not stopped"),
        ([stops("stop"), says("user", content="and")], "a user message"),
    ],
)  # fmt: skip
def test_openclaw_turn_that_has_not_stopped_is_open(steps, reason):
    """A prompt, a call, a result or a reply that continues keeps the turn open."""
    assert reason in last_turn(*steps)


# Copies of what OpenClaw delivered or added to a chat, which it never sends to a model.
BOOKKEEPING = {
    "delivery": {"provider": "openclaw", "model": "delivery-mirror"},
    "addition of a gateway": {"provider": "openclaw", "model": "gateway-injected"},
    "delivery without its model": {"openclawDeliveryMirror": {"kind": "channel-final"}},
}
OUTSIDE_TURNS = {
    **{
        name: says(
            "assistant", content=[{"type": "text", "text": "sent"}], stopReason="stop", **fields
        )
        for name, fields in BOOKKEEPING.items()
    },
    "label": adds("label", targetId="x", label="here"),
    "state": adds("custom", customType="model-snapshot", data={}),
    "model": adds("model_change", provider="p", modelId="m"),
    "thinking level": adds("thinking_level_change", thinkingLevel="off"),
    "session name": adds("session_info", name="n"),
    "leaf": adds("leaf", targetId="00000001"),
    "compaction": adds("compaction", summary="s", firstKeptEntryId="00000001"),
    "branch summary": adds("branch_summary", summary="s", fromId="00000001"),
    "custom entry": adds("custom_message", content="words"),
    "bash execution": says("bashExecution", command="ls", output="words"),
    "custom message": says("custom", content="words"),
    "bare string": lambda conversation: conversation.lines.append("a bare string"),
    "list": lambda conversation: conversation.lines.append(["a list"]),
}


@pytest.mark.parametrize("case", OUTSIDE_TURNS)
def test_openclaw_entries_outside_a_turn_leave_it_as_it_is(case):
    """Labels, state, summaries, custom messages and deliveries neither open nor close it."""
    assert last_turn(stops("stop"), OUTSIDE_TURNS[case]) is None
    assert "a user message" in last_turn(says("user", content="go"), OUTSIDE_TURNS[case])


@pytest.mark.parametrize("case", BOOKKEEPING)
def test_openclaw_bookkeeping_is_no_answer(case):
    """It is no call, is not sent, and does not count as a message; an archive may take it."""
    conversation = Conversation()
    conversation.turn()
    plain = conversation.bytes()
    says("assistant", content=[{"type": "text", "text": "sent"}], stopReason="stop",
         usage={"input": 7, "totalTokens": 7}, **BOOKKEEPING[case])(conversation)  # fmt: skip
    entry, data = conversation.lines[-1], conversation.bytes()
    before, after = survey(OPENCLAW, plain), survey(OPENCLAW, data)

    assert record(OPENCLAW, entry).call is record(OPENCLAW, entry).thoughts is None
    assert OPENCLAW.read(entry).sent == Sent()
    assert not record(OPENCLAW, entry).is_message
    assert OPENCLAW.read(entry).step.role == "note"
    assert after.last_user == before.last_user
    assert after.positions == {**before.positions, len(plain): 0}


def test_openclaw_results_before_bookkeeping_have_no_answer():
    """A prompt after it does not begin a turn: the provider joins it with the results."""
    conversation = Conversation()
    conversation.user("the prompt")
    conversation.call()
    conversation.result("words")
    OUTSIDE_TURNS["delivery"](conversation)
    conversation.user("and now?")

    assert survey(OPENCLAW, conversation.bytes()).last_user == len(dump(conversation.lines[0]))


def test_openclaw_turn_ignores_complete_lines_that_do_not_parse():
    """An invalid line with a newline is not a write in progress."""
    conversation = Conversation()
    conversation.turn()

    assert survey(OPENCLAW, conversation.bytes() + b'{"torn":\n').open_turn is None
    assert survey(OPENCLAW, conversation.bytes() + b"\n\n").open_turn is None


def test_openclaw_prompt_off_the_branch_keeps_the_turn_open():
    """The last prompt in the file is being answered, whichever branch is selected."""
    root = adds("leaf", targetId=None)
    words = [adds("custom_message", content="words")] * (WINDOW + 2)

    assert "a user message" in last_turn(says("user", content="go"), root)
    assert "a user message" in last_turn(says("user", content="go"), *words)
    assert last_turn(stops("stop"), root) is None


def test_openclaw_file_without_messages_has_no_open_turn():
    """In an empty file or a header alone, nothing is open, dead or recent."""
    for data in (b"", dump(HEADER)):
        look = survey(OPENCLAW, data)
        assert (look.open_turn, look.last_user, look.dead_entries, look.positions) == (
            None, None, {}, {},
        )  # fmt: skip
