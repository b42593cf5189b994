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

from msgspec import Struct

from brainsurgeon.agents.codex.home import ARCHIVED, files_of, key_of, thread_of
from brainsurgeon.errors import BusyError, FailedError
from brainsurgeon.files import leases, sqlite, transactions
from brainsurgeon.files.exchange import rewrite_start
from brainsurgeon.files.reading import FileLines, RefusedError, plain_file
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

Edges = Mapping[int, int]  # where the line with an ordinal begins; the last one is the end


class FirstLine(Struct, frozen=True):
    path: str
    raw: bytes
    is_paginated: bool
    key: str = ""  # of the file in which this one begins
    ordinal: int = 0  # of the line there that is not its own any more
    start: int = 0  # of the number
    end: int = 0  # of the spaces behind it

    def at(self, offset: int) -> bytes:
        number, room = b"%d" % offset, self.end - self.start
        number = number.ljust(room if len(number) <= room else _ROOM)
        return self.raw[: self.start] + number + self.raw[self.end :]


def lines_of(descriptor: int) -> Iterator[Line]:
    return iter(FileLines(descriptor, os.fstat(descriptor).st_size, check_stop=lambda: None))


def first_line(path: str) -> FirstLine:
    """Return the first line of a file. Raises LookupError if it is not complete."""
    with plain_file(path) as descriptor:
        raw = next((line.raw for line in lines_of(descriptor)), None) or b""
    payload = dict_or_empty((parse(raw) or {})["payload"])
    is_paginated, base = payload.get("history_mode") == "paginated", payload.get("history_base")
    if not isinstance(base, dict):
        return FirstLine(path, raw, is_paginated)
    start, end = splice.locate(raw, [_NUMBER])[_NUMBER]
    end += len(raw[end:]) - len(raw[end:].lstrip(b" "))
    key, ordinal = base["thread_id"], base["end_ordinal_exclusive"]
    return FirstLine(path, raw, is_paginated, key, ordinal, start, end)


def is_paginated(path: str) -> bool:
    with suppress(LookupError):
        return first_line(path).is_paginated
    return False


@lru_cache(1 << 17)  # it never changes; and a file that is being exchanged cannot be opened
def _begins_in(path: str) -> str:
    return first_line(path).key


def edges_of(descriptor: int) -> Edges:
    edges, at, ordinal = dict[int, int](), 0, 0
    for line in lines_of(descriptor):
        found = _ORDINAL.match(line.raw or b"")
        if not line.terminated:
            break
        if found is None or (edges and int(found[1]) != ordinal):
            raise RefusedError("its lines are not numbered as in a file of Codex")
        edges[int(found[1])] = line.offset
        ordinal, at = int(found[1]) + 1, line.offset + len(line.raw or b"") + 1
    return edges | {ordinal: at}


@lru_cache(1)
def _files(home: str, moment: float) -> tuple[dict[str, str], dict[str, list[str]]]:
    """Return the files of a home by their keys, and by those of the files in which they begin."""
    paths, begun = dict[str, str](), defaultdict[str, list[str]](list)
    for path in chain.from_iterable(files_of(home, moment).values()):
        if path.endswith(ARCHIVED):
            raise RefusedError("a thread of this home is compressed")
        paths[key_of(path)] = path
        # One that is not complete yet begins nowhere so far.
        with suppress(FileNotFoundError, LookupError, splice.UntouchableError):
            begun[_begins_in(path)].append(path)
    return paths, begun


class Repair:
    """What is to be changed where an offset into a file is named. Raises RefusedError if unknown.

    It is compared with the `edges`, or with those in the file. If `own`, only the place is compared
    at which the file begins in another one. The files of the home are listed once a `moment`.
    """

    def __init__(
        self, home: str, path: str, edges: Edges | None = None, *, own: bool = False,
        moment: float = 0.0,
    ) -> None:  # fmt: skip
        index, self._rows = _index_of(home), list[tuple[str, str, str, int, str, int]]()
        self._lines: list[tuple[FirstLine, bytes]] = []  # first those of files farther below
        self._index, self._descriptors = index, dict[str, int]()
        self.threads: set[str] = set()  # of files that begin in the file, or in one of these
        self.points = False  # whether something names an offset
        self._paths, self._begun = _files(home, moment or time.monotonic())
        base = self._paths.get(first_line(path).key) if own else path
        with sqlite.reading(index, in_use=sqlite.held_open(index)) as opened:
            migrations = opened.execute("SELECT checksum FROM _sqlx_migrations ORDER BY version")
            known = blake2b(b"".join(row[0] for row in migrations), digest_size=8).hexdigest()
            if known not in _KNOWN:
                raise RefusedError("the index of Codex has a form that this program does not know")
            if base:
                self._find(opened, key_of(base), edges or edges_at(base), rows=not own)

    @property
    def needed(self) -> bool:
        return bool(self._rows or self._lines)

    def _find(self, index: sqlite3.Connection, key: str, edges: Edges, *, rows: bool) -> None:
        for table, offset, ordinal, ends in _OFFSETS if rows else ():
            query = f"SELECT {ordinal}, {offset} FROM {table} WHERE thread_id = ?"  # noqa: S608
            for number, at in index.execute(query, (key,)):
                if at is not None and number is not None:
                    self.points, right = True, _edge(edges, number + ends)
                    if right != at:
                        self._rows.append((table, offset, ordinal, right, key, number))
        for path in self._begun.get(key, ()):
            found = first_line(path)
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
            descriptor = os.open(found.path, os.O_RDWR | CAREFULLY)
            held.callback(os.close, descriptor)
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


def edges_at(path: str) -> Edges:
    with plain_file(path) as descriptor:
        return edges_of(descriptor)


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
