"""The catalogue of sessions, and facts about sessions and their files."""

import json
import os
import sqlite3
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from msgspec.msgpack import encode
from msgspec.structs import asdict, astuple

from brainsurgeon.model.records import FileState, SessionRecord
from brainsurgeon.model.reports import Bill, Loads
from brainsurgeon.model.session_files import Fingerprint, KnownFile, LastScan, Listing, SessionFile
from brainsurgeon.model.turns import Calibration, Fullness, Savings, Spent
from brainsurgeon.store.database import Table, path_text, signed, storable, unsigned

_SESSION = (
    "SELECT id, agent, agent_directory, name, last_path, root, format, identity, path IS NULL,"
    " missed_at FROM sessions"
)
_PAGE = 1000  # rows that one query returns


def _session(row: tuple[Any, ...]) -> SessionRecord:
    ident, agent, directory, name, path, root, format_name, identity, displaced, missed = row
    return SessionRecord(
        ident, agent, os.fsdecode(directory), name, os.fsdecode(path), os.fsdecode(root),
        format_name, identity, bool(displaced), missed,
    )  # fmt: skip


class Sessions(Table):
    def matching(self, path: str, identity: str | None) -> SessionRecord | None:
        """Return the record at a path, unless both identities are known and differ."""
        here = self.at(path)
        fits = here and (here.identity == identity or None in (here.identity, identity))
        return here if fits else None

    def note(
        self, file: SessionFile, format_name: str, identity: str | None = None,
        record: SessionRecord | None = None,
    ) -> SessionRecord:  # fmt: skip
        """Record a session and its path. Any other session loses this path.

        `record` is the session's earlier record, whose path may differ.
        """
        record, holder = record or self.matching(file.path, identity), self.at(file.path)
        if holder and (record is None or holder.id != record.id):
            self.displace(file.path)
        path = os.fsencode(file.path)
        row = {
            "agent": path_text(file.agent), "agent_directory": os.fsencode(file.agent_directory),
            "name": path_text(file.session), "path": path, "last_path": path,
            "root": os.fsencode(file.root), "format": format_name,
            "identity": identity or (record and record.identity),
        }  # fmt: skip
        if record is None:
            return self.by_id(self._insert("sessions", row))
        changed = ", ".join(f"{column} = ?" for column in row)
        self._execute(
            f"UPDATE sessions SET {changed}, missed_at = NULL WHERE id = ?",  # noqa: S608
            (*row.values(), record.id),
        )
        return self.by_id(record.id)

    def _where(self, condition: str, *values: object) -> list[SessionRecord]:
        rows = self._execute(f"{_SESSION} WHERE {condition}", values).fetchall()
        return [*map(_session, rows)]

    def by_id(self, ident: int) -> SessionRecord:
        [record] = self._where("id = ?", ident)
        return record

    def by_ids(self, idents: Iterable[int]) -> list[SessionRecord]:
        listed = json.dumps(sorted(set(idents)))
        return self._where("id IN (SELECT value FROM json_each(?))", listed)

    def at(self, path: str) -> SessionRecord | None:
        return next(iter(self._where("path = ?", os.fsencode(path))), None)

    def ids_at(self, paths: Collection[str]) -> dict[str, int]:
        places = ", ".join("?" * len(paths))
        statement = f"SELECT path, id FROM sessions WHERE path IN ({places})"  # noqa: S608
        rows = self._execute(statement, [os.fsencode(path) for path in paths])
        return {os.fsdecode(path): ident for path, ident in rows}

    def of_identity(self, identity: str | None, above: int = 0) -> list[SessionRecord]:
        """Return the records with a session id, and with ids above a number, newest first."""
        return self._where("identity = ? AND id > ? ORDER BY id DESC", identity, above)

    def same_identity(self, identity: str | None, among: Iterable[int]) -> frozenset[int]:
        """Return those of the records (ids) that have this session id."""
        statement = (
            "SELECT id FROM sessions WHERE identity = ? AND id IN (SELECT value FROM json_each(?))"
        )
        return frozenset(self._column(statement, identity, json.dumps(sorted(set(among)))))

    def record_missing(self, missed: Iterable[tuple[int, float | None]]) -> None:
        self._executemany(
            "UPDATE sessions SET missed_at = ?2 WHERE id = ?1 AND missed_at IS NOT ?2", missed
        )

    def missed(self) -> dict[str, int]:
        """Return the ids of missing sessions by their paths."""
        rows = self._execute(
            "SELECT path, id FROM sessions WHERE missed_at IS NOT NULL AND path IS NOT NULL"
        )
        return {os.fsdecode(path): ident for path, ident in rows}

    def record_seen(self, ids: Iterable[int]) -> None:
        self._executemany(
            "UPDATE sessions SET missed_at = NULL WHERE id = ? AND path IS NOT NULL",
            ((ident,) for ident in ids),
        )

    def displace(self, path: str) -> None:
        self._execute("UPDATE sessions SET path = NULL WHERE path = ?", (os.fsencode(path),))

    def any_at_or_below(self, path: str) -> bool:
        name = os.fsencode(path)
        statement = "SELECT id FROM sessions WHERE path = ? OR (path >= ? AND path < ?) LIMIT 1"
        return self._first(statement, name, name + b"/", name + b"0") is not None

    def all(self) -> Iterator[SessionRecord]:
        last = 0
        while page := self._where("id > ? ORDER BY id LIMIT ?", last, _PAGE):
            yield from page
            last = page[-1].id


