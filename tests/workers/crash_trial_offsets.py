"""Stop a change that moves lines of Codex at each of its changes to the disk; check every offset.

    python crash_trial_offsets.py BASE SCENARIO FAULT EXTENT

Like `crash_trial.py`, whose shim it uses. The home of Codex is in BASE/world.
"""

import collections
import gc
import json
import shutil
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
from crash_trial import KILLED, Shim, _store_problems, hurry, points_to_stop_at, run_forked

from brainsurgeon import config
from brainsurgeon.operations.restore import restore_all
from brainsurgeon.operations.scan import scan
from brainsurgeon.rewrite import recover
from brainsurgeon.store import open_store
from building.codex import CodexWorld, edges
from building.imports import import_everything

MOVING = "exchange"


def settings(world):
    return config.Settings.model_validate({
        "roots": [{"path": str(world.root), "shrink": True}], "state_dir": str(world.state),
        "quiet_seconds": 0, "min_reclaim": 0, "keep_recent": 0,
    })  # fmt: skip


def prune(world, store):
    scan(settings(world), store)


def undo(world, store):
    """Restore the thread in which others begin."""
    thread = min(world.directory.glob("*.jsonl")).stem
    restore_all(settings(world), store, clock=time.time, session=thread)


SCENARIOS = {"scan": prune, "restore": undo}


def contents(world):
    return {path.name: path.read_bytes() for path in world.directory.glob("*.jsonl")}


def prepare(base, scenario):
    """Make a thread, a fork of it and one of the fork; later ones, if it is pruned already."""
    world = CodexWorld(base / "world")
    thread = world.thread(1)
    if scenario == "restore":
        world.index(thread)
        hurry()
        store = open_store(str(world.state))
        prune(world, store)
        store.close()
    fork = world.thread(2, base=(thread, max(edges(thread))))
    last = world.thread(3, 2, base=(fork, max(edges(fork)) - 7))
    (world.root / "thread_history_1.sqlite").unlink(missing_ok=True)
    world.index(thread, fork, last)
    return sorted(path.name for path in (thread, fork, last))


def stopped(world, scenario, fault, at):
    hurry()
    shim = Shim(fault if at else "none", at)
    shim.install()
    store = open_store(str(world.state))
    SCENARIOS[scenario](world, store)
    store.close()
    return shim.points


def check(world, scenario, before, after):
    """Recover in a fresh process; return the problems."""
    hurry()
    store = open_store(str(world.state))
    recover.recover(store)
    bad = [f"wrong after the recovery: {one}" for one in world.offsets()[0]]
    bad += [f"left beside: {name}" for name in world.leftovers()]
    bad += _store_problems(store)
    SCENARIOS[scenario](world, store)
    SCENARIOS[scenario](world, store)
    if {name: data.split() for name, data in contents(world).items()} != after:
        bad.append("doing it again does not lead to the end")
    bad += [f"wrong in the end: {one}" for one in world.offsets()[0]]
    store.close()
    return bad


def opened(place):
    world = CodexWorld.__new__(CodexWorld)
    world.base, world.root, world.state = place, place / "agents", place / "state"
    world.directory = world.root / "sessions" / "2026" / "11" / "28"
    return world


def main(base, scenario, fault, extent):
    base = Path(base)
    import_everything()
    gc.disable()
    gc.freeze()
    run_forked(prepare, base, scenario)
    template, place = base / "template", base / "world"
    place.rename(template)

    def reset():
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(template, place)
        return opened(place)

    world = reset()
    before = contents(world)
    _, points = run_forked(stopped, world, scenario, fault, 0)
    run_forked(stopped, world, scenario, fault, 0)
    after = {name: data.split() for name, data in contents(world).items()}
    first = points.index(MOVING) + 1
    outcomes, bad, hits = collections.Counter(), [], 0
    for at in points_to_stop_at(points, first, extent):
        world = reset()
        code, _ = run_forked(stopped, world, scenario, fault, at)
        if code != KILLED:
            break
        hits += 1
        wrong = world.offsets()[0]
        changed = contents(world) != before
        outcomes[f"{'changed' if changed else 'untouched'}, {'wrong' if wrong else 'right'}"] += 1
        code, problems = run_forked(check, world, scenario, before, after)
        if code or problems:
            bad.append([at, points[at - 1], problems or code])
    print(json.dumps({
        "points": hits, "expected": len(points) - first + 1, "outcomes": outcomes, "bad": bad,
        "kinds": sorted({point.split()[0] for point in points[first - 1 :]}),
    }))  # fmt: skip


if __name__ == "__main__":
    main(*sys.argv[1:])
