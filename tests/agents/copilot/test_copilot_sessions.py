"""Scans and restores of Copilot CLI's sessions: what is taken, who waits, what comes back."""

import fcntl
import json
import re
import time

import pytest

from brainsurgeon.agents import calling_session
from brainsurgeon.agents.copilot import presence
from brainsurgeon.lookup.scope import Scope
from brainsurgeon.lookup.sessions import session_named
from brainsurgeon.mcp_server.answering import answer
from brainsurgeon.operations.sessions import sessions
from building.world import SAMPLES, World, append

SESSION = "0e1a23df-7041-43eb-9db5-bf4089247155"
TAKEN = re.compile(rb"\[\[extracted-[^]]*\]\]")
LEAN = {"rules": [{"kind": "tool_result", "keep_recent": 0, "min_value_length": 300}]}
NAMES = ("turns-1.0.102", "compacted-1.0.102")
samples = pytest.mark.parametrize("name", NAMES)


class CopilotWorld(World):
    """A home of Copilot CLI with one session."""

    def __init__(self, base):
        super().__init__(base)
        self.directory = self.root / "session-state" / SESSION
        self.directory.mkdir(parents=True)

    def sample(self, name):
        return self.put("events.jsonl", (SAMPLES / "copilot" / f"{name}.jsonl").read_bytes())


@pytest.fixture
def copilot(tmp_path):
    world = CopilotWorld(tmp_path)
    yield world
    world.close()


@samples
def test_values_leave_and_every_byte_comes_back(copilot, name):
    """Each line keeps its keys; a restore without our fields is the file as it was."""
    path = copilot.sample(name)
    before, seen = path.read_bytes(), path.stat()
    result = copilot.scan(**LEAN)
    after = path.read_bytes()

    assert result.sessions[0].outcome == "changed"
    assert len(after) < 0.9 * len(before)
    assert path.stat().st_mtime_ns == seen.st_mtime_ns
    kept = [json.loads(line) for line in after.splitlines()]
    for old, new in zip(map(json.loads, before.splitlines()), kept, strict=True):
        assert (old.keys(), old["data"].keys()) == (new.keys(), new["data"].keys())
    assert copilot.scan(**LEAN).sessions == []

    copilot.restore_all(pristine=True)
    assert path.read_bytes() == before


@samples
def test_prompts_answers_and_arguments_stay(copilot, name):
    """Only results, thinking and the copies of a compaction have placeholders."""
    path = copilot.sample(name)
    before = [json.loads(line)["data"] for line in path.read_bytes().splitlines()]
    copilot.scan(**LEAN)
    after = [json.loads(line)["data"] for line in path.read_bytes().splitlines()]
    changed = {
        key for old, new in zip(before, after, strict=True) for key in old if old[key] != new[key]
    }

    copies = {"requestMessages", "messages"} if name == "compacted-1.0.102" else set()
    assert changed == {"result", "reasoningText", *copies}


def test_later_turns_stay_behind_what_comes_back(copilot):
    """What Copilot CLI appends to a pruned session is kept, and the old bytes return before it."""
    path = copilot.sample("turns-1.0.102")
    before = path.read_bytes()
    copilot.scan(**LEAN)
    later = [
        {"type": kind, "id": f"{number}" * 36, "data": {"content": "go on"}}
        for number, kind in enumerate(("user.message", "assistant.message", "assistant.turn_end"))
    ]
    append(path, later)
    copilot.restore_all(pristine=True)

    assert path.read_bytes().startswith(before)
    assert [*map(json.loads, path.read_bytes()[len(before) :].splitlines())] == later


def test_unreadable_lines_are_copied_as_they_are(copilot):
    """A torn line, null bytes and a line in half stay where they are."""
    path = copilot.sample("turns-1.0.102")
    odd = b'{"type":"assistant.message","data":{"content":"torn\n' + b"\0" * 64 + b"\n"
    first, _, rest = path.read_bytes().partition(b"\n")
    path = copilot.put("events.jsonl", first + b"\n" + odd + rest)
    copilot.scan(**LEAN)

    assert TAKEN.search(path.read_bytes())
    assert path.read_bytes().startswith(first + b"\n" + odd)


def test_an_open_session_waits_and_can_be_restored(copilot):
    """A scan leaves it alone unless the user names it; a restore does not wait."""
    path = copilot.sample("turns-1.0.102")
    path = copilot.put("events.jsonl", path.read_bytes(), age=600)
    before = path.read_bytes()
    with open(copilot.directory / "inuse.7.hold", "x") as hold:
        fcntl.flock(hold, fcntl.LOCK_EX)
        [waiting] = copilot.scan(**LEAN).sessions
        assert waiting.reason.startswith("an open Copilot CLI has it in memory")
        assert path.read_bytes() == before
        copilot.scan(only=[str(path)], named=True, **LEAN)
        assert TAKEN.search(path.read_bytes())
        copilot.restore_all(pristine=True)
    assert path.read_bytes() == before


def test_a_session_waits_if_the_locks_cannot_be_read(copilot, monkeypatch):
    """Then only a session without such a file is known to be in no process."""
    path = copilot.put("events.jsonl", copilot.sample("turns-1.0.102").read_bytes(), age=600)
    (copilot.directory / "inuse.7.hold").touch()
    monkeypatch.setattr(presence, "_LOCKS", str(copilot.base / "missing"))
    [waiting] = copilot.scan(**LEAN).sessions
    why = f"{copilot.base}/missing: No such file or directory"
    assert waiting.reason.startswith(f"a Copilot CLI may have it in memory: {why}; waits, at most")

    (copilot.directory / "inuse.7.hold").unlink()
    copilot.scan(**LEAN)
    assert TAKEN.search(path.read_bytes())


def test_session_has_the_name_of_its_directory(copilot):
    """All files have the same name, so the title has the id; files beside it are no sessions."""
    path = copilot.sample("turns-1.0.102")
    for place in ("files", "research"):
        (copilot.directory / place).mkdir()
        (copilot.directory / place / "events.jsonl").write_bytes(path.read_bytes())
    [listed] = sessions(copilot.settings(), copilot.store, time.time())

    assert listed.session == f"copilot:{SESSION}/events"
    named = session_named(copilot.settings(), copilot.store, SESSION)
    assert named.title == listed.session


def test_server_knows_the_session_that_started_it(copilot, monkeypatch):
    """Of two sessions, the one in the variable of Copilot CLI makes the call."""
    path = copilot.sample("turns-1.0.102")
    other = copilot.directory.with_name(SESSION.replace("0e1a", "0e1b"))
    other.mkdir()
    (other / "events.jsonl").write_bytes(path.read_bytes().replace(b"0e1a23df", b"0e1b23df"))
    copilot.scan(**LEAN)
    monkeypatch.setenv("COPILOT_HOME", str(copilot.root))
    assert calling_session() is None
    for chosen in (path.parent, other):
        monkeypatch.setenv("COPILOT_AGENT_SESSION_ID", chosen.name)
        text, _ = answer(
            copilot.settings(**LEAN), Scope(), {"action": "get_context"}, copilot.clock
        )
        assert json.loads(text)["session"] == f"copilot:{chosen.name}/events"
        assert calling_session() == f"{chosen}/events.jsonl"
    monkeypatch.setenv("COPILOT_AGENT_SESSION_ID", "../../elsewhere")
    assert calling_session() is None
