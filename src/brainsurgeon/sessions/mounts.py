"""Whether a session file is mounted on its own somewhere, as far as it can be seen.

A container that is given one file keeps the inode that it was given: after an exchange it would
write into the old file for ever (measured: 82 of 100 lines lost). Every namespace whose processes
are visible is looked at through /proc/<pid>/mountinfo (proc_pid_mountinfo(5)).
"""

from __future__ import annotations

import os
import re
import time
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

FRESH = 1.0
"""Seconds for which what was seen of all namespaces is believed: a pass asks for every file."""
AT_LAST = 0.05
"""As long as that right before an exchange: a container may have been started since the look."""

_OCTAL = re.compile(rb"\\([0-7]{3})")
_Place = tuple[bytes, bytes]
"""A filesystem (major:minor) and a path within it."""


@dataclass(frozen=True, slots=True)
class _Mount:
    """One line of a mountinfo: `root` of the filesystem `device` is seen at `point`."""

    parent: bytes
    device: bytes
    root: bytes
    point: bytes

    def within(self, path: bytes) -> _Place:
        """Give where a path that is seen below `point` stands in the filesystem."""
        return self.device, os.path.normpath(
            os.path.join(self.root, os.path.relpath(path, self.point))
        )


@dataclass(slots=True)
class _Sight:
    """What was seen of all namespaces, and when (monotonic).

    `seats` are the places of directories that were asked for since, by device and inode.
    """

    at: float = float("-inf")
    places: frozenset[_Place] = frozenset()
    seats: dict[tuple[int, int], _Place] = field(default_factory=dict)


_sight = _Sight()


def obstacle(directory: int, name: str, *, at_last: bool = False) -> str | None:
    """Say that a file is mounted alone, for which every process is looked at; None where not.

    With `at_last` only what was seen just now is believed.
    """
    if mounted_alone(directory, name, AT_LAST if at_last else FRESH):
        return "the file is a mount point of its own (a container was given this one file)"
    return None


def mounted_alone(directory: int, name: str, fresh: float) -> bool:
    """Tell whether a file is mounted elsewhere, or mounted upon, in a namespace that can be seen.

    `directory` is an open descriptor of the directory that the file stands in. What was seen is
    believed for `fresh` seconds.
    """
    try:
        _look(fresh)
        device, path = _seat(directory)
    except (OSError, KeyError, StopIteration):  # no Linux, or no /proc: nothing can be seen
        return False
    return (device, os.path.join(path, os.fsencode(name))) in _sight.places


def _look(fresh: float) -> None:
    """See every place that is mounted, or mounted upon, in any namespace that can be seen."""
    if time.monotonic() - _sight.at > fresh:
        _sight.places, _sight.seats = frozenset(_look_around()), {}
        _sight.at = time.monotonic()


def _seat(directory: int) -> _Place:
    """Give where an open directory stands in its filesystem."""
    above = os.fstat(directory)
    known = _sight.seats.get((above.st_dev, above.st_ino))
    if known is None:
        path = os.readlink(os.fsencode(f"/proc/self/fd/{directory}"))
        with open(f"/proc/self/fdinfo/{directory}", "rb") as lines:
            ident = next(line.split()[1] for line in lines if line.startswith(b"mnt_id:"))
        known = _mounts("self")[ident].within(path)
        _sight.seats[above.st_dev, above.st_ino] = known
    return known


def _look_around() -> Iterator[_Place]:
    met = set()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        namespace = pid
        with suppress(OSError):  # another user's process: its mounts can be read all the same
            namespace = os.readlink(f"/proc/{pid}/ns/mnt")
        if namespace in met:
            continue
        met.add(namespace)
        mounts: Mapping[bytes, _Mount] = {}
        with suppress(OSError):  # it ended
            mounts = _mounts(pid)
        for mount in mounts.values():
            yield mount.device, mount.root
            parent = mounts.get(mount.parent)
            if parent is not None:
                yield parent.within(mount.point)


def _mounts(pid: str) -> Mapping[bytes, _Mount]:
    """Read the mounts of a process by their ids."""
    with open(f"/proc/{pid}/mountinfo", "rb") as lines:
        return _parsed(lines.read())


@lru_cache(maxsize=4)
def _parsed(lines: bytes) -> Mapping[bytes, _Mount]:
    """Take a mountinfo apart, which is read for every file and is nearly always the same."""
    mounts = {}
    for line in filter(None, lines.split(b"\n")):
        ident, parent, device, root, point, *_ = line.split(b" ")
        mounts[ident] = _Mount(parent, device, _plain(root), _plain(point))
    return MappingProxyType(mounts)


def _plain(path: bytes) -> bytes:
    """Undo how the kernel writes white space and backslashes in a path."""
    return _OCTAL.sub(lambda match: bytes([int(match[1], 8)]), path) if b"\\" in path else path
