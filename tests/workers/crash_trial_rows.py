"""Stop a change of rows at each of its changes, and check the recovery.

    python crash_trial_rows.py BASE SCENARIO FAULT EXTENT

Like `crash_trial.py`, whose shim it uses, for sessions in OpenClaw's own database. The database is
in BASE/world, in its program's layout; the fault `busy` means that the agent keeps the lock.
"""

import collections
import contextlib
import gc
import json
import shutil
import sqlite3
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
from crash_trial import (
    KILLED,
    PLACEHOLDER,
    Shim,
    _store_problems,
    hurry,
    points_to_stop_at,
    run_forked,
)

from brainsurgeon import config
from brainsurgeon.agents import rows
from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.operations.restore import restore, restore_all, rollback
from brainsurgeon.operations.scan import scan
from brainsurgeon.planning import row_steps
from brainsurgeon.rewrite import recover
from brainsurgeon.store import open_store
from building.claw import COMPACTED, LATER, REWOUND, Claw, plain_connection
from building.imports import import_everything
from building.store_rows import is_restorable

SESSIONS = (COMPACTED, REWOUND)
ROWS_A_STEP = 2
QUIET = 60
CODES = {"eio": "SQLITE_IOERR_WRITE", "enospc": "SQLITE_FULL", "busy": "SQLITE_BUSY"}


class World:
    """The database of one scenario, and its store."""

    def __init__(self, base):
        self.base = Path(base)
        self.template, self.place = self.base / "template", self.base / "world"
        self.settings = config.Settings.model_validate({
            "roots": [{"path": str(self.place / "claw" / "agents")}],
            "state_dir": str(self.place / "state"), "min_reclaim": 0, "keep_recent": 0,
        })  # fmt: skip

    @property
    def claw(self):
        return Claw(self.place / "claw", version=None)

    def make(self):
        claw = Claw(self.place / "claw")
        with contextlib.closing(plain_connection(claw.path)) as agent:
            agent.execute("PRAGMA foreign_keys = ON")  # the rows of a session go with it
            agent.execute("DELETE FROM session_windows WHERE session_id NOT IN (?, ?)", SESSIONS)

    def reset(self):
        shutil.rmtree(self.place, ignore_errors=True)
        shutil.copytree(self.template, self.place)

    def texts(self):
        return {
            session: [text.decode() for text in self.claw.texts(session)] for session in SESSIONS
        }


MOMENT = [LATER]


def clock():
    return MOMENT[0]


def prune(world, store):
    report = scan(world.settings, store, clock=clock)
    deferred = any(session.outcome == "deferred" for session in report.sessions)
    return {"failed": report.failed or bool(report.interrupted), "deferred": deferred}


def undo(world, store):
    answers = restore_all(world.settings, store, clock=clock, pristine=True)
    return {"failed": any(answer.state == "failed" for answer in answers), "deferred": False}


def roll_back(world, store):
    report = rollback(world.settings, store, 1, clock=clock)
    return {"failed": any(session.unfinished for session in report.sessions), "deferred": False}


def restore_one(world, store):
    """Restore one value, with the field that records it."""
    with contextlib.suppress(BrainsurgeonError):
        ident = next(
            json.loads(text)["id"]
            for text in world.claw.texts(COMPACTED)
            if PLACEHOLDER.search(text)
        )
        restore(world.settings, store, ident, clock=clock, session=COMPACTED)
    return {"failed": False, "deferred": False}


ACTS = {"scan": prune, "restore": undo, "rollback": roll_back, "restore-entry": restore_one}


class RowShim(Shim):
    """Counts as its parent does; a lock that the agent keeps is a failure that happens once."""

    def __init__(self, fault, at):
        super().__init__("eio" if fault == "busy" else fault, at)
        self.code = CODES.get(fault)

    def _connection(self):
        parent, code = super()._connection(), self.code

        class Connection(parent):
            def _failed(self):
                error = super()._failed()
                error.sqlite_errorname = code
                return error

        return Connection


def prepare():
    hurry()
    rows.PAUSE = 0.0
    row_steps.MOST_ROWS = ROWS_A_STEP


