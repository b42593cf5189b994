"""Search agents' files and databases, including archives, for placeholders."""

import bz2
import errno
import lzma
import os
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from typing import Any

import zstandard

from brainsurgeon import agents
from brainsurgeon.agents.rows import Database
from brainsurgeon.errors import BusyError
from brainsurgeon.files.reading import RefusedError
from brainsurgeon.formats.base import Format
from brainsurgeon.formats.chain import Around
from brainsurgeon.formats.marks import placeholder_at
from brainsurgeon.formats.transcript import entries_of
from brainsurgeon.model import entries
from brainsurgeon.model.session_files import Root, SessionFile
from brainsurgeon.sessions.discovery import any_format, discover, open_session

_HEAD = 4096  # bytes in which a text has no null byte
_PACKED = 256  # bytes to unpack at a time: each byte may become 30,000
_ZSTD = b"\x28\xb5\x2f\xfd"
_UNPACKERS: dict[bytes, Callable[[], Any]] = {  # by the first bytes of a file
    _ZSTD: lambda: zstandard.ZstdDecompressor().decompressobj(),
    b"\x1f\x8b": lambda: zlib.decompressobj(16 + zlib.MAX_WBITS),
    b"BZh": bz2.BZ2Decompressor,
    b"\xfd7zXZ\x00": lzma.LZMADecompressor,
}


UNFILLED = (".zst", ".json")  # how names of archives end in which nothing is restored


def sessions_and_archives(roots: Iterable[Root]) -> Iterator[SessionFile]:
    items = discover(roots, agents.is_archive_name, any_format)
    return (item for item in items if isinstance(item, SessionFile))


def may_be_session(name: str) -> bool:
    """Check whether a file may be a session, an archive or any copy, compressed or not."""
    if agents.is_archive_name(name):
        return True
    return ".jsonl" in name and not name.endswith((".lock", ".trajectory.jsonl"))


def entries_with_placeholders(file: SessionFile) -> Iterator[str]:
    with open_session(file) as session:
        yield from _with_own_placeholders(session.lines, session.form)


def _with_own_placeholders(lines: Iterable[entries.Line], form: Format) -> Iterator[str]:
    ours = (line for line in lines if line.raw and entries.PLACEHOLDER_PREFIX in line.raw)
    for _, entry in entries_of(form, ours):
        own = None if entry.ident is None else entries.placeholder_id(entry.ident)
        values = form.resolved(entry.values, Around())
        names = (placeholder_at(entry, value.path) for value in values)
        if entry.ident and any(name and entries.unnumbered(name) == own for name in names):
            yield entry.ident


def placeholders_in(file: SessionFile, check_stop: Callable[[], None]) -> set[str]:
    """Return all placeholders. Raises OSError if the file is unreadable."""
    placeholders, tail = set[bytes](), b""
    with _as_os_errors(), open_session(file, check_stop) as session:
        chunks = session.stream(0, session.fingerprint.size)
        is_plain = file.in_database or file.name.endswith(".jsonl")
        for piece in chunks if is_plain else unpacked(chunks):
            check_stop()
            text = tail + piece
            placeholders.update(entries.PLACEHOLDER.findall(text))
            tail = text[-entries.LONGEST_PLACEHOLDER :]
    return {os.fsdecode(placeholder) for placeholder in placeholders}


def archived_placeholders(database: Database, check_stop: Callable[[], None]) -> set[str]:
    placeholders = set[bytes]()
    with _as_os_errors():
        for _, data in _archives(database):
            check_stop()
            placeholders.update(entries.PLACEHOLDER.findall(data))
    return {os.fsdecode(placeholder) for placeholder in placeholders}


def archived(database: Database) -> Iterator[tuple[str, Iterator[str]]]:
    """Yield ids of archived sessions, each with ids of entries that contain their placeholders."""
    form = agents.databases_of(database.path).form
    with _as_os_errors():
        for session, data in _archives(database):
            lines = (entries.Line(0, 0, raw) for raw in data.split(b"\n"))
            yield session, _with_own_placeholders(lines, form)


def _archives(database: Database) -> Iterator[tuple[str, bytes]]:
    kept = agents.databases_of(database.path)
    with kept.opened(database.path) as opened:
        for session, data in kept.archives(opened):
            yield session, b"".join(unpacked([data])) if data.startswith(_ZSTD) else data


@contextmanager
def _as_os_errors() -> Iterator[None]:
    try:
        yield
    except (zstandard.ZstdError, zlib.error, lzma.LZMAError, EOFError) as error:
        raise OSError(errno.EIO, "an archive cannot be unpacked") from error
    except (RefusedError, BusyError) as error:
        raise OSError(errno.EIO, str(error)) from error


def unpacked(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the content of a file that may be compressed. Raises OSError if that is unknown."""
    pieces = iter(chunks)
    first = next(pieces, b"")
    start = next((new for magic, new in _UNPACKERS.items() if first.startswith(magic)), None)
    if start is not None:
        yield from _unpack(start, chain([first], pieces))
        return
    if b"\0" in first[:_HEAD]:
        raise OSError(errno.EIO, "it is packed in a way that brainsurgeon does not know")
    yield from chain([first], pieces)


def _unpack(start: Callable[[], Any], packed: Iterable[bytes]) -> Iterator[bytes]:
    frame = start()
    for chunk in packed:
        for at in range(0, len(chunk), _PACKED):
            rest = chunk[at : at + _PACKED]
            while rest:
                if frame.eof:
                    rest = rest.lstrip(b"\0")  # padding
                    frame = start() if rest else frame
                    continue
                yield frame.decompress(rest)
                rest = frame.unused_data if frame.eof else b""
    if not frame.eof:
        raise EOFError
