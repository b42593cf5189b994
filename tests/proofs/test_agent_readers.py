"""Pruned sessions as the published code of agents loads them and sends them to providers.

pi's session manager (OpenClaw's is a copy of it) and pi-ai's providers run here unmodified; each
provider builds its request and is stopped before it sends anything.
"""

import json
import re

import pytest

from brainsurgeon.model.entries import KINDS
from building.model_requests import (
    SESSIONS,
    add_answer,
    call_and_result_ids,
    dicts_in,
    signed_blocks,
    thinking_block,
)
from building.version_diff import EMPTY_THINKING
from building.world import SAMPLES, dump
from proofs.agent_readers import VIEW

PLACEHOLDER = re.compile(r"\[\[extracted-[A-Za-z0-9._~-]+\]\]")
EVERYTHING = {"trigger_types": KINDS, "keep_recent": 0, "min_value_length": 60}
IMAGE = {"type": "image", "data": "iVBORw0KGgo" * 200, "mimeType": "image/png"}


@pytest.fixture
def view(reader):
    """Return a function from the bytes of a session to what pi loads and would send of it."""
    return reader(VIEW, "pi")


@pytest.fixture
def prune(world, view):
    """Return a function that scans a session and checks pi's entries and messages.

    It returns the requests before and after, and the number of placeholders. Emptied thinking is
    left out before the comparison: it has no placeholder, and no provider is sent it.
    """

    def prune_session(data, **settings):
        path = world.put("11111111-0000-4000-8000-000000000001.jsonl", data)
        report = world.scan(**settings)
        assert report.sessions_changed == 1
        reference, emptied = without_emptied_thinking(data, path.read_bytes())
        before, after = view(reference), view(path.read_bytes())
        placeholders = check_entries(before, after)
        assert placeholders == report.values_extracted - emptied > 0
        check_messages(before["messages"], after["messages"])
        return before["requests"], after["requests"], placeholders

    return prune_session


def without_emptied_thinking(data, pruned):
    """Empty the thinking blocks of a session that the pruned version has empty; count them."""
    lines, emptied = [], 0
    for line, after in zip(data.splitlines(), pruned.splitlines(), strict=True):
        entry = json.loads(line)
        content, blocks = (
            loaded.get("message", {}).get("content") for loaded in (entry, json.loads(after))
        )
        for index, block in enumerate(blocks if isinstance(blocks, list) else ()):
            if block == json.loads(EMPTY_THINKING) != content[index]:
                assert content[index]["thinkingSignature"]
                content[index] = block
                emptied += 1
        lines.append(dump(entry))
    return b"".join(lines) if emptied else data, emptied


def differences(before, after, where=()):
    """Yield path and values of each difference of two JSON values; check that shapes are equal."""
    swapped = isinstance(after, dict) and after.keys() == {"type", "text"} and before != after
    if type(before) is not type(after) or (swapped and before.keys() != after.keys()):
        yield where, before, after
    elif isinstance(before, dict):
        assert list(before) == list(after), where
        for key in before:
            yield from differences(before[key], after[key], (*where, key))
    elif isinstance(before, list):
        assert len(before) == len(after), where
        for index, pair in enumerate(zip(before, after, strict=True)):
            yield from differences(*pair, (*where, index))
    elif before != after:
        yield where, before, after


def check_entries(before, after):
    """Check that entries differ only by their own placeholders; return the number of these."""
    changed = list(differences(before["entries"], after["entries"]))
    for where, _, value in changed:
        own = f"[[extracted-{after['entries'][where[0]]['id']}]]"
        assert value in (own, {"type": "text", "text": own}), where
    assert after["held"] == before["held"] > 0
    assert after["branch"] == before["branch"]
    assert not after["rewrote"]
    return len(changed)


def check_messages(before, after):
    """Check that replayed messages differ only by placeholders for values that are not empty."""
    assert [message["role"] for message in before] == [message["role"] for message in after]
    for where, old, new in differences(before, after):
        text = new["text"] if isinstance(new, dict) else new
        assert PLACEHOLDER.fullmatch(text), where
        assert old, where


