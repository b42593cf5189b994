"""The table of archives on a terminal, and the texts of reliefs."""

import os
import pty
import time
from contextlib import redirect_stdout

import pytest
from msgspec.structs import replace

from brainsurgeon.model.reports import ListedArchive, Relief
from brainsurgeon.model.turns import ArchiveRecord, Calibration, Fullness
from brainsurgeon.render.turns import archives, relief


@pytest.fixture
def terminal(monkeypatch):
    ours, theirs = pty.openpty()
    monkeypatch.setenv("COLUMNS", "80")
    with os.fdopen(theirs, "w") as stream:
        yield stream
    os.close(ours)


@pytest.mark.parametrize(
    "ident", ["b0dffe15", "64150131-b069-40b0-9636-06b9f3adc37a"], ids=["OpenClaw", "Claude Code"]
)
def test_archives_table_fits_80_columns(terminal, ident):
    """Session names are shortened, then columns dropped; ids stay complete for `show`."""
    record = ArchiveRecord(
        ident, "p", 9, 108_032, 1_557, 1, None, 1_000, 1_000, 1_000, 1, 1, 1.0,
    )  # fmt: skip
    rows = [ListedArchive("pi:--" + "a-long-name-" * 9, record)]
    with redirect_stdout(terminal):
        head, row = archives(rows, 86_400.0 * 20).splitlines()

    assert max(len(head), len(row)) <= 80
    assert row.startswith(f"{ident}  pi:")
    assert "1,000  110,000 -> 1,600" in row
    assert head.endswith("age")


@pytest.fixture
def relieved():
    """Return a relief of a session whose load did not change."""
    full = Fullness(100, 1000, 0.5, Calibration(0.3, 0, 1, "session"))
    return Relief(full, full, 500, session="main/s", bytes_before=9000, bytes_after=9000)


def test_a_relief_that_only_archived_turns_did_something(relieved):
    """A relief says that nothing was done only if the session was not changed."""
    archived = replace(relieved, bytes_after=4000)

    assert "nothing was done" in relief(relieved, dry_run=False)
    assert "9,000 B -> 4,000 B" in relief(archived, dry_run=False)


def test_a_relief_names_the_day_on_which_protection_ends(relieved):
    """The end of a protection has a date, unless it ends today."""
    end = 60 * (time.time() // 60) + 2 * 86_400
    text = relief(replace(relieved, reason="busy", protected=(1000, end)), dry_run=True)

    assert f"until {time.strftime('%Y-%m-%d %H:%M', time.localtime(end))};" in text
