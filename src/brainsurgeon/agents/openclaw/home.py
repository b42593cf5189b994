"""OpenClaw's session files: their names and directories."""

import os
from collections.abc import Callable
from contextlib import closing
from functools import lru_cache

from brainsurgeon.agents.agent import Home, Owner, directory_named
from brainsurgeon.agents.openclaw import database, gate, registry
from brainsurgeon.files.sqlite import AgentDatabaseError, connected

_IMPORTED = "session-sqlite-import-archive"  # session files that were imported into a database


def state_directory() -> str:
    return directory_named("OPENCLAW_STATE_DIR", "~/.openclaw")


@lru_cache(64)
def _owner(directory: str) -> Owner | None:
    above, name = os.path.split(directory)
    if name == database.NAME:
        above = os.path.dirname(above)
    elif name not in ("sessions", _IMPORTED):
        return None
    return Owner(os.path.basename(above), above)


class OpenClawHome(Home):
    archives = r"\.jsonl\.(?:reset|deleted|bak|imported)[.-]"
    # openclaw 2026.7.35 `dist/paths-*.js`
    side_files = rf"\.trajectory\.jsonl$|\.checkpoint\.[0-9a-fA-F-]{{36}}\.jsonl$|{archives}"
    skipped = frozenset({"subagent-artifacts"})
    any_format = True
    # Seen in the argument `session`: 2026.7.35 writes `main/e…742d`, 2026.9.6 writes `***`.
    masks = ("…", "***")
    root_name = "agents"

    def root(self) -> str:
        return os.path.join(state_directory(), self.root_name)

    def owner(self, path: str) -> Owner | None:
        return _owner(path.rpartition(os.sep)[0])

    def superseded(self, agent_directory: str) -> bool:
        # Since 2026.8.1. If the database cannot be read, the answer is yes, and the agent's session
        # files stay unchanged.
        path = os.path.join(agent_directory, "agent", database.NAME)
        if not os.path.lexists(path):
            return False
        if not os.path.isfile(path):  # SQLite would wait for a pipe's writer
            return True
        # Reading must not create files in the agent's directory. SQLite would create the index
        # (`-shm`) of a write-ahead log. Without a log, `immutable` prevents the creation of both.
        logged = os.path.exists(path + "-wal")
        if logged and not os.path.exists(path + "-shm"):
            return True
        try:
            with closing(connected(path, "ro" if logged else "ro&immutable=1")) as opened:
                events = opened.execute("SELECT 1 FROM transcript_events LIMIT 1")
                return events.fetchone() is not None
        except AgentDatabaseError as error:
            return error.code != "SQLITE_ERROR"  # this code: no such table

    def keys(self, directory: str, name: str) -> list[str]:
        return registry.keys_of(directory, name)

    def window(self, directory: str, name: str) -> int | None:
        return registry.context_tokens(directory, name)

    def started(self, path: str, key: str | None) -> Callable[[str], bool]:
        directory, name = os.path.split(path)
        if key is not None:
            with database.open_database(directory) as opened:
                started = {f"{directory}/{ident}" for ident in gate.started_by(opened, key)}
            return started.__contains__
        keys = set(registry.keys_of(directory, name))
        entries = [
            entry for _, entry in registry.entries(directory) if entry.get("spawnedBy") in keys
        ]
        return lambda other: (
            os.path.dirname(other) == directory
            and any(registry.names_session(entry, os.path.basename(other)) for entry in entries)
        )

    def index_problems(self, directory: str) -> list[tuple[str, str | None, str]]:
        path = os.path.join(directory, registry.REGISTRY)
        return [(path, key, why) for key, why in registry.registry_problems(directory)]
