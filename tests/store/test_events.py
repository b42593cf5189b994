"""What happened: each told once, in order, and let go after its time."""

from brainsurgeon.model.reports import KINDS
from brainsurgeon.store import history as room
from building.store_rows import count_rows


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
    assert count_rows(store, "events") == 2


def test_every_kind_of_event_stands_in_one_list():
    """The kinds are those that are promised, each once."""
    assert len(set(KINDS)) == len(KINDS) == 12
