"""Where placeholders stand: a plain search for their text in an agent's files.

Archives included.
"""

from __future__ import annotations

import errno
import os
import sqlite3
from contextlib import contextmanager
from itertools import accumulate
from typing import TYPE_CHECKING

import zstandard

from brainsurgeon.errors import BusyError
from brainsurgeon.formats.base import parse
from brainsurgeon.hosts import openclaw, openclaw_database, openclaw_gate, openclaw_schema, sqlite
from brainsurgeon.model.entries import (
    LONGEST_PLACEHOLDER,
    PLACEHOLDER,
    PLACEHOLDER_PREFIX,
    Line,
    is_own_placeholder,
    value_at,
)
from brainsurgeon.model.sessions import NO_SURVEY, SessionFile
from brainsurgeon.sessions.discovery import any_format, discover
from brainsurgeon.sessions.reading import RefusedError, open_session, read_range
from brainsurgeon.sessions.row_listing import RowIndex, RowLines
from brainsurgeon.sessions.row_session import open_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from contextlib import AbstractContextManager

    from brainsurgeon.formats.base import Format
    from brainsurgeon.hosts.openclaw_database import Database
    from brainsurgeon.model.sessions import Root
    from brainsurgeon.sessions.reading import OpenSession


def unpacked(packed: Iterable[bytes]) -> Iterator[bytes]:
    """Yield what frames, one after another, stand for; raise ZstdError where one is damaged."""
    frame = zstandard.ZstdDecompressor().decompressobj()
    for piece in packed:
        rest = piece
        while rest:
            if frame.eof:
                frame = zstandard.ZstdDecompressor().decompressobj()
            yield frame.decompress(rest)
            rest = frame.unused_data if frame.eof else b""
    if not frame.eof:
        raise zstandard.ZstdError("an archive is cut off")


# Bytes of an archive unpacked at a time: packed ones may stand for 30,000 times as many.
_PACKED = 256


def sessions_and_archives(roots: Iterable[Root]) -> Iterator[SessionFile]:
    """Yield the files below the roots in which a placeholder may stand.

    Sessions and their archives.
    """
    for item in discover(roots, openclaw.is_archive_name, any_format):
        if isinstance(item, SessionFile):
            yield item


def entries_with_placeholders(file: SessionFile) -> Iterator[str]:
    """Name the entries of a file in which a placeholder stands that names its own entry."""
    with open_session(file) as session:
        yield from with_own_placeholders(session.lines, session.format)


def with_own_placeholders(lines: Iterable[Line], form: Format) -> Iterator[str]:
    """Name the entries in which a placeholder stands that names its own entry."""
    for line in lines:
        entry = parse(line.raw) if line.raw and PLACEHOLDER_PREFIX in line.raw else None
        ident = form.identity(entry, line.raw, line.number) if entry and line.raw else None
        if entry is None or ident is None:
            continue
        parts = form.parts(entry, NO_SURVEY, None)
        if any(is_own_placeholder(value_at(entry, part.path), ident) for part in parts):
            yield ident


def placeholders_in(file: SessionFile, check_stop: Callable[[], None]) -> set[str]:
    """Return the texts of all placeholders in a file; raise OSError where it cannot be read."""
    placeholders: set[bytes] = set()
    tail = b""
    try:
        with open_session(file, check_stop) as session:
            for piece in _pieces(session, check_stop):
                text = tail + piece
                placeholders.update(PLACEHOLDER.findall(text))
                tail = text[-LONGEST_PLACEHOLDER:]
    except RefusedError as why:
        raise OSError(errno.EINVAL, str(why)) from why
    except zstandard.ZstdError as why:
        raise OSError(errno.EIO, "an archive that cannot be unpacked") from why
    return {os.fsdecode(placeholder) for placeholder in placeholders}


def _pieces(session: OpenSession, check_stop: Callable[[], None]) -> Iterator[bytes]:
    """Yield what a file says, unpacked where its agent packed it."""
    chunks = _chunks(session, check_stop)
    if not session.file.name.endswith(".zst"):
        return chunks
    return unpacked(
        chunk[at : at + _PACKED] for chunk in chunks for at in range(0, len(chunk), _PACKED)
    )


def _chunks(session: OpenSession, check_stop: Callable[[], None]) -> Iterator[bytes]:
    for chunk in read_range(session.descriptor, 0, session.fingerprint.size):
        check_stop()
        yield chunk


# The text of a placeholder, and when what it stands in last changed (seconds since 1970).
Sighting = tuple[str, float]
_ZSTD = b"\x28\xb5\x2f\xfd"


def placeholders_in_rows(file: SessionFile, check_stop: Callable[[], None]) -> set[str]:
    """Return the texts of all placeholders in a session; raise OSError where it cannot be read."""
    with _as_os_errors(), open_rows(file, check_stop) as session:
        return set(_in_lines(session.lines))


def loose_placeholders(database: Database, check_stop: Callable[[], None]) -> Iterator[Sighting]:
    """Yield the placeholders that stand in a database outside of its sessions, or in copies of it.

    Those are its archives, events of no session, and what an update put aside. Raise OSError where
    something cannot be read: then a placeholder may stand there.
    """
    with _as_os_errors(), _opened(database) as opened:
        sessions = {one.session for one in openclaw_gate.windows(opened)}
        yield from _in_events(opened, check_stop, sessions)
        yield from _in_archives(opened)
    for copy in openclaw_database.copies(database):
        with _as_os_errors(), sqlite.reading(copy, owned=False) as opened:
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
    presence = openclaw_database.presence(database.state_directory, database.path)
    return sqlite.reading(database.path, owned=not presence.nobody)


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
    changed = {one.session: one.times.newest(None) / 1000 for one in openclaw_gate.windows(opened)}
    for session in set(openclaw_schema.sessions(opened)) - without:
        index = RowIndex(openclaw_schema.sizes(opened, schema, session))
        for placeholder in _in_lines(RowLines(opened, schema, session, index, check_stop)):
            yield placeholder, changed.get(session, 0.0)


def _in_lines(lines: RowLines) -> Iterator[str]:
    for line in lines:
        if line.raw is None:
            raise RefusedError("one of its events is too long to be looked into")
        yield from map(os.fsdecode, set(PLACEHOLDER.findall(line.raw)))


def _in_archives(opened: sqlite3.Connection) -> Iterator[Sighting]:
    for _, changed, data in _archives(opened):
        for placeholder in set(PLACEHOLDER.findall(data)):
            yield os.fsdecode(placeholder), changed


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
