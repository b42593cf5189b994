"""The benchmark: its groups, its table, and its figures in README."""

import importlib
import json
import subprocess
import sys

import pytest

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


def test_each_benchmark_group_is_a_module_with_rows():
    """`--help` names each group, and an unknown group is a usage error."""
    assert all(callable(importlib.import_module(f"bench.{name}").rows) for name in GROUPS)
    text = bench("--help").stdout
    assert all(name in text for name in GROUPS)
    assert bench("no-such-group").returncode == 2


def test_readme_shows_the_output_of_the_money_benchmark(capsys):
    """README has both tables of `sh deploy/bench.sh money`.

    Whatever a cached token costs, the default is the best of the values of `when`, or within half a
    percent of it.
    """
    show([], as_json=False)
    printed = capsys.readouterr().out.splitlines()

    shown = "\n".join(["$ sh deploy/bench.sh money", *printed[:6], "…", *printed[-5:]])
    assert shown in (TOP / "README.md").read_text()
    for column in range(1, 4):
        configured, _, *others = (
            float(line.replace(" %", "").split()[column]) for line in printed[-4:]
        )  # fmt: skip
        assert configured <= 1.005 * min(others)


def test_benchmark_rows_show_the_ratio_to_their_limit(capsys):
    """The table has work, figure, limit, ratio, memory and target; JSON adds the machine."""
    table = Table(as_json=False)
    table.add(ROW)
    cells = capsys.readouterr().out.splitlines()[2].split()

    assert cells == ["work", "3.00", "ms", "-", "a", "limit", "1.50", "ms", "2.00", "4", "MB", "1x"]

    table = Table(as_json=True)
    table.add(ROW)
    table.add(Row("more", 1.0))
    table.end({"processors": 2})
    report = json.loads(capsys.readouterr().out)

    assert [row["ratio"] for row in report["rows"]] == [2.0, None]
    assert report["machine"] == {"processors": 2}


@pytest.mark.long(proves=("agents", "rewrite", "files"))
def test_scans_of_a_large_opencode_database_cost_a_bounded_multiple():
    """A first scan is compared with bare updates of all parts, a later one with their reading."""
    done = bench("opencode", "--mb", "60", "--runs", "1", "--json")

    report = json.loads(done.stdout)
    assert (done.returncode, len(report["rows"])) == (0, 4)
    ratios = [(row["ratio"], row["most"]) for row in report["rows"][:2]]
    assert all(ratio < most for ratio, most in ratios)
