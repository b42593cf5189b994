"""The live scenario: the real OpenClaw with its database, and our daemon beside it."""

import json
import signal
import statistics
import subprocess
import sys
import time
import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest

from building.processes import WORKERS
from proofs.agent_packages import OPENCLAW_FIRST, OPENCLAW_LATEST
from proofs.live.databases import Databases, Planned, Rows, placeholders, wait
from proofs.live.gateway import printing, running

pytestmark = pytest.mark.long(
    proves=("hosts", "formats", "sessions", "rewrite", "operations", "mcp_server", "daemon", "cli")
)

# Turns of each of the two sessions that are at work at once.
TURNS = 10
# Turns before anything else is tried; turns with and without the daemon before it changes.
FEW, BLOCK = 3, 4


class Life:
    """One OpenClaw, our daemon beside it, and what became of both."""

    def __init__(self, base, start, model, release):
        self.base, self._start = base, start
        self.claw = Databases(base, start, model, release)
        self.daemon = None
        self.one, self.other = str(uuid.uuid4()), str(uuid.uuid4())
        (base / "config.toml").write_text(
            f'state_dir = "{base}/state"\nquiet_seconds = 1\nkeep_recent = 0\nmin_reclaim = 0\n'
            f"scan_interval_seconds = 1\nkeep_after_restore_seconds = 5\n"
            f'[[roots]]\npath = "{self.claw.state}/agents"\n'
        )

    def prune(self):
        words = [sys.executable, str(WORKERS / "timed.py"), str(self.base / "held.jsonl"), "run"]
        self.daemon = self._start(words, self.claw.environment, "daemon.log")

    def pause(self):
        self.daemon.terminate()
        assert self.daemon.wait(30) == 0

    def report(self, release):
        lines = (self.base / "held.jsonl").read_text().splitlines()
        told = [json.loads(line) for line in lines]
        held = sorted(1000 * one["held"] for one in told)
        print(
            f"{release}: {self.claw.turns} turns of {min(self.claw.seconds):.1f} to"
            f" {max(self.claw.seconds):.1f} s, 0 failed; {len(told)} changes of"
            f" {sum(one['rows'] for one in told)} rows, which waited at most"
            f" {1000 * max(one['waited'] for one in told):.1f} ms for the lock and held it for"
            f" {statistics.median(held):.1f} ms (median), {held[-1]:.1f} ms (worst)"
        )

    def undo(self):
        """Put everything back; what the agent archived stays, and is named (exit code 1)."""
        done = subprocess.run(
            [sys.executable, "-m", "brainsurgeon", "restore", "--all", "--pristine"],
            env=self.claw.environment, capture_output=True, timeout=120, check=False,
        )  # fmt: skip
        told = done.stdout.decode()
        archived = "this kind of file is never changed" in told
        assert done.returncode == int(archived), (told, done.stderr.decode())
        assert ": failed" not in told


@pytest.fixture(params=[OPENCLAW_LATEST, OPENCLAW_FIRST], ids=lambda one: one[0])
def life(request, tmp_path, start):
    """Give the gateway of each release with a session of one turn, and somebody who watches it.

    Afterwards everything is restored: every event stands as it was written, both SQLite and
    OpenClaw's own doctor find nothing wrong, and the next turn is shown no placeholder.
    """
    with Planned() as model:
        life = Life(tmp_path, start, model, request.param)
        claw = life.claw
        claw.open()
        claw.ask(life.one, [printing("the first of all")])
        with Rows(claw) as witness:
            life.prune()
            yield life
            wait("all is pruned", lambda: not _whole(claw, life.one))
            life.pause()
            witness.look()
            assert claw.sound() == []
            life.undo()
        assert witness.differing() == []
        assert claw.sound() == []
        assert placeholders(claw.ask(life.one, [printing("the turn after all")])[0]) == set()
        claw.end()
        found = json.loads(claw.run("doctor", "--session-sqlite", "inspect", "--json"))
        assert [issue for one in found["targets"] for issue in one["issues"]] == []
        assert found["targets"]
        life.report(request.param[0])


def test_two_sessions_at_once(life):
    """No turn of two sessions fails while both are pruned and placeholders are shown."""
    _two_at_once(life.claw, life.one, life.other)
    _latency(life, life.one)


def test_what_is_asked_for_in_a_turn_comes_back(life):
    """The shell and our server give values in the middle of a turn, and both are restored."""
    _several(life.claw, life.one)
    _restored_in_a_turn(life.claw, life.one)


def test_gateways_come_and_go(life):
    """A restart, work without a gateway, and one that is killed in the middle change nothing."""
    _several(life.claw, life.one)
    _restarted(life, life.one, life.other)
    _killed(life.claw, life.one)


def test_sessions_are_compacted_forked_reset_and_deleted(life):
    """Whatever the agent does to a session that is pruned, it goes on."""
    for session in (life.one, life.other):
        _several(life.claw, session)
    _other_things(life.claw, life.one, life.other)


def _several(claw, session):
    """Do some turns, and wait until they are pruned."""
    for number in range(FEW):
        claw.ask(session, [printing(f"few {number}"), printing(f"few {number}, too")])
    wait("they are pruned", lambda: len(claw.placeholders(session)) > FEW)


