"""The action `evidence`: tool results of the calling session and of its sub-agents."""

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
    """Return an agent with a pruned session, a sub-agent's session and an unrelated one."""
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


def evidence(agent, **arguments):
    """Ask for evidence in an open turn; return whether the call failed, and the text."""
    call = {"action": "evidence", **arguments}
    append_open_call(agent, call)
    return agent.call(**call)


def test_evidence_of_the_calling_session_needs_no_name(agent):
    """The results of the calling session are answered in full, after an index."""
    failed, text = evidence(agent)

    assert not failed
    mark = text[:8]
    assert text.startswith(f"{mark} 1. exec [")
    assert VALUE.strip() in text
    assert text.endswith(f"\n{mark} --- end ---\n")


def test_evidence_of_a_sub_agent_keeps_the_budget(agent):
    """The named session of a sub-agent is answered within `budget` bytes."""
    failed, text = evidence(agent, session=OTHER, budget=6000)
    between = text.partition(" --- evidence ---\n")[2].removesuffix(f"{text[:8]} --- end ---\n")

    assert not failed
    assert f"seen by {OTHER}" in text
    assert len(between.encode()) <= 6000


@pytest.mark.parametrize("arguments", [{}, {"session": OTHER}])
def test_evidence_for_an_unknown_caller_is_refused(agent, arguments):
    """The error names the command, since naming a session would not identify the caller."""
    error = agent.error(action="evidence", **arguments)

    assert "unknown which session makes this call" in error
    assert "brainsurgeon evidence SESSION" in error
    assert "give `session`" not in error


def test_evidence_recognizes_a_name_shortened_by_openclaw(agent):
    """A call whose `session` OpenClaw wrote with an ellipsis is matched by the ends of the name."""
    append_open_call(agent, {"action": "evidence", "session": f"main/{OTHER[:1]}…{OTHER[-4:]}"})

    assert f"seen by {OTHER}" in agent.call(action="evidence", session=f"main/{OTHER}")[1]
    assert "which session" in agent.call(action="evidence", session=f"main/{THIRD}")[1]


def test_evidence_recognizes_a_name_masked_by_openclaw(agent):
    """A call whose `session` OpenClaw wrote as `***` is matched; the sub-agent is still checked."""
    inner = {"action": "evidence", "session": "***"}
    append_open_call(agent, {"id": "brainsurgeon__purge_control", "args": inner})

    assert f"seen by {OTHER}" in agent.call(action="evidence", session=f"main/{OTHER}")[1]
    assert evidence(agent, session=THIRD) == (True, NOT_HERE)


def test_evidence_of_an_unrelated_session_is_refused(agent):
    """A session that the caller did not start is refused by any name, in the same agent too."""
    assert evidence(agent, session=THIRD) == (True, NOT_HERE)
    assert evidence(agent, session=f"main/{THIRD}") == (True, NOT_HERE)
    assert evidence(agent, session=str(agent.world.directory / f"{THIRD}.jsonl"))[0]


def test_evidence_of_the_parent_session_is_refused(agent):
    """A sub-agent gets evidence of its own session and not of the one that started it."""
    child = Agent(agent.world, session=OTHER)
    child.conversation.lines = [json.loads(line) for line in child.path.read_bytes().splitlines()]

    assert evidence(child, session=SESSION) == (True, NOT_HERE)
    assert not evidence(child)[0]


def test_evidence_of_claude_code_sub_agents(tmp_path):
    """Sub-agents in the session's directory are answered; those of another session are not."""
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

    def ask(**arguments):
        call = {"action": "evidence", **arguments}
        talks[None].user()
        talks[None].call(
            f"toolu_{arguments.get('session')}", "mcp__brainsurgeon__purge_control", call
        )
        (world.project / f"{CLAUDE}.jsonl").write_bytes(talks[None].bytes())
        return answer(world.settings(), Scope(str(world.project)), call, world.clock)

    assert VALUE.strip() in ask()[0]
    assert "seen by agent-1" in ask(session="agent-1")[0]
    assert ask(session="agent-2") == (NOT_HERE, True)
    world.close()


def test_evidence_of_sub_agents_in_a_database(tmp_path):
    """In a database `spawned_by` of the session node decides."""
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
