"""Extraction records: found by placeholder, entry id and session."""

import pytest

from brainsurgeon.errors import BusyError
from brainsurgeon.model.entries import placeholder_id
from brainsurgeon.model.records import Tombstone
from building.store_rows import extract, removal, store_session


def names(extractions):
    return [extraction.name for extraction in extractions]


@pytest.fixture
def sessions(store):
    """Return two sessions: the first has values of `e1` and `e10`, the second two of `e1`."""
    first, second = store_session(store, session="one"), store_session(store, session="two")
    extract(store, first, removal("e1"), value=b"first")
    extract(store, second, removal("e1"), value=b"second")
    extract(store, second, removal("e1"), value=b"first")
    extract(store, first, removal("e10"))
    return first, second


def test_entry_id_finds_all_its_placeholders(store, sessions):
    """An entry id finds all its placeholders with their numbers, and none of longer ids."""
    assert names(store.extractions.of_entry("e1")) == ["e1", "e1~2", "e1"]
    assert names(store.extractions.of_entry("e10")) == ["e10"]
    assert store.extractions.of_entry("e") == []


def test_numbered_id_finds_only_its_placeholder(store, sessions):
    """An id with a number, or a whole placeholder, finds only values of exactly that name."""
    assert names(store.extractions.of_entry("e1~2")) == ["e1~2"]
    assert store.extractions.of_entry("e1~3") == []
    assert names(store.extractions.of_entry("[[extracted-e1]]")) == ["e1", "e1"]


def test_unsafe_entry_id_is_found_by_itself_and_its_derived_id(store):
    """A placeholder has a derived id if the entry's own is long or has a space."""
    row, ident = store_session(store), "an id " * 30
    derived = placeholder_id(ident)
    extract(store, row, removal(ident).with_name(derived))

    assert derived != ident
    assert names(store.extractions.of_entry(ident)) == [derived]
    assert names(store.extractions.of_entry(derived)) == [derived]


@pytest.mark.parametrize("reference", ["\ud800", "e1\udcff", "", "e1' OR '1'='1", "e%"])
def test_malformed_reference_finds_nothing(store, sessions, reference):
    """A malformed reference finds nothing: it neither raises nor is used as a pattern."""
    assert store.extractions.of_entry(reference) == []
    assert store.extractions.entries_beginning(reference) == []
    assert store.extractions.beginning(reference) == []


def test_named_matches_any_number_of_names_exactly(store, sessions):
    """Each name matches only itself, also among more names than one SQL statement takes."""
    many = ["e1", *(f"unknown{number}" for number in range(5000)), "e10"]

    assert names(store.extractions.by_names(many)) == ["e1", "e1", "e10"]
    assert names(store.extractions.by_names(["e1~2"])) == ["e1~2"]
    assert store.extractions.by_names([]) == []


def test_session_lists_own_extractions_and_those_it_holds(store, sessions):
    """A fork holds values of another session, and a session's own value may be gone from it."""
    first, second = sessions
    with store.transaction():
        store.placements.record(first.id, [2], [1], [], 5.0)

    assert [extraction.id for extraction in store.extractions.of_session(first.id)] == [1, 4]
    assert [extraction.id for extraction in store.extractions.contained_in(first.id)] == [2, 4]
    assert [extraction.id for extraction in store.extractions.contained_in(second.id)] == [2, 3]


def test_expired_value_is_refused_and_leaves_a_tombstone(store, sessions):
    """An expired value cannot be read, and its tombstone gives time and reason."""
    with store.transaction():
        deleted = store.expiry.delete([(2, "old")], 9.0)
    tombstone = store.extractions.of_entry("e1~2")[0]

    assert deleted == 1
    assert (tombstone.state, tombstone.tombstone) == ("expired", Tombstone(9.0, "old"))
    with pytest.raises(BusyError, match="expired"):
        store.extractions.value(2)
    assert store.extractions.value(1) == store.extractions.value(3) == b"first"
