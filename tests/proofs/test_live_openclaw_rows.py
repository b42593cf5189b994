"""Live: the real OpenClaw with its database, beside the daemon."""

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
from proofs.live.program import configure

pytestmark = pytest.mark.long(
    proves=("agents", "formats", "sessions", "rewrite", "operations", "mcp_server", "daemon", "cli")
)

# Turns of each of the two sessions that are at work at once.
TURNS = 10
# Turns before anything else is tried; turns with and without the daemon before it changes.
FEW, BLOCK = 3, 4


class Life:
    """One OpenClaw with two sessions, the daemon beside it, and its configuration."""

    def __init__(self, base, start, model, release):
        self.base, self._start = base, start
        self.claw = Databases(base, start, model, release)
        self.daemon = None
        self.session, self.other = str(uuid.uuid4()), str(uuid.uuid4())
        configure(
            base, self.claw.state / "agents", quiet_seconds=1, keep_recent=0,
            scan_interval_seconds=1, keep_after_restore_seconds=5,
        )  # fmt: skip

    def prune(self):
        words = [
            sys.executable,
            str(WORKERS / "timed_rows.py"),
            str(self.base / "held.jsonl"),
            "run",
        ]
        self.daemon = self._start(words, self.claw.environment, "daemon.log")

    def pause(self):
        self.daemon.terminate()
        assert self.daemon.wait(30) == 0

    def report(self, release):
        lines = (self.base / "held.jsonl").read_text().splitlines()
        changes = [json.loads(line) for line in lines]
        held = sorted(1000 * change["held"] for change in changes)
        print(
            f"{release}: {self.claw.turns} turns of {min(self.claw.seconds):.1f} to"
            f" {max(self.claw.seconds):.1f} s, 0 failed; {len(changes)} changes of"
            f" {sum(change['rows'] for change in changes)} rows, which waited at most"
            f" {1000 * max(change['waited'] for change in changes):.1f} ms for the lock and held it"
            f" for {statistics.median(held):.1f} ms (median), {held[-1]:.1f} ms (worst)"
        )

    def undo(self):
        """Restore everything; the agent's archives stay and are reported (exit code 1)."""
        process = subprocess.run(
            [sys.executable, "-m", "brainsurgeon", "restore", "--all", "--pristine"],
            env=self.claw.environment, capture_output=True, timeout=120, check=False,
        )  # fmt: skip
        printed = process.stdout.decode()
        archived = "this kind of file is never changed" in printed
        assert process.returncode == int(archived), (printed, process.stderr.decode())
        assert ": failed" not in printed


@pytest.fixture(params=[OPENCLAW_LATEST, OPENCLAW_FIRST], ids=lambda release: release[0])
def life(request, tmp_path, start):
    """Yield the gateway of each release with a session of one turn, and a watcher of it.

    Afterwards everything is restored: every event is as it was written, SQLite and OpenClaw's own
    doctor report no problem, and the next turn has no placeholder.
    """
    with Planned() as model:
        life = Life(tmp_path, start, model, request.param)
        claw = life.claw
        claw.open()
        claw.ask(life.session, [printing("the first of all")])
        with Rows(claw) as witness:
            life.prune()
            yield life
            wait("all is pruned", lambda: not _whole(claw, life.session))
            life.pause()
            witness.look()
            assert claw.sound() == []
            life.undo()
        assert witness.differing() == []
        assert claw.sound() == []
        assert placeholders(claw.ask(life.session, [printing("the turn after all")])[0]) == set()
        claw.end()
        report = json.loads(claw.run("doctor", "--session-sqlite", "inspect", "--json"))
        assert [issue for target in report["targets"] for issue in target["issues"]] == []
        assert report["targets"]
        life.report(request.param[0])


def test_two_sessions_are_pruned_while_both_are_at_work(life):
    """No turn of either session fails, and placeholders are sent."""
    _two_at_once(life.claw, life.session, life.other)
    _latency(life, life.session)


def test_values_restored_in_a_turn_return_to_their_rows(life):
    """Shell and tool return a value in the middle of a turn, and its row is restored after it."""
    _several(life.claw, life.session)
    _restored_in_a_turn(life.claw, life.session)


def test_restarted_or_killed_gateway_loses_nothing(life):
    """The sessions go on after a restart, local turns and a kill in the middle of a turn."""
    _several(life.claw, life.session)
    _restarted(life, life.session, life.other)
    _killed(life.claw, life.session)


def test_pruned_sessions_are_compacted_forked_reset_and_deleted(life):
    """No operation of the agent on a pruned session fails."""
    for session in (life.session, life.other):
        _several(life.claw, session)
    _other_things(life.claw, life.session, life.other)


def _several(claw, session):
    """Do some turns, and wait until they are pruned."""
    for number in range(FEW):
        claw.ask(session, [printing(f"few {number}"), printing(f"few {number}, too")])
    wait("they are pruned", lambda: len(claw.placeholders(session)) > FEW)


