"""Offsets into paginated files: in Codex's index, and in the first lines of files that begin there.

Beside each is the ordinal of a line. So the right offset can always be found in the file itself,
whatever was there before, and a repair that a crash interrupted is simply made again.
"""

import os
import re
import sqlite3
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import lru_cache
from hashlib import blake2b
from itertools import chain

import zstandard
from msgspec import Struct

from brainsurgeon.agents.codex.home import ARCHIVED, key_of, thread_of
from brainsurgeon.errors import BusyError, FailedError
from brainsurgeon.files import leases, sqlite, transactions
from brainsurgeon.files.exchange import rewrite_start
from brainsurgeon.files.reading import FileLines, RefusedError
from brainsurgeon.files.retire import CAREFULLY
from brainsurgeon.formats import splice
from brainsurgeon.formats.base import dict_or_empty
from brainsurgeon.model.entries import Line, parse

INDEX = "thread_history_1.sqlite"
# Digests of its migrations, as in 0.169.0 and in 0.171.0.
_KNOWN = frozenset({"94e7d8eb0ce24f05", "dfdc5351de67dcc4"})
# Tables with an offset, the ordinal beside it, and 1 if it is the end of that line.
_OFFSETS = (
    ("thread_history_projection_state", "next_rollout_byte_offset", "next_rollout_ordinal", 0),
    ("thread_turns", "rollout_byte_offset", "rollout_ordinal", 0),
    ("thread_turns", "rollout_end_byte_offset", "rollout_end_ordinal", 1),
)
_ORDINAL = re.compile(rb'\{"timestamp":"[^"]*","ordinal":([0-9]{1,15}),')
_NUMBER = ("payload", "history_base", "end_byte_offset")
_ROOM = 15  # characters that a number gets if it needs more than it has
_MOMENT = 2.0  # seconds
_LONGEST = 16 << 20  # bytes of a first line

Edges = Mapping[int, int]  # where the line with an ordinal begins; the last one is the end


class FirstLine(Struct, frozen=True):
    """The first line of a file that begins at an offset in another file."""

    path: str
    raw: bytes
    key: str  # of the other file
    ordinal: int  # of the line there that is not its own any more
    start: int  # of the number
    end: int  # of the spaces behind it

    def at(self, offset: int) -> bytes:
        number, room = b"%d" % offset, self.end - self.start
        number = number.ljust(room if len(number) <= room else _ROOM)
        return self.raw[: self.start] + number + self.raw[self.end :]


@contextmanager
def opened(path: str, flags: int = os.O_RDONLY) -> Iterator[int]:
    descriptor = os.open(path, flags | CAREFULLY)  # of a leased file: BlockingIOError
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _lines(descriptor: int) -> Iterator[Line]:
    return iter(FileLines(descriptor, os.fstat(descriptor).st_size, check_stop=lambda: None))


def is_paginated(descriptor: int) -> bool:
    header = next(_lines(descriptor), None)
    entry = parse(header.raw or b"") if header else None
    return dict_or_empty((entry or {}).get("payload")).get("history_mode") == "paginated"


def first_line(path: str) -> FirstLine | None:
    """Return the first line of a file that begins in another. Raises LookupError if incomplete."""
    with opened(path) as descriptor:
        if path.endswith(ARCHIVED):
            with open(os.dup(descriptor), "rb") as packed, zstandard.open(packed, "rt") as text:
                raw = text.readline(_LONGEST).encode()
        else:
            raw = next((line.raw for line in _lines(descriptor)), None) or b""
    if (entry := parse(raw)) is None:
        raise LookupError
    base = dict_or_empty(entry.get("payload")).get("history_base")
    if not isinstance(base, dict):
        return None
    start, end = splice.locate(raw, [_NUMBER])[_NUMBER]
    end += len(raw[end:]) - len(raw[end:].lstrip(b" "))
    return FirstLine(path, raw, base["thread_id"], base["end_ordinal_exclusive"], start, end)


@lru_cache(1 << 17)  # it never changes; and a file that is being exchanged cannot be opened
def _begins_in(path: str) -> str | None:
    found = first_line(path)
    return found.key if found else None


def edges_of(descriptor: int) -> Edges:
    edges, at, ordinal = dict[int, int](), 0, 0
    for line in _lines(descriptor):
        found = _ORDINAL.match(line.raw or b"")
        if not line.terminated:
            break
        if found is None or (edges and int(found[1]) != ordinal):
            raise RefusedError("its lines are not numbered as in a file of Codex")
        edges[int(found[1])] = line.offset
        ordinal, at = int(found[1]) + 1, line.offset + len(line.raw or b"") + 1
    return edges | {ordinal: at}


def edges_at(path: str) -> Edges:
    with opened(path) as descriptor:
        return edges_of(descriptor)


