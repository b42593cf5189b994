"""Placements: sessions that hold an extracted value, and times without any."""

import pytest

from building.store_rows import extract, removal, store_session


@pytest.fixture
def row(store):
    row = store_session(store)
    extract(store, row, removal("e1"), removal("e2"))
    return row


@pytest.fixture
def fork(store):
    return store_session(store, session="two")


def record(store, row, placed=(), lost=(), missed=(), now=10.0):
    with store.transaction():
        store.placements.record(row.id, placed, lost, missed, now)


def missed(store):
    return store._connection.execute("SELECT * FROM placements").fetchall()


def unplaced(store):
    """Return since when each extraction is in no session."""
    return [at for (at,) in store._connection.execute("SELECT unplaced_at FROM extractions")]


def states(store):
    return [extraction.state for extraction in store.extractions.of_entry("e1")]


def test_confirmed_extractions_are_placed_in_their_session(store, row):
    """Confirming a rewrite places its extractions in the session."""
    assert store.placements.of_session(row.id) == {1, 2}
    assert unplaced(store) == [None, None]


def test_value_is_placed_and_counted_in_each_session(store, row, fork):
    """A value is placed and counted in its session and in each fork in which it was seen."""
    record(store, fork, placed=[1])
    counts = {ident: total.values for ident, total in store.extractions.totals().items()}

    assert store.placements.of_session(fork.id) == {1}
    assert store.placements.sessions_of([1, 2]) == {1: [row.id, fork.id], 2: [row.id]}
    assert counts == {row.id: 2, fork.id: 1}


def test_value_is_unplaced_when_the_last_session_loses_it(store, row, fork):
    """A value becomes unplaced and restored only when the last session has lost it."""
    record(store, fork, placed=[1])
    record(store, row, placed=[2], lost=[1], now=20.0)
    assert (unplaced(store), states(store)) == ([None, None], ["standing"])

    record(store, fork, lost=[1], now=30.0)
    assert (unplaced(store), states(store)) == ([-30.0, None], ["restored"])


def test_value_that_is_placed_again_is_not_unplaced(store, row):
    """A value whose placeholder the agent wrote back is standing again."""
    record(store, row, lost=[1])
    record(store, row, placed=[1, 2])

    assert (unplaced(store), states(store)) == ([None, None], ["standing"])


def test_value_that_is_found_again_is_not_missed(store, row):
    """The time for which a value was missed ends when it is found again."""
    record(store, row, missed=[2])
    record(store, row, placed=[1, 2])

    assert missed(store) == [(row.id, 1, None), (row.id, 2, None)]


def test_missed_values_are_not_in_the_totals(store, row):
    """The totals count only the values that the last scan found."""
    record(store, row, missed=[1, 2])

    assert store.extractions.totals() == {}


def test_recording_known_placements_writes_nothing(store, row):
    """Recording placements that are already known changes no row."""
    before = store._connection.total_changes
    record(store, row, placed=[1, 2])

    assert store._connection.total_changes == before


def test_placement_of_a_replaced_extraction_is_ignored(store, row, fork):
    """A fork read before its session was extracted again holds the new record only."""
    record(store, fork, placed=[1])
    record(store, row, lost=[1])
    extract(store, row, removal("e1"))
    record(store, fork, placed=[1])

    assert store.placements.of_session(fork.id) == {3}
