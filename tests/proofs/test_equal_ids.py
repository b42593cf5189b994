"""Entries of two agents with equal ids: no value of one is written or shown in the other's session.

Programs number their entries and their tool calls, so the sessions of two agents have equal ids. A
tool of one agent may print a placeholder that names the value of the other. Such a value is filled
only where the recorded id is random, or within the agent that owns the value.
"""

import itertools
import json
import time

import pytest

from brainsurgeon import api
from brainsurgeon.errors import AmbiguousError, NotFoundError
from brainsurgeon.lookup.scope import Scope
from brainsurgeon.mcp_server.answering import answer
from brainsurgeon.planning.matching import OTHER_AGENT
from building.claude import ClaudeConversation
from building.file_moves import (
    BETWEEN_AGENTS,
    check_restored,
    generic_log,
    moved_to_another_agent,
    rename,
    write_old_session,
    write_three_sessions,
)
from building.world import Conversation, dump, pin

SECRET = "secret of alice "
RANDOM = ("4f9d2a11", "c0ffee42")
UUIDS = ("4f9d2a11-8c3b-4d7e-9a21-0b6f5e4d3c2b", "c0ffee42-1b2c-4d3e-8f90-a1b2c3d4e5f6")
NUMBERED = ("msg-7", "msg-8")
SESSIONS = ("11111111-0000-4000-8000-00000000000a", "11111111-0000-4000-8000-00000000000b")


# --- sessions with one result; its text, entry id, call id (None: no call) and session id are given


def openclaw(text, entry, call, session):
    talk = Conversation(session)
    talk.user()
    if call is None:
        message = {"role": "bashExecution", "command": "ls", "output": text, "exitCode": 0}
        talk.entry(ident=entry, message={**message, "cancelled": False, "timestamp": 1})
    else:
        talk.call(call=call)
        talk.result(text, call=call, ident=entry)
    talk.assistant()
    talk.turn("short", call="call_9")
    return talk.bytes()


def claude_code(text, entry, call, session):
    talk = ClaudeConversation(session)
    talk.user()
    talk.call(call)
    talk.result(text, call, shown="short")
    talk.lines[-1]["uuid"] = talk.last = entry
    talk.assistant()
    talk.turn("short")
    return talk.bytes()


def generic(text, entry, call, session):
    return b"".join(map(dump, (
        {"type": "message", "__id": "msg-1", "role": "user", "content": "", "session_id": session},
        {"type": "tool_call", "__id": "msg-2", "name": "exec", "arguments": {"command": "ls"}},
        {"type": "tool_result", "__id": entry, "name": "exec", "output": text,
         **({} if call is None else {"call_id": call})},
        {"type": "message", "__id": "msg-90", "role": "assistant", "content": "done."},
        {"type": "message", "__id": "msg-91", "role": "user", "content": "go on"},
        {"type": "message", "__id": "msg-92", "role": "assistant", "content": "done."},
    )))  # fmt: skip


def at(world, agent, data):
    place = world.root / agent / "sessions"
    return write_old_session(place / f"{len(list(place.glob('*')))}.jsonl", data)[0]


PAIRS = [
    pytest.param(
        form, kind, call, entry, session,
        id=f"{form.__name__}-{kind[0]}-{call}-entry{entry}-session{session}",
    )
    for form, kinds, calls in (
        (openclaw, (RANDOM, NUMBERED), ("call_1", "call_2", None)),
        (claude_code, (UUIDS, NUMBERED), ("call_1", "call_2")),
        (generic, (UUIDS, NUMBERED), ("call_1", "call_2", None)),
    )
    for kind, call, entry, session in itertools.product(kinds, calls, (0, 1), (0, 1))
]  # fmt: skip


def is_filled(form, kind, call, entry, session, *, at_owner):
    """`entry` and `session` are 0 if their ids are those of the recorded entry."""
    if entry == 0:
        # The rest of a generic line must be equal, too, and it contains the id of the call.
        known = form is not generic or call != "call_2"
        return known and (at_owner or kind is not NUMBERED)
    equal = session == 0 if call is None else call == "call_1"
    return at_owner and equal and form is not generic


@pytest.mark.parametrize(("form", "kind", "call", "entry", "session"), PAIRS)
def test_placeholder_is_filled_where_its_ids_allow_it(world, form, kind, call, entry, session):
    """Another agent needs the recorded random id; at its own, an equal call or session will do."""
    original = form(SECRET * 50, kind[0], None if call is None else "call_1", SESSIONS[0])
    owner = at(world, "alice", original)
    assert world.scan().values_extracted == 1
    ids = kind[entry], call, SESSIONS[session]
    before, filled = form(f"[[extracted-{kind[0]}]]", *ids), form(SECRET * 50, *ids)
    places = {agent: at(world, agent, before) for agent in ("alice", "bob")}
    world.restore_all(pristine=True)

    assert owner.read_bytes() == original
    for agent, path in places.items():
        known = is_filled(form, kind, call, entry, session, at_owner=agent == "alice")
        assert path.read_bytes() == (filled if known else before)


