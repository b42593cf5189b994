"""Placeholders: one pair of text and key path names one value, for ever."""

import pytest

from brainsurgeon.store import open_store
from brainsurgeon.store.extractions import renumber
from building.store_rows import removal, store_session

TEXT = ("message", "content", 0, "text")
DETAILS = ("message", "details", "aggregated")
ONE, OTHER, THIRD = b"one", b"other", b"third"


def named(store, ident, value, path=TEXT, taken=frozenset(), **keys):
    """Name a value and record it, as a rewrite does; return the name."""
    blob, digest, _ = store.blobs.put(value)
    name = store.placeholders.name(ident, path, (blob, digest), taken, **keys)
    store.extractions.add(
        removal(ident, path).named(name), session_id=1, blob_id=blob, digest=digest,
        size=len(value), extracted_at=1.0,
    )  # fmt: skip
    return name


@pytest.fixture
def name(store):
    store_session(store)

    def naming(*arguments, **keys):
        with store.transaction():
            return named(store, *arguments, **keys)

    return naming


def test_a_value_is_named_by_the_id_of_its_entry(name):
    """The first value of an entry gets the entry's id as it is."""
    assert name("e1", ONE) == "e1"


def test_equal_values_at_the_same_place_share_a_placeholder(name):
    """A fork, or a value that was restored and extracted again, gets the placeholder it had."""
    assert [name("e1", ONE) for _ in range(3)] == ["e1"] * 3


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
    with store.transaction():
        store.expiry.delete([(1, "retention")], 2.0)
    with open_store(directory) as other, other.transaction():
        assert named(other, "e1", OTHER) == "e1~2"
        assert named(other, "e1", ONE) == "e1"


def test_a_name_that_was_not_committed_was_not_given_out(store, name):
    """What is rolled back with its transaction leaves the text to others."""
    store._connection.execute("BEGIN")
    named(store, "e1", ONE)
    store._connection.execute("ROLLBACK")

    assert name("e1", OTHER) == "e1"


def test_naming_costs_the_same_however_often_an_id_was_used(store, name):
    """The ten thousandth value of an id is named with few more steps than the tenth."""
    with store.transaction():
        for number in range(1, 10_000):
            blob, digest, _ = store.blobs.put(b"%d" % number)
            one = removal("1").named("1" if number == 1 else f"1~{number}")
            store.extractions.add(
                one, session_id=1, blob_id=blob, digest=digest, size=1, extracted_at=1.0
            )
    steps = []
    store._connection.set_progress_handler(lambda: steps.append(1), 100)
    given = name("1", ONE), name("1", b"9000")
    store._connection.set_progress_handler(None, 0)

    assert given == ("1~10000", "1~9000")
    assert len(steps) < 50
