"""What may be extracted from OpenClaw's entries, and when one of its turns is closed."""

import itertools
import json

import pytest

from brainsurgeon.formats import FORMATS
from brainsurgeon.formats.base import Thoughts
from brainsurgeon.formats.openclaw import EMPTIED
from brainsurgeon.model.sessions import (
    BEFORE_COMPACTION,
    BEFORE_RESET,
    EDITED_AWAY,
    NO_SURVEY,
    OFF_BRANCH,
    Survey,
)
from building.format_reading import HEADER, WINDOW, parts, survey, unlocked_paths
from building.world import Conversation, dump

OPENCLAW = FORMATS["openclaw"]


# OpenClaw and pi: the parts.


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
    ("entry", "kind", "tool", "found"),
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
def test_openclaw_names_what_may_be_cut(entry, kind, tool, found):
    """Content of either shape, details with their copies, and images are parts of their kind."""
    listed = parts(OPENCLAW, entry)

    assert {".".join(map(str, part.path)) for part in listed} == found
    assert {(part.kind, part.tool, part.locked) for part in listed} == {(kind, tool, None)}
    assert {part.path[-1] for part in listed if part.block} <= {1}


def test_openclaw_never_touches_the_copies_of_a_call():
    """The strings of `arguments` may go; `partialArgs`, `partialJson`, id and name stay."""
    call = {"type": "toolCall", "id": "call_1|fc_1", "name": "write",
            "arguments": {"path": "/w/a", "edits": [{"newText": "words"}], "n": 1},
            "partialArgs": '{"path":"/w/a"}', "partialJson": '{"path":"/w/a"}'}  # fmt: skip
    entry = message("assistant", [call], stopReason="toolUse")

    assert {(part.kind, part.tool) for part in parts(OPENCLAW, entry)} == {("tool_call", "write")}
    assert unlocked_paths(OPENCLAW, entry) == {
        "message.content.0.arguments.path", "message.content.0.arguments.edits.0.newText",
    }  # fmt: skip


def test_openclaw_leaves_the_arguments_of_a_signed_call():
    """Gemini may verify what its `thoughtSignature` signed, so that such a call stays whole."""
    call = {"type": "toolCall", "id": "call_1", "name": "write", "thoughtSignature": "c2ln",
            "arguments": {"path": "/w/a"}}  # fmt: skip
    (part,) = parts(OPENCLAW, message("assistant", [call], stopReason="toolUse"))

    assert part.locked == "call signed by its provider"


@pytest.mark.parametrize("arguments", ['{"path":"/w/a"}', None, ["words"], 7])
def test_openclaw_leaves_arguments_that_are_no_object(arguments):
    """Arguments kept as text are JSON to somebody; a bare placeholder would not be."""
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
    ],
)
def test_openclaw_has_no_parts_in_anything_else(entry):
    """Headers, summaries, labels, state and unknown types are carried along whole."""
    assert parts(OPENCLAW, entry) == []


@pytest.mark.parametrize(
    "api",
    ["anthropic-messages", "bedrock-converse-stream", "openai-responses", "openai-completions",
     "google-generative-ai", "somebody-else", None],
)  # fmt: skip
def test_unsigned_thinking_is_cut_in_place(api):
    """Thinking without a signature is plain text to every provider, before and after a prompt."""
    for before in (True, False):
        (part,) = parts(OPENCLAW, thinking(api), before_last_user=before)

        assert part.path == ("message", "content", 0, "thinking")
        assert (part.kind, part.chars, part.block, part.locked) == ("thinking", 600, False, None)


@pytest.mark.parametrize("api", ["anthropic-messages", "bedrock-converse-stream"])
def test_thinking_signed_by_anthropic_leaves_without_a_word(api):
    """Text and signature leave together, and only in turns before the last user message.

    pi-ai providers/anthropic.js sends the pair as it is; a changed text is refused with 400. What
    stands there afterwards is sent to nobody, so that no model imitates it.
    """
    entry = thinking(api, "EqQBCkYIBRgC")
    entry["message"]["content"].append(TEXT)

    _, before = parts(OPENCLAW, entry, before_last_user=True)
    _, after = parts(OPENCLAW, entry, before_last_user=False)

    assert (before.path, before.block, before.locked) == (("message", "content", 0), True, None)
    assert json.loads(before.instead) == {
        "type": "thinking", "thinking": "", "thinkingSignature": "",
    }  # fmt: skip
    assert after.locked == "signed thinking of the last turn"


