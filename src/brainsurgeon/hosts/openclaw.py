"""OpenClaw on this machine: where its sessions lie, and how they are named."""

from __future__ import annotations

import os
import re
import sqlite3
from contextlib import closing
from urllib.parse import quote

from brainsurgeon.hosts.homes_named import openclaw_agents

_ARCHIVE = re.compile(r"\.jsonl\.(?:reset|deleted|bak|imported)[.-]")
_SIDE_FILE = re.compile(
    rf"\.trajectory\.jsonl$|\.checkpoint\.[0-9a-fA-F-]{{36}}\.jsonl$|{_ARCHIVE.pattern}"
)
"""Side files of OpenClaw that are not sessions (openclaw 2026.7.35 `dist/paths-*.js`)."""
PI = "pi:"
"""How the agents begin whose sessions pi writes: they share the format, not the directories."""
_IMPORTED = "session-sqlite-import-archive"
"""Where OpenClaw (2026.9.6) keeps the files whose sessions it took over into a database."""
SKIPPED_DIRECTORIES = frozenset({"subagent-artifacts", "node_modules", ".git"})
"""Directories in which no session stands."""


def agents_directory() -> str:
    """Give where OpenClaw keeps the agents of this user."""
    return openclaw_agents()


def has_agents() -> bool:
    """Tell whether OpenClaw keeps agents of this user."""
    return os.path.isdir(agents_directory())


def is_session_name(name: str) -> bool:
    """Tell whether a file of this name is a live session."""
    return name.endswith(".jsonl") and len(name) > len(".jsonl") and not _SIDE_FILE.search(name)


def is_archive_name(name: str) -> bool:
    """Tell whether a file of this name is a session or one that its agent put away."""
    return is_session_name(name) or _ARCHIVE.search(name) is not None


def owner(directory: str) -> str | None:
    """Give the directory of the agent whose sessions stand in this directory.

    `<agent>/sessions/*.jsonl` belongs to `<agent>`, whatever the format and wherever above it the
    root was put. None where the directory is not laid out so.
    """
    home, name = os.path.split(directory)
    return home if name in ("sessions", _IMPORTED) else None


def agent_names(agent: str) -> tuple[str, ...]:
    """Give the names of an agent: the one of today, and the one that earlier versions printed."""
    return (agent, "openclaw:" + agent.removeprefix(PI)) if agent.startswith(PI) else (agent,)


def migrated(agent_directory: str) -> bool:
    """Tell whether OpenClaw keeps this agent's transcripts in SQLite (since 2026.8.1).

    What cannot be read for certain counts as migrated: then nothing is written.
    """
    path = os.path.join(agent_directory, "agent", "openclaw-agent.sqlite")
    if not os.path.lexists(path):
        return False
    if not os.path.isfile(path):  # SQLite would wait for a pipe's writer
        return True
    # Without a write-ahead log the file alone is the truth, and `immutable` keeps SQLite from
    # creating side files in the agent's directory; with a log, reading would create its index.
    logged = os.path.exists(path + "-wal")
    if logged and not os.path.exists(path + "-shm"):
        return True
    alone = "" if logged else "&immutable=1"
    uri = f"file:{quote(os.fsencode(path))}?mode=ro{alone}"
    try:
        with closing(sqlite3.connect(uri, uri=True, timeout=1)) as database:
            table = database.execute(
                "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'transcript_events'"
            ).fetchone()
            return bool(
                table and database.execute("SELECT 1 FROM transcript_events LIMIT 1").fetchone()
            )
    except sqlite3.Error:
        return True
