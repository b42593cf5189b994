"""Placeholders: one pair of text and key path names one value, for ever."""

import pytest

from brainsurgeon.store import open_store
from brainsurgeon.store.extractions import digest, renumber
from building.rows import count

TEXT = ("message", "content", 0, "text")
DETAILS = ("message", "details", "aggregated")
ONE, OTHER, THIRD = (digest(value) for value in (b"one", b"other", b"third"))


@pytest.fixture
def name(store):
    def naming(ident, value, path=TEXT, taken=frozenset(), **keys):
        with store.transaction():
            return store.placeholders.name(ident, path, value, taken, **keys)

    return naming


def test_a_value_is_named_by_the_id_of_its_entry(name):
    """The first value of an entry gets the entry's id as it is."""
    assert name("e1", ONE) == "e1"


def test_equal_values_at_the_same_place_share_a_placeholder(store, name):
    """A fork, or a value that was restored and extracted again, gets the placeholder it had."""
    assert [name("e1", ONE) for _ in range(3)] == ["e1"] * 3
    assert count(store, "placeholders") == 1


def test_a_store_from_a_backup_goes_on_with_other_numbers(store, name):
    """Ids that are used again never get a text that the replaced store may have given out."""
    name("1", ONE)
    with store.transaction():
        renumber(store._connection)

    assert name("1", ONE, reused=True) == "1"
    fresh = name("1", OTHER, reused=True), name("2", OTHER, reused=True)
    assert all(int(one.partition("~")[2]) > 10**5 for one in fresh)
    assert name("random", OTHER) == "random"


def test_other_values_of_an_id_get_numbers(name):
    """A text that names one value never names another at the same place."""
    assert [name("e1", value) for value in (ONE, OTHER, THIRD)] == ["e1", "e1~2", "e1~3"]


def test_a_numbered_value_keeps_its_number(name):
    """Whichever values come in between, each gets the placeholder that it was given first."""
    for value in (ONE, OTHER, THIRD):
        name("e1", value)

    assert [name("e1", value) for value in (THIRD, ONE, OTHER)] == ["e1~3", "e1", "e1~2"]


def test_places_in_an_entry_are_told_apart_by_their_paths(name):
    """Two values of one entry share the text: the place says which is which."""
    assert [name("e1", ONE), name("e1", OTHER, DETAILS)] == ["e1", "e1"]
    assert name("e1", ONE, DETAILS) == "e1~2"


def test_a_text_that_stands_in_the_file_is_never_given_out(name):
    """Somebody typed the placeholder before there was one: the value gets another."""
    assert name("e1", ONE, taken={"[[extracted-e1]]", "[[extracted-e1~2]]"}) == "e1~3"


def test_a_text_that_is_taken_in_one_file_is_not_in_another(name):
    """Each file gets a placeholder of the value that stands there for nothing else."""
    name("e1", ONE)
    assert name("e1", ONE, taken={"[[extracted-e1]]"}) == "e1~2"
    assert name("e1", ONE) == "e1"
    assert name("e1", ONE, taken={"[[extracted-e1]]"}) == "e1~2"


def test_what_was_given_out_is_known_after_the_values_are_gone(store, directory, name):
    """A placeholder outlives its value and the process that gave it out."""
    name("e1", ONE)
    with open_store(directory) as other, other.transaction():
        assert other.placeholders.name("e1", TEXT, OTHER) == "e1~2"
        assert other.placeholders.name("e1", TEXT, ONE) == "e1"


def test_a_name_that_was_not_committed_was_not_given_out(store, name):
    """What is rolled back with its transaction leaves the text to others."""
    store._connection.execute("BEGIN")
    store.placeholders.name("e1", TEXT, ONE)
    store._connection.execute("ROLLBACK")

    assert name("e1", OTHER) == "e1"


def test_naming_costs_the_same_however_often_an_id_was_used(store, name):
    """The ten thousandth value of an id is named with as few steps as the tenth."""
    with store.transaction():
        store._connection.executemany(
            "INSERT INTO placeholders VALUES ('1', 't0', ?, ?)",
            ((number, digest(b"%d" % number)) for number in range(1, 10_000)),
        )
    steps = []
    store._connection.set_progress_handler(lambda: steps.append(1), 100)
    given = name("1", ONE), name("1", digest(b"9000"))
    store._connection.set_progress_handler(None, 0)

    assert given == ("1~10000", "1~9000")
    assert len(steps) < 10
