"""Where stubs stand: a plain search for their text in an agent's files, archives included."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

import zstandard

from brainsurgeon.formats.base import parse
from brainsurgeon.hosts import openclaw
from brainsurgeon.model.entries import (
    LONGEST_STUB,
    STUB,
    STUB_PREFIX,
    is_own_stub,
    value_at,
)
from brainsurgeon.model.sessions import NO_SURVEY, SessionFile
from brainsurgeon.sessions.discover import any_format, discover
from brainsurgeon.sessions.reading import RefusedError, open_session, read_range
from brainsurgeon.sessions.unpacking import unpacked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from brainsurgeon.formats.base import Format
    from brainsurgeon.model.entries import Line
    from brainsurgeon.model.sessions import Root
    from brainsurgeon.sessions.reading import OpenSession

_PACKED = 256
"""Bytes of an archive unpacked at a time: packed ones may stand for 30,000 times as many."""


def sessions_and_archives(roots: Iterable[Root]) -> Iterator[SessionFile]:
    """Yield the files below the roots in which a stub may stand: sessions and their archives."""
    for item in discover(roots, openclaw.is_archive_name, any_format):
        if isinstance(item, SessionFile):
            yield item


def entries_with_stubs(file: SessionFile) -> Iterator[str]:
    """Name the entries of a file in which a stub stands that names its own entry."""
    with open_session(file) as session:
        yield from with_own_stubs(session.lines, session.format)


def with_own_stubs(lines: Iterable[Line], form: Format) -> Iterator[str]:
    """Name the entries in which a stub stands that names its own entry."""
    for line in lines:
        entry = parse(line.raw) if line.raw and STUB_PREFIX in line.raw else None
        ident = form.identity(entry, line.raw, line.number) if entry and line.raw else None
        if entry is None or ident is None:
            continue
        parts = form.parts(entry, NO_SURVEY, None)
        if any(is_own_stub(value_at(entry, part.path), ident) for part in parts):
            yield ident


def stubs_in(file: SessionFile, check_stop: Callable[[], None]) -> set[str]:
    """Give the texts of all stubs in a file; raise OSError where it cannot be read."""
    stubs: set[bytes] = set()
    tail = b""
    try:
        with open_session(file, check_stop) as session:
            for piece in _pieces(session, check_stop):
                text = tail + piece
                stubs.update(STUB.findall(text))
                tail = text[-LONGEST_STUB:]
    except RefusedError as why:
        raise OSError(errno.EINVAL, str(why)) from why
    except zstandard.ZstdError as why:
        raise OSError(errno.EIO, "an archive that cannot be unpacked") from why
    return {os.fsdecode(stub) for stub in stubs}


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
