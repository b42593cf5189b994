"""The agents' own readers load a pruned session as they load the original.

Apart from the placeholders.

pi's session manager (which OpenClaw's is a copy of) and pi-ai's providers run here as published;
each provider builds the request that it would send, and is stopped before it sends anything.
"""

import json
import re

import pytest

from brainsurgeon.model.entries import KINDS
from building.requests import SESSIONS, paired, partners, said, thought, walk
from building.swaps import EMPTY
from building.world import SAMPLES, dump
from proofs.agent_readers import LOOK, reader

PLACEHOLDER = re.compile(r"\[\[extracted-[A-Za-z0-9._~-]+\]\]")
EVERYTHING = {"trigger_types": KINDS, "keep_recent": 0, "min_value_length": 60}
IMAGE = {"type": "image", "data": "iVBORw0KGgo" * 200, "mimeType": "image/png"}


@pytest.fixture
def look(tmp_path):
    return reader(LOOK, "pi", tmp_path)


@pytest.fixture
def pruned(world, look):
    """Give pi's view of a session before and after a scan, and the run that lay between.

    The view before is one without the thinking that left without a placeholder, which no provider
    is shown (see test_signed_readers.py), and the run counts the other values.
    """

    def compare(data, **settings):
        path = world.put("11111111-0000-4000-8000-000000000001.jsonl", data)
        report = world.scan(**settings)
        assert report.sessions_changed == 1
        reference, emptied = without_thoughts(data, path.read_bytes())
        report.values_extracted -= emptied
        return look(reference), look(path.read_bytes()), report

    return compare


def without_thoughts(data, pruned):
    """Empty in a session the thinking that is empty in its pruned version; say how much that is."""
    lines, emptied = [], 0
    for line, after in zip(data.splitlines(), pruned.splitlines(), strict=True):
        entry = json.loads(line)
        content, now = (one.get("message", {}).get("content") for one in (entry, json.loads(after)))
        for index, block in enumerate(now if isinstance(now, list) else ()):
            if block == json.loads(EMPTY) != content[index]:
                assert content[index]["thinkingSignature"]
                content[index] = block
                emptied += 1
        lines.append(dump(entry))
    return b"".join(lines) if emptied else data, emptied


def differences(before, after, where=()):
    """Yield every place where two JSON values differ; both have the same shape elsewhere."""
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
    """Check that entries differ by their own placeholders only; give how many there are."""
    changed = list(differences(before["entries"], after["entries"]))
    for where, _, now in changed:
        own = f"[[extracted-{after['entries'][where[0]]['id']}]]"
        assert now in (own, {"type": "text", "text": own}), where
    assert after["held"] == before["held"] > 0
    assert after["branch"] == before["branch"]
    assert not after["rewrote"]
    return len(changed)


def check_messages(before, after):
    """Check that what would be replayed differs by placeholders only.

    Where one stands for a value.
    """
    assert [one["role"] for one in before] == [one["role"] for one in after]
    for where, was, now in differences(before, after):
        text = now["text"] if isinstance(now, dict) else now
        assert PLACEHOLDER.fullmatch(text), where
        assert was, where


def check_requests(before, after):
    """Check that each provider would send the same apart from placeholders.

    No text became empty.
    """
    assert len(before) == len(after) >= 4
    for one, other in zip(before, after, strict=True):
        for where, was, now in differences(one, other):
            assert isinstance(was, str | dict), where
            text = now["text"] if isinstance(now, dict) else now
            assert PLACEHOLDER.search(text), (one["api"], where)
            if where[-1] == "arguments":
                assert json.loads(text).keys() == json.loads(was).keys()
        assert paired(one) == paired(other)
        assert not [pair for pair in partners(other) if pair not in partners(one)], one["api"]


def blank(request):
    return sum(
        isinstance(found.get(key), str) and not found[key].strip()
        for found in walk(request["messages"])
        for key in ("text", "content", "output", "thinking", "arguments")
    )


