"""Groups, attributes and flags that a new file cannot get: known before anything is stored."""

import fcntl
import os
import struct

import pytest

from building.processes import ROOT
from building.skip_reasons import skip_reasons
from building.world import NOBODY, put_session

GET_FLAGS, SET_FLAGS = 0x80086601, 0x40086602
NO_DUMP, APPEND_ONLY = 0x40, 0x20
STRANGERS = 65533


@pytest.fixture
def path(world, conversation):
    return put_session(world, conversation)


def set_flags(path, flags):
    descriptor = os.open(path, os.O_RDONLY)
    try:
        # The other flags stay: without its own ones, ext4 would have to convert the file.
        present = struct.unpack("l", fcntl.ioctl(descriptor, GET_FLAGS, bytes(8)))[0]
        wanted = present & ~(NO_DUMP | APPEND_ONLY) | flags
        fcntl.ioctl(descriptor, SET_FLAGS, struct.pack("l", wanted))
    except OSError:
        pytest.skip("this filesystem keeps no such attributes")  # so none can be lost
    finally:
        os.close(descriptor)


# Only root can make a file whose group its owner is no member of.
@pytest.mark.skipif(not ROOT, reason="only root can give files away")
def test_session_whose_group_the_user_cannot_set_is_skipped(unprivileged_world, conversation):
    """A session is skipped, for one reason in every command, if its owner is not in its group."""
    path = put_session(unprivileged_world, conversation)
    os.seteuid(0)
    os.chown(path, NOBODY, STRANGERS)
    groups = os.getgroups()
    os.setgroups([])
    os.seteuid(NOBODY)
    try:
        seen = skip_reasons(unprivileged_world)
        os.seteuid(0)
        os.chown(path, NOBODY, NOBODY)
        os.seteuid(NOBODY)
        report = unprivileged_world.scan(keep_recent=0)
    finally:
        os.seteuid(0)
        os.setgroups(groups)
        os.seteuid(NOBODY)

    assert set(seen.values()) == {
        f"this user cannot give the file's group ({STRANGERS}) to a new file"
    }
    assert report.sessions_changed == 1


# Only root can make a file whose group its owner is no member of.
@pytest.mark.skipif(not ROOT, reason="only root can give files away")
def test_group_inherited_from_a_setgid_directory_is_no_obstacle(unprivileged_world, conversation):
    """A setgid directory gives the new file its group, so the session is pruned."""
    path = put_session(unprivileged_world, conversation)
    os.seteuid(0)
    for target in (path, path.parent):
        os.chown(target, NOBODY, STRANGERS)
    os.chmod(path.parent, 0o2755)
    os.seteuid(NOBODY)
    report = unprivileged_world.scan(keep_recent=0)

    assert report.sessions_changed == 1
    assert path.stat().st_gid == STRANGERS


# Only root can set what is the system's own; what others set is proven beside this.
@pytest.mark.skipif(not ROOT, reason="only root can set such attributes")
@pytest.mark.parametrize("name", ["security.note", "trusted.note"])
def test_session_with_a_system_attribute_is_skipped(world, path, name):
    """A session is skipped, and keeps its attribute, if a new file cannot get that attribute."""
    try:
        os.setxattr(path, name, b"mine")
    except OSError:
        pytest.skip("this filesystem keeps no such attributes")  # so none can be lost

    assert set(skip_reasons(world).values()) == {f"its attribute {name} would be lost"}
    assert os.getxattr(path, name) == b"mine"


def test_session_with_a_chattr_flag_is_skipped(world, path):
    """A session is skipped if its chattr flag is not inherited from its directory."""
    set_flags(path, NO_DUMP)
    seen = skip_reasons(world)
    set_flags(path, 0)

    assert set(seen.values()) == {"a flag of the file (chattr) would be lost"}


# Only root can set what is the system's own; what others set is proven beside this.
@pytest.mark.skipif(not ROOT, reason="only root can set such attributes")
def test_append_only_session_is_skipped(world, path):
    """An append-only file cannot be renamed, so it is skipped instead of failing in every run."""
    set_flags(path, APPEND_ONLY)
    try:
        seen = skip_reasons(world)
    finally:
        set_flags(path, 0)

    assert set(seen.values()) == {"the file is marked immutable or append-only (chattr)"}