# --- shown ---------------------------------------------------------------------------------------


def numbered(text):
    return generic_log(SECRET).replace(json.dumps(f"{SECRET} " * 400)[1:-1].encode(), text.encode())


def equal_call(text):
    return openclaw(text, "c0ffee42", "call_1", SESSIONS[1])


def equal_session(text):
    return openclaw(text, "c0ffee42", None, SESSIONS[0])


PRINTED = {
    numbered: (generic_log(SECRET), "msg-3"),
    equal_call: (openclaw(SECRET * 50, "4f9d2a11", "call_1", SESSIONS[0]), "4f9d2a11"),
    equal_session: (openclaw(SECRET * 50, "4f9d2a11", None, SESSIONS[0]), "4f9d2a11"),
}


@pytest.mark.parametrize("scanned", [False, True])
@pytest.mark.parametrize("session", PRINTED)
def test_printed_placeholder_shows_nothing_of_another_agent(world, session, scanned, monkeypatch):
    """No command, function or tool call about the session that prints it returns the value."""
    monkeypatch.setattr("brainsurgeon.agents.CLAUDE_CODE.home.call_delay", 0.0)
    original, entry = PRINTED[session]
    owner = at(world, "alice", original)
    assert world.scan().values_extracted == 1
    placeholder = f"[[extracted-{entry}]]"
    assert placeholder.encode() in owner.read_bytes()
    path = at(world, "bob", session(placeholder))
    if scanned:
        world.scan()
    before, now = path.read_bytes(), time.time()
    given = world.settings(), world.store
    named = str(path)

    assert b"".join(api.cat(*given, named, now)) == before
    assert SECRET not in api.evidence(*given, named, now).evidence
    for call in (api.show, api.show_turn, api.restore):
        for reference in (entry, placeholder):
            more = {"clock": world.clock} if call is api.restore else {}
            more |= {"now": now} if call is api.show_turn else {}
            with pytest.raises(NotFoundError):
                call(*given, reference, session=named, **more)
    assert api.search(*given, SECRET, named).hits == []
    assert api.context(*given, named, now).extracted == ()
    for scope in (Scope(session=named), Scope(str(path.parent.parent))):
        assert api.mount(*given, before, scope) == before
    world.close()
    for name, reference in itertools.product((None, named), (entry, placeholder)):
        for asked in (
            {"action": "show", "entry": reference}, {"action": "restore", "entry": reference},
            {"action": "evidence"}, {"action": "search", "text": SECRET}, {"action": "get_context"},
        ):  # fmt: skip
            call = asked | ({"session": name} if name else {})
            text, _ = answer(world.settings(), Scope(str(path.parent.parent)), call, world.clock)
            assert SECRET not in text
    assert path.read_bytes() == before
    world.restore_all(pristine=True)
    assert (owner.read_bytes(), path.read_bytes()) == (original, before)


def test_mount_asks_which_agent_a_session_id_means(world):
    """Two agents have a session with one id: no value of either is filled."""
    paths = [at(world, agent, generic_log(f"{SECRET}{agent}")) for agent in ("alice", "bob")]
    assert world.scan().values_extracted == 2
    data = paths[0].read_bytes()

    with pytest.raises(AmbiguousError):
        api.mount(world.settings(), world.store, data, Scope(session="0"))
    filled = api.mount(world.settings(), world.store, data, Scope("alice", "0"))
    assert filled == generic_log(f"{SECRET}alice")


# --- moved ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("scanned", [False, True])
@pytest.mark.parametrize("happens", BETWEEN_AGENTS)
def test_numbered_log_is_left_and_named_in_another_agents_directory(world, happens, scanned):
    """It is restored at its agent, which may be renamed, and no other file is changed."""
    files = happens(world, write_and_prune(world))
    if scanned:
        world.scan()
    held = {path: path.read_bytes() for path in files}
    results = world.restore_all(pristine=True)
    home = {path for path, content in files.items() if is_at_its_agent(path, content)}
    left = {result.session: result.left for result in results if result.left}

    assert {path: path.read_bytes() for path in files} == {
        path: files[path] if path in home else held[path] for path in files
    }
    assert left == {
        f"{path.parents[1].name}/{path.stem}": (f"msg-3: {OTHER_AGENT}",)
        for path in files.keys() - home
    }


