"""Print one table of all measurements.

    python -m bench [GROUP]... [--runs 3] [--large] [--json]

Groups are the modules in GROUPS; the default is all. `--large` adds the gigabyte session, the
100,000 files and the million rows, and takes about an hour.

    python -m bench money [DIRECTORY] [--json]

prints an estimate of costs instead: `money.py`.
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
    "opencode",
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
    options = parser.parse_args()
    if options.groups[:1] == ["money"]:
        show(options.groups[1:], as_json=options.json)
        return 0
    if unknown := set(options.groups) - set(GROUPS):
        parser.error(f"no such group: {', '.join(sorted(unknown))}")
    table = Table(as_json=options.json)
    for name in options.groups or GROUPS:
        with tempfile.TemporaryDirectory(prefix="brainsurgeon-bench-") as scratch:
            for row in importlib.import_module(f"bench.{name}").rows(Path(scratch), options):
                table.add(row)
    within_bounds = table.end({
        "python": platform.python_version(), "sqlite": sqlite3.sqlite_version,
        "kernel": platform.release(), "processors": os.cpu_count(),
        "load": f"{os.getloadavg()[0]:.1f}",
    })  # fmt: skip
    return 0 if within_bounds else 1


if __name__ == "__main__":
    sys.exit(main())
