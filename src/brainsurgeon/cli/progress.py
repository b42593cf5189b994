"""A bar on a terminal for what takes long: silent where nobody watches, and gone at the end."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from brainsurgeon.model.texts import readable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from brainsurgeon.model.sessions import SessionFile

    Step = Callable[[SessionFile], None]


def watched() -> bool:
    """Tell whether somebody watches standard error: a terminal that can move its cursor."""
    return sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb"


@contextmanager
def progress_bar(
    verb: str, totals: Callable[[], tuple[int, int]], *, quiet: bool
) -> Iterator[Step]:
    """Show how many of all sessions and bytes are done, and how long the rest may take.

    `totals` tells both, and is asked only where somebody watches: it walks the roots.
    """
    if quiet or not watched():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )
    from rich.table import Column

    number, size = totals()
    console = Console(file=sys.stderr, markup=False, highlight=False, emoji=False)
    columns = (
        TextColumn("{task.description}", markup=False,
                   table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis")),
        BarColumn(bar_width=16), TextColumn("{task.fields[done]}", markup=False),
        DownloadColumn(), TimeRemainingColumn(compact=True, elapsed_when_finished=True),
    )  # fmt: skip
    with Progress(*columns, console=console, transient=True, expand=True) as bar:
        task = bar.add_task(verb, total=max(size, 1), done=f"0 of {number:,}")
        seen = 0

        def step(file: SessionFile) -> None:
            nonlocal seen
            seen += 1
            bar.update(
                task, description=f"{verb} {readable(file.title)}",
                advance=file.fingerprint.size, done=f"{min(seen, number):,} of {number:,}",
            )  # fmt: skip

        yield step
