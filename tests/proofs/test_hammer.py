"""Agents that write whole turns while runs extract and restore without any quiet time.

No line is lost, doubled, torn or reordered, and restoring everything gives back what the agents
wrote. How often a run meets exchanges, races or late lines depends on the machine: these are
counted and printed, a run goes on for a while to meet them, and never fails for want of them.
`test_exchange_races.py` forces each order of events. `HAMMER_SECONDS` is the duration of the long
form.
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

from brainsurgeon.files import exchange, leases, retire
from brainsurgeon.rewrite import recover
from building.processes import TIMEOUT, WORKERS
from building.world import World, dump
from proofs.agent_packages import node_binary

PROGRAMS = {"py": "appender.py", "node": "appender.mjs", "pager": "late_reader.py"}
LONG = float(os.environ.get("HAMMER_SECONDS", "600"))
# Seconds: of a short run, of one that has not met its goals, of one round of the long form.
LEAST, MOST, ROUND = 1.7, 8, 10
HEADER = {"type": "session", "version": 3, "id": "hammered", "timestamp": "t", "cwd": "/w"}
HELD_OPEN = "another process has the file open"
ARCHIVE = {"enabled": True, "token_threshold": 0, "tool_call_threshold": 0, "keep_turns": 0}
NO_DIFFERENCES = {"lost": 0, "doubled": 0, "torn": 0, "reordered": 0}


class Style(NamedTuple):
    """How agents write, and the goals: how often a run should meet each event before it ends."""

    agents: tuple[str, ...]
    gap: float = 0
    goals: dict[str, int] = {"exchanges": 5}  # noqa: RUF012  never changed
    history: str = "grows"
    look_back: float = 0.05
    archives: bool = False

    def __str__(self):
        gap = f", gap {self.gap}" if self.gap else ""
        return "+".join(self.agents) + gap + (", turns are archived" if self.archives else "")


# Bursts by path, by one descriptor, without a pause, by two agents, whole files from memory.
STYLES = (
    Style(("py path",)),
    Style(("py kept",)),
    Style(("py path",), 0.02, {"exchanges": 5, "races": 5}),
    Style(("py storm-path",), goals={"deferrals": 20}),
    Style(("py storm-kept",), goals={"deferrals": 20, HELD_OPEN: 3}),
    Style(("py path", "node path"), 0.02, {"exchanges": 5, "races": 5}),
    Style(("py rewrite",), history="truncated"),
    Style(("py rewrite",), 0.02, {"exchanges": 5, "races": 2, "rollbacks": 1}, "truncated"),
    Style(("py replace",), history="replaced"),
    Style(("py replace",), 0.02, {"exchanges": 5, "rollbacks": 1}, "replaced"),
    Style(("py late",), goals={"exchanges": 5, "moved": 3}, look_back=0.2),
    Style(("py path", "pager late"), goals={"exchanges": 3, "caught": 1}),
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


def start_worker(name, *arguments):
    program = (sys.executable, "-I", "-S") if name.endswith(".py") else (node_binary(),)
    return subprocess.Popen(
        [*program, str(WORKERS / name), *map(str, arguments)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip


def finish(process):
    process.stdin.close()
    report = process.stdout.read()
    assert process.wait(timeout=60) == 0
    return json.loads(report)


def differences(histories, lines):
    """Count lines that are lost, doubled, torn, or out of order within their agent's history."""
    expected = collections.Counter(itertools.chain(*histories))
    actual = collections.Counter(lines)
    places = [{line: number for number, line in enumerate(history)} for history in histories]
    orders = [[place[line] for line in lines if line in place] for place in places]
    return {
        "lost": sum((expected - actual).values()),
        "doubled": sum(count - 1 for line, count in actual.items() if line in expected),
        "torn": sum(count for line, count in actual.items() if line not in expected),
        "reordered": sum(a > b for order in orders for a, b in itertools.pairwise(order)),
    }


class Gap:
    """Pauses around each exchange, so that agents often fall into it; counts what they meet."""

    def __init__(self, patch, seconds, counts):
        self._leased = None
        take, exchange_names = leases.take, leases.exchange
        successor, retire_old = exchange.Successor, retire.retire
        exchange_back, move_late_lines = successor._exchange_back, successor.move_late_lines
        await_openers = exchange.await_openers
        going_back = []

        def take_and_remember(descriptor):
            self._leased = descriptor
            return take(descriptor)

        def pause_and_exchange(*names):
            if not going_back:  # while an exchange is undone, a pause would let the agent go on
                leased = self._leased
                time.sleep(seconds)
                counts["races"] += not leases.held(leased)
            exchange_names(*names)

        def pause_and_await(openers):
            time.sleep(seconds / 4)
            return await_openers(openers)

        def count_and_move(*arguments):
            counts["caught"] += 1
            return move_late_lines(*arguments)

        def count_and_exchange_back(*arguments):
            counts["rollbacks"] += 1
            counts["caught"] += 1
            going_back.append(arguments)
            try:
                exchange_back(*arguments)
            finally:
                going_back.pop()

        def count_and_retire(*arguments, **keywords):
            moved = retire_old(*arguments, **keywords)
            counts["moved"] += moved > 0
            return moved

        patch.setattr(leases, "take", take_and_remember)
        patch.setattr(leases, "exchange", pause_and_exchange)
        patch.setattr(successor, "move_late_lines", count_and_move)
        patch.setattr(exchange, "await_openers", pause_and_await)
        patch.setattr(successor, "_exchange_back", count_and_exchange_back)
        patch.setattr(retire, "retire", count_and_retire)


