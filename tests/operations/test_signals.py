"""Signals: what somebody should know of a session, once until it is over."""

import itertools
import json
import time

import pytest

from brainsurgeon.operations.signals import find_signals, note_failure, pass_on
from building.claude import ClaudeConversation, ClaudeWorld
from building.claw import GATEWAY, ClawWorld
from building.processes import program_for
from building.turns import add_long_turn
from building.world import Conversation, append, dump

NUMBERS = itertools.count()


def loop(talk, calls, command="make test", start=None):
    """Let the agent make the same call so many times; it is still at work."""
    for _ in range(calls):
        call = f"loop-{next(NUMBERS)}"
        talk.call(call=call, arguments={"command": command})
        talk.result("it failed", call=call)
    return talk


def signals(world):
    return [one.facts for one in world.store.events.after(0, kinds=["signal"])]


def watched(world, talk, name="s.jsonl"):
    """Write a session as its agent has just written it, and look at it as the daemon does."""
    path = world.put(name, talk.bytes(), age=0)
    find_signals(world.settings(), world.store, str(path), world.clock())
    return signals(world)


@pytest.fixture
def talk():
    talk = Conversation()
    talk.turn()
    talk.user("make it work")
    return talk


def test_five_equal_calls_in_a_row_are_one_signal(world, talk):
    """The fourth call says nothing, the fifth does, and those after it nothing more."""
    assert watched(world, loop(talk, 4)) == []
    [facts] = watched(world, loop(talk, 1))
    assert watched(world, loop(talk, 20)) == [facts]

    assert (facts["signal"], facts["tool"], facts["calls"]) == ("repeated_tool_call", "exec", 5)
    assert facts["reason"] == "exec was called 5 times in a row with the same arguments"
    assert "make test" not in json.dumps(facts)


def test_a_b_a_b_a_is_no_signal(world, talk):
    """Calls that alternate, and calls with other arguments, are no loop."""
    for command in "ababaabbaabb":
        loop(talk, 1, command)
    for number in range(9):
        loop(talk, 1, f"step {number}")

    assert watched(world, talk) == []


def test_a_pattern_that_broke_and_comes_again_is_another_signal(world, talk):
    """Another call or a prompt breaks it, whether or not somebody looked then."""
    watched(world, loop(talk, 6))
    loop(talk, 1, "other")
    assert len(watched(world, loop(talk, 5))) == 2
    talk.assistant("I give up.")
    talk.user("go on")
    assert len(watched(world, loop(talk, 4))) == 2
    assert len(watched(world, loop(talk, 1))) == 3


