"""What OpenClaw's state database says of the databases of its agents.

`<state directory>/state/openclaw.sqlite` lists where each agent's database lies and which
processes have one open, with the time at which each process started (openclaw 2026.9.6,
`dist/openclaw-state-db-read-connection-*.mjs`; seen with 2026.8.1 to 2026.9.6).
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeGuard, TypeVar

from brainsurgeon.errors import BusyError
from brainsurgeon.hosts import databases
from brainsurgeon.hosts.processes import lives

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_Said = TypeVar("_Said")
_HERE = ("local", "reclaimed", "failed")
"""The placements of a session that no worker on another machine carries on."""
_FOR_EVER = 9_000_000_000_000_000
"""Milliseconds since 1970, further away than any clock."""


@dataclass(frozen=True, slots=True)
class Owner:
    """A living process that has an agent's database open, since when (milliseconds, 1970)."""

    pid: int
    since: int


@dataclass(frozen=True, slots=True)
class Presence:
    """Who is at work on one agent's database.

    `owners` is None where that cannot be known, also where a lease says what cannot be understood:
    then no claim of a run counts as dead.
    `maintained` is until when (seconds since 1970) OpenClaw's doctor is at work, 0 without one;
    `elsewhere` are the sessions that a worker on another machine carries on.
    """

    owners: tuple[Owner, ...] | None
    maintained: float = 0.0
    elsewhere: frozenset[str] = frozenset()

    @property
    def nobody(self) -> bool:
        """Whether certainly no process has the database open."""
        return self.owners == ()


@dataclass(frozen=True, slots=True)
class Registered:
    """An agent's database as the state database lists it; the path is absolute."""

    agent: str
    path: str


def state_database(state_directory: str) -> str:
    """Return the path of the state database."""
    return os.path.join(state_directory, "state", "openclaw.sqlite")


def registered(state_directory: str) -> tuple[Registered, ...] | None:
    """Return the databases that the state database lists, or None where it cannot be understood."""

    def ask(connection: sqlite3.Connection) -> tuple[Registered, ...] | None:
        rows = connection.execute("SELECT agent_id, path FROM agent_databases").fetchall()
        if not all(isinstance(agent, str) and _is_path(path) for agent, path in rows):
            return None
        return tuple(
            Registered(agent, os.path.normpath(os.path.join(state_directory, path)))
            for agent, path in sorted(rows)
        )

    return _asked(state_directory, ask)


def presence(state_directory: str, path: str, *, opened: bool = False) -> Presence:
    """Tell who is at work on the database at `path`.

    `opened` says that this thread has that database open: then only what is listed is seen, not
    processes of another container.
    """

    def ask(connection: sqlite3.Connection) -> Presence:
        leases = connection.execute(
            "SELECT path, owner_pid, owner_start_time, opened_at FROM agent_database_leases"
        ).fetchall()
        owners = _owners(state_directory, path, leases)
        return Presence(owners, _maintained(connection), _elsewhere(connection))

    found = _asked(state_directory, ask) or Presence(None)
    if opened or found.owners:
        return found
    if databases.mode_of(path) is not None or databases.held_open(path):
        return Presence(None, found.maintained, found.elsewhere)  # a process out of our sight
    return found


def _asked(state_directory: str, ask: Callable[[sqlite3.Connection], _Said | None]) -> _Said | None:
    path = state_database(state_directory)
    with suppress(sqlite3.Error, OSError, BusyError):
        owned = databases.held_open(path)
        with databases.reading(path, owned=owned) as connection:
            return ask(connection)
    return None


def _owners(
    state_directory: str, path: str, leases: Iterable[tuple[object, ...]]
) -> tuple[Owner, ...] | None:
    """Return the living processes that have a database open, None where one cannot be told."""
    owners = []
    for leased, pid, started, since in leases:
        if not _is_path(leased):
            return None
        if _same(os.path.join(state_directory, leased), path):
            if not (isinstance(pid, int) and pid > 0 and isinstance(since, int)):
                return None
            if lives(pid, started):
                owners.append(Owner(pid, since))
    return tuple(owners)


def _is_path(said: object) -> TypeGuard[str]:
    return isinstance(said, str) and "\0" not in said


def _maintained(connection: sqlite3.Connection) -> float:
    """Return until when (seconds since 1970) a doctor is at work: for ever where that is unsaid."""
    leases = connection.execute(
        "SELECT expires_at FROM state_leases WHERE scope = 'core:agent-database-maintenance'"
    )
    ends = [until if isinstance(until, int) else _FOR_EVER for (until,) in leases]
    return max(ends, default=0) / 1000


def _elsewhere(connection: sqlite3.Connection) -> frozenset[str]:
    table = connection.execute(
        "SELECT 1 FROM sqlite_master WHERE name = 'worker_session_placements'"
    ).fetchone()
    if table is None:
        return frozenset()
    rows = connection.execute("SELECT session_id, state FROM worker_session_placements")
    return frozenset(session for session, state in rows if state not in _HERE)


def _same(one: str, other: str) -> bool:
    return os.path.realpath(one) == os.path.realpath(other)
