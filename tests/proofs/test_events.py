"""Whoever follows what happens misses nothing and sees nothing twice, whatever is killed.

Real processes prune sessions and are killed in the middle, again and again, while another one
follows. What it has printed in the end are the events of the store, and these tell of each value
that was extracted, once.
"""

import collections
import json
import random
import signal
import subprocess
import time

from building.processes import INTERRUPTIBLE, PROGRAM, program_for, wait_until
from building.world import Conversation, sql

KILLS = 8


def sessions(world, *, of):
    for number in range(12):
        talk = Conversation(f"{of:08}-0000-4000-8000-{number:012}")
        for turn in range(4):
            talk.turn(f"{of} {number} {turn} " + "x" * 3000)
        world.put(f"{of}-{number}.jsonl", talk.bytes())


def told(lines):
    """Count the values that events tell of as cut, by run and session."""
    values = collections.Counter()
    for one in map(json.loads, lines):
        if one["kind"] == "extraction":
            values[one["run_id"], one["session"]] += one["facts"]["values"]
    return values


def test_nothing_is_missed_and_nothing_seen_twice_over_kill_9(world):
    """Killed anywhere, runs leave events that tell of each cut once; a follower sees them all."""
    config = world.config_file(keep_recent=0)
    cli = program_for(world, keep_recent=0)
    cli("scan", "--once")
    out = world.base / "followed"
    dice = random.Random(4711)
    with open(out, "wb") as writing:
        follower = subprocess.Popen(
            [*INTERRUPTIBLE, *PROGRAM, "history", "--follow", "--since", "0", "--json",
             "--config", config],
            stdout=writing, stderr=subprocess.PIPE,
        )  # fmt: skip
        try:
            for kill in range(KILLS):
                sessions(world, of=kill)
                one = subprocess.Popen([*PROGRAM, "scan", "--once", "--config", config],
                                       stdout=subprocess.DEVNULL)  # fmt: skip
                time.sleep(dice.uniform(0.3, 0.9))
                one.kill()
                one.wait()
            assert cli("scan", "--once").returncode == 0
            [(newest,)] = sql(world, "SELECT max(id) FROM events")
            wait_until(lambda: f'"event_id": {newest},' in out.read_text())
            assert follower.poll() is None
        finally:
            follower.send_signal(signal.SIGINT)
            _, said = follower.communicate(timeout=30)

    lines = out.read_text().splitlines()
    assert (follower.returncode, said) == (0, b"")
    ids = [json.loads(line)["event_id"] for line in lines]
    assert ids == [ident for (ident,) in sql(world, "SELECT id FROM events ORDER BY id")]
    cut = sql(
        world, "SELECT e.run_id, s.agent || '/' || s.name, count(*) FROM extractions e"
        " JOIN sessions s ON s.id = e.session_id GROUP BY 1, 2",
    )  # fmt: skip
    assert told(lines) == {(number, session): values for number, session, values in cut}
    assert sum(told(lines).values()) == KILLS * 12 * 4
