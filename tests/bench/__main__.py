"""Print one table of everything that is measured.

    python -m bench [GROUP]... [--runs 5] [--large] [--json]

Groups are the modules that stand in GROUPS; without any it is all of them. With `--large` the
gigabyte, the 100,000 files and the million rows are measured as well, for an hour or so.

    python -m bench money [DIRECTORY] [--json]

prints an estimate of money instead: `money.py`.
"""

import argparse
import importlib
import os
import platform
import sqlite3
import sys
import tempfile
from pathlib import Path

from bench.money import show
from bench.table import Table

GROUPS = (
    "scans",
    "appends",
    "walks",
    "commands",
    "idle",
    "openers",
    "claw",
    "stores",
    "turns",
    "counts",
)


def main():
    parser = argparse.ArgumentParser(prog="bench.sh", description=__doc__.splitlines()[0])
    parser.add_argument("groups", nargs="*", metavar="GROUP", help=f"of {', '.join(GROUPS)}")
    parser.add_argument("--runs", type=int, default=3, help="of which the medians are given")
    parser.add_argument("--mb", type=int, default=100, help="size of the large session")
    parser.add_argument("--large", action="store_true", help="also what takes many minutes")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    wanted = parser.parse_args()
    if wanted.groups[:1] == ["money"]:
        show(wanted.groups[1:], as_json=wanted.json)
        return 0
    if strangers := set(wanted.groups) - set(GROUPS):
        parser.error(f"no such group: {', '.join(sorted(strangers))}")
    table = Table(as_json=wanted.json)
    for name in wanted.groups or GROUPS:
        with tempfile.TemporaryDirectory(prefix="brainsurgeon-bench-") as scratch:
            for row in importlib.import_module(f"bench.{name}").rows(Path(scratch), wanted):
                table.add(row)
    kept = table.end({
        "python": platform.python_version(), "sqlite": sqlite3.sqlite_version,
        "kernel": platform.release(), "processors": os.cpu_count(),
        "load": f"{os.getloadavg()[0]:.1f}",
    })  # fmt: skip
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
