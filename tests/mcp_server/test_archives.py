"""Archived turns, as the tool of an agent gives them."""

import json

import pytest

from building.mcp_agent import SESSION, Agent
from building.turns import add_long_turn, text_blocks
from building.world import Clock


@pytest.fixture
def agent(world):
    """Give an agent whose first two of four turns are archived."""
    world.clock = Clock()
    one = Agent(world)
    one.ends = [
        add_long_turn(one.conversation, answer=f"Number {number} is done.") for number in range(4)
    ]
    one.write()
    report = world.scan(archive={"enabled": True})
    assert len(report.sessions[0].plan.archives) == 2
    return one


def test_show_gives_the_turn_and_the_list_of_its_calls(agent):
    """An archive's id leads to all of its turn, as the agent wrote it, and to its calls."""
    prompt, closing = agent.ends[0]

    told = agent.answer(action="show", entry=closing, session=SESSION)

    lines = [json.loads(line) for line in told["content"]["turn"].splitlines()]
    assert lines == agent.conversation.lines[1:13]
    assert (lines[0]["id"], lines[-1]["id"]) == (prompt, closing)
    assert [one.split(" [")[0] for one in told["index"]] == [f"{n}. exec" for n in range(1, 6)]


def test_get_context_lists_archives_apart_from_values(agent):
    """Archives come newest first, and no part of one is told as an extracted value."""
    told = agent.answer(action="get_context", session=SESSION)

    assert [one["entry_id"] for one in told["archives"]] == [agent.ends[1][1], agent.ends[0][1]]
    assert {one["path"] for one in told["extracted"]} == {"message.content.0.text"}
    assert {one["kind"] for one in told["extracted"]} == {"tool_result"}


def test_search_finds_what_was_cut_out_and_what_stands(agent):
    """A text is found in held values and in the session, whatever its case."""
    held = agent.answer(action="search", text="X" * 50, session=SESSION)["hits"]
    here = agent.answer(action="search", text="NUMBER 3 IS", session=SESSION)["hits"]

    assert {one["held"] for one in held} == {True, False}
    assert [(one["entry_id"], one["held"], one["offset"]) for one in here] == [
        (agent.ends[3][1], False, 0)
    ]


def test_a_done_turn_is_archived_into_its_note_once_it_is_idle(world, agent):
    """What an agent says of a finished task is the outcome of its turn, small and new as it is."""
    call = {"action": "done", "note": "the small thing is done"}
    agent.conversation.user("a small thing")
    agent.conversation.call(call="small")
    agent.conversation.result("y" * 3000, call="small")
    agent.conversation.call("brainsurgeon__purge_control", call, call="done")
    agent.append(since=len(agent.conversation.lines) - 4)

    told = agent.answer(**call, session=SESSION)
    assert told["noted"] is True
    agent.conversation.result(json.dumps(told), "brainsurgeon__purge_control", call="done")
    closing = agent.conversation.assistant("There you are.")
    agent.append(since=len(agent.conversation.lines) - 2)
    world.scan()

    (text,) = text_blocks(agent.path.read_bytes(), closing)
    assert json.loads(text.partition("\n\n")[2])["outcome"] == "the small thing is done"


@pytest.mark.parametrize(
    ("arguments", "words"), [({"action": "done"}, "note:"), ({"action": "search"}, "text:")]
)
def test_a_call_without_its_words_is_refused(agent, arguments, words):
    """`done` wants a note, and `search` a text."""
    assert agent.error(**arguments, session=SESSION).startswith(words)
