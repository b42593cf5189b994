"""Values as they were in their lines: stored once, compressed, checked when they are read."""

import sqlite3
from collections.abc import Callable, Iterable

import zstandard

from brainsurgeon.errors import DamagedError
from brainsurgeon.store.columns import Table
from brainsurgeon.store.history import Facts

try:
    from _blake2 import blake2b  # hashlib has the same, but loads OpenSSL first
except ImportError:
    from hashlib import blake2b


# Values checked in one sweep; other writers wait for it.
_LOOK = 5000
# Values that one check reads, and bytes of them after which it stops.
CHECKED, CHECKED_BYTES = 2000, 64 << 20
# On real tool results, level 1 compresses within 1 % of level 3 in four fifths of the time.
_compressor = zstandard.ZstdCompressor(level=1)
_decompressor = zstandard.ZstdDecompressor()


def digest(value: bytes) -> bytes:
    """Return the 32-byte digest that identifies a value."""
    return blake2b(value, digest_size=32).digest()


class Blobs(Table):
    def put(self, value: bytes) -> tuple[int, bytes, int]:
        """Store a value once; return the id of its row, its digest and the bytes written."""
        name = digest(value)
        known = self._first(
            "SELECT id FROM blobs WHERE substr(digest, 1, 8) = substr(?1, 1, 8) AND digest = ?1",
            name,
        )
        if known is not None:
            return known, name, 0
        packed = _compressor.compress(value)
        codec, data = ("zstd", packed) if len(packed) < len(value) else ("raw", value)
        row = {"digest": name, "size": len(value), "codec": codec, "data": data}
        return self._insert("blobs", row), name, len(data)

    def holds(self, blob_id: int, name: bytes) -> bool:
        """Check whether a row still contains the value with the digest `name`."""
        statement = "SELECT 1 FROM blobs WHERE id = ? AND digest = ?"
        return self._first(statement, blob_id, name) is not None

    def get(self, blob_id: int, name: bytes) -> bytes:
        """Return the value with the digest `name`; raise DamagedError if the row lacks it."""
        row = self._execute(
            "SELECT size, codec, data FROM blobs WHERE id = ?", (blob_id,)
        ).fetchone()
        if row is None:
            raise DamagedError("a stored value is missing: run `brainsurgeon doctor`")
        size, codec, data = row
        try:
            value = data if codec == "raw" else _decompressor.decompress(data, max_output_size=size)
        except zstandard.ZstdError:
            value = b""
        if len(value) != size or digest(value) != name:
            raise DamagedError(
                "a stored value is damaged and was not restored: run `brainsurgeon doctor`"
            )
        return bytes(value)

    def release(self, ids: Iterable[int]) -> int:
        """Delete values that no extraction refers to; return how many."""
        return sum(
            self._execute(
                "DELETE FROM blobs WHERE id = ? AND NOT EXISTS"
                " (SELECT 1 FROM extractions WHERE extractions.blob_id = blobs.id)",
                (row,),
            ).rowcount
            for row in ids
        )

    def sweep(self, limit: int) -> int | None:
        """Delete up to `limit` unreferenced values; return how many, None at the end.

        Checks some ids after the last sweep, up to the bound that `let_sweep` set in the previous
        run. The record that refers to a newer value may not have been written yet.
        """
        facts = Facts(self._connection)
        swept, until = facts.get("swept") or 0, facts.get("sweep_until") or 0
        if swept >= until:
            return None
        last = min(until, swept + _LOOK)
        gone = self._execute(
            "SELECT id FROM blobs WHERE id > ? AND id <= ?"
            " AND NOT EXISTS (SELECT 1 FROM extractions WHERE blob_id = blobs.id)"
            " AND NOT EXISTS (SELECT 1 FROM summaries WHERE blob_id = blobs.id)"
            " ORDER BY id LIMIT ?",
            (swept, last, limit),
        ).fetchall()
        self._executemany("DELETE FROM blobs WHERE id = ?", gone)
        facts.put("swept", gone[-1][0] if len(gone) == limit else last)
        return len(gone)

    def let_sweep(self) -> None:
        """Allow the next run to sweep the values stored so far."""
        newest = self._first("SELECT seq FROM sqlite_sequence WHERE name = 'blobs'")
        Facts(self._connection).put("sweep_until", newest or 0)

    def forget_sweep(self, journal_id: int) -> None:
        """Allow an abandoned rewrite's values to be swept; call before deleting its records."""
        least = self._first("SELECT min(blob_id) FROM extractions WHERE journal_id = ?", journal_id)
        facts = Facts(self._connection)
        if least is not None and least <= (facts.get("swept") or 0):
            facts.put("swept", least - 1)

    def check(self, check_stop: Callable[[], None]) -> tuple[int, list[int]]:
        """Check the values that are known to be damaged, and some that extractions refer to.

        Returns the row where the next check begins, and the rows that are damaged or missing. Each
        is looked up singly: a damaged database may end a search early, without an error.
        """
        after, known = self._checked()
        of = "SELECT blob_id, digest, size FROM extractions WHERE blob_id"
        listed = [row for blob in known for row in self._execute(f"{of} = ? LIMIT 1", (blob,))]
        following = self._execute(
            f"{of} > ? GROUP BY blob_id ORDER BY blob_id LIMIT ?", (after, CHECKED)
        ).fetchall()
        after, left, damaged = 0, CHECKED_BYTES, set()
        for blob, name, size in (*listed, *following):
            check_stop()
            if not self._is_sound(blob, name):
                damaged.add(blob)
            left -= size
            if left <= 0 and blob not in known:
                after = blob
                break
        else:
            if len(following) == CHECKED:
                after = following[-1][0]
        return after, sorted(damaged)

    def note_check(self, after: int, damaged: list[int]) -> None:
        Facts(self._connection).put("checked", [after, damaged])

    def count_damaged(self) -> int:
        """Return the number of values that the last checks found damaged or missing."""
        return len(self._checked()[1])

    def _checked(self) -> tuple[int, list[int]]:
        after, damaged = Facts(self._connection).get("checked") or (0, [])
        return after, damaged

    def _is_sound(self, blob_id: int, name: bytes) -> bool:
        try:
            self.get(blob_id, name)
        except sqlite3.OperationalError:
            raise  # the disk or another process, not the value
        except (DamagedError, sqlite3.DatabaseError):
            return False
        return True

    def check_all(self) -> tuple[int, list[int]]:
        """Read every value; return how many there are, and the rows of the damaged ones."""
        rows = self._execute("SELECT id, digest FROM blobs").fetchall()
        return len(rows), [ident for ident, name in rows if not self._is_sound(ident, name)]
