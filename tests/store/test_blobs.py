"""Stored values: deduplicated, returned bit for bit, and refused if damaged."""

import secrets

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from brainsurgeon.errors import DamagedError
from brainsurgeon.store import extractions as blobs
from building.store_rows import count_rows


@settings(
    max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
@given(value=st.one_of(st.binary(max_size=200), st.binary(max_size=3).map(lambda x: x * 3000)))
def test_stored_value_is_returned_bit_for_bit(store, value):
    """Any stored bytes are returned unchanged, compressed or not."""
    with store.transaction():
        blob, digest, _ = store.blobs.put(value)

    assert store.blobs.get(blob, digest) == value
    assert digest == blobs.digest(value)


def test_incompressible_value_is_stored_uncompressed(store):
    """A value that compression would enlarge is stored as it is."""
    value = secrets.token_bytes(10_000)
    with store.transaction():
        blob, digest, written = store.blobs.put(value)
        _, _, packed = store.blobs.put(b"x" * 10_000)

    assert store.blobs.get(blob, digest) == value
    assert written == 10_000
    assert packed < 100


def test_equal_values_are_stored_once(store):
    """The second of two equal values takes no space."""
    with store.transaction():
        first = store.blobs.put(b"same" * 100)
        second = store.blobs.put(b"same" * 100)
        third = store.blobs.put(b"different" * 100)

    assert first[0] == second[0] != third[0]
    assert second[2] == 0
    assert count_rows(store, "blobs") == 2


@pytest.mark.parametrize("value", [secrets.token_bytes(300), b"words " * 500])
def test_value_with_a_flipped_bit_is_refused(store, value):
    """A value with a flipped bit is never returned, compressed or not."""
    with store.transaction():
        blob, digest, _ = store.blobs.put(value)
    (data,) = store._connection.execute("SELECT data FROM blobs").fetchone()
    returned = []
    for place in range(len(data)):
        damaged = bytearray(data)
        damaged[place] ^= 1 << (place % 8)
        store._connection.execute("UPDATE blobs SET data = ?", (bytes(damaged),))
        try:
            returned.append(store.blobs.get(blob, digest))
        except DamagedError:
            continue

    assert all(value_read == value for value_read in returned)
    assert len(returned) <= len(data) // 20


DAMAGES = [
    "DELETE FROM blobs",
    "UPDATE blobs SET size = size + 1",
    "UPDATE blobs SET size = 0",
    "UPDATE blobs SET data = x''",
    "UPDATE blobs SET data = zeroblob(2998)",
    "UPDATE blobs SET codec = 'raw'",
]


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_value_is_refused(store, damage):
    """A missing blob or one of another size, codec or contents raises DamagedError."""
    with store.transaction():
        blob, digest, _ = store.blobs.put(b"words " * 500)
    store._connection.execute("PRAGMA foreign_keys = OFF")
    store._connection.execute(damage)

    with pytest.raises(DamagedError):
        store.blobs.get(blob, digest)


def test_intact_blob_of_another_value_is_refused(store):
    """An intact blob is refused if its digest is not that of the requested value."""
    with store.transaction():
        blob, _, _ = store.blobs.put(b"one" * 100)
        _, other, _ = store.blobs.put(b"another" * 100)

    with pytest.raises(DamagedError):
        store.blobs.get(blob, other)


def test_blob_is_not_decompressed_beyond_its_recorded_size(store):
    """A blob that decompresses to more than its recorded size is refused."""
    with store.transaction():
        blob, digest, _ = store.blobs.put(b"\0" * (64 << 20))
    store._connection.execute("UPDATE blobs SET size = 10")

    with pytest.raises(DamagedError):
        store.blobs.get(blob, digest)
