"""Save what a damaged store still holds into a new one, which takes its place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from brainsurgeon.model.words import counted
from brainsurgeon.operations.doctor import Finding
from brainsurgeon.operations.store_care import stamp
from brainsurgeon.store import copies, replacing
from brainsurgeon.store.alone import hold_store
from brainsurgeon.store.opening import database_path
from brainsurgeon.store.salvage import salvage

if TYPE_CHECKING:
    from brainsurgeon.config import Settings
    from brainsurgeon.operations.doctor import Level
    from brainsurgeon.store.salvage import Salvaged

_NEEDED = frozenset({"agents", "sessions", "extractions", "blobs"})
"""The tables without whose rows a stub leads nowhere."""


@dataclass(frozen=True, slots=True)
class Rescue:
    """What was saved from a damaged store, and where that stays."""

    kept: str | None
    saved: Salvaged


def rescue(settings: Settings, now: float) -> Rescue | None:
    """Save what a damaged store still holds into a new one; None where it is not damaged."""
    directory = settings.state_dir
    if not copies.is_damaged(directory):
        return None
    with hold_store(directory), replacing.staging(directory) as place:
        path = database_path(place)
        saved = salvage(directory, path, now)
        copies.check_copy(path)
        return Rescue(replacing.put_in_place(directory, path, f"damaged-{stamp(now)}"), saved)


def rescued(done: Rescue) -> list[Finding]:
    """Say what was saved from a damaged store, and what was not."""
    saved = done.saved
    findings = [Finding(
        "note",
        f"the database was damaged: {counted(saved.values, 'stored value')} and "
        f"{counted(sum(saved.rows.values()), 'row')} were saved into a new one",
        f"the damaged one stays as {done.kept}: a backup may hold what is missing" if done.kept
        else "",
    )]  # fmt: skip
    if saved.values_lost:
        findings.append(Finding(
            "error", f"{counted(saved.values_lost, 'stored value is', 'stored values are')} lost",
            "their stubs lead to a tombstone now; a backup may have them: store restore FILE",
        ))  # fmt: skip
    if saved.sessions_made:
        rows = counted(saved.sessions_made, "row was", "rows were")
        findings.append(Finding(
            "warning", f"sessions: {rows} put together again from an index",
            "the next scan says anew what else belongs there; of a fork it is lost what it was"
            " forked from",
        ))  # fmt: skip
    unread = saved.unread if saved.sessions_lost else saved.unread - {"sessions"}
    for table in sorted(unread):
        level: Level = "error" if table in _NEEDED else "warning"
        advice = "what is said below tells which stubs lead nowhere now; a backup may know them"
        findings.append(Finding(level, f"{table}: some of its rows could not be read", advice))
    return findings
