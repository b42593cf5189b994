"""The kernel's own proof that nobody has a file open, and the exchange of two names.

A write lease (`fcntl F_SETLEASE`, Linux) is granted only while no other descriptor or mapping of
the file exists, and from then on every `open` by others waits. Measured on ext4, xfs, btrfs,
tmpfs and overlayfs, as root and as the owner; network filesystems refuse it. A lease that is
being broken sends SIGIO, whose default action kills the holder: SIGURG, which is ignored by
default, is asked for instead.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import re
import signal
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


_RENAME_EXCHANGE = 2
_UNSUPPORTED = frozenset({
    errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK, errno.EACCES, errno.ENOTTY,
})  # fmt: skip
_libc = ctypes.CDLL(None, use_errno=True)


class LeaseUnsupportedError(OSError):
    """This system, filesystem or user cannot take leases."""


def take(descriptor: int) -> bool:
    """Take a write lease; False when somebody has the file open."""
    if sys.platform != "linux":
        raise LeaseUnsupportedError(errno.ENOSYS, "no leases on this system")
    try:
        fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_WRLCK)
    except OSError as error:
        if error.errno == errno.EAGAIN:
            return False
        if error.errno in _UNSUPPORTED:
            raise LeaseUnsupportedError(error.errno, error.strerror) from error
        raise
    return True


def open_elsewhere(descriptor: int) -> bool:
    """Check whether somebody has the file open, by asking for a write lease for an instant."""
    if not take(descriptor):
        return True
    drop(descriptor)
    return False


def no_writers(descriptor: int) -> bool:
    """Take a lease which shows that nobody can write the file; False when somebody can.

    Somebody who only reads does not matter where `descriptor` itself was opened for reading only:
    it gets a reader's lease then.
    """
    if take(descriptor):
        return True
    try:
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_RDLCK)
    except OSError as error:
        if error.errno != errno.EAGAIN:
            raise
        return False
    return True


def supported(descriptor: int) -> bool:
    """Check whether leases can be had here, by asking for a reader's lease for an instant."""
    if sys.platform != "linux":
        return False
    try:
        fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_RDLCK)
    except OSError as error:
        return error.errno == errno.EAGAIN
    drop(descriptor)
    return True


def held(descriptor: int) -> bool:
    """Check whether the lease still stands, that is: nobody waits to open the file."""
    return fcntl.fcntl(descriptor, fcntl.F_GETLEASE) == fcntl.F_WRLCK


def broken(descriptor: int) -> bool:
    """Check whether a writer waits to open the file, on which a lease of either kind was taken."""
    return fcntl.fcntl(descriptor, fcntl.F_GETLEASE) == fcntl.F_UNLCK


def drop(descriptor: int) -> None:
    """Release the lease, so that those who wait may open the file; does nothing without one."""
    try:
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except OSError as error:
        if error.errno not in {errno.EAGAIN, *_UNSUPPORTED}:
            raise


def exchange(directory: int, one: str, other: str) -> None:
    """Swap what two names in one directory stand for, in one atomic step.

    Raise FileNotFoundError when either name is gone, so that a deleted session never comes back.
    """
    rename = getattr(_libc, "renameat2", None)
    if rename is None:
        raise LeaseUnsupportedError(errno.ENOSYS, "no renameat2 on this system")
    if rename(directory, os.fsencode(one), directory, os.fsencode(other), _RENAME_EXCHANGE):
        code = ctypes.get_errno()
        if code in (errno.EINVAL, errno.ENOSYS):
            raise LeaseUnsupportedError(code, "names cannot be exchanged on this filesystem")
        raise OSError(code, os.strerror(code), one)


# Others grant one as well, and it proves nothing there: on FUSE the kernel does not see who opens
# the file on the other side (measured: 22 of 30 lines lost), on network filesystems another
# machine. The names and numbers are those of statfs(2) and linux/magic.h.


# Those on which the exchange was run beside writers (ext2 and ext3 have the number of ext4).
PROVEN = {
    0xEF53: "ext4", 0x58465342: "xfs", 0x9123683E: "btrfs", 0x01021994: "tmpfs",
    0x794C7630: "overlayfs",
}  # fmt: skip
_OTHERS = {
    0x65735546: "fuse", 0x6969: "nfs", 0xFF534D42: "cifs", 0xFE534D42: "smb", 0x01021997: "9p",
    0x00C36400: "ceph", 0x2FC12FC1: "zfs", 0xF2F52010: "f2fs", 0x4D44: "vfat", 0x2011BAB0: "exfat",
    0x5346544E: "ntfs", 0x786F4256: "vboxsf", 0x5346414F: "afs", 0x0BD00BD0: "lustre",
    0x858458F6: "ramfs", 0xCA451A4E: "bcachefs", 0xF15F: "ecryptfs",
}  # fmt: skip
UNPROVEN = "leases prove nothing on this filesystem ({}), and its root is not `exclusive`"
# Bytes; more than any `struct statfs`, which begins with the number.
_STATFS = 256
_libc_statfs = ctypes.CDLL(None, use_errno=True)


def unproven(descriptor: int) -> str | None:
    """Name the filesystem of an open file where a lease proves nothing; None where it does.

    Systems other than Linux have no leases at all: None, since none will be believed there.
    """
    if sys.platform != "linux":
        return None
    answer = ctypes.create_string_buffer(_STATFS)
    if _libc_statfs.fstatfs(descriptor, answer):
        return "unknown"
    magic = ctypes.c_long.from_buffer(answer).value & 0xFFFFFFFF
    return None if magic in PROVEN else _OTHERS.get(magic, f"number {magic:#x}")


def unproven_at(path: str) -> str | None:
    """Name the filesystem of a directory where a lease proves nothing; None where it does."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        return unproven(descriptor)
    finally:
        os.close(descriptor)


# A container that is given one file keeps the inode that it was given: after an exchange it would
# write into the old file for ever (measured: 82 of 100 lines lost). Every namespace whose processes
# are visible is looked at through /proc/<pid>/mountinfo (proc_pid_mountinfo(5)).


# Seconds for which what was seen of all namespaces is believed: a run asks for every file.
FRESH = 1.0
# As long as that right before an exchange: a container may have been started since the look.
AT_LAST = 0.05

_OCTAL = re.compile(rb"\\([0-7]{3})")
# A filesystem (major:minor) and a path within it.
_Place = tuple[bytes, bytes]


@dataclass(frozen=True, slots=True)
class _Mount:
    """One line of a mountinfo: `root` of the filesystem `device` is seen at `point`."""

    parent: bytes
    device: bytes
    root: bytes
    point: bytes

    def within(self, path: bytes) -> _Place:
        """Return where a path that is seen below `point` stands in the filesystem."""
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
    """Check whether a file is mounted elsewhere, or mounted upon, in a namespace that can be seen.

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
    """Return where an open directory stands in its filesystem."""
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
