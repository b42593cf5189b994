"""List the sessions in databases of agents."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from types import MappingProxyType

from brainsurgeon import agents
from brainsurgeon.agents.rows import (
    Database,
    Databases,
    Layout,
    fingerprint,
    short_digest,
)
from brainsurgeon.errors import BusyError
from brainsurgeon.files import sqlite
from brainsurgeon.files.sqlite import AgentDatabaseError, DatabaseState
from brainsurgeon.model.session_files import Fingerprint, Root, SessionFile, Unreadable

NOT_NAMED = "no agent has a database of this name; set the variable that named it (OPENCODE_DB)"


def database_fingerprint(state: DatabaseState) -> Fingerprint:
    main, log = state.main, state.log
    changed = int.from_bytes(short_digest(repr((main.mtime_ns, log))), signed=True)
    newest = max(main.mtime_ns, log.mtime_ns if log else 0)
    return Fingerprint(main.device, main.inode, main.size, newest, changed)


def list_rows(
    roots: Iterable[Root],
    own_writes: Mapping[str, int] = MappingProxyType({}),
    is_resting: Callable[[str, DatabaseState], bool] = lambda _path, _state: False,
    only_path: str | None = None,
) -> Iterator[SessionFile | Unreadable]:
    """Yield the sessions in the databases below the roots, and every unreadable database.

    `own_writes` are the times (milliseconds) of our last writes, by path of the session. Databases
    for which `is_resting` returns true are left out. `only_path` is the path of a
    database, or of a session in it: no other database is listed.
    """
    seen: set[tuple[int, int]] = set()
    for root in roots:
        outside = only_path and not only_path.startswith(os.path.realpath(root.path) + "/")
        if outside or not root.databases:
            continue
        for databases, item in _below(root):
            if only_path and not f"{only_path}/".startswith(f"{item.path}/"):
                continue
            if isinstance(item, Unreadable):
                yield item
                continue
            try:
                state = sqlite.state_of(item.path)
            except OSError:
                continue  # deleted since the listing
            if state.main.file_id not in seen and not is_resting(item.path, state):
                yield from _sessions(databases, item, root, own_writes)
            seen.add(state.main.file_id)


def _below(root: Root) -> Iterator[tuple[Databases, Database | Unreadable]]:
    return (
        (databases, item) for databases in agents.DATABASES for item in databases.below(root.path)
    )


def items_below(roots: Iterable[Root]) -> Iterator[Database | Unreadable]:
    return (item for root in roots for _, item in _below(root))


def databases_below(roots: Iterable[Root]) -> Iterator[Database]:
    return (item for item in items_below(roots) if not isinstance(item, Unreadable))


def out_of_sight(roots: Iterable[Root]) -> Callable[[str], bool]:
    seen = {database.agent_directory for database in databases_below(roots)}

    @cache
    def hidden(agent_directory: str) -> bool:
        return agent_directory not in seen and agents.keeps_rows(agent_directory)

    return hidden


def why_unlisted(path: str) -> str:
    """Return why the database of a recorded session is not listed although it is there, or ""."""
    database = os.path.dirname(path)
    if os.path.isfile(database) and not agents.is_database(database):
        return f"{database}: {NOT_NAMED}"
    return ""


def layout_of(database: Database) -> Layout:
    """Return the layout of a database. Raises OSError or BusyError if it cannot be read."""
    databases = agents.databases_of(database.path)
    with databases.opened(database.path) as opened:
        layout = databases.layout(opened)
        if not (layout.empty or layout.read_only_reason):
            databases.listed(opened, layout)
        return layout


def list_rows_at(
    roots: Iterable[Root], path: str, own: Mapping[str, int] = MappingProxyType({})
) -> list[SessionFile]:
    return [
        item for item in list_rows(roots, own, only_path=path)
        if isinstance(item, SessionFile) and path in (item.path, item.directory)
    ]  # fmt: skip


def _sessions(
    databases: Databases, database: Database, root: Root, own: Mapping[str, int]
) -> Sequence[SessionFile | Unreadable]:
    read_only_reason = None
    files: list[SessionFile | Unreadable] = []
    try:
        with databases.opened(database.path) as opened:
            layout = databases.layout(opened)
            if layout.empty:
                return []
            if why := databases.misplaced(database.path):
                return [Unreadable(database.root, database.path, why, failed=False)]
            read_only_reason = layout.read_only_reason
            listed = databases.listed(opened, layout)
        for session, error in listed.unread.items():
            why = f"it cannot be read ({error.code})"
            files.append(Unreadable(database.root, f"{database.path}/{session}", why))
        for recorded in listed.sessions:
            name = recorded.session
            own_ms = own.get(f"{database.path}/{name}")
            mark = fingerprint(database.path, recorded, listed.sizes.get(name, 0), own_ms)
            files.append(SessionFile(
                database.root, database.path, name, database.agent, database.agent_directory,
                root.format, mark, root.exclusive, recorded.key, own_ms,
            ))  # fmt: skip
    except AgentDatabaseError as error:
        why = read_only_reason or f"it cannot be read ({error.code})"
        return [Unreadable(database.root, database.path, why, failed=read_only_reason is None)]
    except (OSError, BusyError) as error:
        return [Unreadable(database.root, database.path, str(error), failed=False)]
    except Exception as error:  # noqa: BLE001  the other databases are still listed
        why = read_only_reason or f"unexpected {type(error).__name__}"
        return [Unreadable(database.root, database.path, why, failed=read_only_reason is None)]
    return files
