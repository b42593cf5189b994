"""The action `evidence`: a session's own results, and those of its sub-agents."""

import json
import os

import pytest

from brainsurgeon.lookup.scope import Scope
from brainsurgeon.mcp_server.answering import NOT_HERE, answer
from building.claude import SESSION as CLAUDE
from building.claude import ClaudeConversation, ClaudeWorld
from building.claw import COMPACTED, GATEWAY, ClawWorld
from building.mcp_agent import OTHER, SESSION, VALUE, Agent, agent_after_scan, append_open_call
from building.world import LONG_AGO, Conversation

THIRD = "33333333-0000-4000-8000-000000000003"


@pytest.fixture
def agent(world):
    """Return an agent whose pruned session started a sub-agent; there is a third session."""
    agent = agent_after_scan(world)
    for session in (OTHER, THIRD):
        talk = Conversation(session)
        talk.turn(f"seen by {session}: " + VALUE)
        for _ in range(3):
            talk.turn("y" * 900)
        world.put(f"{session}.jsonl", talk.bytes())
    world.scan()
    (world.directory / "sessions.json").write_text(json.dumps({
        "agent:main:main": {"sessionId": SESSION},
        "agent:main:subagent:1": {"sessionId": OTHER, "spawnedBy": "agent:main:main"},
        "agent:main:other": {"sessionId": THIRD, "spawnedBy": "agent:main:cron"},
    }))  # fmt: skip
    return agent


def evidence(agent, **given):
    """Let the agent ask for evidence in an open turn; return whether it failed, and the text."""
    call = {"action": "evidence", **given}
    append_open_call(agent, call)
    return agent.call(**call)


def test_a_session_asks_for_its_own_evidence(agent):
    """The values come back in full, with the index before them; nothing is named."""
    failed, text = evidence(agent)

    assert not failed
    assert text.startswith("1. exec [")
    assert VALUE.strip() in text
    assert text.endswith("\n--- end ---\n")


def test_a_session_asks_for_the_evidence_of_its_sub_agent(agent):
    """The sub-agent's session is named; the budget is kept."""
    failed, text = evidence(agent, session=OTHER, budget=6000)
    between = text.partition("--- evidence ---\n")[2].removesuffix("--- end ---\n")

    assert not failed
    assert f"seen by {OTHER}" in text
    assert len(between.encode()) <= 6000


@pytest.mark.parametrize("given", [{}, {"session": OTHER}])
def test_no_caller_that_is_unknown_is_told_to_name_a_session(agent, given):
    """A name would not say who calls: the error names the command instead."""
    told = agent.error(action="evidence", **given)

    assert "unknown which session makes this call" in told
    assert "brainsurgeon evidence SESSION" in told
    assert "give `session`" not in told


def test_a_name_that_openclaw_masks_in_the_session_is_recognised(agent):
    """OpenClaw writes `session` with an ellipsis: such a call is recognised, another is not."""
    append_open_call(agent, {"action": "evidence", "session": f"main/{OTHER[:1]}…{OTHER[-4:]}"})

    assert f"seen by {OTHER}" in agent.call(action="evidence", session=f"main/{OTHER}")[1]
    assert "which session" in agent.call(action="evidence", session=f"main/{THIRD}")[1]


def test_a_name_that_openclaw_masks_as_a_whole_is_recognised(agent):
    """2026.9.6 writes `***` where `tool_call` has the name; the names are checked as ever."""
    inner = {"action": "evidence", "session": "***"}
    append_open_call(agent, {"id": "brainsurgeon__purge_control", "args": inner})

    assert f"seen by {OTHER}" in agent.call(action="evidence", session=f"main/{OTHER}")[1]
    assert evidence(agent, session=THIRD) == (True, NOT_HERE)


def test_no_other_session_gives_its_evidence(agent):
    """One that this session did not start does not exist for it, though the agent is the same."""
    assert evidence(agent, session=THIRD) == (True, NOT_HERE)
    assert evidence(agent, session=f"main/{THIRD}") == (True, NOT_HERE)
    assert evidence(agent, session=str(agent.world.directory / f"{THIRD}.jsonl"))[0]


def test_a_sub_agent_does_not_see_the_session_that_started_it(agent):
    """The right goes one way only."""
    child = Agent(agent.world, session=OTHER)
    child.conversation.lines = [json.loads(line) for line in child.path.read_bytes().splitlines()]

    assert evidence(child, session=SESSION) == (True, NOT_HERE)
    assert not evidence(child)[0]


def test_a_session_of_claude_code_sees_its_sub_agents(tmp_path):
    """They lie in a directory of its own name; those of another session stay unseen."""
    world = ClaudeWorld(tmp_path)
    talks = {None: ClaudeConversation()}
    for session, name in ((CLAUDE, "agent-1"), (THIRD, "agent-2")):
        talk = talks[name] = ClaudeConversation(side=True)
        talk.turn(f"seen by {name} " + VALUE)
        directory = world.project / session / "subagents"
        directory.mkdir(parents=True)
        (directory / f"{name}.jsonl").write_bytes(talk.bytes())
        os.utime(directory / f"{name}.jsonl", (world.clock() - LONG_AGO,) * 2)
    talks[None].turn(VALUE)

    def ask(**given):
        call = {"action": "evidence", **given}
        talks[None].user()
        talks[None].call(f"toolu_{given.get('session')}", "mcp__brainsurgeon__purge_control", call)
        (world.project / f"{CLAUDE}.jsonl").write_bytes(talks[None].bytes())
        return answer(world.settings(), Scope(str(world.project)), call, world.clock)

    assert VALUE.strip() in ask()[0]
    assert "seen by agent-1" in ask(session="agent-1")[0]
    assert ask(session="agent-2") == (NOT_HERE, True)
    world.close()


def test_a_session_in_a_database_sees_its_sub_agents(tmp_path):
    """The node of a session says who started it."""
    world = ClawWorld(tmp_path)
    scope = Scope("main", GATEWAY)
    ((key,),) = world.claw.sql(
        "SELECT session_key FROM session_windows WHERE session_id = ?", (GATEWAY,)
    )
    call = {"action": "evidence", "session": COMPACTED}
    refused = answer(world.settings(), scope, call, world.clock)
    world.claw.sql(
        "UPDATE session_nodes SET spawned_by = ? WHERE current_session_id = ?", (key, COMPACTED)
    )

    assert refused == (NOT_HERE, True)
    assert answer(world.settings(), scope, call, world.clock)[0].endswith("--- end ---\n")
    world.close()
