"""The file states recorded by earlier scans, and where the next read of each file may begin.

Rows of unchanged files stay plain tuples. An open store reads them once, and again only after
another process wrote. This costs 1 microsecond and 400 bytes per file.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from brainsurgeon.model.records import FileState
from brainsurgeon.model.sessions import Fingerprint, Listing, Resume, SeenRow
from brainsurgeon.store.columns import Table, signed, unsigned

if TYPE_CHECKING:
    import sqlite3


# Outcomes of scans. A deferred file, which every run tries again:
AGAIN = "again"
# One that waits until its database changes:
WAITS = "waits"
# A session that waits until no process has it in memory, or probably reads it again:
IN_MEMORY = "in memory"
# A file that failed, which is tried again after a pause:
FAILED = "failed"
# A database, which has its own row in addition to the rows of its sessions:
DATABASE = "database"
_JUDGED = frozenset({AGAIN, WAITS, IN_MEMORY, FAILED, DATABASE})


class FileTable(Table):
    """The rows of all files, by directory and name.

    `listings` are the directory listings that this process last read; they are not stored.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        super().__init__(connection)
        self._version: int | None = None
        self.directories: dict[str, dict[str, SeenRow]] = {}
        self.listings: Mapping[str, Listing] = {}

    def read(self) -> None:
        """Read all rows if another process wrote since the last read."""
        version = self._first("PRAGMA data_version")
        if version == self._version:
            return
        self.directories = {}
        shared: dict[str, str] = {}
        rows = self._execute(
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
            self.directories.setdefault(directory, {})[name] = row
        self._version = version

    def remember(self, path: str, state: FileState) -> None:
        """Update the row of a file, if the rows were read."""
        if self._version is None:
            return
        directory, _, name = path.rpartition("/")
        mark = state.fingerprint
        judged_by = None if state.outcome in _JUDGED else state.rules
        self.directories.setdefault(directory, {})[name] = (
            mark.device, mark.inode, mark.size, mark.mtime_ns, mark.ctime_ns, state.due_at,
            judged_by, state.rules, state.outcome,
        )  # fmt: skip

    def forget(self, path: bytes) -> None:
        directory, _, name = os.fsdecode(path).rpartition("/")
        rows = self.directories.get(directory, {})
        rows.pop(name, None)
        if not rows:
            self.directories.pop(directory, None)

    def drop(self) -> None:
        """Forget all rows, so that they are read again after a failed write."""
        self._version, self.directories = None, {}


_COLUMNS = (
    "device, inode, size, mtime_ns, ctime_ns, rules, format, outcome, reason, first_seen, due_at,"
    " looked_at"
)


def _state(row: tuple[Any, ...]) -> FileState:
    mark = Fingerprint(unsigned(row[1]), unsigned(row[2]), *row[3:6])
    return FileState(mark, *row[6:])


class FileStates(Table):
    """The last state of each file."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        super().__init__(connection)
        self.table = FileTable(connection)

    def all(self) -> dict[bytes, FileState]:
        rows = self._execute(f"SELECT path, {_COLUMNS} FROM files")  # noqa: S608
        return {row[0]: _state(row) for row in rows}

    def remember(self, path: str, state: FileState) -> None:
        seen = state.fingerprint
        self._execute(
            f"INSERT INTO files (path, {_COLUMNS})"  # noqa: S608
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
            " ON CONFLICT (path) DO UPDATE SET device = excluded.device, inode = excluded.inode,"
            " size = excluded.size, mtime_ns = excluded.mtime_ns, ctime_ns = excluded.ctime_ns,"
            " rules = excluded.rules, format = excluded.format, outcome = excluded.outcome,"
            " reason = excluded.reason, first_seen = excluded.first_seen, due_at = excluded.due_at,"
            " looked_at = excluded.looked_at",
            (os.fsencode(path), signed(seen.device), signed(seen.inode), seen.size, seen.mtime_ns,
             seen.ctime_ns, state.rules, state.format, state.outcome, state.reason,
             state.first_seen, state.due_at, state.looked_at),
        )  # fmt: skip
        self.table.remember(path, state)

    def at(self, path: str) -> FileState | None:
        row = self._execute(
            f"SELECT path, {_COLUMNS} FROM files WHERE path = ?",  # noqa: S608
            (os.fsencode(path),),
        ).fetchone()
        return _state(row) if row else None

    def blocked(self, since: float) -> dict[str, str]:
        """Return why sessions wait that have done so, unchanged, since before a time; by path."""
        rows = self._execute(
            "SELECT path, reason FROM files WHERE outcome IN (?, ?) AND first_seen < ?"
            " ORDER BY path",
            (AGAIN, WAITS, since),
        )
        return {os.fsdecode(path): reason for path, reason in rows}

    def forget(self, paths: Iterable[bytes]) -> None:
        for path in paths:
            self._execute("DELETE FROM files WHERE path = ?", (path,))
            self.table.forget(path)


_RESUME_COLUMNS = (
    "device, inode, size, mtime_ns, ctime_ns, mark, rules, format, identity, session_id,"
    " begins_at, line, cursor, placeholders"
)


class Resumes(Table):
    """Where the next read of each file may begin."""

    def at(self, path: str) -> Resume | None:
        """Return where the next read of a file may begin; None means at its start."""
        row = self._execute(
            f"SELECT {_RESUME_COLUMNS} FROM resumes WHERE path = ?",  # noqa: S608
            (os.fsencode(path),),
        ).fetchone()
        if row is None:
            return None
        mark = Fingerprint(unsigned(row[0]), unsigned(row[1]), *row[2:5])
        return Resume(mark, *[*row[5:-1], bool(row[-1])])

    def remember(self, path: str, resume: Resume) -> None:
        seen = resume.fingerprint
        self._execute(
            f"INSERT OR REPLACE INTO resumes (path, {_RESUME_COLUMNS})"  # noqa: S608
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (os.fsencode(path), signed(seen.device), signed(seen.inode), seen.size, seen.mtime_ns,
             seen.ctime_ns, resume.mark, resume.rules, resume.format,
             resume.identity, resume.session_id, resume.offset, resume.number,
             resume.cursor, resume.placeholders),
        )  # fmt: skip

    def forget(self, paths: Iterable[bytes]) -> None:
        self._executemany("DELETE FROM resumes WHERE path = ?", ((path,) for path in paths))
