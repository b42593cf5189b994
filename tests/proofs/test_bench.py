"""The benchmark: what it would measure, and how it tells it."""

import importlib
import json
import subprocess
import sys

from bench.__main__ import GROUPS
from bench.money import show
from bench.table import Row, Table
from building.world import TESTS, TOP

ROW = Row("work", 3.0, "ms", "a limit", 1.5, memory=4.4, target="1x", note="seen")


def bench(*words):
    return subprocess.run(
        [sys.executable, "-m", "bench", *words],
        cwd=TESTS, capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_every_group_of_rows_can_be_measured():
    """Each group that is named is a module with rows, and no other name is taken for one."""
    assert all(callable(importlib.import_module(f"bench.{name}").rows) for name in GROUPS)
    assert all(name in bench("--help").stdout for name in GROUPS)
    assert bench("no-such-group").returncode == 2


def test_the_readme_quotes_what_the_samples_would_have_cost(capsys):
    """The table in it is the one that `sh deploy/bench.sh money` prints."""
    show([], as_json=False)
    printed = capsys.readouterr().out.splitlines()[:5]

    assert "$ sh deploy/bench.sh money\n" + "\n".join(printed) in (TOP / "README.md").read_text()


def test_a_row_says_how_many_times_its_limit_it_took(capsys):
    """The table has work, figure, limit, ratio, memory and target; JSON has the same and more."""
    table = Table(as_json=False)
    table.add(ROW)
    cells = capsys.readouterr().out.splitlines()[2].split()

    assert cells == ["work", "3.00", "ms", "-", "a", "limit", "1.50", "ms", "2.00", "4", "MB", "1x"]

    whole = Table(as_json=True)
    whole.add(ROW)
    whole.add(Row("more", 1.0))
    whole.end({"processors": 2})
    told = json.loads(capsys.readouterr().out)

    assert [one["ratio"] for one in told["rows"]] == [2.0, None]
    assert told["machine"] == {"processors": 2}
