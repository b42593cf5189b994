"""What earlier runs saw of each file, and what this run is to remember."""

from __future__ import annotations

import os
from bisect import bisect_left
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from brainsurgeon.formats import UNKNOWN
from brainsurgeon.model.records import FileState
from brainsurgeon.store.files import AGAIN, DATABASE, FAILED, WAITS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from brainsurgeon.model.sessions import Fingerprint, Listing, Resume, SeenRow, SessionFile
    from brainsurgeon.store import Store


# Seconds: the pause after the second failure in a row, which doubles from then on, and its end.
FIRST_PAUSE, LONGEST_PAUSE = 60.0, 3600.0
# Seconds within which two changes of a file may leave it with the same modification time.
FRESH = 0.05


class FileMemory:
    """The states of files as a run finds them; what changes is written down once, at its end.

    A run over everything reads all rows at once (or has them from the last run of the same
    process); one over named paths asks for theirs alone.
    """

    def __init__(self, store: Store | None, rules: str, now: float, *, whole: bool = True) -> None:
        self.rules, self.now, self.resting = rules, now, 0
        self._store = store
        self._states: dict[bytes, FileState | None] = {}
        self._rows: Mapping[str, Mapping[str, SeenRow]] = {}
        self.listings: Mapping[str, Listing] = {}
        self.listed: dict[str, Listing] = {}
        if store and whole:
            store.files.table.read()
            self._rows = store.files.table.directories
            self.listings = store.files.table.listings
        self._waiting = store.requests.sessions_waiting() if store else {}
        self._awake = {os.path.dirname(os.fsdecode(path)) for path in self._waiting}
        self._fresh: list[tuple[str, FileState]] = []
        self._databases: list[tuple[str, FileState]] = []
        self._resumes: dict[str, Resume | None] = {}
        self._moved: set[str] = set()
        self._met: set[str] = set()
        self._asked: dict[str, SessionFile] = {}
        self._rested: dict[str, list[str]] = {}
        self._insisted: set[bytes] = set()

    def _state(self, path: bytes) -> FileState | None:
        if path not in self._states:
            known = self._store.files.at(os.fsdecode(path)) if self._store else None
            self._states[path] = known
        return self._states[path]

    def state_of(self, file: SessionFile) -> FileState | None:
        """Return the file as it was last looked at."""
        return self._state(os.fsencode(file.path))

    def rows(self, directory: str) -> Mapping[str, SeenRow]:
        """Return the files of one directory that may rest, by name."""
        rows = self._rows.get(directory, {})
        if directory not in self._awake:
            return rows
        asked = self._waiting.keys()
        return {
            name: row
            for name, row in rows.items()
            if os.fsencode(f"{directory}/{name}") not in asked
        }

    def rested(self, directory: str, names: list[str]) -> None:
        """Take in which files of a directory are as they were and not due; once for each."""
        if directory not in self._rested:
            self._rested[directory] = names
            self.resting += len(names)

    def first_seen(self, file: SessionFile, now: float) -> float:
        """Return when this state of the file was first seen: now, unless it is remembered."""
        state = self.state_of(file)
        same = state is not None and state.fingerprint == file.fingerprint
        return state.first_seen if state and same else now

    def format_of(self, path: str, fingerprint: Fingerprint) -> str | None:
        """Return the format of a file of which nothing has to be judged again; None for others.

        One that was deferred before anybody read it has a format that is not known yet.
        """
        state = self._still_true(os.fsencode(path), fingerprint)
        if state is None or (state.format is None and state.outcome == FAILED):
            return None
        return state.format or UNKNOWN

    def recorded(self, path: str) -> bool:
        """Check whether a session was last seen at a path, or somewhere below it."""
        return self._store is not None and self._store.sessions.is_below(path)

    def failed_before(self, path: str) -> str | None:
        """Return the reason for which a file failed when it was last looked at, if it did."""
        state = self._state(os.fsencode(path))
        return state.reason if state is not None and state.outcome == FAILED else None

    def waits(self, file: SessionFile) -> bool:
        """Check whether something was asked for in this session."""
        return os.fsencode(file.path) in self._waiting

    def asked(self, path: str) -> tuple[bool, SessionFile | None]:
        """Check whether this run missed a session that waits for it, or give what it looked at.

        One in a database that rests is neither.
        """
        missed = os.fsencode(path) in self._waiting and path not in self._met
        return missed, self._asked.get(path)

    def unchanged(self, file: SessionFile, now: float, *, named: bool = False) -> bool:
        """Check whether a file needs no look: it is as it was, and nothing in it falls due.

        What was put off for a while is looked at all the same where somebody `named` it.
        """
        path = os.fsencode(file.path)
        self._met.add(file.path)
        if path in self._waiting:
            self._asked[file.path] = file
        state = self._still_true(path, file.fingerprint)
        if state is None or (named and state.outcome == "deferred"):
            return False
        if state.due_at is not None and state.due_at <= now:
            return False
        return state.outcome != FAILED or (state.looked_at <= now and path not in self._insisted)

    def _still_true(self, path: bytes, fingerprint: Fingerprint) -> FileState | None:
        """Return what is known of a file if neither it nor the rules nor a request changed."""
        state = self._state(path)
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
        """Return when a file that failed is tried again: at once, then with growing pauses."""
        before = self.state_of(file)
        if before is None or before.outcome != FAILED or before.fingerprint != file.fingerprint:
            return now
        last = (before.due_at or 0.0) - before.looked_at
        return now + min(max(FIRST_PAUSE, 2 * last), LONGEST_PAUSE)

    def note(self, file: SessionFile, fresh: FileState) -> None:
        """Remember how a file was just seen, where that says anything new.

        That it was looked at is new once after each request.
        """
        state = self.state_of(file)
        asked_at = self._waiting.get(os.fsencode(file.path), 0.0)
        if state is None or asked_at > state.looked_at or _essence(state) != _essence(fresh):
            self._fresh.append((file.path, fresh))

    def begin_at(self, path: str, resume: Resume | None) -> None:
        """Remember where the next look at a file may begin; with None, at its beginning."""
        self._resumes[path] = resume

    def idle(self, path: str, mark: Fingerprint, now: float) -> list[str] | None:
        """Return the paths of the sessions in a database that need no look; None where one does.

        A database that changed is remembered as it is now, unless that was just now, once the
        run has looked at everything in it.
        """
        self._met.add(path)
        directory, _, name = path.rpartition("/")
        row = self._rows.get(directory, {}).get(name)
        inside = {
            f"{at}/{one}": row
            for at in self._in_database(path)
            for one, row in self._rows.get(at, {}).items()
        }
        seen = (mark.device, mark.inode, mark.size, mark.mtime_ns, mark.ctime_ns)
        same = row is not None and row[:5] == seen and row[7] == self.rules
        if same and all(self._rests(one, row, now) for one, row in inside.items()):
            self._met.update(inside)
            return list(inside)
        if not same:
            self._moved.add(path)
            if now - mark.mtime_ns / 1e9 >= FRESH:
                fresh = FileState(mark, self.rules, None, DATABASE, "", now, None, now)
                self._databases.append((path, fresh))
        return None

    @cached_property
    def _ranked(self) -> list[str]:
        return sorted(self._rows)

    def _in_database(self, path: str) -> list[str]:
        """Return the directories under which the sessions in a database are remembered.

        It is its own, and those below where the id of a session holds a slash.
        """
        below = bisect_left(self._ranked, f"{path}/"), bisect_left(self._ranked, f"{path}0")
        return [path, *self._ranked[slice(*below)]]  # "0" is what comes next to "/"

    def _rests(self, path: str, row: SeenRow, now: float) -> bool:
        if row[7] != self.rules or row[8] == AGAIN or not (row[5] is None or row[5] > now):
            return False
        asked_at = self._waiting.get(os.fsencode(path))
        state = None if asked_at is None else self._state(os.fsencode(path))
        return asked_at is None or (state is not None and asked_at <= state.looked_at)

    def _gone(self) -> Iterator[bytes]:
        """Yield the files that are remembered and that a run over everything did not meet."""
        for directory, rows in self._rows.items():
            rested = self._rested.get(directory, [])
            if len(rested) == len(rows):
                continue
            for name in rows.keys() - set(rested):
                if f"{directory}/{name}" not in self._met:
                    yield os.fsencode(f"{directory}/{name}")

    def write_down(self, store: Store, *, forget: bool) -> None:
        """Write down what this run saw, and with `forget` forget the files that it did not see.

        `forget` tells that the run saw everything else.
        """
        gone = list(self._gone()) if forget else []
        for path, state in self._fresh:
            store.files.remember(path, state)
        for path, resume in self._resumes.items():
            if resume is not None:
                store.resumes.remember(path, resume)
        store.resumes.forget(os.fsencode(path) for path, one in self._resumes.items() if not one)
        if self.listed:
            store.files.table.listings = self.listed
        if forget:
            for path, state in self._databases:
                store.files.remember(path, state)
            store.files.forget(gone)
            store.resumes.forget(gone)
            store.calibrations.forget(gone)


def _essence(state: FileState) -> FileState:
    """Return what is worth writing down: not the reason of a deferral, which counts the seconds."""
    return replace(state, looked_at=0.0, reason="" if state.outcome == AGAIN else state.reason)
