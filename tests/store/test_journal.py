"""The journal of rewrites: pending, confirmed, closed, abandoned."""

import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from brainsurgeon.errors import BusyError
from brainsurgeon.model.records import FieldRecord
from brainsurgeon.model.sessions import End, Fingerprint, SessionFile
from brainsurgeon.store import journal, sessions
from building.store_rows import begin_rewrite, confirm_rewrite, count_rows, removal, store_session


def standing(store, row):
    """Give the extractions of a session as entry, state."""
    return [(one.entry_id, one.state) for one in store.extractions.of_session(row.id)]


def test_pending_rows_are_nobodys(store):
    """Until its rewrite is confirmed a swap is not there for anybody to restore or to show."""
    row = store_session(store)
    begin_rewrite(store, row, [removal("e1"), removal("e2")])

    assert count_rows(store, "extractions") == 2
    assert standing(store, row) == []
    assert store.extractions.of_entry("e1") == []
    assert store.extractions.totals() == {}


def test_a_confirmed_rewrite_stays_open_until_it_is_closed(store):
    """Confirming makes the rows count; the journal keeps the rewrite until the old file is gone."""
    row = store_session(store)
    entry = begin_rewrite(store, row, [removal("e1"), removal("e2")])
    confirm_rewrite(store, row, entry)
    kept = store.journal.rewrite(entry)
    with store.transaction():
        store.journal.close(entry)

    assert standing(store, row) == [("e1", "standing"), ("e2", "standing")]
    assert kept.confirmed
    assert store.journal.open_rewrites() == []


def test_a_rewrite_that_another_process_closed_is_not_changed(store):
    """To change a rewrite that was closed meanwhile is refused, and brings no row back."""
    row = store_session(store)
    entry = begin_rewrite(store, row, [removal("e1")])
    with store.transaction():
        store.journal.close(entry)
    with pytest.raises(BusyError), store.transaction():
        store.journal.update(entry, stays="somebody has it open")

    assert store.journal.open_rewrites() == []


def test_an_abandoned_rewrite_never_was(store):
    """Abandoning takes the rows and values away, and leaves those of other rewrites."""
    row = store_session(store)
    confirm_rewrite(store, row, begin_rewrite(store, row, [removal("e1")], b"first"))
    entry = begin_rewrite(store, row, [removal("e2")], b"second")
    with store.transaction():
        store.fields.add(FieldRecord(0, row.id, "e2", "_restored", None, b"x", "y"), entry)
        store.journal.abandon(entry)

    assert standing(store, row) == [("e1", "standing")]
    assert store.fields.of_session(row.id) == []
    assert len(store.journal.open_rewrites()) == 1
    assert count_rows(store, "blobs") == 1


def test_a_rewrite_that_was_seen_for_an_instant_stays_idle(store):
    """Placeholders that somebody may have read still resolve, and count for none."""
    row = store_session(store)
    entry = begin_rewrite(store, row, [removal("e1")])
    with store.transaction():
        ends = (End(7, b"old"), End(5, b"new"))
        store.journal.update(entry, new_inode=2**63 + 5, ends=ends)
        store.journal.keep(entry)
    kept = store.journal.rewrite(entry)

    assert standing(store, row) == [("e1", "restored")]
    assert unplaced(store) == [(1, 1.0)]
    assert kept.new_inode == 2**63 + 5
    assert kept.ends == (End(7, b"old"), End(5, b"new"))
    assert store.extractions.of_entry("e1")[0].blob_id is not None


def test_a_rewrite_that_puts_back_marks_what_it_put_back(store):
    """Confirming a put-back notes value, entry and moment, and touches no other session's rows."""
    row, other = store_session(store), store_session(store, session="two")
    confirm_rewrite(store, row, begin_rewrite(store, row, [removal("e1"), removal("e2")]))
    confirm_rewrite(store, other, begin_rewrite(store, other, [removal("e1")]))
    ids = {one.entry_id: one.id for one in store.extractions.of_session(row.id)}
    (foreign_id,) = [one.id for one in store.extractions.of_session(other.id)]
    note = journal.Confirmation(restored_ids=[ids["e1"], foreign_id], restored=["e1"], at=50.0)
    confirm_rewrite(store, row, begin_rewrite(store, row, note=note), note)

    assert standing(store, row) == [("e1", "restored"), ("e2", "standing")]
    assert standing(store, other) == [("e1", "standing")]
    assert store.extractions.restores(row.id) == {"e1": 50.0}


