"""Scope of the MCP server: the agent and the sessions whose values it answers with."""

import json

import anyio
import pytest
from mcp import Client

from brainsurgeon.lookup.scope import Scope
from brainsurgeon.mcp_server import server_of
from brainsurgeon.mcp_server.answering import NOT_HERE
from building.mcp_agent import OTHER, SESSION, VALUE, Agent, agent_after_scan, append_open_call


def foreign_agent(world, *texts):
    """Return another agent whose session a scan has extracted secrets from."""
    foreign = Agent(world, "other", OTHER)
    for text in (*texts, *(f"secret of the other {number} " * 50 for number in range(8))):
        foreign.conversation.turn(text)
    foreign.write()
    world.scan()
    return foreign


def test_unknown_foreign_and_expired_ids_get_the_same_error(world, agent):
    """Unknown ids and sessions, those of another agent and expired values cannot be told apart."""
    foreign = foreign_agent(world, "short")
    foreign_only = "0000001f"
    assert f"[[extracted-{foreign_only}]]".encode() in foreign.path.read_bytes()
    before = foreign.path.read_bytes()
    answers = {
        agent.error(action="show", entry="ffffffff", session=SESSION),
        agent.error(action="show", entry=foreign_only, session=SESSION),
        agent.error(action="restore", entry=foreign_only, session=SESSION),
        agent.error(action="set_extractable", entry=foreign_only, value=True, session=SESSION),
        agent.error(action="show", entry="00000003", session=OTHER),
        agent.error(action="show", entry="00000003", session=f"other/{OTHER}"),
        agent.error(action="show", entry="00000003", session=str(foreign.path)),
        agent.error(action="get_context", session="nobody"),
        agent.error(action="get_context", session=OTHER),
        agent.error(action="set_extractable", entry="ffffffff", value=False, session=SESSION),
        agent.error(action="set_extractable", entry="00000003", value=False, session=OTHER),
    }
    with world.store.transaction():
        world.store._connection.execute(
            "UPDATE extractions SET blob_id = NULL, expired_at = 1.0,"
            " expired_why = 'test' WHERE name = '00000003'"
        )
    for action in ("show", "restore"):
        answers.add(agent.error(action=action, entry="00000003", session=SESSION))

    assert answers == {NOT_HERE}
    assert foreign.path.read_bytes() == before
    assert world.store.requests.count_open() == 0


@pytest.mark.parametrize("agent", [None, "--home-me-work--"])
def test_errors_leave_names_of_sessions_unchanged(world, agent):
    """Errors list sessions by their names, also in the directories of pi, which begin with `--`."""
    first, _ = (
        agent_after_scan(world, "--home-me-work--", session, text=f"{session} " * 100)
        for session in (SESSION, OTHER)
    )
    first.scope = Scope(agent)
    calls = [
        {"action": "done", "note": "done"},
        {"action": "show", "entry": "00000003"},
        {"action": "restore", "entry": "00000003"},
        {"action": "set_extractable", "entry": "00000003", "value": False},
    ]

    for call in calls:
        error = first.error(**call)

        assert f"--home-me-work--/{SESSION}" in error
        assert "`session`" in error
        assert "`home`" not in error


def test_servers_of_two_agents_answer_with_their_own_values(world):
    """Two agents with equal entry ids get and list only their own values."""
    first = agent_after_scan(world, "main", SESSION, text="of the first " * 100)
    second = agent_after_scan(world, "other", OTHER, text="of the second " * 100)

    for agent, own, foreign in ((first, SESSION, OTHER), (second, OTHER, SESSION)):
        answer = agent.answer(action="show", entry="00000003", session=own)
        assert ("first" in str(answer)) == (agent is first)
        assert own in agent.answer(action="show", entry="00000003")["session"]
        assert foreign not in str(agent.answer(action="get_context"))
        assert foreign not in str(agent.answer(action="get_context", session=own))


