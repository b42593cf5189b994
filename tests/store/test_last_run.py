"""The stored time of the last run."""

from pathlib import Path

import pytest

from brainsurgeon.store import open_to_read
from building.world import Clock


@pytest.fixture
def note_run(store):
    def note(now):
        with store.transaction():
            store.facts.note_run(now)
        return store.facts.last_run_at()

    return note


def test_time_of_an_unchanged_run_is_not_written_to_the_database(directory, note_run):
    """The time of a later run is known to all processes without a write to the database."""
    note_run(1.5)
    before = Path(directory, "store.db").stat()

    assert note_run(2.5) == note_run(2.5) == 2.5
    assert note_run(3.5) == 3.5
    after = Path(directory, "store.db").stat()
    assert (after.st_mtime_ns, after.st_ino) == (before.st_mtime_ns, before.st_ino)
    with open_to_read(str(directory)) as other:
        assert other.facts.last_run_at() == 3.5


def test_lost_time_file_leaves_the_time_of_the_first_run(directory, note_run):
    """If a power cut loses the file with the time, the time of the first run is returned."""
    note_run(1.0)
    note_run(2.0)
    Path(directory, "last_run").unlink()
    with open_to_read(str(directory)) as store:
        assert store.facts.last_run_at() == 1.0

    assert note_run(3.0) == 3.0
    assert note_run(0.5) == 0.5


def test_time_file_of_an_earlier_store_is_replaced(directory, note_run):
    """The first run of a store replaces the time in a file of an earlier store."""
    Path(directory, "last_run").touch()

    assert note_run(1.5) == 1.5


def test_scan_of_an_unchanged_tree_writes_nothing_to_the_database(world, conversation):
    """A scan of an unchanged tree records its time and leaves the database unchanged."""
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
