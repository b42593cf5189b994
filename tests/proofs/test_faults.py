"""The list of faults speaks of tests that exist, and leaves no number out."""

import re

from building.world import TESTS

FAULTS = (TESTS / "FAULTS.md").read_text(encoding="utf-8")


def test_every_test_that_the_list_names_exists():
    """Each `file::test` of the list is a test of that file."""
    named = re.findall(r"`([\w/]+\.py)::(test_\w+)`", FAULTS)
    assert len(named) > 100
    missing = [
        f"{file}::{test}"
        for file, test in named
        if not (TESTS / file).exists()
        or not re.search(
            rf"^(?:    )?def {test}\(", (TESTS / file).read_text(encoding="utf-8"), re.MULTILINE
        )
    ]
    assert not missing


def test_every_fault_has_its_row():
    """The numbers go on from 1, and each row names a test or says why there is none."""
    rows = re.findall(r"^\| (\d+) \|.*\| (.+) \|$", FAULTS, re.MULTILINE)
    assert [int(number) for number, _ in rows] == list(range(1, len(rows) + 1))
    assert len(rows) >= 70
    assert all("::test_" in shown or "as for" in shown or "no test" in shown for _, shown in rows)