@pytest.mark.parametrize("sample", SESSIONS.values(), ids=SESSIONS)
@pytest.mark.parametrize("settings", [{}, EVERYTHING], ids=["defaults", "everything"])
def test_pi_loads_a_pruned_session_as_it_loads_the_original(pruned, sample, settings):
    """Entries, order, roles and blocks stay, and only what a placeholder stands for is not sent."""
    before, after, report = pruned(SAMPLES.joinpath(*sample).read_bytes(), **settings)

    assert check_entries(before, after) == report.values_extracted > 0
    check_messages(before["messages"], after["messages"])
    check_requests(before["requests"], after["requests"])
    assert list(map(blank, before["requests"])) == list(map(blank, after["requests"]))


@pytest.mark.parametrize("sample", SESSIONS.values(), ids=SESSIONS)
def test_pi_replays_a_restored_session_as_it_was(world, look, sample):
    """After everything was restored the messages are the original ones; a mark is not sent."""
    data = SAMPLES.joinpath(*sample).read_bytes()
    path = world.put("11111111-0000-4000-8000-000000000001.jsonl", data)
    world.scan(**EVERYTHING)

    world.restore_all()

    before, after = look(data), look(path.read_bytes())
    assert b'"_restored":' in path.read_bytes()
    assert after["messages"] == before["messages"]
    assert after["requests"] == before["requests"]
    assert after["branch"] == before["branch"]


def two_turns(conversation, api, sign, call="call_{}", **extras):
    """Build two turns, each with thinking before its call and before its answer."""
    for turn in ("first", "last"):
        conversation.user(f"the {turn} question")
        ident = call.format(turn)
        block = {"type": "toolCall", "id": ident, "name": "exec",
                 "arguments": {"command": f"echo {turn} " * 100}, **extras}  # fmt: skip
        said(conversation, [thought(f"{turn} call", sign(f"{turn}_call")), block], api, "toolUse")
        conversation.result(f"result of the {turn} turn\n" * 100, call=ident)
        answer = {"type": "text", "text": f"the {turn} answer. " * 60}
        said(conversation, [thought(f"{turn} answer", sign(f"{turn}_answer")), answer], api)
    return conversation.bytes()


def own_request(view, api):
    """Give what the provider that wrote the session would send."""
    return next(one for one in view["requests"] if (one["api"], one["model"]) == (api, "its-model"))


def blocks(request, kind):
    return [found for found in walk(request["messages"]) if found.get("type") == kind]


def compared(pruned, data, api):
    """Prune everything, make the common checks, and give the writer's requests."""
    before, after, report = pruned(data, **EVERYTHING)
    assert check_entries(before, after) == report.values_extracted > 0
    check_messages(before["messages"], after["messages"])
    check_requests(before["requests"], after["requests"])
    return own_request(before, api), own_request(after, api)


def test_signed_thinking_goes_whole_before_the_last_question(pruned, look, conversation):
    """For Anthropic text and signature leave together, and those of the last turn stay as is."""
    api = "anthropic-messages"
    conversation.user("before everything")
    hidden = thought("something hidden", "b3BhcXVl" * 40, redacted=True)
    said(conversation, [hidden, {"type": "text", "text": "no comment"}], api)
    data = two_turns(conversation, api, sign=lambda tag: f"sig-{tag}-" + "A" * 300)

    before, after = compared(pruned, data, api)

    was = blocks(own_request(look(data), api), "thinking")
    assert len(was) == 4
    assert blocks(after, "thinking") == was[2:]
    assert "sig-first" not in json.dumps(after)
    assert blocks(after, "redacted_thinking") == blocks(before, "redacted_thinking") != []
    assert len(PLACEHOLDER.findall(json.dumps(after))) >= 3


def test_a_reasoning_item_stays_with_its_call_and_its_message(pruned, conversation):
    """For OpenAI's Responses each rs_ item is sent as it came, right before its fc_ or msg_."""
    api = "openai-responses"

    def sign(tag):
        return json.dumps({"type": "reasoning", "id": f"rs_{tag}", "summary": [],
                           "encrypted_content": "gAAAA" * 300})  # fmt: skip

    data = two_turns(conversation, api, sign, call="call_{0}|fc_{0}")

    before, after = compared(pruned, data, api)

    assert blocks(after, "reasoning") == blocks(before, "reasoning")
    order = [(one.get("type"), one.get("id")) for one in after["messages"]]
    for turn in ("first", "last"):
        at = order.index(("reasoning", f"rs_{turn}_call"))
        assert order[at + 1] == ("function_call", f"fc_{turn}")
        at = order.index(("reasoning", f"rs_{turn}_answer"))
        assert order[at + 1][0] == "message"
    assert [one["call_id"] for one in blocks(after, "function_call_output")] == [
        "call_first", "call_last",
    ]  # fmt: skip


