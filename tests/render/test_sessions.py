"""The text of answers about sessions."""

from brainsurgeon.model.reports import SessionRestore
from brainsurgeon.render.sessions import restored_all


def test_long_restore_lists_the_first_twenty_changes_of_a_session():
    """Of 30 removed fields and 30 failures, 20 each are listed, and the numbers of the others."""
    entries = tuple(f"_restored of entry {number}" for number in range(30))
    done = SessionRestore("main/s", "restored", insertions_removed=entries, missed=entries)

    text = restored_all([done])

    assert text.count("\n  undone: ") == text.count("\n  not done: ") == 20
    assert "… and 10 more undone\n" in text
    assert "… and 10 more not done (--json names each)\n" in text