@pytest.mark.parametrize("beside", [[], [{"type": "text", "text": " "}]])
def test_signed_thinking_stays_where_nothing_else_is_said(beside):
    """A message whose thinking is all that is sent of it would be left with nothing."""
    entry = thinking("anthropic-messages", "EqQBCkYIBRgC")
    entry["message"]["content"] += beside

    found = [one for one in parts(OPENCLAW, entry, before_last_user=True) if one.kind == "thinking"]

    assert [one.locked for one in found] == ["nothing else is in its message"]


# What is signed, and by whom.


def signatures(block, **message):
    """Give what the format says of the thinking of an answer with this block and a text."""
    entry = thinking("anthropic-messages", model="claude-fable-5-1", **block)
    entry["message"] |= message
    entry["message"]["content"].append(TEXT)
    return OPENCLAW.thoughts(entry)


@pytest.mark.parametrize(
    ("block", "chars"),
    [
        ({"signature": "c2ln"}, 600),
        ({"signature": "c2ln", "thinking": ""}, 4),
        ({"signature": "b3BhcXVl", "thinking": "[Reasoning redacted]", "redacted": True}, 20),
    ],
)
def test_every_signature_is_a_signature(block, chars):
    """A hollow block (a signature without text) and a redacted one are sent like any other."""
    assert signatures(block) == Thoughts(
        ("claude-fable-5-1",), ((("message", "content", 0), chars),), EMPTIED
    )


@pytest.mark.parametrize(
    "said",
    [
        {"stopReason": "error"}, {"stopReason": "aborted"}, {"api": "openai-responses"},
        {"api": "google-vertex"},
    ],
    ids=str,
)  # fmt: skip
def test_what_is_never_sent_again_is_no_signature(said):
    """A failed answer is not replayed, and other interfaces bind a signature to no prefix."""
    assert signatures({"signature": "c2ln"}, **said) is None


def test_unsigned_and_emptied_thinking_is_no_signature():
    """What nobody signed, and what we emptied, breaks at nothing."""
    assert signatures({}).blocks == ()
    assert signatures({"signature": "", "thinking": ""}).blocks == ()


def test_a_signature_tells_of_its_message_and_its_agent():
    """Whether anything else is sent of the message, whose it is, and whether pi managed its effort.

    pi from 0.85.1 on writes `providerThinkingLevel` only with requests that ask for `drop_block`.
    """
    alone = thinking("anthropic-messages", "c2ln", model="latest")
    alone["message"] |= {"responseModel": "claude-opus-6", "providerThinkingLevel": "high"}

    found = OPENCLAW.thoughts(alone)

    assert (found.alone, found.models) == (True, ("latest", "claude-opus-6"))
    assert found.asked_to_drop
    assert not signatures({"signature": "c2ln"}).alone
    assert not signatures({"signature": "c2ln"}).asked_to_drop


# What the next request carries, and what it does not.


def dead(*lines):
    """Give why each of these entries, appended one to the other, is not sent; None where it is."""
    chained, last = [dump(HEADER)], None
    for number, line in enumerate(lines):
        one = {"id": f"e{number}", "parentId": last, **line}
        last = one["id"]
        chained.append(dump(one))
    look = survey(OPENCLAW, b"".join(chained))
    starts = itertools.accumulate(map(len, chained))
    return [look.dead(start) for start in list(starts)[:-1]]


