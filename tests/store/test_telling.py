"""What a rewrite that happened is told of: one event a kind, with its counts."""

from msgspec.structs import replace

from brainsurgeon.store import journal
from building.store_rows import begin_rewrite, removal, store_session


def confirmed(store, row, entry, note):
    with store.transaction():
        store.journal.confirm(entry, row.id, note)
    return store.events.after(0)


def test_a_rewrite_that_did_not_happen_is_not_told(store):
    """Nobody hears of what was given up."""
    row = store_session(store)
    entry = begin_rewrite(store, row, [removal("e1")])
    with store.transaction():
        store.journal.abandon(entry)

    assert store.events.after(0) == []


def test_a_call_that_was_shortened_is_a_redaction(store):
    """Another text than a placeholder is told apart, but not thinking without a word."""
    row = store_session(store)
    short = replace(removal("e1"), new=b'"short"', how="redact")
    emptied = replace(removal("e2"), new=b"{}", how="empty", kind="thinking", tool=None)
    entry = begin_rewrite(store, row, [short, emptied])

    told = confirmed(store, row, entry, journal.Confirmation(at=2.0))
    assert {one.kind: one.facts["by"][0]["kind"] for one in told} == {
        "extraction": "thinking", "redaction": "tool_result",
    }  # fmt: skip
