"""Signals of a session: repeated calls, costs above a ceiling, and a context that is too full."""

import itertools
import json
import time

import pytest

from brainsurgeon.model.text import iso
from brainsurgeon.operations.signals import find_signals, note_failure, run_on_signal
from brainsurgeon.sessions.transcripts import Transcripts
from building.cached_conversation import CachedConversation
from building.claude import SESSION, ClaudeConversation, ClaudeWorld
from building.claw import GATEWAY, ClawWorld
from building.processes import program_for
from building.world import Conversation, append, appending, dump

CALL_NUMBERS = itertools.count()


def repeat_call(talk, calls, command="make test"):
    """Add the same call and its result a number of times; the turn stays open."""
    for _ in range(calls):
        call = f"loop-{next(CALL_NUMBERS)}"
        talk.call(call=call, arguments={"command": command})
        talk.result("it failed", call=call)
    return talk


def signals(world):
    return [event.facts for event in world.store.events.after(0, kinds=["signal"])]


def find_in(world, talk, name="s.jsonl"):
    """Write a session as changed just now, look for signals as the daemon does, and return all."""
    path = world.put(name, talk.bytes(), age=0)
    find_signals(world.settings(), world.store, str(path), world.clock())
    return signals(world)


@pytest.fixture
def talk():
    talk = Conversation()
    talk.turn()
    talk.user("make it work")
    return talk


def many_turns():
    """Return a conversation of many turns."""
    talk = Conversation()
    for _ in range(600):
        talk.user()
        talk.assistant("y" * 900)
    return talk


def test_five_equal_calls_in_a_row_are_one_signal(world, talk):
    """The fifth equal call in a row is a signal; the fourth and those after it are not."""
    assert find_in(world, repeat_call(talk, 4)) == []
    [facts] = find_in(world, repeat_call(talk, 1))
    assert find_in(world, repeat_call(talk, 20)) == [facts]

    assert (facts["signal"], facts["tool"], facts["calls"]) == ("repeated_tool_call", "exec", 5)
    assert facts["reason"] == "exec was called 5 times in a row with the same arguments"
    assert "make test" not in json.dumps(facts)


def test_alternating_calls_are_no_signal(world, talk):
    """Calls that alternate, or have other arguments each time, are no signal."""
    for command in "ababaabbaabb":
        repeat_call(talk, 1, command)
    for number in range(9):
        repeat_call(talk, 1, f"step {number}")

    assert find_in(world, talk) == []


def test_interrupted_repetition_is_a_new_signal(world, talk):
    """After another call or a prompt the same repetition is a new signal."""
    find_in(world, repeat_call(talk, 6))
    repeat_call(talk, 1, "other")
    assert len(find_in(world, repeat_call(talk, 5))) == 2
    talk.assistant("I give up.")
    talk.user("go on")
    assert len(find_in(world, repeat_call(talk, 4))) == 2
    assert len(find_in(world, repeat_call(talk, 1))) == 3


def test_signal_is_not_repeated_after_a_rewrite(world, clock):
    """Without entry ids a call is recognized although a rewrite moved its line."""
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


def test_repeat_threshold_sets_the_number_of_calls(world, talk):
    """`repeat_threshold` is the number of equal calls that make a signal; 0 disables it."""
    path = world.put("s.jsonl", repeat_call(talk, 9).bytes(), age=0)
    for threshold in (0, 10):
        settings = world.settings(signals={"repeat_threshold": threshold})
        find_signals(settings, world.store, str(path), world.clock())
    assert signals(world) == []
    settings = world.settings(signals={"repeat_threshold": 9})
    find_signals(settings, world.store, str(path), world.clock())

    assert [signal["calls"] for signal in signals(world)] == [9]


@pytest.mark.parametrize("signal", ["repeated_tool_call", "cost_ceiling"])
def test_scan_finds_a_signal_in_a_closed_turn(world, talk, signal):
    """Repeated calls or costs of a closed turn are a signal of the next scan, once."""
    ceilings = {}
    if signal == "cost_ceiling":
        ceilings = {"max_turn_cost_usd": 9}
        add_paid_call(talk, 9)
    else:
        repeat_call(talk, 5)
    talk.assistant("I give up.")
    world.put("s.jsonl", talk.bytes())
    for keep_recent in (3, 0):
        world.scan(keep_recent=keep_recent, signals=ceilings)

    assert [facts["signal"] for facts in signals(world)] == [signal]


