"""Where the next look at each file may begin: a cache that may be lost at the cost of time only."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from brainsurgeon.model.resume import Resume
from brainsurgeon.model.sessions import Fingerprint
from brainsurgeon.store.numbers import signed, unsigned

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable

_COLUMNS = (
    "device, inode, size, mtime_ns, ctime_ns, mark, rules, format, identity, session_id,"
    " begins_at, line, cursor, stubs"
)


class Resumes:
    """Where the next look at each file may begin."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def at(self, path: str) -> Resume | None:
        """Give where the next look at a file may begin, or None: at its beginning."""
        row = self._connection.execute(
            f"SELECT {_COLUMNS} FROM resumes WHERE path = ?",  # noqa: S608
            (os.fsencode(path),),
        ).fetchone()
        if row is None:
            return None
        mark = Fingerprint(unsigned(row[0]), unsigned(row[1]), *row[2:5])
        digest, rules, form, identity, session_id, offset, number, cursor, stubs = row[5:]
        return Resume(
            mark, digest, rules, form, identity, session_id, offset, number, cursor,
            bool(stubs),
        )  # fmt: skip

    def remember(self, path: str, resume: Resume) -> None:
        """Remember where the next look at a file may begin."""
        seen = resume.fingerprint
        self._connection.execute(
            f"INSERT OR REPLACE INTO resumes (path, {_COLUMNS})"  # noqa: S608
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (os.fsencode(path), signed(seen.device), signed(seen.inode), seen.size, seen.mtime_ns,
             seen.ctime_ns, resume.mark, resume.rules, resume.format,
             resume.identity, resume.session_id, resume.offset, resume.number,
             resume.cursor, resume.stubs),
        )  # fmt: skip

    def forget(self, paths: Iterable[bytes]) -> None:
        """Forget files that are gone, or that the next look has to read from their beginning."""
        self._connection.executemany(
            "DELETE FROM resumes WHERE path = ?", ((path,) for path in paths)
        )
