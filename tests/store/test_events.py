"""What happened: each told once, in order, and let go after its time."""

from brainsurgeon.model.reports import KINDS
from brainsurgeon.store import history as room
from building.rows import count, session


def told(store, *kinds, at=1.0, row=None):
    with store.transaction():
        for kind in kinds:
            store.events.add(at, kind, row and row.id, {"values": 1}, None)
    return store.events.after(0)


def test_events_come_in_the_order_in_which_they_were_committed(store):
    """Each has an id above those before it, also after the newest ones have gone."""
    first = told(store, "extraction", "expiry")
    with store.transaction():
        store.events.drop([one.id for one in first])
    later = told(store, "failure")

    assert [one.kind for one in first] == ["extraction", "expiry"]
    assert later[0].id > first[1].id


def test_an_event_that_was_not_committed_never_was(store):
    """What is rolled back with its transaction is seen by nobody."""
    told(store, "extraction")
    store._connection.execute("BEGIN")
    store.events.add(2.0, "failure", None, {}, None)
    store._connection.execute("ROLLBACK")

    assert [one.kind for one in told(store, "lapse")] == ["extraction", "lapse"]


def test_events_are_chosen_by_id_kind_and_session(store):
    """Those behind an id, up to another, of some kinds, of one session."""
    row = session(store)
    told(store, "extraction", "expiry")
    told(store, "extraction", row=row)

    assert [one.id for one in store.events.after(1)] == [2, 3]
    assert [one.id for one in store.events.after(0, until=2)] == [1, 2]
    assert [one.id for one in store.events.after(0, kinds=["extraction"])] == [1, 3]
    [mine] = store.events.after(0, session_id=row.id)
    assert (mine.id, mine.session) == (3, "main/one")


def test_a_moment_says_where_to_begin(store):
    """Everything that happened at a moment or later stands behind the id that is given for it."""
    for at in (1.0, 2.0, 3.0):
        told(store, "extraction", at=at)

    assert [store.events.before(at) for at in (0.0, 2.0, 2.5, 9.0)] == [0, 1, 2, 3]


def test_old_events_are_let_go_by_age_and_by_number(store, monkeypatch):
    """Events are kept for thirty days, and so many at most."""
    told(store, "extraction", at=0.0)
    told(store, *["expiry"] * 4, at=room.KEPT_SECONDS)

    assert store.events.old(room.KEPT_SECONDS - 1) == []
    assert store.events.old(room.KEPT_SECONDS + 1) == [1]
    monkeypatch.setattr(room, "KEPT_ROWS", 2)
    assert store.events.old(0.0) == [1, 2, 3]
    with store.transaction():
        store.events.drop(store.events.old(0.0))
    assert count(store, "events") == 2


def test_every_kind_of_event_stands_in_one_list():
    """The kinds are those that are promised, each once."""
    assert len(set(KINDS)) == len(KINDS) == 12
