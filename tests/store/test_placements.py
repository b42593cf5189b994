"""Placements: in which sessions extracted values stand, and since when in none."""

import pytest

from building.store_rows import begin_rewrite, confirm_rewrite, removal, store_session


@pytest.fixture
def row(store):
    row = store_session(store)
    confirm_rewrite(store, row, begin_rewrite(store, row, [removal("e1"), removal("e2")]))
    return row


@pytest.fixture
def fork(store):
    return store_session(store, session="two")


def record(store, row, standing=(), gone=(), missed=(), now=10.0):
    with store.transaction():
        store.placements.record(row.id, standing, gone, missed, now)


def missed(store):
    return store._connection.execute("SELECT * FROM placements").fetchall()


def unplaced(store):
    """Give since when each extraction stands in no session."""
    return [at for (at,) in store._connection.execute("SELECT unplaced_at FROM extractions")]


def state(store):
    return [one.state for one in store.extractions.of_entry("e1")]


def test_what_was_extracted_stands_in_its_session(store, row):
    """A rewrite that happened places its values in the session."""
    assert store.placements.of_session(row.id) == {1, 2}
    assert unplaced(store) == [None, None]


def test_a_value_stands_in_every_session_that_holds_its_placeholder(store, row, fork):
    """A fork holds what it was seen to hold, and no more."""
    record(store, fork, standing=[1])

    assert store.placements.of_session(fork.id) == {1}
    assert store.placements.sessions_of([1]) == {row.id, fork.id}
    assert store.placements.sessions_of([2]) == {row.id}


def test_the_savings_of_a_session_are_of_what_it_holds(store, row, fork):
    """A value counts once for each session in which it stands, also one it was not taken from."""
    record(store, fork, standing=[1])
    values = {ident: count for ident, (count, _) in store.extractions.totals().items()}

    assert values == {row.id: 2, fork.id: 1}


def test_a_value_that_is_gone_from_one_session_may_stand_in_another(store, row, fork):
    """Only when it stands in no session any more the time of its expiry begins."""
    record(store, fork, standing=[1])
    record(store, row, standing=[2], gone=[1], now=20.0)
    assert (unplaced(store), state(store)) == ([None, None], ["standing"])

    record(store, fork, gone=[1], now=30.0)
    assert (unplaced(store), state(store)) == ([30.0, None], ["restored"])


def test_a_value_that_stands_again_is_not_about_to_expire(store, row):
    """Its agent wrote the placeholder back."""
    record(store, row, gone=[1])
    record(store, row, standing=[1, 2])

    assert (unplaced(store), state(store)) == ([None, None], ["standing"])


def test_an_entry_that_is_found_again_was_never_missed(store, row):
    """Being seen ends the time for which it was missed."""
    record(store, row, missed=[2])
    record(store, row, standing=[1, 2])

    assert missed(store) == [(row.id, 1, None), (row.id, 2, None)]


def test_what_is_missed_saves_nothing(store, row):
    """The savings are of what was found by the last look."""
    record(store, row, missed=[1, 2])

    assert store.extractions.totals() == {}


def test_a_look_that_finds_what_is_known_writes_nothing(store, row):
    """Placements that are there stay as they are."""
    before = store._connection.total_changes
    record(store, row, standing=[1, 2])

    assert store._connection.total_changes == before


def test_an_extraction_that_was_replaced_meanwhile_is_left_out(store, row, fork):
    """A fork that was read before its session was extracted again holds the new record."""
    record(store, fork, standing=[1])
    record(store, row, gone=[1])
    confirm_rewrite(store, row, begin_rewrite(store, row, [removal("e1")]))
    record(store, fork, standing=[1])

    assert store.placements.of_session(fork.id) == {3}
