"""On which filesystems a lease proves that nobody has a file open.

Others grant one as well, and it proves nothing there: on FUSE the kernel does not see who opens
the file on the other side (measured: 22 of 30 lines lost), on network filesystems another machine.
The names and numbers are those of statfs(2) and linux/magic.h.
"""

from __future__ import annotations

import ctypes
import os
import sys

PROVEN = {
    0xEF53: "ext4", 0x58465342: "xfs", 0x9123683E: "btrfs", 0x01021994: "tmpfs",
    0x794C7630: "overlayfs",
}  # fmt: skip
"""Those on which the exchange was run beside writers (ext2 and ext3 have the number of ext4)."""
_OTHERS = {
    0x65735546: "fuse", 0x6969: "nfs", 0xFF534D42: "cifs", 0xFE534D42: "smb", 0x01021997: "9p",
    0x00C36400: "ceph", 0x2FC12FC1: "zfs", 0xF2F52010: "f2fs", 0x4D44: "vfat", 0x2011BAB0: "exfat",
    0x5346544E: "ntfs", 0x786F4256: "vboxsf", 0x5346414F: "afs", 0x0BD00BD0: "lustre",
    0x858458F6: "ramfs", 0xCA451A4E: "bcachefs", 0xF15F: "ecryptfs",
}  # fmt: skip
UNPROVEN = "leases prove nothing on this filesystem ({}), and its root is not `exclusive`"
_STATFS = 256
"""Bytes; more than any `struct statfs`, which begins with the number."""
_libc = ctypes.CDLL(None, use_errno=True)


def unproven(descriptor: int) -> str | None:
    """Name the filesystem of an open file where a lease proves nothing; None where it does.

    Systems other than Linux have no leases at all: None, since none will be believed there.
    """
    if sys.platform != "linux":
        return None
    answer = ctypes.create_string_buffer(_STATFS)
    if _libc.fstatfs(descriptor, answer):
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
