"""Leases, which prove that no other process has a file open, and the exchange of two names."""

# A write lease (`fcntl F_SETLEASE`, Linux) is granted only if no other descriptor or mapping of the
# file exists (tested as root and as the owner). Until it is released, other processes that open the
# file have to wait. If one waits, the kernel sends the holder SIGIO, which would end it. So SIGURG
# is requested instead, which is ignored by default.

import ctypes
import errno
import fcntl
import os
import re
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache

from msgspec import Struct

_RENAME_EXCHANGE = 2
_UNSUPPORTED = frozenset({
    errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK, errno.EACCES, errno.ENOTTY,
})  # fmt: skip
_libc = ctypes.CDLL(None, use_errno=True)


class LeaseUnsupportedError(OSError):
    """This system, filesystem or user cannot take leases or exchange names."""


def take(descriptor: int) -> bool:
    """Acquire a write lease; return False if another process has the file open."""
    return _take(descriptor, fcntl.F_WRLCK)


def _take(descriptor: int, kind: int) -> bool:
    if sys.platform != "linux":
        raise LeaseUnsupportedError(errno.ENOSYS, "no leases on this system")
    try:
        fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, kind)
    except OSError as error:
        if error.errno == errno.EAGAIN:
            return False
        if error.errno in _UNSUPPORTED:
            raise LeaseUnsupportedError(error.errno, error.strerror) from error
        raise
    return True


def no_writers(descriptor: int) -> bool:
    """Acquire a lease that proves that no other process can write the file; False if refused."""
    # A read-only descriptor gets a read lease even if other processes read the file.
    return take(descriptor) or _take(descriptor, fcntl.F_RDLCK)


def supported(descriptor: int) -> bool:
    try:
        _take(descriptor, fcntl.F_RDLCK)
        drop(descriptor)
    except OSError:
        return False
    return True


def held(descriptor: int) -> bool:
    """Check that we have a write lease, and that no process waits to open the file."""
    return fcntl.fcntl(descriptor, fcntl.F_GETLEASE) == fcntl.F_WRLCK


def broken(descriptor: int) -> bool:
    """Check whether a writer waits to open the file. The caller must have a lease on the file."""
    return fcntl.fcntl(descriptor, fcntl.F_GETLEASE) == fcntl.F_UNLCK


def drop(descriptor: int) -> None:
    """Release the lease, if there is one."""
    try:
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except OSError as error:
        if error.errno not in {errno.EAGAIN, *_UNSUPPORTED}:
            raise


def exchange(directory: int, first: str, other: str) -> None:
    """Exchange two names atomically. Raises FileNotFoundError if one of them is gone."""
    rename = getattr(_libc, "renameat2", None)
    if rename is None:
        raise LeaseUnsupportedError(errno.ENOSYS, "no renameat2 on this system")
    # Both names must exist, so this never brings back a deleted session.
    if rename(directory, os.fsencode(first), directory, os.fsencode(other), _RENAME_EXCHANGE):
        code = ctypes.get_errno()
        if code in (errno.EINVAL, errno.ENOSYS):
            raise LeaseUnsupportedError(code, "names cannot be exchanged on this filesystem")
        raise OSError(code, os.strerror(code), first)


# The filesystems on which the exchange was tested with concurrent writers, by number (statfs(2),
# linux/magic.h). ext2 and ext3 have the number of ext4. On others, a lease may prove nothing: the
# kernel does not see writers on other machines or, with FUSE, those that write to the files
# behind the filesystem (measured: 22 of 30 lines lost).
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
UNPROVEN = (
    "leases may prove nothing on this filesystem ({}), and the session's root is not `exclusive`"
)


def unproven(descriptor: int) -> str | None:
    """Return the filesystem of an open file if it is not in `PROVEN`."""
    if sys.platform != "linux":
        return None
    # `struct statfs` is shorter than this, and begins with the number.
    answer = ctypes.create_string_buffer(256)
    if _libc.fstatfs(descriptor, answer):
        return "unknown"
    magic = ctypes.c_long.from_buffer(answer).value & 0xFFFFFFFF
    return None if magic in PROVEN else _OTHERS.get(magic, f"number {magic:#x}")


def unproven_at(path: str) -> str | None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        return unproven(descriptor)
    finally:
        os.close(descriptor)


# If a single file is mounted into a container, the mount keeps the inode: after an exchange, the
# container would write to the old file for ever (measured: 82 of 100 lines lost). So the mounts of
# every visible namespace are read from /proc/<pid>/mountinfo (proc_pid_mountinfo(5)).

FRESH = 1.0  # seconds for which the mounts are cached, since a run needs them for every file
FRESHEST = 0.05  # the same right before an exchange, as a container may have started meanwhile

# A filesystem (major:minor) and a path within it.
_Location = tuple[bytes, bytes]


class _Mount(Struct, frozen=True):
    """One line of a mountinfo: `root` of the filesystem `device` is mounted at `point`."""

    parent: bytes
    device: bytes
    root: bytes
    point: bytes

    def location_of(self, path: bytes) -> _Location:
        inner = os.path.relpath(path, self.point)
        return self.device, os.path.normpath(os.path.join(self.root, inner))


class _MountCache(Struct):
    at: float = float("-inf")  # monotonic
    locations: frozenset[_Location] = frozenset()


_cache = _MountCache()


def obstacle(directory: int, name: str, *, exchanging: bool = False) -> str | None:
    """Return a reason if the file is mounted elsewhere or is a mount point."""
    try:
        if time.monotonic() - _cache.at > (FRESHEST if exchanging else FRESH):
            _cache.locations = frozenset(_mounted_locations())
            _cache.at = time.monotonic()
        above = os.readlink(os.fsencode(f"/proc/self/fd/{directory}"))
        with open(f"/proc/self/fdinfo/{directory}", "rb") as lines:
            mount = next(line.split()[1] for line in lines if line.startswith(b"mnt_id:"))
        device, path = _mounts("self")[mount].location_of(above)
    except (OSError, KeyError, StopIteration):  # without Linux or /proc, the mounts are unknown
        return None
    if (device, os.path.join(path, os.fsencode(name))) in _cache.locations:
        return "the file itself is a mount point (it is mounted into a container, for example)"
    return None


def _mounted_locations() -> Iterator[_Location]:
    seen = set()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        namespace = pid
        with suppress(OSError):  # another user's process; its mounts can still be read
            namespace = os.readlink(f"/proc/{pid}/ns/mnt")
        if namespace in seen:
            continue
        seen.add(namespace)
        with suppress(OSError):  # the process ended
            mounts = _mounts(pid)
            for mount in mounts.values():
                yield mount.device, mount.root
                if parent := mounts.get(mount.parent):
                    yield parent.location_of(mount.point)


def _mounts(pid: str) -> dict[bytes, _Mount]:
    with open(f"/proc/{pid}/mountinfo", "rb") as lines:
        return _parsed(lines.read())


@lru_cache(maxsize=4)  # called for every changed file, nearly always with the same lines
def _parsed(lines: bytes) -> dict[bytes, _Mount]:
    mounts = {}
    for line in filter(None, lines.split(b"\n")):
        ident, parent, device, root, point, *_ = line.split(b" ")
        mounts[ident] = _Mount(parent, device, _unescaped(root), _unescaped(point))
    return mounts


def _unescaped(path: bytes) -> bytes:
    return re.sub(rb"\\([0-7]{3})", lambda match: bytes([int(match[1], 8)]), path)
