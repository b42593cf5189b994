"""Which placeholders the last retention run found in each file and each session of a database."""

import json
import os
from collections.abc import Iterable, Sequence

from msgspec import Struct
from msgspec.structs import astuple, replace

from brainsurgeon.model.sessions import Fingerprint
from brainsurgeon.store.database import Table, signed, unsigned

_MARK = "device, inode, size, mtime_ns, ctime_ns"
_PAGE = 1000  # rows that one query returns
# The value is stored, and tables said before `?1` (a time) that it is in no session.
_THOUGHT_GONE = (
    "blob_id IS NOT NULL AND (unplaced_at < ?1 OR EXISTS (SELECT 1 FROM placements p"
    " JOIN sessions s ON s.id = p.session_id WHERE p.extraction_id = extractions.id"
    " AND coalesce(p.missed_at, s.missed_at) < ?1))"
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
        """Return its id."""
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
        last, found = 0, list[tuple[int, str, list[str]]]()
        while ids := self._column(
            "SELECT id FROM searches WHERE id > ? ORDER BY id LIMIT ?", last, _PAGE
        ):
            last = ids[-1]
            for ident in ids:
                if ident not in visited:
                    path, names = self._execute(
                        "SELECT path, names FROM searches WHERE id = ?", (ident,)
                    ).fetchone()
                    found.append((ident, os.fsdecode(path), json.loads(names)))
        return found

    def forget(self, ids: Iterable[int]) -> None:
        self._executemany("DELETE FROM searches WHERE id = ?", ((ident,) for ident in ids))

    def thought_gone(self, names: Iterable[str], until: float) -> list[str]:
        """Return those of the names that tables said were in no session at `until`."""
        return self._column(
            f"SELECT DISTINCT name FROM extractions WHERE {_THOUGHT_GONE}"  # noqa: S608
            " AND name IN (SELECT value FROM json_each(?2))",
            until, json.dumps([*names]),
        )  # fmt: skip

    def restart(self, names: Iterable[str], until: float, now: float) -> None:
        """Let the terms of such values begin anew: the last run still saw their placeholders."""
        listed = json.dumps([*names])
        self._execute(
            "UPDATE placements SET missed_at = ?2 WHERE extraction_id IN (SELECT id"
            " FROM extractions WHERE name IN (SELECT value FROM json_each(?3)))"
            " AND coalesce(missed_at, (SELECT missed_at FROM sessions s WHERE s.id = session_id))"
            " < ?1",
            (until, now, listed),
        )
        self._execute(
            "UPDATE extractions SET unplaced_at = ?2 WHERE unplaced_at < ?1"
            " AND name IN (SELECT value FROM json_each(?3))",
            (until, now, listed),
        )

    def correct_future(self, now: float) -> None:
        """Replace times that a wrong clock recorded: nothing lies in the future."""
        for table, column in (
            ("extractions", "unplaced_at"), ("placements", "missed_at"), ("sessions", "missed_at"),
        ):  # fmt: skip
            where = f"{column} > ?1"
            where += " AND blob_id IS NOT NULL" if table == "extractions" else ""
            self._execute(f"UPDATE {table} SET {column} = ?1 WHERE {where}", (now,))  # noqa: S608
        self._execute(
            "UPDATE journal SET rewrite = json_set(rewrite, '$.ended_at', ?1)"
            " WHERE json_extract(rewrite, '$.ended_at') > ?1",
            (now,),
        )
