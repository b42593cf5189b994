"""The journal of rewrites: pending, confirmed, closed, kept and abandoned."""

import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from brainsurgeon.errors import BusyError
from brainsurgeon.model.records import FieldRecord
from brainsurgeon.model.session_files import End, Fingerprint, SessionFile
from brainsurgeon.store import catalogue, database, journal
from building.store_rows import (
    begin_rewrite,
    confirm_rewrite,
    count_rows,
    extract,
    removal,
    store_session,
)


def states(store, row):
    """Return entry id and state of the extractions of a session."""
    return [(held.entry_id, held.state) for held in store.extractions.of_session(row.id)]


def test_extractions_of_an_unconfirmed_rewrite_are_hidden(store):
    """Extractions of an unconfirmed rewrite are neither listed nor found nor counted."""
    row = store_session(store)
    begin_rewrite(store, row, [removal("e1"), removal("e2")])

    assert count_rows(store, "extractions") == 2
    assert states(store, row) == []
    assert store.extractions.of_entry("e1") == []
    assert store.extractions.totals() == {}


def test_confirmed_rewrite_stays_open_until_it_is_closed(store):
    """Confirming shows the extractions; the journal keeps the rewrite until it is closed."""
    row = store_session(store)
    entry = begin_rewrite(store, row, [removal("e1"), removal("e2")])
    confirm_rewrite(store, row, entry)
    rewrite = store.journal.rewrite(entry)
    with store.transaction():
        store.journal.close(entry)

    assert states(store, row) == [("e1", "standing"), ("e2", "standing")]
    assert rewrite.confirmed
    assert store.journal.open_rewrites() == []


def test_rewrite_that_ends_while_it_is_looked_for_is_not_interrupted(store, monkeypatch):
    """Its process closes it before it releases the lock, so it may be gone by then."""
    row, is_locked = store_session(store), database.is_locked
    entry, other = (begin_rewrite(store, row, [removal(name)]) for name in ("e1", "e2"))

    def closing(*lock):
        with store.transaction():
            store.journal.close(entry)
        return is_locked(*lock)

    monkeypatch.setattr(database, "is_locked", closing)

    assert [rewrite.id for rewrite in store.interrupted_rewrites()] == [other]


def test_update_of_a_closed_rewrite_is_refused(store):
    """Updating a rewrite that another process closed is refused and re-creates no row."""
    row = store_session(store)
    entry = begin_rewrite(store, row, [removal("e1")])
    with store.transaction():
        store.journal.close(entry)
    with pytest.raises(BusyError), store.transaction():
        store.journal.update(entry, stays="somebody has it open")

    assert store.journal.open_rewrites() == []


def test_abandoned_rewrite_deletes_its_rows_and_values(store):
    """Abandoning deletes rows and values of the rewrite, but no value that another record names."""
    row = store_session(store)
    extract(store, row, removal("e1"), value=b"first")
    entry = begin_rewrite(store, row, [removal("e2")], b"second")
    sharing = begin_rewrite(store, row, [removal("e3")], b"first")
    with store.transaction():
        store.fields.add(FieldRecord(0, row.id, "e2", "_restored", None, b"x", "y"), entry)
        store.journal.abandon(entry)
        store.journal.abandon(sharing)

    assert states(store, row) == [("e1", "standing")]
    assert store.fields.of_session(row.id) == []
    assert len(store.journal.open_rewrites()) == 1
    assert (count_rows(store, "extractions"), count_rows(store, "blobs")) == (1, 1)
    assert len(store.events.after(0)) == 1


def test_kept_rewrite_leaves_its_placeholders_resolvable(store):
    """Placeholders of a kept rewrite may have been read: they resolve, but count as restored."""
    row = store_session(store)
    entry = begin_rewrite(store, row, [removal("e1")])
    with store.transaction():
        ends = (End(7, b"old"), End(5, b"new"))
        store.journal.update(entry, new_inode=2**63 + 5, ends=ends)
        store.journal.keep(entry)
    rewrite = store.journal.rewrite(entry)

    assert states(store, row) == [("e1", "restored")]
    assert unplaced(store) == [(1, -1.0)]
    assert rewrite.new_inode == 2**63 + 5
    assert rewrite.ends == (End(7, b"old"), End(5, b"new"))
    assert store.extractions.of_entry("e1")[0].blob_id is not None


