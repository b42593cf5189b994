"""Sums over all values that stand extracted: by day, by kind and tool.

The text and the link that an archived turn replaced are no values that left: turns are counted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from brainsurgeon.model.events import TOKENS_PER_CHAR
from brainsurgeon.model.stubs import stub_named

if TYPE_CHECKING:
    import sqlite3

DAY = 86_400
_STANDING = (
    " FROM placements p JOIN extractions e ON e.id = p.extraction_id"
    " WHERE p.missed_at IS NULL AND e.archive_id IS NULL"
)
"""Values that stand extracted, once for each session that holds them."""
_UNSENT = ('["message", "details"', '["toolUseResult"')
"""How the paths begin of values that were for a screen: no request ever carried them."""


class Sums:
    """What stands extracted, added up; sizes are bytes as the values stood in their lines."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def by_day(self) -> list[tuple[int, int, int]]:
        """Give each day (its number since 1970, UTC) with its values and their size, in order."""
        return self._connection.execute(
            f"SELECT CAST(e.extracted_at / ? AS INTEGER), count(*), sum(e.size){_STANDING}"
            " GROUP BY 1 ORDER BY 1",
            (DAY,),
        ).fetchall()

    def by_kind(self) -> list[tuple[str, str | None, int, int]]:
        """Give each kind and tool with its values and their size, the largest first."""
        return self._connection.execute(
            f"SELECT e.kind, e.tool, count(*), sum(e.size){_STANDING}"
            " GROUP BY e.kind, e.tool ORDER BY 4 DESC, 1, 2"
        ).fetchall()

    def standing(self) -> tuple[int, int]:
        """Give how many values stand extracted, and their size."""
        row = self._connection.execute(
            f"SELECT count(*), coalesce(sum(e.size), 0){_STANDING}"
        ).fetchone()
        return int(row[0]), int(row[1])

    def archived(self) -> int:
        """Give how many turns stand folded into their last answers."""
        row = self._connection.execute(
            "SELECT count(DISTINCT e.archive_id) FROM placements p"
            " JOIN extractions e ON e.id = p.extraction_id WHERE p.missed_at IS NULL"
        ).fetchone()
        return int(row[0])

    def tokens(self) -> int:
        """Estimate the tokens of what stands extracted and was sent.

        A character counts as its session's calls were seen to take, else as is usual.
        """
        row = self._connection.execute(
            "SELECT total(max(0, e.chars - coalesce(length(e.replacement), length(e.name) + ?))"
            " * coalesce(c.rate, ?)) FROM placements p JOIN extractions e"
            " ON e.id = p.extraction_id LEFT JOIN calibration c ON c.session_id = p.session_id"
            " WHERE p.missed_at IS NULL AND e.archive_id IS NULL"
            " AND substr(e.path, 1, ?) != ? AND substr(e.path, 1, ?) != ?",
            (
                len(stub_named("")),
                TOKENS_PER_CHAR,
                *(value for start in _UNSENT for value in (len(start), start)),
            ),
        ).fetchone()
        return round(float(row[0]))

    def ever(self) -> int:
        """Give how many values were ever extracted: ids are never used again."""
        row = self._connection.execute(
            "SELECT seq - (SELECT count(archive_id) FROM extractions)"
            " FROM sqlite_sequence WHERE name = 'extractions'"
        ).fetchone()
        return int(row[0]) if row else 0

    def outcomes(self) -> list[tuple[str, int]]:
        """Give how many files the last look at them came to which outcome."""
        return self._connection.execute(
            "SELECT outcome, count(*) FROM files GROUP BY outcome ORDER BY outcome"
        ).fetchall()
