"""The runs: numbered when something is written, counted, and named by what they made."""

import pytest
from msgspec.structs import replace

from brainsurgeon.model.records import EVERYTHING, FieldRecord
from brainsurgeon.store import journal
from brainsurgeon.store.history import KEPT_SECONDS
from building.store_rows import begin_rewrite, removal, store_session

# When what `made` made is as old as runs get.
LONG_AFTER = 6.0 + KEPT_SECONDS


def made(store, command="scan", *, cuts=("e1",), tokens=0):
    """Extract something in a run; give its number."""
    row = store_session(store)
    with store.runs.run(command, 5.0):
        with store.transaction():
            number = store.runs.number()
        cutting = [replace(removal(one), tokens=tokens) for one in cuts]
        entry = begin_rewrite(store, row, cutting, note=journal.Confirmation(at=6.0, run_id=number))
        with store.transaction():
            store.journal.confirm(entry, row.id, store.journal.rewrite(entry).confirmation)
            store.journal.close(entry)
    return number


def test_a_run_has_one_number_for_all_that_it_writes(store):
    """Whatever a run writes names the same run, and the next run another."""
    numbers = []
    for _ in range(2):
        with store.runs.run("scan", 5.0):
            for _ in range(2):
                with store.transaction():
                    numbers.append(store.runs.number())

    assert numbers == [1, 1, 2, 2]
    assert [(one.id, one.at, one.command) for one in store.runs.newest(None)] == [
        (1, 5.0, "scan"), (2, 5.0, "scan"),
    ]  # fmt: skip


def test_nobody_outside_a_run_has_a_number(store):
    """What is written without a run names none."""
    with store.transaction():
        assert store.runs.number() is None


def test_a_number_that_was_not_committed_is_made_anew(store):
    """Where the transaction failed that made the row, the next one makes it."""
    with store.runs.run("scan", 5.0):
        with pytest.raises(ZeroDivisionError), store.transaction():
            assert 1 / (store.runs.number() - 1)
        assert store.runs.current is None
        with store.transaction():
            number = store.runs.number()

    assert [one.id for one in store.runs.newest(None)] == [number]


def test_a_run_of_which_nothing_happened_is_no_run(store):
    """Where the only rewrite of a run was given up before anybody could see it, its row goes."""
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


def test_a_run_that_still_has_something_under_way_stays(store):
    """Giving up one of two rewrites leaves the run to the other."""
    row = store_session(store)
    with store.runs.run("scan", 5.0):
        with store.transaction():
            number = store.runs.number()
        note = journal.Confirmation(at=6.0, run_id=number)
        first, second = (
            begin_rewrite(store, row, [removal(one)], note=note) for one in ("e1", "e2")
        )
        with store.transaction():
            store.journal.abandon(first)

    assert [one.id for one in store.runs.newest(None)] == [number]
    with store.transaction():
        store.journal.confirm(second, row.id, note)
    assert store.runs.named(number).facts["extracted"] == 1


def test_a_run_whose_placeholders_were_seen_for_an_instant_stays(store):
    """What may be written again names its run, also where another rewrite of it was given up."""
    row = store_session(store)
    with store.runs.run("scan", 5.0), store.transaction():
        note = journal.Confirmation(at=6.0, run_id=store.runs.number())
    first, second = (begin_rewrite(store, row, [removal(one)], note=note) for one in ("e1", "e2"))
    with store.transaction():
        store._connection.execute("UPDATE extractions SET run_id = ?", (note.run_id,))
        store.journal.keep(first)
        store.journal.close(first)
        store.journal.abandon(second)

    assert [one.run_id for one in store.extractions.of_run(note.run_id)] == [note.run_id]
    assert [one.id for one in store.runs.newest(None)] == [note.run_id]


def expire(store):
    """Release every value, as retention does, and of what was told of it."""
    with store.transaction():
        held = store._connection.execute("SELECT id FROM extractions").fetchall()
        store.expiry.delete([(ident, "old") for (ident,) in held], 7.0)
        store.events.drop([one.id for one in store.events.after(0)])


def test_an_old_run_of_which_nothing_is_left_is_let_go_of(store):
    """Its tombstones stay and name no run then; nothing leads to what is not there."""
    number = made(store)
    expire(store)
    assert store.runs.old(LONG_AFTER - 2) == []
    assert store.runs.old(LONG_AFTER) == [number]
    with store.transaction():
        store.runs.drop([number])

    assert store.runs.newest(None) == []
    assert store._connection.execute(
        "SELECT entry_id, run_id FROM extractions"
    ).fetchall() == [("e1", None)]  # fmt: skip
    assert store.dangling() == 0
    assert store.runs.last == number


@pytest.mark.parametrize("kept", ["value", "event", "field", "request", "rewrite"])
def test_a_run_is_kept_for_as_long_as_something_of_it_may_be_taken_back(store, kept):
    """A value that is held, an event, a field, a request or a rewrite under way keeps it."""
    number, row = made(store), store_session(store)
    if kept != "value":
        expire(store)
    with store.transaction():
        store.events.drop([one.id for one in store.events.after(0)])
        if kept == "event":
            store.events.add(7.0, "rollback", row.id, {}, number)
        if kept == "field":
            store.fields.add(
                FieldRecord(0, row.id, "e1", "_extractable", None, b"x", "false", number), 1
            )
        if kept == "request":
            store.requests.add(
                replace(EVERYTHING, session_id=row.id, asked_at=7.0, rolls_back=number)
            )
    if kept == "rewrite":
        begin_rewrite(store, row, note=journal.Confirmation(at=6.0, run_id=number))

    assert store.runs.old(LONG_AFTER) == []


def test_giving_up_a_rewrite_costs_the_same_however_much_was_cut(store):
    """What names its run is found without a look at every value that was ever cut."""
    row, steps = store_session(store), []
    made(store)
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

    assert store.runs.named(note.run_id) is None
    assert len(steps) < 5
