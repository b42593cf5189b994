"""The text of answers about sessions."""

import pytest

from brainsurgeon.model.reports import FieldAnswer, SessionRestore
from brainsurgeon.render.sessions import restored_all, set_


def test_long_restore_lists_the_first_twenty_changes_of_a_session():
    """Of 30 removed fields and 30 failures, 20 each are listed, and the numbers of the others."""
    entries = tuple(f"_restored of entry {number}" for number in range(30))
    done = SessionRestore("main/s", "restored", insertions_removed=entries, missed=entries)

    text = restored_all([done])

    assert text.count("\n  undone: ") == text.count("\n  not done: ") == 20
    assert "… and 10 more undone\n" in text
    assert "… and 10 more not done (--json names each)\n" in text


@pytest.mark.parametrize(
    ("number", "values"), [(1, "1 extracted value"), (2, "2 extracted values")]
)
def test_pin_of_an_extracted_entry_names_the_remedy(number, values):
    """The text says in a sentence how many values are extracted, and how to restore the entry."""
    text = set_(
        FieldAnswer("4f", "main/s", extractable=False, pending=False, still_extracted=number)
    )

    assert text == (
        "main/s 4f: pinned\n"
        f"the entry still has {values}: `brainsurgeon restore 4f` restores the entry"
    )


def test_end_of_a_restore_claims_nothing_about_failed_sessions():
    """After a failure, the last line says that placeholders may be left, else that they are."""
    waits = SessionRestore("main/w", "pending", reason="a turn is open")
    failed = SessionRestore("main/f", "failed", reason="Permission denied")

    assert "; placeholders are left in 1 session, 1 of" in restored_all([waits])
    assert restored_all([failed]).endswith("; placeholders may be left in 1 session")
    assert "; placeholders may be left in 2 sessions, 1 of" in restored_all([failed, waits])


def test_restore_counts_the_values_that_stay_by_reason():
    """Many entries with one reason are a line with their number, once, and all in JSON."""
    expired = tuple(f"e{number}: expired" for number in range(200))
    unknown = tuple(f"u{number}: no record" for number in range(5))
    left = SessionRestore("main/s", "nothing restored", missed=expired, left=expired + unknown)

    text = restored_all([left])

    assert text.splitlines()[1:-1] == [
        "  not done: 200 entries, e0, e1, e2, … and 197 more: expired",
        "  placeholder not replaced: 5 entries, u0, u1, u2, … and 2 more: no record",
    ]
