"""A FUSE filesystem that passes all requests on to a directory, as virtiofs and others do.

    python passthrough.py DIRECTORY MOUNT

It implements the kernel's protocol (linux/fuse.h, 7.31), so that nothing has to be installed;
mounting takes root. It ends when the mount is removed. Requests that the tests do not make are
answered with ENOSYS. Nothing is cached, so that changes of the other side are seen at once.
"""

import ctypes
import errno
import os
import struct
import sys

HEADER = struct.Struct("<IIQQIIII")
ATTRIBUTES = struct.Struct("<6Q10I")
ROOT = 1
BIGGEST = 1 << 17
# FORGET, INTERRUPT and BATCH_FORGET.
NO_ANSWER = {2, 36, 42}
_libc = ctypes.CDLL(None, use_errno=True)


class Filesystem:
    """The path of each node; the kernel's handles are descriptors of this process."""

    def __init__(self, directory):
        self.paths = {ROOT: directory}

    def answer(self, opcode, node, body):
        """Return the answer to one request; raises OSError for an error."""
        act = ACTS.get(opcode)
        if act is None:
            raise OSError(errno.ENOSYS, "not understood")
        return act(self, node, body) or b""

    def below(self, node, name):
        return os.path.join(self.paths[node], os.fsdecode(name.split(b"\0", 1)[0]))

    def entry(self, path):
        """Return an entry: its node, valid for no time, and its attributes."""
        status = os.lstat(path)
        self.paths[status.st_ino] = path
        return struct.pack("<QQQQII", status.st_ino, 0, 0, 0, 0, 0) + attributes(status)

    def _lookup(self, node, body):
        return self.entry(self.below(node, body))

    def _getattr(self, node, _):
        return struct.pack("<QII", 0, 0, 0) + attributes(os.lstat(self.paths[node]))

    def _setattr(self, node, body):
        valid, _, _, size, _, atime, mtime, _, atimensec, mtimensec, _, mode, _, uid, gid, _ = (
            struct.unpack_from("<II6Q3I5I", body)
        )
        path = self.paths[node]
        status = os.lstat(path)
        if valid & 6:
            os.lchown(path, uid if valid & 2 else -1, gid if valid & 4 else -1)
        if valid & 1:
            os.chmod(path, mode & 0o7777)
        if valid & 8:
            os.truncate(path, size)
        if valid & 0x30:
            os.utime(path, ns=(
                atime * 10**9 + atimensec if valid & 0x10 else status.st_atime_ns,
                mtime * 10**9 + mtimensec if valid & 0x20 else status.st_mtime_ns,
            ))  # fmt: skip
        return self._getattr(node, body)

    def _mkdir(self, node, body):
        path = self.below(node, body[8:])
        os.mkdir(path, struct.unpack_from("<I", body)[0])
        return self.entry(path)

    def _unlink(self, node, body):
        os.unlink(self.below(node, body))

    def _rmdir(self, node, body):
        os.rmdir(self.below(node, body))

    def _rename(self, node, body):
        return self._move(node, struct.unpack_from("<Q", body)[0], 0, body[8:])

    def _rename2(self, node, body):
        target, flags, _ = struct.unpack_from("<QII", body)
        return self._move(node, target, flags, body[16:])

    def _move(self, node, target, flags, names):
        source, destination = (self.below(at, name) for at, name in
                      zip((node, target), names.split(b"\0"), strict=False))  # fmt: skip
        if _libc.renameat2(-100, os.fsencode(source), -100, os.fsencode(destination), flags):
            raise OSError(ctypes.get_errno(), "not renamed")
        for path in (source, destination):
            if os.path.lexists(path):
                self.paths[os.lstat(path).st_ino] = path

    def _open(self, node, body):
        flags = struct.unpack_from("<I", body)[0] & ~os.O_APPEND  # the kernel says where to write
        return struct.pack("<QII", os.open(self.paths[node], flags & ~os.O_NOFOLLOW), 0, 0)

    def _create(self, node, body):
        flags, mode = struct.unpack_from("<II", body)
        path = self.below(node, body[16:])
        handle = os.open(path, (flags & ~os.O_APPEND) | os.O_CREAT, mode)
        return self.entry(path) + struct.pack("<QII", handle, 0, 0)

    def _read(self, _, body):
        handle, offset, size = struct.unpack_from("<QQI", body)
        return os.pread(handle, size, offset)

    def _write(self, _, body):
        handle, offset, size = struct.unpack_from("<QQI", body)
        return struct.pack("<II", os.pwrite(handle, body[40 : 40 + size], offset), 0)

    def _release(self, _, body):
        os.close(struct.unpack_from("<Q", body)[0])

    def _fsync(self, _, body):
        os.fsync(struct.unpack_from("<Q", body)[0])

    def _readdir(self, node, body):
        _, offset, size = struct.unpack_from("<QQI", body)
        listing = b""
        for index, name in enumerate(sorted(os.listdir(self.paths[node]))[offset:], offset + 1):
            status = os.lstat(os.path.join(self.paths[node], name))
            raw = os.fsencode(name)
            item = struct.pack("<QQII", status.st_ino, index, len(raw), status.st_mode >> 12) + raw
            item += bytes(-len(item) % 8)
            if len(listing) + len(item) > size:
                break
            listing += item
        return listing

    def _opendir(self, *_):
        return bytes(16)

    def _nothing(self, *_):
        return b""

    def _statfs(self, node, _):
        seen = os.statvfs(self.paths[node])
        return struct.pack(
            "<5Q4I24x", seen.f_blocks, seen.f_bfree, seen.f_bavail, seen.f_files, seen.f_ffree,
            seen.f_bsize, seen.f_namemax, seen.f_frsize, 0,
        )  # fmt: skip

    def _init(self, _, body):
        ahead = struct.unpack_from("<III", body)[2]
        return struct.pack("<IIIIHHIIHHI28x", 7, 31, ahead, 0, 12, 9, BIGGEST, 1, 0, 0, 0)


