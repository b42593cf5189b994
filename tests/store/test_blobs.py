"""Values: stored once, given back bit for bit, refused when damaged, gone when deleted."""

import secrets

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from brainsurgeon.errors import DamagedError
from brainsurgeon.store import blobs
from building.rows import contents, count, put, session


@settings(
    max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
@given(value=st.one_of(st.binary(max_size=200), st.binary(max_size=3).map(lambda x: x * 3000)))
def test_values_come_back_bit_for_bit(store, value):
    """Whatever bytes are stored, those bytes are read, compressed or not."""
    agent = session(store).agent_id
    with store.transaction():
        blob, digest, _ = put(store, agent, value)

    assert store.blobs.get(blob, digest) == value
    assert digest == blobs.digest(value)


def test_what_does_not_compress_is_stored_as_it_is(store):
    """Packing never makes a value larger than it was."""
    agent = session(store).agent_id
    value = secrets.token_bytes(10_000)
    with store.transaction():
        random, digest, written = put(store, agent, value)
        _, _, packed = put(store, agent, b"x" * 10_000)

    assert store.blobs.get(random, digest) == value
    assert written == 10_000
    assert packed < 100


def test_equal_values_of_one_agent_are_stored_once(store):
    """The second of two equal values costs nothing, from another session of the agent too."""
    one, other = session(store, session="one"), session(store, session="two")
    with store.transaction():
        first = put(store, one.agent_id, b"same" * 100)
        second = put(store, other.agent_id, b"same" * 100)
        third = put(store, one.agent_id, b"different" * 100)

    assert one.agent_id == other.agent_id
    assert first[0] == second[0] != third[0]
    assert second[2] == 0
    assert count(store, "blobs") == 2


@pytest.mark.parametrize("elsewhere", [{"agent": "other"}, {"root": "/elsewhere"}])
def test_nothing_is_shared_between_agents(store, elsewhere):
    """Equal values of two agents are two values, also of agents that only have the same name."""
    one, other = session(store), session(store, session="two", **elsewhere)
    with store.transaction():
        first = put(store, one.agent_id, b"same" * 100)
        second = put(store, other.agent_id, b"same" * 100)

    assert first[0] != second[0]
    assert second[2] > 0
    assert count(store, "blobs") == 2


@pytest.mark.parametrize("value", [secrets.token_bytes(300), b"words " * 500])
def test_a_flipped_bit_is_noticed(store, value):
    """A value of which one bit changed in the store is never given out, packed or not."""
    agent = session(store).agent_id
    with store.transaction():
        blob, digest, _ = put(store, agent, value)
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
    agent = session(store).agent_id
    with store.transaction():
        blob, digest, _ = put(store, agent, b"words " * 500)
    store._connection.execute("PRAGMA foreign_keys = OFF")
    store._connection.execute(damage)

    with pytest.raises(DamagedError):
        store.blobs.get(blob, digest)


def test_one_value_is_never_given_out_for_another(store):
    """A blob that is whole but is not the value asked for is as good as damaged."""
    agent = session(store).agent_id
    with store.transaction():
        blob, _, _ = put(store, agent, b"one" * 100)
        _, other, _ = put(store, agent, b"another" * 100)

    with pytest.raises(DamagedError):
        store.blobs.get(blob, other)


def test_a_packed_value_cannot_blow_up(store):
    """A blob that claims a small size does not unpack to a large one."""
    agent = session(store).agent_id
    with store.transaction():
        blob, digest, _ = put(store, agent, b"\0" * (64 << 20))
    store._connection.execute("UPDATE blobs SET size = 10")

    with pytest.raises(DamagedError):
        store.blobs.get(blob, digest)


def test_what_is_deleted_is_really_gone(store, directory):
    """The bytes of a deleted value do not stay behind in the file."""
    agent = session(store).agent_id
    secret = secrets.token_bytes(3000)
    with store.transaction():
        put(store, agent, secret)
    stored = secret[:100] in contents(directory)["store.db"]
    with store.transaction():
        store._connection.execute("DELETE FROM blobs")
    left = any(secret[:100] in data for data in contents(directory).values())

    assert stored
    assert not left