def test_scan_of_a_grown_session_finds_a_repetition(world):
    """A scan that reads only the new end of a session finds repeated calls there."""
    world.kept = Transcripts()
    talk = many_turns()
    path = world.put("s.jsonl", talk.bytes())
    world.scan()
    with appending(path, talk):
        talk.user()
        repeat_call(talk, 5).assistant("I give up.")
    world.scan()

    assert len(signals(world)) == 1


def test_signals_of_claude_code_and_database_sessions(tmp_path):
    """Calls are compared in Claude Code's format and in databases changed in the last minute."""
    claude, claw = ClaudeWorld(tmp_path / "one"), ClawWorld(tmp_path / "two")
    talk = ClaudeConversation()
    talk.user()
    for number in range(5):
        talk.call(f"toolu_{number}", arguments={"command": "make"})
        talk.result("it failed", f"toolu_{number}")
    path = claude.put(f"{SESSION}.jsonl", talk.bytes(), age=0)
    find_signals(claude.settings(), claude.store, str(path), claude.clock())
    settings = claw.settings(signals={"repeat_threshold": 1})
    find_signals(settings, claw.store, str(claw.claw.path), claw.clock())
    assert signals(claw) == []  # nothing happened there in the last minute
    now = claw.claw.session(GATEWAY).fingerprint.mtime_ns / 1e9
    find_signals(settings, claw.store, str(claw.claw.path), now)

    assert [signal["tool"] for signal in signals(claude)] == ["Bash"]
    assert f"main/{GATEWAY}" in {event.session for event in claw.store.events.after(0)}
    claude.close()
    claw.close()


def test_unrelievable_session_is_one_pressure_signal(world, clock):
    """A session that stays too full is one signal, and another after it had room meanwhile."""
    keys = {"windows": {"*": 3000}, "budget": {"enabled": True, "max_step": 1}}
    talk = Conversation()
    for turns, count in ((2, 0), (12, 1), (2, 1), (-15, 1), (12, 2)):
        if turns < 0:
            del talk.lines[2 * turns :]
            talk.last = talk.lines[-1]["id"]
        for _ in range(turns):
            talk.user("q" * 900)
            talk.assistant("a" * 900)
        world.put("s.jsonl", talk.bytes())
        world.scan(**keys)
        assert len(signals(world)) == count
    assert {signal["signal"] for signal in signals(world)} == {"pressure"}


def test_relief_that_waits_for_a_cold_cache_is_no_pressure_signal(world, clock):
    """A session that fits once its cache is cold is no signal, until nothing makes it fit."""
    keys = {"windows": {"*": 40_000}, "budget": {"enabled": True}, "when": "cold"}
    talk = CachedConversation(clock.now - 60)
    talk.turn("x" * 60_000)
    for prompt, count in (("u" * 40_000, 0), ("v" * 90_000, 1)):
        talk.user(prompt)
        for _ in range(6):
            talk.assistant()
            talk.user()
        talk.assistant()
        world.put("s.jsonl", talk.bytes(), age=60)
        [session] = world.scan(**keys).sessions
        assert session.reason.startswith("its cache is warm")
        assert len(signals(world)) == count


def add_paid_call(talk, dollars):
    """Add a call with a recorded cost; the turn stays open."""
    talk.call(call=f"paid-{next(CALL_NUMBERS)}", arguments={"page": next(CALL_NUMBERS)})
    talk.lines[-1]["message"]["usage"] = {"input": 9, "output": 1, "cost": {"total": dollars}}
    return talk


def find_costs(world, talk, **ceilings):
    """Write a session that changed just now and return all cost signals after looking for them."""
    path = world.put("s.jsonl", talk.bytes(), age=0)
    find_signals(world.settings(signals=ceilings), world.store, str(path), world.clock())
    return [(each["of"], each["cost_dollars"], each["ceiling_dollars"]) for each in signals(world)]


