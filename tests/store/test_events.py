"""Events: their order, their expiry, and those of rewrites."""

from msgspec.structs import replace

from brainsurgeon.store import runs as room
from building.store_rows import begin_rewrite, confirm_rewrite, count_rows, removal, store_session


def add_events(store, *kinds, at=1.0, row=None):
    with store.transaction():
        for kind in kinds:
            store.events.add(at, kind, row and row.id, {"values": 1}, None)
    return store.events.after(0)


def test_events_are_numbered_in_commit_order(store):
    """Events have growing ids, even after the newest ones were deleted."""
    first = add_events(store, "extraction", "expiry")
    with store.transaction():
        store.events.drop([event.id for event in first])
    later = add_events(store, "failure")

    assert [event.kind for event in first] == ["extraction", "expiry"]
    assert later[0].id > first[1].id


def test_old_events_are_dropped_by_age_and_number(store, monkeypatch):
    """Events are kept for 30 days, up to a maximum number."""
    add_events(store, "extraction", at=0.0)
    add_events(store, *["expiry"] * 4, at=room.KEPT_SECONDS)

    assert store.events.old(room.KEPT_SECONDS - 1) == []
    assert store.events.old(room.KEPT_SECONDS + 1) == [1]
    monkeypatch.setattr(room, "KEPT_ROWS", 2)
    assert store.events.old(0.0) == [1, 2, 3]
    with store.transaction():
        store.events.drop(store.events.old(0.0))
    assert count_rows(store, "events") == 2


def test_redaction_and_extraction_are_separate_events(store):
    """A shortened value is a redaction, emptied thinking an extraction."""
    row = store_session(store)
    short = replace(removal("e1"), new=b'"short"', how="redact")
    emptied = replace(removal("e2"), new=b"{}", how="empty", kind="thinking", tool=None)
    entry = begin_rewrite(store, row, [short, emptied])

    confirm_rewrite(store, row, entry)

    events = store.events.after(0)
    assert {event.kind: event.facts["by"][0]["kind"] for event in events} == {
        "extraction": "thinking", "redaction": "tool_result",
    }  # fmt: skip
