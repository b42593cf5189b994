"""Tell beforehand how much a command has to look at, for whoever watches it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from brainsurgeon.lookup.sessions import all_sessions
from brainsurgeon.model.sessions import SessionFile, Unreadable
from brainsurgeon.sessions.discover import discover
from brainsurgeon.sessions.row_listing import list_rows

if TYPE_CHECKING:
    from collections.abc import Collection

    from brainsurgeon.config import Settings
    from brainsurgeon.store import Store

Ahead = tuple[int, int]
"""A number of sessions, and their size in bytes."""


def ahead_of_scan(settings: Settings, store: Store | None, only: Collection[str] = ()) -> Ahead:
    """Count the sessions that a pass will look at, since they changed or wait for another look."""
    roots, rules = settings.root_directories(), settings.rules_fingerprint()
    known = store.files.all() if store else {}
    sizes = []
    for file in (*discover(roots), *list_rows(roots)):
        if isinstance(file, Unreadable) or (only and file.path not in only):
            continue
        state = known.get(os.fsencode(file.path))
        rests = state and state.fingerprint == file.fingerprint and state.rules == rules
        if only or not rests or (state and state.outcome in ("again", "waits", "failed")):
            sizes.append(file.fingerprint.size)
    return len(sizes), sum(sizes)


def ahead_of_restore(settings: Settings, store: Store) -> Ahead:
    """Count the sessions that `restore --all` goes through."""
    files = [one.file for one in all_sessions(settings, store, beyond=True) if one.file]
    return len(files), sum(file.fingerprint.size for file in files)


def largest_ahead(settings: Settings, most: int) -> Ahead:
    """Count the largest sessions, no more than so many."""
    roots = settings.root_directories()
    found = (one for one in (*discover(roots), *list_rows(roots)) if isinstance(one, SessionFile))
    sizes = sorted((file.fingerprint.size for file in found), reverse=True)[:most]
    return len(sizes), sum(sizes)
