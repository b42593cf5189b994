"""Open the store for writing. A new store is not begun beside placeholders of another one."""

from collections.abc import Callable
from contextlib import suppress

from brainsurgeon import interruption
from brainsurgeon.config import RootSettings, Settings
from brainsurgeon.errors import BusyError, StoreUnusableError
from brainsurgeon.files.reading import RefusedError
from brainsurgeon.model.reports import LostValues
from brainsurgeon.model.session_files import SessionFile
from brainsurgeon.model.text import counted
from brainsurgeon.planning.matching import count_lost
from brainsurgeon.sessions.discovery import any_format, discover, open_session
from brainsurgeon.sessions.row_listing import list_rows
from brainsurgeon.store import Store, database, open_store


def open_to_write(settings: Settings, *, new_store: bool = False) -> Store:
    """Open the store, and begin it if it is missing. Raises StoreUnusableError as `check_store`."""
    check_store(settings, new_store=new_store)
    return open_store(settings.state_dir)


def check_store(
    settings: Settings,
    *,
    new_store: bool = False,
    check_stop: Callable[[], None] = interruption.check,
) -> None:
    """Raise StoreUnusableError if the store is missing although sessions have placeholders.

    Raises UsageError if `state_dir` is no directory for a store.

    `new_store` means that the user wants to begin one nevertheless.
    """
    if database.may_exist(settings.state_dir):
        return
    database.refuse_other_directory(settings.state_dir)
    if new_store:
        return
    if missing := missing_store(settings, check_stop):
        raise StoreUnusableError(f"{missing}: nothing was touched. {database.NO_STORE}")


def missing_store(
    settings: Settings, check_stop: Callable[[], None] = interruption.check
) -> str | None:
    """Return what is wrong if the store is missing although sessions have placeholders."""
    if database.may_exist(settings.state_dir):
        return None
    lost = lost_without_store(settings, check_stop)
    have = "has a placeholder or archive", "have placeholders or archives"
    if not lost.values:
        return None
    return (
        f"{settings.state_dir}: there is no store, but {counted(lost.sessions, 'session')} "
        f"{have[lost.sessions > 1]} of one ({lost.values:,})"
    )


def lost_without_store(
    settings: RootSettings, check_stop: Callable[[], None] = interruption.check
) -> LostValues:
    """Read all sessions, and count the placeholders whose values only a missing store can have."""
    roots, values, sessions = settings.root_directories(), 0, 0
    for item in (*discover(roots, format_of=any_format), *list_rows(roots)):
        check_stop()
        if isinstance(item, SessionFile) and (number := _lost_in(item, check_stop)):
            values, sessions = values + number, sessions + 1
    return LostValues(values, sessions)


def _lost_in(file: SessionFile, check_stop: Callable[[], None]) -> int:
    with suppress(OSError, RefusedError, BusyError), open_session(file, check_stop) as session:
        return count_lost(session.lines, session.form)
    return 0
