"""Values: stored once, given back bit for bit, refused when damaged, gone when deleted."""

import secrets

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from brainsurgeon.errors import DamagedError
from brainsurgeon.store import extractions as blobs
from building.store_rows import begin_rewrite, count_rows, removal, store_session


@settings(
    max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
@given(value=st.one_of(st.binary(max_size=200), st.binary(max_size=3).map(lambda x: x * 3000)))
def test_values_come_back_bit_for_bit(store, value):
    """Whatever bytes are stored, those bytes are read, compressed or not."""
    with store.transaction():
        blob, digest, _ = store.blobs.put(value)

    assert store.blobs.get(blob, digest) == value
    assert digest == blobs.digest(value)


def test_what_does_not_compress_is_stored_as_it_is(store):
    """Packing never makes a value larger than it was."""
    value = secrets.token_bytes(10_000)
    with store.transaction():
        random, digest, written = store.blobs.put(value)
        _, _, packed = store.blobs.put(b"x" * 10_000)

    assert store.blobs.get(random, digest) == value
    assert written == 10_000
    assert packed < 100


def test_equal_values_are_stored_once(store):
    """The second of two equal values costs nothing."""
    with store.transaction():
        first = store.blobs.put(b"same" * 100)
        second = store.blobs.put(b"same" * 100)
        third = store.blobs.put(b"different" * 100)

    assert first[0] == second[0] != third[0]
    assert second[2] == 0
    assert count_rows(store, "blobs") == 2


@pytest.mark.parametrize("value", [secrets.token_bytes(300), b"words " * 500])
def test_a_flipped_bit_is_noticed(store, value):
    """A value of which one bit changed in the store is never given out, packed or not."""
    with store.transaction():
        blob, digest, _ = store.blobs.put(value)
    (data,) = store._connection.execute("SELECT data FROM blobs").fetchone()
    given = []
    for place in range(len(data)):
        damaged = bytearray(data)
        damaged[place] ^= 1 << (place % 8)
        store._connection.execute("UPDATE blobs SET data = ?", (bytes(damaged),))
        try:
            given.append(store.blobs.get(blob, digest))
        except DamagedError:
            continue

    assert all(got == value for got in given)
    assert len(given) <= len(data) // 20


DAMAGES = [
    "DELETE FROM blobs",
    "UPDATE blobs SET size = size + 1",
    "UPDATE blobs SET size = 0",
    "UPDATE blobs SET data = x''",
    "UPDATE blobs SET data = zeroblob(2998)",
    "UPDATE blobs SET codec = 'raw'",
]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_value_that_is_not_what_was_stored_is_refused(store, damage):
    """Missing, of another length, of other bytes: the value is damaged, and not given out."""
    with store.transaction():
        blob, digest, _ = store.blobs.put(b"words " * 500)
    store._connection.execute("PRAGMA foreign_keys = OFF")
    store._connection.execute(damage)

    with pytest.raises(DamagedError):
        store.blobs.get(blob, digest)


def test_one_value_is_never_given_out_for_another(store):
    """A blob that is whole but is not the value asked for is as good as damaged."""
    with store.transaction():
        blob, _, _ = store.blobs.put(b"one" * 100)
        _, other, _ = store.blobs.put(b"another" * 100)

    with pytest.raises(DamagedError):
        store.blobs.get(blob, other)


def test_a_packed_value_cannot_blow_up(store):
    """A blob that claims a small size does not unpack to a large one."""
    with store.transaction():
        blob, digest, _ = store.blobs.put(b"\0" * (64 << 20))
    store._connection.execute("UPDATE blobs SET size = 10")

    with pytest.raises(DamagedError):
        store.blobs.get(blob, digest)


def test_values_of_a_rewrite_that_was_given_up_go(store):
    """They are deleted with its records, but not a value that another record names."""
    row = store_session(store)
    begin_rewrite(store, row, [removal()], b"named")
    entry = begin_rewrite(store, row, [removal("e2")], b"named")
    other = begin_rewrite(store, row, [removal("e3")], b"unnamed")
    with store.transaction():
        store.journal.abandon(entry)
        store.journal.abandon(other)

    assert (count_rows(store, "extractions"), count_rows(store, "blobs")) == (1, 1)
