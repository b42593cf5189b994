"""Values: stored once, given back bit for bit, refused when damaged, gone when deleted."""

import secrets

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from brainsurgeon.errors import DamagedError
from brainsurgeon.store import extractions as blobs
from building.rows import begin, confirm, contents, count, cut, session


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
    assert count(store, "blobs") == 2


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


def test_what_is_deleted_is_really_gone(store, directory):
    """The bytes of a deleted value do not stay behind in the file."""
    secret = secrets.token_bytes(3000)
    with store.transaction():
        store.blobs.put(secret)
    stored = secret[:100] in contents(directory)["store.db"]
    with store.transaction():
        store._connection.execute("DELETE FROM blobs")
    left = any(secret[:100] in data for data in contents(directory).values())

    assert stored
    assert not left


def test_a_value_goes_when_no_extraction_names_it_any_more(store):
    """A value that two sessions share is kept until neither needs it."""
    rows = [session(store, session=name) for name in ("one", "two")]
    for row in rows:
        confirm(store, row, begin(store, row, [cut()], b"same"))
    [[blob]] = store._connection.execute("SELECT id FROM blobs").fetchall()
    left = []
    with store.transaction():
        for row in rows:
            store._connection.execute(
                "UPDATE extractions SET blob_id = NULL WHERE session_id = ?", (row.id,)
            )
            left.append((store.blobs.release([blob]), count(store, "blobs")))

    assert left == [(0, 1), (1, 0)]


def swept(store):
    """Sweep as a run does; return how many values went."""
    with store.transaction():
        gone = sum(iter(lambda: store.blobs.sweep(2), None))
        store.blobs.let_sweep()
    return gone


def test_a_value_that_nothing_names_goes_in_the_second_run(store):
    """A run leaves what was stored since the run before, as a record may still come to name it."""
    row = session(store)
    begin(store, row, [cut()], b"named")
    with store.transaction():
        for number in range(5):
            store.blobs.put(b"%d" % number)
        store.archives.keep_summary(b"turn", "what came of it", 1.0)

    assert [swept(store) for _ in range(3)] == [0, 5, 0]
    assert count(store, "blobs") == 2


def test_what_was_swept_over_is_swept_again_after_a_rewrite_was_given_up(store):
    """Values of a rewrite that did not happen go, even where a run passed by meanwhile."""
    row = session(store)
    entry = begin(store, row, [cut()])
    swept(store)
    swept(store)
    with store.transaction():
        store.journal.abandon(entry)

    assert swept(store) == 1