class Calibrations(Table):
    def remember(self, session_id: int, full: Fullness) -> None:
        self._insert("calibration", {"session_id": session_id, "fullness": encode(full)}, "REPLACE")

    def of(self, session_id: int) -> Fullness | None:
        of_session = "fullness FROM calibration WHERE session_id = ?"
        return next(self._decoded(Fullness, of_session, session_id), None)

    def of_agent(self, agent_directory: bytes, excluded: int | None) -> list[Calibration]:
        known = self._decoded(
            Fullness, "fullness FROM calibration JOIN sessions ON id = session_id"
            " WHERE agent_directory = ? AND id IS NOT ? ORDER BY id", agent_directory, excluded,
        )  # fmt: skip
        return [full.calibration for full in known if full.calibration.method == "session"]

    def forget(self, paths: Iterable[str]) -> None:
        self._executemany(
            "DELETE FROM calibration WHERE session_id IN (SELECT id FROM sessions WHERE path = ?)",
            ((os.fsencode(path),) for path in paths),
        )

    def loads(self) -> Loads:
        known = list(self._decoded(Fullness, "fullness FROM calibration"))
        return Loads(
            len(known), sum(full.load for full in known), sum(full.window for full in known),
            sum(full.is_too_full for full in known),
        )  # fmt: skip


class SavingsSoFar(Table):
    def of(self, session_id: int) -> Savings | None:
        found = self._decoded(Savings, "savings FROM savings WHERE session_id = ?", session_id)
        return next(found, None)

    def remember(self, session_id: int, savings: Savings) -> None:
        self._insert("savings", {"session_id": session_id, "savings": encode(savings)}, "REPLACE")

    def total(self) -> Bill:
        known = list(self._decoded(Savings, "savings FROM savings"))
        dollars = [savings.dollars for savings in known if savings.dollars is not None]
        tokens = sum(savings.tokens for savings in known)
        paid = round(sum(savings.paid for savings in known))
        return Bill(tokens, 0, paid, sum(dollars) if dollars else None)