def test_turn_cost_ceiling_is_one_signal_a_turn(world, talk):
    """A turn whose cost reaches `max_turn_cost_usd` is one signal, and so is the next such turn."""
    assert find_costs(world, add_paid_call(talk, 1.5), max_turn_cost_usd=2) == []
    [first] = find_costs(world, add_paid_call(talk, 0.5), max_turn_cost_usd=2)
    assert find_costs(world, add_paid_call(talk, 5), max_turn_cost_usd=2) == [first]
    talk.assistant("done")
    talk.user("go on")
    assert find_costs(world, add_paid_call(talk, 1.9), max_turn_cost_usd=2) == [first]
    costs = find_costs(world, add_paid_call(talk, 0.2), max_turn_cost_usd=2)

    assert costs == [first, ("turn", 2.1, 2)]
    assert first == ("turn", 2.0, 2)
    assert signals(world)[0]["reason"] == "this turn has cost $2.00, its ceiling is $2.00"


def test_session_cost_ceiling_is_one_signal_a_ceiling(world, talk):
    """A session's costs over all turns are one signal for each ceiling, and counted once."""
    for _ in range(3):
        assert find_costs(world, add_paid_call(talk, 1), max_session_cost_usd=3.5) == []
        talk.assistant("done")
        talk.user("go on")
    [first] = find_costs(world, add_paid_call(talk, 1), max_session_cost_usd=3.5)
    assert first == ("session", 4.0, 3.5)
    assert find_costs(world, add_paid_call(talk, 1), max_session_cost_usd=3.5) == [first]
    assert find_costs(world, talk, max_session_cost_usd=5) == [first, ("session", 5.0, 5)]
    talk.assistant("done")
    world.put("s.jsonl", talk.bytes())
    world.scan(signals={"max_session_cost_usd": 5.5})
    assert len(signals(world)) == 2
    assert sum(spent.dollars for spent in world.store.spending.total()) == 5


def test_cost_of_a_turn_includes_calls_of_earlier_scans(world):
    """The cost of a turn counts all its calls even if a scan reads only the last of them."""
    world.kept = Transcripts()
    talk = many_turns()
    talk.user("make it work")
    add_paid_call(talk, 1.5).assistant("so far")
    path = world.put("s.jsonl", talk.bytes())
    ceiling = {"max_turn_cost_usd": 2}
    world.scan(signals=ceiling)
    for dollars in (1, 3):
        with appending(path, talk):
            add_paid_call(talk, dollars).assistant("so far")
        world.scan(signals=ceiling)

    assert [signal["cost_dollars"] for signal in signals(world)] == [2.5]


def test_cost_of_an_unfinished_message_is_not_recorded(tmp_path):
    """A message written in two parts is recorded once, with its final number of tokens."""
    world, talk = ClaudeWorld(tmp_path), ClaudeConversation()
    price = {"input": 1, "cache_read": 1, "cache_write": 1, "output": 1}
    keys = {"prices": {"*": price}, "signals": {"max_session_cost_usd": 99}}
    talk.user()
    for output in (3, 50):
        talk.assistant(message="msg_a", requestId="req_a")
        talk.lines[-1]["message"]["usage"] = {"input_tokens": 1, "output_tokens": output}
        path = world.put(f"{SESSION}.jsonl", talk.bytes(), age=0 if output == 3 else 7200)
        find_signals(world.settings(**keys), world.store, str(path), world.clock())
    world.scan(**keys)

    assert [spent.output for spent in world.store.spending.total()] == [50]
    world.close()


def test_unknown_cost_is_no_signal(world, talk):
    """Calls without a known cost reach no ceiling; with a price the same calls do."""
    ceilings = {"max_turn_cost_usd": 1e-6, "max_session_cost_usd": 1e-6}
    assert find_costs(world, add_paid_call(talk, 0), **ceilings) == []
    price = {"input": 4, "cache_read": 0.2, "cache_write": 5, "output": 20}
    path = str(world.directory / "s.jsonl")
    settings = world.settings(signals=ceilings, prices={"*": price})
    find_signals(settings, world.store, path, world.clock())

    assert sorted(signal["of"] for signal in signals(world)) == ["session", "turn"]


def answers(talk, number, model):
    for _ in range(number):
        talk.user()
        talk.assistant()
        usage = {"input": 9, "output": 1}
        talk.lines[-1]["message"] |= {"model": model, "usage": usage}
        talk.lines[-1]["timestamp"] = iso(1.7e9 + len(talk.lines))
    return talk


