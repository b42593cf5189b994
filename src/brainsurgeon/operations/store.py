"""Back up the store, replace it by a backup, remove it, or rescue a damaged one."""

import os
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime

from msgspec.structs import replace

from brainsurgeon.config import Settings
from brainsurgeon.errors import StoreDamagedError, StoreUnusableError, UsageError
from brainsurgeon.lookup.opening import check_store
from brainsurgeon.model import reports
from brainsurgeon.model.text import counted
from brainsurgeon.operations.doctor import placeholders_in_archives, placeholders_left
from brainsurgeon.store import Store, backup, database, open_to_read
from brainsurgeon.store.salvage import salvage


def back_up(settings: Settings, target: str, *, force: bool = False) -> reports.StoreCopy:
    check_store(settings)
    return backup.write_copy(settings.state_dir, os.path.abspath(target), force=force)


def replace_store(
    settings: Settings, source: str, clock: Callable[[], float],
    confirm: Callable[[reports.Replacement], None],
) -> reports.Replacement:  # fmt: skip
    """Check a backup, compare it with the sessions, and install it unless `confirm` raises."""
    directory = settings.state_dir
    backup.refuse_source(source)
    database.make_directory(directory)
    with database.hold_store(directory), backup.staging(directory) as place:
        path = database.database_path(place)
        values = backup.copy_backup(os.path.abspath(source), path)
        opened, unread = _open(directory)
        with open_to_read(place) as store, opened as current:
            newer = *unread, *(
                session for session in placeholders_left(settings, store, current)
                if session.orphans or not session.sure
            )  # fmt: skip
        replacement = reports.Replacement(source, os.stat(path).st_size, values, newer)
        confirm(replacement)
        kept = backup.put_in_place(directory, path, f"replaced-{_stamp(clock())}")
        return replace(replacement, kept_store=kept)


def _open(directory: str) -> tuple[Store, tuple[reports.PlaceholdersLeft, ...]]:
    """Open the store. For a damaged or unusable one, return an empty store and a warning."""
    with suppress(StoreUnusableError):
        store = open_to_read(directory)
        if store.damage() is None:
            return store, ()
        store.close()
    path = database.database_path(directory)
    unread = reports.PlaceholdersLeft(path, 0, 0, "the store was not readable", sure=False)
    return Store(database.empty_database(), directory, None), (unread,)


def purge(
    settings: Settings, confirm: Callable[[], None] = lambda: None, *, even_so: bool = False
) -> reports.Purge:
    """Remove the store, unless `confirm` raises.

    Without `even_so`, keep it if placeholders may be left, without asking.
    """
    directory = settings.state_dir
    if not (os.path.lexists(database.database_path(directory)) or database.may_exist(directory)):
        check_store(settings)
        raise UsageError(f"{directory}: there is no store to remove; nothing was changed")
    with database.hold_store(directory):
        if not even_so:
            opened, unread = _open(directory)  # without records, every placeholder counts as left
            with opened as store:
                found = placeholders_left(settings, store)
                if unread:  # nobody knows which values have a record
                    found = (replace(session, orphans=0) for session in found)
                left = *unread, *found, *placeholders_in_archives(settings)
            if left:
                return reports.Purge(directory, left)
        confirm()
        return reports.Purge(directory, (), removed=True, left=tuple(backup.remove(directory)))


def _stamp(now: float) -> str:
    return datetime.fromtimestamp(now, UTC).strftime("%Y%m%dT%H%M%SZ")


_NEEDED = frozenset({"extractions", "blobs"})  # tables that are needed to restore a value
_RECREATED = frozenset({"sessions", "placements", "calibration"})  # by the salvage or a scan


def rescue(settings: Settings, now: float) -> list[reports.Finding]:
    """If the store is damaged, replace it by a new one with the readable records."""
    directory = settings.state_dir
    try:
        with open_to_read(directory) as store:
            if store.damage() is None:
                return []
    except StoreUnusableError as why:
        if not isinstance(why, StoreDamagedError):
            return []  # the file is no store, has another version or cannot be opened
    with database.hold_store(directory), backup.staging(directory) as place:
        path = database.database_path(place)
        saved = salvage(directory, path, now)
        backup.check_copy(path)
        kept = backup.put_in_place(directory, path, f"damaged-{_stamp(now)}")
    findings = [reports.Finding(
        "note",
        f"the database was damaged: {counted(saved.values, 'stored value')} and "
        f"{counted(saved.rows, 'other record')} were copied into a new one",
        f"the damaged one is kept as {kept}; a backup may have the lost values" if kept else "",
    )]  # fmt: skip
    if saved.values_lost:
        findings.append(reports.Finding(
            "error", f"{counted(saved.values_lost, 'stored value is', 'stored values are')} lost",
            "they cannot be restored, unless a backup has them: store restore FILE",
        ))  # fmt: skip
    if saved.sessions_made:
        records = counted(saved.sessions_made, "record was", "records were")
        findings.append(reports.Finding(
            "warning", f"sessions: {records} lost and re-created", "the next scan completes them",
        ))  # fmt: skip
    for table in sorted(saved.unread - _RECREATED):
        level: reports.Level = "error" if table in _NEEDED else "warning"
        advice = "a backup may have them; placeholders without a record are listed below"
        findings.append(reports.Finding(level, f"{table}: some records could not be read", advice))
    return findings
