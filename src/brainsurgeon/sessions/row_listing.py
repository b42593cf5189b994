"""List the sessions that lie in databases of their agents, below the roots."""

from __future__ import annotations

import os
import sqlite3
from hashlib import blake2b
from types import MappingProxyType
from typing import TYPE_CHECKING

from brainsurgeon.errors import BusyError
from brainsurgeon.hosts import (
    databases,
    openclaw_database,
    openclaw_events,
    openclaw_schema,
    openclaw_state,
    openclaw_windows,
)
from brainsurgeon.model.sessions import Fingerprint, SessionFile, Unreadable
from brainsurgeon.sessions.row_lines import readable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from brainsurgeon.hosts.databases import DatabaseState
    from brainsurgeon.hosts.openclaw_database import Database
    from brainsurgeon.hosts.openclaw_schema import Schema
    from brainsurgeon.hosts.openclaw_windows import Window
    from brainsurgeon.model.sessions import Root


def mark_of(state: DatabaseState) -> Fingerprint:
    """Reduce the state of a database and of its log to what a scan can remember."""
    main, log = state.main, state.log
    told = repr((main.mtime_ns, log)).encode()
    turned = int.from_bytes(blake2b(told, digest_size=8).digest(), signed=True)
    newest = max(main.mtime_ns, log.mtime_ns if log else 0)
    return Fingerprint(main.device, main.inode, main.size, newest, turned)


NOTHING_OWN: Mapping[str, int] = MappingProxyType({})
_GENERATION_DIGITS = 15
"""Hexadecimal digits of a generation that fit into a signed integer of eight bytes."""


def never_rests(_path: str, _state: DatabaseState) -> bool:
    """Remember nothing: look into every database."""
    return False


def list_rows(
    roots: Iterable[Root],
    own: Mapping[str, int] = NOTHING_OWN,
    rests: Callable[[str, DatabaseState], bool] = never_rests,
    only: str | None = None,
) -> Iterator[SessionFile | Unreadable]:
    """Yield the sessions in the databases below the roots, and every database that stays shut.

    `own` are the times (milliseconds) that we noted in sessions ourselves, by path. `rests` tells
    that nothing happened in a database, so that it need not be opened and its sessions are left
    out. `only` is the path of one database, or of a session in it.
    """
    met: set[tuple[int, int]] = set()
    for root in roots:
        if not root.databases:
            continue
        for item in openclaw_database.databases(root.path):
            if only is not None and only != item.path and not only.startswith(item.path + "/"):
                continue
            if isinstance(item, Unreadable):
                yield item
                continue
            try:
                state = databases.state_of(item.path)
            except OSError:
                continue  # it went away between the listing and the look
            key = (state.main.device, state.main.inode)
            if key not in met:
                met.add(key)
                if not rests(item.path, state):
                    yield from _sessions(item, root, own)


def layout_of(database: Database) -> Schema:
    """Examine the layout of a database; raise OSError or BusyError where it cannot be read."""
    presence = openclaw_state.presence(database.state_directory, database.path)
    owned = not presence.nobody
    with readable(), databases.reading(database.path, owned=owned) as opened:
        return openclaw_schema.examine(opened)


def list_rows_at(
    roots: Iterable[Root], path: str, own: Mapping[str, int] = NOTHING_OWN
) -> list[SessionFile]:
    """List what lies at one path: the sessions of a database, or the one session of that path."""
    found = list_rows(_above(roots, path), own, only=path)
    files = (item for item in found if isinstance(item, SessionFile))
    return [file for file in files if path in (file.path, file.directory)]


def row_at(roots: Iterable[Root], path: str) -> SessionFile | Unreadable | None:
    """Return the session of one path, why its database stays shut, or None where neither is."""
    if not os.path.isfile(os.path.dirname(path)):
        return None
    for item in list_rows(_above(roots, path), only=path):
        if isinstance(item, Unreadable) or item.path == path:
            return item
    return None


def _above(roots: Iterable[Root], path: str) -> list[Root]:
    return [root for root in roots if path.startswith(os.path.realpath(root.path) + "/")]


def _sessions(
    database: Database, root: Root, own: Mapping[str, int]
) -> Iterator[SessionFile | Unreadable]:
    unknown = None
    try:
        if why := openclaw_database.misplaced(database):
            yield Unreadable(database.root, database.path, why, failed=False)
            return
        presence = openclaw_state.presence(database.state_directory, database.path)
        with databases.reading(database.path, owned=not presence.nobody) as opened:
            schema = openclaw_schema.examine(opened)
            unknown = schema.unknown
            windows = openclaw_windows.windows(opened)
            sizes = openclaw_events.totals(opened, schema)
        files = [_session(database, root, one, sizes.get(one.session, 0), own) for one in windows]
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorname", None) or "SQLITE_ERROR"
        why = unknown or f"it cannot be read ({code})"
        yield Unreadable(database.root, database.path, why, failed=unknown is None)
        return
    except (OSError, BusyError) as error:
        yield Unreadable(database.root, database.path, str(error), failed=False)
        return
    except Exception as error:  # noqa: BLE001  one odd database must not stop the rest
        why = unknown or f"unexpected {type(error).__name__}"
        yield Unreadable(database.root, database.path, why, failed=unknown is None)
        return
    yield from files


def _session(
    database: Database, root: Root, window: Window, size: int, own: Mapping[str, int]
) -> SessionFile:
    noted = own.get(f"{database.path}/{window.session}")
    return SessionFile(
        database.root, database.path, window.session, database.agent, database.agent_directory,
        root.format, fingerprint(database.path, window, size, noted), root.exclusive, window.key,
        noted,
    )  # fmt: skip


def fingerprint(path: str, window: Window, size: int, own: int | None) -> Fingerprint:
    """Draw from a session's description what tells two states of it apart.

    Its place is its own in its database, its modification time that of its newest activity, its
    change time the generation, which every rewrite of its events replaces.
    """
    status = os.stat(path, follow_symlinks=False)
    generation = (window.extent.generation or "0")[:_GENERATION_DIGITS]
    try:
        turned = int(generation, 16)
    except ValueError:
        turned = 0
    named = f"{status.st_ino}/{window.session}".encode()
    inode = int.from_bytes(blake2b(named, digest_size=8).digest())
    return Fingerprint(status.st_dev, inode, size, window.times.newest(own) * 1_000_000, turned)
