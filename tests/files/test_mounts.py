"""Session files that a container has mounted on their own."""

import subprocess
import time

import pytest

from brainsurgeon.files import leases
from brainsurgeon.operations import scan as scanning
from building.skip_reasons import skip_reasons
from building.world import put_session


@pytest.fixture
def path(world, conversation):
    """Write a session with a value to extract, in a directory whose name mount tables escape."""
    world.directory = world.root / "odd \\ name\n" / "sessions"
    world.directory.mkdir(parents=True)
    return put_session(world, conversation)


@pytest.fixture
def container(tmp_path, path):
    """Yield a function that bind-mounts a path in a namespace of its own; return its process."""
    started = []

    def start(source, target):
        words = 'mount --bind "$1" "$2" && echo mounted && exec sleep 600'
        process = subprocess.Popen(
            ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", words, "sh",
             str(source), str(target)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        started.append(process)
        if process.stdout.readline() != b"mounted\n":
            pytest.skip("no user namespaces here")  # nothing else hides a file from others so
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture(autouse=True)
def fresh_mounts(monkeypatch):
    """Read the mounts each time: a test mounts and unmounts within the second."""
    monkeypatch.setattr(leases, "FRESH", 0.0)
    # A test that froze its clock may have left mounts that were read in the far future.
    monkeypatch.setattr(leases, "_cache", leases._MountCache())


def test_session_mounted_into_a_container_is_skipped_while_it_runs(
    world, path, conversation, container, tmp_path
):
    """The container would keep the old file, so the session is pruned only after it ends."""
    inside = tmp_path / "inside.jsonl"
    inside.touch()
    process = container(path, inside)
    seen = skip_reasons(world)
    untouched = path.read_bytes()
    process.kill()
    process.communicate()
    deadline = time.monotonic() + 20
    while not (report := world.scan(keep_recent=0)).sessions_changed:
        assert time.monotonic() < deadline

    assert len(set(seen.values())) == 1
    assert "mount point" in seen["scan"]
    assert untouched == conversation.bytes()
    assert report.values_extracted == 1


def test_session_under_a_mount_of_another_file_is_skipped(world, path, container, tmp_path):
    """A session that is a mount point in another namespace is skipped."""
    other = tmp_path / "other.jsonl"
    other.write_text("{}\n")
    container(other, path)

    assert "mount point" in skip_reasons(world)["scan"]


def test_container_started_after_the_check_keeps_its_file(
    world, path, conversation, container, tmp_path, monkeypatch
):
    """Mounts are checked again before the exchange, which is then deferred."""
    monkeypatch.setattr(leases, "FRESH", 1.0)
    inside = tmp_path / "inside.jsonl"
    inside.touch()
    carry_out = scanning.apply

    def with_a_container(*arguments):
        container(path, inside)
        time.sleep(0.1)
        return carry_out(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(scanning, "apply", with_a_container)
        (result,) = world.scan(keep_recent=0).sessions

    assert result.outcome == "deferred"
    assert "mount point" in result.reason
    assert path.read_bytes() == conversation.bytes()
    assert world.leftovers() == []


def test_directory_mounted_into_a_container_is_no_obstacle(world, path, container, tmp_path):
    """A container that sees the directory sees the new file, and its openers break the lease."""
    inside = tmp_path / "inside"
    inside.mkdir()
    container(path.parent, inside)

    assert world.scan(keep_recent=0).sessions_changed == 1


def test_mounts_are_read_once_for_many_sessions(world, path, monkeypatch):
    """Five sessions pruned while the cached mounts are fresh read the mounts of processes once."""
    monkeypatch.setattr(leases, "FRESH", 60.0)
    monkeypatch.setattr(leases, "FRESHEST", 60.0)
    monkeypatch.setattr(leases, "_cache", leases._MountCache())
    reads = []
    read_mounts = leases._mounted_locations
    monkeypatch.setattr(leases, "_mounted_locations", lambda: reads.append(1) or read_mounts())
    for number in range(5):
        (path.parent / f"{number}.jsonl").write_bytes(path.read_bytes())
    world.scan(keep_recent=0)

    assert reads == [1]


def test_mounts_are_not_read_for_a_session_left_unchanged(world, path, monkeypatch):
    """Only a session from which values are extracted costs a look at the mounts of processes."""
    reads = []
    read_mounts = leases._mounted_locations
    monkeypatch.setattr(leases, "_mounted_locations", lambda: reads.append(1) or read_mounts())
    unchanged, reads_before = world.scan(keep_recent=100), list(reads)
    pruned = world.scan(keep_recent=0)

    assert (unchanged.files_scanned, unchanged.sessions_changed, reads_before) == (1, 0, [])
    assert (pruned.sessions_changed, bool(reads)) == (1, True)
