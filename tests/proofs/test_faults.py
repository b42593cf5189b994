"""The list of faults, tests/FAULTS.md."""

import re

from building.world import TESTS

FAULTS = (TESTS / "FAULTS.md").read_text(encoding="utf-8")


def test_every_test_named_in_the_fault_list_exists():
    """Each `file::test` in the list is a function of that file."""
    names = re.findall(r"`([\w/]+\.py)::(test_\w+)`", FAULTS)
    assert len(names) > 100
    missing = [
        f"{file}::{test}"
        for file, test in names
        if not (TESTS / file).exists()
        or not re.search(
            rf"^(?:    )?def {test}\(", (TESTS / file).read_text(encoding="utf-8"), re.MULTILINE
        )
    ]
    assert not missing


def test_every_fault_is_numbered_and_names_a_test_or_a_reason():
    """Rows are numbered from 1 without a gap; a fault without a test gives the reason."""
    rows = re.findall(r"^\| (\d+) \|.*\| (.+) \|$", FAULTS, re.MULTILINE)
    assert [int(number) for number, _ in rows] == list(range(1, len(rows) + 1))
    assert len(rows) >= 70
    assert all("::test_" in shown or "as for" in shown or "no test" in shown for _, shown in rows)
