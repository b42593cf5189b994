"""What a new file takes over from the one whose place it takes, and what it could not.

What could not be kept is known before anything is stored: then the session is left alone.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import struct
import sys
from functools import cache

# Attributes that the system itself gives to each new file, by its own rules.
_LABELS = ("security.selinux", "security.SMACK64", "security.apparmor")
# FS_IOC_GETFLAGS of linux/fs.h (ioctl_iflags(2)).
_GET_FLAGS = 0x80086601 if sys.maxsize > 1 << 32 else 0x80046601
# Immutable and append-only: such a file cannot even change its name.
_FIXED = 0x10 | 0x20
# How the filesystem keeps a file (compressed, encrypted, indexed, huge, inline): no request.
_NOT_OURS = 0x00000F00 | 0x00001000 | 0x00040000 | 0x00080000 | 0x00200000 | 0x10000000
_CAP_CHOWN = 1 << 0


def lost(descriptor: int, directory: int) -> str | None:
    """Return what a new file in the directory could not be given of an open one, or None."""
    status = os.fstat(descriptor)
    if os.geteuid() not in (0, status.st_uid):
        return "the file belongs to another user"
    return _owner_lost(status, directory) or _attribute_lost(descriptor) or _flag_lost(
        descriptor, directory
    )  # fmt: skip


def _owner_lost(status: os.stat_result, directory: int) -> str | None:
    above = os.fstat(directory)
    born = above.st_gid if above.st_mode & stat.S_ISGID else os.getegid()
    if _may_give_files_away(os.geteuid()):
        return None
    if status.st_uid != os.geteuid():
        return "the file belongs to another user"
    if status.st_gid not in (born, os.getegid(), *os.getgroups()):
        return f"its group ({status.st_gid}) cannot be given to a new file by this user"
    return None


def _attribute_lost(descriptor: int) -> str | None:
    for name in _listed(descriptor):
        if name.startswith(("security.", "trusted.")) and name not in _LABELS:
            return f"its attribute {name} would be lost"
    return None


def _flag_lost(descriptor: int, directory: int) -> str | None:
    own = _flags(descriptor)
    if own & _FIXED:
        return "the file is marked immutable or append-only (chattr)"
    if own & ~_NOT_OURS & ~_flags(directory):  # what the directory has, a new file in it gets
        return "a flag of the file (chattr) would be lost"
    return None


def copy(
    old: int, new: int, *, owner: tuple[int, int], mode: int, times_ns: tuple[int, int]
) -> None:
    """Copy owner, attributes, mode and times of the old file to the new one."""
    status = os.fstat(new)
    if (status.st_uid, status.st_gid) != owner:
        os.fchown(new, *owner)
    for name in _listed(old):
        if not name.startswith(("security.", "trusted.")):
            os.setxattr(new, name, os.getxattr(old, name))
    os.fchmod(new, mode)
    os.utime(new, ns=times_ns)


def _listed(descriptor: int) -> list[str]:
    """List the extended attributes of a file (access lists among them)."""
    try:
        return os.listxattr(descriptor)
    except (AttributeError, OSError):  # not on this system, not on this filesystem
        return []


def _flags(descriptor: int) -> int:
    """Return the flags of a file as `lsattr` shows them; 0 where there are none."""
    answer = bytearray(struct.calcsize("l"))
    try:
        fcntl.ioctl(descriptor, _GET_FLAGS, answer)
    except OSError as error:
        if error.errno in (errno.ENOTTY, errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS, errno.EPERM):
            return 0
        raise
    return int.from_bytes(answer[:4], sys.byteorder)


@cache
def _may_give_files_away(user: int) -> bool:
    """Check whether this process, as this user, may give a file to anybody (capabilities(7))."""
    if user != 0:
        return False
    try:
        with open("/proc/self/status", encoding="ascii") as lines:
            effective = next(line.split()[1] for line in lines if line.startswith("CapEff:"))
    except (OSError, StopIteration):
        return True
    return bool(int(effective, 16) & _CAP_CHOWN)
