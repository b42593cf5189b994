"""Copy readable values from a damaged store into a new one and replace it."""

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

_NEEDED = frozenset({"extractions", "blobs"})
"""Tables whose rows are needed to restore a value."""
_RECREATED = frozenset({"agents", "sessions", "placeholders", "placements", "calibration"})
"""Tables whose lost rows are re-created, by the salvage or by the next scan."""


@dataclass(frozen=True, slots=True)
class Rescue:
    """What was copied from a damaged store; `kept` is where the damaged database is kept."""

    kept: str | None
    saved: Salvaged


def rescue(settings: Settings, now: float) -> Rescue | None:
    """Replace a damaged store by a new one with its readable rows; None if it is not damaged."""
    directory = settings.state_dir
    if not copies.is_damaged(directory):
        return None
    with hold_store(directory), replacing.staging(directory) as place:
        path = database_path(place)
        saved = salvage(directory, path, now)
        copies.check_copy(path)
        return Rescue(replacing.put_in_place(directory, path, f"damaged-{stamp(now)}"), saved)


def rescued(done: Rescue) -> list[Finding]:
    """Report what was copied from a damaged store, and what was lost."""
    saved = done.saved
    findings = [Finding(
        "note",
        f"the database was damaged: {counted(saved.values, 'stored value')} and "
        f"{counted(sum(saved.rows.values()), 'row')} were copied into a new one",
        f"the damaged one is kept as {done.kept}; a backup may hold what is missing" if done.kept
        else "",
    )]  # fmt: skip
    if saved.values_lost:
        findings.append(Finding(
            "error", f"{counted(saved.values_lost, 'stored value is', 'stored values are')} lost",
            "their placeholders cannot be restored; a backup may hold them: store restore FILE",
        ))  # fmt: skip
    if saved.sessions_made:
        rows = counted(saved.sessions_made, "row was", "rows were")
        findings.append(Finding(
            "warning", f"sessions: {rows} lost and re-created", "the next scan completes them",
        ))  # fmt: skip
    for table in sorted(saved.unread - _RECREATED):
        level: Level = "error" if table in _NEEDED else "warning"
        advice = "a backup may hold them; placeholders without a record are listed below"
        findings.append(Finding(level, f"{table}: some of its rows could not be read", advice))
    return findings
