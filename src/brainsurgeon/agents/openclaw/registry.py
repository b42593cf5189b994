"""OpenClaw's index of an agent's session files, `sessions.json`. The gateway writes it."""

import errno
import os
import stat
from collections import defaultdict
from collections.abc import Mapping
from typing import Any, BinaryIO

from msgspec import Struct

from brainsurgeon.files.cached import Readings
from brainsurgeon.model.entries import BOM, parse
from brainsurgeon.model.session_files import Fingerprint

REGISTRY = "sessions.json"
LARGEST_REGISTRY = 64 << 20  # bytes; a larger registry is not read

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


def opened(name: str, directory: int | None) -> BinaryIO:
    return open(name, "rb", opener=lambda path, _: os.open(path, _READ, dir_fd=directory))


class Registry(Struct, frozen=True):
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
_registries = Readings[Registry](most=8)


def read(directory: int | None, path: str) -> Registry:
    """Read a `sessions.json`. Raises OSError if it is unusable."""
    try:
        seen = Fingerprint.of(os.stat(path, dir_fd=directory, follow_symlinks=False))
        known = _registries.of(seen.file_id, seen, lambda: _read_registry(directory, path))
    except FileNotFoundError:
        return Registry({}, {})
    if known.problem:
        raise OSError(*known.problem)
    return known


def _read_registry(directory: int | None, path: str) -> Registry:
    with opened(path, directory) as handle:
        if not stat.S_ISREG(os.fstat(handle.fileno()).st_mode):
            return Registry({}, {}, (errno.EINVAL, "not a regular file"))
        raw = handle.read(LARGEST_REGISTRY + 1)
    if len(raw) > LARGEST_REGISTRY:
        return Registry({}, {}, (errno.EFBIG, "it is too large"))
    raw = raw.removeprefix(BOM)
    # OpenClaw replaces invalid UTF-8 while it reads.
    listed = parse(raw) or parse(raw.decode("utf-8", "replace").encode())
    if listed is None:
        return Registry({}, {}, (errno.EINVAL, "it is not one JSON object"))
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
    return Registry(entries, keys)


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
        listed = read(None, os.path.join(directory, REGISTRY))
    except OSError as error:
        return [(None, error.strerror or "it cannot be read")]
    return [(key, why) for key, entry in listed.entries.items() if (why := oddity(entry))]


def names_session(entry: dict[str, Any], name: str) -> bool:
    file = entry.get("sessionFile")
    by_file = isinstance(file, str) and os.path.basename(file) == name
    return by_file or entry.get("sessionId") == name.removesuffix(".jsonl")


def keys_of(directory: str, name: str) -> list[str]:
    return [key for key, _ in _named(directory, name)]


def context_tokens(directory: str, name: str) -> int | None:
    sizes = (entry.get("contextTokens") for _, entry in _named(directory, name))
    return next((size for size in sizes if type(size) is int and size > 0), None)


def _named(directory: str, name: str) -> list[tuple[str, dict[str, Any]]]:
    try:
        return read(None, os.path.join(directory, REGISTRY)).of(name)
    except OSError:
        return []


def entries(directory: str) -> list[tuple[str, dict[str, Any]]]:
    """Return the keys and entries of a `sessions.json`; [] if it is unreadable or malformed."""
    try:
        listed = read(None, os.path.join(directory, REGISTRY)).entries
    except OSError:
        return []
    return [(key, entry) for key, entry in listed.items() if entry is not None]
