"""The progress bar of long commands: only on a terminal, and removed at the end."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from brainsurgeon.lookup.sessions import all_sessions
from brainsurgeon.model.sessions import SessionFile, Unreadable
from brainsurgeon.model.text import readable
from brainsurgeon.sessions.discovery import discover
from brainsurgeon.sessions.row_listing import list_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from brainsurgeon.config import Settings
    from brainsurgeon.store import Store

# A number of sessions, and their size in bytes.
Ahead = tuple[int, int]


def is_watched() -> bool:
    """Check whether standard error is a terminal that can move its cursor."""
    return sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb"


@contextmanager
def progress_bar(
    verb: str, totals: Callable[[], Ahead], *, quiet: bool
) -> Iterator[Callable[[SessionFile], None]]:
    """Show how many of all sessions and bytes are done, and how long the rest may take.

    `totals` returns both. It walks the roots, so it is only called if the bar is shown.
    """
    if quiet or not is_watched():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn
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


def ahead_of_scan(settings: Settings, store: Store | None, only: Collection[str] = ()) -> Ahead:
    """Count the sessions that a run will read, since they changed or are to be read again."""
    roots, rules = settings.root_directories(), settings.rules_fingerprint()
    known = store.files.all() if store else {}
    sizes = []
    for file in (*discover(roots), *list_rows(roots)):
        if isinstance(file, Unreadable) or (only and file.path not in only):
            continue
        state = known.get(file.path)
        rests = state and state.fingerprint == file.fingerprint and state.rules == rules
        if only or not rests or (state and state.outcome in ("again", "waits", "failed")):
            sizes.append(file.fingerprint.size)
    return len(sizes), sum(sizes)


def ahead_of_restore(settings: Settings, store: Store) -> Ahead:
    """Count the sessions that `restore --all` goes through."""
    sessions = all_sessions(settings, store, beyond=True)
    sizes = [session.file.fingerprint.size for session in sessions if session.file]
    return len(sizes), sum(sizes)


def largest_ahead(settings: Settings, most: int) -> Ahead:
    """Count the largest sessions, at most `most`."""
    roots = settings.root_directories()
    files = [
        file for file in (*discover(roots), *list_rows(roots)) if isinstance(file, SessionFile)
    ]
    sizes = sorted(file.fingerprint.size for file in files)[-most:]
    return len(sizes), sum(sizes)