SAID = {"type": "message", "message": {"role": "user", "content": "words"}}
KEPT = {"type": "compaction", "summary": "so far", "firstKeptEntryId": "e1"}


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        ([SAID, SAID], [None, None]),
        ([SAID, {**SAID, "parentId": None}], [OFF_BRANCH, None]),
        ([SAID, SAID, {**SAID, "parentId": "e0"}], [None, OFF_BRANCH, None]),
        ([SAID, SAID, KEPT, SAID], [BEFORE_COMPACTION, None, None, None]),
        ([SAID, SAID, {**KEPT, "firstKeptEntryId": "e2"}, SAID],
         [BEFORE_COMPACTION, BEFORE_COMPACTION, None, None]),
        ([SAID, SAID, KEPT, {**KEPT, "firstKeptEntryId": "e2"}],
         [BEFORE_COMPACTION, BEFORE_COMPACTION, None, None]),
        ([SAID, {**KEPT, "firstKeptEntryId": "gone"}], [None, None]),
        ([SAID, {"type": "reset"}, SAID], [BEFORE_RESET, None, None]),
        ([SAID, SAID, {"type": "context_edit", "targetId": "e0", "replacement": None}],
         [EDITED_AWAY, None, None]),
        ([SAID, {"type": "context_edit", "targetId": "e0"}, {**SAID, "parentId": "e0"}],
         [None, OFF_BRANCH, None]),
        ([SAID, SAID, {"type": "context_edit", "targetId": "e0", "parentId": "e0"},
          {"type": "usage"}, SAID], [EDITED_AWAY, OFF_BRANCH, None, None, None]),
    ],
)  # fmt: skip
def test_what_the_next_request_leaves_out_is_dead(lines, why):
    """Other branches, what a compaction or a reset left behind, and what was edited away.

    pi's session manager 1.5.2 (`buildSessionProjection`) says the same of each.
    """
    assert dead(*lines) == why


def test_details_are_never_sent():
    """Only the agent's own screen shows them: text goes by the rules, details whatever its kind."""
    details = {"diff": "d" * 9, "patch": "p" * 9}
    entry = message("toolResult", [TEXT], toolName="edit", details=details)

    assert {part.path[-1]: part.dead for part in parts(OPENCLAW, entry)} == {
        "text": False, "diff": True, "patch": True,
    }  # fmt: skip


def test_prompts_and_tools_have_no_parts():
    """Nothing of a message of the role system, or of the copy in a compaction, is ever cut."""
    prompt = {"role": "system", "content": "", "sections": {"preamble": "x" * 9000},
              "toolsAdded": [{"name": "read", "description": "y" * 9000}]}  # fmt: skip

    assert parts(OPENCLAW, {"type": "message", "id": "a", "message": prompt}) == []
    assert parts(OPENCLAW, {**KEPT, "id": "b", "systemMessage": prompt}) == []
    assert not OPENCLAW.counts({"type": "message", "id": "a", "message": prompt})


@pytest.mark.parametrize(
    ("api", "signature"),
    [
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
    ],
)  # fmt: skip
def test_thinking_that_others_signed_stays(api, signature):
    """Whoever else verifies or pairs a signature gets it back with its text (pi-ai providers)."""
    (part,) = parts(OPENCLAW, thinking(api, signature))

    assert part.locked == "thinking signed by its provider"


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning", "reasoning_text"])
def test_the_name_of_a_field_is_no_signature(name):
    """openai-completions keeps the name of the provider's field there: the text may go.

    The name stays (pi-ai providers/openai-completions.js writes the text under it).
    """
    assert unlocked_paths(OPENCLAW, thinking("openai-completions", name)) == {
        "message.content.0.thinking"
    }


@pytest.mark.parametrize("api", ["anthropic-messages", "openai-completions", None])
def test_redacted_thinking_stays(api):
    """A block that the provider redacted is opaque and stays whole."""
    (part,) = parts(OPENCLAW, thinking(api, "c2lnbmVk", redacted=True))

    assert part.locked == "redacted thinking"


def test_thinking_without_text_is_no_part():
    """An empty thought has nothing to cut, whoever signed it."""
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
def test_openclaw_counts_what_is_a_step_of_the_conversation(entry, counts):
    """Messages of every role and custom messages count; control entries do not."""
    assert OPENCLAW.counts(entry) is counts


def test_openclaw_names_entries_by_id_and_the_header_never():
    """The header's id is the session's; an entry without an id cannot be named."""
    assert OPENCLAW.identity(message("user", "x"), b"", 2) == "a1"
    assert OPENCLAW.identity(HEADER, b"", 1) is None
    assert OPENCLAW.identity({"type": "message"}, b"", 2) is None