class Spending(Table):
    """The costs of calls, by session and model. New calls wait in memory until `flush`."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        super().__init__(connection)
        self._ids: set[int] = set()
        self._new: dict[str, tuple[list[int], list[Spent]]] = {}

    def known(self, idents: Iterable[int]) -> set[int]:
        """Return those of the calls that were counted."""
        wanted = set(idents)
        return wanted & self._ids | self._stored(wanted)

    def has_session(self, path: str) -> bool:
        """Check whether a session was counted. It may have no calls."""
        statement = "SELECT 1 FROM spending WHERE path = ? LIMIT 1"
        return path in self._new or self._first(statement, os.fsencode(path)) is not None

    def add(self, path: str, ids: Collection[int], spent: Iterable[Spent]) -> None:
        if ids or not self.has_session(path):
            known, sums = self._new.setdefault(path, ([], []))
            known.extend(ids)
            sums.extend(spent)
            self._ids.update(ids)

    def flush(self) -> None:
        names = Spent.__struct_fields__
        sums = ", ".join(f"{name} = {name} + excluded.{name}" for name in names[2:])
        for path, (ids, spent) in self._new.items():
            if self._stored(ids):
                continue  # another process counted some of them; the next read counts the others
            listed = json.dumps(ids)
            self._execute("INSERT INTO counted_calls SELECT value FROM json_each(?)", (listed,))
            self._executemany(
                f"INSERT INTO spending VALUES ({', '.join('?' * (1 + len(names)))})"  # noqa: S608
                f" ON CONFLICT DO UPDATE SET {sums}",
                (
                    (os.fsencode(path), storable(model), *rest)
                    for model, *rest in map(astuple, (Spent("", priced=False), *spent))
                ),
            )
        self._ids, self._new = set(), {}

    def of(self, path: str) -> list[Spent]:
        _, new = self._new.get(path, ([], []))
        stored = self._records(Spent, "spending WHERE path = ? AND calls > 0", os.fsencode(path))
        return [*stored, *new]

    def total(self) -> list[Spent]:
        model, priced, *sums = Spent.__struct_fields__
        rows = self._execute(
            f"SELECT {model}, {priced}, {', '.join(f'sum({name})' for name in sums)}"  # noqa: S608
            f" FROM spending WHERE calls > 0 GROUP BY {model}, {priced}"
        )
        return [Spent(*row) for row in rows]

    def _stored(self, idents: Iterable[int]) -> set[int]:
        listed = json.dumps(sorted(idents))
        statement = "SELECT id FROM counted_calls WHERE id IN (SELECT value FROM json_each(?))"
        return set(self._column(statement, listed))


class Rows(Table):
    """The times of our writes to agents' databases."""

    def wrote(self, session_id: int, noted_ms: int) -> None:
        self._insert("row_writes", {"session_id": session_id, "noted_ms": noted_ms}, "REPLACE")

    def own_times(self) -> dict[str, int]:
        """Return the times (milliseconds) that our last writes set, by path."""
        rows = self._execute(
            "SELECT s.path, w.noted_ms FROM row_writes w JOIN sessions s ON s.id = w.session_id"
            " WHERE s.path IS NOT NULL"
        )
        return {os.fsdecode(path): noted for path, noted in rows}

    def release(self) -> None:
        """Delete the columns that earlier programs kept."""
        self._execute("DELETE FROM row_columns")


# Outcomes:
AGAIN = "again"  # deferred, and tried again in every run
WAITS = "waits"  # deferred until its database changes
IN_MEMORY = "in memory"  # deferred until its process ends, or until a long silence
FAILED = "failed"  # tried again after a pause
DATABASE = "database"  # no session: the state of a whole database file
# FileMemory decides whether a run reads an unchanged file with one of these outcomes.
_NOT_SKIPPED = frozenset({AGAIN, WAITS, IN_MEMORY, FAILED, DATABASE})
# The session was read, its turn was closed, and nothing prevented a change of it for long.
CERTAIN = frozenset({"changed", "unchanged", "deferred", "skipped", IN_MEMORY})
_OF_ROWS = "path, device, inode, size, mtime_ns, ctime_ns, due_at, rules, outcome"
_STATE = (
    "device, inode, size, mtime_ns, ctime_ns, rules, format, outcome, reason, first_seen, due_at,"
    " looked_at"
)