def check_requests(before, after):
    """Check that requests differ only by placeholders, with every call and signature in place."""
    assert len(before) == len(after) >= 4
    for original, request in zip(before, after, strict=True):
        for where, old, new in differences(original, request):
            assert isinstance(old, str | dict), where
            text = new["text"] if isinstance(new, dict) else new
            assert PLACEHOLDER.search(text), (original["api"], where)
            if where[-1] == "arguments":
                assert json.loads(text).keys() == json.loads(old).keys()
        assert call_and_result_ids(original) == call_and_result_ids(request)
        known = signed_blocks(original)
        assert not [pair for pair in signed_blocks(request) if pair not in known], original["api"]


def count_blank(request):
    return sum(
        isinstance(block.get(key), str) and not block[key].strip()
        for block in dicts_in(request["messages"])
        for key in ("text", "content", "output", "thinking", "arguments")
    )


@pytest.mark.parametrize("sample", SESSIONS.values(), ids=SESSIONS)
@pytest.mark.parametrize("settings", [{}, EVERYTHING], ids=["defaults", "everything"])
def test_pi_loads_a_pruned_session_like_the_original(prune, sample, settings):
    """Entries, order, roles and blocks stay; requests differ only by placeholders."""
    before, after, _ = prune(SAMPLES.joinpath(*sample).read_bytes(), **settings)

    check_requests(before, after)
    assert list(map(count_blank, before)) == list(map(count_blank, after))


@pytest.mark.parametrize("sample", SESSIONS.values(), ids=SESSIONS)
def test_pi_sends_the_original_messages_after_a_restore(world, view, sample):
    """Messages, requests and branch equal the original's; the `_restored` field is not sent."""
    data = SAMPLES.joinpath(*sample).read_bytes()
    path = world.put("11111111-0000-4000-8000-000000000001.jsonl", data)
    world.scan(**EVERYTHING)

    world.restore_all()

    before, after = view(data), view(path.read_bytes())
    assert b'"_restored":' in path.read_bytes()
    for key in ("messages", "requests", "branch"):
        assert after[key] == before[key]


def two_turns(conversation, api, sign, call="call_{}", **extras):
    """Return a session of two turns with thinking before each call and each answer."""

    def answer(tag, block, stop="stop"):
        thinking = thinking_block(tag.replace("_", " "), sign(tag))
        add_answer(conversation, [thinking, block], api, stop)

    for turn in ("first", "last"):
        conversation.user(f"the {turn} question")
        ident = call.format(turn)
        block = {"type": "toolCall", "id": ident, "name": "exec",
                 "arguments": {"command": f"echo {turn} " * 100}, **extras}  # fmt: skip
        answer(f"{turn}_call", block, "toolUse")
        conversation.result(f"result of the {turn} turn\n" * 100, call=ident)
        answer(f"{turn}_answer", {"type": "text", "text": f"the {turn} answer. " * 60})
    return conversation.bytes()


def writer_request(requests, api):
    """Return the request to the provider that wrote the session."""
    writer = (api, "its-model")
    return next(sent for sent in requests if (sent["api"], sent["model"]) == writer)


def blocks(request, kind):
    return [block for block in dicts_in(request["messages"]) if block.get("type") == kind]


def prune_and_check(prune, data, api):
    """Extract everything, check all requests, and return the writer's one before and after."""
    before, after, _ = prune(data, **EVERYTHING)
    check_requests(before, after)
    return writer_request(before, api), writer_request(after, api)


def test_anthropic_thinking_before_the_last_prompt_is_removed(prune, view, conversation):
    """Text and signature leave together; thinking of the last turn and redacted thinking stay."""
    api = "anthropic-messages"
    conversation.user("before everything")
    hidden = thinking_block("something hidden", "b3BhcXVl" * 40, redacted=True)
    add_answer(conversation, [hidden, {"type": "text", "text": "no comment"}], api)
    data = two_turns(conversation, api, sign=lambda tag: f"sig-{tag}-" + "A" * 300)

    before, after = prune_and_check(prune, data, api)

    original = blocks(writer_request(view(data)["requests"], api), "thinking")
    assert len(original) == 4
    assert blocks(after, "thinking") == original[2:]
    assert "sig-first" not in json.dumps(after)
    assert blocks(after, "redacted_thinking") == blocks(before, "redacted_thinking") != []
    assert len(PLACEHOLDER.findall(json.dumps(after))) >= 3


