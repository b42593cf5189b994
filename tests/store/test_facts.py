"""Single facts: the moment of a run that found everything as the one before did."""

from pathlib import Path

import pytest

from brainsurgeon.store import open_to_read
from building.world import Clock


@pytest.fixture
def note(store):
    def pass_(now):
        with store.transaction():
            store.facts.note_run(now)
        return store.facts.last_run_at()

    return pass_


def test_a_run_that_found_the_same_leaves_the_database_alone(directory, note):
    """Its moment is known all the same, to this process and to others, and nothing is synced."""
    note(1.5)
    before = Path(directory, "store.db").stat()

    assert note(2.5) == note(2.5) == 2.5
    assert note(3.5) == 3.5
    after = Path(directory, "store.db").stat()
    assert (after.st_mtime_ns, after.st_ino) == (before.st_mtime_ns, before.st_ino)
    with open_to_read(str(directory)) as other:
        assert other.facts.last_run_at() == 3.5


def test_a_lost_moment_is_the_first_one(directory, note):
    """If a power cut left no file with the moment, that of the first run stands."""
    note(1.0)
    note(2.0)
    Path(directory, "last_run").unlink()
    with open_to_read(str(directory)) as store:
        assert store.facts.last_run_at() == 1.0

    assert note(3.0) == 3.0
    assert note(0.5) == 0.5


def test_the_moment_that_an_earlier_store_left_is_not_this_ones(directory, note):
    """The first run of a store replaces the moment in a file that was there already."""
    Path(directory, "last_run").touch()

    assert note(1.5) == 1.5


def test_an_unchanged_tree_has_the_database_left_alone(world, conversation):
    """A second run over what did not change does not write to the database at all."""
    conversation.turn()
    conversation.turn("short")
    world.put("s.jsonl", conversation.bytes())
    world.clock = Clock()
    world.scan()
    world.scan()
    before = (world.state / "store.db").stat().st_mtime_ns
    world.clock.now += 30

    assert world.scan().files_unchanged == 1
    assert (world.state / "store.db").stat().st_mtime_ns == before
    assert world.store.facts.last_run_at() == world.clock.now