def test_openclaw_pairs_calls_with_their_answers():
    """A call and its answer name the same call."""
    call = {"type": "toolCall", "id": "call_1", "name": "exec", "arguments": {"command": "ls"}}
    asked = message("assistant", [TEXT, call, {**call, "id": "call_2", "arguments": "text"}])
    told = message("toolResult", [{"type": "text", "text": "a\n"}, IMAGE], toolCallId="call_1",
                   details={"aggregated": "a", "cwd": "b"})  # fmt: skip

    made, other = OPENCLAW.calls(asked)
    (answer,) = OPENCLAW.answers(told)

    assert (made.path, made.call_id) == (("message", "content", 1, "arguments"), "call_1")
    assert (other.call_id, other.arguments) == ("call_2", "text")
    assert (answer.path, answer.call_id) == (("message", "content", 0, "text"), "call_1")
    assert list(OPENCLAW.answers(asked)) == list(OPENCLAW.calls(told)) == []
    assert OPENCLAW.anchor(asked, made.path) == OPENCLAW.anchor(told, answer.path) == "call_1"
    assert OPENCLAW.anchor(asked, ("message", "content", 0, "text")) is None


# OpenClaw and pi: is the last turn closed?


def last_turn(*steps):
    """Build a session that ends as `steps` do it, and say what keeps its last turn open."""
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
def test_a_turn_that_stopped_is_closed(reason):
    """An assistant that stopped, however, without calling a tool closes the turn."""
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
def test_a_turn_that_has_not_stopped_is_open(steps, reason):
    """A prompt, a call, a result or an assistant that goes on keeps the turn open."""
    assert reason in last_turn(*steps)


AFTERTHOUGHTS = [
    adds("label", targetId="x", label="here"),
    adds("custom", customType="model-snapshot", data={}),
    adds("model_change", provider="p", modelId="m"),
    adds("thinking_level_change", thinkingLevel="off"),
    adds("session_info", name="n"),
    adds("leaf", targetId="00000001"),
    adds("compaction", summary="s", firstKeptEntryId="00000001"),
    adds("branch_summary", summary="s", fromId="00000001"),
    adds("custom_message", content="words"),
    says("bashExecution", command="ls", output="words"),
    says("custom", content="words"),
    lambda conversation: conversation.lines.append("a bare string"),
    lambda conversation: conversation.lines.append(["a list"]),
]


@pytest.mark.parametrize("after", range(len(AFTERTHOUGHTS)))
def test_what_is_no_step_of_a_turn_is_passed_over(after):
    """Labels, state, summaries, bash executions and custom messages change nothing."""
    assert last_turn(stops("stop"), AFTERTHOUGHTS[after]) is None
    assert "a user message" in last_turn(says("user", content="go"), AFTERTHOUGHTS[after])


def test_an_unterminated_line_counts_when_it_parses():
    """A last line without its newline says what it says; torn, it says that a write goes on."""
    conversation = Conversation()
    conversation.turn()
    closed = conversation.bytes()[:-1]
    conversation.user()
    opened_again = conversation.bytes()[:-1]

    assert survey(OPENCLAW, closed).open_turn is None
    assert "a user message" in survey(OPENCLAW, opened_again).open_turn
    for torn in (closed[:-1], closed[:-40], opened_again[:-1], closed + b"\n{", closed + b"\n\xff"):
        assert "torn" in survey(OPENCLAW, torn).open_turn


def test_a_broken_line_in_the_middle_is_passed_over():
    """A line that ended and does not parse is no write under way."""
    conversation = Conversation()
    conversation.turn()

    assert survey(OPENCLAW, conversation.bytes() + b'{"torn":\n').open_turn is None
    assert survey(OPENCLAW, conversation.bytes() + b"\n\n").open_turn is None


def test_a_turn_is_judged_off_the_branch_too():
    """Whatever a leaf control selects, a prompt that stands last in the file is being answered."""
    root = adds("leaf", targetId=None)
    words = [adds("custom_message", content="words")] * (WINDOW + 2)

    assert "a user message" in last_turn(says("user", content="go"), root)
    assert "a user message" in last_turn(says("user", content="go"), *words)
    assert last_turn(stops("stop"), root) is None


def test_a_file_without_messages_has_no_open_turn():
    """Nothing has begun where only a header stands, or nothing at all."""
    assert survey(OPENCLAW, dump(HEADER)) == Survey(WINDOW, {}, None)
    assert survey(OPENCLAW, b"") == Survey(WINDOW, {}, None)


@pytest.mark.parametrize("kind", [{}, [], None, 7])
def test_a_type_that_is_no_text_is_a_type_like_any_other(kind):
    """Whatever an agent writes as an entry's type, the entry is read, and nothing raises."""
    entry = {"type": kind, "id": "a", "parentId": None}

    assert list(OPENCLAW.parts(entry, NO_SURVEY, None)) == []