def test_named_reasoning_keeps_the_name_of_its_field(pruned, conversation):
    """For chat completions the thinking goes and the provider's field name stays."""
    api = "openai-completions"
    data = two_turns(conversation, api, sign=lambda _: "reasoning_content")

    before, after = compared(pruned, data, api)

    was = [one["reasoning_content"] for one in walk(before["messages"]) if "tool_calls" in one]
    now = [one["reasoning_content"] for one in walk(after["messages"]) if "tool_calls" in one]
    assert len(was) == len(now) == 2
    assert all(map(PLACEHOLDER.fullmatch, now))


def test_thought_signatures_of_google_stay_with_what_they_sign(pruned, conversation):
    """For Google thinking and call keep their signatures, and the thinking its text."""
    api = "google-generative-ai"
    data = two_turns(
        conversation, api, sign=lambda _: "QUJD" * 100, thoughtSignature="REVG" * 100
    )  # fmt: skip

    before, after = compared(pruned, data, api)

    def signed(request):
        return [(one.get("text"), one["thoughtSignature"], "functionCall" in one)
                for one in walk(request["messages"]) if "thoughtSignature" in one]  # fmt: skip

    assert len(signed(before)) == 6
    assert signed(after) == signed(before)


@pytest.mark.parametrize(
    "api", ["anthropic-messages", "openai-responses", "openai-completions", "google-generative-ai"]
)
def test_providers_take_a_session_whose_images_are_gone(pruned, conversation, api):
    """An image goes as a whole: no request holds a placeholder as image data, or no text."""
    question = {"type": "text", "text": "what do you see?"}
    conversation.entry(message={"role": "user", "content": [question, IMAGE], "timestamp": 1})
    for number, shown in enumerate(([IMAGE], [question, IMAGE])):
        call = {"type": "toolCall", "id": f"call_{number}|fc_{number}", "name": "read",
                "arguments": {"path": "a.png"}}  # fmt: skip
        said(conversation, [call], api, "toolUse")
        conversation.entry(message={
            "role": "toolResult", "toolCallId": call["id"], "toolName": "read",
            "content": shown, "isError": False, "timestamp": 1,
        })  # fmt: skip
    said(conversation, [{"type": "text", "text": "a picture"}], api)

    before, after, report = pruned(conversation.bytes(), **EVERYTHING)

    assert check_entries(before, after) == report.values_extracted == 3
    check_messages(before["messages"], after["messages"])
    for was, now in zip(before["requests"], after["requests"], strict=True):
        assert paired(was) == paired(now)
        assert IMAGE["data"] in json.dumps(was)
        sent = json.dumps(now)
        assert IMAGE["data"] not in sent
        assert "image/png" not in sent
        assert len(set(PLACEHOLDER.findall(sent))) == 3
        assert blank(now) == 0


def test_a_placeholder_beside_a_signature_would_be_noticed(look, conversation):
    """The instrument works: thinking cut without its signature, or a cut reasoning item, fails."""
    data = two_turns(conversation, "anthropic-messages", sign=lambda tag: f"sig-{tag}")
    view = look(data)
    placeholder = "[[extracted-00000002]]"
    text = thought("first call", "")["thinking"]
    assert text.encode() in data

    damaged = look(data.replace(text.encode(), placeholder.encode()))

    check_messages(view["messages"], damaged["messages"])
    with pytest.raises(AssertionError, match="anthropic-messages"):
        check_requests(view["requests"], damaged["requests"])
    with pytest.raises(AssertionError, match="refused"):
        look(data.replace(b"anthropic-messages", b"openai-responses"))
