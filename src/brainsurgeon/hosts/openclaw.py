"""OpenClaw on this machine: where its sessions lie, and how they are named."""

from __future__ import annotations

import errno
import os
import re
import sqlite3
import stat
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from brainsurgeon.formats.base import parse
from brainsurgeon.hosts.home_paths import openclaw_agents
from brainsurgeon.hosts.processes import lives

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


_ARCHIVE = re.compile(r"\.jsonl\.(?:reset|deleted|bak|imported)[.-]")
# Side files of OpenClaw that are not sessions (openclaw 2026.7.35 `dist/paths-*.js`).
_SIDE_FILE = re.compile(
    rf"\.trajectory\.jsonl$|\.checkpoint\.[0-9a-fA-F-]{{36}}\.jsonl$|{_ARCHIVE.pattern}"
)
# How the agents begin whose sessions pi writes: they share the format, not the directories.
PI = "pi:"
# Where OpenClaw (2026.9.6) keeps the files whose sessions it took over into a database.
_IMPORTED = "session-sqlite-import-archive"
# Directories in which no session stands.
SKIPPED_DIRECTORIES = frozenset({"subagent-artifacts", "node_modules", ".git"})


def agents_directory() -> str:
    """Return where OpenClaw keeps the agents of this user."""
    return openclaw_agents()


def has_agents() -> bool:
    """Check whether OpenClaw keeps agents of this user."""
    return os.path.isdir(agents_directory())


def is_session_name(name: str) -> bool:
    """Check whether a file of this name is a live session."""
    return name.endswith(".jsonl") and len(name) > len(".jsonl") and not _SIDE_FILE.search(name)


def is_archive_name(name: str) -> bool:
    """Check whether a file of this name is a session or one that its agent put away."""
    return is_session_name(name) or _ARCHIVE.search(name) is not None


def owner(directory: str) -> str | None:
    """Return the directory of the agent whose sessions stand in this directory.

    `<agent>/sessions/*.jsonl` belongs to `<agent>`, whatever the format and wherever above it the
    root was put. None where the directory is not laid out so.
    """
    home, name = os.path.split(directory)
    return home if name in ("sessions", _IMPORTED) else None


def agent_names(agent: str) -> tuple[str, ...]:
    """Return the names of an agent: the one of today, and the one that earlier versions printed."""
    return (agent, "openclaw:" + agent.removeprefix(PI)) if agent.startswith(PI) else (agent,)


def migrated(agent_directory: str) -> bool:
    """Check whether OpenClaw keeps this agent's transcripts in SQLite (since 2026.8.1).

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


# What OpenClaw does was observed with versions 2026.2.19 and 2026.7.35: the lock is taken for a run
# and let go at each model call for 30 to 110 ms; `sessions.json` says `running` meanwhile (gateway
# only); an empty lock file is one whose payload comes a millisecond later. Read the lock first,
# then the status, then the lock again. We never create an agent's lock.


# Where the gateway keeps what it knows of an agent's sessions.
REGISTRY = "sessions.json"
# Bytes; a larger registry is not read.
LARGEST_REGISTRY = 64 << 20
# Seconds a lock whose owner cannot be told counts as held (another container's pid, say).
UNREADABLE_LOCK = 1800.0

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


class Signs:
    """What shows whether an agent is at work on a session.

    It is read before a lease is taken, and only compared under it, by status alone: whoever waits
    in an open then must not wait for a registry of many megabytes to be parsed.
    """

    def __init__(
        self, directory: int, name: str, clock: Callable[[], float], abandoned: float
    ) -> None:  # fmt: skip
        self._directory, self._name = directory, name
        self._clock, self._abandoned = clock, abandoned
        self._marks: list[object] = []

    def read(self) -> str | None:
        """Return what shows that the agent is at work, or None."""
        self._marks = self._status()
        return agent_busy(self._directory, self._name, self._clock(), self._abandoned)

    def changed(self) -> str | None:
        """Say that the agent's lock or registry is not what was read, or None."""
        return None if self._status() == self._marks else "its agent's signs changed just now"

    def _status(self) -> list[object]:
        return [_mark(self._directory, name) for name in (f"{self._name}.lock", REGISTRY)]


def _mark(directory: int, name: str) -> object:
    """Return what tells two states of a file apart, or why it has none."""
    try:
        seen = os.stat(name, dir_fd=directory, follow_symlinks=False)
    except OSError as error:
        return error.errno
    return seen.st_dev, seen.st_ino, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns, seen.st_mode


