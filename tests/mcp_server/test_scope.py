"""Whose values a server gives: one agent's, one session's, and nobody else's."""

import anyio
from mcp import Client

from brainsurgeon.lookup.scope import Scope
from brainsurgeon.mcp_server import server_of
from brainsurgeon.mcp_server.answering import NOT_HERE
from building.mcp_agent import OTHER, SESSION, Agent, agent_after_scan, append_open_call

# --- whose it is ---------------------------------------------------------------------------------


def expired(world, agent):
    """Let retention have deleted what the agent's session held."""
    with world.store.transaction():
        world.store._connection.execute(
            "UPDATE extractions SET blob_id = NULL, expired_at = 1.0,"
            " expired_why = 'test' WHERE name = '00000003'"
        )


def test_unknown_foreign_and_expired_are_one_answer(world):
    """An id of nobody, of another agent and of an expired value, and unknown sessions: one text."""
    agent = agent_after_scan(world)
    foreign = Agent(world, "other", OTHER)
    foreign.conversation.turn("short")
    for number in range(8):
        foreign.conversation.turn(f"secret of the other {number} " * 50)
    foreign.write()
    world.scan()
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
    expired(world, agent)
    for action in ("show", "restore"):
        answers.add(agent.error(action=action, entry="00000003", session=SESSION))

    assert answers == {NOT_HERE}
    assert foreign.path.read_bytes() == before
    assert world.store._connection.execute("SELECT count(*) FROM requests").fetchone() == (0,)


def test_two_agents_never_see_each_other(world):
    """Servers of two agents with the same entry ids give and list their own values only."""
    one = agent_after_scan(world, "main", SESSION, text="of the first " * 100)
    two = agent_after_scan(world, "other", OTHER, text="of the second " * 100)

    for agent, own, foreign in ((one, SESSION, OTHER), (two, OTHER, SESSION)):
        told = agent.answer(action="show", entry="00000003", session=own)
        assert ("first" in str(told)) == (agent is one)
        assert own in agent.answer(action="show", entry="00000003")["session"]
        assert foreign not in str(agent.answer(action="get_context"))
        assert foreign not in str(agent.answer(action="get_context", session=own))


def test_whatever_an_agent_asks_for_it_gets_no_value_of_another(world):
    """In 1,540 calls of each action that returns values, by any name of entries and sessions."""
    agent = agent_after_scan(world)
    foreign = Agent(world, "other", OTHER)
    for number in range(8):
        foreign.conversation.turn(f"secret of the other {number} " * 50)
    foreign.write()
    world.scan()
    ids = [f"{number:08x}" for number in range(3, 37, 2)]
    entries = [*ids, *(f"[[extracted-{ident}]]" for ident in ids), *(ident[:7] for ident in ids)]
    sessions = [
        None, SESSION, OTHER, OTHER[:8], f"other/{OTHER}", f"agent:other:{OTHER}",
        str(foreign.path), "other", "../other", "*",
    ]  # fmt: skip
    asked = [
        {"action": "evidence"},
        *(
            {"action": action, "entry": entry}
            for action in ("show", "restore")
            for entry in entries
        ),
        *({"action": "search", "text": entry} for entry in entries),
    ]
    calls = [call | ({"session": name} if name else {}) for call in asked for name in sessions]
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


def test_one_agent_name_below_two_roots_is_never_mixed(world):
    """Where two agents have the name, nothing is told until the directory says which."""
    one = agent_after_scan(world, "main", SESSION, text="of the first " * 100)
    elsewhere = world.base / "elsewhere"
    elsewhere.mkdir()
    roots = [{"path": str(world.root)}, {"path": str(elsewhere)}]
    two = Agent(world, session=OTHER)
    two.path = elsewhere / "main" / "sessions" / f"{OTHER}.jsonl"
    two.path.parent.mkdir(parents=True)
    two.conversation.turn("of the second " * 100)
    two.conversation.turn()
    two.write()
    world.scan(roots=roots)
    one.settings = {"roots": roots}

    assert one.error(action="show", entry="00000003", session=SESSION) == NOT_HERE
    one.scope = Scope(str(world.root / "main"))
    assert "first" in str(one.answer(action="show", entry="00000003", session=SESSION))
    assert one.error(action="show", entry="00000003", session=OTHER) == NOT_HERE


