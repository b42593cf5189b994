"""A session file that a container was given on its own."""

import subprocess
import time

import pytest

from brainsurgeon.operations import scan as scanning
from brainsurgeon.sessions import leases
from building.hindered import reasons


@pytest.fixture
def path(world, conversation):
    """Give a session with something to cut, in a directory with an awkward name."""
    world.directory = world.root / "odd \\ name\n" / "sessions"
    world.directory.mkdir(parents=True)
    conversation.turn("x" * 4000)
    return world.put("s.jsonl", conversation.bytes())


@pytest.fixture
def container(tmp_path, path):
    """Mount a file over another in a namespace of its own; give who keeps it there."""
    started = []

    def start(source, target):
        words = 'mount --bind "$1" "$2" && echo mounted && exec sleep 600'
        one = subprocess.Popen(
            ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", words, "sh",
             str(source), str(target)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        started.append(one)
        if one.stdout.readline() != b"mounted\n":
            # Many kernels keep ordinary users from making one; nothing else hides a file so.
            pytest.skip("no user namespaces here")
        return one

    yield start
    for one in started:
        one.kill()
        one.communicate()


@pytest.fixture(autouse=True)
def look_each_time(monkeypatch):
    """Look around each time: a test mounts and unmounts within the second."""
    monkeypatch.setattr(leases, "FRESH", 0.0)


def test_a_file_that_a_container_was_given_is_left_alone(
    world, path, conversation, container, tmp_path
):
    """The container would go on with the old file for ever: skipped while it lives, then done."""
    inside = tmp_path / "inside.jsonl"
    inside.touch()
    one = container(path, inside)
    told = reasons(world)
    untouched = path.read_bytes()
    one.kill()
    one.communicate()
    deadline = time.monotonic() + 20
    while not (done := world.scan(keep_recent=0)).sessions_changed:
        assert time.monotonic() < deadline

    assert len(set(told.values())) == 1
    assert "mount point" in told["scan"]
    assert untouched == conversation.bytes()
    assert done.values_extracted == 1


def test_a_file_with_another_mounted_upon_it_is_left_alone(world, path, container, tmp_path):
    """An exchange would take away what somebody sees under this name in its own namespace."""
    other = tmp_path / "other.jsonl"
    other.write_text("{}\n")
    container(other, path)

    assert "mount point" in reasons(world)["scan"]


def test_a_container_started_after_the_look_keeps_its_file(
    world, path, conversation, container, tmp_path, monkeypatch
):
    """What was seen when the session was looked at is not believed any more at its exchange."""
    monkeypatch.setattr(leases, "FRESH", 1.0)
    inside = tmp_path / "inside.jsonl"
    inside.touch()
    carry_out = scanning.apply

    def meanwhile(*given):
        container(path, inside)
        time.sleep(0.1)
        return carry_out(*given)

    with monkeypatch.context() as late:
        late.setattr(scanning, "apply", meanwhile)
        (told,) = world.scan(keep_recent=0).sessions

    assert told.outcome == "deferred"
    assert "mount point" in told.reason
    assert path.read_bytes() == conversation.bytes()
    assert world.leftovers() == []


def test_a_directory_that_a_container_was_given_hinders_nothing(world, path, container, tmp_path):
    """Who sees the whole directory sees the new file under the name, and is seen by the lease."""
    inside = tmp_path / "inside"
    inside.mkdir()
    container(path.parent, inside)

    assert world.scan(keep_recent=0).sessions_changed == 1


def test_namespaces_are_looked_at_once_for_many_sessions(world, path, monkeypatch):
    """Within a second the same sight serves, so that a run does not read every process again."""
    monkeypatch.setattr(leases, "FRESH", 60.0)
    monkeypatch.setattr(leases, "FRESHEST", 60.0)
    monkeypatch.setattr(leases, "_cache", leases._MountCache())
    looked = []
    look = leases._mounted_places
    monkeypatch.setattr(leases, "_mounted_places", lambda: looked.append(1) or look())
    for number in range(5):
        (path.parent / f"{number}.jsonl").write_bytes(path.read_bytes())
    world.scan(keep_recent=0)

    assert looked == [1]


def test_no_process_is_looked_at_for_a_session_from_which_nothing_goes(world, path, monkeypatch):
    """A run over a session that is left as it is asks nobody what they have mounted."""
    looked = []
    look = leases._mounted_places
    monkeypatch.setattr(leases, "_mounted_places", lambda: looked.append(1) or look())
    left, told = world.scan(keep_recent=100), list(looked)
    cut = world.scan(keep_recent=0)

    assert (left.files_scanned, left.sessions_changed, told) == (1, 0, [])
    assert (cut.sessions_changed, bool(looked)) == (1, True)
