"""The cost of logs without an id that begin alike, counted in files opened for each."""

import os
import sys

import pytest

from brainsurgeon.errors import AmbiguousError
from brainsurgeon.lookup.sessions import Session, all_sessions, of_agent_named, session_among
from brainsurgeon.model.text import short_titles
from building.file_moves import generic_log, with_own_id, write_old_session
from building.world import dump

_openings, _counting = [], []


def _count_opening(event, arguments):
    if _counting and event == "open" and str(arguments[0]).endswith(".jsonl"):
        _openings.append(arguments[0])


sys.addaudithook(_count_opening)


def in_shared_directory(world, number):
    return world.directory / f"{number:04}.jsonl"


def in_own_directory(world, number):
    return world.root / f"agent{number}" / "sessions" / "log.jsonl"


def count_openings(work):
    _openings.clear()
    _counting.append(True)
    try:
        work()
    finally:
        _counting.clear()
    return len(_openings)


def openings_per_log(world, place, first, last):
    """Write logs with these numbers; return how often each is opened in a run."""
    paths = [
        write_old_session(place(world, number), generic_log(f"secret {number}"))[0]
        for number in range(first, last)
    ]
    openings = count_openings(world.scan)
    assert all(b"[[extracted-msg-3" in path.read_bytes() for path in paths)
    return openings / len(paths)


@pytest.mark.parametrize("place", [in_shared_directory, in_own_directory])
def test_a_new_log_is_opened_no_more_among_many(world, place):
    """A first run opens each new log no more often beside many alike than beside few."""
    openings_per_log(world, place, 0, 2)
    few = openings_per_log(world, place, 2, 6)
    many = openings_per_log(world, place, 6, 30)

    assert many <= few


@pytest.mark.parametrize("place", [in_shared_directory, in_own_directory])
def test_a_grown_log_is_opened_no_more_among_many(world, place):
    """A run over logs that grew opens each no more often beside many alike than beside few."""
    openings = []
    for first, last in ((0, 4), (4, 28)):
        openings_per_log(world, place, first, last)
        for number in range(last):
            path, more = place(world, number), {"type": "message", "__id": f"more-{last}"}
            more.update(role="assistant", content="yes.")
            write_old_session(path, path.read_bytes() + dump(more))
        openings.append(count_openings(world.scan) / last)

    assert openings[1] <= openings[0]


def test_new_logs_after_deleted_ones_are_opened_few_times(world):
    """Deleted logs may be any new log, but comparing them opens no log more often."""
    for number in range(20):
        write_old_session(in_shared_directory(world, number), generic_log(f"secret {number}"))
    world.scan()
    for number in range(20):
        in_shared_directory(world, number).unlink()
    few = openings_per_log(world, in_shared_directory, 100, 102)
    many = openings_per_log(world, in_shared_directory, 102, 122)

    assert many <= few


def test_a_restored_session_moved_by_copy_keeps_its_record(world):
    """Without placeholders and with another inode, a session is recognised by its own id."""
    paths = [
        write_old_session(in_shared_directory(world, number), with_own_id(f"secret {number}"))[0]
        for number in range(3)
    ]
    world.scan()
    world.restore_all(pristine=True)
    moved, _ = write_old_session(paths[1].with_name("moved.jsonl"), paths[1].read_bytes())
    recorded = [
        session.id for session in world.store.sessions.all() if session.path == str(paths[1])
    ]
    paths[1].unlink()
    world.scan(keep_recent=50)
    recognised = {session.record.id for session in sessions_at(world, moved) if session.record}

    assert recognised == set(recorded)


def sessions_at(world, path):
    return [
        session
        for session in all_sessions(world.settings(), world.store)
        if session.path == str(path)
    ]


def test_a_hard_link_is_listed_beside_its_session(world):
    """A session stays listed at its recorded path when another directory links to it."""
    path, _ = write_old_session(world.directory / "log.jsonl", with_own_id("secret"))
    world.scan()
    other = world.root / "again" / "sessions" / "log.jsonl"
    other.parent.mkdir(parents=True)
    os.link(path, other)
    sessions = all_sessions(world.settings(), world.store)

    assert {session.path for session in sessions if session.file} == {str(path), str(other)}


def test_an_agent_is_called_as_in_short_names_of_its_sessions():
    """An agent whose whole name it is goes first."""
    agents = ("claude-code:-home-me-demo", "claude-code:-home-me-main", "main")
    listed = [Session(f"{agent}/s", f"/{agent}.jsonl", None, None) for agent in agents]

    for name, agent in (("demo", agents[0]), (agents[1], agents[1]), ("main", "main")):
        assert [session.agent for session in of_agent_named(listed, name)] == [agent]
    assert of_agent_named(listed, "me-demo") == []


def test_short_title_finds_its_session():
    """What a list prints on a terminal can be pasted, also with less or more of the id."""
    titles = [
        f"claude-code:-home-me-{name}/5a5a5a5a-1111-4111-8111-00000000000{number}"
        for number, name in enumerate(("demo", "other-demo", "else"))
    ]
    listed = [Session(title, f"/{at}.jsonl", None, None) for at, title in enumerate(titles)]

    for title, short in short_titles(titles).items():
        assert session_among(listed, short).title == title
    for name in ("else/5a5a5a5a", "else/5a5a", f"else{titles[2][-37:]}"):
        assert session_among(listed, name).title == titles[2]
    with pytest.raises(AmbiguousError, match="demo/5a5a5a5a"):
        session_among(listed, "demo/5a5a5a5a")