def test_small_model_in_a_long_session_is_one_signal(world):
    """A small model that answered most of at least 100 calls is one signal of the session."""
    for name, parts in {
        "short": [(99, "claude-haiku-4-5")], "large": [(120, "claude-opus-4-5")],
        "mixed": [(60, "claude-opus-4-5"), (60, "claude-haiku-4-5")],
        "former": [(90, "claude-haiku-4-5"), (30, "claude-opus-4-5")],
    }.items():  # fmt: skip
        talk = Conversation()
        for part in parts:
            answers(talk, *part)
        assert find_in(world, talk, f"{name}.jsonl") == []
    talk = answers(answers(Conversation(), 49, "claude-opus-4-5"), 51, "gpt-5-nano")
    [facts] = find_in(world, talk)

    assert find_in(world, answers(talk, 40, "gpt-5-nano")) == [facts]
    assert facts == {
        "signal": "small_tier_parent", "model": "gpt-5-nano", "calls": 100, "calls_small": 51,
        "reason": "gpt-5-nano, a small model, answers in a long session: small models answered 51 "
        "of its 100 calls",
    }  # fmt: skip


def test_small_model_of_a_sub_agent_is_no_signal(tmp_path):
    """A sub-agent may use a small model."""
    world, talk = ClaudeWorld(tmp_path), ClaudeConversation()
    for _ in range(120):
        talk.turn("short")
        usage = {"input_tokens": 9, "output_tokens": 1}
        talk.lines[-1]["message"] |= {"model": "claude-haiku-4-5", "usage": usage}
    world.put(f"{SESSION}.jsonl", talk.bytes())
    below = world.project / SESSION / "subagents"
    below.mkdir(parents=True)
    (below / "agent-1.jsonl").write_bytes(talk.bytes())
    found = []
    for path in (below / "agent-1.jsonl", world.project / f"{SESSION}.jsonl"):
        find_signals(world.settings(), world.store, str(path), world.clock())
        found.append(len(signals(world)))

    assert found == [0, 1]
    world.close()


@pytest.mark.parametrize("off", [[], ["repeated_tool_call"]])
def test_signals_that_are_off_are_not_reported(world, talk, off):
    """A signal that `signals.off` names is not recorded; the others are."""
    path = world.put("s.jsonl", add_paid_call(repeat_call(talk, 5), 9).bytes(), age=0)
    path.write_bytes(repeat_call(talk, 5).bytes())
    settings = world.settings(signals={"off": off, "max_turn_cost_usd": 2})
    find_signals(settings, world.store, str(path), world.clock())

    names = {"repeated_tool_call", "cost_ceiling"} - {*off}
    assert {facts["signal"] for facts in signals(world)} == names


def test_on_signal_gets_json_and_its_failure_is_an_event(world, talk, tmp_path):
    """`on_signal` reads the event as JSON from standard input, and its failure is an event."""
    find_in(world, repeat_call(talk, 5))
    [event] = world.store.events.take_signals()
    output = tmp_path / "output"
    for script in (f"cat > {output}", "exit 3"):
        settings = world.settings(signals={"on_signal": ["sh", "-c", script]})
        run_on_signal(
            settings, [(event, '{"kind": "signal"}')], lambda: None,
            lambda event, why: note_failure(world.store, event, why, time.time()),
        )  # fmt: skip
    [failure] = world.store.events.after(event.id)

    assert output.read_text() == '{"kind": "signal"}'
    assert failure.kind == "failure"
    assert failure.facts["reason"] == "on_signal: the command exited with 3"
    assert world.store.events.take_signals() == []


def test_scan_once_runs_on_signal_once_without_arguments(world, talk):
    """`scan --once` passes each signal once, without the arguments of the call."""
    repeat_call(talk, 5).assistant("I give up.")
    world.put("s.jsonl", talk.bytes())
    output = world.base / "said"
    program = program_for(world)
    config = world.base / "config.toml"
    command = json.dumps(["sh", "-c", f"cat >> {output}"])
    config.write_text(f"{config.read_text()}[signals]\non_signal = {command}\n")

    assert [program("scan", "--once").returncode for _ in range(2)] == [0, 0]
    document = json.loads(output.read_text())
    assert (document["kind"], document["facts"]["calls"]) == ("signal", 5)
    assert "make test" not in output.read_text()
