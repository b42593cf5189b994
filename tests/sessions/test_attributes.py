"""What a new file could not be given of the old one is known before anything is stored."""

import fcntl
import os
import struct

import pytest

from building.hindered import reasons
from building.processes import ROOT
from building.world import NOBODY

SET_FLAGS, NO_DUMP, APPEND_ONLY = 0x40086602, 0x40, 0x20
STRANGERS = 65533


@pytest.fixture
def path(world, conversation):
    conversation.turn("x" * 4000)
    return world.put("s.jsonl", conversation.bytes())


def flag(path, flags):
    descriptor = os.open(path, os.O_RDONLY)
    try:
        fcntl.ioctl(descriptor, SET_FLAGS, struct.pack("l", flags))
    except OSError:
        pytest.skip("this filesystem keeps no such attributes")  # so none can be lost
    finally:
        os.close(descriptor)


# Only root can make a file whose group its owner is no member of.
@pytest.mark.skipif(not ROOT, reason="only root can give files away")
def test_a_group_that_cannot_be_given_is_known_before(ordinary_world, conversation):
    """A session of a group that its owner is no member of is skipped; everybody says so."""
    conversation.turn("x" * 4000)
    path = ordinary_world.put("s.jsonl", conversation.bytes())
    os.seteuid(0)
    os.chown(path, NOBODY, STRANGERS)
    groups = os.getgroups()
    os.setgroups([])
    os.seteuid(NOBODY)
    try:
        told = reasons(ordinary_world)
        os.seteuid(0)
        os.chown(path, NOBODY, NOBODY)
        os.seteuid(NOBODY)
        done = ordinary_world.scan(keep_recent=0)
    finally:
        os.seteuid(0)
        os.setgroups(groups)
        os.seteuid(NOBODY)

    assert set(told.values()) == {
        f"its group ({STRANGERS}) cannot be given to a new file by this user"
    }
    assert done.sessions_changed == 1


# Only root can make a file whose group its owner is no member of.
@pytest.mark.skipif(not ROOT, reason="only root can give files away")
def test_a_group_that_the_directory_gives_is_no_hindrance(ordinary_world, conversation):
    """In a directory that hands its group on (setgid) a new file has the group by itself."""
    conversation.turn("x" * 4000)
    path = ordinary_world.put("s.jsonl", conversation.bytes())
    os.seteuid(0)
    for one in (path, path.parent):
        os.chown(one, NOBODY, STRANGERS)
    os.chmod(path.parent, 0o2755)
    os.seteuid(NOBODY)
    done = ordinary_world.scan(keep_recent=0)

    assert done.sessions_changed == 1
    assert path.stat().st_gid == STRANGERS


# Only root can set what is the system's own; what others set is proven beside this.
@pytest.mark.skipif(not ROOT, reason="only root can set such attributes")
@pytest.mark.parametrize("name", ["security.note", "trusted.note"])
def test_an_attribute_that_would_be_lost_is_known_before(world, path, name):
    """Attributes of the system that are this file's own are no longer dropped in silence."""
    try:
        os.setxattr(path, name, b"mine")
    except OSError:
        # Only some filesystems keep attributes; where there are none, none can be lost.
        pytest.skip("this filesystem keeps no such attributes")

    assert set(reasons(world).values()) == {f"its attribute {name} would be lost"}
    assert os.getxattr(path, name) == b"mine"


def test_a_flag_that_would_be_lost_is_known_before(world, path):
    """A flag that the directory does not hand on would not stand on a new file."""
    flag(path, NO_DUMP)
    told = reasons(world)
    flag(path, 0)

    assert set(told.values()) == {"a flag of the file (chattr) would be lost"}


# Only root can set what is the system's own; what others set is proven beside this.
@pytest.mark.skipif(not ROOT, reason="only root can set such attributes")
def test_a_file_that_only_grows_is_left_alone(world, path):
    """An append-only file keeps its name: it is skipped instead of failing at every run."""
    flag(path, APPEND_ONLY)
    try:
        told = reasons(world)
    finally:
        flag(path, 0)

    assert set(told.values()) == {"the file is marked immutable or append-only (chattr)"}
