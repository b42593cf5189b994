"""Which placeholder names which value: one pair of text and key path, one value, for ever."""

from __future__ import annotations

from typing import TYPE_CHECKING

from brainsurgeon.model.stubs import stub_named
from brainsurgeon.store.key_paths import key_path_text

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Container, Iterator

    from brainsurgeon.model.entries import KeyPath


class Placeholders:
    """The placeholders that were ever given out."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def name(
        self, ident: str, path: KeyPath, digest: bytes, taken: Container[str] = frozenset()
    ) -> str:
        """Return the id for the placeholder of a value: `ident`, or `ident~2`, `ident~3`, ...

        `digest` is that of the value's bytes. Equal bytes at the same path share a placeholder. A
        text in `taken` is never given out: it stands in the file already, for something else. Its
        cost does not grow with how often an id was used. Part of the caller's transaction.
        """
        place = ident, key_path_text(path)
        for number in self._known(place, digest):
            if stub_named(_numbered(ident, number)) not in taken:
                return _numbered(ident, number)
        number = self._unused(place)
        while stub_named(_numbered(ident, number)) in taken:
            number += 1
        self._connection.execute(
            "INSERT INTO placeholders (id, path, number, digest) VALUES (?, ?, ?, ?)",
            (*place, number, digest),
        )
        return _numbered(ident, number)

    def _known(self, place: tuple[str, str], digest: bytes) -> Iterator[int]:
        """Yield the numbers under which a value was given out, most often one."""
        first = self._connection.execute(
            "SELECT digest FROM placeholders WHERE id = ? AND path = ? AND number = 1", place
        ).fetchone()
        if first is None:
            return
        if first[0] == digest:
            yield 1
        rows = self._connection.execute(
            "SELECT number FROM placeholders"
            " WHERE id = ? AND path = ? AND digest = ? AND number > 1 ORDER BY number",
            (*place, digest),
        )
        yield from (number for (number,) in rows)

    def _unused(self, place: tuple[str, str]) -> int:
        row = self._connection.execute(
            "SELECT coalesce(max(number), 0) + 1 FROM placeholders WHERE id = ? AND path = ?",
            place,
        ).fetchone()
        return int(row[0])


def _numbered(ident: str, number: int) -> str:
    return ident if number == 1 else f"{ident}~{number}"
