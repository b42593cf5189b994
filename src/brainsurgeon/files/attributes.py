"""Copy a session file's attributes, and check beforehand that none is lost."""

import errno
import fcntl
import os
import stat
import struct
import sys
from functools import cache

_LABELS = ("security.selinux", "security.SMACK64", "security.apparmor")  # set by the system
_ACCESS_LIST = "system.posix_acl_access"  # a new file may inherit one from its directory
# FS_IOC_GETFLAGS of linux/fs.h (ioctl_iflags(2)).
_GET_FLAGS = 0x80086601 if sys.maxsize > 1 << 32 else 0x80046601
_FIXED = 0x10 | 0x20  # immutable and append-only: such a file cannot even be renamed
# Flags about how the filesystem stores a file (such as extents, inline). They need not be copied.
_STORAGE_FLAGS = 0x00000F00 | 0x00040000 | 0x00080000 | 0x00200000 | 0x10000000


def lost(descriptor: int, directory: int) -> str | None:
    """Return why a new file in the directory would lose a property of an open file, or None."""
    status, user = os.fstat(descriptor), os.geteuid()
    if not _may_chown(user):
        if status.st_uid != user:
            return "the file belongs to another user"
        above = os.fstat(directory)
        inherited = above.st_gid if above.st_mode & stat.S_ISGID else os.getegid()
        if status.st_gid not in (inherited, os.getegid(), *os.getgroups()):
            return f"this user cannot give the file's group ({status.st_gid}) to a new file"
    for name in _listed(descriptor):
        if name.startswith(("security.", "trusted.")) and name not in _LABELS:
            return f"its attribute {name} would be lost"
    flags = _flags(descriptor)
    if flags & _FIXED:
        return "the file is marked immutable or append-only (chattr)"
    if flags & ~_STORAGE_FLAGS & ~_flags(directory):  # a new file gets the flags of its directory
        return "a flag of the file (chattr) would be lost"
    return None


def copy(old: int, new: int, status: os.stat_result) -> None:
    """Owner, mode and times are copied from `status`."""
    owner = os.fstat(new)
    if (owner.st_uid, owner.st_gid) != (status.st_uid, status.st_gid):
        os.fchown(new, status.st_uid, status.st_gid)
    names = _listed(old)
    for name in names:
        if not name.startswith(("security.", "trusted.")):
            os.setxattr(new, name, os.getxattr(old, name))
    if _ACCESS_LIST in _listed(new) and _ACCESS_LIST not in names:
        os.removexattr(new, _ACCESS_LIST)
    os.fchmod(new, stat.S_IMODE(status.st_mode))
    os.utime(new, ns=(status.st_atime_ns, status.st_mtime_ns))


def _listed(descriptor: int) -> list[str]:
    try:
        return os.listxattr(descriptor)  # access control lists included
    except (AttributeError, OSError):  # not supported by this system or filesystem
        return []


def _flags(descriptor: int) -> int:
    answer = bytearray(struct.calcsize("l"))
    try:
        fcntl.ioctl(descriptor, _GET_FLAGS, answer)
    except OSError as error:
        if error.errno in (errno.ENOTTY, errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS, errno.EPERM):
            return 0
        raise
    return int.from_bytes(answer[:4], sys.byteorder)


@cache
def _may_chown(user: int) -> bool:
    if user != 0:
        return False
    try:
        with open("/proc/self/status", encoding="ascii") as lines:
            effective = next(line.split()[1] for line in lines if line.startswith("CapEff:"))
    except (OSError, StopIteration):
        return True
    return bool(int(effective, 16) & 1)  # CAP_CHOWN
