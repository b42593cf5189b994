"""Databases: changes of rows stopped at each step, by a kill, a disk error or a lock of the agent.

`workers/killing_rows.py` carries out the trials.
"""

import json

import pytest

from building.processes import WORKERS, run_trial

PROOF = pytest.mark.long(proves=("store", "sessions", "rewrite", "operations"))
WORKER = WORKERS / "killing_rows.py"
WRITES = {
    "sql BEGIN IMMEDIATE", "sql COMMIT", "sql INSERT INTO journal",
    "sql UPDATE session_windows SET", "sql UPDATE transcript_events SET",
    "sql UPDATE transcript_rewrite_watermarks SET",
}  # fmt: skip
LEAST = {
    ("scan", "kill"): 140, ("restore", "kill"): 90, ("put-back", "kill"): 20,
    ("scan", "eio"): 140, ("restore", "eio"): 90, ("scan", "busy"): 140,
    ("scan", "enospc"): 140, ("restore", "enospc"): 90,
    ("rollback", "kill"): 90, ("rollback", "eio"): 90, ("rollback", "enospc"): 90,
}  # fmt: skip
TRIALS = [
    *(pytest.param(*names, "kinds") for names in (("scan", "kill"), ("rollback", "kill"))),
    *(pytest.param(*names, "all", marks=PROOF) for names in LEAST),
]


@pytest.mark.parametrize(("scenario", "fault", "extent"), TRIALS)
def test_a_stop_at_any_change_loses_no_row_and_no_value(tmp_path, scenario, fault, extent):
    """Stopped before any change, each row is as before or as after, and everything can be undone.

    After recovery every placeholder resolves, both databases are sound, the journal is empty and no
    file stays beside the agent's database; repeating the operation ends as if nothing had happened;
    undoing everything gives back the original columns.
    """
    report = json.loads(run_trial(WORKER, tmp_path, scenario, fault, extent).splitlines()[-1])
    print(f"{scenario}, {fault}: {report['points']} points, {report['outcomes']}")

    assert report["bad"] == []
    assert report["points"] >= LEAST[scenario, fault] or extent == "kinds"
    assert report["points"] >= report["expected"] - 3
    assert set(report["kinds"]) >= WRITES
    if fault == "kill" and scenario != "put-back":
        assert report["outcomes"]["untouched, killed"] > 5
        assert report["outcomes"]["changed, killed"] > 5
