"""Whose sessions a caller may see, and which one is meant when none is named."""

import json
import os
import time

import pytest

from brainsurgeon.errors import AmbiguousError, NotFoundError, UnnamedError
from brainsurgeon.lookup.scope import Caller, Scope, bound, session_for, sessions_in
from building.world import Conversation, dump

CALL = {"action": "show", "entry": "00000003"}


def calling(world, *lines, name="s.jsonl", age=5):
    """Write a session that ends in these lines, changed a moment ago."""
    return world.put(name, b"".join(dump(line) for line in lines), age=age)


def meant(world, call=CALL, **settings):
    """Give the name of the session that a call without one means, or None."""
    try:
        found = session_for(
            world.settings(**settings), world.no_store, Caller(Scope("main"), call, time.time), None
        )
    except UnnamedError:
        return None
    return os.path.basename(found.path)


def asked(*calls):
    """Give an OpenClaw conversation with an open turn that makes these calls at once."""
    talk = Conversation()
    talk.turn("short")
    talk.user("what did it say?")
    talk.assistant(
        [{"type": "toolCall", "id": f"call_{number}", "name": "purge_control", "arguments": one}
         for number, one in enumerate(calls)], stop="toolUse",
    )  # fmt: skip
    return talk


# --- OpenClaw ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "given",
    [CALL, {**CALL, "session": None, "keys": None}, {"tool": "purge_control", "arguments": CALL}],
    ids=["plain", "with nulls", "wrapped"],
)
def test_the_session_that_waits_for_the_answer_is_meant(world, given):
    """However the host wrote the call down, the session with the open call is found."""
    calling(world, *asked(given).lines)
    calling(world, *asked({**CALL, "entry": "another"}).lines, name="t.jsonl")

    assert meant(world) == "s.jsonl"


def test_of_several_calls_at_once_the_answered_ones_do_not_wait(world):
    """In a round of parallel calls each waits until its own result stands there."""
    talk = asked(CALL, {"command": "ls"})
    talk.result("files", call="call_1")
    calling(world, *talk.lines)
    assert meant(world) == "s.jsonl"

    talk.result("the value", call="call_0")
    calling(world, *talk.lines)
    assert meant(world) is None


def test_an_image_as_the_result_of_another_call_hides_nothing(world):
    """A result without any text is a result like any other."""
    talk = asked(CALL, {"path": "a.png"})
    image = {"type": "image", "data": "QUJD", "mimeType": "image/png"}
    talk.entry(message={"role": "toolResult", "toolCallId": "call_1", "content": [image]})
    calling(world, *talk.lines)

    assert meant(world) == "s.jsonl"


def answered_by_another(talk):
    talk.result("no answer to it", call="call_9")
    talk.call("exec", {"command": "ls"}, call="later")


@pytest.mark.parametrize(
    "goes_on",
    [
        lambda talk: talk.assistant("never mind"),
        lambda talk: talk.user("something else"),
        answered_by_another,
    ],
    ids=["the turn ends", "the user speaks", "another round begins"],
)
def test_a_call_that_was_passed_over_waits_for_nothing(world, goes_on):
    """Only a call of the last round, in an open turn, after the last prompt, can wait."""
    talk = asked(CALL)
    goes_on(talk)
    calling(world, *talk.lines)

    assert meant(world) is None


@pytest.mark.parametrize("goes_on", [True, False], ids=["more was said", "nothing was said"])
def test_a_call_whose_round_failed_is_over(world, goes_on):
    """What was never answered and never will be hides nobody who makes the same call now."""
    failed = asked(CALL, {"command": "ls"})
    failed.result("files", call="call_1")
    failed.assistant("", stop="aborted")
    if goes_on:
        failed.user("go on")
    else:
        failed.result("late", call="call_9")
    calling(world, *failed.lines)
    calling(world, *asked(CALL).lines, name="t.jsonl")

    assert meant(world) == "t.jsonl"