def write_and_prune(world):
    files = write_three_sessions(world, generic_log)
    assert world.scan().values_extracted == 3
    return files


def is_at_its_agent(path, content):
    if b"secret" not in content:  # the other agent's own session
        return True
    agent = path.parents[1].name
    owner = "other" if b"secret 2" in content else "main"
    return agent == owner or (agent == "prime" and path.stem in ("a", "b"))


def test_numbered_log_that_comes_back_to_its_agent_is_restored(world):
    """The value is kept while the log is in the directory of another agent."""
    files = write_and_prune(world)
    moved = moved_to_another_agent(world, files)
    for _ in range(3):
        world.scan()
        assert world.restore_all(pristine=True)
    for path in files:
        rename(moved, world.root / "third" / "sessions" / path.name, path)

    check_restored(world, files)


def test_numbered_log_with_a_session_id_moves_with_its_values(world):
    """The session's record follows its id, and so do the values, to another agent's directory."""
    original = generic(SECRET * 50, "msg-7", "call_1", SESSIONS[0])
    path = at(world, "alice", original)
    assert world.scan().values_extracted == 1
    (world.root / "bob" / "sessions").mkdir(parents=True)
    moved = path.rename(world.root / "bob" / "sessions" / "moved.jsonl")

    check_restored(world, {moved: original})


def test_numbered_archive_is_left_in_another_agents_directory(world):
    """Neither the text of an archived turn nor what stands in it is restored there."""
    lines = [
        {"type": "message", "__id": "m-1", "role": "user", "content": "go on"},
        *(
            {"type": kind, "__id": f"{kind}-{number}", "name": "exec", **more}
            for number in range(8)
            for kind, more in (
                ("tool_call", {"arguments": {"command": "ls"}}),
                ("tool_result", {"output": SECRET * 50}),
            )
        ),
        {"type": "message", "__id": "m-2", "role": "assistant", "content": f"Done. {SECRET * 50}"},
    ]  # fmt: skip
    more = [
        {"type": "message", "__id": f"m-{number}", "role": role, "content": "go on"}
        for number, role in enumerate(["user", "assistant"] * 3, 3)
    ]
    original = b"".join(map(dump, lines + more))
    path = at(world, "alice", original)
    archive = {"enabled": True, "token_threshold": 0, "tool_call_threshold": 0, "keep_turns": 0}
    world.scan(archive=archive, keep_recent=0)
    held = path.read_bytes()
    assert b"[archived turn]" in held
    copy, beside = at(world, "bob", held), at(world, "alice", held)
    result = world.restore_all(pristine=True)

    assert (path.read_bytes(), beside.read_bytes(), copy.read_bytes()) == (original, original, held)
    assert {one.session for one in result if one.left} == {"bob/0"}


# --- fields --------------------------------------------------------------------------------------

FIELDS = [
    {"_restored": "2026-02-20T10:00:00Z"}, {"_redacted": True}, {"_extractable": False},
    {"_restored": "2026-02-20T10:00:00Z", "_redacted": True},
]  # fmt: skip


@pytest.mark.parametrize("form", [openclaw, claude_code, generic])
def test_pristine_removes_only_fields_of_a_record(world, form):
    """Fields that a file had before stay, wherever a value is extracted, restored or pinned."""
    lines = form(SECRET * 50, UUIDS[0], "call_1", SESSIONS[0]).splitlines()
    entries = [json.loads(line) for line in lines]
    kept = [
        entry | (FIELDS[number % 4] if number > 0 and UUIDS[0] not in entry.values() else {})
        for number, entry in enumerate(entries)
    ]
    original = b"".join(map(dump, kept))
    path = at(world, "alice", original)
    assert world.scan().values_extracted == 1
    world.restore(UUIDS[0])
    assert path.read_bytes().count(b"_restored") == original.count(b"_restored") + 1
    results = world.restore_all(pristine=True)

    assert path.read_bytes() == original
    assert [result.insertions_removed for result in results] == [(f"_restored of {UUIDS[0]}",)]


def test_pristine_keeps_an_equal_field_of_another_agent(world):
    """A numbered entry with the field that we wrote into the other agent's entry keeps it."""
    original = generic(SECRET, "msg-7", "call_1", SESSIONS[0])
    path = at(world, "alice", original)
    world.scan()
    assert not pin(world, "msg-7", False, session=str(path)).pending
    pinned = path.read_bytes()
    assert pinned != original
    other = at(world, "bob", pinned)
    world.restore_all(pristine=True)

    assert (path.read_bytes(), other.read_bytes()) == (original, pinned)
