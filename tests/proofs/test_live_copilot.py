"""The real Copilot CLI with pruned sessions: turns, compactions, scans beside it, the way back."""

import itertools
import json
import signal

import pytest

from proofs.live.binding import Binding
from proofs.live.copilot import ClaudeCopilot, Copilot, CopilotModel, printing
from proofs.live.messages import Messages
from proofs.live.program import TAKEN, configure, ours, scanning, wait, whole_request

pytestmark = pytest.mark.long(proves=("formats", "agents", "planning", "rewrite", "files"))


@pytest.fixture
def copilot(tmp_path):
    """Return a Copilot CLI with a session of four turns, each a process of its own."""
    with CopilotModel() as model:
        driven = Copilot(tmp_path, model)
        for number in range(4):
            driven.turn(printing(f"turn {number}"), printing(f"more of turn {number}"))
        configure(tmp_path, driven.sessions, when="always", keep_recent=1)
        yield driven


def sizes(request):
    """Return the characters of all messages, without the prompt of the system."""
    return len(json.dumps([one for one in request["messages"] if one["role"] != "system"]))


def taken(request):
    return TAKEN.findall(json.dumps(request["messages"]))


def check(request, *, summarised=False):
    """Check what a provider demands: each call is answered next, and roles take turns.

    Copilot CLI itself sends a summary as a second message of the user.
    """
    pending, roles = set(), []
    for message in request["messages"]:
        if message["role"] == "tool":
            pending.remove(message["tool_call_id"])
            continue
        assert not pending
        pending = {call["id"] for call in message.get("tool_calls") or ()}
        roles.append(message["role"])
    assert roles[:2] == ["system", "user"]
    doubled = sum(one == other == "user" for one, other in itertools.pairwise(roles))
    assert doubled == summarised
    return roles


def reason(copilot):
    """Return why a scan waits."""
    [session] = json.loads(ours(copilot, "scan", "--json"))["sessions"]
    return session["reason"]


def test_pruned_session_is_resumed_twice_and_comes_back(copilot, tmp_path):
    """Requests have the same messages and half the size; after a restore, every byte is back."""
    before, seen = copilot.path.read_bytes(), copilot.path.stat()
    whole = whole_request(copilot, copilot.config, tmp_path)
    ours(copilot, "scan")
    pruned = copilot.path.read_bytes()
    ours(copilot, "restore", "--all", "--pristine")
    assert copilot.path.read_bytes() == before
    assert copilot.path.stat().st_mtime_ns == seen.st_mtime_ns
    configure(tmp_path, copilot.sessions, when="always", keep_recent=1, keep_after_restore=0)
    ours(copilot, "pause", "--end")
    ours(copilot, "scan")
    assert copilot.path.read_bytes() == pruned

    first = copilot.turn(printing("the next", 2))[0]
    second = copilot.turn(printing("the last", 2))[0]
    for request in (first, second):
        assert len(taken(request)) >= 7
        assert sizes(request) < sizes(whole) / 2
        assert check(request)[: len(check(whole)) - 1] == check(whole)[:-1]
    assert copilot.path.read_bytes().startswith(pruned)

    ours(copilot, "restore", "--all", "--pristine")
    assert copilot.path.read_bytes().startswith(before)
    request = copilot.turn()[0]
    assert not taken(request)
    assert check(request)


def test_a_compaction_reads_placeholders_and_keeps_its_own_prompt(copilot):
    """Its request is small and has the whole prompt; its copies leave, and all comes back."""
    before = copilot.path.read_bytes()
    ours(copilot, "scan")
    pruned = copilot.path.read_bytes()
    with copilot.serving() as turn:
        turn(prompt="/compact")
    [request] = copilot.model.compactions
    assert copilot.path.read_bytes().startswith(pruned)
    assert len(taken(request)) >= 7
    assert not TAKEN.search(request["messages"][0]["content"])
    assert len(request["messages"][0]["content"]) > 10_000
    compacted = len(copilot.path.read_bytes())

    ours(copilot, "scan")
    assert len(copilot.path.read_bytes()) < compacted - 20_000
    assert TAKEN.fullmatch(copilot.events("model.model_call_success")[-1]["requestMessages"])
    assert taken(copilot.events("model.messages_snapshot")[-1])
    request = copilot.turn()[0]
    assert "a few words" in json.dumps(request)
    assert len(roles := check(request, summarised=True)) < 8
    ours(copilot, "restore", "--all", "--pristine")
    assert copilot.path.read_bytes().startswith(before)
    assert check(copilot.turn()[0], summarised=True)[: len(roles)] == roles


def test_a_killed_turn_waits_and_is_pruned_after_the_next(copilot):
    """Its turn stays open, its lock is gone, and the next process answers its call."""
    command = "bash", {"command": "sleep 60", "description": "as asked"}
    process, _ = copilot.begin(command)
    wait("the call", lambda: len(copilot.events("tool.execution_start")) == 9)
    before = copilot.path.read_bytes()
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert [*copilot.path.parent.glob("inuse.*.hold")]
    assert reason(copilot).startswith("the last turn is open")
    assert copilot.path.read_bytes() == before

    whole = copilot.turn()[0]
    ours(copilot, "scan")
    request = copilot.turn()[0]
    assert len(taken(request)) >= 7
    assert sizes(request) < sizes(whole) / 2
    assert check(request)[:-2] == check(whole)


