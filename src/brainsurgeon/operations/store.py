"""Back up the store, replace it by a backup, compact it, remove it."""

from __future__ import annotations

import os
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from brainsurgeon.errors import StoreUnusableError, UsageError
from brainsurgeon.model.text import counted
from brainsurgeon.operations.doctor import Finding
from brainsurgeon.operations.left_behind import (
    PlaceholdersLeft,
    placeholders_left,
    placeholders_put_away,
)
from brainsurgeon.store import backup, open_store, open_to_read
from brainsurgeon.store.database import database_path, hold_sessions, hold_store, make_directory
from brainsurgeon.store.salvage import salvage

if TYPE_CHECKING:
    from collections.abc import Iterator

    from brainsurgeon.config import Settings
    from brainsurgeon.model.reports import StoreCopy
    from brainsurgeon.operations.doctor import Level
    from brainsurgeon.store.salvage import Salvaged


@dataclass(frozen=True, slots=True)
class Replacement:
    """A backup that replaces the store, or is about to.

    `newer` are the sessions with placeholders that it has no record of: they are newer than the
    backup. `kept` is where the previous store is kept.
    """

    source: str
    size: int
    values: int
    newer: tuple[PlaceholdersLeft, ...]
    kept: str | None = None


@dataclass(frozen=True, slots=True)
class Compaction:
    """The size of the store's database in bytes."""

    before: int
    after: int


@dataclass(frozen=True, slots=True)
class Purge:
    """The outcome of removing the store.

    `placeholders` are the placeholders that prevented it, `left` the files of others in its
    directory.
    """

    directory: str
    placeholders: tuple[PlaceholdersLeft, ...]
    removed: bool = False
    left: tuple[str, ...] = ()


def back_up(settings: Settings, target: str, *, force: bool = False) -> StoreCopy:
    """Copy the store to a file and check the copy."""
    return backup.write_copy(settings.state_dir, os.path.abspath(target), force=force)


@contextmanager
def replacing_store(settings: Settings, source: str) -> Iterator[PendingReplacement]:
    """Check a backup and compare it with the sessions; the caller decides whether to use it."""
    directory = settings.state_dir
    make_directory(directory)
    with ExitStack() as held:
        held.enter_context(hold_store(directory))
        place = held.enter_context(backup.staging(directory))
        path = database_path(place)
        values = backup.take_copy(os.path.abspath(source), path)
        newer = tuple(_newer(settings, place))
        yield PendingReplacement(
            directory, path, Replacement(source, os.stat(path).st_size, values, newer)
        )


@dataclass(frozen=True, slots=True)
class PendingReplacement:
    """A backup that was checked and found intact."""

    directory: str
    path: str
    found: Replacement

    def carry_out(self, now: float) -> Replacement:
        """Replace the store by the backup."""
        kept = backup.put_in_place(self.directory, self.path, f"replaced-{stamp(now)}")
        return replace(self.found, kept=kept)


def _newer(settings: Settings, place: str) -> Iterator[PlaceholdersLeft]:
    """Yield the sessions with placeholders that the store in a directory has no record of."""
    with ExitStack() as held:
        opened = open_to_read(place)
        store = held.enter_context(opened) if opened else None
        for session in placeholders_left(settings, store):
            if session.orphans or not session.sure:
                yield session


def compact(settings: Settings) -> Compaction:
    """Rewrite the database without its free pages; raise StoreFullError if the disk is too full."""
    _refuse_none(settings)
    with open_store(settings.state_dir) as store, hold_sessions(settings.state_dir):
        before = store.size
        backup.refuse_without_room(settings.state_dir, 2 * before)
        store.compact()
        return Compaction(before, store.size)


def _refuse_none(settings: Settings) -> None:
    if not os.path.lexists(database_path(settings.state_dir)):
        raise UsageError(f"{settings.state_dir}: there is no store")


def purge(settings: Settings, *, even_so: bool = False) -> Purge:
    """Remove the store, unless placeholders of it are left; with `even_so` also then."""
    _refuse_none(settings)
    directory = settings.state_dir
    with hold_store(directory):
        placeholders = () if even_so else tuple(_in_the_way(settings))
        if placeholders:
            return Purge(directory, placeholders)
        return Purge(directory, (), removed=True, left=tuple(backup.remove(directory)))


def _in_the_way(settings: Settings) -> Iterator[PlaceholdersLeft]:
    """Yield the sessions that need the store, or all with placeholders if it cannot be opened."""
    with ExitStack() as held:
        store = None
        with suppress(StoreUnusableError):
            if opened := open_to_read(settings.state_dir):
                store = held.enter_context(opened)
        yield from placeholders_left(settings, store)
        yield from placeholders_put_away(settings)


def stamp(now: float) -> str:
    """Format a time (UTC) for a file name."""
    return datetime.fromtimestamp(now, UTC).strftime("%Y%m%dT%H%M%SZ")


# Tables whose rows are needed to restore a value.
_NEEDED = frozenset({"extractions", "blobs"})
# Tables whose lost rows are re-created by the salvage or by the next scan.
_RECREATED = frozenset({"agents", "sessions", "placeholders", "placements", "calibration"})


@dataclass(frozen=True, slots=True)
class Rescue:
    """What was copied from a damaged store; `kept` is where the damaged database is kept."""

    kept: str | None
    saved: Salvaged


def rescue(settings: Settings, now: float) -> Rescue | None:
    """Replace a damaged store by a new one with its readable rows; None if it is not damaged."""
    directory = settings.state_dir
    if not backup.is_damaged(directory):
        return None
    with hold_store(directory), backup.staging(directory) as place:
        path = database_path(place)
        saved = salvage(directory, path, now)
        backup.check_copy(path)
        return Rescue(backup.put_in_place(directory, path, f"damaged-{stamp(now)}"), saved)


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