def unplaced(store):
    """Give since when each extraction stands in no session."""
    return store._connection.execute("SELECT id, unplaced_at FROM extractions").fetchall()


def restored(store, row, *ids):
    note = journal.Confirmation(restored_ids=list(ids), at=5.0)
    confirm_rewrite(store, row, begin_rewrite(store, row, note=note), note)


def test_a_value_cut_again_replaces_the_record_of_the_first_cut(store):
    """Removal, restored, cut again: one row speaks for the placeholder."""
    row = store_session(store)
    confirm_rewrite(store, row, begin_rewrite(store, row, [removal("e1")], b"same"))
    restored(store, row, 1)
    confirm_rewrite(store, row, begin_rewrite(store, row, [removal("e1")], b"same"))

    assert standing(store, row) == [("e1", "standing")]


def test_another_value_of_a_place_keeps_the_record_of_the_first(store):
    """A placeholder names one value for ever: the second value of a place gets another one."""
    row = store_session(store)
    confirm_rewrite(store, row, begin_rewrite(store, row, [removal("e1")], b"same"))
    restored(store, row, 1)
    confirm_rewrite(store, row, begin_rewrite(store, row, [removal("e1")], b"another"))

    assert [(one.placeholder, one.state) for one in store.extractions.of_session(row.id)] == [
        ("[[extracted-e1]]", "restored"), ("[[extracted-e1~2]]", "standing"),
    ]  # fmt: skip


def test_a_fork_goes_on_with_the_record_of_a_value_that_was_cut_again(store):
    """Where a copy of the session holds the placeholder, the new row stands there, too."""
    row, fork = store_session(store), store_session(store, session="two")
    confirm_rewrite(store, row, begin_rewrite(store, row, [removal("e1")], b"same"))
    with store.transaction():
        store.placements.add(fork.id, [1])
    restored(store, row, 1)
    confirm_rewrite(store, row, begin_rewrite(store, row, [removal("e1")], b"same"))

    assert store.placements.of_session(fork.id) == store.placements.of_session(row.id) == {2}


def test_of_values_without_a_placeholder_the_last_one_of_a_place_stands(store):
    """Thinking that was emptied twice: the first record is kept, and may expire from then on."""
    row = store_session(store)
    emptied = replace(removal("e1"), new=b"{}", how="empty", kind="thinking", tool=None)
    confirm_rewrite(store, row, begin_rewrite(store, row, [emptied], b"first"))
    confirm_rewrite(store, row, begin_rewrite(store, row, [emptied], b"second"))

    assert standing(store, row) == [("e1", "restored"), ("e1", "standing")]
    assert unplaced(store) == [(1, 2.0), (2, None)]


def test_confirming_twice_is_no_error(store):
    """What recovery confirms again stays as it was."""
    row = store_session(store)
    entry = begin_rewrite(store, row, [removal("e1")])
    confirm_rewrite(store, row, entry)
    confirm_rewrite(store, row, entry)

    assert standing(store, row) == [("e1", "standing")]


NUMBERS = st.integers(0, (1 << 64) - 1)
NAMES = st.binary(min_size=1, max_size=30).filter(
    lambda name: b"\0" not in name and b"/" not in name
)


@settings(
    max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
@given(device=NUMBERS, inode=NUMBERS, name=NAMES)
def test_any_file_can_be_noted(store, device, inode, name):
    """Journal and memory keep devices and inodes of 64 bits and names of any bytes as they are."""
    row = store_session(store)
    state = Fingerprint(device, inode, 1, 2, 3)
    given = os.fsdecode(name)
    place = SessionFile(
        "/agents", f"/agents/{given}", f"{given}.jsonl", "a", "/agents/a", "auto", state
    )
    seen = sessions.FileState(state, "rules", None, "unchanged", "", 1.0, None, 2.0)
    with store.transaction():
        entry = store.journal.begin(
            row.id, place, "t", journal.Confirmation(restored=["é"], at=1.5)
        )
        noted = store.sessions.note(place, "generic", None)
        store.files.remember(place.path, seen)
    kept = store.journal.rewrite(entry)

    assert kept.inode == inode
    assert (kept.directory, kept.name) == (place.directory, place.name)
    assert kept.confirmation == journal.Confirmation(restored=["é"], at=1.5)
    assert noted.path == place.path
    assert store.files.all()[place.path] == seen
