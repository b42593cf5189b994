"""Filesystems that grant leases which prove nothing."""

import os
import subprocess
import sys

import pytest

from brainsurgeon.files import leases
from brainsurgeon.operations.doctor import doctor
from brainsurgeon.operations.status import status
from building.processes import ROOT, WORKERS
from building.skip_reasons import skip_reasons
from building.world import file_states, put_session

# Others may not mount, and the file systems that are there anyway grant leases that hold.
pytestmark = pytest.mark.skipif(not ROOT, reason="mounting a file system of our own takes root")


@pytest.fixture
def other_side(world):
    """Mount the sessions on FUSE; yield the directory behind it."""
    back = world.base / "back"
    back.mkdir()
    serving = subprocess.Popen(
        [sys.executable, str(WORKERS / "passthrough.py"), str(back), str(world.root)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    if serving.stdout.readline() != b"mounted\n":
        serving.communicate()
        pytest.skip("mounting is not allowed here")  # only FUSE grants a lease that proves nothing
    world.directory.mkdir(parents=True)
    yield back
    world.close()
    subprocess.run(["umount", str(world.root)], check=True)
    serving.communicate(timeout=20)


@pytest.fixture
def path(world, conversation, other_side):
    """Return a session with a value to extract, as seen through FUSE."""
    return put_session(world, conversation)


def test_lease_on_fuse_is_granted_while_the_file_is_written(path, other_side, other_process):
    """The lease is granted and held while a process writes the file behind FUSE."""
    behind = other_side / "main" / "sessions" / path.name
    other_process.evaluate(
        f"globals().update(fd=os.open({str(behind)!r}, os.O_WRONLY | os.O_APPEND))"
    )
    descriptor = os.open(path, os.O_RDONLY)
    granted = leases.take(descriptor)
    other_process.evaluate("os.write(fd, b'{}\\n')")
    held = leases.held(descriptor)
    os.close(descriptor)

    assert (granted, held) == (True, True)


def test_session_on_fuse_is_skipped_with_one_reason(world, path, conversation):
    """A session on FUSE stays as it is; status and doctor name the root, with advice."""
    before = file_states(world.root)
    seen = skip_reasons(world)
    now = world.settings()
    (root,) = status(now, world.store, world.clock()).places.roots
    warnings = [
        finding for finding in doctor(now, world.store) if finding.what.startswith(str(world.root))
    ]

    assert set(seen.values()) == {leases.UNPROVEN.format("fuse")}
    assert root.protocol == "nothing: leases prove nothing on fuse"
    assert [(finding.level, "exclusive = true" in finding.advice) for finding in warnings] == [
        ("warning", True)
    ]
    assert path.read_bytes() == conversation.bytes()
    assert file_states(world.root) == before


def test_exclusive_root_on_fuse_is_pruned_and_restored(world, path, conversation):
    """On FUSE, values are extracted and restored below an `exclusive` root."""
    roots = [{"path": str(world.root), "exclusive": True}]
    report = world.scan(keep_recent=0, roots=roots)
    lean = path.read_bytes()
    (root,) = status(world.settings(roots=roots), world.store, world.clock()).places.roots
    world.restore_all(pristine=True, roots=roots)

    assert report.sessions_changed == 1
    assert lean != conversation.bytes()
    assert path.read_bytes() == conversation.bytes()
    assert root.protocol == "leases"
    assert world.leftovers() == []
