"""The real Gemini CLI with pruned sessions: resumes, cuts, scans beside it, the way back."""

import itertools
import json
import os
import signal
import time

import pytest

from brainsurgeon.agents.gemini.format import UNMARKED_QUIET
from proofs.live.gemini import ESCAPE, RETURN, UP, GeminiCli, GeminiModel, printing
from proofs.live.program import TAKEN, configure, ours, scanning, wait, whole_request

pytestmark = pytest.mark.long(proves=("formats", "agents", "planning", "rewrite", "files"))

LEAN = {"when": "always", "keep_recent": 1, "keep_after_restore": 0}


@pytest.fixture
def gemini(tmp_path):
    """Return a Gemini CLI whose root is configured."""
    with GeminiModel() as model:
        driven = GeminiCli(tmp_path, model)
        configure(tmp_path, driven.root, **LEAN)
        yield driven


@pytest.fixture
def begun(gemini):
    """Return it with a session of three turns, each a process of its own."""
    for number in range(3):
        gemini.turn(printing(f"turn {number}"), printing(f"more of turn {number}"))
    return gemini


def size(request):
    """Return the characters of the conversation."""
    return len(json.dumps(request["contents"]))


def taken(request):
    return TAKEN.findall(json.dumps(request["contents"]))


def check(request):
    """Check what a provider demands: roles alternate, and each call is answered.

    Gemini CLI itself sends a result again after each resume.
    """
    contents = request["contents"]
    roles = [one["role"] for one in contents]
    assert all(one != other for one, other in itertools.pairwise(roles))
    parts = [part for one in contents for part in one["parts"]]
    called = [part["functionCall"]["id"] for part in parts if "functionCall" in part]
    answered = {part["functionResponse"]["id"] for part in parts if "functionResponse" in part}
    assert set(called) == answered
    return len(called)


def later(gemini, *words):
    """Run brainsurgeon as if the sessions had been unchanged for long enough."""
    for file in gemini.root.glob("*/chats/*.jsonl"):
        os.utime(file, (time.time() - UNMARKED_QUIET,) * 2)
    return ours(gemini, *words)


def reasons(gemini):
    return [one["reason"] for one in json.loads(ours(gemini, "scan", "--json"))["sessions"]]


def test_pruned_session_is_resumed_twice_and_comes_back(begun, tmp_path):
    """Requests have the same calls and a fraction of the size; a restore brings every byte back."""
    path = begun.path
    before = path.read_bytes()
    whole = whole_request(begun, begun.home, tmp_path)
    later(begun, "scan", "--dry-run")
    seen = path.stat()
    ours(begun, "scan")
    pruned = path.read_bytes()
    ours(begun, "restore", "--all", "--pristine")
    assert path.read_bytes() == before
    assert path.stat().st_mtime_ns == seen.st_mtime_ns
    ours(begun, "pause", "--end")
    ours(begun, "scan")
    assert path.read_bytes() == pruned
    assert len(pruned) < len(before) / 3

    first = begun.turn(printing("the next", 2))[0]
    second = begun.turn(printing("the last", 2))[0]
    for request in (first, second):
        assert len(taken(request)) >= 6
        assert size(request) < size(whole) / 2
    assert check(second) - 1 == check(first) == check(whole) == 6
    assert path.read_bytes().startswith(pruned)

    later(begun, "restore", "--all", "--pristine")
    assert path.read_bytes().startswith(before)
    assert not TAKEN.search(path.read_text())
    request = begun.turn()[0]
    assert not taken(request)
    assert check(request) == 8


def test_rewound_and_copied_sessions_are_valid(begun):
    """A resume after `/rewind`, and a new session from the file of a pruned one, are so.

    Both send placeholders, and without the cut turn.
    """
    path = begun.path
    before = path.read_bytes()
    later(begun, "scan")
    length = len(path.read_bytes())
    with begun.shown("--resume", "latest") as (shown, types):
        wait("the resume", lambda: len(path.read_bytes()) > length)
        time.sleep(3)
        begun.model.next_turn([], "to be cut.")
        types("go on")
        wait("the answer", lambda: b'"to be cut."' in path.read_bytes())
        time.sleep(1)
        types("/rewind")
        wait("the list of prompts", lambda: b"Stay at current position" in shown)
        types(UP)
        types(RETURN)
        wait("the question", lambda: b"Rewind conversation" in shown)
        types(RETURN)
        wait("the cut", lambda: b'{"$rewindTo":' in path.read_bytes()[length:])
    request = begun.turn()[0]
    assert check(request) == 6
    assert taken(request)
    assert "to be cut." not in json.dumps(request)

    copied = begun.turn(words=["--session-file", str(path)])[0]
    assert check(copied) == 6
    assert taken(copied)
    later(begun, "restore", "--all", "--pristine")
    assert path.read_bytes().startswith(before)
    for file in begun.root.glob("*/chats/session-*.jsonl"):
        assert not TAKEN.search(file.read_text())