ACTS = {
    1: Filesystem._lookup, 3: Filesystem._getattr, 4: Filesystem._setattr, 9: Filesystem._mkdir,
    10: Filesystem._unlink, 11: Filesystem._rmdir, 12: Filesystem._rename, 14: Filesystem._open,
    15: Filesystem._read, 16: Filesystem._write, 17: Filesystem._statfs, 18: Filesystem._release,
    20: Filesystem._fsync, 26: Filesystem._init, 27: Filesystem._opendir, 28: Filesystem._readdir,
    29: Filesystem._nothing, 30: Filesystem._nothing, 35: Filesystem._create,
    45: Filesystem._rename2,
}  # fmt: skip


def attributes(status):
    return ATTRIBUTES.pack(
        status.st_ino, status.st_size, status.st_blocks,
        *(moment // 10**9 for moment in times(status)),
        *(moment % 10**9 for moment in times(status)),
        status.st_mode, status.st_nlink, status.st_uid, status.st_gid, 0, 4096, 0,
    )  # fmt: skip


def times(status):
    """Return the three times of a file in nanoseconds."""
    return status.st_atime_ns, status.st_mtime_ns, status.st_ctime_ns


def main(directory, mount):
    channel = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={channel},rootmode=40000,user_id=0,group_id=0,allow_other"
    if _libc.mount(b"passthrough", os.fsencode(mount), b"fuse", 6, options.encode()):
        sys.exit(os.strerror(ctypes.get_errno()))
    print("mounted", flush=True)
    served = Filesystem(directory)
    while True:
        try:
            request = os.read(channel, BIGGEST + 4096)
        except OSError as error:
            if error.errno == errno.ENODEV:  # unmounted
                return
            if error.errno in (errno.ENOENT, errno.EINTR, errno.EAGAIN):
                continue
            raise
        _, opcode, unique, node, *_ = HEADER.unpack_from(request)
        if opcode in NO_ANSWER:
            continue
        answer, code = b"", 0
        try:
            answer = served.answer(opcode, node, request[HEADER.size :])
        except OSError as error:
            code = -error.errno
        os.write(channel, struct.pack("<IiQ", 16 + len(answer), code, unique) + answer)


if __name__ == "__main__":
    main(*sys.argv[1:])