class Repair:
    """What names an offset into a file, and what of it is wrong. Raises RefusedError if unknown."""

    def __init__(self, home: str) -> None:
        self._index = _index_of(home)
        self._rows: list[tuple[str, str, str, int, str, int]] = []
        self._lines: list[tuple[FirstLine, bytes]] = []  # first those of files farther below
        self._descriptors: dict[str, int] = {}
        self.threads: set[str] = set()  # of files that begin in the file, or in one of these
        self.points = False  # whether something names an offset
        self._paths: dict[str, str] = {}  # of the files of the home, by key
        self._begun: dict[str, list[str]] = defaultdict(list)  # by the key of the other file
        tops = (os.path.join(home, name) for name in ("sessions", "archived_sessions"))
        for directory, _, names in chain.from_iterable(map(os.walk, tops)):
            for path in (f"{directory}/{name}" for name in names):
                if key := key_of(path):
                    self._paths[key] = path
                    # One that is not complete yet begins nowhere so far.
                    with suppress(FileNotFoundError, LookupError, splice.UntouchableError):
                        if base := _begins_in(path):
                            self._begun[base].append(path)

    @property
    def needed(self) -> bool:
        return bool(self._rows or self._lines)

    def find(self, path: str, edges: Edges, *, rows: bool = True) -> None:
        """Compare with the file's edges. Without `rows`, only files that begin in it count."""
        with sqlite.reading(self._index, in_use=sqlite.held_open(self._index)) as index:
            migrations = index.execute("SELECT checksum FROM _sqlx_migrations ORDER BY version")
            known = blake2b(b"".join(row[0] for row in migrations), digest_size=8).hexdigest()
            if known not in _KNOWN:
                raise RefusedError("the index of Codex has a form that this program does not know")
            self._find(index, key_of(path), edges, rows=rows)

    def find_own(self, path: str) -> None:
        """Compare the beginning of a file with the file in which it begins."""
        found = first_line(path)
        if found and (base := self._paths.get(found.key)):
            self.find(base, edges_at(base), rows=False)

    def _find(self, index: sqlite3.Connection, key: str, edges: Edges, *, rows: bool) -> None:
        for table, offset, ordinal, ends in _OFFSETS if rows else ():
            query = f"SELECT {ordinal}, {offset} FROM {table} WHERE thread_id = ?"  # noqa: S608
            for number, at in index.execute(query, (key,)):
                if at is not None and number is not None:
                    self.points, right = True, _edge(edges, number + ends)
                    if right != at:
                        self._rows.append((table, offset, ordinal, right, key, number))
        for path in self._begun.get(key, ()):
            found = None if path.endswith(ARCHIVED) else first_line(path)
            if not found:
                raise RefusedError("a compressed thread begins in it")
            self.points, new = True, found.at(_edge(edges, found.ordinal))
            if moved := len(new) - len(found.raw):
                inner = {one: at + moved * (at > 0) for one, at in edges_at(path).items()}
                self._find(index, key_of(path), inner, rows=True)
            if new != found.raw:
                self._lines.append((found, new))
        self.threads |= {at[1] for at in map(thread_of, self._below(key)) if at}

    def _below(self, key: str) -> Iterator[str]:
        for path in self._begun.get(key, ()):
            yield path
            yield from self._below(key_of(path))

    def prepare(self, held: ExitStack) -> None:
        """Open the files to change. Raises RefusedError if another process has one open."""
        for found, new in self._lines:
            descriptor = held.enter_context(opened(found.path, os.O_RDWR))
            same = os.pread(descriptor, len(found.raw), 0) == found.raw
            if not leases.take(descriptor) or not same or os.fstat(descriptor).st_nlink != 1:
                raise RefusedError("another process has a file open that begins in it")
            if len(new) != len(found.raw):
                check_settled(descriptor)
            self._descriptors[found.path] = descriptor

    def carry_out(self) -> None:
        if self._rows:
            with (
                transactions.writing(self._index) as index,
                transactions.transaction(self._index, index, durable=True),
            ):
                self.write(index)
        for found, new in self._lines:
            rewrite_start(self._descriptors[found.path], found.path, len(found.raw), new)

    def write(self, index: sqlite3.Connection) -> None:
        for table, offset, ordinal, *values in self._rows:
            where = f"WHERE thread_id = ? AND {ordinal} = ?"
            index.execute(f"UPDATE {table} SET {offset} = ? {where}", values)  # noqa: S608


def check_settled(descriptor: int) -> None:
    """Raise RefusedError if lines were added just now: Codex writes its index a moment later."""
    if 0 <= time.time() - os.fstat(descriptor).st_mtime < _MOMENT:
        raise RefusedError("Codex has just written it")


def _edge(edges: Edges, ordinal: int) -> int:
    if ordinal not in edges:
        raise RefusedError("Codex stores an offset of a line that is not there")
    return edges[ordinal]


def _index_of(home: str) -> str:
    path, configuration = os.path.join(home, INDEX), b""
    with suppress(FileNotFoundError), open(os.path.join(home, "config.toml"), "rb") as lines:
        configuration = lines.read()
    elsewhere = b"sqlite_home" in configuration or os.environ.get("CODEX_SQLITE_HOME")
    if elsewhere or not os.path.isfile(path) or os.path.realpath(path) != path:
        raise RefusedError("the index of Codex is not in its home")
    return path


@contextmanager
def explained() -> Iterator[None]:
    """Turn every error into RefusedError: nothing was changed, and it may work later."""
    try:
        yield
    except (BusyError, FailedError, OSError, LookupError, splice.UntouchableError) as error:
        why = error.strerror if isinstance(error, OSError) else type(error).__name__
        raise RefusedError(f"offsets into it cannot be changed now ({why})") from error