def test_a_killed_turn_waits_and_is_pruned_after_the_next(begun):
    """Nothing in the file shows its call, and its answer has a text: so it waits for a while."""
    path = begun.path
    begun.model.next_turn([("run_shell_command", {"command": "sleep 60"})], "done.")
    process = begun.start("--resume", "latest")
    wait("the call", lambda: len(begun.model.requests) == 1)
    wait("its line", lambda: json.loads(path.read_bytes().splitlines()[-2]).get("type") == "gemini")
    before = path.read_bytes()
    ours(begun, "scan", "--session", path.stem)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    assert any(why and why.endswith("must be unchanged for 300 s") for why in reasons(begun))
    assert path.read_bytes() == before

    whole = begun.turn()[0]
    later(begun, "scan")
    request = begun.turn()[0]
    assert taken(request)
    assert size(request) < size(whole) / 2
    assert check(request) == 6


def test_a_long_session_of_an_editor_shrinks_to_a_fraction(gemini, tmp_path):
    """Over ACP, each call repeats all before; an open process makes a scan wait."""
    with gemini.serving() as turn:
        for number in range(20):
            turn(printing(f"turn {number}", 150), printing(f"more of turn {number}", 150))
        later(gemini, "scan", "--dry-run")
        assert any(why and why.startswith("an open Gemini CLI") for why in reasons(gemini))
    path = gemini.path
    before = path.read_bytes()
    whole = whole_request(gemini, gemini.home, tmp_path)
    later(gemini, "scan")
    pruned = path.read_bytes()
    assert len(before) > 5_000_000
    assert len(pruned) < len(before) / 20
    request = gemini.turn()[0]
    assert check(request) == check(whole) == 40
    assert size(request) < size(whole) / 3
    later(gemini, "restore", "--all", "--pristine")
    assert path.read_bytes().startswith(before)


def test_scans_beside_fourteen_turns_lose_no_line(gemini, tmp_path):
    """Although they wait for nothing, each turn ends well, and its lines are all there."""
    configure(tmp_path, gemini.root, **LEAN, abandoned_after=0)
    with gemini.serving() as turn:
        turn(printing("first"))
        with scanning(gemini, tmp_path):
            for number in range(14):
                turn(printing(f"beside {number}"), printing(f"more beside {number}"))
                time.sleep(0.4)

    ours(gemini, "restore", "--all", "--pristine")
    lines = [json.loads(line) for line in gemini.path.read_bytes().splitlines()]
    assert not TAKEN.search(json.dumps(lines))
    results = [
        part["functionResponse"]["response"]["output"] for line in lines
        if line.get("type") == "user" for part in line["content"] if "functionResponse" in part
    ]  # fmt: skip
    for number in range(14):
        assert sum(f"a line of beside {number}," in text for text in results) == 1
        assert sum(f"a line of more beside {number}," in text for text in results) == 1
    assert check(gemini.turn()[0]) == 29


def test_an_interruption_and_a_compression_write_anew(begun):
    """A process beside which a session was pruned writes it back; both ends are restored."""
    path = begun.path
    before = path.read_bytes()
    with begun.shown("--resume", "latest") as (_, types):
        wait("the resume", lambda: len(path.read_bytes()) > len(before))
        time.sleep(3)
        begun.model.next_turn([], "shown.")
        types("go on")
        wait("the answer", lambda: b'"shown."' in path.read_bytes())
        open_before = path.read_bytes()
        later(begun, "scan", "--session", path.stem)
        pruned = path.read_bytes()
        assert TAKEN.search(pruned.decode())
        begun.model.waiting.clear()
        requests = begun.model.next_turn([], "late.")
        types("wait")
        wait("the request", lambda: requests)
        assert not taken(requests[0])
        types(ESCAPE)
        wait("its end", lambda: b'{"$set":{"messages"' in path.read_bytes()[len(pruned) :])
        begun.model.waiting.set()
        begun.model.next_turn([], "after it.")
        time.sleep(1)
        types("again")  # behind what was interrupted, which stands in the field again
        wait("the answer", lambda: b'"after it."' in path.read_bytes())
        length = len(path.read_bytes())
        types("/compress")
        wait("the summary", lambda: b"a summary of a few" in path.read_bytes()[length:])
    assert path.read_bytes().startswith(pruned)
    later(begun, "scan")
    request = begun.turn()[0]
    assert check(request) <= 6
    assert "a summary of a few words" in json.dumps(request)
    later(begun, "restore", "--all", "--pristine")
    assert path.read_bytes().startswith(open_before)
    assert not TAKEN.search(path.read_text())


def test_the_tool_is_registered_shows_a_value_and_is_removed(begun):
    """`init` asks the real program, which calls the tool, and `--undo` removes it."""
    before = json.loads(begun.settings.read_text())
    later(begun, "scan")
    ours(begun, "init", "--yes", "--mcp", "gemini")
    assert (begun.home / ".gemini/skills/brainsurgeon/SKILL.md").exists()
    entry = TAKEN.search(begun.path.read_text())[0]
    call = "mcp_brainsurgeon_purge_control", {"action": "show", "entry": entry}
    request = begun.turn(call)[-1]

    assert "which says nothing" in json.dumps(request["contents"][-1])
    ours(begun, "init", "--undo", "--yes")
    after = json.loads(begun.settings.read_text())
    assert after == {**before, "mcpServers": {}}
    assert not (begun.home / ".gemini/skills/brainsurgeon").exists()
