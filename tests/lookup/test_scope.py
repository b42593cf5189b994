"""Scope: the sessions that a caller may see, and the one meant when none is named."""

import json
import os
import time

import pytest

from brainsurgeon.errors import AmbiguousError, NotFoundError, UnnamedError
from brainsurgeon.lookup.scope import Caller, Scope, bound, session_for, sessions_in
from building.world import Conversation, dump

CALL = {"action": "show", "entry": "00000003"}


def write_calling_session(world, *lines, name="s.jsonl", age=5):
    """Write a session of these lines that changed a moment ago."""
    return world.put(name, b"".join(dump(line) for line in lines), age=age)


def session_meant(world, **settings):
    """Return the name of the session meant by a call without one, or None."""
    try:
        session = session_for(
            world.settings(**settings), world.no_store, Caller(Scope("main"), CALL, time.time), None
        )
    except UnnamedError:
        return None
    return os.path.basename(session.path)


def conversation_with_calls(*calls):
    """Return an OpenClaw conversation whose open turn makes these calls at once."""
    conversation = Conversation()
    conversation.turn("short")
    conversation.user("what did it say?")
    blocks = [
        {"type": "toolCall", "id": f"call_{number}", "name": "purge_control", "arguments": call}
        for number, call in enumerate(calls)
    ]
    conversation.assistant(blocks, stop="toolUse")
    return conversation


# --- OpenClaw ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [CALL, {**CALL, "session": None, "keys": None}, {"tool": "purge_control", "arguments": CALL}],
    ids=["plain", "with nulls", "wrapped"],
)
def test_the_session_with_the_open_call_is_meant(world, arguments):
    """The session with the same unanswered call is meant, however the host wrote it down."""
    write_calling_session(world, *conversation_with_calls(arguments).lines)
    write_calling_session(
        world, *conversation_with_calls({**CALL, "entry": "another"}).lines, name="t.jsonl"
    )

    assert session_meant(world) == "s.jsonl"


def test_a_parallel_call_is_open_until_its_own_result(world):
    """Of parallel calls, each is open until its own result is written."""
    conversation = conversation_with_calls(CALL, {"command": "ls"})
    conversation.result("files", call="call_1")
    write_calling_session(world, *conversation.lines)
    assert session_meant(world) == "s.jsonl"

    conversation.result("the value", call="call_0")
    write_calling_session(world, *conversation.lines)
    assert session_meant(world) is None


def test_an_image_result_of_another_call_is_a_result(world):
    """A result without text leaves the other parallel call open."""
    conversation = conversation_with_calls(CALL, {"path": "a.png"})
    image = {"type": "image", "data": "QUJD", "mimeType": "image/png"}
    conversation.entry(message={"role": "toolResult", "toolCallId": "call_1", "content": [image]})
    write_calling_session(world, *conversation.lines)

    assert session_meant(world) == "s.jsonl"


def another_round(conversation):
    conversation.result("no answer to it", call="call_9")
    conversation.call("exec", {"command": "ls"}, call="later")


@pytest.mark.parametrize(
    "continuation",
    [
        lambda conversation: conversation.assistant("never mind"),
        lambda conversation: conversation.user("something else"),
        another_round,
    ],
    ids=["the turn ends", "the user speaks", "another round begins"],
)
def test_a_call_before_the_last_round_is_not_open(world, continuation):
    """After an answer, a prompt or another round, an unanswered call is no longer open."""
    conversation = conversation_with_calls(CALL)
    continuation(conversation)
    write_calling_session(world, *conversation.lines)

    assert session_meant(world) is None


@pytest.mark.parametrize("continued", [True, False], ids=["more was said", "nothing was said"])
def test_a_call_of_an_aborted_round_is_not_open(world, continued):
    """An unanswered call of an aborted round does not hide a session with the same open call."""
    failed = conversation_with_calls(CALL, {"command": "ls"})
    failed.result("files", call="call_1")
    failed.assistant("", stop="aborted")
    if continued:
        failed.user("go on")
    else:
        failed.result("late", call="call_9")
    write_calling_session(world, *failed.lines)
    write_calling_session(world, *conversation_with_calls(CALL).lines, name="t.jsonl")

    assert session_meant(world) == "t.jsonl"


def test_a_call_of_an_abandoned_turn_is_not_open(world):
    """A turn that was silent for `abandoned_after_seconds` counts as closed."""
    write_calling_session(world, *conversation_with_calls(CALL).lines, age=3601)

    assert session_meant(world) is None
    assert session_meant(world, abandoned_after_seconds=7200) == "s.jsonl"


# --- generic entries -----------------------------------------------------------------------------


def block(kind, **fields):
    return {"type": "message", "id": "m2", "role": "assistant",
            "content": [{"type": kind, "id": "b1", "name": "purge_control", **fields}]}  # fmt: skip


GENERIC = {
    "an object": {"type": "tool_call", "__id": "c1", "name": "x", "arguments": CALL},
    "a text": {"type": "tool_call", "__id": "c1", "name": "x", "arguments": json.dumps(CALL)},
    "an input": {"type": "tool_call", "__id": "c1", "call_id": "k", "input": CALL},
    "a block": block("tool_use", input=CALL),
    "a call block": block("toolCall", arguments=CALL),
    "in a message": {"type": "message", "id": "m3", "message": block("tool_use", input=CALL)},
}