def _latency(life, session):
    """Print how long turns take with and without the daemon, in alternating blocks."""
    seconds = {True: [], False: []}
    life.pause()
    for block in range(4):
        on = bool(block % 2)
        for number in range(BLOCK):
            count = len(life.claw.seconds)
            life.claw.ask(session, [printing(f"{block} {number}", lines=150)])
            seconds[on] += life.claw.seconds[count:]
        if not on:
            life.prune()
        elif block < 3:
            life.pause()
    without, beside = (sorted(seconds[on]) for on in (False, True))
    print(
        f"a turn takes {statistics.median(without):.2f} s ({without[0]:.2f} to {without[-1]:.2f})"
        f" without the daemon, {statistics.median(beside):.2f} s ({beside[0]:.2f} to"
        f" {beside[-1]:.2f}) beside it"
    )


def _two_at_once(claw, session, other):
    """Run turns of two sessions at once, while the daemon prunes both."""

    def work(session):
        turns = []
        # On a busy machine the daemon may find no idle moment for many turns.
        while len(turns) < TURNS or (not placeholders(turns[-1][0]) and len(turns) < 5 * TURNS):
            n = len(turns)
            turns.append(
                claw.ask(session, [printing(f"{session} {n}"), printing(f"{n}, too")],
                         [printing(f"{session} {n} more", lines=200)])
            )  # fmt: skip
        return turns

    with ThreadPoolExecutor(2) as both:
        results = list(both.map(work, (session, other)))
    for requests in results:
        shown = [placeholders(each[0]) for each in requests]
        assert len(shown[-1]) > 0, [len(each) for each in shown]
        print(f"placeholders shown at the beginning of each turn: {[len(each) for each in shown]}")


def _restored_in_a_turn(claw, session):
    """Restore by a model's calls of the shell and of the tool."""
    by_exec, by_tool = claw.placeholders(session)[:2]
    requests = claw.ask(session, [running(f"brainsurgeon restore {by_exec}")])
    assert "which says nothing" in _answer(requests[1])
    wait("it is back", lambda: by_exec not in claw.placeholders(session))
    wait("its call is shortened", lambda: f"Restored {by_exec}." in _all(claw, session))
    call = _purging(requests[-1], {"action": "restore", "entry": by_tool})
    requests = claw.ask(session, [call], [printing("beside it")])
    assert "which says nothing" in _answer(requests[1])
    wait("it is back", lambda: by_tool not in claw.placeholders(session))
    wait("its call is shortened", lambda: f"Restored {by_tool}." in _all(claw, session))
    wait("both are extracted again", lambda: {by_exec, by_tool} <= set(claw.placeholders(session)))


def _purging(request, arguments):
    """Return a call of `purge_control`, through `tool_call` if it is not listed."""
    name = "brainsurgeon__purge_control"
    if name in {tool["function"]["name"] for tool in request["tools"]}:
        return name, arguments
    return "tool_call", {"id": name, "args": arguments}


def _restarted(life, session, other):
    """End the gateway, work without it, and start it again."""
    claw = life.claw
    claw.end()
    for number in range(3):
        claw.ask(other, [printing(f"at home {number}", lines=150)], local=True)
        wait("it is pruned", lambda least=number: len(claw.placeholders(other)) > least)
    claw.open()
    assert len(placeholders(claw.ask(session, [printing("after a restart")])[0])) > FEW
    claw.ask(other, [printing("by the gateway now")])


def _killed(claw, session):
    """Kill the gateway in the middle of a turn, and do another turn."""
    tag_of_the_rest, command = "in the middle", "sleep 3; yes 'in the middle of it' | head -100"
    tag, process = claw.begin(session, [running(command)], [printing(tag_of_the_rest)])
    wait("the turn is under way", lambda: claw.model.requests_of[tag])
    claw.end(signal.SIGKILL)
    process.kill()
    process.communicate()
    claw.open()
    wait("the turn has ended", lambda: claw.idle(session))
    time.sleep(2)
    claw.ask(session, [printing("after the kill")])


def _other_things(claw, session, other):
    result = claw.call("sessions.compact", key=claw.key(other))
    print("compact", json.dumps(result)[:200])
    claw.ask(other, [printing("after the compaction")])
    users = [json.loads(text) for text in claw.texts(session)]
    users = [each["id"] for each in users if each.get("message", {}).get("role") == "user"]
    result = claw.call("sessions.fork", sessionKey=claw.key(session), entryId=users[FEW])
    print("fork", json.dumps(result)[:200])
    claw.call("sessions.reset", key=claw.key(other))
    claw.ask(other, [printing("after the reset")])
    _deleted(claw, other)


def _deleted(claw, session):
    """Delete a session, again if a rewrite came between: OpenClaw then refuses it as a whole."""
    arguments = {"key": claw.key(session), "deleteTranscript": True}
    try:
        claw.call("sessions.delete", **arguments)
    except AssertionError as refused:
        if "SQLite session state changed" not in str(refused):
            raise
        claw.call("sessions.delete", **arguments)


def _answer(request):
    return json.dumps(
        [message for message in request["messages"] if message["role"] == "tool"][-1]["content"]
    )


def _whole(claw, session):
    """Return the ids of large results that are not extracted, without redacted ones."""
    large = []
    for text in claw.texts(session):
        entry = json.loads(text)
        result = entry.get("message", {}).get("role") == "toolResult"
        if result and len(text) > 3000 and "_redacted" not in entry:
            large.append(entry["id"])
    return large


def _all(claw, session):
    return b"\n".join(claw.texts(session)).decode()