def run(world, scenario, fault, at):
    prepare()
    shim = RowShim(fault, at)
    shim.install()
    answer = {"raised": None, "opened": 1 << 20}
    try:
        store = open_store(str(world.place / "state"))
        answer["opened"] = len(shim.points)
        try:
            answer.update(ACTS[scenario](world, store))
        finally:
            store.close()
    except (BrainsurgeonError, OSError, sqlite3.Error) as error:
        answer["raised"] = type(error).__name__
    return {**answer, "points": shim.points}


def completed(world, scenario):
    """Do the operation to its end; return the text of every row."""
    prepare()
    store = open_store(str(world.place / "state"))
    ACTS[scenario](world, store)
    store.close()
    return world.texts()


def started(world, scenario):
    """Make the database, and extract first if the scenario needs placeholders."""
    prepare()
    world.make()
    original = world.texts()
    store = open_store(str(world.place / "state"))
    if scenario != "scan":
        prune(world, store)
    store.close()
    return original


def check(world, scenario, before, after, original):
    """Recover in a fresh process; return the problems."""
    prepare()
    bad = []
    store = open_store(str(world.place / "state"))
    recover.recover(store)
    for session, texts in world.texts().items():
        for seq, text in enumerate(texts):
            allowed = (_plain(before[session][seq]), _plain(after[session][seq]))
            if _plain(text) not in allowed:
                bad.append(f"row {seq} of {session} is neither as before nor as after")
        bad += [f"{placeholder!r} resolves to nothing"
                for text in texts for placeholder in PLACEHOLDER.findall(text.encode())
                if not is_restorable(store, placeholder.decode())]  # fmt: skip
    bad += world.claw.sound() + _store_problems(store)
    MOMENT[0] += QUIET  # what was written last may not be known as ours any more
    ACTS[scenario](world, store)
    current = {session: [*map(_plain, texts)] for session, texts in world.texts().items()}
    if scenario != "restore-entry" and current != {
        session: [*map(_plain, texts)] for session, texts in after.items()
    }:
        bad.append("doing it again does not lead to the end")
    undo(world, store)
    if world.texts() != original:
        bad.append("undoing everything does not give back the original texts")
    bad += world.claw.sound() + _store_problems(store)
    left = [path.name for path in world.claw.path.parent.iterdir()]
    if left != ["openclaw-agent.sqlite"]:
        bad.append(f"left beside: {left}")
    store.close()
    return bad


def _plain(text):
    """Return the text without the time in its restoration field."""
    entry = json.loads(text)
    return json.dumps(entry | ({"_restored": True} if "_restored" in entry else {}))


def main(base, scenario, fault, extent):
    world = World(base)
    import_everything()
    gc.disable()
    gc.freeze()
    code, original = run_forked(started, world, scenario)
    assert not code, original
    world.place.rename(world.template)
    world.reset()
    before = world.texts()
    _, after = run_forked(completed, world, scenario)
    world.reset()
    _, complete = run_forked(run, world, scenario, "none", 0)
    first = complete["opened"] + 1
    outcomes, bad, hits, points = collections.Counter(), [], 0, complete["points"]
    for at in points_to_stop_at(points, first, extent):
        world.reset()
        code, answer = run_forked(run, world, scenario, fault, at)
        if code != KILLED and not (answer and len(answer.get("points", ())) >= at):
            break  # all points were tried
        hits += 1
        label = (answer or complete).get("points", points)[at - 1 : at]
        changed = world.texts() != before
        ending = "killed" if code == KILLED else (answer or {}).get("raised") or "went on"
        outcomes[f"{'changed' if changed else 'untouched'}, {ending}"] += 1
        if code not in (0, KILLED) or "broken" in (answer or {}):
            bad.append([at, label, answer or code])
        code, problems = run_forked(check, world, scenario, before, after, original)
        if code or problems:
            bad.append([at, label, problems or f"the check died ({code})"])
    expected = len(points) - first + 1 if extent == "all" else len(set(points[first - 1 :]))
    print(json.dumps({
        "scenario": scenario, "fault": fault, "points": hits,
        "expected": expected,
        "kinds": sorted(set(points)), "outcomes": outcomes, "bad": bad,
    }))  # fmt: skip


if __name__ == "__main__":
    main(*sys.argv[1:])
