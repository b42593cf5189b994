"""Runs, rollbacks and events, as they are printed."""

import json
import signal
import subprocess

import pytest

from building.processes import INTERRUPTIBLE, PROGRAM, TIMEOUT, error_line, json_output, wait_until
from building.world import sql


@pytest.fixture
def following(world, session):
    """Start following what happens from the beginning; give what starts it with some words."""
    started = []

    def start(*words):
        config = world.config_file()
        started.append(subprocess.Popen(
            [*INTERRUPTIBLE, *PROGRAM, "history", "--follow", *words, "--config", config],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        ))  # fmt: skip
        return started[-1]

    yield start
    for one in started:
        one.kill()
        one.communicate()


def test_passes_are_listed_with_what_they_did(world, cli, session):
    """Number, command, sessions, values and about how many tokens, the newest last."""
    cli("restore", session)
    said = cli("history").stdout.decode()
    [first, second] = json_output(cli("history", "--json"))["runs"]

    assert "1 extracted" in said
    assert "1 restored, 1 field" in said
    assert "650" in said
    assert "tokens: how many tokens the next requests save" in said
    assert (first["run_id"], first["command"], first["tokens"]) == (1, "scan", 653)
    assert (second["command"], second["values_restored"]) == ("restore", 1)


def test_no_line_of_the_passes_is_too_wide(world, cli, session):
    """Each line fits 80 columns."""
    cli("restore", session)

    assert max(map(len, cli("history").stdout.decode().splitlines())) <= 80


def test_before_anything_was_done_nothing_is_listed(own_home, world, cli):
    """Without a store there are no runs, no events and nothing to count."""
    assert cli("history").stdout == b"no run has changed anything yet\n"
    assert json_output(cli("history", "--json"))["runs"] == []
    assert cli("history", "--events").stdout == b""
    assert json_output(cli("history", "--events", "--json"))["events"] == []
    assert json_output(cli("history", "--counts", "--json"))["counts"] == []
    assert cli("restore", "--run", "1").returncode == 3


def test_a_run_is_taken_back_by_its_number(world, cli, session, conversation):
    """A second time there is nothing to do."""
    path = world.directory / "s.jsonl"
    done = cli("restore", "--run", "1").stdout.decode()

    assert "main/s: rolled back, 1 value restored" in done
    assert path.read_bytes() == conversation.bytes()
    assert "nothing to undo" in cli("restore", "--run", "1").stdout.decode()


def test_a_rollback_that_cannot_be_whole_ends_with_one(world, cli, session):
    """What stays is named, and the exit code says so."""
    sql(world, "UPDATE extractions SET blob_id = NULL, expired_at = 1.0,"
               " expired_why = 'test'")  # fmt: skip
    done = cli("restore", "--run", "1")

    assert done.returncode == 1
    assert f"not done: {session}: expired" in done.stdout.decode()


def test_what_is_no_run_is_said_in_one_line(world, cli, session):
    """A run that there is not ends with 3, a number that is none with 2."""
    done = cli("restore", "--run", "99")

    assert done.returncode == 3
    assert "there is no run 99" in error_line(done)
    assert cli("restore", "--run", "0").returncode == 2


def test_events_are_lines(world, cli, session):
    """Each event is a line with its id, kind, session and what it was about."""
    [line] = cli("history", "--events").stdout.decode().splitlines()
    [event] = json_output(cli("history", "--events", "--json"))["events"]

    assert line.startswith("1  ")
    assert "extraction   main/s: 1 value (2,002 B) (run 1)" in line
    assert (event["event_id"], event["session"], event["facts"]["values"]) == (1, "main/s", 1)


def test_counts_are_a_table(world, cli, session):
    """By kind and tool, what went and what came back."""
    said = cli("history", "--counts").stdout.decode()

    assert "tool_result  exec" in said
    assert json_output(cli("history", "--counts", "--json"))["counts"] == [
        {"kind": "tool_result", "tool": "exec", "values_extracted": 1, "chars": 2000,
         "values_restored": 0, "chars_restored": 0},
    ]  # fmt: skip
    refused = cli("history", "--counts", "--follow", "--json")
    assert (refused.returncode, refused.stdout) == (2, b"")  # no event was printed


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_following_ends_quietly_when_it_is_interrupted(following, number):
    """What has happened was printed by then, a document a line, and nothing is said at the end."""
    one = following("--since", "0", "--json")
    first = json.loads(one.stdout.readline())
    one.send_signal(number)
    out, err = one.communicate(timeout=TIMEOUT)

    assert (first["schema"], first["kind"]) == (1, "extraction")
    assert (out, err) == (b"", b"")
    assert one.returncode == (0 if number == signal.SIGINT else 128 + number)


def test_following_goes_on_with_what_happens(following, cli, session):
    """What another process does is printed soon after."""
    one = following("--since", "1", "--json")
    cli("restore", session)

    assert json.loads(one.stdout.readline())["kind"] == "restoration"


def test_following_ends_with_a_line_when_another_store_takes_the_place(
    world, following, cli, session
):  # fmt: skip
    """Whoever follows is told to begin again, and a script sees the exit code."""
    kept = world.base / "kept.db"
    cli("store", "backup", str(kept))
    one = following("--since", "0", "--json")
    one.stdout.readline()
    assert cli("store", "restore", str(kept), "--yes").returncode == 0
    _, said = one.communicate(timeout=TIMEOUT)

    assert said.decode().startswith("brainsurgeon: the store was replaced or removed; follow")
    assert one.returncode == 6


def test_following_ends_when_nobody_reads(following):
    """Where the reader went away it ends by itself, although nothing happens any more."""
    one = following("--since", "0")
    one.stdout.readline()
    one.stdout.close()

    wait_until(lambda: one.poll() is not None)
    assert one.returncode == 0
    one.stdout = None