def test_no_call_returns_a_value_of_another_agent(world, agent):
    """No value of another agent is in 1,540 answers by any name of entries and sessions."""
    foreign = foreign_agent(world)
    ids = [f"{number:08x}" for number in range(3, 37, 2)]
    entries = [*ids, *(f"[[extracted-{ident}]]" for ident in ids), *(ident[:7] for ident in ids)]
    sessions = [
        None, SESSION, OTHER, OTHER[:8], f"other/{OTHER}", f"agent:other:{OTHER}",
        str(foreign.path), "other", "../other", "*",
    ]  # fmt: skip
    actions = [{"action": "evidence"}]
    for entry in entries:
        actions += [{"action": action, "entry": entry} for action in ("show", "restore")]
        actions.append({"action": "search", "text": entry})
    calls = [call | ({"session": name} if name else {}) for call in actions for name in sessions]
    before = foreign.path.read_bytes()

    async def ask():
        async with Client(server_of(world.settings(), agent.scope)) as client:
            return [await client.call_tool("purge_control", call) for call in calls]

    answers = anyio.run(ask)
    texts = [block.text for result in answers for block in result.content]
    assert len(texts) == 1_540
    assert not [text for text in texts if "of the other" in text]
    assert any("the first result" in text for text in texts)
    assert foreign.path.read_bytes() == before


def test_agent_name_in_two_roots_needs_the_directory(world):
    """If two roots have an agent of that name, nothing is answered until its directory is given."""
    first = agent_after_scan(world, "main", SESSION, text="of the first " * 100)
    elsewhere = world.base / "elsewhere"
    elsewhere.mkdir()
    roots = [{"path": str(world.root)}, {"path": str(elsewhere)}]
    second = Agent(world, session=OTHER)
    second.path = elsewhere / "main" / "sessions" / f"{OTHER}.jsonl"
    second.path.parent.mkdir(parents=True)
    second.conversation.turn("of the second " * 100)
    second.conversation.turn()
    second.write()
    world.scan(roots=roots)
    first.settings = {"roots": roots}

    assert first.error(action="show", entry="00000003", session=SESSION) == NOT_HERE
    first.scope = Scope(str(world.root / "main"))
    assert "first" in str(first.answer(action="show", entry="00000003", session=SESSION))
    assert first.error(action="show", entry="00000003", session=OTHER) == NOT_HERE


def test_server_limited_to_a_session_answers_for_no_other(world):
    """With `--session` an entry id means that session, and other sessions are refused."""
    agent_after_scan(world, "main", SESSION, text="of the first " * 100)
    second = agent_after_scan(world, "main", OTHER, text="of the second " * 100)
    second.scope = Scope("main", str(second.path))

    assert "second" in str(second.answer(action="show", entry="00000003"))
    assert "second" in str(second.answer(action="show", entry="00000003", session=OTHER[:4]))
    assert second.error(action="show", entry="00000003", session=SESSION) == NOT_HERE


def test_calling_session_is_recognized_by_its_open_turn(world):
    """If two sessions have the entry, the one whose open turn contains the call is meant."""
    agent_after_scan(world, "main", SESSION, text="of the first " * 100)
    second = agent_after_scan(world, "main", OTHER, text="of the second " * 100)
    call = {"action": "show", "entry": "00000003"}

    assert SESSION in second.error(**call)
    append_open_call(second, call)

    assert "second" in str(second.answer(**call))


def test_equal_open_calls_of_two_sessions_are_ambiguous(world):
    """If two sessions make the same call at once, both are listed and nothing is requested."""
    first = agent_after_scan(world, "main", SESSION)
    second = agent_after_scan(world, "main", OTHER)
    call = {"action": "restore", "entry": "00000003"}
    for agent in (first, second):
        append_open_call(agent, call)

    words = first.error(**call)

    assert f"main/{SESSION}" in words
    assert f"main/{OTHER}" in words
    assert world.store.requests.count_open() == 0


