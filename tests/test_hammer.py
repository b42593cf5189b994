"""A short hammer: an agent writes whole turns in bursts while passes run without any quiet time."""

import collections
import itertools
import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from brainsurgeon.operations import recover
from brainsurgeon.sessions import leases, settling
from conftest import dump

WORKERS = Path(__file__).parent / "workers"
SECONDS = 6
LEAST_EXCHANGES = 5
HEADER = {"type": "session", "version": 3, "id": "hammered", "timestamp": "t", "cwd": "/w"}


def worker(name, *arguments):
    """Start one of the other processes."""
    return subprocess.Popen(
        [sys.executable, "-I", "-S", str(WORKERS / name), *map(str, arguments)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip


def finish(process):
    """Let a process come to its end and give what it says."""
    said, _ = process.communicate(timeout=60)
    return json.loads(said)


def differences(expected, got):
    """Count what is missing, doubled, torn or out of order, line by line."""
    wanted = collections.Counter(expected)
    there = collections.Counter(got)
    known = [line for line in got if line in wanted]
    order = {line: number for number, line in enumerate(expected)}
    return {
        "lost": sum((wanted - there).values()),
        "doubled": sum(count - 1 for line, count in there.items() if line in wanted),
        "torn": sum(count for line, count in there.items() if line not in wanted),
        "reordered": sum(order[a] > order[b] for a, b in itertools.pairwise(known)),
    }


class Gap:
    """A pause before each exchange, so that openers are caught in the window again and again."""

    def __init__(self, monkeypatch, seconds):
        self.raced, self._leased = 0, None
        take, exchange = leases.take, leases.exchange

        def taking(descriptor):
            self._leased = descriptor
            return take(descriptor)

        def exchanging(*names):
            leased = self._leased
            time.sleep(seconds)
            self.raced += not leases.held(leased)
            exchange(*names)

        monkeypatch.setattr(leases, "take", taking)
        monkeypatch.setattr(leases, "exchange", exchanging)


@pytest.mark.parametrize(
    ("style", "gap", "races"), [("path", 0, 0), ("kept", 0, 0), ("path", 0.02, 5)]
)
def test_an_agent_at_work_loses_nothing(world, monkeypatch, style, gap, races):
    """No line is lost, doubled, torn or reordered by passes amid an agent's bursts."""
    monkeypatch.setattr(settling, "LOOK_BACK", 0.05)
    window = Gap(monkeypatch, gap)
    session = world.put("hammered.jsonl", dump(HEADER))
    reference = world.base / "reference"
    reference.write_bytes(dump(HEADER))
    outcomes, reasons, extracted = collections.Counter(), collections.Counter(), 0
    reader = worker("reader.py", session)
    agent = worker("appender.py", session, reference, style, SECONDS)
    begun = time.monotonic()
    while agent.poll() is None:
        report = world.scan(keep_recent=1)
        outcomes.update(one.outcome for one in report.sessions)
        reasons.update(one.reason for one in report.sessions if one.outcome != "changed")
        extracted += report.values_extracted
        time.sleep(0.005)
    seconds = time.monotonic() - begun
    written, seen = finish(agent), finish(reader)
    world.scan(keep_recent=0)
    stubs = session.read_bytes().count(b"[[extracted-")
    recovered = recover.recover(world.store)
    world.restore_all(pristine=True)
    expected = reference.read_bytes().splitlines(keepends=True)
    wrong = differences(expected, session.read_bytes().splitlines(keepends=True))
    print(
        f"{style}, gap {gap}: {written['lines']} lines in {seconds:.1f} s, longest append"
        f" {written['longest_ms']} ms, {outcomes['changed']} exchanges, {window.raced} races,"
        f" {extracted} values, {seen['snapshots']} snapshots, {wrong}, {dict(reasons)}"
    )

    assert wrong == {"lost": 0, "doubled": 0, "torn": 0, "reordered": 0}
    assert session.read_bytes() == reference.read_bytes()
    assert seen["bad"] == []
    assert seen["snapshots"] > 20
    assert outcomes["changed"] >= LEAST_EXCHANGES
    assert window.raced >= races
    assert outcomes["failed"] == 0
    assert stubs >= written["turns"]
    assert recovered == []
    assert world.leftovers() == []
