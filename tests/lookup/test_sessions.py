"""Logs that name no session and begin alike cost the same each, however many there are.

What is counted is work, not time: files opened and rows read for each log.
"""

import os
import sys
import time

import pytest

from brainsurgeon.lookup.sessions import all_sessions
from building.file_moves import generic_log, with_own_id
from building.world import dump

_openings, _counting = [], []


def _heard(event, arguments):
    if _counting and event == "open" and str(arguments[0]).endswith(".jsonl"):
        _openings.append(arguments[0])


sys.addaudithook(_heard)


def in_one_directory(world, number):
    """Give the path of a log beside all others."""
    return world.directory / f"{number:04}.jsonl"


def in_its_own(world, number):
    return world.root / f"agent{number}" / "sessions" / "log.jsonl"


def write(path, data):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    os.utime(path, (time.time() - 86_400,) * 2)
    return path


def opened_by(work):
    _openings.clear()
    _counting.append(True)
    try:
        work()
    finally:
        _counting.clear()
    return len(_openings)


def for_each(world, place, first, last):
    """Write logs of these numbers, and tell how often one is opened for each in a run."""
    paths = [
        write(place(world, number), generic_log(f"secret {number}"))
        for number in range(first, last)
    ]
    opened = opened_by(world.scan)
    assert all(b"[[extracted-msg-3" in path.read_bytes() for path in paths)
    return opened / len(paths)


@pytest.mark.parametrize("place", [in_one_directory, in_its_own])
def test_a_new_log_costs_the_same_however_many_begin_alike(world, place):
    """A first run opens each as often as if it were alone, and none of those seen before."""
    for_each(world, place, 0, 2)
    few = for_each(world, place, 2, 6)
    many = for_each(world, place, 6, 30)

    assert many <= few


@pytest.mark.parametrize("place", [in_one_directory, in_its_own])
def test_a_log_that_grew_costs_the_same_however_many_begin_alike(world, place):
    """So does a run over logs that were appended to."""
    counted = []
    for first, last in ((0, 4), (4, 28)):
        for_each(world, place, first, last)
        for number in range(last):
            path, more = place(world, number), {"type": "message", "__id": f"more-{last}"}
            more.update(role="assistant", content="yes.")
            write(path, path.read_bytes() + dump(more))
        counted.append(opened_by(world.scan) / last)

    assert counted[1] <= counted[0]


def test_logs_that_came_after_others_were_deleted_are_opened_a_few_times(world):
    """What is gone from its place may be any new log: all are compared at one reading of that."""
    for number in range(20):
        write(in_one_directory(world, number), generic_log(f"secret {number}"))
    world.scan()
    for number in range(20):
        in_one_directory(world, number).unlink()
    few = for_each(world, in_one_directory, 100, 102)
    many = for_each(world, in_one_directory, 102, 122)

    assert many <= few


def test_a_session_that_was_restored_and_moved_by_a_copy_is_still_itself(world):
    """Nothing of ours stands in it and its inode is another: its own id tells whose it is."""
    paths = [
        write(in_one_directory(world, number), with_own_id(f"secret {number}"))
        for number in range(3)
    ]
    world.scan()
    world.restore_all(pristine=True)
    moved = write(paths[1].with_name("moved.jsonl"), paths[1].read_bytes())
    kept = [one.id for one in world.store.sessions.all() if one.path == str(paths[1])]
    paths[1].unlink()
    world.scan(keep_recent=50)
    found = {one.record.id for one in sessions_at(world, moved) if one.record}

    assert found == set(kept)


def sessions_at(world, path):
    return [one for one in all_sessions(world.settings(), world.store) if one.path == str(path)]


def test_a_hard_link_hides_no_session(world):
    """A session stays where it was recorded, whichever of its names is met first."""
    path = write(world.root / "main" / "sessions" / "log.jsonl", with_own_id("secret"))
    world.scan()
    other = world.root / "again" / "sessions" / "log.jsonl"
    other.parent.mkdir(parents=True)
    os.link(path, other)
    found = all_sessions(world.settings(), world.store)

    assert {one.path for one in found if one.file} == {str(path), str(other)}