def test_an_open_session_waits_also_beside_a_second_process(copilot):
    """A process that has it sends it whole; what a second one appended stays."""
    with copilot.serving() as turn:
        turn(printing("first beside", 2))
        before = copilot.path.read_bytes()
        assert reason(copilot).startswith("an open Copilot CLI has it in memory")
        assert copilot.path.read_bytes() == before
        ours(copilot, "scan", "--session", copilot.session)
        pruned = copilot.path.read_bytes()
        assert TAKEN.search(pruned.decode())
        assert not taken(turn(printing("beside", 2))[0])
        assert len(taken(copilot.turn(printing("of the second", 2))[0])) >= 8
        assert [one["alreadyInUse"] for one in copilot.events("session.resume")][-1] is True
        turn(printing("again beside", 2))
        assert copilot.path.read_bytes().startswith(pruned)
    ours(copilot, "scan")
    request = copilot.turn()[0]
    assert check(request)
    for tag in ("beside", "of the second", "again beside"):
        assert json.dumps(request).count(f"a line of {tag}, ") >= 2
    ours(copilot, "restore", "--all", "--pristine")
    assert copilot.path.read_bytes().startswith(before)


def test_scans_beside_twelve_turns_lose_no_line(copilot, tmp_path):
    """Although they wait for nothing, each turn ends well, and its lines are all there."""
    configure(tmp_path, copilot.sessions, when="always", keep_recent=1, abandoned_after=0)
    with scanning(copilot, tmp_path), copilot.serving() as turn:
        for number in range(12):
            turn(printing(f"beside {number}"), printing(f"more beside {number}"))

    ours(copilot, "restore", "--all", "--pristine")
    lines = [json.loads(line) for line in copilot.path.read_bytes().splitlines()]
    names = [line["id"] for line in lines]
    assert len({*names}) == len(names)
    assert {line["parentId"] for line in lines} <= {None, *names}
    results = [event["result"]["content"] for event in copilot.events("tool.execution_complete")]
    assert len(results) == len(copilot.events("tool.execution_start")) == 8 + 24
    for number in range(12):
        assert sum(f"a line of beside {number}," in text for text in results) == 1
        assert sum(f"a line of more beside {number}," in text for text in results) == 1
    assert check(copilot.turn()[0])


def test_the_tool_is_registered_finds_its_session_and_is_removed(copilot):
    """`init` asks the real program, the tool shows a value at once, and `--undo` removes it."""
    configuration = copilot.config / "mcp-config.json"
    ours(copilot, "scan")
    ours(copilot, "init", "--yes", "--mcp", "copilot")
    assert (copilot.config / "skills/brainsurgeon/SKILL.md").exists()
    entry = TAKEN.search(copilot.path.read_text())[0]
    calls = [("brainsurgeon-purge_control", words) for words in (
        {"action": "show", "entry": entry}, {"action": "get_context"})]  # fmt: skip
    request = copilot.turn(*calls)[-1]
    shown, listed = [one["content"] for one in request["messages"] if one["role"] == "tool"][-2:]

    assert "which says nothing" in shown
    assert f"copilot:{copilot.session}/events" in listed
    ours(copilot, "init", "--undo", "--yes")
    assert json.loads(configuration.read_text()) == {"mcpServers": {}}
    assert not (copilot.config / "skills/brainsurgeon").exists()


def thinking(request):
    return [block["signature"] for message in request["messages"] for block in message["content"]
            if isinstance(block, dict) and block["type"] == "thinking"]  # fmt: skip


@pytest.mark.parametrize(
    ("model", "name", "pruned"),
    [(Messages, "claude-sonnet-4-5", True), (Binding, "claude-opus-5-1", False)],
)
def test_signed_thinking_stays_and_is_accepted(tmp_path, model, name, pruned):
    """A resumed session sends it; if it covers what is before it, nothing there is extracted."""
    with model() as claude:
        driven = ClaudeCopilot(tmp_path, claude, name)
        for number in range(4):
            driven.turn(printing(f"turn {number}"), printing(f"more of turn {number}"))
        configure(tmp_path, driven.sessions, when="always", keep_recent=1)
        before = driven.path.read_bytes()
        whole = whole_request(driven, driven.config, tmp_path)
        signed = [line["reasoningText"] for line in driven.events("assistant.message")]
        ours(driven, "scan")
        request = driven.turn()[0]

        assert len(thinking(request)) == len(thinking(whole)) >= 8
        assert bool(taken(request)) == pruned
        assert (sizes(request) < sizes(whole) / 2) == pruned
        assert driven.path.read_bytes().startswith(before) != pruned
        now = [line["reasoningText"] for line in driven.events("assistant.message")]
        assert now[: len(signed)] == signed
        assert not claude.refused
