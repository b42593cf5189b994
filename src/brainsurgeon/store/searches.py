"""Which placeholders the last retention run found in each file and each session of a database."""

import json
import os
from collections.abc import Callable, Iterable, Sequence

from msgspec import Struct
from msgspec.structs import astuple, replace

from brainsurgeon.model.session_files import Fingerprint
from brainsurgeon.store.database import Table, signed, unsigned

_MARK = "device, inode, size, mtime_ns, ctime_ns"
# The value is stored, and tables said that it is in no session, before `?1` (a time) or because of
# another session than that at `?3` (a path).
_THOUGHT_GONE = (
    "blob_id IS NOT NULL AND (unplaced_at BETWEEN 0 AND ?1"
    " OR EXISTS (SELECT 1 FROM placements p JOIN sessions s ON s.id = p.session_id"
    " WHERE p.extraction_id = extractions.id"
    " AND coalesce(p.missed_at, s.missed_at) BETWEEN 0 AND ?1)"
    " OR (unplaced_at IS NOT NULL"
    " AND ?3 IS NOT (SELECT path FROM sessions s WHERE s.id = extractions.session_id)))"
)


class Search(Struct, frozen=True):
    path: str
    fingerprint: Fingerprint
    # If false, the file changed just before: a later change may have left the same fingerprint.
    is_proven: bool
    active_at: float  # the last activity, in counted time
    names: Sequence[str]  # ids of placeholders
    id: int | None = None


class Searches(Table):
    def at(self, paths: Sequence[str]) -> dict[str, Search]:
        places = ", ".join("?" * len(paths))
        rows = self._execute(
            f"SELECT id, {_MARK}, is_proven, active_at, names, path FROM searches"  # noqa: S608
            f" WHERE path IN ({places})",
            [os.fsencode(path) for path in paths],
        )
        found = (
            Search(
                os.fsdecode(path), Fingerprint(unsigned(device), unsigned(inode), *stat),
                bool(proven), active_at, json.loads(names), ident,
            )
            for ident, device, inode, *stat, proven, active_at, names, path in rows
        )  # fmt: skip
        return {search.path: search for search in found}

    def remember(self, search: Search) -> int:
        mark = replace(
            search.fingerprint, device=signed(search.fingerprint.device),
            inode=signed(search.fingerprint.inode),
        )  # fmt: skip
        cursor = self._execute(
            f"INSERT OR REPLACE INTO searches (id, path, {_MARK}, is_proven, active_at, names)"  # noqa: S608
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                search.id, os.fsencode(search.path), *astuple(mark), search.is_proven,
                search.active_at, json.dumps([*search.names]),
            ),
        )  # fmt: skip
        return search.id or cursor.lastrowid or 0

    def others(self, visited: set[int]) -> list[tuple[int, str, list[str]]]:
        """Return id, path and names of all but the visited ones."""
        rows = self._execute(
            "SELECT id, path, names FROM searches WHERE id NOT IN (SELECT value FROM json_each(?))",
            (json.dumps([*visited]),),
        ).fetchall()
        return [(ident, os.fsdecode(path), json.loads(names)) for ident, path, names in rows]

    def forget(self, ids: Iterable[int]) -> None:
        self._executemany("DELETE FROM searches WHERE id = ?", ((ident,) for ident in ids))

    def thought_gone(self, names: Iterable[str], until: float, path: str) -> list[str]:
        """Return those of the names in no session, by the tables, although they were at `path`.

        If their own session is there, and they went missing after `until`, a scan has seen that.
        """
        return self._column(
            f"SELECT DISTINCT name FROM extractions WHERE {_THOUGHT_GONE}"  # noqa: S608
            " AND name IN (SELECT value FROM json_each(?2))",
            until, json.dumps([*names]), os.fsencode(path),
        )  # fmt: skip

    def restart(self, names: Iterable[str], now: float) -> None:
        """Begin the terms of such values anew: the last run still saw their placeholders."""
        listed = json.dumps([*names])
        self._execute(
            "UPDATE placements SET missed_at = ?1 WHERE extraction_id IN (SELECT id"
            " FROM extractions WHERE name IN (SELECT value FROM json_each(?2)))"
            " AND coalesce(missed_at, (SELECT missed_at FROM sessions s WHERE s.id = session_id))"
            " IS NOT NULL",
            (now, listed),
        )
        self._execute(
            "UPDATE extractions SET unplaced_at = ?1 WHERE unplaced_at IS NOT NULL"
            " AND name IN (SELECT value FROM json_each(?2))",
            (now, listed),
        )
        self._execute(
            "UPDATE vanished SET missed_at = ?1 WHERE name IN (SELECT value FROM json_each(?2))",
            (now, listed),
        )

    def vanish(self, names: Iterable[str], root: str, now: float) -> None:
        """Note that a file with these placeholders is gone."""
        self._execute(
            "INSERT OR REPLACE INTO vanished SELECT DISTINCT name, ?2, ?3 FROM extractions"
            " WHERE name IN (SELECT value FROM json_each(?1)) AND blob_id IS NOT NULL",
            (json.dumps([*names]), root, now),
        )

    def have_vanished(self) -> bool:
        return bool(self._first("SELECT EXISTS (SELECT 1 FROM vanished)"))

    def see_again(self, names: Iterable[str]) -> None:
        listed = json.dumps([*names])
        self._execute(
            "DELETE FROM vanished WHERE name IN (SELECT value FROM json_each(?))", (listed,)
        )

    def forget_expired(self) -> None:
        self._execute(
            "DELETE FROM vanished WHERE NOT EXISTS (SELECT 1 FROM extractions e"
            " WHERE e.name = vanished.name AND e.blob_id IS NOT NULL)"
        )

    def count_marks(self, counted: Callable[[float], float], now: float) -> None:
        """Replace the marks of scans, and times in the future, by counted times."""
        for table, column in (
            ("extractions", "unplaced_at"), ("placements", "missed_at"), ("sessions", "missed_at"),
        ):  # fmt: skip
            stored = " AND blob_id IS NOT NULL" if table == "extractions" else ""
            marks = self._column(
                f"SELECT DISTINCT {column} FROM {table}"  # noqa: S608
                f" WHERE ({column} < 0 OR {column} > ?){stored}",
                now,
            )
            self._executemany(
                f"UPDATE {table} SET {column} = ? WHERE {column} = ?{stored}",  # noqa: S608
                [(counted(mark), mark) for mark in marks],
            )
        ended = "json_extract(rewrite, '$.ended_at')"
        wrong = f"SELECT {ended} FROM journal WHERE {ended} < 0 OR {ended} > ?"  # noqa: S608
        replaced = "UPDATE journal SET rewrite = json_set(rewrite, '$.ended_at', ?)"
        replaced += f" WHERE {ended} = ?"
        for mark in self._column(wrong, now):
            self._execute(replaced, (counted(mark), mark))
