"""Save the sessions whose rows lie on damaged pages, by what else a database says of them.

Everything that was cut leads to its session, and a row that is lost would take all of it along. An
index still has the path or the identity of each, by which it is known when it is next seen; what
it is called, below which root it lies and in which format it is, is said anew then.
"""

from __future__ import annotations

import os
import sqlite3
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

_LEAD_THERE = ("extractions", "fields", "restores", "wishes", "journal", "row_columns", "archives")
"""Tables whose rows belong to a session; one that none of them names is not missed."""


def copy_sessions(old: sqlite3.Connection, new: sqlite3.Connection) -> tuple[int, int]:
    """Add the sessions that other rows lead to and that could not be read; agents are in already.

    Return how many were added, and how many stay lost: of these neither a path nor an identity is
    left, by which they could ever be told again.
    """
    lost = set(_missing(new))
    if not lost:
        return 0, 0
    paths = _by_index(old, "path", "sqlite_autoindex_sessions_1", lost)
    identities = _by_index(old, "identity", "sessions_identity", lost)
    for path, ident in _earlier(new):
        paths.setdefault(ident, path)
    agents = new.execute("SELECT id, directory FROM agents").fetchall()
    shelved = dict(new.execute(_SHELVED))
    for ident in sorted(lost & (paths.keys() | identities.keys())):
        path = paths.get(ident) or _nowhere(ident)
        agent = _around(path, agents) or shelved.get(ident)
        if agent is not None:
            _add(new, ident, agent, path, identities.get(ident))
    still = set(_missing(new))
    return len(lost - still), len(still)


_SHELVED = (
    "SELECT e.session_id, max(b.agent_id) FROM extractions e JOIN blobs b ON b.id = e.blob_id"
    " GROUP BY e.session_id"
)


def _missing(new: sqlite3.Connection) -> Iterator[int]:
    there = {name for (name,) in new.execute("SELECT name FROM sqlite_master")}
    for table in there.intersection(_LEAD_THERE):
        query = (
            f"SELECT DISTINCT session_id FROM {table}"  # noqa: S608
            " WHERE session_id NOT IN (SELECT id FROM sessions)"
        )
        yield from (ident for (ident,) in new.execute(query))


def _by_index(
    old: sqlite3.Connection, column: str, index: str, wanted: set[int]
) -> dict[int, Any]:  # fmt: skip
    """Read a column of the sessions from its index, from both ends as far as that can be read."""
    found: dict[int, Any] = {}
    for order in ("", " DESC"):
        query = f"SELECT id, {column} FROM sessions INDEXED BY {index} ORDER BY {column}{order}"  # noqa: S608
        try:
            found.update(
                (ident, value) for ident, value in old.execute(query)
                if ident in wanted and value is not None
            )  # fmt: skip
        except sqlite3.Error:
            continue  # its own pages are ruined, too, or an older store has no such index
        break
    return found


def _earlier(new: sqlite3.Connection) -> Iterator[tuple[bytes, int]]:
    """Yield where sessions were seen before they were moved, where this store knows that."""
    if new.execute("SELECT 1 FROM sqlite_master WHERE name = 'places'").fetchone():
        yield from new.execute("SELECT path, session_id FROM places")


def _nowhere(ident: int) -> bytes:
    """Give a path that no file has."""
    return b"\0" + str(ident).encode()


def _around(path: bytes, agents: list[tuple[int, bytes]]) -> int | None:
    """Give the agent in whose directory a path lies; the innermost of several."""
    inside = [(len(where), ident) for ident, where in agents if path.startswith(where + b"/")]
    return max(inside)[1] if inside else None


def _add(
    new: sqlite3.Connection, ident: int, agent: int, path: bytes, identity: str | None
) -> None:  # fmt: skip
    directory = new.execute("SELECT directory FROM agents WHERE id = ?", (agent,)).fetchone()[0]
    beside = new.execute(
        "SELECT root, format FROM sessions WHERE agent_id = ? ORDER BY id DESC", (agent,)
    ).fetchone()
    root, form = beside or (os.path.dirname(directory), "")
    name = os.path.basename(path.partition(b"\0")[0]).removesuffix(b".jsonl")
    said = {
        "id": ident, "agent_id": agent, "name": name.decode("utf-8", "backslashreplace"),
        "path": path, "root": root, "format": form,
    }  # fmt: skip
    if identity is not None:
        said["identity"] = identity
    new.execute(
        f"INSERT OR IGNORE INTO sessions ({', '.join(said)})"  # noqa: S608
        f" VALUES ({', '.join('?' * len(said))})",
        tuple(said.values()),
    )
