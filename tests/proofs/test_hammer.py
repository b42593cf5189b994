"""The hammer: agents write whole turns while runs without any quiet time cut and restored.

Whatever the agents do to the session, no line of theirs is lost, doubled, torn or out of order,
and once everything is restored the file is what they wrote. What a run has met (exchanges, races,
lines moved over) is counted and printed: how much of it comes is the machine's affair, so a run
goes on for a while to meet it, and never fails for not having met it. Each order of events is
forced, one by one, in `test_races.py`. `HAMMER_SECONDS` is for how long the long form goes on.
"""

import collections
import contextlib
import itertools
import json
import os
import shutil
import subprocess
import sys
import time
from typing import NamedTuple

import pytest

from brainsurgeon.rewrite import recover
from brainsurgeon.sessions import exchange, leases, retire
from building.processes import TIMEOUT, WORKERS
from building.world import World, dump
from proofs.agent_packages import node_binary

PROGRAMS = {"py": "appender.py", "node": "appender.mjs", "pager": "pager.py"}
LONG = float(os.environ.get("HAMMER_SECONDS", "600"))
# Seconds: of a short run, of one that has not met enough yet, of one round of the long form.
LEAST, MOST, ROUND = 1.7, 8, 10
HEADER = {"type": "session", "version": 3, "id": "hammered", "timestamp": "t", "cwd": "/w"}
HELD = "somebody has the file open"
ARCHIVES = {
    "archive": {
        "enabled": True, "token_threshold": 0, "tool_call_threshold": 0, "keep_turns": 0,
    },
}  # fmt: skip
GOOD = {"lost": 0, "doubled": 0, "torn": 0, "reordered": 0}


class Style(NamedTuple):
    """How agents write, and what a run would like to meet before it ends."""

    agents: tuple[str, ...]
    gap: float = 0
    asked: dict[str, int] = {"exchanges": 5}  # noqa: RUF012  never changed
    history: str = "grows"
    look_back: float = 0.05
    archives: bool = False

    def __str__(self):
        said = "+".join(self.agents) + (f", gap {self.gap}" if self.gap else "")
        return said + (", turns are archived" if self.archives else "")


# What is written by path in bursts, by one descriptor, without a pause, by two, from memory.
STYLES = (
    Style(("py path",)),
    Style(("py kept",)),
    Style(("py path",), 0.02, {"exchanges": 5, "races": 5}),
    Style(("py storm-path",), asked={"deferrals": 20}),
    Style(("py storm-kept",), asked={"deferrals": 20, HELD: 3}),
    Style(("py path", "node path"), 0.02, {"exchanges": 5, "races": 5}),
    Style(("py rewrite",), history="truncated"),
    Style(("py rewrite",), 0.02, {"exchanges": 5, "races": 2, "rollbacks": 1}, "truncated"),
    Style(("py replace",), history="replaced"),
    Style(("py replace",), 0.02, {"exchanges": 5, "rollbacks": 1}, "replaced"),
    Style(("py late",), asked={"exchanges": 5, "moved": 3}, look_back=0.2),
    Style(("py path", "pager late"), asked={"exchanges": 3, "caught": 1}),
    Style(("py rewrite", "pager late"), 0, {"exchanges": 3, "caught": 1}, "truncated"),
    Style(("py replace", "pager late"), 0, {"exchanges": 3, "caught": 1}, "replaced"),
    Style(("node path",)),
    Style(("node kept",)),
    Style(("node rewrite",), 0.02, {"exchanges": 5, "races": 2}, "truncated"),
    Style(("node replace",), 0.02, {"exchanges": 5}, "replaced"),
    Style(("py path",), 0.02, {"exchanges": 5, "races": 2, "archived": 5}, archives=True),
    Style(("py kept",), 0, {"exchanges": 5, "archived": 5}, archives=True),
    Style(("py rewrite",), 0.02, {"exchanges": 3, "archived": 3}, "truncated", archives=True),
    Style(("py replace",), 0.02, {"exchanges": 3, "archived": 3}, "replaced", archives=True),
)