def test_a_server_for_one_session_gives_only_that(world):
    """With --session the same entry id means that session, and no other can be named."""
    agent_after_scan(world, "main", SESSION, text="of the first " * 100)
    two = agent_after_scan(world, "main", OTHER, text="of the second " * 100)
    two.scope = Scope("main", str(two.path))

    assert "second" in str(two.answer(action="show", entry="00000003"))
    assert "second" in str(two.answer(action="show", entry="00000003", session=OTHER[:4]))
    assert two.error(action="show", entry="00000003", session=SESSION) == NOT_HERE


def test_the_session_is_the_one_whose_open_turn_holds_the_call(world):
    """With the same entry id in two sessions, the one that is calling is meant."""
    agent_after_scan(world, "main", SESSION, text="of the first " * 100)
    two = agent_after_scan(world, "main", OTHER, text="of the second " * 100)
    call = {"action": "show", "entry": "00000003"}

    assert SESSION in two.error(**call)
    append_open_call(two, call)

    assert "second" in str(two.answer(**call))


def test_where_no_session_can_be_told_candidates_are_listed(world):
    """Nobody calls, or two make the same call at once: the sessions are listed, nothing is done."""
    one = agent_after_scan(world, "main", SESSION)
    two = agent_after_scan(world, "main", OTHER)
    call = {"action": "restore", "entry": "00000003"}
    for agent in (one, two):
        append_open_call(agent, call)

    words = one.error(**call)

    assert f"main/{SESSION}" in words
    assert f"main/{OTHER}" in words
    assert world.store._connection.execute("SELECT count(*) FROM requests").fetchone() == (0,)


def test_an_entry_of_one_session_needs_no_name_of_it(world):
    """Without an open turn the one session that holds the entry is meant, of whatever action."""
    one = agent_after_scan(world, "main", SESSION)
    two = Agent(world, "main", OTHER)
    two.conversation.user(ident="only-here")
    two.conversation.turn("short")
    two.write()
    world.scan()

    assert SESSION in one.answer(action="show", entry="00000003")["session"]
    assert OTHER in one.answer(action="set_extractable", entry="only-here", value=False)["session"]
    assert one.answer(action="restore", entry="[[extracted-00000003]]")["restored"]
    assert one.error(action="show", entry="ffffffff") == NOT_HERE
    assert one.error(action="set_extractable", entry="ffffffff", value=False) == NOT_HERE


def test_the_only_session_is_looked_at_without_being_named(world):
    """`get_context` and `search` take the only one there is; `done` closes no turn on a guess."""
    agent = agent_after_scan(world)

    assert agent.answer(action="get_context")["session"] == f"main/{SESSION}"
    assert agent.answer(action="search", text="first")["hits"]
    assert SESSION in agent.error(action="done", note="all of it")
    agent_after_scan(world, "main", OTHER)
    assert OTHER in agent.error(action="get_context")


def test_a_session_without_the_entry_means_the_one_that_has_it(world):
    """A session that was begun anew gives and names that of its agent, and of no other agent."""
    agent_after_scan(world)
    agent_after_scan(world, "other", text="of the other " * 100)
    anew = Agent(world, "main", OTHER)
    anew.scope = Scope()
    anew.conversation.user(ident="a-question")
    anew.conversation.assistant(ident="an-answer")
    anew.write()
    for action in ("show", "restore"):
        call = {"action": action, "entry": "[[extracted-00000003]]"}
        append_open_call(anew, call)
        told = anew.answer(**call)

        assert told["session"] == f"main/{SESSION}"
        assert "the first result" in str(told)


def test_only_those_that_hold_the_entry_are_candidates(world):
    """Where several sessions hold the entry these are listed, and no other."""
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