def agent_busy(directory: int, name: str, now: float, abandoned: float) -> str | None:
    """Return what shows that the agent is at work on this session, or None."""
    return (
        lock_held(directory, name, now)
        or _marked_running(directory, name, now, abandoned)
        or lock_held(directory, name, now)
    )


def lock_held(directory: int, name: str, now: float) -> str | None:
    """Return who holds the agent's lock on a session, or None; the lock is only ever looked at."""
    try:
        with _opened(name + ".lock", directory) as descriptor:
            modified = os.fstat(descriptor).st_mtime
            payload = parse(os.read(descriptor, 65536)) or {}
    except FileNotFoundError:
        return None
    except OSError as error:  # a directory serves some programs as a lock
        if error.errno in (errno.EMFILE, errno.ENFILE):
            raise
        return "a lock stands that cannot be read"
    pid = payload.get("pid")
    if not isinstance(pid, int) or isinstance(pid, bool) or pid <= 0:
        return "a lock stands" if now - modified < UNREADABLE_LOCK else None
    return f"locked by process {pid}" if lives(pid, payload.get("starttime")) else None


@contextmanager
def _opened(name: str, directory: int) -> Iterator[int]:
    descriptor = os.open(name, _READ, dir_fd=directory)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


class OddRegistryError(OSError):
    """`sessions.json` is there and does not say in a way we know who is at work."""


def registry(directory: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the session keys of `sessions.json` with their entries; nothing without the file.

    Raise OSError where it cannot be read, OddRegistryError where it is torn or of another shape.
    """
    try:
        with (
            _opened(REGISTRY, directory) as descriptor,
            open(descriptor, "rb", closefd=False) as handle,
        ):
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise OddRegistryError(errno.EINVAL, "no regular file")
            raw = handle.read(LARGEST_REGISTRY + 1)
    except FileNotFoundError:
        return
    listed = None if len(raw) > LARGEST_REGISTRY else parse(raw)
    if listed is None:
        raise OddRegistryError(errno.EINVAL, "not one object")
    for key, entry in listed.items():
        if not isinstance(entry, dict):
            raise OddRegistryError(errno.EINVAL, "an entry is no object")
        yield key, entry


def names_session(entry: dict[str, Any], name: str) -> bool:
    """Check whether an entry of `sessions.json` speaks of the session file `name`."""
    file = entry.get("sessionFile")
    if isinstance(file, str) and os.path.basename(file) == name:
        return True
    return entry.get("sessionId") == name.removesuffix(".jsonl")


def _marked_running(directory: int, name: str, now: float, abandoned: float) -> str | None:
    """Say that the registry marks this session as running; one that cannot be read may do so."""
    try:
        return next(
            (
                "marked as running by its agent"
                for _, entry in registry(directory)
                if _may_run(entry, name) and _age(entry, now) < abandoned
            ),
            None,
        )
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE):
            raise
        return "its agent may be at work: sessions.json cannot be read or understood"


def _may_run(entry: dict[str, Any], name: str) -> bool:
    """Check whether an entry says that this session is running; one that is odd may say so."""
    status = entry.get("status")
    if status is not None and not isinstance(status, str):
        raise OddRegistryError(errno.EINVAL, "an odd status")
    if status != "running":
        return False
    named = [value for key in ("sessionFile", "sessionId") if (value := entry.get(key)) is not None]
    if not named or not all(isinstance(value, str) for value in named):
        raise OddRegistryError(errno.EINVAL, "it does not say which session runs")
    return names_session(entry, name)


def _age(entry: dict[str, Any], now: float) -> float:
    """Return how long ago (seconds) an entry was updated: just now where it does not say."""
    updated = entry.get("updatedAt")
    if isinstance(updated, bool) or not isinstance(updated, int | float):
        return 0.0
    return now - updated / 1000


def keyed(directory: str, key: str) -> list[dict[str, Any]]:
    """Return what `sessions.json` in a directory says under a key; nothing where it is odd."""
    return [entry for listed, entry in _listed(directory) if listed == key]


def keys_of(directory: str, name: str) -> list[str]:
    """Return the keys under which `sessions.json` lists a session file; none where it is odd."""
    return [key for key, entry in _listed(directory) if names_session(entry, name)]


def context_tokens(directory: str, name: str) -> int | None:
    """Return how many tokens the model of a session takes, where `sessions.json` says so."""
    said = (
        entry.get("contextTokens")
        for _, entry in _listed(directory)
        if names_session(entry, name)
    )  # fmt: skip
    return next((one for one in said if type(one) is int and one > 0), None)


def _listed(directory: str) -> list[tuple[str, dict[str, Any]]]:
    try:
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return []
    try:
        return list(registry(descriptor))
    except OSError:
        return []
    finally:
        os.close(descriptor)
