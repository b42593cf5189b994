"""The table of archives on a terminal."""

import os
import pty
from contextlib import redirect_stdout

import pytest

from brainsurgeon.model.reports import ListedArchive
from brainsurgeon.model.turns import ArchiveRecord
from brainsurgeon.render.turns import archives


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
