"""What a rewrite that happened is told of: one event a kind, with its counts."""

from msgspec.structs import replace

from brainsurgeon.model.records import EVERYTHING
from brainsurgeon.store import journal
from building.rows import begin, cut, session


def confirmed(store, row, entry, note):
    with store.transaction():
        store.journal.confirm(entry, row.id, note)
    return store.events.after(0)


def test_a_cut_is_told_with_its_kind_and_tool(store):
    """An extraction says how many values of which kind and tool went, and how long they were."""
    row = session(store)
    [event] = confirmed(
        store, row, begin(store, row, [cut("e1"), cut("e2")]), journal.Confirmation(at=2.0)
    )

    assert (event.kind, event.session_id, event.at, event.run_id) == (
        "extraction",
        row.id,
        2.0,
        None,
    )
    assert event.facts == {
        "values": 2, "chars": 14, "size_bytes": 10,
        "by": [{"kind": "tool_result", "tool": "exec", "values": 2, "chars": 14}],
    }  # fmt: skip


def test_a_rewrite_that_did_not_happen_is_not_told(store):
    """Nobody hears of what was given up."""
    row = session(store)
    entry = begin(store, row, [cut("e1")])
    with store.transaction():
        store.journal.abandon(entry)

    assert store.events.after(0) == []


def test_a_call_that_was_shortened_is_a_redaction(store):
    """Another text than a placeholder is told apart, but not thinking without a word."""
    row = session(store)
    short = replace(cut("e1"), new=b'"short"', redacts=True)
    emptied = replace(cut("e2"), new=b"{}", empties=True, kind="thinking", tool=None)
    entry = begin(store, row, [short, emptied])

    told = confirmed(store, row, entry, journal.Confirmation(at=2.0))
    assert {one.kind: one.facts["by"][0]["kind"] for one in told} == {
        "extraction": "thinking", "redaction": "tool_result",
    }  # fmt: skip


def test_a_put_back_of_a_rollback_names_the_run_that_it_undoes(store):
    """A rollback is told as one, by its own run or by the request that it left."""
    row = session(store)
    with store.runs.run("scan", 1.0), store.transaction():
        of = store.runs.number()
    with store.runs.run("rollback", 1.0, rolls_back=of), store.transaction():
        number = store.runs.number()
    confirmed(store, row, begin(store, row, [cut("e1"), cut("e2")]), journal.Confirmation(at=2.0))
    with store.transaction():
        store.requests.add(replace(EVERYTHING, session_id=row.id, asked_at=1.0, rolls_back=of))
    at_once = journal.Confirmation(at=3.0, restored_ids=[1], run_id=number)
    later = journal.Confirmation(at=4.0, restored_ids=[2], requests=[1])

    confirmed(store, row, begin(store, row), at_once)
    told = confirmed(store, row, begin(store, row), later)
    assert [(one.kind, one.facts["rolls_back"]) for one in told[1:]] == [("rollback", of)] * 2
