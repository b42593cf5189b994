"""Archived turns in the tool's answers."""

import json

import pytest

from building.mcp_agent import SESSION, Agent
from building.turns import add_long_turn, text_blocks
from building.world import Clock


@pytest.fixture
def agent(world):
    """Return an agent with four turns, of which the first two are archived."""
    world.clock = Clock()
    agent = Agent(world)
    agent.ends = [
        add_long_turn(agent.conversation, answer=f"Number {number} is done.") for number in range(4)
    ]
    agent.write()
    report = world.scan(archive={"enabled": True})
    assert len(report.sessions[0].plan.archives) == 2
    return agent


def test_show_of_an_archive_returns_the_turn_and_its_calls(agent):
    """The id of an archive leads to the original lines of its turn and an index of the calls."""
    prompt, closing = agent.ends[0]

    answer = agent.answer(action="show", entry=closing, session=SESSION)

    lines = [json.loads(line) for line in answer["content"]["turn"].splitlines()]
    assert lines == agent.conversation.lines[1:13]
    assert (lines[0]["id"], lines[-1]["id"]) == (prompt, closing)
    assert [line.split(" [")[0] for line in answer["index"]] == [
        f"{number}. exec" for number in range(1, 6)
    ]


def test_get_context_lists_archives_apart_from_values(agent):
    """Archives are listed newest first, and no part of one is listed as an extracted value."""
    answer = agent.answer(action="get_context", session=SESSION)

    assert [item["entry_id"] for item in answer["archives"]] == [agent.ends[1][1], agent.ends[0][1]]
    assert {item["path"] for item in answer["extracted"]} == {"message.content.0.text"}
    assert {item["kind"] for item in answer["extracted"]} == {"tool_result"}


def test_search_finds_extracted_values_and_the_session_text(agent):
    """A text is found in extracted values and in the session, in upper and lower case."""
    extracted = agent.answer(action="search", text="X" * 50, session=SESSION)["hits"]
    present = agent.answer(action="search", text="NUMBER 3 IS", session=SESSION)["hits"]

    assert {hit["held"] for hit in extracted} == {True, False}
    [hit] = present
    assert (hit["entry_id"], hit["held"], hit["offset"]) == (agent.ends[3][1], False, 0)


def test_done_archives_the_turn_with_its_note(world, agent):
    """After `done` the next scan archives the turn, although small, with the note as outcome."""
    call = {"action": "done", "note": "the small thing is done"}
    agent.conversation.user("a small thing")
    agent.conversation.call(call="small")
    agent.conversation.result("y" * 3000, call="small")
    agent.conversation.call("brainsurgeon__purge_control", call, call="done")
    agent.append(since=len(agent.conversation.lines) - 4)

    answer = agent.answer(**call, session=SESSION)
    assert answer["noted"] is True
    agent.conversation.result(json.dumps(answer), "brainsurgeon__purge_control", call="done")
    closing = agent.conversation.assistant("There you are.")
    agent.append(since=len(agent.conversation.lines) - 2)
    world.scan()

    (text,) = text_blocks(agent.path.read_bytes(), closing)
    assert json.loads(text.partition("\n\n")[2])["outcome"] == "the small thing is done"


@pytest.mark.parametrize(
    ("arguments", "words"), [({"action": "done"}, "note:"), ({"action": "search"}, "text:")]
)
def test_done_without_a_note_and_search_without_a_text_fail(agent, arguments, words):
    """The error names the argument that is missing."""
    assert agent.error(**arguments, session=SESSION).startswith(words)