def test_entry_of_a_single_session_needs_no_session_name(world):
    """Without an open turn the only session with the entry is meant, by every action."""
    first = agent_after_scan(world, "main", SESSION)
    second = Agent(world, "main", OTHER)
    second.conversation.user(ident="only-here")
    second.conversation.turn("short")
    second.write()
    world.scan()

    assert SESSION in first.answer(action="show", entry="00000003")["session"]
    pinned = first.answer(action="set_extractable", entry="only-here", value=False)
    assert OTHER in pinned["session"]
    assert first.answer(action="restore", entry="[[extracted-00000003]]")["restored"]
    assert first.error(action="show", entry="ffffffff") == NOT_HERE
    assert first.error(action="set_extractable", entry="ffffffff", value=False) == NOT_HERE


def test_only_session_is_the_default_of_reading_actions(world, agent):
    """`get_context` and `search` use the only session; `done` needs its name."""
    assert agent.answer(action="get_context")["session"] == f"main/{SESSION}"
    assert agent.answer(action="search", text="first")["hits"]
    assert SESSION in agent.error(action="done", note="all of it")
    agent_after_scan(world, "main", OTHER)
    assert OTHER in agent.error(action="get_context")


def test_new_session_gets_values_of_its_agents_older_one(world):
    """A calling session without the entry gets it from another session of its agent."""
    agent_after_scan(world)
    agent_after_scan(world, "other", text="of the other " * 100)
    fresh = Agent(world, "main", OTHER)
    fresh.scope = Scope()
    fresh.conversation.user(ident="a-question")
    fresh.conversation.assistant(ident="an-answer")
    fresh.write()
    for action in ("show", "restore"):
        call = {"action": action, "entry": "[[extracted-00000003]]"}
        append_open_call(fresh, call)
        answer = fresh.answer(**call)

        assert answer["session"] == f"main/{SESSION}"
        assert "the first result" in str(answer)


@pytest.mark.parametrize("entry", ["00000003", "[[extracted-00000003]]"])
def test_equal_open_calls_get_a_value_of_a_third_session(world, entry):
    """If neither of two sessions with the same call has the entry, their agent's third is read."""
    agent_after_scan(world)
    agent_after_scan(world, "other", OTHER, text="of the other " * 100)
    call = {"action": "show", "entry": entry}
    for number in (3, 4):
        fresh = Agent(world, "main", f"{number}" * 8 + "-0000-4000-8000-000000000003")
        fresh.scope = Scope()
        fresh.conversation.user(ident="a-question")
        fresh.conversation.assistant(ident="an-answer")
        fresh.write()
        append_open_call(fresh, call)

    answer = fresh.answer(**call)

    assert answer["session"] == f"main/{SESSION}"
    assert "the first result" in str(answer)


def test_ambiguous_entry_lists_the_sessions_that_have_it(world):
    """Sessions without the entry are not listed."""
    for session in (SESSION, OTHER):
        agent = agent_after_scan(world, "main", session)
    third = Agent(world, "main", "33333333-0000-4000-8000-000000000003")
    third.conversation.turn("short")
    third.write()
    world.scan()

    words = agent.error(action="show", entry="00000003")

    assert SESSION in words
    assert OTHER in words
    assert "33333333" not in words


def test_server_of_a_fork_hides_later_values_of_its_parent(world):
    """A server limited to a fork shows its placeholders and not what its parent added later."""
    parent = agent_after_scan(world)
    fork = Agent(world, session=OTHER)
    inherited = list(map(json.loads, parent.path.read_bytes().splitlines()))[:5]
    fork.conversation.lines = [{**inherited[0], "id": OTHER, "parentSession": str(parent.path)}]
    fork.conversation.lines += inherited[1:]
    fork.write()
    world.scan()
    fork.scope = Scope("main", str(fork.path))

    shown = fork.answer(action="show", entry="00000003")
    assert shown["content"] == {"message.content.0.text": VALUE}
    assert b"[[extracted-00000007]]" in parent.path.read_bytes()
    assert fork.error(action="show", entry="00000007") == NOT_HERE
