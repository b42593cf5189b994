"""Live: the real pi on a model that signs its thinking, beside the daemon."""

import json
import re
import subprocess
import sys
import time
from contextlib import contextmanager

import pytest

from proofs.live.binding import Binding
from proofs.live.messages import Messages
from proofs.live.pi import Pi
from proofs.live.program import configure, lines_of, ours, wait
from proofs.live.witness import Witness

pytestmark = pytest.mark.long(proves=("formats", "planning", "rewrite", "operations", "daemon"))

PLACEHOLDER = re.compile(r"\[\[extracted-([0-9a-f]{8})\]\]")


@contextmanager
def daemon(pi, **settings):
    configure(
        pi.base, pi.sessions, keep_recent=2, scan_interval_seconds=1,
        keep_after_restore_seconds=4, **settings,
    )  # fmt: skip
    with open(pi.base / "daemon.log", "ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "brainsurgeon", "run"], env=pi.environment, stdout=log,
            stderr=log, stdin=subprocess.DEVNULL,
        )  # fmt: skip
    try:
        yield process
        process.terminate()
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.wait()


def printing(tag, lines=60):
    return "bash", {"command": lines_of(tag, lines)}


def entries(path):
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def pruned(path):
    return set(PLACEHOLDER.findall(path.read_text()))


def shown(request):
    return set(PLACEHOLDER.findall(json.dumps(request["messages"])))


def longest(path):
    return max((json.loads(line) for line in path.read_bytes().splitlines()),
               key=lambda entry: len(json.dumps(entry)))["id"]  # fmt: skip


def assistant_texts(request):
    return [
        block["text"]
        for message in request["messages"] if message["role"] == "assistant"
        for block in message["content"] if block["type"] == "text"
    ]  # fmt: skip


def thoughts(request):
    return json.dumps(request["messages"]).count('"signature"')


def ten_turns(pi, pause):
    """Do ten turns, three of them in one process, with a restore in the fifth."""
    requests = []
    for number in range(4):
        requests += pi.turn([printing(number), printing(f"{number}b")], [printing(f"{number}c")])
        pause()
    ident = next(
        entry["id"]
        for entry in entries(pi.path)
        if entry.get("message", {}).get("role") == "toolResult"
    )
    requests += pi.turn([("bash", {"command": f"brainsurgeon restore {ident}"})], [printing("4")])
    pause()
    with pi.conversation() as running:
        for number in range(5, 8):
            requests += running.turn([printing(number)], [printing(f"{number}b")])
            pause()
    for number in range(8, 10):
        requests += pi.turn([printing(number)], [printing(f"{number}b")])
        pause()
    return requests


@pytest.mark.parametrize("knows", [True, False], ids=["with the rule", "without it"])
def test_signed_pi_is_refused_only_without_the_rule(tmp_path, knows):
    """Ten turns with a restore are not refused, and the undo restores every byte.

    With `signed_models` set to no model, the same turns end in refusals.
    """
    with Binding() as model:
        pi = Pi(tmp_path, model)
        pi.turn([printing("first")])
        settings = {} if knows else {"signed_models": ["!*"]}
        with daemon(pi, **settings), Witness(pi.path) as witness:
            pause = lambda: time.sleep(2.2)  # noqa: E731  two runs
            if not knows:
                with pytest.raises(AssertionError):
                    ten_turns(pi, pause)
                assert any(
                    "bound to a different conversation" in problem for problem in model.refused
                )
                return
            requests = ten_turns(pi, pause)
            wait("it is pruned", lambda: len(pruned(pi.path)) >= 15)
        assert model.refused == []
        assert len(shown(requests[-1])) >= 10
        assert not any(PLACEHOLDER.search(text) for text in assistant_texts(requests[-1]))
        assert 0 < thoughts(requests[-1]) < len(requests)
        ours(pi, "scan", "--once")
        lean = pi.path.stat().st_size
        ours(pi, "restore", "--all", "--pristine")
        original = b"".join(witness.lines)
        assert pi.path.read_bytes() == original
        print(
            f"{pi.turns} turns, {len(requests)} requests, none refused; {len(shown(requests[-1]))} "
            f"placeholders in the last; {len(original):,} bytes, {lean:,} when pruned"
        )


def test_pruned_pi_branches_forks_compacts_and_edits(tmp_path):
    """No turn fails, in one process or many, and placeholders are sent."""
    with Messages() as model:
        pi = Pi(tmp_path, model, name="claude-sonnet-4-5")
        pi.turn([printing("zero")], [printing("zero b")])
        with daemon(pi):
            first = pi.path
            with pi.conversation() as running:
                for number in range(3):
                    running.turn([printing(number), printing(f"{number}b")])
                wait("the running session is pruned", lambda: len(pruned(first)) >= 3)
                running.ask("prompt", message="/edit-away -1", until=None)
                running.turn([printing("after the edit")])
                running.ask("prompt", message="/back-to -2", until=None)
                running.turn([printing("on another branch")])
                running.ask("compact", until=None)
                running.turn([printing("after the compaction")])
            wait("dead values go, too", lambda: len(pruned(first)) >= 7)
            pi.turn([printing("resumed")])
            forked = pi.turn([printing("forked")], session=("--fork", str(first)))
            assert pi.path != first
            assert shown(forked[0]) <= pruned(first) | {None}
            fork = pi.path
            with pi.conversation(("--session", str(fork))) as running:
                running.turn([printing("a long result", lines=400)])
                long = longest(fork)
                wait("the fork is pruned", lambda: len(pruned(fork)) > len(shown(forked[0])))
                running.turn([printing("still with the value in memory")])
                path = running.ask("clone", until=None)
                running.turn([printing("in the clone")])
            clone = pi.path
            assert clone not in (first, fork), path
            wait("what the clone wrote again is extracted again", lambda: long in pruned(clone))
            last = pi.turn([printing("the end")], session=("--session", str(clone)))
        assert model.refused == []
        assert shown(last[0])
        print(
            f"{pi.turns} turns, none refused; "
            f"{len(shown(last[0]))} placeholders in the last request"
        )
