"""Runs: numbers, counts, and how long their rows are kept."""

import pytest
from msgspec.structs import replace

from brainsurgeon.model.records import EVERYTHING, FieldRecord
from brainsurgeon.store import journal
from brainsurgeon.store.runs import KEPT_SECONDS
from building.store_rows import begin_rewrite, removal, store_session

# When a run of `extract_in_run` has its greatest age.
LONG_AFTER = 6.0 + KEPT_SECONDS


def extract_in_run(store):
    """Return the number of a run that extracts a value."""
    row = store_session(store)
    with store.runs.run("scan", 5.0):
        with store.transaction():
            number = store.runs.number()
        note = journal.Confirmation(at=6.0, run_id=number)
        entry = begin_rewrite(store, row, [removal("e1")], note=note)
        with store.transaction():
            store.journal.confirm(entry, row.id, note)
            store.journal.close(entry)
    return number


def test_run_has_one_number_for_all_its_writes(store):
    """All writes of a run have one number, and the next run has the next."""
    numbers = []
    for _ in range(2):
        with store.runs.run("scan", 5.0):
            for _ in range(2):
                with store.transaction():
                    numbers.append(store.runs.number())

    assert numbers == [1, 1, 2, 2]
    assert [(run.id, run.at, run.command) for run in store.runs.newest(None)] == [
        (1, 5.0, "scan"), (2, 5.0, "scan"),
    ]  # fmt: skip


def test_write_outside_a_run_has_no_number(store):
    """A write outside a run has no number."""
    with store.transaction():
        assert store.runs.number() is None


def test_number_of_a_failed_transaction_is_created_again(store):
    """If the transaction that created a run's row fails, the next one creates it."""
    with store.runs.run("scan", 5.0):
        with pytest.raises(ZeroDivisionError), store.transaction():
            assert 1 / (store.runs.number() - 1)
        assert store.runs.current is None
        with store.transaction():
            number = store.runs.number()

    assert [run.id for run in store.runs.newest(None)] == [number]


def test_run_whose_only_rewrite_is_abandoned_is_deleted(store):
    """A run whose only rewrite is abandoned loses its row, and later events name no run."""
    with store.runs.run("scan", 5.0):
        with store.transaction():
            note = journal.Confirmation(at=6.0, run_id=store.runs.number())
        entry = begin_rewrite(store, store_session(store), [removal("e1")], note=note)
        with store.transaction():
            store.journal.abandon(entry)
        assert store.runs.current is None
        with store.transaction():
            store.events.add(7.0, "failure", None, {}, store.runs.current)

    assert store.runs.newest(None) == []
    assert store._connection.execute("PRAGMA foreign_key_check").fetchall() == []


def test_run_with_another_open_rewrite_is_kept(store):
    """Abandoning one of two rewrites leaves the run to the other."""
    row = store_session(store)
    with store.runs.run("scan", 5.0):
        with store.transaction():
            number = store.runs.number()
        note = journal.Confirmation(at=6.0, run_id=number)
        first, second = (
            begin_rewrite(store, row, [removal(run)], note=note) for run in ("e1", "e2")
        )
        with store.transaction():
            store.journal.abandon(first)

    assert [run.id for run in store.runs.newest(None)] == [number]
    with store.transaction():
        store.journal.confirm(second, row.id, note)
    assert store.runs.by_id(number).facts["extracted"] == 1


def test_run_of_a_kept_rewrite_is_kept(store):
    """A run with a kept rewrite stays, although another rewrite of it was abandoned."""
    row = store_session(store)
    with store.runs.run("scan", 5.0), store.transaction():
        note = journal.Confirmation(at=6.0, run_id=store.runs.number())
    first, second = (
        begin_rewrite(store, row, [removal(entry)], note=note) for entry in ("e1", "e2")
    )
    with store.transaction():
        store._connection.execute("UPDATE extractions SET run_id = ?", (note.run_id,))
        store.journal.keep(first)
        store.journal.close(first)
        store.journal.abandon(second)

    assert [row.run_id for row in store.extractions.of_run(note.run_id)] == [note.run_id]
    assert [row.id for row in store.runs.newest(None)] == [note.run_id]


def expire(store):
    """Expire every value, and delete its events, as retention does."""
    with store.transaction():
        held = store._connection.execute("SELECT id FROM extractions").fetchall()
        store.expiry.delete([(ident, "old") for (ident,) in held], 7.0)
        store.events.drop([event.id for event in store.events.after(0)])


def test_old_run_without_values_is_dropped(store):
    """An old run without values is dropped; its tombstones stay and name no run."""
    number = extract_in_run(store)
    expire(store)
    assert store.runs.old(LONG_AFTER - 2) == []
    assert store.runs.old(LONG_AFTER) == [number]
    with store.transaction():
        store.runs.drop([number])

    assert store.runs.newest(None) == []
    assert store._connection.execute(
        "SELECT entry_id, run_id FROM extractions"
    ).fetchall() == [("e1", None)]  # fmt: skip
    assert store.count_dangling() == 0
    assert store.runs.last == number


@pytest.mark.parametrize("kind", ["value", "event", "field", "request", "rewrite"])
def test_run_is_kept_while_anything_of_it_can_be_undone(store, kind):
    """A value, event, field, request or open rewrite keeps its run."""
    number, row = extract_in_run(store), store_session(store)
    if kind != "value":
        expire(store)
    with store.transaction():
        store.events.drop([event.id for event in store.events.after(0)])
        if kind == "event":
            store.events.add(7.0, "rollback", row.id, {}, number)
        if kind == "field":
            store.fields.add(
                FieldRecord(0, row.id, "e1", "_extractable", None, b"x", "false", number), 1
            )
        if kind == "request":
            store.requests.add(
                replace(EVERYTHING, session_id=row.id, asked_at=7.0, rolls_back=number)
            )
    if kind == "rewrite":
        begin_rewrite(store, row, note=journal.Confirmation(at=6.0, run_id=number))

    assert store.runs.old(LONG_AFTER) == []


def test_abandoning_a_rewrite_is_fast_with_many_extractions(store):
    """Abandoning a rewrite does not read all extractions to find those of its run."""
    row, steps = store_session(store), []
    extract_in_run(store)
    store._connection.execute("BEGIN")
    store._connection.executemany(
        "INSERT INTO extractions (id, session_id, entry_id, name, path, kind, block, chars, size,"
        " digest, blob_id, extracted_at, run_id)"
        " SELECT id + ?, session_id, entry_id, name, path, kind, block, chars, size, digest,"
        " blob_id, extracted_at, run_id"
        " FROM extractions WHERE id = 1", ((number,) for number in range(1, 5000)),
    )  # fmt: skip
    store._connection.execute("COMMIT")
    with store.runs.run("scan", 5.0), store.transaction():
        note = journal.Confirmation(at=6.0, run_id=store.runs.number())
    entry = begin_rewrite(store, row, [removal("e2")], note=note)
    with store.transaction():
        store._connection.set_progress_handler(lambda: steps.append(1), 1000)
        store.journal.abandon(entry)
        store._connection.set_progress_handler(None, 0)

    assert store.runs.by_id(note.run_id) is None
    assert len(steps) < 5
