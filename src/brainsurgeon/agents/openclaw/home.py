"""OpenClaw's session files: their names, their locks and the registry `sessions.json`."""

import errno
import math
import os
import re
import stat
from collections import defaultdict
from collections.abc import Callable, Mapping
from contextlib import closing
from typing import Any, BinaryIO

from msgspec import Struct

from brainsurgeon.files.processes import lives
from brainsurgeon.files.readings import Readings
from brainsurgeon.files.sqlite import AgentDatabaseError, connected
from brainsurgeon.model.entries import BOM, parse
from brainsurgeon.model.sessions import Fingerprint, Signs
from brainsurgeon.model.text import parse_time

_ARCHIVE = re.compile(r"\.jsonl\.(?:reset|deleted|bak|imported)[.-]")
# Side files of OpenClaw that are not sessions (openclaw 2026.7.35 `dist/paths-*.js`).
_SIDE_FILE = re.compile(
    rf"\.trajectory\.jsonl$|\.checkpoint\.[0-9a-fA-F-]{{36}}\.jsonl$|{_ARCHIVE.pattern}"
)
PI = "pi:"  # prefix of the names of pi's agents; pi's sessions have OpenClaw's format
_IMPORTED = "session-sqlite-import-archive"  # session files that were imported into a database
SKIPPED_DIRECTORIES = frozenset({"subagent-artifacts", "node_modules", ".git"})


def is_session_name(name: str) -> bool:
    return name.endswith(".jsonl") and len(name) > len(".jsonl") and not _SIDE_FILE.search(name)


def is_archive_name(name: str) -> bool:
    return is_session_name(name) or _ARCHIVE.search(name) is not None


def owner(directory: str) -> str | None:
    """Return the directory of the agent that keeps its sessions in `directory`, or None."""
    home, name = os.path.split(directory)
    return home if name in ("sessions", _IMPORTED) else None


def agent_names(agent: str) -> tuple[str, ...]:
    """Return the name of an agent and, for pi, the name that our earlier versions printed."""
    return (agent, "openclaw:" + agent.removeprefix(PI)) if agent.startswith(PI) else (agent,)


def migrated(agent_directory: str) -> bool:
    """Check whether OpenClaw keeps this agent's sessions in a database (since 2026.8.1).

    If the database cannot be read, the answer is yes, and the agent's session files stay unchanged.
    """
    path = os.path.join(agent_directory, "agent", "openclaw-agent.sqlite")
    if not os.path.lexists(path):
        return False
    if not os.path.isfile(path):  # SQLite would wait for a pipe's writer
        return True
    # Reading must not create files in the agent's directory. SQLite would create the index (`-shm`)
    # of a write-ahead log. Without a log, `immutable` prevents the creation of both.
    logged = os.path.exists(path + "-wal")
    if logged and not os.path.exists(path + "-shm"):
        return True
    try:
        with closing(connected(path, "ro" if logged else "ro&immutable=1")) as database:
            events = database.execute("SELECT 1 FROM transcript_events LIMIT 1")
            return events.fetchone() is not None
    except AgentDatabaseError as error:
        return error.code != "SQLITE_ERROR"  # this code: no such table


# Observed with OpenClaw 2026.2.19 and 2026.7.35: a run of the agent locks its session, but releases
# the lock at each model call for 30 to 110 ms. Then only the status `running` in `sessions.json`
# shows the run, so the status is read after the lock. Runs without the gateway do not set it: for
# them, the lock is then read again. A new lock file is empty for a millisecond.

REGISTRY = "sessions.json"  # the gateway's records of an agent's sessions
LARGEST_REGISTRY = 64 << 20  # bytes; a larger registry is not read
UNREADABLE_LOCK = 1800.0  # seconds for which a lock of an unknown owner counts as held

UNREADABLE_LOCK_FILE = "there is a lock file that cannot be read"

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


def signs(directory: int, name: str, clock: Callable[[], float], abandoned_after: float) -> Signs:
    def busy() -> str | None:
        now = clock()
        return (
            lock_held(directory, name, now)
            or _marked_running(directory, name, now, abandoned_after)
            or lock_held(directory, name, now)
        )

    files = [f"{name}.lock", REGISTRY]
    return Signs(
        "its agent's lock file or sessions.json", busy,
        lambda: [_mark(directory, file) for file in files],
    )  # fmt: skip


def _mark(directory: int, name: str) -> object:
    try:
        return Fingerprint.of(os.stat(name, dir_fd=directory, follow_symlinks=False))
    except OSError as error:
        return error.errno


def lock_held(directory: int, name: str, now: float) -> str | None:
    try:
        with _opened(name + ".lock", directory) as lock:
            modified = os.fstat(lock.fileno()).st_mtime
            payload = parse(os.read(lock.fileno(), 65536)) or {}
    except FileNotFoundError:
        return None
    except OSError as error:  # some programs use a directory as a lock
        if error.errno in (errno.EMFILE, errno.ENFILE):
            raise
        return UNREADABLE_LOCK_FILE
    pid = payload.get("pid")
    if not isinstance(pid, int) or isinstance(pid, bool) or pid <= 0:
        return "there is a lock file" if now - modified < UNREADABLE_LOCK else None
    # Older versions record no start time. A process that is younger than its lock has a pid of
    # another: in containers, pids are small and return after each start.
    lived = lives(pid, payload.get("starttime"), parse_time(payload.get("createdAt")))
    return f"locked by process {pid}" if lived else None


def _opened(name: str, directory: int | None) -> BinaryIO:
    return open(name, "rb", opener=lambda path, _: os.open(path, _READ, dir_fd=directory))