def test_a_rewrite_does_not_repeat_a_signal_where_entries_have_no_ids(world, clock):
    """The call is known again although its line stands elsewhere; other arguments are new."""
    roots = [{"path": str(world.root), "format": "generic"}]
    lines = [{"type": "message", "message": {"role": "user", "content": "go"}}]
    lines += [{"type": "tool_result", "output": "y" * 5000}]
    for number in range(10):
        lines += [
            {"type": "tool_call", "name": "read", "arguments": {"page": number // 5}},
            {"type": "tool_result", "output": "z" * 3000 + str(number)},
        ]
    halves = (lines[:12], lines[12:])
    path = world.put("s.jsonl", b"".join(map(dump, halves[0])))
    counts = []
    for keep_recent in (8, 0, 1):
        world.scan(keep_recent=keep_recent, roots=roots)
        counts.append(len(signals(world)))
        clock.now += 4000
    append(path, halves[1])
    world.scan(roots=roots)

    assert counts == [1, 1, 1]
    assert len(signals(world)) == 2


def test_the_number_of_calls_is_configured(world, talk):
    """`repeat_threshold` says how many calls are too many; 0 switches the signal off."""
    path = world.put("s.jsonl", loop(talk, 9).bytes(), age=0)
    for threshold in (0, 10):
        settings = world.settings(signals={"repeat_threshold": threshold})
        find_signals(settings, world.store, str(path), world.clock())
    assert signals(world) == []
    find_signals(
        world.settings(signals={"repeat_threshold": 9}), world.store, str(path), world.clock()
    )

    assert [one["calls"] for one in signals(world)] == [9]


def test_a_scan_notices_what_nobody_watched(world, talk):
    """A loop in a finished turn is a signal of the next scan, and only of that one."""
    loop(talk, 5).assistant("I give up.")
    world.put("s.jsonl", talk.bytes())
    world.scan()
    world.scan(keep_recent=0)

    assert [one["signal"] for one in signals(world)] == ["repeated_tool_call"]


def test_a_scan_of_the_tail_notices_it_too(world):
    """A large session of which only the grown tail is read tells of its loop."""
    talk = Conversation()
    for _ in range(600):
        talk.user()
        talk.assistant("y" * 900)
    path = world.put("s.jsonl", talk.bytes())
    world.scan()
    assert world.store.resumes.at(str(path))
    before = len(talk.lines)
    talk.user()
    loop(talk, 5).assistant("I give up.")
    append(path, talk.lines[before:])
    world.scan()

    assert len(signals(world)) == 1


def test_sessions_of_claude_code_and_in_databases_are_watched(tmp_path):
    """The calls of each format are compared; a database is looked at as a whole."""
    claude, claw = ClaudeWorld(tmp_path / "one"), ClawWorld(tmp_path / "two")
    talk = ClaudeConversation()
    talk.user()
    for number in range(5):
        talk.call(f"toolu_{number}", given={"command": "make"})
        talk.result("it failed", f"toolu_{number}")
    path = claude.put("11111111-1111-4111-8111-111111111111.jsonl", talk.bytes(), age=0)
    find_signals(claude.settings(), claude.store, str(path), claude.clock())
    settings = claw.settings(signals={"repeat_threshold": 1})
    find_signals(settings, claw.store, str(claw.claw.path), claw.clock())
    assert signals(claw) == []  # nothing happened there in the last minute
    now = claw.claw.session(GATEWAY).fingerprint.mtime_ns / 1e9
    find_signals(settings, claw.store, str(claw.claw.path), now)

    assert [one["tool"] for one in signals(claude)] == ["Bash"]
    assert f"main/{GATEWAY}" in {one.session for one in claw.store.events.after(0)}
    claude.close()
    claw.close()


def test_a_session_that_no_step_relieves_is_a_signal_until_one_does(world, clock):
    """It is told once while it stays too full, and again when it became so again."""
    keys = {"windows": {"*": 3000}, "budget": {"enabled": True, "max_step": 1}}
    talk = Conversation()
    for turns, told in ((2, 0), (12, 1), (2, 1)):
        for _ in range(turns):
            talk.user("q" * 900)
            talk.assistant("a" * 900)
        world.put("s.jsonl", talk.bytes())
        world.scan(**keys)
        assert len(signals(world)) == told
    assert {one["signal"] for one in signals(world)} == {"pressure"}
    for turns, told in ((1, 1), (12, 2)):
        talk.lines = talk.lines[: 1 + 2 * turns] if turns == 1 else talk.lines
        talk.last = talk.lines[-1]["id"]
        for _ in range(turns):
            talk.user("q" * 900)
            talk.assistant("a" * 900)
        world.put("s.jsonl", talk.bytes())
        world.scan(**keys)
        assert len(signals(world)) == told


def pay(talk, dollars):
    """Let the agent make a call whose cost it records; it is still at work."""
    talk.call(call=f"paid-{next(NUMBERS)}", arguments={"page": next(NUMBERS)})
    talk.lines[-1]["message"]["usage"] = {"input": 9, "output": 1, "cost": {"total": dollars}}
    return talk


def costly(world, talk, **ceilings):
    """Write a session as its agent has just written it; return the signals after a look."""
    path = world.put("s.jsonl", talk.bytes(), age=0)
    find_signals(world.settings(signals=ceilings), world.store, str(path), world.clock())
    return [(one["of"], one["cost_dollars"], one["ceiling_dollars"]) for one in signals(world)]


def test_a_turn_that_reaches_its_ceiling_is_one_signal(world, talk):
    """Below it there is none; the next turn has a signal of its own."""
    assert costly(world, pay(talk, 1.5), max_turn_cost_usd=2) == []
    [first] = costly(world, pay(talk, 0.5), max_turn_cost_usd=2)
    assert costly(world, pay(talk, 5), max_turn_cost_usd=2) == [first]
    talk.assistant("done")
    talk.user("go on")
    assert costly(world, pay(talk, 1.9), max_turn_cost_usd=2) == [first]
    assert costly(world, pay(talk, 0.2), max_turn_cost_usd=2) == [first, ("turn", 2.1, 2)]

    assert first == ("turn", 2.0, 2)
    [reason, _] = [one["reason"] for one in signals(world)]
    assert reason == "this turn has cost $2.00, its ceiling is $2.00"


def test_a_session_that_reaches_its_ceiling_is_one_signal(world, talk):
    """It does not break by a turn; a higher ceiling is another one. Each call counts once."""
    for _ in range(3):
        assert costly(world, pay(talk, 1), max_session_cost_usd=3.5) == []
        talk.assistant("done")
        talk.user("go on")
    [first] = costly(world, pay(talk, 1), max_session_cost_usd=3.5)
    assert first == ("session", 4.0, 3.5)
    assert costly(world, pay(talk, 1), max_session_cost_usd=3.5) == [first]
    assert costly(world, talk, max_session_cost_usd=5) == [first, ("session", 5.0, 5)]
    talk.assistant("done")
    world.put("s.jsonl", talk.bytes())
    world.scan(signals={"max_session_cost_usd": 5.5})
    assert len(signals(world)) == 2
    assert sum(one.dollars for one in world.store.spending.total()) == 5


def test_a_turn_that_begins_before_the_grown_tail_is_one_signal(world):
    """Its cost is that of all its calls, however little of the session a scan reads."""
    talk = Conversation()
    for _ in range(600):
        talk.user()
        talk.assistant("y" * 900)
    talk.user("make it work")
    path = world.put("s.jsonl", pay(talk, 1.5).assistant("so far") and talk.bytes())
    ceiling = {"max_turn_cost_usd": 2}
    world.scan(signals=ceiling)
    assert world.store.resumes.at(str(path))
    for dollars in (1, 3):
        before = len(talk.lines)
        pay(talk, dollars).assistant("so far")
        append(path, talk.lines[before:])
        world.scan(signals=ceiling)

    assert [one["cost_dollars"] for one in signals(world)] == [2.5]


def test_a_message_that_is_still_written_is_counted_once_it_is_whole(tmp_path):
    """A look during a turn judges its cost so far and records none."""
    world, talk = ClaudeWorld(tmp_path), ClaudeConversation()
    name, path = "11111111-1111-4111-8111-111111111111.jsonl", None
    price = {"input": 1, "cache_read": 1, "cache_write": 1, "output": 1}
    keys = {"prices": {"*": price}, "signals": {"max_session_cost_usd": 99}}
    talk.user()
    for output in (3, 50):
        talk.assistant(message="msg_a", requestId="req_a")
        talk.lines[-1]["message"]["usage"] = {"input_tokens": 1, "output_tokens": output}
        path = world.put(name, talk.bytes(), age=0 if output == 3 else 7200)
        find_signals(world.settings(**keys), world.store, str(path), world.clock())
    world.scan(**keys)

    assert [one.output for one in world.store.spending.total()] == [50]
    world.close()


def test_an_unknown_cost_reaches_no_ceiling(world, talk):
    """Nothing is guessed; with a price the same calls count."""
    ceilings = {"max_turn_cost_usd": 1e-6, "max_session_cost_usd": 1e-6}
    assert costly(world, pay(talk, 0), **ceilings) == []
    price = {"input": 4, "cache_read": 0.2, "cache_write": 5, "output": 20}
    path = str(world.directory / "s.jsonl")
    settings = world.settings(signals=ceilings, prices={"*": price})
    find_signals(settings, world.store, path, world.clock())

    assert sorted(one["of"] for one in signals(world)) == ["session", "turn"]


def test_a_scan_notices_a_ceiling_that_nobody_watched(world, talk):
    """A finished turn that was too dear is a signal of the next scan, and only of that one."""
    pay(talk, 9).assistant("done")
    world.put("s.jsonl", talk.bytes())
    for keep_recent in (3, 0):
        world.scan(keep_recent=keep_recent, signals={"max_turn_cost_usd": 9})

    assert [one["signal"] for one in signals(world)] == ["cost_ceiling"]


def test_the_command_gets_each_signal_and_its_failure_is_an_event(world, talk, tmp_path):
    """It reads JSON on its standard input; one that fails is told of, and the others run."""
    watched(world, loop(talk, 5))
    [event] = world.store.events.take_signals()
    said, failures = tmp_path / "said", []
    for script in (f"cat > {said}", "exit 3"):
        settings = world.settings(signals={"on_signal": ["sh", "-c", script]})
        pass_on(
            settings, [(event, '{"kind": "signal"}')], lambda: None,
            lambda event, why: note_failure(world.store, event, why, time.time()),
        )  # fmt: skip
    failures = world.store.events.after(event.id)

    assert said.read_text() == '{"kind": "signal"}'
    assert [(one.kind, one.facts["reason"]) for one in failures] == [
        ("failure", "on_signal: its command exited with 3")
    ]
    assert world.store.events.take_signals() == []


def test_a_scan_by_hand_runs_the_command(world, talk):
    """Each signal of `scan --once` is one document, with a digest in place of the arguments."""
    loop(talk, 5).assistant("I give up.")
    world.put("s.jsonl", talk.bytes())
    said = world.base / "said"
    program = program_for(world)
    config = world.base / "config.toml"
    command = json.dumps(["sh", "-c", f"cat >> {said}"])
    config.write_text(f"{config.read_text()}[signals]\non_signal = {command}\n")

    assert [program("scan", "--once").returncode for _ in range(2)] == [0, 0]
    document = json.loads(said.read_text())
    assert (document["kind"], document["facts"]["calls"]) == ("signal", 5)
    assert "make test" not in said.read_text()


def test_a_turn_of_many_calls_is_none(world):
    """Ordinary turns trip nothing."""
    talk = Conversation()
    for _ in range(3):
        add_long_turn(talk, calls=8)

    assert watched(world, talk) == []
