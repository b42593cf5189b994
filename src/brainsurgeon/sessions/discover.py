"""Walk the roots to session files, without ever leaving a root.

Every step below a root goes through the descriptor of the directory above and refuses symbolic
links, so that a directory swapped for a link during the walk cannot lead out. The root itself is
the user's word and may be a link.
"""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING

from brainsurgeon.model import Fingerprint, Found, Unreadable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_DEEPEST = 16
_SKIPPED_DIRECTORIES = frozenset({"subagent-artifacts", "node_modules", ".git"})
_SIDE_FILE = re.compile(
    r"\.trajectory\.jsonl$"
    r"|\.checkpoint\.[0-9a-fA-F-]{36}\.jsonl$"
    r"|\.jsonl\.(?:reset|deleted|bak)[.-]"
)
"""Side files of OpenClaw that are not sessions (openclaw 2026.7.35 `dist/paths-*.js`)."""

_ARCHIVE = re.compile(r"\.jsonl\.(?:reset|deleted|bak)[.-]")

TEMPORARY = re.compile(r"\.brainsurgeon-[0-9a-f]{16}\.tmp")
"""The names of our own temporary files: no agent takes them for a session."""


@dataclass(frozen=True, slots=True)
class Root:
    """A directory to walk. `required` roots are reported when they are missing."""

    path: str
    format: str = "auto"
    required: bool = True


def is_session_name(name: str) -> bool:
    """Tell whether a file of this name is a live session."""
    return name.endswith(".jsonl") and len(name) > len(".jsonl") and not _SIDE_FILE.search(name)


def is_archive_name(name: str) -> bool:
    """Tell whether a file of this name is a session or one that its agent put away."""
    return is_session_name(name) or _ARCHIVE.search(name) is not None


def fingerprint_of(status: os.stat_result) -> Fingerprint:
    """Reduce a stat to what tells two states of a file apart."""
    return Fingerprint(
        status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
    )


def discover(
    roots: Iterable[Root], wanted: Callable[[str], bool] = is_session_name
) -> Iterator[Found | Unreadable]:
    """Yield every session file below the roots once, and every place that could not be read.

    `wanted` tells by the name which files are meant.
    """
    seen: set[tuple[int, int]] = set()
    for root in roots:
        path = os.path.realpath(root.path)
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:
            yield Unreadable(path, root.path, "no such directory", failed=root.required)
            continue
        except OSError as error:
            yield Unreadable(path, root.path, error.strerror or "cannot be opened")
            continue
        for item in _Walk(path, root.format, wanted).directory(path, descriptor, 0):
            key = isinstance(item, Found) and (item.fingerprint.device, item.fingerprint.inode)
            if key and key in seen:
                continue
            if key:
                seen.add(key)
            yield item


@dataclass(frozen=True, slots=True)
class _Walk:
    """The walk of one root."""

    top: str
    hint: str
    wanted: Callable[[str], bool]

    def directory(self, path: str, descriptor: int, depth: int) -> Iterator[Found | Unreadable]:
        """Walk one directory; closes `descriptor`."""
        try:
            try:
                with os.scandir(descriptor) as listing:
                    items = sorted(listing, key=lambda item: item.name)
            except OSError as error:
                yield Unreadable(self.top, path, error.strerror or "cannot be listed")
                return
            for item in items:
                if item.is_dir(follow_symlinks=False):
                    if depth < _DEEPEST and item.name not in _SKIPPED_DIRECTORIES:
                        yield from self._enter(f"{path}/{item.name}", descriptor, depth)
                elif self.wanted(item.name) and not item.is_symlink():
                    yield from self._look(path, item.name, descriptor)
        finally:
            os.close(descriptor)

    def _enter(self, path: str, above: int, depth: int) -> Iterator[Found | Unreadable]:
        try:
            inner = os.open(os.path.basename(path), _DIRECTORY, dir_fd=above)
        except FileNotFoundError:
            return
        except OSError as error:
            yield Unreadable(self.top, path, error.strerror or "cannot be opened")
            return
        yield from self.directory(path, inner, depth + 1)

    def _look(self, directory: str, name: str, descriptor: int) -> Iterator[Found | Unreadable]:
        try:
            status = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
        except FileNotFoundError:
            return  # it went away between the listing and the look: the next pass will tell
        except OSError as error:
            yield Unreadable(self.top, f"{directory}/{name}", error.strerror or "cannot be read")
            return
        if stat.S_ISREG(status.st_mode):
            agent, home = _owner(directory, self.hint)
            mark = fingerprint_of(status)
            yield Found(self.top, directory, name, agent, home, self.hint, mark)


def _owner(directory: str, hint: str) -> tuple[str, str]:
    """Name the agent whose sessions stand in this directory, and the directory that is its own.

    `<agent>/sessions/*.jsonl` belongs to `<agent>`, whatever the format and wherever above it the
    root was put; elsewhere the agent is `<format>:<name of the file's directory>`, which the
    reader completes.
    """
    home, name = os.path.split(directory)
    if name == "sessions":
        return os.path.basename(home), home
    return f"{hint}:{os.path.basename(directory)}", directory