def _fingerprint(row: tuple[Any, ...]) -> Fingerprint:
    return Fingerprint(unsigned(row[0]), unsigned(row[1]), *row[2:5])


class FileStates(Table):
    """The last state of each file. After `read`, `directories` has all, by directory and name."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        super().__init__(connection)
        self._version: int | None = None
        self._scans: dict[LastScan, LastScan] = {}
        self.directories: dict[str, dict[str, KnownFile]] = {}
        self.listings: Mapping[str, Listing] = {}  # of the last run in this process

    def read(self) -> None:
        """Read all states, unless they are in memory and no other process wrote since then."""
        version = self._first("PRAGMA data_version")
        if version == self._version:
            return
        self.drop()
        for path, device, inode, *stat, due_at, rules, outcome in self._execute(
            f"SELECT {_OF_ROWS} FROM files"  # noqa: S608
        ):
            mark = (unsigned(device), unsigned(inode), *stat)
            self._keep(os.fsdecode(path), mark, due_at, rules, outcome)
        self._version = version

    def _keep(
        self, path: str, mark: tuple[int, ...], due_at: float | None, rules: str, outcome: str
    ) -> None:
        directory, _, name = path.rpartition("/")
        last = LastScan(None if outcome in _NOT_SKIPPED else rules, rules, outcome)
        row = hash(mark) & Fingerprint.HASHED, due_at, self._scans.setdefault(last, last)
        self.directories.setdefault(directory, {})[name] = row

    def drop(self) -> None:
        self._version, self._scans, self.directories = None, {}, {}

    def all(self) -> dict[str, FileState]:
        rows = self._execute(f"SELECT {_STATE}, path FROM files")  # noqa: S608
        return {os.fsdecode(row[-1]): FileState(_fingerprint(row), *row[5:-1]) for row in rows}

    def remember(self, path: str, state: FileState) -> None:
        row = asdict(state)
        mark = asdict(row.pop("fingerprint"))
        mark |= {"device": signed(mark["device"]), "inode": signed(mark["inode"])}
        self._insert("files", {"path": os.fsencode(path), **mark, **row}, "REPLACE")
        if self._version is not None:
            seen = astuple(state.fingerprint)
            self._keep(path, seen, state.due_at, state.rules, state.outcome)

    def at(self, path: str) -> FileState | None:
        statement = f"SELECT {_STATE} FROM files WHERE path = ?"  # noqa: S608
        row = self._execute(statement, (os.fsencode(path),)).fetchone()
        return FileState(_fingerprint(row), *row[5:]) if row else None

    def blocked(self, since: float) -> dict[str, str]:
        rows = self._execute(
            "SELECT path, reason FROM files WHERE outcome IN (?, ?) AND first_seen < ?"
            " ORDER BY path",
            (AGAIN, WAITS, since),
        )
        return {os.fsdecode(path): reason for path, reason in rows}

    def any_below(self, path: str) -> bool:
        name = os.fsencode(path)
        statement = "SELECT 1 FROM files WHERE path > ? AND path < ? LIMIT 1"
        return self._first(statement, name + b"/", name + b"0") is not None

    def remember_lost(self, path: str, number: int) -> None:
        self._execute("DELETE FROM lost WHERE path = ?", (os.fsencode(path),))
        if number:
            self._insert("lost", {"path": os.fsencode(path), "number": number})

    def count_lost(self) -> int:
        return int(self._first("SELECT coalesce(sum(number), 0) FROM lost"))

    def forget(self, paths: Iterable[str]) -> None:
        for path in paths:
            self._execute("DELETE FROM files WHERE path = ?", (os.fsencode(path),))
            self.remember_lost(path, 0)
            directory, _, name = path.rpartition("/")
            rows = self.directories.get(directory, {})
            rows.pop(name, None)
            if not rows:
                self.directories.pop(directory, None)
