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
import signal
import sys

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
    """Tell whether somebody has the file open, by asking for a write lease for an instant."""
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
    """Tell whether leases can be had here, by asking for a reader's lease for an instant."""
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
    """Tell whether the lease still stands, that is: nobody waits to open the file."""
    return fcntl.fcntl(descriptor, fcntl.F_GETLEASE) == fcntl.F_WRLCK


def broken(descriptor: int) -> bool:
    """Tell whether a writer waits to open the file, on which a lease of either kind was taken."""
    return fcntl.fcntl(descriptor, fcntl.F_GETLEASE) == fcntl.F_UNLCK


def drop(descriptor: int) -> None:
    """Give the lease back and let those who wait through; without a lease nothing happens."""
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
