"""One look at the values of one entry, with next to nothing imported: an agent waits for it."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, NamedTuple

from brainsurgeon.model.stubs import stub_named
from brainsurgeon.store.blobs import Blobs
from brainsurgeon.store.key_paths import key_path_read
from brainsurgeon.store.opening import read_database, translated

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from brainsurgeon.model.entries import KeyPath

OF_ENTRY = (
    "id IN (SELECT id FROM extractions WHERE entry_id = ? AND session_id IN"
    " (SELECT id FROM sessions) UNION SELECT id FROM extractions WHERE stub = ?)"
    " AND state != 'pending'"
)
"""What is an entry's, by its id or by its stub; it is looked up by an index for each session."""
_VALUES = "SELECT id, path, blob_id, digest, session_id, archive_id FROM extractions"


class Glimpse(NamedTuple):
    """What was cut out of an entry, as far as it takes to show it; no `blob_id` once it expired."""

    id: int
    path: KeyPath
    blob_id: int | None
    digest: bytes


def glance(
    directory: str, entry_id: str, choose: Callable[[list[Glimpse]], Iterable[Glimpse]]
) -> tuple[tuple[Glimpse, ...], dict[int, bytes]] | None:
    """Give the values of an entry that are chosen, and their bytes as they stood in the line.

    None where more than a look is needed: without a store of today, and where the values are of
    several sessions or of none or belong to an archive, or one of the chosen has expired. Raise
    what opening a store raises, and DamagedError.
    """
    try:
        entry_id.encode()
    except UnicodeEncodeError:
        return None
    opened = read_database(directory)
    if opened is None:
        return None
    with closing(opened[0]) as connection, translated(directory):
        if opened[1]:
            return None
        rows = connection.execute(
            f"{_VALUES} WHERE {OF_ENTRY} ORDER BY id", (entry_id, stub_named(entry_id))
        ).fetchall()
        if len({row[4] for row in rows}) != 1 or any(row[5] is not None for row in rows):
            return None
        chosen = tuple(choose([Glimpse(row[0], key_path_read(row[1]), *row[2:4]) for row in rows]))
        held = [(one.id, one.blob_id, one.digest) for one in chosen if one.blob_id is not None]
        if not chosen or len(held) < len(chosen):
            return None
        blobs = Blobs(connection)
        return chosen, {ident: blobs.get(blob, digest) for ident, blob, digest in held}
