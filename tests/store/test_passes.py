"""The passes: numbered when something is written, counted, and named by what they made."""

import pytest

from brainsurgeon.store import journal
from building.rows import begin, count, cut, session


def made(store, command="scan", *, cuts=("e1",)):
    """Cut something in a pass; give its number."""
    row = session(store)
    with store.passes.run(command, 5.0):
        with store.transaction():
            number = store.passes.number()
        entry = begin(store, row, [cut(one) for one in cuts], note=journal.Confirmation(
            at=6.0, pass_id=number
        ))  # fmt: skip
        with store.transaction():
            store.journal.confirm(entry, row.id, store.journal.rewrite(entry).confirmation)
    return number


def test_a_pass_that_writes_nothing_has_no_number(store):
    """Only who needs a number makes a row."""
    with store.passes.run("scan", 5.0):
        pass

    assert store.passes.newest(None) == []
    assert count(store, "passes") == 0


def test_a_pass_has_one_number_for_all_that_it_writes(store):
    """Whatever a run writes names the same pass, and the next run another."""
    numbers = []
    for _ in range(2):
        with store.passes.run("scan", 5.0):
            for _ in range(2):
                with store.transaction():
                    numbers.append(store.passes.number())

    assert numbers == [1, 1, 2, 2]
    assert [(one.id, one.at, one.command) for one in store.passes.newest(None)] == [
        (1, 5.0, "scan"), (2, 5.0, "scan"),
    ]  # fmt: skip


def test_nobody_outside_a_run_has_a_number(store):
    """What is written without a pass names none."""
    with store.transaction():
        assert store.passes.number() is None


def test_a_number_that_was_not_committed_is_made_anew(store):
    """Where the transaction failed that made the row, the next one makes it."""
    with store.passes.run("scan", 5.0):
        with pytest.raises(ZeroDivisionError), store.transaction():
            assert 1 / (store.passes.number() - 1)
        assert store.passes.so_far is None
        with store.transaction():
            number = store.passes.number()

    assert [one.id for one in store.passes.newest(None)] == [number]


def test_a_pass_counts_what_it_did(store):
    """Sessions, values, characters and estimated tokens of a rewrite that happened are added up."""
    number = made(store, cuts=("e1", "e2"))

    assert store.passes.named(number).facts == {
        "sessions": 1, "extracted": 2, "chars": 14, "tokens": 5,
    }  # fmt: skip


def test_a_pass_of_which_nothing_happened_is_no_pass(store):
    """Where the only rewrite of a pass was given up before anybody could see it, its row goes."""
    with store.passes.run("scan", 5.0):
        with store.transaction():
            note = journal.Confirmation(at=6.0, pass_id=store.passes.number())
        entry = begin(store, session(store), [cut("e1")], note=note)
        with store.transaction():
            store.journal.abandon(entry)
        assert store.passes.so_far is None
        with store.transaction():
            store.events.add(7.0, "failure", None, {}, store.passes.so_far)

    assert store.passes.newest(None) == []
    assert store._connection.execute("PRAGMA foreign_key_check").fetchall() == []


def test_a_pass_that_still_has_something_under_way_stays(store):
    """Giving up one of two rewrites leaves the pass to the other."""
    row = session(store)
    with store.passes.run("scan", 5.0):
        with store.transaction():
            number = store.passes.number()
        note = journal.Confirmation(at=6.0, pass_id=number)
        first, second = (begin(store, row, [cut(one)], note=note) for one in ("e1", "e2"))
        with store.transaction():
            store.journal.abandon(first)

    assert [one.id for one in store.passes.newest(None)] == [number]
    with store.transaction():
        store.journal.confirm(second, row.id, note)
    assert store.passes.named(number).facts["extracted"] == 1


def test_a_pass_whose_stubs_were_seen_for_an_instant_stays(store):
    """What may be written again names its pass, also where another rewrite of it was given up."""
    row = session(store)
    with store.passes.run("scan", 5.0), store.transaction():
        note = journal.Confirmation(at=6.0, pass_id=store.passes.number())
    first, second = (begin(store, row, [cut(one)], note=note) for one in ("e1", "e2"))
    with store.transaction():
        store._connection.execute("UPDATE extractions SET pass_id = ?", (note.pass_id,))
        store.journal.idle(first)
        store.journal.close(first)
        store.journal.abandon(second)

    assert [one.pass_id for one in store.extractions.of_pass(note.pass_id)] == [note.pass_id]
    assert [one.id for one in store.passes.newest(None)] == [note.pass_id]


def test_the_newest_passes_come_last(store):
    """Of many the newest are given, in their order."""
    numbers = [made(store, cuts=(f"e{number}",)) for number in range(4)]

    assert [one.id for one in store.passes.newest(2)] == numbers[-2:]
