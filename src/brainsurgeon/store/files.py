"""The scan's memory of all files as plain rows, by directory: nothing is built of one unchanged.

It is read once, and kept by whoever keeps the store open: only what another process writes has it
read again. Reading it grows with the files that are known (1 microsecond each), and so does the
room that it takes (400 bytes each); asking it for the files of one directory costs one look-up.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from brainsurgeon.model.records import FileState
from brainsurgeon.model.sessions import Fingerprint, Resume
from brainsurgeon.store.columns import signed, unsigned

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Mapping

    from brainsurgeon.model.sessions import Listing, SeenRow


# How a file is remembered that was deferred: every run tries it again.
AGAIN = "again"
# How a session is remembered that waits for a change of the database that it lies in.
WAITS = "waits"
# How a file is remembered with which something went wrong: it is tried again after a pause.
FAILED = "failed"
# How a database is remembered, beside the sessions in it.
DATABASE = "database"
_JUDGED = frozenset({AGAIN, WAITS, FAILED, DATABASE})


class FileTable:
    """What is remembered of all files, by directory and by name."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._version: int | None = None
        self.directories: dict[str, dict[str, SeenRow]] = {}
        self.listings: Mapping[str, Listing] = {}
        """What the last run of this process found in each directory; nobody writes it down."""

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
        judged_by = None if state.outcome in _JUDGED else state.rules
        self.directories.setdefault(directory, {})[name] = (
            mark.device, mark.inode, mark.size, mark.mtime_ns, mark.ctime_ns, state.due_at,
            judged_by, state.rules, state.outcome,
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


_COLUMNS = (
    "device, inode, size, mtime_ns, ctime_ns, rules, format, outcome, reason, first_seen, due_at,"
    " looked_at"
)


def _state(row: tuple[Any, ...]) -> FileState:
    mark = Fingerprint(unsigned(row[1]), unsigned(row[2]), *row[3:6])
    return FileState(mark, *row[6:])


class FileStates:
    """The scan's memory of each file."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self.table = FileTable(connection)

    def all(self) -> dict[bytes, FileState]:
        """Return everything remembered, by path; one query a run."""
        rows = self._connection.execute(f"SELECT path, {_COLUMNS} FROM files")  # noqa: S608
        return {row[0]: _state(row) for row in rows}

    def remember(self, path: str, state: FileState) -> None:
        """Remember a file as it was just looked at."""
        seen = state.fingerprint
        self._connection.execute(
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
        row = self._connection.execute(
            f"SELECT path, {_COLUMNS} FROM files WHERE path = ?",  # noqa: S608
            (os.fsencode(path),),
        ).fetchone()
        return _state(row) if row else None

    def forget(self, paths: Iterable[bytes]) -> None:
        for path in paths:
            self._connection.execute("DELETE FROM files WHERE path = ?", (path,))
            self.table.forget(path)


_RESUME_COLUMNS = (
    "device, inode, size, mtime_ns, ctime_ns, mark, rules, format, identity, session_id,"
    " begins_at, line, cursor, placeholders"
)


class Resumes:
    """Where the next look at each file may begin."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def at(self, path: str) -> Resume | None:
        """Return where the next look at a file may begin, or None: at its beginning."""
        row = self._connection.execute(
            f"SELECT {_RESUME_COLUMNS} FROM resumes WHERE path = ?",  # noqa: S608
            (os.fsencode(path),),
        ).fetchone()
        if row is None:
            return None
        mark = Fingerprint(unsigned(row[0]), unsigned(row[1]), *row[2:5])
        digest, rules, form, identity, session_id, offset, number, cursor, placeholders = row[5:]
        return Resume(
            mark, digest, rules, form, identity, session_id, offset, number, cursor,
            bool(placeholders),
        )  # fmt: skip

    def remember(self, path: str, resume: Resume) -> None:
        """Remember where the next look at a file may begin."""
        seen = resume.fingerprint
        self._connection.execute(
            f"INSERT OR REPLACE INTO resumes (path, {_RESUME_COLUMNS})"  # noqa: S608
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (os.fsencode(path), signed(seen.device), signed(seen.inode), seen.size, seen.mtime_ns,
             seen.ctime_ns, resume.mark, resume.rules, resume.format,
             resume.identity, resume.session_id, resume.offset, resume.number,
             resume.cursor, resume.placeholders),
        )  # fmt: skip

    def forget(self, paths: Iterable[bytes]) -> None:
        """Forget files that are gone, or that the next look has to read from their beginning."""
        self._connection.executemany(
            "DELETE FROM resumes WHERE path = ?", ((path,) for path in paths)
        )