@pytest.mark.parametrize("shape", GENERIC)
def test_a_generic_call_is_found_in_any_shape(world, shape):
    """The open call is found with arguments as object or text, flat or in a block."""
    entry = GENERIC[shape]
    if "message" in entry:
        entry = {**entry, "message": {**entry["message"], "role": "assistant"}}
    write_calling_session(world, {"type": "user", "__id": "u1", "content": "what?"}, entry)

    assert session_meant(world) == "s.jsonl"


@pytest.mark.parametrize(
    ("call", "result"),
    [
        ({}, {}),
        ({}, {"call_id": "c1"}),
        ({"call_id": "k"}, {"call_id": "k"}),
        ({"call_id": "k"}, {"tool_call_id": "k"}),
    ],
    ids=["names nothing", "names the entry", "names the call", "in other words"],
)
def test_an_answered_generic_call_is_not_open(world, call, result):
    """A result answers the call it names by call id or entry id, else the one before it."""
    write_calling_session(
        world,
        {"type": "tool_call", "__id": "c1", "name": "x", "arguments": CALL, **call},
        {"type": "tool_result", "__id": "r1", "output": "the value", **result},
    )

    assert session_meant(world) is None


# --- binding -------------------------------------------------------------------------------------


def write_session_of(world, agent, name, root=None):
    place = (root or world.root) / agent / "sessions"
    place.mkdir(parents=True, exist_ok=True)
    conversation = Conversation(name)
    conversation.turn("x" * 2000)
    path = place / f"{name}.jsonl"
    path.write_bytes(conversation.bytes())
    os.utime(path, (time.time() - 3600,) * 2)
    return path


def test_an_id_prefix_is_bound_to_its_session_at_start(world):
    """A scope bound to `7777` never means a later session whose id begins with it."""
    own = write_session_of(world, "main", "77770000")
    scope, warning = bound(world.settings(), world.no_store, Scope(None, "7777"))
    own.unlink()
    write_session_of(world, "other", "77771111")

    assert (scope.session, warning) == (str(own), None)
    assert sessions_in(world.settings(), world.no_store, scope) == []


def test_an_id_prefix_without_a_session_warns_and_fits_none(world):
    """Before its session exists, a prefix warns and fits none; a whole id fits it later."""
    write_session_of(world, "main", "11110000")
    early, warning = bound(world.settings(), world.no_store, Scope("main", "7777"))
    whole, _ = bound(world.settings(), world.no_store, Scope("main", "77771111"))
    write_session_of(world, "main", "77771111")

    assert "7777" in warning
    assert sessions_in(world.settings(), world.no_store, early) == []
    assert len(sessions_in(world.settings(), world.no_store, whole)) == 1


def test_an_ambiguous_scope_is_refused_at_the_start(world):
    """An agent name or id prefix that fits several raises AmbiguousError with the list."""
    elsewhere = world.base / "elsewhere"
    write_session_of(world, "main", "77770000")
    write_session_of(world, "main", "77771111")
    write_session_of(world, "main", "77772222", elsewhere)
    both = world.settings(roots=[{"path": str(world.root)}, {"path": str(elsewhere)}])

    with pytest.raises(AmbiguousError, match="elsewhere"):
        bound(both, world.no_store, Scope("main"))
    with pytest.raises(AmbiguousError, match="77771111"):
        bound(world.settings(), world.no_store, Scope("main", "7777"))
    assert sessions_in(both, world.no_store, Scope("main")) == []


def test_scope_of_an_agent_excludes_agents_with_its_prefix(world):
    """An agent `main` does not see the sessions of an agent `mainly`."""
    write_session_of(world, "main", "11110000")
    write_session_of(world, "mainly", "22220000")
    scope, _ = bound(world.settings(), world.no_store, Scope("main"))

    assert [session.title for session in sessions_in(world.settings(), world.no_store, scope)] == [
        "main/11110000"
    ]


def test_scope_follows_an_agents_moved_directory(world):
    """After its directory was moved, the agent has the sessions at the new place."""
    write_session_of(world, "main", "11110000")
    assert world.scan(keep_recent=0).values_extracted == 1
    moved = world.base / "moved"
    world.root.rename(moved)
    settings = world.settings(roots=[{"path": str(moved)}])
    world.scan(roots=[{"path": str(moved)}], keep_recent=0)

    scope, warning = bound(settings, world.store, Scope("main"))

    assert warning is None
    assert [session.path for session in sessions_in(settings, world.store, scope)] == [
        str(moved / "main" / "sessions" / "11110000.jsonl")
    ]


def test_a_scope_whose_id_fits_two_sessions_lists_both(world):
    """A call without a session raises UnnamedError if two sessions have the id of the scope."""
    names = "77771111", "2026-11-01T10-00-00-000Z_77771111"
    for name in names:
        write_session_of(world, "main", name)
    caller = Caller(Scope("main", "77771111"), CALL, time.time)

    with pytest.raises(UnnamedError) as raised:
        session_for(world.settings(), world.no_store, caller, None)

    assert sorted(raised.value.candidates) == sorted(f"main/{name}" for name in names)


def test_a_session_name_with_a_nul_is_not_found(world):
    """A name that no file can have raises NotFoundError."""
    write_session_of(world, "main", "11110000")

    with pytest.raises(NotFoundError):
        session_for(
            world.settings(), world.no_store, Caller(Scope("main"), CALL, time.time), "x\0/y"
        )
