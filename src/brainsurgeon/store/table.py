"""The scan's memory of all files as plain rows, by directory: nothing is built of one unchanged.

It is read once, and kept by whoever keeps the store open: only what another process writes has it
read again. Reading it grows with the files that are known (1 microsecond each), and so does the
room that it takes (400 bytes each); asking it for the files of one directory costs one look-up.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from brainsurgeon.store.numbers import unsigned

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Mapping

    from brainsurgeon.model.records import FileState
    from brainsurgeon.model.sessions import Listing, SeenRow

AGAIN = "again"
"""How a file is remembered that was deferred: every pass tries it again."""
WAITS = "waits"
"""How a session is remembered that waits for a change of the database that it lies in."""
FAILED = "failed"
"""How a file is remembered with which something went wrong: it is tried again after a pause."""
DATABASE = "database"
"""How a database is remembered, beside the sessions in it."""
_JUDGED = frozenset({AGAIN, WAITS, FAILED, DATABASE})


class FileTable:
    """What is remembered of all files, by directory and by name."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._version: int | None = None
        self.directories: dict[str, dict[str, SeenRow]] = {}
        self.listings: Mapping[str, Listing] = {}
        """What the last pass of this process found in each directory; nobody writes it down."""

    def read(self) -> None:
        """Read everything, unless it is known and nobody else has written since."""
        version = self._connection.execute("PRAGMA data_version").fetchone()[0]
        if version == self._version:
            return
        found: dict[str, dict[str, SeenRow]] = {}
        self.directories = found
        shared: dict[str, str] = {}
        rows = self._connection.execute(
            "SELECT path, device, inode, size, mtime_ns, ctime_ns, due_at, rules, outcome"
            " FROM files"
        )
        for path, device, inode, size, mtime_ns, ctime_ns, due_at, rules, outcome in rows:
            directory, _, name = os.fsdecode(path).rpartition("/")
            row = (
                device if device >= 0 else unsigned(device),
                inode if inode >= 0 else unsigned(inode),
                size, mtime_ns, ctime_ns, due_at,
                None if outcome in _JUDGED else shared.setdefault(rules, rules),
                shared.setdefault(rules, rules), shared.setdefault(outcome, outcome),
            )  # fmt: skip
            if directory in found:
                found[directory][name] = row
            else:
                found[directory] = {name: row}
        self._version = version

    def remember(self, path: str, state: FileState) -> None:
        """Take in what was just written down of a file, where the table is kept."""
        if self._version is None:
            return
        directory, _, name = path.rpartition("/")
        mark = state.fingerprint
        settled = None if state.outcome in _JUDGED else state.rules
        self.directories.setdefault(directory, {})[name] = (
            mark.device, mark.inode, mark.size, mark.mtime_ns, mark.ctime_ns, state.due_at,
            settled, state.rules, state.outcome,
        )  # fmt: skip

    def forget(self, path: bytes) -> None:
        """Leave a file out that was just forgotten."""
        directory, _, name = os.fsdecode(path).rpartition("/")
        rows = self.directories.get(directory, {})
        rows.pop(name, None)
        if not rows:
            self.directories.pop(directory, None)

    def drop(self) -> None:
        """Read it again when it is asked next: what was to be written may not be so."""
        self._version, self.directories = None, {}
