"""Extractions: found by the ids in placeholders, by entries, by the sessions that hold them."""

import pytest

from brainsurgeon.errors import BusyError
from brainsurgeon.model.entries import placeholder_id
from building.store_rows import begin_rewrite, confirm_rewrite, removal, store_session


def extract(store, row, entry, value=b"value"):
    confirm_rewrite(store, row, begin_rewrite(store, row, [removal(entry)], value))


def names(found):
    return [one.name for one in found]


@pytest.fixture
def rows(store):
    """Give two sessions with three values of one entry id, one of them shared, and another's."""
    one, other = store_session(store, session="one"), store_session(store, session="two")
    extract(store, one, "e1", b"first")
    extract(store, other, "e1", b"second")
    extract(store, other, "e1", b"first")
    extract(store, one, "e10")
    return one, other


def test_the_id_of_an_entry_finds_all_of_its_placeholders(store, rows):
    """Whatever their numbers, in whichever sessions; not those of ids that begin alike."""
    assert names(store.extractions.of_entry("e1")) == ["e1", "e1~2", "e1"]
    assert names(store.extractions.of_entry("e10")) == ["e10"]
    assert store.extractions.of_entry("e") == []


def test_an_id_with_a_number_finds_that_placeholder_alone(store, rows):
    """What was pasted out of a file means the very value that stands there."""
    assert names(store.extractions.of_entry("e1~2")) == ["e1~2"]
    assert store.extractions.of_entry("e1~3") == []
    assert names(store.extractions.of_entry("[[extracted-e1]]")) == ["e1", "e1"]


def test_an_id_that_no_placeholder_can_hold_is_found(store):
    """A long id, or one with a space in it, has another one derived from it."""
    row, long = store_session(store), "an id " * 30
    derived = placeholder_id(long)
    confirm_rewrite(store, row, begin_rewrite(store, row, [removal(long).named(derived)]))

    assert derived != long
    assert names(store.extractions.of_entry(long)) == [derived]
    assert names(store.extractions.of_entry(derived)) == [derived]


@pytest.mark.parametrize("reference", ["\ud800", "e1\udcff", "", "e1' OR '1'='1", "e%"])
def test_what_is_typed_in_other_bytes_finds_nothing(store, rows, reference):
    """No reference is an error, and none is taken for a pattern."""
    assert store.extractions.of_entry(reference) == []


def test_names_are_looked_up_exactly(store, rows):
    """What stands in a file names its values, with the numbers."""
    assert names(store.extractions.named(["e1", "e10", "nobody"])) == ["e1", "e1", "e10"]
    assert names(store.extractions.named(["e1~2"])) == ["e1~2"]
    assert store.extractions.named([]) == []


def test_many_names_are_looked_up_at_once(store, rows):
    """A file may name more than one statement takes."""
    asked = ["e1", *(f"nobody{number}" for number in range(5000)), "e10"]

    assert names(store.extractions.named(asked)) == ["e1", "e1", "e10"]


def test_a_session_has_its_own_and_holds_what_stands_in_it(store, rows):
    """A copy holds values of another session; what was taken from one may have gone from it."""
    one, other = rows
    with store.transaction():
        store.placements.record(one.id, [2], [1], [], 5.0)

    assert [taken.id for taken in store.extractions.of_session(one.id)] == [1, 4]
    assert [held.id for held in store.extractions.held_in(one.id)] == [2, 4]
    assert [held.id for held in store.extractions.held_in(other.id)] == [2, 3]


def test_an_expired_value_is_not_given_out(store, rows):
    """Its tombstone says that it expired, and everything else is as it was."""
    with store.transaction():
        gone = store.expiry.delete([(2, "old")], 9.0)
    tombstone = store.extractions.of_entry("e1~2")[0]

    assert gone == 1
    assert (tombstone.state, tombstone.expired_at, tombstone.expired_why) == ("expired", 9.0, "old")
    with pytest.raises(BusyError, match="expired"):
        store.extractions.value(2)
    assert store.extractions.value(1) == store.extractions.value(3) == b"first"