def test_an_abandoned_turn_waits_for_nothing(world):
    """A turn that has been silent for an hour counts as closed here, too."""
    calling(world, *asked(CALL).lines, age=3601)

    assert meant(world) is None
    assert meant(world, abandoned_after_seconds=7200) == "s.jsonl"


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
def test_a_generic_call_of_any_shape_is_found(world, shape):
    """Arguments as an object or as text, flat or in a block: the session that calls is found."""
    entry = GENERIC[shape]
    if "message" in entry:
        entry = {**entry, "message": {**entry["message"], "role": "assistant"}}
    calling(world, {"type": "user", "__id": "u1", "content": "what?"}, entry)

    assert meant(world) == "s.jsonl"


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
def test_a_generic_call_that_was_answered_is_over(world, call, result):
    """A result answers the call that it names, by its id or its entry's, or the one before it."""
    calling(
        world,
        {"type": "tool_call", "__id": "c1", "name": "x", "arguments": CALL, **call},
        {"type": "tool_result", "__id": "r1", "output": "the value", **result},
    )

    assert meant(world) is None


# --- binding -------------------------------------------------------------------------------------


def session_of(world, agent, name, root=None):
    place = (root or world.root) / agent / "sessions"
    place.mkdir(parents=True, exist_ok=True)
    talk = Conversation(name)
    talk.turn("x" * 2000)
    path = place / f"{name}.jsonl"
    path.write_bytes(talk.bytes())
    os.utime(path, (time.time() - 3600,) * 2)
    return path


def test_a_beginning_is_bound_to_the_session_that_it_means_now(world):
    """A server for `7777` never comes to mean another session that begins so later."""
    own = session_of(world, "main", "77770000")
    scope, warning = bound(world.settings(), world.no_store, Scope(None, "7777"))
    own.unlink()
    session_of(world, "other", "77771111")

    assert (scope.session, warning) == (str(own), None)
    assert sessions_in(world.settings(), world.no_store, scope) == []


def test_a_beginning_that_means_nothing_yet_means_nothing_later(world):
    """Before its session exists only a whole id will do; whoever starts the server is told."""
    session_of(world, "main", "11110000")
    early, warning = bound(world.settings(), world.no_store, Scope("main", "7777"))
    whole, _ = bound(world.settings(), world.no_store, Scope("main", "77771111"))
    session_of(world, "main", "77771111")

    assert "7777" in warning
    assert sessions_in(world.settings(), world.no_store, early) == []
    assert len(sessions_in(world.settings(), world.no_store, whole)) == 1


def test_names_that_fit_several_are_refused_at_the_start(world):
    """Two agents of one name, or two sessions of one beginning, end the start with a list."""
    elsewhere = world.base / "elsewhere"
    session_of(world, "main", "77770000")
    session_of(world, "main", "77771111")
    session_of(world, "main", "77772222", elsewhere)
    both = world.settings(roots=[{"path": str(world.root)}, {"path": str(elsewhere)}])

    with pytest.raises(AmbiguousError, match="elsewhere"):
        bound(both, world.no_store, Scope("main"))
    with pytest.raises(AmbiguousError, match="77771111"):
        bound(world.settings(), world.no_store, Scope("main", "7777"))
    assert sessions_in(both, world.no_store, Scope("main")) == []


def test_an_agent_is_its_whole_directory(world):
    """Agents in directories whose names begin alike are strangers."""
    session_of(world, "main", "11110000")
    session_of(world, "mainly", "22220000")
    scope, _ = bound(world.settings(), world.no_store, Scope("main"))

    assert [one.title for one in sessions_in(world.settings(), world.no_store, scope)] == [
        "main/11110000"
    ]


def test_an_agents_directory_may_move(world):
    """After its directory was moved the agent is the one whose files stand there now."""
    session_of(world, "main", "11110000")
    assert world.scan(keep_recent=0).values_extracted == 1
    moved = world.base / "moved"
    world.root.rename(moved)
    settings = world.settings(roots=[{"path": str(moved)}])
    world.scan(roots=[{"path": str(moved)}], keep_recent=0)

    scope, warning = bound(settings, world.store, Scope("main"))

    assert warning is None
    assert [one.path for one in sessions_in(settings, world.store, scope)] == [
        str(moved / "main" / "sessions" / "11110000.jsonl")
    ]


def test_a_name_with_a_nul_is_nobodys(world):
    """What no file can be called is not found, like anything else that is not there."""
    session_of(world, "main", "11110000")

    with pytest.raises(NotFoundError):
        session_for(
            world.settings(), world.no_store, Caller(Scope("main"), CALL, time.time), "x\0/y"
        )
