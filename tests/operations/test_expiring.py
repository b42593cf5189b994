"""What a retention run writes comes in turns, so that nobody else waits for more than one."""

from contextlib import closing

import pytest

from brainsurgeon import clock as clocks
from brainsurgeon.operations import expiring
from brainsurgeon.operations.retention import retention
from brainsurgeon.store import open_store
from brainsurgeon.store.due import PAGE
from building.rows import begin, count, cut, session
from building.world import Clock

DUE = 2 * PAGE + 7
CHANGES = ("UPDATE EXTRACTIONS", "DELETE FROM BLOBS", "DELETE FROM LOOSE", "UPDATE AGES")


@pytest.fixture
def full(world, monkeypatch):
    """Give a world with more than two pages of values whose stubs stand nowhere any more."""
    world.clock = Clock()
    monkeypatch.setattr(clocks, "boot_clock", world.clock)
    monkeypatch.setattr(expiring, "TURN", 0.0)
    row = session(world.store, root=str(world.root))
    with world.store.transaction():
        shelved = []
        for number in range(DUE):
            value = b"value %d" % number
            blob, digest, _ = world.store.blobs.put(row.agent_id, value, 1.0)
            shelved.append((cut(f"e{number}"), blob, digest, len(value)))
        world.store.extractions.add(row.id, 0, shelved, 1.0)
        world.store._connection.execute(
            "UPDATE extractions SET state = 'standing', journal_id = NULL"
        )
    return world


def run(world):
    """Do one retention run, after what a scan notes."""
    world.clock.now += 60
    with world.store.transaction():
        world.store.facts.note_pass(world.clock.now, [str(world.root)])
    world.clock.now += 60
    return retention(world.settings(), world.store, clock=world.clock)


def transactions(world, act):
    """Count what each transaction changes while something is done."""
    changes = []

    def note(statement):
        text = statement.strip().upper()
        if text.startswith("BEGIN IMMEDIATE"):
            changes.append(0)
        elif text.startswith(CHANGES):
            changes[-1] += 1

    world.store._connection.set_trace_callback(note)
    act()
    world.store._connection.set_trace_callback(None)
    return changes


def test_no_transaction_is_longer_than_a_page(full):
    """Marking and deleting change a bounded number of rows under one lock, whatever is due."""
    reports = []
    marking = transactions(full, lambda: reports.append(run(full)))
    deleting = transactions(full, lambda: reports.append(run(full)))

    assert [one.values_marked for one in reports] == [DUE, 0]
    assert [one.values_deleted for one in reports] == [0, DUE]
    assert DUE <= sum(marking) <= DUE + 10
    assert 2 * DUE <= sum(deleting) <= 2 * DUE + 10
    assert max(marking) <= PAGE
    assert max(deleting) <= 2 * PAGE  # a tombstone and a value each


def test_others_can_write_between_two_pages(full):
    """Whoever wants to write has a turn after each page, and what it writes is respected."""
    run(full)
    with closing(open_store(str(full.state))) as other:
        turns = []

        def write():
            with other.transaction():
                other.expiry.unmark(1, f"e{DUE - 1 - len(turns)}")
                turns.append(1)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(expiring, "give_way", write)
            report = run(full)

    assert len(turns) >= 2
    assert DUE - len(turns) <= report.values_deleted <= DUE - 2
    assert count(full.store, "blobs") == DUE - report.values_deleted


def test_a_run_that_is_killed_between_pages_did_nothing_wrong(full):
    """Each page is whole: a value has its tombstone or its bytes, and the next does the rest."""
    run(full)

    class KilledError(Exception):
        """The end of the process."""

    def die():
        raise KilledError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(expiring, "give_way", die)
        with pytest.raises(KilledError):
            run(full)

    states = "SELECT state, blob_id IS NULL, count(*) FROM extractions GROUP BY 1, 2 ORDER BY 1"
    found = full.store._connection.execute(states).fetchall()
    assert found == [("expired", 1, PAGE), ("standing", 0, DUE - PAGE)]
    assert count(full.store, "blobs") == DUE - PAGE
    assert run(full).values_deleted == DUE - PAGE


def test_nothing_is_deleted_from_the_moment_a_rewrite_begins(full):
    """Each page looks at the journal anew, since a rewrite may begin between two."""
    run(full)
    row = session(full.store, session="two", root=str(full.root))

    def rewrite(once=[]):  # noqa: B006
        if not once:
            once.append(begin(full.store, row))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(expiring, "give_way", rewrite)
        report = run(full)

    assert report.values_deleted == report.blobs_deleted == PAGE
    assert count(full.store, "blobs") == DUE - PAGE
