"""What stands in all files and databases of the roots, as far as a retention run asks for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from brainsurgeon.model.sessions import Unreadable
from brainsurgeon.operations.databases import databases_below
from brainsurgeon.sessions.opening import identity_of
from brainsurgeon.sessions.row_listing import list_rows
from brainsurgeon.sessions.row_sighting import loose_stubs, stubs_in_rows
from brainsurgeon.sessions.sighting import sessions_and_archives, stubs_in
from brainsurgeon.store.texts import path_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from brainsurgeon.hosts.openclaw_database import Database
    from brainsurgeon.model.records import HeldValue
    from brainsurgeon.model.sessions import Root, SessionFile
    from brainsurgeon.store import Store
    from brainsurgeon.store.due import Due

NEVER = float("-inf")
"""When a file last changed that stands nowhere."""


class Standing:
    """What stands in the files, noted beside what is due, with when those files last changed."""

    def __init__(
        self, store: Store, due: Due, roots: Sequence[Root], check_stop: Callable[[], None]
    ) -> None:
        self._store, self._due, self._roots, self._check = store, due, roots, check_stop
        self._sessions: dict[int, float] = {}

    def look(self) -> Iterator[tuple[str, str]]:
        """Look at everything; yield the root of what cannot be read, and why it cannot.

        A stub counts for the sessions that its file may be, and those that they were forked from.
        """
        rows = (one for one in list_rows(self._roots) if not isinstance(one, Unreadable))
        for file in (*sessions_and_archives(self._roots), *rows):
            try:
                self._take(file)
            except OSError as error:
                yield _unreadable(file, error)
        for database in databases_below(self._roots):
            try:
                self._take_loose(database)
            except OSError as error:
                yield _unreadable(database, error)

    def _take(self, file: SessionFile) -> None:
        stubs = (stubs_in_rows if file.in_database else stubs_in)(file, self._check)
        sessions = self._sessions_in(file)
        changed = file.fingerprint.mtime_ns / 1e9
        for session in sessions:
            self._sessions[session] = max(changed, self._sessions.get(session, NEVER))
        self._due.see(stubs, sessions, changed)

    def _sessions_in(self, file: SessionFile) -> set[int]:
        """Name the sessions that a file may be, and those that they were forked from."""
        known = self._store.sessions
        identity = identity_of(file)
        here = known.at(file.path)
        alike = known.of_identity(identity) if identity else []
        return {one for record in (here, *alike) if record for one in known.family(record)}

    def _take_loose(self, database: Database) -> None:
        """Take the stubs that stand where no session is known, each with its own moment."""
        for stub, changed in loose_stubs(database, self._check):
            self._due.see([stub], (), changed)

    def activity(self, value: HeldValue, seen: float | None) -> float:
        """Tell when a file in which a value's stub stands last changed, as far as it was `seen`.

        What was redacted left no stub: it stands as long as its session.
        """
        if value.redaction:
            return self._sessions.get(value.session_id, NEVER)
        return NEVER if seen is None else seen


def _unreadable(place: SessionFile | Database, error: OSError) -> tuple[str, str]:
    return path_text(place.root), f"{place.path}: {error.strerror or type(error).__name__}"
