"""Operations stopped at each change to the disk: by a kill, a disk error, or a lock of the agent.

`workers/crash_trial.py` carries out the trials of session files, each once for all tests that use
it, and `workers/crash_trial_rows.py` those of rows in an agent's database.
"""

import fcntl
import json
import os
import shutil

import pytest

from building.processes import WORKERS, run_trial
from building.world import Conversation

REWRITE = {"open", "write", "fsync", "fchmod", "utime", "fcntl", "unlink", "sql"}
# The least number of changes at which each scenario is stopped in the long form.
LEAST = {
    ("rollback", "kill"): 80, ("rollback", "eio"): 80, ("rollback", "enospc"): 80,
    ("scan", "kill"): 140, ("restore", "kill"): 80, ("restore-entry", "kill"): 40,
    ("pin", "kill"): 40, ("unleased", "kill"): 28, ("late", "kill"): 30, ("kept", "kill"): 20,
    ("followed", "kill"): 30, ("beat", "kill"): 30, ("followed", "eio"): 30, ("beat", "eio"): 30,
    ("redact", "kill"): 60, ("expire", "kill"): 10,
    ("archive", "kill"): 60, ("unarchive", "kill"): 40,
    ("archive", "eio"): 40, ("archive", "enospc"): 40, ("unarchive", "eio"): 40,
    ("relieve", "kill"): 60, ("relieve", "eio"): 40,
    ("follow", "kill"): 100, ("follow-undo", "kill"): 80,
    ("follow", "eio"): 80, ("follow-undo", "eio"): 60, ("follow", "enospc"): 80,
    ("scan", "eio"): 100, ("restore", "eio"): 80, ("restore-entry", "eio"): 40,
    ("unleased", "eio"): 28, ("late", "eio"): 30, ("kept", "eio"): 20,
    ("redact", "eio"): 40, ("expire", "eio"): 8,
    ("scan", "enospc"): 100, ("restore", "enospc"): 80, ("restore-entry", "enospc"): 40,
    ("redact", "enospc"): 40, ("expire", "enospc"): 8,
}  # fmt: skip
KINDS = {"expire": {"sql"}}
EXCHANGED = REWRITE | {"exchange"}
TWO_SESSIONS = ("scan", "restore", "rollback")
RACES = ("late", "kept", "followed", "beat")
# Disk errors in the other scenarios take the same paths: only the long form tries them.
SHORT = {
    ("scan", "eio"), ("scan", "enospc"), ("restore", "eio"), ("late", "eio"), ("redact", "enospc"),
    *(names for names in LEAST if names[1] == "kill"),
}  # fmt: skip
LEAST_OF_ROWS = {
    ("scan", "kill"): 140, ("restore", "kill"): 90, ("restore-entry", "kill"): 20,
    ("scan", "eio"): 140, ("restore", "eio"): 90, ("scan", "busy"): 140,
    ("scan", "enospc"): 140, ("restore", "enospc"): 90,
    ("rollback", "kill"): 90, ("rollback", "eio"): 90, ("rollback", "enospc"): 90,
}  # fmt: skip
SHORT_OF_ROWS = {("scan", "kill"), ("rollback", "kill")}
ROW_WRITES = {
    "sql BEGIN IMMEDIATE", "sql COMMIT", "sql INSERT INTO journal",
    "sql UPDATE session_windows SET", "sql UPDATE transcript_events SET",
    "sql UPDATE transcript_rewrite_watermarks SET",
}  # fmt: skip
LONG = pytest.mark.long(proves=("store", "sessions", "rewrite", "operations"))


def trials_of(least, short):
    return pytest.mark.parametrize(("scenario", "fault", "extent"), [
        *(pytest.param(*names, "kinds") for names in least if names in short),
        *(pytest.param(*names, "all", marks=LONG) for names in least),
    ])  # fmt: skip


def write_sessions(place, count):
    """Write sessions with two values each, followed by signatures that break with them.

    Their ids differ, so that one batch rewrites them together.
    """
    place.mkdir(parents=True)
    for number in range(count):
        conversation = Conversation(f"11111111-0000-4000-8000-{number:012}")
        for turn in range(2):
            conversation.turn(f"session {number} turn {turn} " + "x" * 3000)
            thinking = {"type": "thinking", "thinking": "hm", "thinkingSignature": f"sig-{turn}"}
            message = conversation.lines[-1]["message"]
            message |= {"api": "anthropic-messages", "model": "claude-fable-5-1"}
            message["content"].insert(0, thinking)
        (place / f"{number}.jsonl").write_bytes(conversation.bytes())