def _latency(life, session):
    """Print how long a turn takes with and without the daemon, which takes turns, too."""
    took = {True: [], False: []}
    life.pause()
    for block in range(4):
        on = bool(block % 2)
        for number in range(BLOCK):
            begun = len(life.claw.seconds)
            life.claw.ask(session, [printing(f"{block} {number}", lines=150)])
            took[on] += life.claw.seconds[begun:]
        if not on:
            life.prune()
        elif block < 3:
            life.pause()
    without, beside = (sorted(took[on]) for on in (False, True))
    print(
        f"a turn takes {statistics.median(without):.2f} s ({without[0]:.2f} to {without[-1]:.2f})"
        f" without the daemon, {statistics.median(beside):.2f} s ({beside[0]:.2f} to"
        f" {beside[-1]:.2f}) beside it"
    )


def _two_at_once(claw, one, other):
    """Let two sessions work at once, while the daemon goes over both."""

    def work(session):
        asked = []
        # On a busy machine the daemon may find no idle moment for many turns.
        while len(asked) < TURNS or (not placeholders(asked[-1][0]) and len(asked) < 5 * TURNS):
            n = len(asked)
            asked.append(
                claw.ask(session, [printing(f"{session} {n}"), printing(f"{n}, too")],
                         [printing(f"{session} {n} more", lines=200)])
            )  # fmt: skip
        return asked

    with ThreadPoolExecutor(2) as both:
        done = list(both.map(work, (one, other)))
    for requests in done:
        shown = [placeholders(each[0]) for each in requests]
        assert len(shown[-1]) > 0, [len(each) for each in shown]
        print(f"placeholders shown at the beginning of each turn: {[len(each) for each in shown]}")


def _restored_in_a_turn(claw, session):
    """Let the model ask for values by its shell and by our server; both come back."""
    by_exec, by_tool = claw.placeholders(session)[:2]
    requests = claw.ask(session, [running(f"brainsurgeon restore {by_exec}")])
    assert "which says nothing" in _answer(requests[1])
    wait("it is back", lambda: by_exec not in claw.placeholders(session))
    wait("its call is shortened", lambda: f"Restored {by_exec}." in _all(claw, session))
    asked = _purging(requests[-1], {"action": "restore", "entry": by_tool})
    requests = claw.ask(session, [asked], [printing("beside it")])
    assert "which says nothing" in _answer(requests[1])
    wait("it is back", lambda: by_tool not in claw.placeholders(session))
    wait("its call is shortened", lambda: f"Restored {by_tool}." in _all(claw, session))
    wait("both are extracted again", lambda: {by_exec, by_tool} <= set(claw.placeholders(session)))


def _purging(request, arguments):
    """Give a call of our tool: by its name, or through the one that calls what is not listed."""
    name = "brainsurgeon__purge_control"
    if name in {tool["function"]["name"] for tool in request["tools"]}:
        return name, arguments
    return "tool_call", {"id": name, "args": arguments}


def _restarted(life, one, other):
    """End the gateway, work without it, and start it anew."""
    claw = life.claw
    claw.end()
    for number in range(3):
        claw.ask(other, [printing(f"at home {number}", lines=150)], local=True)
        wait("it is pruned", lambda least=number: len(claw.placeholders(other)) > least)
    claw.open()
    assert len(placeholders(claw.ask(one, [printing("after a restart")])[0])) > FEW
    claw.ask(other, [printing("by the gateway now")])


def _killed(claw, session):
    """Kill the gateway in the middle of a turn; the next one ends that turn."""
    said, command = "in the middle", "sleep 3; yes 'in the middle of it' | head -100"
    tag, asking = claw.begin(session, [running(command)], [printing(said)])
    wait("the turn is under way", lambda: claw.model.asked[tag])
    claw.end(signal.SIGKILL)
    asking.kill()
    asking.communicate()
    claw.open()
    wait("the turn has ended", lambda: claw.idle(session))
    time.sleep(2)
    claw.ask(session, [printing("after the kill")])


def _other_things(claw, one, other):
    done = claw.call("sessions.compact", key=claw.key(other))
    print("compact", json.dumps(done)[:200])
    claw.ask(other, [printing("after the compaction")])
    users = [json.loads(text) for text in claw.texts(one)]
    users = [each["id"] for each in users if each.get("message", {}).get("role") == "user"]
    done = claw.call("sessions.fork", sessionKey=claw.key(one), entryId=users[FEW])
    print("fork", json.dumps(done)[:200])
    claw.call("sessions.reset", key=claw.key(other))
    claw.ask(other, [printing("after the reset")])
    _deleted(claw, other)


def _deleted(claw, session):
    """Delete a session, again where a cut came in between: OpenClaw refuses it then, as a whole."""
    gone = {"key": claw.key(session), "deleteTranscript": True}
    try:
        claw.call("sessions.delete", **gone)
    except AssertionError as refused:
        if "SQLite session state changed" not in str(refused):
            raise
        claw.call("sessions.delete", **gone)


def _answer(request):
    return json.dumps([one for one in request["messages"] if one["role"] == "tool"][-1]["content"])


def _whole(claw, session):
    """Give the large tool results of a session that stand whole, but for those of our own tool."""
    large = []
    for text in claw.texts(session):
        entry = json.loads(text)
        result = entry.get("message", {}).get("role") == "toolResult"
        if result and len(text) > 3000 and "_redacted" not in entry:
            large.append(entry["id"])
    return large


def _all(claw, session):
    return b"\n".join(claw.texts(session)).decode()