def run_until_agents_end(world, style, seconds, agents, counts):
    """Scan and restore until the agents end; they are ended after `seconds` and all goals."""
    start, names = time.monotonic(), {"changed": "exchanges", "deferred": "deferrals"}
    settings = {"archive": ARCHIVE} if style.archives else {}
    while any(agent.poll() is None for agent in agents):
        report = world.scan(keep_recent=1, keep_after_restore_seconds=0, **settings)
        counts["runs"] += 1
        counts["values"] += report.values_extracted
        for session in report.sessions:
            counts[names.get(session.outcome, session.outcome)] += 1
            counts[HELD_OPEN] += session.reason == HELD_OPEN
            assert session.outcome != "failed", session.reason
            if session.outcome == "changed":
                counts["archived"] += len(session.plan.archives)
        if counts["runs"] % 8 == 0:
            results = world.restore_all(pristine=True)
            counts["restored"] += sum(result.values_restored for result in results)
        duration = time.monotonic() - start
        if duration > max(MOST, seconds) or (duration > seconds and not unmet(style, counts)):
            for agent in agents:
                agent.stdin.close()
        time.sleep(0.005)
    counts["seconds"] += time.monotonic() - start


def unmet(style, counts):
    return [event for event, number in style.goals.items() if counts[event] < number]


def hammer(world, monkeypatch, style, seconds):
    """Rewrite while agents write, restore everything, check the result, and return counts."""
    counts = collections.Counter()
    session = world.put("hammered.jsonl", dump(HEADER))
    references = [world.base / f"reference.{number}" for number in range(len(style.agents))]
    for reference in references:
        reference.write_bytes(dump(HEADER) if reference is references[0] else b"")
    with monkeypatch.context() as patch, contextlib.ExitStack() as workers:
        patch.setattr(exchange, "WAIT_FOR_OPENERS", retire.WAIT_FOR_OPENERS)
        patch.setattr(retire, "LOOK_BACK", style.look_back)
        Gap(patch, style.gap, counts)
        reader = workers.enter_context(start_worker("reader.py", session, style.history))
        agents = [
            workers.enter_context(start_worker(PROGRAMS[kind], session, reference, how, number))
            for number, ((kind, how), reference) in enumerate(
                zip(map(str.split, style.agents), references, strict=True)
            )
        ]
        run_until_agents_end(world, style, seconds, agents, counts)
        reports, readings = [finish(agent) for agent in agents], finish(reader)
    for key in ("turns", "lines", "rewrites"):
        counts[key] = sum(report[key] for report in reports)
    counts["longest_ms"] = max(report["longest_ms"] for report in reports)
    counts["snapshots"] = readings["snapshots"]
    world.restore_all(pristine=True)
    until = time.monotonic() + TIMEOUT
    while counts["placeholders"] < counts["turns"] and time.monotonic() < until:
        world.scan(keep_recent=0, keep_after_restore_seconds=0)
        counts["placeholders"] = session.read_bytes().count(b"[[extracted-")
    recovered = recover.recover(world.store)
    world.restore_all(pristine=True)
    data = session.read_bytes()
    histories = [reference.read_bytes().splitlines(keepends=True) for reference in references]
    wrong = differences(histories, data.splitlines(keepends=True))
    figures = ", ".join(f"{count:.4g} {event}" for event, count in counts.items())
    print(f"{style}: {figures}, {wrong}, unmet goals: {unmet(style, counts) or 'none'}")

    assert wrong == NO_DIFFERENCES
    assert len(data) == sum(reference.stat().st_size for reference in references)
    assert readings["bad"] == []
    assert counts["placeholders"] >= counts["turns"]
    assert recovered == []
    assert world.leftovers() == []
    return counts


@pytest.mark.parametrize("style", STYLES, ids=str)
def test_agents_that_write_during_scans_lose_no_line(world, monkeypatch, style):
    """No line is lost, doubled, torn or reordered by runs within an agent's bursts."""
    hammer(world, monkeypatch, style, LEAST)


@pytest.mark.long(proves=("sessions", "rewrite"))
@pytest.mark.parametrize("style", STYLES, ids=str)
def test_agents_that_write_for_minutes_lose_no_line(tmp_path, monkeypatch, style):
    """The same in many rounds, each with a new session and a new store."""
    total, until = collections.Counter(), time.monotonic() + LONG / len(STYLES)
    while total["rounds"] == 0 or time.monotonic() < until:
        seconds = max(LEAST, min(ROUND, until - time.monotonic()))
        world = World(tmp_path / "round")
        total.update(hammer(world, monkeypatch, style, seconds), rounds=1)
        world.close()
        shutil.rmtree(world.base)
    print(f"{style}, in all: {dict(total)}")