def test_openai_reasoning_items_stay_before_their_call_or_message(prune, conversation):
    """Each rs_ item is sent to the Responses API unchanged, right before its fc_ or msg_ item."""
    api = "openai-responses"

    def sign(tag):
        return json.dumps({"type": "reasoning", "id": f"rs_{tag}", "summary": [],
                           "encrypted_content": "gAAAA" * 300})  # fmt: skip

    data = two_turns(conversation, api, sign, call="call_{0}|fc_{0}")

    before, after = prune_and_check(prune, data, api)

    assert blocks(after, "reasoning") == blocks(before, "reasoning")
    order = [(item.get("type"), item.get("id")) for item in after["messages"]]
    for turn in ("first", "last"):
        at = order.index(("reasoning", f"rs_{turn}_call"))
        assert order[at + 1] == ("function_call", f"fc_{turn}")
        at = order.index(("reasoning", f"rs_{turn}_answer"))
        assert order[at + 1][0] == "message"
    assert [item["call_id"] for item in blocks(after, "function_call_output")] == [
        "call_first", "call_last",
    ]  # fmt: skip


def test_chat_completions_keep_the_reasoning_field(prune, conversation):
    """A placeholder replaces the thinking in the provider's own field, reasoning_content."""
    api = "openai-completions"
    data = two_turns(conversation, api, sign=lambda _: "reasoning_content")

    before, after = prune_and_check(prune, data, api)

    messages = [
        [part for part in dicts_in(request["messages"]) if "tool_calls" in part]
        for request in (before, after)
    ]
    assert list(map(len, messages)) == [2, 2]
    assert all(PLACEHOLDER.fullmatch(message["reasoning_content"]) for message in messages[1])


def test_google_thinking_and_calls_keep_their_signatures(prune, conversation):
    """Signed thinking keeps its text as well."""
    api = "google-generative-ai"
    signatures = {"sign": lambda _: "QUJD" * 100, "thoughtSignature": "REVG" * 100}
    data = two_turns(conversation, api, **signatures)

    before, after = prune_and_check(prune, data, api)

    def signed(request):
        return [
            (part.get("text"), part["thoughtSignature"], "functionCall" in part)
            for part in dicts_in(request["messages"])
            if "thoughtSignature" in part
        ]

    assert len(signed(before)) == 6
    assert signed(after) == signed(before)


@pytest.mark.parametrize(
    "api", ["anthropic-messages", "openai-responses", "openai-completions", "google-generative-ai"]
)
def test_requests_hold_a_text_placeholder_for_each_image(prune, conversation, api):
    """No request holds a placeholder as image data, or an empty text."""
    question = {"type": "text", "text": "what do you see?"}
    conversation.entry(message={"role": "user", "content": [question, IMAGE], "timestamp": 1})
    for number, content in enumerate(([IMAGE], [question, IMAGE])):
        call = {"type": "toolCall", "id": f"call_{number}|fc_{number}", "name": "read",
                "arguments": {"path": "a.png"}}  # fmt: skip
        add_answer(conversation, [call], api, "toolUse")
        conversation.entry(message={
            "role": "toolResult", "toolCallId": call["id"], "toolName": "read",
            "content": content, "isError": False, "timestamp": 1,
        })  # fmt: skip
    add_answer(conversation, [{"type": "text", "text": "a picture"}], api)

    before, after, placeholders = prune(conversation.bytes(), **EVERYTHING)

    assert placeholders == 3
    for original, request in zip(before, after, strict=True):
        assert call_and_result_ids(original) == call_and_result_ids(request)
        assert IMAGE["data"] in json.dumps(original)
        sent = json.dumps(request)
        assert IMAGE["data"] not in sent
        assert "image/png" not in sent
        assert len(set(PLACEHOLDER.findall(sent))) == 3
        assert count_blank(request) == 0


def test_request_checks_reject_a_placeholder_beside_a_signature(view, conversation):
    """They fail for thinking extracted without its signature; Responses refuses a foreign one."""
    data = two_turns(conversation, "anthropic-messages", sign=lambda tag: f"sig-{tag}")
    original = view(data)
    text = thinking_block("first call", "")["thinking"].encode()
    assert text in data

    damaged = view(data.replace(text, b"[[extracted-00000002]]"))

    check_messages(original["messages"], damaged["messages"])
    with pytest.raises(AssertionError, match="anthropic-messages"):
        check_requests(original["requests"], damaged["requests"])
    with pytest.raises(AssertionError, match="refused"):
        view(data.replace(b"anthropic-messages", b"openai-responses"))
