"""`history`: its table of runs, its events and counts, and `restore --run`."""

import json
import re
import signal
import subprocess

import pytest

from building.processes import INTERRUPTIBLE, PROGRAM, TIMEOUT, error_line, json_output, wait_until
from building.world import sql


@pytest.fixture
def follow(world, entry_id):
    """Yield a function that starts `history --follow` with further arguments."""
    started = []

    def start(*words):
        config = world.config_file()
        started.append(subprocess.Popen(
            [*INTERRUPTIBLE, *PROGRAM, "history", "--follow", *words, "--config", config],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        ))  # fmt: skip
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


def test_history_lists_runs_with_their_totals(cli, entry_id):
    """Each run has a number, command, values and estimated tokens, newest last, in 80 columns."""
    cli("restore", entry_id)
    output = cli("history").stdout.decode()
    [first, second] = json_output(cli("history", "--json"))["runs"]

    assert "1 extracted" in output
    assert "1 restored, 1 field" in output
    assert "650" in output
    assert "tokens: an estimate of how much shorter the next requests" in output
    assert max(map(len, output.splitlines())) <= 80
    assert (first["run_id"], first["command"], first["tokens"]) == (1, "scan", 653)
    assert (second["command"], second["values_restored"]) == ("restore", 1)


def test_history_is_empty_before_the_first_run(cli):
    """Without a store there are no runs, events or counts, and `restore --run` exits 3."""
    assert cli("history").stdout == b"no run has changed anything yet\n"
    assert json_output(cli("history", "--json"))["runs"] == []
    assert cli("history", "--events").stdout == b"no such event; `history` lists the runs\n"
    assert json_output(cli("history", "--events", "--json"))["events"] == []
    assert json_output(cli("history", "--counts", "--json"))["counts"] == []
    assert cli("restore", "--run", "1").returncode == 3


def test_restore_run_undoes_a_run_once(world, cli, entry_id, conversation):
    """`restore --run` restores the bytes from before the run; repeated, it has nothing to undo."""
    path = world.directory / "s.jsonl"
    result = cli("restore", "--run", "1").stdout.decode()

    assert "main/s: rolled back, 1 value restored" in result
    assert path.read_bytes() == conversation.bytes()
    assert "nothing to undo" in cli("restore", "--run", "1").stdout.decode()


def test_restore_run_exits_1_when_a_value_has_expired(world, cli, entry_id):
    """An incomplete rollback lists each value that was not restored, with the reason."""
    sql(world, "UPDATE extractions SET blob_id = NULL, expired_at = 1.0, expired_why = 'test'")
    result = cli("restore", "--run", "1")

    assert result.returncode == 1
    assert f"not done: {entry_id}: expired" in result.stdout.decode()


def test_restore_run_refuses_an_unknown_run(cli, entry_id):
    """An unknown run exits 3 with one line of error. 0 and a number too large exit 2."""
    result = cli("restore", "--run", "99")

    assert result.returncode == 3
    assert "there is no run 99" in error_line(result)
    assert cli("restore", "--run", "0").returncode == 2
    assert "wants the number of a run" in error_line(cli("restore", "--run", "9" * 20))


def test_history_prints_one_line_per_event(cli, entry_id):
    """Each line of `history --events` has the event's id, kind, session and facts."""
    [line] = cli("history", "--events").stdout.decode().splitlines()
    [event] = json_output(cli("history", "--events", "--json"))["events"]

    assert line.startswith("1  ")
    assert "extraction   main/s: 1 value (2,002 B) (run 1)" in line
    assert (event["event_id"], event["session"], event["facts"]["values"]) == (1, "main/s", 1)


@pytest.mark.parametrize("zone", ["Asia/Tokyo", "America/New_York", "UTC0"])
def test_history_since_a_time_that_it_printed_lists_the_event(world, cli, entry_id, zone):
    """`--since` takes a time as `history` prints it, and reads it as local time without a zone."""
    at = 1_795_275_520  # 2026-11-21 15:38:40 in UTC
    sql(world, "UPDATE events SET at = ?", (at,))
    sql(world, "UPDATE runs SET at = ?", (at,))
    line, runs = (cli("history", *words, TZ=zone).stdout.decode() for words in (["--events"], []))
    [second] = re.findall(r"2026-11-2. ..:..:.. \w+", line)
    [minute] = re.findall(r"2026-11-2. ..:..", runs)

    for printed in (second, minute, "2026-11-21T15:38:40Z"):
        assert cli("history", "--since", printed, TZ=zone).stdout.decode() == line
    later = cli("history", "--since", "2026-11-21T15:38:41Z", TZ=zone)
    assert later.stdout.startswith(b"no such event")
    assert cli("history", "--since", "2026-11-21 15:38:40 XYZ", TZ=zone).returncode == 2


def test_history_counts_values_by_kind_and_tool(cli, entry_id):
    """`--counts` sums extracted and restored values by kind and tool, and refuses `--follow`."""
    output = cli("history", "--counts").stdout.decode()

    assert "tool_result  exec" in output
    assert json_output(cli("history", "--counts", "--json"))["counts"] == [
        {"kind": "tool_result", "tool": "exec", "values_extracted": 1, "chars": 2000,
         "values_restored": 0, "chars_restored": 0},
    ]  # fmt: skip
    refused = cli("history", "--counts", "--follow", "--json")
    assert (refused.returncode, refused.stdout) == (2, b"")  # no event was printed


@pytest.mark.parametrize("signal_number", [signal.SIGINT, signal.SIGTERM])
def test_follow_ends_silently_on_a_signal(follow, signal_number):
    """SIGINT ends `--follow` with code 0, SIGTERM with 143, and neither with further output."""
    process = follow("--since", "0", "--json")
    first = json.loads(process.stdout.readline())
    process.send_signal(signal_number)
    out, err = process.communicate(timeout=TIMEOUT)

    assert (first["schema"], first["kind"]) == (1, "extraction")
    assert (out, err) == (b"", b"")
    assert process.returncode == (0 if signal_number == signal.SIGINT else 128 + signal_number)


def test_follow_prints_events_of_other_processes(follow, cli, entry_id):
    """`--follow` prints an event that another process records after it started."""
    process = follow("--since", "1", "--json")
    cli("restore", entry_id)

    assert json.loads(process.stdout.readline())["kind"] == "restoration"


def test_follow_exits_6_when_the_store_is_replaced(world, follow, cli, entry_id):
    """A replaced store ends `--follow` with exit code 6 and one line that says to start again."""
    backup = world.base / "backup.db"
    cli("store", "backup", str(backup))
    process = follow("--since", "0", "--json")
    process.stdout.readline()
    assert cli("store", "restore", str(backup), "--yes").returncode == 0
    _, output = process.communicate(timeout=TIMEOUT)

    assert output.decode().startswith("brainsurgeon: the store was replaced or removed; start")
    assert process.returncode == 6


def test_follow_ends_when_its_reader_is_gone(follow):
    """`--follow` exits 0 once its output pipe is closed, even if no further event happens."""
    process = follow("--since", "0")
    process.stdout.readline()
    process.stdout.close()

    wait_until(lambda: process.poll() is not None)
    assert process.returncode == 0
    process.stdout = None
