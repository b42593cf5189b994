"""The new file of a rewrite: its bytes, mode, times, owner and attributes."""

import errno
import os
import struct

import pytest

from brainsurgeon.files import retire
from brainsurgeon.sessions.discovery import open_session
from building.exchange import NEW, OLD, TEMPORARY, discovered, replace, retire_old_file


def test_only_the_spliced_bytes_differ_in_the_new_file(path):
    """Bytes are inserted, replaced, removed and appended; all others are copied."""
    splices = [(0, 0, b"("), (5, 5, b"++"), (10, 20, b""), (len(OLD) - 1, len(OLD), b"!")]
    with open_session(discovered(path)) as session:
        retire_old_file(session, replace(session, splices))

    assert path.read_bytes() == b"(" + OLD[:5] + b"++" + OLD[5:10] + OLD[20:-1] + b"!"
    assert [child.name for child in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC, errno.EDQUOT])
def test_disk_error_while_copying_leaves_the_session_unchanged(path, monkeypatch, error):
    """The error is raised, the session stays, and no temporary file is left."""

    def failing(*_):
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr(os, "write", failing)
    with (
        open_session(discovered(path)) as session,
        pytest.raises(OSError, match=os.strerror(error)),
    ):
        replace(session)

    assert path.read_bytes() == OLD
    assert [child.name for child in path.parent.iterdir()] == [path.name]


def test_existing_temporary_name_is_not_written_through(session, path):
    """A link under the temporary name raises FileExistsError, and its target stays."""
    beside = path.with_name("precious")
    beside.write_bytes(b"precious")
    os.symlink(beside, path.with_name(TEMPORARY))

    with pytest.raises(FileExistsError):
        replace(session)
    assert beside.read_bytes() == b"precious"
    assert path.read_bytes() == OLD


@pytest.mark.parametrize("mode", [0o600, 0o644, 0o660, 0o400])
def test_mode_times_and_owner_are_preserved(path, mode):
    """The new file has the old one's mode, owner, and times to the nanosecond."""
    os.chmod(path, mode)
    before = path.stat()
    with open_session(discovered(path)) as session:
        exchanged = replace(session)
        retire_old_file(session, exchanged)
    after = path.stat()

    assert after.st_mode == before.st_mode
    assert (after.st_atime_ns, after.st_mtime_ns) == (before.st_atime_ns, before.st_mtime_ns)
    assert (after.st_uid, after.st_gid) == (before.st_uid, before.st_gid)


# Other users cannot rewrite a file of another user, so they have no owner to preserve.
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_owner_is_preserved_when_root_rewrites(path):
    """A file of another user keeps its user and group after root rewrote it."""
    os.chown(path, 65534, 65533)
    with open_session(discovered(path)) as session:
        replace(session)

    assert (path.stat().st_uid, path.stat().st_gid) == (65534, 65533)


def test_temporary_file_is_private_from_its_creation(session, path, monkeypatch):
    """Until it gets the session's mode, only its owner can read the temporary file."""
    modes = []
    write = retire.write

    def writing(descriptor, data):
        modes.append(os.fstat(descriptor).st_mode & 0o777)
        write(descriptor, data)

    monkeypatch.setattr(retire, "write", writing)
    old = os.umask(0)
    try:
        replace(session)
    finally:
        os.umask(old)

    assert set(modes) == {0o600}


ACCESS_LIST = struct.pack("<I", 2) + b"".join(
    struct.pack("<HHI", tag, permissions, who)
    for tag, permissions, who in [
        (1, 6, 0xFFFFFFFF), (2, 4, 12345), (4, 0, 0xFFFFFFFF), (16, 4, 0xFFFFFFFF),
        (32, 0, 0xFFFFFFFF),
    ]
)  # fmt: skip


def test_access_list_of_the_directory_is_not_inherited(path):
    """The new file has no access list if the old one had none: nobody else may read it."""
    path.chmod(0o640)
    try:
        os.setxattr(path.parent, "system.posix_acl_default", ACCESS_LIST)
    except OSError:
        # Where no list can be set there is none to inherit; most filesystems of Linux keep them.
        pytest.skip("this filesystem keeps no such attributes")
    with open_session(discovered(path)) as session:
        replace(session)

    assert "system.posix_acl_access" not in os.listxattr(path)
    assert path.stat().st_mode & 0o777 == 0o640


def test_extended_attributes_and_access_lists_are_preserved(path):
    """The new file has the user attributes and the access list of the old one."""
    try:
        os.setxattr(path, "user.note", b"mine\0")
        os.setxattr(path, "system.posix_acl_access", ACCESS_LIST)
    except OSError:
        # Where none can be set there are none to keep; most filesystems of Linux keep them.
        pytest.skip("this filesystem keeps no such attributes")
    before = {name: os.getxattr(path, name) for name in os.listxattr(path)}
    with open_session(discovered(path)) as session:
        replace(session)

    assert {name: os.getxattr(path, name) for name in os.listxattr(path)} == before
    assert "system.posix_acl_access" in before


def test_hole_of_a_sparse_session_stays_a_hole(path):
    """A sparse session takes no more room on the disk after a rewrite, and reads the same."""
    with open(path, "r+b") as handle:
        handle.truncate(len(OLD) + (64 << 20))
        handle.seek(0, os.SEEK_END)
        handle.write(b"\n{}\n")
        handle.flush()
        os.fsync(handle.fileno())
    before = path.stat()
    with open_session(discovered(path)) as session:
        retire_old_file(session, replace(session))
    after = path.stat()
    with open(path, "rb") as handle:
        head = handle.read(len(NEW))
        hole = handle.read(64 << 20)
        rest = handle.read()

    assert before.st_blocks * 512 < 1 << 20
    assert after.st_blocks <= before.st_blocks + 16
    assert (head, rest) == (NEW, b"\n{}\n")
    assert not hole.strip(b"\0")
