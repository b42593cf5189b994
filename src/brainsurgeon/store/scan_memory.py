"""States of files: stored by earlier runs, and to be stored by this one."""

import os
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Mapping
from functools import cached_property

from msgspec.structs import astuple, replace

from brainsurgeon.model.plans import Plan
from brainsurgeon.model.records import FileState
from brainsurgeon.model.session_files import Fingerprint, KnownFile, Listing, SessionFile
from brainsurgeon.model.turns import Savings
from brainsurgeon.store import Store
from brainsurgeon.store.catalogue import AGAIN, DATABASE, FAILED, IN_MEMORY, WAITS

# Seconds until a file that failed twice in a row is tried again. Each further failure doubles the
# pause, up to LONGEST_PAUSE.
FIRST_PAUSE, LONGEST_PAUSE = 60.0, 3600.0
_MOST = 1000  # states in memory before they are stored
FRESH = 0.05  # seconds within which two changes may have the same modification time
# Outcomes of sessions that are read again once their database has changed.
_UNTIL_CHANGE = frozenset({WAITS, "deferred", "skipped"})


class FileMemory:
    """The states of the files in one run. New states are stored together, to save transactions.

    A run over all files reads all stored states at once. A run over `only` some paths reads only
    their states, and tries failed files again. With `named`, for paths that a user chose, it also
    tries deferred files again.
    """

    def __init__(
        self, store: Store, rules: str, now: float, only: Collection[str] = (), *,
        named: bool = False,
    ) -> None:  # fmt: skip
        self.rules, self.now, self.named, self.skipped = rules, now, named, 0
        self._store, self._only = store, frozenset(only)
        self._states: dict[str, FileState | None] = {}
        self._rows: dict[str, dict[str, KnownFile]] = {}
        self.listings: Mapping[str, Listing] = {}
        self.listed: dict[str, Listing] = {}
        if not only:
            store.files.read()
            if (store.facts.last_run_at() or 0.0) <= now:  # the clock was not set back
                self._rows = store.files.directories
            self.listings = store.files.listings
        self._requested = store.requests.sessions_waiting()
        self._directories_with_requests = {os.path.dirname(path) for path in self._requested}
        self._fresh: list[tuple[str, FileState]] = []
        self._databases: list[tuple[str, FileState]] = []
        self.savings: dict[str, Savings] = {}
        self.lost: dict[str, int] = {}  # numbers of placeholders without a stored value
        self._changed: set[str] = set()  # databases
        self._seen = defaultdict[str, set[str]](set)  # names of files, by directory
        self._skipped_names: dict[str, list[str]] = {}

    def state_of(self, path: str) -> FileState | None:
        """Return the stored state of a file, unless the clock was set back since then."""
        if path not in self._states:
            state = self._store.files.at(path)
            self._states[path] = state if state and state.looked_at <= self.now else None
        return self._states[path]

    def known_in(self, directory: str) -> Mapping[str, KnownFile]:
        rows = self._rows.get(directory, {})
        if directory not in self._directories_with_requests:
            return rows
        return {
            name: row for name, row in rows.items() if f"{directory}/{name}" not in self._requested
        }

    def record_skipped(self, directory: str, names: list[str]) -> None:
        self._skipped_names[directory] = names
        self.skipped += len(names)

    def was_skipped(self, path: str) -> bool:
        """Check whether the run found a file and did not read it, as it was unchanged."""
        directory, _, name = path.rpartition("/")
        return name in self._skipped_names.get(directory, ())

    def first_seen(self, file: SessionFile, now: float) -> float:
        state = self.state_of(file.path)
        return state.first_seen if state and state.fingerprint == file.fingerprint else now

    def format_of(self, path: str, fingerprint: Fingerprint) -> str | None:
        state = self._valid_state(path, fingerprint)
        if state is None or (state.format is None and state.outcome == FAILED):
            return None
        return state.format

    def failed_before(self, path: str) -> str | None:
        state = self.state_of(path)
        return state.reason if state is not None and state.outcome == FAILED else None

    def has_requests(self, file: SessionFile) -> bool:
        return file.path in self._requested

    def visit(self, file: SessionFile, now: float) -> bool:
        """Note that the run found a file. Return whether it is unchanged and need not be read."""
        path = file.path
        self._see(path)
        state = self._valid_state(path, file.fingerprint)
        if state is None or (self.named and state.outcome in ("deferred", IN_MEMORY)):
            return False
        if state.due_at is not None and state.due_at <= now:
            return False
        return state.outcome != FAILED or (state.looked_at <= now and path not in self._only)

    def _valid_state(self, path: str, fingerprint: Fingerprint) -> FileState | None:
        state = self.state_of(path)
        if state is None or state.fingerprint != fingerprint or state.rules != self.rules:
            return None
        if state.outcome == AGAIN or self._requested.get(path, 0.0) > state.looked_at:
            return None
        until_change = state.outcome in _UNTIL_CHANGE  # the id of a session may contain a slash
        changed = until_change and any(path.startswith(f"{one}/") for one in self._changed)
        return None if changed else state

    def _see(self, path: str) -> None:
        directory, _, name = path.rpartition("/")
        if self._rows is self._store.files.directories:
            self._seen[directory].add(name)
        else:  # frees memory
            self._rows.get(directory, {}).pop(name, None)

    def try_again_at(self, file: SessionFile, now: float) -> float:
        before = self.state_of(file.path)
        if before is None or before.outcome != FAILED or before.fingerprint != file.fingerprint:
            return now
        last = (before.due_at or 0.0) - before.looked_at
        return now + min(max(FIRST_PAUSE, 2 * last), LONGEST_PAUSE)

    def note(self, file: SessionFile, fresh: FileState) -> None:
        state = self.state_of(file.path)
        requested_at = self._requested.get(file.path, 0.0)
        if state is None or requested_at > state.looked_at or _timeless(state) != _timeless(fresh):
            self._fresh.append((file.path, fresh))

    def add_saving(self, path: str, plan: Plan, now: float) -> None:
        if savings := self.savings.get(path):
            self.savings[path] = plan.savings_after(savings, now)

    def visit_database(self, path: str, mark: Fingerprint, now: float) -> list[str] | None:
        """Note that the run found a database.

        Return the paths of its sessions if it need not be read, else None.
        """
        directory, _, name = path.rpartition("/")
        row = self._rows.get(directory, {}).get(name)
        self._see(path)
        # A session whose id contains a slash is listed in a directory below `path`. These sort
        # between "path/" and "path0": in ASCII, "0" follows "/".
        below = bisect_left(self._sorted, f"{path}/"), bisect_left(self._sorted, f"{path}0")
        tables = {at: self._rows.get(at, {}) for at in (path, *self._sorted[slice(*below)])}
        inside = {f"{at}/{one}": row for at, rows in tables.items() for one, row in rows.items()}
        seen = hash(astuple(mark)) & mark.HASHED
        same = row is not None and row[0] == seen and row[2].rules == self.rules
        if same and all(self._is_unchanged(one, row, now) for one, row in inside.items()):
            self._skipped_names |= {at: [*rows] for at, rows in tables.items()}
            return list(inside)
        if not same:
            self._changed.add(path)
            if now - mark.mtime_ns / 1e9 >= FRESH:
                fresh = FileState(mark, self.rules, None, DATABASE, "", now, None, now)
                self._databases.append((path, fresh))
        return None

    @cached_property
    def _sorted(self) -> list[str]:
        return sorted(self._rows)

    def _is_unchanged(self, path: str, row: KnownFile, now: float) -> bool:
        _, due_at, last = row
        again = last.rules != self.rules or last.outcome in (AGAIN, FAILED)
        if again or not (due_at is None or due_at > now):
            return False
        requested_at = self._requested.get(path)
        state = None if requested_at is None else self.state_of(path)
        return requested_at is None or (state is not None and requested_at <= state.looked_at)

    @property
    def is_full(self) -> bool:
        return len(self._states) >= _MOST

    def clear(self) -> None:
        self._states, self._fresh, self.savings, self.lost = {}, [], {}, {}

    def write_down(self, store: Store) -> None:
        if self.is_full:
            store.files.drop()
        for path, state in self._fresh:
            store.files.remember(path, state)
        for path, number in self.lost.items():
            store.files.remember_lost(path, number)
        for path, savings in self.savings.items():
            record = store.sessions.at(path)
            if record and store.savings.of(record.id) != savings:
                store.savings.remember(record.id, savings)
        store.spending.flush()
        if self.listed:
            store.files.listings = self.listed

    def forget_missing(self, store: Store) -> None:
        """After a run over all files, store the states of databases and forget missing files."""
        gone = [
            f"{directory}/{name}" for directory, rows in self._rows.items()
            if len(skipped := self._skipped_names.get(directory, [])) != len(rows)
            for name in rows.keys() - set(skipped) - self._seen[directory]
        ]  # fmt: skip
        for path, state in self._databases:
            store.files.remember(path, state)
        store.files.forget(gone)
        store.calibrations.forget(gone)


def _timeless(state: FileState) -> FileState:
    """Return a state without its time, and without numbers in the reason of a deferral."""
    reason = state.reason
    if state.outcome == AGAIN:
        reason = "".join(letter for letter in reason if not letter.isdigit())
    return replace(state, looked_at=0.0, reason=reason)
