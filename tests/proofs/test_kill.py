"""Stopped between any two steps: killed, or told by the disk that it cannot.

The trials are carried out by `workers/killing.py`, each once for all tests that ask for it.
"""

import fcntl
import json
import os
import shutil

import pytest

from building.processes import WORKERS, run_trial
from building.world import Conversation

WORKER = WORKERS / "killing.py"
KNIFE = {"open", "write", "copy_file_range", "fsync", "fchmod", "utime", "fcntl", "unlink", "sql"}
LEAST = {
    ("rollback", "kill"): 80, ("rollback", "eio"): 80, ("rollback", "enospc"): 80,
    ("scan", "kill"): 140, ("restore", "kill"): 80, ("pin", "kill"): 40, ("put-back", "kill"): 40,
    ("unleased", "kill"): 28, ("late", "kill"): 30, ("kept", "kill"): 20,
    ("followed", "kill"): 30, ("beat", "kill"): 30, ("followed", "eio"): 30, ("beat", "eio"): 30,
    ("redact", "kill"): 60, ("let-go", "kill"): 10,
    ("archive", "kill"): 60, ("unarchive", "kill"): 40,
    ("archive", "eio"): 40, ("archive", "enospc"): 40, ("unarchive", "eio"): 40,
    ("relieve", "kill"): 60, ("relieve", "eio"): 40,
    ("follow", "kill"): 100, ("follow-undo", "kill"): 80,
    ("follow", "eio"): 80, ("follow-undo", "eio"): 60, ("follow", "enospc"): 80,
    ("scan", "eio"): 100, ("restore", "eio"): 80, ("put-back", "eio"): 40,
    ("unleased", "eio"): 28, ("late", "eio"): 30, ("kept", "eio"): 20,
    ("redact", "eio"): 40, ("let-go", "eio"): 8,
    ("scan", "enospc"): 100, ("restore", "enospc"): 80, ("put-back", "enospc"): 40,
    ("redact", "enospc"): 40, ("let-go", "enospc"): 8,
}  # fmt: skip
KINDS = {"let-go": {"sql"}}
EXCHANGED = KNIFE | {"exchange"}
TWO_SESSIONS = ("scan", "restore", "rollback")
LONG = pytest.mark.long(proves=("store", "sessions", "rewrite", "operations"))
# What a failing disk does to the other scenarios is proved at length: they go the same ways.
ALWAYS = {
    ("scan", "eio"), ("scan", "enospc"), ("restore", "eio"), ("late", "eio"), ("redact", "enospc"),
}  # fmt: skip
TRIALS = [
    *(pytest.param(*one, "kinds") for one in LEAST if one[1] == "kill" or one in ALWAYS),
    *(pytest.param(*one, "all", marks=LONG) for one in LEAST),
]
RACES = ("late", "kept", "followed", "beat")


def sessions(place, count):
    """Write sessions with two values to cut in each, and with signatures behind them that break.

    They are conversations of their own, so that they are carried out together.
    """
    place.mkdir(parents=True)
    for number in range(count):
        conversation = Conversation(f"11111111-0000-4000-8000-{number:012}")
        for turn in range(2):
            conversation.turn(f"session {number} turn {turn} " + "x" * 3000)
            thought = {"type": "thinking", "thinking": "hm", "thinkingSignature": f"sig-{turn}"}
            said = conversation.lines[-1]["message"]
            said |= {"api": "anthropic-messages", "model": "claude-fable-5-1"}
            said["content"].insert(0, thought)
        (place / f"{number}.jsonl").write_bytes(conversation.bytes())


@pytest.fixture(scope="module")
def trials(tmp_path_factory):
    """Give the directory of the trials, which all workers of a run share."""
    base = tmp_path_factory.getbasetemp()
    base = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    (base / "kill").mkdir(exist_ok=True)
    return base / "kill"


def found(trials, scenario, fault, extent="kinds"):
    """Return the findings of one trial, which is carried out when it is first asked for."""
    place = trials / f"{scenario}-{fault}-{extent}"
    with open(f"{place}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (told := place.with_suffix(".json")).exists():
            shutil.rmtree(place, ignore_errors=True)
            sessions(place / "world/agents/main/sessions", 1 + (scenario in TWO_SESSIONS))
            told.write_text(run_trial(WORKER, place, scenario, fault, extent))
    report = json.loads(told.read_text().splitlines()[-1])
    print(f"{scenario}, {fault}: {report['points']} points, {report['outcomes']}")
    return report


@pytest.mark.parametrize(("scenario", "fault", "extent"), TRIALS)
def test_nothing_is_lost_wherever_it_stops(trials, scenario, fault, extent):
    """Stopped at any change to the disk, each session is as before or as after, and undoable.

    After recovery every placeholder resolves, nothing of ours stands beside a session, the journal
    is empty and the store whole; doing it again ends as if nothing had happened; undoing everything
    gives back the original bytes, mode and times, with every late line in its place. Before each
    commit that happens to be for each kind of change, in a long run for every single one.
    """
    report = found(trials, scenario, fault, extent)

    assert report["bad"] == []
    assert report["points"] >= LEAST[scenario, fault] or extent == "kinds"
    assert report["points"] >= report["expected"] - 3 or scenario in RACES
    assert set(report["kinds"]) >= KINDS.get(scenario, EXCHANGED)
    assert "fchown" in report["kinds"] or os.geteuid() != 0 or scenario == "let-go"


def test_the_kills_come_before_and_after_the_exchange(trials):
    """The points at which the process is killed lie on both sides of the moment that counts."""
    outcomes = [found(trials, scenario, "kill")["outcomes"] for scenario in ("scan", "restore")]

    assert all(one["untouched, killed"] > 5 for one in outcomes)
    assert all(one["changed, killed"] > 5 for one in outcomes)


def test_every_session_gets_its_turn_when_one_fails(trials):
    """A disk that fails once costs one session its run; the other one is pruned."""
    outcomes = found(trials, "scan", "eio")["outcomes"]

    assert outcomes["changed, failed"] > 10
    assert "untouched, failed" not in outcomes