def test_confirmed_restore_marks_values_and_entries(store):
    """Confirming a restore records value, entry and time, for this session only."""
    row, other = store_session(store), store_session(store, session="two")
    extract(store, row, removal("e1"), removal("e2"))
    extract(store, other, removal("e1"))
    ids = {held.entry_id: held.id for held in store.extractions.of_session(row.id)}
    (foreign_id,) = [held.id for held in store.extractions.of_session(other.id)]
    note = journal.Confirmation(restored_ids=[ids["e1"], foreign_id], restored=["e1"], at=50.0)
    confirm_rewrite(store, row, begin_rewrite(store, row, note=note), note)

    assert states(store, row) == [("e1", "restored"), ("e2", "standing")]
    assert states(store, other) == [("e1", "standing")]
    assert store.extractions.restores(row.id) == {"e1": 50.0}


def unplaced(store):
    """Return since when each extraction is in no session."""
    return store._connection.execute("SELECT id, unplaced_at FROM extractions").fetchall()


def restore(store, row, *ids):
    note = journal.Confirmation(restored_ids=list(ids), at=5.0)
    confirm_rewrite(store, row, begin_rewrite(store, row, note=note), note)


def test_value_extracted_again_replaces_its_first_record(store):
    """A value that is restored and extracted again has one record."""
    row = store_session(store)
    extract(store, row, removal("e1"), value=b"same")
    restore(store, row, 1)
    extract(store, row, removal("e1"), value=b"same")

    assert states(store, row) == [("e1", "standing")]


def test_second_value_of_a_place_gets_another_placeholder(store):
    """A second value of a place gets another placeholder, and the first record stays."""
    row = store_session(store)
    extract(store, row, removal("e1"), value=b"same")
    restore(store, row, 1)
    extract(store, row, removal("e1"), value=b"another")

    assert [(held.placeholder, held.state) for held in store.extractions.of_session(row.id)] == [
        ("[[extracted-e1]]", "restored"), ("[[extracted-e1~2]]", "standing"),
    ]  # fmt: skip


def test_fork_is_placed_at_the_new_record_of_its_value(store):
    """A fork follows a value that its session extracted again to the new record."""
    row, fork = store_session(store), store_session(store, session="two")
    extract(store, row, removal("e1"), value=b"same")
    with store.transaction():
        store.placements.add(fork.id, [1])
    restore(store, row, 1)
    extract(store, row, removal("e1"), value=b"same")

    assert store.placements.of_session(fork.id) == store.placements.of_session(row.id) == {2}


def test_thinking_emptied_again_leaves_the_first_record_unplaced(store):
    """Of thinking emptied twice only the last record stands, and the first may expire."""
    row = store_session(store)
    emptied = replace(removal("e1"), new=b"{}", how="empty", kind="thinking", tool=None)
    extract(store, row, emptied, value=b"first")
    extract(store, row, emptied, value=b"second")

    assert states(store, row) == [("e1", "restored"), ("e1", "standing")]
    assert unplaced(store) == [(1, -2.0), (2, None)]


def test_confirming_a_rewrite_twice_changes_nothing(store):
    """Confirming a rewrite again, as recovery does, changes nothing."""
    row = store_session(store)
    entry = begin_rewrite(store, row, [removal("e1")])
    confirm_rewrite(store, row, entry)
    confirm_rewrite(store, row, entry)

    assert states(store, row) == [("e1", "standing")]


NUMBERS = st.integers(0, (1 << 64) - 1)
NAMES = st.binary(min_size=1, max_size=30).filter(
    lambda name: b"\0" not in name and b"/" not in name
)


@settings(
    max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
@given(device=NUMBERS, inode=NUMBERS, name=NAMES)
def test_journal_and_memory_store_any_file_identity(store, device, inode, name):
    """Journal, catalogue and memory keep devices and inodes of 64 bits and names of any bytes."""
    row = store_session(store)
    state = Fingerprint(device, inode, 1, 2, 3)
    text = os.fsdecode(name)
    place = SessionFile(
        "/agents", f"/agents/{text}", f"{text}.jsonl", "a", "/agents/a", "auto", state
    )
    seen = catalogue.FileState(state, "rules", None, "unchanged", "", 1.0, None, 2.0)
    with store.transaction():
        entry = store.journal.begin(
            row.id, place, "t", journal.Confirmation(restored=["é"], at=1.5)
        )
        noted = store.sessions.note(place, "generic", None)
        store.files.remember(place.path, seen)
    rewrite = store.journal.rewrite(entry)

    assert rewrite.inode == inode
    assert (rewrite.directory, rewrite.name) == (place.directory, place.name)
    assert rewrite.confirmation == journal.Confirmation(restored=["é"], at=1.5)
    assert noted.path == place.path
    assert noted.name.encode()
    assert store.sessions.at(place.path) == noted
    assert store.files.all()[place.path] == seen
