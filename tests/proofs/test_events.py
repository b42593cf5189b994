"""Events under kill -9: runs are killed at random while another process follows the events."""

import collections
import json
import random
import signal
import subprocess
import time

from building.processes import INTERRUPTIBLE, PROGRAM, program_for, wait_until
from building.world import Conversation, sql

KILLS = 8


def put_sessions(world, number):
    for session in range(12):
        talk = Conversation(f"{number:08}-0000-4000-8000-{session:012}")
        for turn in range(4):
            talk.turn(f"{number} {session} {turn} " + "x" * 3000)
        world.put(f"{number}-{session}.jsonl", talk.bytes())


def count_extractions(events):
    """Count the values that events report as extracted, by run and session."""
    values = collections.Counter()
    for event in events:
        if event["kind"] == "extraction":
            values[event["run_id"], event["session"]] += event["facts"]["values"]
    return values


def test_follower_sees_each_event_once_though_runs_are_killed(world):
    """Events report each extracted value once, and a follower prints every event of the store."""
    config = world.config_file(keep_recent=0)
    cli = program_for(world, keep_recent=0)
    cli("scan", "--once")
    output = world.base / "followed"
    dice = random.Random(4711)
    with open(output, "wb") as stdout:
        follower = subprocess.Popen(
            [*INTERRUPTIBLE, *PROGRAM, "history", "--follow", "--since", "0", "--json",
             "--config", config],
            stdout=stdout, stderr=subprocess.PIPE,
        )  # fmt: skip
        try:
            for number in range(KILLS):
                put_sessions(world, number)
                scan = subprocess.Popen([*PROGRAM, "scan", "--once", "--config", config],
                                        stdout=subprocess.DEVNULL)  # fmt: skip
                time.sleep(dice.uniform(0.3, 0.9))
                scan.kill()
                scan.wait()
            assert cli("scan", "--once").returncode == 0
            [(newest,)] = sql(world, "SELECT max(id) FROM events")
            wait_until(lambda: f'"event_id": {newest},' in output.read_text())
            assert follower.poll() is None
        finally:
            follower.send_signal(signal.SIGINT)
            _, errors = follower.communicate(timeout=30)

    assert (follower.returncode, errors) == (0, b"")
    events = [json.loads(line) for line in output.read_text().splitlines()]
    ids = [ident for (ident,) in sql(world, "SELECT id FROM events ORDER BY id")]
    assert [event["event_id"] for event in events] == ids
    extracted = sql(
        world, "SELECT e.run_id, s.agent || '/' || s.name, count(*) FROM extractions e"
        " JOIN sessions s ON s.id = e.session_id GROUP BY 1, 2",
    )  # fmt: skip
    counts = count_extractions(events)
    assert counts == {(run, session): values for run, session, values in extracted}
    assert counts.total() == KILLS * 12 * 4
