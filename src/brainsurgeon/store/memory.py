"""What earlier passes saw of each file, and what this pass is to remember."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

from brainsurgeon.formats import UNKNOWN
from brainsurgeon.model.records import FileState

if TYPE_CHECKING:
    from collections.abc import Iterable

    from brainsurgeon.model.sessions import Fingerprint, SessionFile
    from brainsurgeon.store import Store

FAILED = "failed"
"""How a file is remembered with which something went wrong: it is tried again after a pause."""
FIRST_PAUSE, LONGEST_PAUSE = 60.0, 3600.0
"""Seconds: the pause after the second failure in a row, which doubles from then on, and its end."""
AGAIN = "again"
"""How a file is remembered that was deferred: every pass tries it again."""
WAITS = "waits"
"""How a session is remembered that waits for a change of the database that it lies in."""
DATABASE = "database"
"""How a database is remembered, beside the sessions in it."""
FRESH = 0.05
"""Seconds within which two changes of a file may leave it with the same modification time."""


class FileMemory:
    """The states of all files as a pass begins; it is read once and written down once."""

    def __init__(self, store: Store | None, rules: str) -> None:
        self.rules = rules
        self._states = store.files.all() if store else {}
        self._waiting = store.wishes.sessions_waiting() if store else {}
        self._fresh: list[tuple[str, FileState]] = []
        self._databases: list[tuple[str, FileState]] = []
        self._moved: set[str] = set()
        self._gone = set(self._states)
        self._insisted: set[bytes] = set()

    def state_of(self, file: SessionFile) -> FileState | None:
        """Give the file as it was last looked at."""
        return self._states.get(os.fsencode(file.path))

    def first_seen(self, file: SessionFile, now: float) -> float:
        """Give when this state of the file was first seen: now, unless it is remembered."""
        state = self.state_of(file)
        same = state is not None and state.fingerprint == file.fingerprint
        return state.first_seen if state and same else now

    def format_of(self, path: str, fingerprint: Fingerprint) -> str | None:
        """Give the format of a file of which nothing has to be judged again; None for others.

        One that was deferred before anybody read it has a format that is not known yet.
        """
        state = self._still_true(os.fsencode(path), fingerprint)
        if state is None or (state.format is None and state.outcome == FAILED):
            return None
        return state.format or UNKNOWN

    def waits(self, file: SessionFile) -> bool:
        """Tell whether something was asked for in this session."""
        return os.fsencode(file.path) in self._waiting

    def unchanged(self, file: SessionFile, now: float, *, named: bool = False) -> bool:
        """Tell whether a file needs no look: it is as it was, and nothing in it falls due.

        What was put off for a while is looked at all the same where somebody `named` it.
        """
        path = os.fsencode(file.path)
        self._gone.discard(path)
        state = self._still_true(path, file.fingerprint)
        if state is None or (named and state.outcome == "deferred"):
            return False
        if state.due_at is not None and state.due_at <= now:
            return False
        return state.outcome != FAILED or (state.looked_at <= now and path not in self._insisted)

    def _still_true(self, path: bytes, fingerprint: Fingerprint) -> FileState | None:
        """Give what is remembered of a file where neither it nor the rules nor a wish changed."""
        state = self._states.get(path)
        if (
            state is not None
            and state.fingerprint == fingerprint
            and state.rules == self.rules
            and state.outcome != AGAIN
            and not (state.outcome == WAITS and os.path.dirname(os.fsdecode(path)) in self._moved)
            and self._waiting.get(path, 0.0) <= state.looked_at
        ):
            return state
        return None

    def insist(self, paths: Iterable[str]) -> None:
        """Have these files looked at even where they failed a short while ago."""
        self._insisted.update(map(os.fsencode, paths))

    def try_again_at(self, file: SessionFile, now: float) -> float:
        """Give when a file that failed is tried again: at once, then with growing pauses."""
        before = self.state_of(file)
        if before is None or before.outcome != FAILED or before.fingerprint != file.fingerprint:
            return now
        last = (before.due_at or 0.0) - before.looked_at
        return now + min(max(FIRST_PAUSE, 2 * last), LONGEST_PAUSE)

    def note(self, file: SessionFile, fresh: FileState) -> None:
        """Remember how a file was just seen, where that says anything new."""
        state = self.state_of(file)
        if self.waits(file) or state is None or _essence(state) != _essence(fresh):
            self._fresh.append((file.path, fresh))

    def idle(self, path: str, mark: Fingerprint, now: float) -> list[bytes] | None:
        """Return the paths of the sessions in a database that need no look; None where one does.

        A database that changed is remembered as it is now, unless that was just now, once the
        pass has looked at everything in it.
        """
        key, inside = os.fsencode(path), os.fsencode(path) + b"/"
        self._gone.discard(key)
        state = self._states.get(key)
        sessions = [one for one in self._states if one.startswith(inside)]
        same = state is not None and state.fingerprint == mark and state.rules == self.rules
        if same and all(self._rests(one, now) for one in sessions):
            self._gone.difference_update(sessions)
            return sessions
        if not same:
            self._moved.add(path)
            if now - mark.mtime_ns / 1e9 >= FRESH:
                fresh = FileState(mark, self.rules, None, DATABASE, "", now, None, now)
                self._databases.append((path, fresh))
        return None

    def _rests(self, path: bytes, now: float) -> bool:
        state = self._states[path]
        return (
            state.rules == self.rules
            and state.outcome != AGAIN
            and (state.due_at is None or state.due_at > now)
            and self._waiting.get(path, 0.0) <= state.looked_at
        )

    def write_down(self, store: Store, *, forget: bool) -> None:
        """Write down what this pass saw, and with `forget` forget the files that it did not see.

        `forget` tells that the pass saw everything else.
        """
        for path, state in self._fresh:
            store.files.remember(path, state)
        if forget:
            for path, state in self._databases:
                store.files.remember(path, state)
            store.files.forget(self._gone)


def _essence(state: FileState) -> FileState:
    """Give what is worth writing down: not the reason of a deferral, which counts the seconds."""
    return replace(state, looked_at=0.0, reason="" if state.outcome == AGAIN else state.reason)