class _Registry(Struct, frozen=True):
    """The entries of a `sessions.json` by keys, with the fields in `_USED`.

    An entry that is no object is None. `keys` has the keys that may name a session file.
    """

    entries: Mapping[str, dict[str, Any] | None]
    keys: Mapping[str, list[str]]
    problem: tuple[int, str] | None = None  # why the file is unusable

    def of(self, name: str) -> list[tuple[str, dict[str, Any]]]:
        named = ((key, self.entries[key]) for key in self.keys.get(name, ()))
        return [(key, entry) for key, entry in named if entry and names_session(entry, name)]


_USED = ("sessionFile", "sessionId", "status", "updatedAt", "contextTokens", "spawnedBy")
_registries = Readings[_Registry](most=8)


def _registry(directory: int | None, path: str) -> _Registry:
    """Read a `sessions.json`. Raises OSError if it is unusable."""
    try:
        seen = Fingerprint.of(os.stat(path, dir_fd=directory, follow_symlinks=False))
        read = _registries.of(seen.file_id, seen, lambda: _read_registry(directory, path))
    except FileNotFoundError:
        return _Registry({}, {})
    if read.problem:
        raise OSError(*read.problem)
    return read


def _read_registry(directory: int | None, path: str) -> _Registry:
    with _opened(path, directory) as handle:
        if not stat.S_ISREG(os.fstat(handle.fileno()).st_mode):
            return _Registry({}, {}, (errno.EINVAL, "not a regular file"))
        raw = handle.read(LARGEST_REGISTRY + 1)
    if len(raw) > LARGEST_REGISTRY:
        return _Registry({}, {}, (errno.EFBIG, "it is too large"))
    raw = raw.removeprefix(BOM)
    # OpenClaw replaces invalid UTF-8 while it reads.
    listed = parse(raw) or parse(raw.decode("utf-8", "replace").encode())
    if listed is None:
        return _Registry({}, {}, (errno.EINVAL, "it is not one JSON object"))
    entries: dict[str, dict[str, Any] | None] = {}
    keys = defaultdict[str, list[str]](list)
    for key, entry in listed.items():
        entries[key] = None
        if isinstance(entry, dict):
            entries[key] = {name: entry[name] for name in _USED if name in entry}
            file, ident = entry.get("sessionFile"), entry.get("sessionId")
            names = {os.path.basename(file)} if isinstance(file, str) else set()
            names |= {ident, f"{ident}.jsonl"} if isinstance(ident, str) else set()
            for name in names:
                keys[name].append(key)
    return _Registry(entries, keys)


def oddity(entry: object) -> str | None:
    """Return why an entry of a `sessions.json` says nothing about any session, or None."""
    if not isinstance(entry, dict):
        return "no object"
    status = entry.get("status")
    if status is not None and not isinstance(status, str):
        return "its status is not text"
    names = [value for key in ("sessionFile", "sessionId") if (value := entry.get(key)) is not None]
    if status == "running" and not (names and all(isinstance(name, str) for name in names)):
        return "it does not say which session runs"
    return None


def registry_problems(directory: str) -> list[tuple[str | None, str]]:
    """Return what is odd in a `sessions.json`: keys and reasons, or the reason for the whole."""
    try:
        listed = _registry(None, os.path.join(directory, REGISTRY))
    except OSError as error:
        return [(None, error.strerror or "it cannot be read")]
    return [(key, why) for key, entry in listed.entries.items() if (why := oddity(entry))]


def names_session(entry: dict[str, Any], name: str) -> bool:
    file = entry.get("sessionFile")
    by_file = isinstance(file, str) and os.path.basename(file) == name
    return by_file or entry.get("sessionId") == name.removesuffix(".jsonl")


def _marked_running(directory: int, name: str, now: float, abandoned_after: float) -> str | None:
    try:
        for _, entry in _registry(directory, REGISTRY).of(name):
            if oddity(entry) is None and entry.get("status") == "running":
                updated = entry.get("updatedAt")  # milliseconds; without it, the run counts as new
                if not isinstance(updated, int | float) or isinstance(updated, bool):
                    updated = math.inf
                if now - updated / 1000 < abandoned_after:
                    return "marked as running by its agent"
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE):
            raise
        # An agent at work soon writes it anew. Of one that stays so, only lock and turn count.
        if now - _modified(directory, REGISTRY) < abandoned_after:
            return "its agent may be at work: sessions.json cannot be read or understood"
    return None


def _modified(directory: int, name: str) -> float:
    try:
        return os.stat(name, dir_fd=directory, follow_symlinks=False).st_mtime
    except OSError:
        return math.inf


def keys_of(directory: str, name: str) -> list[str]:
    return [key for key, _ in _named(directory, name)]


def context_tokens(directory: str, name: str) -> int | None:
    sizes = (entry.get("contextTokens") for _, entry in _named(directory, name))
    return next((size for size in sizes if type(size) is int and size > 0), None)


def _named(directory: str, name: str) -> list[tuple[str, dict[str, Any]]]:
    try:
        return _registry(None, os.path.join(directory, REGISTRY)).of(name)
    except OSError:
        return []


def entries(directory: str) -> list[tuple[str, dict[str, Any]]]:
    """Return the keys and entries of a `sessions.json`; [] if it is unreadable or malformed."""
    try:
        listed = _registry(None, os.path.join(directory, REGISTRY)).entries
    except OSError:
        return []
    return [(key, entry) for key, entry in listed.items() if entry is not None]
