"""Let go of what was asked for and cannot be done any more, when a pass writes down what it saw."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from brainsurgeon.rewrite.untouchable import excluded

if TYPE_CHECKING:
    from brainsurgeon.config import Settings
    from brainsurgeon.model.reports import ScanReport
    from brainsurgeon.store import Store
    from brainsurgeon.store.memory import FileMemory

NO_ROOT = "its root is not configured any more"
NOT_FOUND = "it is not found below its root any more"


def let_go(
    settings: Settings, store: Store, memory: FileMemory, report: ScanReport, now: float,
    *, whole: bool,
) -> None:  # fmt: skip
    """Let put-backs lapse that come too late, and reliefs of sessions that are left alone now.

    What `relieve` would refuse at once is waited for no longer. Only a `whole` pass can tell that
    a session is gone. Part of the transaction in which the pass writes down what it saw.
    """
    pass_id = store.passes.so_far
    store.wishes.lapse(now, pass_id)
    skipped = {one.path: one.reason for one in report.sessions if one.outcome == "skipped"}
    troubled = {problem.root for problem in report.problems}
    roots = {os.path.realpath(root.path) for root in settings.root_directories()}
    for wish, path, root in store.wishes.reliefs():
        missed, file = memory.asked(path)
        why = None
        if file:
            why = excluded(file, settings, asked=True) or skipped.get(path)
        elif missed and whole and root not in roots:
            why = NO_ROOT
        elif missed and whole and root not in troubled:
            why = NOT_FOUND
        if why:
            store.wishes.let_go([wish], why, now, pass_id)
