"""The agents' own readers load a session with archived turns: the branch and requests as planned.

The session managers of pi and OpenClaw and what they build requests with run here as published;
each provider builds the request that it would send, and is stopped before it sends anything.
"""

import json
from itertools import pairwise

import pytest

from brainsurgeon.model.turns import MARK
from building.requests import SESSIONS, paired, partners, said, thought, walk
from building.turns import long_turn
from building.world import SAMPLES, Conversation
from proofs.agent_readers import AGENTS, VIEW, build_reader

ANY_SIZE = {"archive": {"enabled": True, "token_threshold": 0}}


@pytest.fixture(params=AGENTS)
def look(request, tmp_path):
    return build_reader(VIEW, request.param, tmp_path)


def middles(data, archives):
    """Give, for each archive, the ids of the entries between its prompt and its closing entry."""
    parents = {one.get("id"): one.get("parentId") for one in map(json.loads, data.splitlines())}
    for archive in archives:
        found, at = [], parents[archive.entry_id]
        while at != archive.prompt_id:
            found.append(at)
            at = parents[at]
        yield found


def archived(messages):
    texts = [one["text"] for one in walk(messages) if one.get("type") == "text"]
    return [text.split()[3] for text in texts if text.startswith(f"{MARK}\narchive: ")]


def twice_the_user(messages):
    """Count the places where two messages of the user follow one another."""
    roles = [one["role"] for one in messages]
    return sum(pair == ("user", "user") for pair in pairwise(roles))


def unanswered(messages):
    """Give the ids of calls without a result and of results without a call."""
    calls = {one["id"] for one in walk(messages) if one.get("type") == "toolCall"}
    return calls ^ {one["toolCallId"] for one in messages if one["role"] == "toolResult"}


@pytest.mark.parametrize("sample", SESSIONS.values(), ids=SESSIONS)
@pytest.mark.parametrize(
    "kinds",
    [
        pytest.param(
            [], id="alone", marks=pytest.mark.long(proves=("formats", "planning", "rewrite"))
        ),
        pytest.param(["thinking", "tool_result"], id="with extractions"),
    ],
)
def test_a_prompt_and_a_summary_are_sent_for_each_archive(world, look, sample, kinds):
    """The middles leave the branch and every request, all else is where it was, and it undoes."""
    data = SAMPLES.joinpath(*sample).read_bytes()
    path = world.put("11111111-0000-4000-8000-000000000001.jsonl", data)
    (outcome,) = world.scan(trigger_types=kinds, **ANY_SIZE).sessions
    archives = outcome.plan.archives
    assert archives
    before, after = look(data), look(path.read_bytes())

    gone = {ident for middle in middles(data, archives) for ident in middle}
    assert len(gone) == sum(one.entries for one in archives)
    assert after["branch"] == [ident for ident in before["branch"] if ident not in gone]
    assert after["held"] == before["held"]
    assert archived(after["messages"]) == [one.entry_id for one in archives]
    assert not after["rewrote"]
    assert twice_the_user(after["messages"]) <= twice_the_user(before["messages"])
    assert unanswered(after["messages"]) <= unanswered(before["messages"])
    for one, other in zip(before["requests"], after["requests"], strict=True):
        paired(other)
        assert not [pair for pair in partners(other) if pair not in partners(one)]
        assert len(json.dumps(other)) < len(json.dumps(one))
    world.restore_all(pristine=True)
    assert path.read_bytes() == data


def test_a_signature_in_front_of_every_change_stays(world):
    """What stands before the first archived turn was signed before it, and is not touched."""
    api = "anthropic-messages"
    talk = Conversation()
    talk.user("first")
    said(talk, [thought("x", "sig-first"), {"type": "text", "text": "so"}], api)
    talk.lines[-1]["message"]["model"] = "claude-fable-5-1"
    for _ in range(3):
        long_turn(talk, calls=5)
    path = world.put("s.jsonl", talk.bytes())
    world.scan(trigger_types=[], archive={"enabled": True})

    assert b"archive: " in path.read_bytes()
    assert b'"sig-first"' in path.read_bytes()
