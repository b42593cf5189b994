"""Where stubs stand in a database of an agent: in a session, and in what it put away itself."""

from __future__ import annotations

import errno
import os
import sqlite3
from contextlib import contextmanager
from itertools import accumulate
from typing import TYPE_CHECKING

import zstandard

from brainsurgeon.errors import BusyError
from brainsurgeon.hosts import (
    databases,
    openclaw_database,
    openclaw_events,
    openclaw_schema,
    openclaw_state,
    openclaw_windows,
)
from brainsurgeon.model.entries import STUB, Line
from brainsurgeon.sessions.reading import RefusedError
from brainsurgeon.sessions.row_lines import RowIndex, RowLines
from brainsurgeon.sessions.row_session import open_rows
from brainsurgeon.sessions.unpacking import unpacked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from brainsurgeon.hosts.openclaw_database import Database
    from brainsurgeon.model.sessions import SessionFile

Sighting = tuple[str, float]
"""The text of a stub, and when what it stands in last changed (seconds since 1970)."""
_ZSTD = b"\x28\xb5\x2f\xfd"


def stubs_in_rows(file: SessionFile, check_stop: Callable[[], None]) -> set[str]:
    """Give the texts of all stubs in a session; raise OSError where it cannot be read."""
    with _as_os_errors(), open_rows(file, check_stop) as session:
        return set(_in_lines(session.lines))


def loose_stubs(database: Database, check_stop: Callable[[], None]) -> Iterator[Sighting]:
    """Yield the stubs that stand in a database outside of its sessions, or in copies of it.

    Those are its archives, events of no session, and what an update put aside. Raise OSError where
    something cannot be read: then a stub may stand there.
    """
    with _as_os_errors(), _opened(database) as opened:
        sessions = {one.session for one in openclaw_windows.windows(opened)}
        yield from _in_events(opened, check_stop, sessions)
        yield from _in_archives(opened)
    for copy in openclaw_database.copies(database):
        with _as_os_errors(), databases.reading(copy, owned=False) as opened:
            yield from _in_events(opened, check_stop, set())
            yield from _in_archives(opened)


def archived(database: Database) -> Iterator[tuple[str, list[Line]]]:
    """Yield the sessions in the archives of a database, by id, each with its lines."""
    with _as_os_errors(), _opened(database) as opened:
        for session, _, data in _archives(opened):
            raws = data.splitlines(keepends=True)
            ends = [0, *accumulate(map(len, raws))]
            yield (
                session,
                [
                    Line(number, ends[number - 1], raw.rstrip(b"\r\n"))
                    for number, raw in enumerate(raws, 1)
                ],
            )


def _opened(database: Database) -> AbstractContextManager[sqlite3.Connection]:
    presence = openclaw_state.presence(database.state_directory, database.path)
    return databases.reading(database.path, owned=not presence.nobody)


@contextmanager
def _as_os_errors() -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:  # its message may quote what stands in a column
        why = getattr(error, "sqlite_errorname", None) or "SQLITE_ERROR"
        raise OSError(errno.EIO, why) from error
    except (zstandard.ZstdError, RefusedError, BusyError) as error:
        raise OSError(errno.EIO, str(error) or type(error).__name__) from error


def _in_events(
    opened: sqlite3.Connection, check_stop: Callable[[], None], without: set[str]
) -> Iterator[Sighting]:
    schema = openclaw_schema.examine(opened)
    changed = {
        one.session: one.times.newest(None) / 1000 for one in openclaw_windows.windows(opened)
    }
    for session in set(openclaw_events.sessions(opened)) - without:
        index = RowIndex(openclaw_events.sizes(opened, schema, session))
        for stub in _in_lines(RowLines(opened, schema, session, index, check_stop)):
            yield stub, changed.get(session, 0.0)


def _in_lines(lines: RowLines) -> Iterator[str]:
    for line in lines:
        if line.raw is None:
            raise RefusedError("one of its events is too long to be looked into")
        yield from map(os.fsdecode, set(STUB.findall(line.raw)))


def _in_archives(opened: sqlite3.Connection) -> Iterator[Sighting]:
    for _, changed, data in _archives(opened):
        for stub in set(STUB.findall(data)):
            yield os.fsdecode(stub), changed


def _archives(opened: sqlite3.Connection) -> Iterator[tuple[str, float, bytes]]:
    """Yield the sessions that were deleted, reset or moved out of the way, each with when."""
    for table, at, inside in (
        ("session_transcript_archives", "created_at", "1"),
        ("session_transcript_cold_archives", "archived_at", "storage = 'sqlite'"),
    ):
        known = opened.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (table,)).fetchone()
        if not known:
            continue
        if opened.execute(f"SELECT 1 FROM {table} WHERE NOT ({inside}) LIMIT 1").fetchone():  # noqa: S608
            raise RefusedError("events were moved to an archive of their own")
        count = opened.execute(f"SELECT max(rowid) FROM {table}").fetchone()[0] or 0  # noqa: S608
        for row in range(1, count + 1):  # one at a time: an archive is a whole session
            found = opened.execute(
                f"SELECT session_id, {at}, archive_blob FROM {table} WHERE rowid = ?",  # noqa: S608
                (row,),
            ).fetchone()
            if found:
                yield found[0], found[1] / 1000, _unpacked(found[2])


def _unpacked(data: bytes) -> bytes:
    """Return what an archive holds, packed or as it is; raise ZstdError if it is damaged."""
    return b"".join(unpacked([data])) if data.startswith(_ZSTD) else data