def worker(name, *arguments):
    with_python = (sys.executable, "-I", "-S")
    program = with_python if name.endswith(".py") else (node_binary(),)
    return subprocess.Popen(
        [*program, str(WORKERS / name), *map(str, arguments)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip


def finish(process):
    process.stdin.close()
    said = process.stdout.read()
    assert process.wait(timeout=60) == 0
    return json.loads(said)


def differences(histories, got):
    """Count what is missing, doubled or torn, and what is out of order within one's history."""
    wanted = collections.Counter(itertools.chain(*histories))
    there = collections.Counter(got)
    places = [{line: number for number, line in enumerate(lines)} for lines in histories]
    kept = [[place[line] for line in got if line in place] for place in places]
    return {
        "lost": sum((wanted - there).values()),
        "doubled": sum(count - 1 for line, count in there.items() if line in wanted),
        "torn": sum(count for line, count in there.items() if line not in wanted),
        "reordered": sum(a > b for order in kept for a, b in itertools.pairwise(order)),
    }


class Gap:
    """Pauses around each exchange, so that agents are caught there again and again; counts them."""

    def __init__(self, patch, seconds, seen):
        self._leased = None
        take, swap = leases.take, leases.exchange
        successor, retired = exchange.Successor, retire.retire
        back, moving = successor._exchange_back, successor.move_late_lines
        awaiting = exchange.await_openers
        going = []

        def taking(descriptor):
            self._leased = descriptor
            return take(descriptor)

        def exchanging(*names):
            if not going:  # on the way back there is no time for the agent's next step
                leased = self._leased
                time.sleep(seconds)
                seen["races"] += not leases.held(leased)
            swap(*names)

        def catching(those):
            time.sleep(seconds / 4)
            return awaiting(those)

        def catching_one(*arguments):
            seen["caught"] += 1
            return moving(*arguments)

        def going_back(*arguments):
            seen["rollbacks"] += 1
            seen["caught"] += 1
            going.append(arguments)
            try:
                back(*arguments)
            finally:
                going.pop()

        def retiring(*arguments, **keywords):
            moved = retired(*arguments, **keywords)
            seen["moved"] += moved > 0
            return moved

        patch.setattr(leases, "take", taking)
        patch.setattr(leases, "exchange", exchanging)
        patch.setattr(successor, "move_late_lines", catching_one)
        patch.setattr(exchange, "await_openers", catching)
        patch.setattr(successor, "_exchange_back", going_back)
        patch.setattr(retire, "retire", retiring)


def work(world, style, seconds, session, agents, seen):
    """Do run after run until the agents have ended: after some seconds, and enough was met."""
    begun, names = time.monotonic(), {"changed": "exchanges", "deferred": "deferrals"}
    while any(agent.poll() is None for agent in agents):
        keys = ARCHIVES if style.archives else {}
        report = world.scan(keep_recent=1, keep_after_restore_seconds=0, **keys)
        seen["runs"] += 1
        seen["values"] += report.values_extracted
        for one in report.sessions:
            seen[names.get(one.outcome, one.outcome)] += 1
            seen[HELD] += one.reason == HELD
            seen["archived"] += len(one.plan.archives) if one.outcome == "changed" else 0
        if seen["runs"] % 8 == 0:
            seen["restored"] += sum(one.values for one in world.restore_all(pristine=True))
        took = time.monotonic() - begun
        enough = all(seen[what] >= number for what, number in style.asked.items())
        if took > max(MOST, seconds) or (took > seconds and enough):
            for agent in agents:
                agent.stdin.close()
        time.sleep(0.005)
    seen["seconds"] += time.monotonic() - begun


def hammer(world, monkeypatch, style, seconds):
    """Let agents write while runs rewrite, restore everything, and give what was seen."""
    seen = collections.Counter()
    session = world.put("hammered.jsonl", dump(HEADER))
    references = [world.base / f"reference.{number}" for number in range(len(style.agents))]
    for reference in references:
        reference.write_bytes(dump(HEADER) if reference is references[0] else b"")
    with monkeypatch.context() as patch, contextlib.ExitStack() as running:
        patch.setattr(retire, "LOOK_BACK", style.look_back)
        Gap(patch, style.gap, seen)
        reader = running.enter_context(worker("reader.py", session, style.history))
        agents = [
            running.enter_context(worker(PROGRAMS[kind], session, reference, how, number))
            for number, (kind, how) in enumerate(map(str.split, style.agents))
            for reference in references[number : number + 1]
        ]
        work(world, style, seconds, session, agents, seen)
        told, watched = [finish(agent) for agent in agents], finish(reader)
    seen.update({key: sum(one[key] for one in told) for key in ("turns", "lines", "rewrites")})
    seen["longest_ms"] = max(one["longest_ms"] for one in told)
    seen["snapshots"] = watched["snapshots"]
    world.restore_all(pristine=True)
    until = time.monotonic() + TIMEOUT
    while seen["placeholders"] < seen["turns"] and time.monotonic() < until:
        world.scan(keep_recent=0, keep_after_restore_seconds=0)
        seen["placeholders"] = session.read_bytes().count(b"[[extracted-")
    recovered = recover.recover(world.store)
    world.restore_all(pristine=True)
    got = session.read_bytes()
    histories = [one.read_bytes().splitlines(keepends=True) for one in references]
    wrong = differences(histories, got.splitlines(keepends=True))
    figures = ", ".join(f"{count:.4g} {what}" for what, count in seen.items())
    missed = [what for what, number in style.asked.items() if seen[what] < number]
    print(f"{style}: {figures}, {wrong}, seldom met: {missed or 'nothing'}")

    assert wrong == GOOD
    assert len(got) == sum(one.stat().st_size for one in references)
    assert watched["bad"] == []
    assert seen["failed"] == 0
    assert seen["placeholders"] >= seen["turns"]
    assert recovered == []
    assert world.leftovers() == []
    return seen


@pytest.mark.parametrize("style", STYLES, ids=str)
def test_an_agent_at_work_loses_nothing(world, monkeypatch, style):
    """No line is lost, doubled, torn or reordered by runs amid an agent's bursts."""
    hammer(world, monkeypatch, style, LEAST)


@pytest.mark.long(proves=("sessions", "rewrite"))
@pytest.mark.parametrize("style", STYLES, ids=str)
def test_agents_at_work_for_minutes_lose_nothing(tmp_path, monkeypatch, style):
    """Nor is one in minutes of that, round after round with a session and a store anew."""
    total, until = collections.Counter(), time.monotonic() + LONG / len(STYLES)
    while total["rounds"] == 0 or time.monotonic() < until:
        seconds = max(LEAST, min(ROUND, until - time.monotonic()))
        one = World(tmp_path / "round")
        total.update(hammer(one, monkeypatch, style, seconds), rounds=1)
        one.close()
        shutil.rmtree(one.base)
    print(f"{style}, in all: {dict(total)}")
