"""Sessions with archived turns as the published code of agents loads them and sends them.

The session managers of pi and OpenClaw and the providers run here unmodified; each provider builds
its request and is stopped before it sends anything.
"""

import json
from itertools import pairwise

import pytest

from brainsurgeon.model.turns import MARK
from building.model_requests import (
    SESSIONS,
    add_answer,
    call_and_result_ids,
    dicts_in,
    signed_blocks,
    thinking_block,
)
from building.turns import add_long_turn
from building.world import SAMPLES
from proofs.agent_readers import AGENTS, VIEW

ARCHIVE = {"enabled": True, "token_threshold": 0}
LONG = pytest.mark.long(proves=("formats", "planning", "rewrite"))


@pytest.fixture(params=AGENTS)
def view(request, reader):
    return reader(VIEW, request.param)


def middles(data, archives):
    """Return the ids of the entries between prompt and closing entry of every archive."""
    entries = map(json.loads, data.splitlines())
    parents = {entry.get("id"): entry.get("parentId") for entry in entries}
    ids = set()
    for archive in archives:
        ident = parents[archive.entry_id]
        while ident != archive.prompt_id:
            ids.add(ident)
            ident = parents[ident]
    return ids


def archive_ids(messages):
    texts = [block["text"] for block in dicts_in(messages) if block.get("type") == "text"]
    return [text.split()[3] for text in texts if text.startswith(f"{MARK}\narchive: ")]


def count_repeated_prompts(messages):
    """Count the user messages that follow another user message."""
    roles = [message["role"] for message in messages]
    return sum(pair == ("user", "user") for pair in pairwise(roles))


def unanswered(messages):
    """Return the ids of calls without a result and of results without a call."""
    calls = {block["id"] for block in dicts_in(messages) if block.get("type") == "toolCall"}
    results = {msg["toolCallId"] for msg in messages if msg["role"] == "toolResult"}
    return calls ^ results


@pytest.mark.parametrize("sample", SESSIONS.values(), ids=SESSIONS)
@pytest.mark.parametrize(
    "kinds",
    [pytest.param([], marks=LONG), ["thinking", "tool_result"]],
    ids=["archives alone", "with extractions"],
)
def test_agents_send_a_prompt_and_a_summary_for_each_archive(world, view, sample, kinds):
    """The middles leave branch and requests, all else stays, and everything can be undone."""
    data = SAMPLES.joinpath(*sample).read_bytes()
    path = world.put("11111111-0000-4000-8000-000000000001.jsonl", data)
    (outcome,) = world.scan(trigger_types=kinds, archive=ARCHIVE).sessions
    archives = outcome.plan.archives
    assert archives
    before, after = view(data), view(path.read_bytes())

    removed = middles(data, archives)
    assert len(removed) == sum(archive.entries for archive in archives)
    assert after["branch"] == [ident for ident in before["branch"] if ident not in removed]
    assert after["held"] == before["held"]
    assert archive_ids(after["messages"]) == [archive.entry_id for archive in archives]
    assert not after["rewrote"]
    assert count_repeated_prompts(after["messages"]) <= count_repeated_prompts(before["messages"])
    assert unanswered(after["messages"]) <= unanswered(before["messages"])
    for original, request in zip(before["requests"], after["requests"], strict=True):
        call_and_result_ids(request)
        known = signed_blocks(original)
        assert not [pair for pair in signed_blocks(request) if pair not in known]
        assert len(json.dumps(request)) < len(json.dumps(original))
    world.restore_all(pristine=True)
    assert path.read_bytes() == data


def test_signatures_before_the_first_archive_stay(world, conversation):
    """Thinking before the first archived turn was signed without it, and stays in the file."""
    conversation.user("first")
    content = [thinking_block("x", "sig-first"), {"type": "text", "text": "so"}]
    add_answer(conversation, content, "anthropic-messages", model="claude-fable-5-1")
    for _ in range(3):
        add_long_turn(conversation, calls=5)
    path = world.put("s.jsonl", conversation.bytes())
    world.scan(trigger_types=[], archive={"enabled": True})

    assert b"archive: " in path.read_bytes()
    assert b'"sig-first"' in path.read_bytes()
