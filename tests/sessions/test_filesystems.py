"""Filesystems that grant a lease and mean nothing by it."""

import os
import subprocess
import sys

import pytest

from brainsurgeon.operations.doctor import doctor
from brainsurgeon.operations.status import status
from brainsurgeon.sessions import leases
from building.hindered import reasons
from building.processes import ROOT, WORKERS
from building.world import state

# Others may not mount, and the file systems that are there anyway grant leases that hold.
pytestmark = pytest.mark.skipif(not ROOT, reason="mounting a file system of our own takes root")


@pytest.fixture
def other_side(world):
    """Put the sessions on FUSE; give the directory that its other side writes into."""
    back = world.base / "back"
    back.mkdir()
    serving = subprocess.Popen(
        [sys.executable, str(WORKERS / "passthrough.py"), str(back), str(world.root)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    if serving.stdout.readline() != b"mounted\n":
        # Root in most containers may not mount; nothing else grants a lease that proves nothing.
        serving.communicate()
        pytest.skip("mounting is not allowed here")
    world.directory.mkdir(parents=True)
    yield back
    world.close()
    subprocess.run(["umount", str(world.root)], check=True)
    serving.communicate(timeout=20)


@pytest.fixture
def path(world, conversation, other_side):
    """Give a session with something to cut, as we see it."""
    conversation.turn("x" * 4000)
    return world.put("s.jsonl", conversation.bytes())


def test_a_lease_on_fuse_does_not_see_the_other_side(path, other_side, puppet):
    """The reason for the list: the lease is granted while somebody writes the very file."""
    behind = other_side / "main" / "sessions" / path.name
    puppet.ask(f"globals().update(fd=os.open({str(behind)!r}, os.O_WRONLY | os.O_APPEND))")
    descriptor = os.open(path, os.O_RDONLY)
    granted = leases.take(descriptor)
    puppet.ask("os.write(fd, b'{}\\n')")
    still = leases.held(descriptor)
    os.close(descriptor)

    assert (granted, still) == (True, True)


def test_where_a_lease_proves_nothing_nothing_is_touched(world, path, conversation):
    """On FUSE a session is skipped, everywhere with the same reason, and stays as it is."""
    before = state(world.root)
    told = reasons(world)
    now = world.settings()
    (root,) = status(now, world.store, world.clock()).roots
    warned = [one for one in doctor(now, world.store) if one.what.startswith(str(world.root))]

    assert set(told.values()) == {leases.UNPROVEN.format("fuse")}
    assert root.protocol == "nothing: leases prove nothing on fuse"
    assert [(one.level, "exclusive = true" in one.advice) for one in warned] == [("warning", True)]
    assert path.read_bytes() == conversation.bytes()
    assert state(world.root) == before


def test_an_exclusive_root_is_worked_on(world, path, conversation):
    """Where the root says that nobody else writes there, values go and come back."""
    roots = [{"path": str(world.root), "exclusive": True}]
    done = world.scan(keep_recent=0, roots=roots)
    lean = path.read_bytes()
    (root,) = status(world.settings(roots=roots), world.store, world.clock()).roots
    world.restore_all(pristine=True, roots=roots)

    assert done.sessions_changed == 1
    assert lean != conversation.bytes()
    assert path.read_bytes() == conversation.bytes()
    assert root.protocol == "leases"
    assert world.leftovers() == []
