"""Look for signals in sessions whose agents are at work, and run a command for each signal."""

from collections.abc import Callable
from contextlib import suppress

from brainsurgeon.config import Settings
from brainsurgeon.errors import BusyError
from brainsurgeon.files.processes import CommandFailedError, output_of
from brainsurgeon.files.reading import RefusedError
from brainsurgeon.model.reports import Event
from brainsurgeon.model.session_files import SessionFile
from brainsurgeon.rewrite.inspect import excluded
from brainsurgeon.rewrite.signals import notice
from brainsurgeon.sessions.discovery import discover_at, open_session
from brainsurgeon.sessions.row_listing import list_rows_at
from brainsurgeon.sessions.transcripts import Transcripts
from brainsurgeon.store import Store

TIMEOUT, MOST = 30.0, 1 << 20  # limits of a command: seconds, and bytes of its output
RECENT = 60.0  # seconds; sessions in a database are read if they changed within this time


def find_signals(
    settings: Settings, store: Store, path: str, now: float, transcripts: Transcripts | None = None
) -> None:
    roots = settings.root_directories()
    found = discover_at(roots, path)
    files = [found] if isinstance(found, SessionFile) else [
        row for row in list_rows_at(roots, path) if now - row.fingerprint.mtime_ns / 1e9 < RECENT
    ]  # fmt: skip
    for file in files:
        with suppress(OSError, RefusedError, BusyError):
            if not excluded(file, settings):
                with open_session(file) as session:
                    session.keeper = transcripts.transcript if transcripts is not None else None
                    notice(settings, store, session, now)


def run_on_signal(
    settings: Settings, signals: list[tuple[Event, str]], check_stop: Callable[[], None],
    failed: Callable[[Event, str], None],
) -> None:  # fmt: skip
    for event, text in signals:
        try:
            output_of(
                settings.signals.on_signal, text.encode(), check_stop, timeout=TIMEOUT, limit=MOST
            )
        except CommandFailedError as why:
            failed(event, str(why))


def note_failure(store: Store, event: Event, why: str, now: float) -> None:
    facts = {"signal": event.facts["signal"], "reason": f"on_signal: {why}"}
    with store.transaction():
        store.events.add(now, "failure", event.session_id, facts, None)
