"""Find the databases in which OpenClaw keeps its agents' sessions, below a root of agents.

The standard layout is `<state directory>/agents/<agent>/agent/openclaw-agent.sqlite`, so that a
root is the directory `agents`. A database anywhere else (`session.store`) is neither read nor
written: what OpenClaw does there was not tried.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING

from brainsurgeon.hosts import openclaw_config, openclaw_state
from brainsurgeon.model.sessions import Unreadable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from brainsurgeon.model.sessions import SessionFile

NAME = "openclaw-agent.sqlite"
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Database:
    """The database of one agent; `root` is the directory of agents that it was found below."""

    root: str
    agent: str
    path: str

    @classmethod
    def of(cls, file: SessionFile) -> Database:
        """Return the database that a session lies in."""
        return cls(file.root, file.agent, file.directory)

    @property
    def agent_directory(self) -> str:
        """The directory that is the agent's own."""
        return os.path.join(self.root, self.agent)

    @property
    def state_directory(self) -> str:
        """The directory in which OpenClaw keeps everything of its own."""
        return os.path.dirname(self.root)


def databases(root: str) -> Iterator[Database | Unreadable]:
    """Yield the databases below a root, and every place that could not be looked into.

    No link is followed below the root. A root that is no directory of agents has none.
    """
    top = os.path.realpath(root)
    try:
        at = os.open(top, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return  # the walk over the files says what is wrong with a root
    try:
        for agent in sorted(os.listdir(at)):
            found = _stands(agent, at)
            if found is None:
                continue
            database = Database(top, agent, os.path.join(top, agent, "agent", NAME))
            yield database if found else Unreadable(top, database.path, "not a plain file")
    except OSError as error:
        yield Unreadable(top, top, error.strerror or "cannot be listed")
    finally:
        os.close(at)


def _stands(agent: str, top: int) -> bool | None:
    """Return whether an agent's database is a plain file; None where there is none."""
    try:
        own = os.open(agent, _DIRECTORY, dir_fd=top)
    except OSError:
        return None
    try:
        inner = os.open("agent", _DIRECTORY, dir_fd=own)
    except OSError:
        return None
    finally:
        os.close(own)
    try:
        return stat.S_ISREG(os.stat(NAME, dir_fd=inner, follow_symlinks=False).st_mode)
    except OSError:
        return None
    finally:
        os.close(inner)


def copies(database: Database) -> list[str]:
    """Name the copies that OpenClaw made of a database before it brought it up to date."""
    directory = os.path.dirname(database.path)
    return [
        os.path.join(directory, name)
        for name in sorted(os.listdir(directory))
        if name.startswith(f"{NAME}.") and name.endswith(".bak")
    ]


def misplaced(database: Database) -> str | None:
    """Say why this is not where OpenClaw keeps the agent's sessions now, or None."""
    listed = openclaw_state.registered(database.state_directory)
    if listed is not None:
        places = {one.path for one in listed if one.agent == database.agent}
        if places and places != {database.path}:
            return "OpenClaw keeps this agent's sessions elsewhere, too (session.store)"
        shared = {one.agent for one in listed if one.path == database.path} - {database.agent}
        if shared:
            return "OpenClaw keeps the sessions of several agents in this database"
    chosen = openclaw_config.selected(database.state_directory)
    if chosen.store is not None and not _standard(chosen.store):
        return "OpenClaw keeps its sessions elsewhere (session.store)"
    return None


def _standard(store: str) -> bool:
    """Return whether a configured store leads to the standard place."""
    return store.replace("\\", "/").endswith("/agents/{agentId}/sessions/sessions.json")


def unwritable(path: str) -> str | None:
    """Say why a database may not be written by this user, or None.

    Side files that another user's process creates could not be opened by their agent.
    """
    owner = os.stat(path, follow_symlinks=False).st_uid
    return None if os.geteuid() in (0, owner) else "the database belongs to another user"
