"""Placeholder names: a name and a key path identify one value for ever."""

import secrets

import pytest

from brainsurgeon.model.entries import is_placeholder, placeholder_named
from brainsurgeon.store import open_store
from brainsurgeon.store.extractions import renumber
from building.store_rows import removal, store_session

TEXT = ("message", "content", 0, "text")
DETAILS = ("message", "details", "aggregated")
FIRST, OTHER, THIRD = b"first", b"other", b"third"


def name_value(store, ident, value, path=TEXT, taken=frozenset(), **keys):
    """Assign a name to a value and record it as a rewrite does."""
    blob, digest, _ = store.blobs.put(value)
    name = store.placeholders.name(ident, path, (blob, digest), taken, **keys)
    store.extractions.add(
        removal(ident, path).with_name(name), session_id=1, blob_id=blob, digest=digest,
        size=len(value), extracted_at=1.0,
    )  # fmt: skip
    return name


@pytest.fixture
def name(store):
    store_session(store)

    def name_in_transaction(*arguments, **keys):
        with store.transaction():
            return name_value(store, *arguments, **keys)

    return name_in_transaction


def test_store_from_a_backup_continues_with_other_numbers(store, name):
    """A renumbered store skips numbers that the replaced one may have given to other values."""
    name("1", FIRST)
    with store.transaction():
        renumber(store._connection)

    assert name("1", FIRST, reused=True) == "1"
    later = name("1", OTHER, reused=True), name("2", OTHER, reused=True)
    assert all(int(name.partition("~")[2]) > 10**5 for name in later)
    assert name("random", OTHER) == "random"


def test_store_from_a_backup_still_shares_placeholders(store, name):
    """In a renumbered store, too, equal bytes at the same path keep their placeholder."""
    with store.transaction():
        renumber(store._connection)

    first = name("1", FIRST, reused=True)
    assert name("1", OTHER, reused=True) != first
    assert name("1", FIRST, reused=True) == first


def test_highest_number_after_a_backup_fits_into_a_placeholder(store, name, monkeypatch):
    """Numbers have at most nine digits: with ten, no placeholder would be recognised."""
    monkeypatch.setattr(secrets, "randbelow", lambda below: below - 1)
    with store.transaction():
        renumber(store._connection)

    name("1", FIRST)
    assert is_placeholder(placeholder_named(name("1", OTHER, reused=True)))


def test_each_value_of_an_id_keeps_its_own_placeholder(name):
    """The first has the id of its entry, the others get numbers, in whichever order they return."""
    assert [name("e1", value) for value in (FIRST, OTHER, THIRD)] == ["e1", "e1~2", "e1~3"]
    assert [name("e1", value) for value in (THIRD, FIRST, OTHER)] == ["e1~3", "e1", "e1~2"]


def test_values_at_different_paths_share_a_name(name):
    """Values at two paths share a name; a second value at one path gets a number."""
    assert [name("e1", FIRST), name("e1", OTHER, DETAILS)] == ["e1", "e1"]
    assert name("e1", FIRST, DETAILS) == "e1~2"


def test_placeholder_that_occurs_in_the_file_is_skipped(name):
    """A placeholder whose text already occurs in the file is not used."""
    assert name("e1", FIRST, taken={"[[extracted-e1]]", "[[extracted-e1~2]]"}) == "e1~3"


def test_placeholder_is_skipped_only_in_files_that_contain_it(name):
    """A value has another placeholder only in files that contain the text of its first one."""
    name("e1", FIRST)
    assert name("e1", FIRST, taken={"[[extracted-e1]]"}) == "e1~2"
    assert name("e1", FIRST) == "e1"
    assert name("e1", FIRST, taken={"[[extracted-e1]]"}) == "e1~2"


def test_placeholder_stays_reserved_after_its_value_expired(store, directory, name):
    """The placeholder of an expired value is given to no other value, by any process."""
    name("e1", FIRST)
    with store.transaction():
        store.expiry.delete([(1, "retention")], 2.0)
    with open_store(directory) as other, other.transaction():
        assert name_value(other, "e1", OTHER) == "e1~2"
        assert name_value(other, "e1", FIRST) == "e1"


def test_placeholder_of_a_rolled_back_transaction_is_free(store, name):
    """A placeholder given in a transaction that was rolled back may go to another value."""
    store._connection.execute("BEGIN")
    name_value(store, "e1", FIRST)
    store._connection.execute("ROLLBACK")

    assert name("e1", OTHER) == "e1"


def test_naming_the_10000th_value_of_an_id_is_fast(store, name):
    """Naming the ten thousandth value of an id takes few database steps."""
    with store.transaction():
        for number in range(1, 10_000):
            blob, digest, _ = store.blobs.put(b"%d" % number)
            extraction = removal("1").with_name("1" if number == 1 else f"1~{number}")
            store.extractions.add(
                extraction, session_id=1, blob_id=blob, digest=digest, size=1, extracted_at=1.0
            )
    steps = []
    store._connection.set_progress_handler(lambda: steps.append(1), 100)
    assigned = name("1", FIRST), name("1", b"9000")
    store._connection.set_progress_handler(None, 0)

    assert assigned == ("1~10000", "1~9000")
    assert len(steps) < 50
