"""A session in which turns were folded is known wherever it lies and however it was written anew.

What shows whose it is are the entries, the archives among them: the text of each names the id
under which it was written, and says by its digest what else belongs to its entry.
"""

import json
import os
import shutil
import time

import pytest

from brainsurgeon.operations.archive import archive
from brainsurgeon.operations.retention import retention
from building.alike import back_from_a_backup
from building.turns import long_turn, texts
from building.world import LONG_AGO, Clock, Conversation, dump

AT_ONCE = {
    "retention": "1s",
    "keep_recent": 0,
    "archive": {"enabled": True, "token_threshold": 0, "tool_call_threshold": 0, "keep_turns": 0},
}
ONLY_TEXTS = AT_ONCE | {"trigger_types": []}
"""Turns fold, and nothing else is cut: no stub stands anywhere."""
ENDS = "It begins alike. " + "x" * 1500, "y" * 1500 + " It ends alike."


@pytest.fixture(autouse=True)
def clock(world, monkeypatch):
    """Give the world clocks that go only when told."""
    world.clock = Clock(int(time.time()))
    monkeypatch.setattr("brainsurgeon.clock.boot_clock", lambda: world.clock.now)
    return world.clock


def said(first="The first is done.", second="The second is done."):
    """Give a conversation of two turns that fold, whose ids are those of every other one."""
    talk = Conversation()
    for answer in (first, second):
        long_turn(talk, answer=answer)
    return [json.loads(dump(line)) for line in talk.lines]


def write(path, lines):
    """Write a session, last changed long ago."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(map(dump, lines)))
    os.utime(path, (time.time() - LONG_AGO,) * 2)
    return path


def read(path):
    """Give the entries of a session."""
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def write_anew(path, lines):
    """Let the agent write its history anew with new ids; give what it says then, stubs undone."""
    there = read(path)
    for number, (line, true) in enumerate(zip(there[1:], lines[1:], strict=True)):
        for one in (line, true):
            one.update(id=f"new-{number}", parentId=f"new-{number - 1}" if number else None)
    write(path.with_suffix(".writing"), there).rename(path)
    return b"".join(map(dump, lines))


def folded(path):
    """Tell how many turns stand folded in a session."""
    return path.read_bytes().count(b'"[archived turn]')


def to_another_name(world, path):
    """Rename the file."""
    return path.rename(path.with_name("another.jsonl"))


def with_its_agent(world, path):
    """Rename the directory of the agent."""
    (world.root / "main").rename(world.root / "prime")
    return world.root / "prime" / "sessions" / path.name


def to_another_agent(world, path):
    """Move the file into the directory of an agent that has a session of its own."""
    other = world.root / "other" / "sessions"
    write(other / "own.jsonl", Conversation("another").lines)
    return path.rename(other / path.name)


@pytest.mark.parametrize("move", [to_another_name, with_its_agent, to_another_agent])
@pytest.mark.parametrize("settings", [AT_ONCE, ONLY_TEXTS])
@pytest.mark.parametrize("scanned", [False, True])
def test_what_folded_moved_and_was_written_anew_comes_back(world, move, settings, scanned):
    """With no pass in between it is the session still: nothing is deleted, and all goes back."""
    lines = said()
    path = write(world.directory / "s.jsonl", lines)
    world.scan(**settings)
    assert folded(path) == 2
    path = move(world, path)
    whole = write_anew(path, lines)
    keys = world.settings(**settings)
    for _ in range(3 * scanned):
        world.clock.now += 60
        assert not retention(keys, world.store, clock=world.clock).values_deleted
        world.clock.now += 60
        world.scan(**settings)

    assert not any(one.unfinished for one in world.restore_all(pristine=True))
    assert path.read_bytes() == whole


def test_another_agents_copy_written_anew_gets_nothing(world):
    """While the session is there, what was made of a copy of it is named and stays as it is."""
    lines = said()
    path = write(world.directory / "s.jsonl", lines)
    world.scan(**AT_ONCE)
    copy = world.root / "other" / "sessions" / "s.jsonl"
    copy.parent.mkdir(parents=True)
    shutil.copy2(path, copy)
    write_anew(copy, said())
    before = copy.read_bytes()
    done = {one.session: one for one in world.restore_all(pristine=True)}

    assert done["other/s"].unfinished
    assert copy.read_bytes() == before
    assert path.read_bytes() == b"".join(map(dump, lines))


def two_alike(world, directories=("main", "other")):
    """Fold the turns of two sessions that differ only in what their summaries leave out."""
    both = []
    for number, directory in enumerate(directories):
        secret = f" the secret of {number} "
        lines = said(secret.join(ENDS), secret.join(ENDS))
        path = write(world.root / directory / "sessions" / f"{number}.jsonl", lines)
        both.append((path, lines))
    world.scan(**ONLY_TEXTS)
    one, two = (path.read_bytes() for path, _ in both)
    assert one == two
    assert b"[archived turn]" in one
    return both


@pytest.mark.parametrize("anew", [False, True])
def test_where_two_sessions_claim_an_archive_nobody_gets_it(world, anew):
    """Both are gone from their places, and the file is as either left it: it is named."""
    (one, lines), (two, _) = two_alike(world)
    third = write(world.root / "third" / "sessions" / "s.jsonl", read(one))
    if anew:
        write_anew(third, lines)
    for path in (one, two):
        path.unlink()
    before = third.read_bytes()
    done = {one.session: one for one in world.restore_all(pristine=True)}

    assert third.read_bytes() == before
    assert done["third/s"].unfinished


def test_archives_from_a_backup_are_not_exchanged(world):
    """Each file has the inode that the other one had: neither gets the other's text."""
    (one, _), (two, _) = two_alike(world, ("main", "main"))
    back_from_a_backup(world, one, two)
    world.restore_all(pristine=True)

    assert b"secret of 1" not in one.read_bytes()
    assert b"secret of 0" not in two.read_bytes()


def test_a_copy_is_of_the_session_whose_archives_it_holds(world):
    """Two were copies of each other until one of them folded: a third is known by that."""
    lines = said()
    first = write(world.directory / "s.jsonl", lines)
    second = write(world.directory / "t.jsonl", lines)
    archive(world.settings(**ONLY_TEXTS), world.store, str(second), clock=world.clock)
    assert (folded(first), folded(second)) == (0, 2)
    copy = world.directory / "u.jsonl"
    shutil.copy2(second, copy)
    closing = lines[-1]["id"]

    assert not any(one.unfinished for one in world.restore_all(pristine=True))
    assert texts(copy.read_bytes(), closing) == ["The second is done."]
    assert copy.read_bytes() == second.read_bytes() == b"".join(map(dump, lines))