@pytest.fixture(scope="module")
def trials(tmp_path_factory):
    """Return the directory of the trials, which all workers of a test run share."""
    base = tmp_path_factory.getbasetemp()
    base = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    (base / "kill").mkdir(exist_ok=True)
    return base / "kill"


def trial_report(trials, scenario, fault, extent="kinds"):
    """Return the report of a trial, which is carried out on its first use."""
    place = trials / f"{scenario}-{fault}-{extent}"
    with open(f"{place}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (output := place.with_suffix(".json")).exists():
            shutil.rmtree(place, ignore_errors=True)
            sessions = place / "world/agents/main/sessions"
            write_sessions(sessions, 1 + (scenario in TWO_SESSIONS))
            output.write_text(run_trial(WORKERS / "crash_trial.py", place, scenario, fault, extent))
    report = json.loads(output.read_text().splitlines()[-1])
    print(f"{scenario}, {fault}: {report['points']} points, {report['outcomes']}")
    return report


@trials_of(LEAST, SHORT)
def test_a_stop_at_any_change_loses_no_line_and_no_value(trials, scenario, fault, extent):
    """Stopped before any change to the disk, each session is as before or as after, and undoable.

    After recovery every placeholder resolves, no file stays beside a session, the journal is empty
    and the store sound; repeating the operation ends as if nothing had happened; undoing everything
    gives back the original bytes, mode and times, with every late line in its place. The short form
    stops before the first change of each kind, the long form before every single one.
    """
    report = trial_report(trials, scenario, fault, extent)

    assert report["bad"] == []
    assert report["points"] >= LEAST[scenario, fault] or extent == "kinds"
    assert report["points"] >= report["expected"] - 3 or scenario in RACES
    assert set(report["kinds"]) >= KINDS.get(scenario, EXCHANGED)
    assert "fchown" in report["kinds"] or os.geteuid() != 0 or scenario == "expire"


def test_kills_come_both_before_and_after_the_exchange(trials):
    """In scans and restores more than five kills each leave the session unchanged or changed."""
    outcomes = [trial_report(trials, name, "kill")["outcomes"] for name in ("scan", "restore")]

    assert all(outcome["untouched, killed"] > 5 for outcome in outcomes)
    assert all(outcome["changed, killed"] > 5 for outcome in outcomes)


def test_a_single_disk_error_stops_only_one_of_two_sessions(trials):
    """A disk that fails once costs one session its run; the other one is pruned."""
    outcomes = trial_report(trials, "scan", "eio")["outcomes"]

    assert outcomes["changed, failed"] > 5  # more if root changes owners, too
    assert "untouched, failed" not in outcomes


@trials_of(LEAST_OF_ROWS, SHORT_OF_ROWS)
def test_a_stop_at_any_change_loses_no_row_and_no_value(tmp_path, scenario, fault, extent):
    """Stopped before any change, each row is as before or as after, and everything can be undone.

    After recovery every placeholder resolves, both databases are sound, the journal is empty and no
    file stays beside the agent's database; repeating the operation ends as if nothing had happened;
    undoing everything gives back the original texts.
    """
    worker = WORKERS / "crash_trial_rows.py"
    report = json.loads(run_trial(worker, tmp_path, scenario, fault, extent).splitlines()[-1])
    print(f"{scenario}, {fault}: {report['points']} points, {report['outcomes']}")

    assert report["bad"] == []
    assert report["points"] >= LEAST_OF_ROWS[scenario, fault] or extent == "kinds"
    assert report["points"] >= report["expected"] - 3
    assert set(report["kinds"]) >= ROW_WRITES
    if fault == "kill" and scenario != "restore-entry":
        assert report["outcomes"]["untouched, killed"] > 5
        assert report["outcomes"]["changed, killed"] > 5


@pytest.mark.parametrize(
    ("scenario", "extent", "least"),
    [
        ("restore", "kinds", 20),
        pytest.param("scan", "all", 120, marks=LONG),
        pytest.param("restore", "all", 60, marks=LONG),
    ],
)
def test_a_stop_while_lines_of_codex_move_leaves_no_offset_wrong(tmp_path, scenario, extent, least):
    """Stopped before any change behind the exchange, the index and all forks are right again.

    The recovery mends them, no file stays beside a session, and the operation ends as without it.
    """
    worker = WORKERS / "crash_trial_offsets.py"
    report = json.loads(run_trial(worker, tmp_path, scenario, "kill", extent).splitlines()[-1])
    print(f"{scenario}: {report['points']} points, {report['outcomes']}")

    assert report["bad"] == []
    assert report["points"] >= least
    assert {"exchange", "pwrite", "sql", "unlink"} <= set(report["kinds"])
    assert report["outcomes"]["changed, wrong"] > 5
