"""Leases and the exchange of names: the facts about the kernel that rewriting relies on."""

import errno
import fcntl
import os
import signal

import pytest

from brainsurgeon.files import leases
from building.processes import OtherProcess, wait_until

# Without leases nothing is ever exchanged: what is proven here does not exist there.
pytestmark = pytest.mark.skipif(not hasattr(fcntl, "F_SETLEASE"), reason="no leases here")


@pytest.fixture(autouse=True)
def ignored_sigio():
    """Ignore the default signal of a broken lease, which would kill this process."""
    before = signal.signal(signal.SIGIO, signal.SIG_IGN)
    yield
    signal.signal(signal.SIGIO, before)


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"one\n")
    return str(path)


@pytest.fixture
def descriptor(path):
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    yield descriptor
    os.close(descriptor)


def test_read_only_descriptor_takes_and_drops_a_write_lease(descriptor):
    """A descriptor opened for reading alone takes a write lease, holds it and drops it."""
    granted = leases.take(descriptor)
    held = leases.held(descriptor)
    leases.drop(descriptor)

    assert granted
    assert held
    assert not leases.held(descriptor)


@pytest.mark.parametrize("flags", ["os.O_RDONLY", "os.O_WRONLY | os.O_APPEND", "os.O_RDWR"])
def test_lease_is_refused_while_another_process_has_the_file_open(
    other_process, path, descriptor, flags
):
    """A lease is refused while the file is open with any flags, and granted after."""
    other = other_process.evaluate(f"os.open({path!r}, {flags})")
    refused = leases.take(descriptor)
    other_process.evaluate(f"os.close({other})")

    assert refused is False
    assert leases.take(descriptor) is True


def test_lease_is_refused_while_another_process_maps_the_file(other_process, path, descriptor):
    """A mapping refuses the lease even after its descriptor is closed."""
    other = other_process.evaluate(f"os.open({path!r}, os.O_RDWR)")
    other_process.evaluate(f"globals().update(mapped=mmap.mmap({other}, 4))")
    other_process.evaluate(f"os.close({other})")
    refused = leases.take(descriptor)
    other_process.evaluate("mapped.close()")

    assert refused is False
    assert leases.take(descriptor) is True


def test_lease_is_refused_while_this_process_has_a_second_descriptor(path, descriptor):
    """A second descriptor of the same process refuses the lease like any other."""
    second = os.open(path, os.O_RDONLY)
    refused = leases.take(descriptor)
    os.close(second)

    assert refused is False
    assert leases.take(descriptor) is True


@pytest.mark.parametrize(
    "flags", ["os.O_RDONLY", "os.O_WRONLY | os.O_APPEND", "os.O_WRONLY | os.O_TRUNC"]
)
def test_opener_blocks_until_the_lease_is_dropped(other_process, path, descriptor, flags):
    """An opener breaks the lease, waits without an error or effect, and returns after the drop."""
    leases.take(descriptor)
    other_process.send(f"os.open({path!r}, {flags})")
    wait_until(lambda: not leases.held(descriptor))
    blocked = not other_process.answers_within(0.1)
    size_while_waiting = os.fstat(descriptor).st_size
    leases.drop(descriptor)
    opened = other_process.receive()

    assert blocked
    assert size_while_waiting == 4
    assert opened > 2


def test_waiting_opener_refuses_a_new_lease(other_process, path, descriptor):
    """A waiting open counts at once, so no lease is granted between the drop and its return."""
    leases.take(descriptor)
    other_process.send(f"os.open({path!r}, os.O_WRONLY | os.O_APPEND)")
    wait_until(lambda: not leases.held(descriptor))
    leases.drop(descriptor)
    again = leases.take(descriptor)
    other = other_process.receive()
    other_process.evaluate(f"os.close({other})")

    assert again is False
    assert leases.take(descriptor) is True


def test_non_blocking_open_of_a_leased_file_fails(other_process, path, descriptor):
    """A non-blocking open of a leased file fails with EWOULDBLOCK."""
    leases.take(descriptor)

    with pytest.raises(BlockingIOError):
        other_process.evaluate(f"os.open({path!r}, os.O_RDONLY | os.O_NONBLOCK)")


@pytest.mark.parametrize(
    "call",
    [
        "os.stat({path!r}).st_size",
        "os.utime({path!r})",
        "os.chmod({path!r}, 0o600)",
        "os.link({path!r}, {path!r} + '.link')",
        "os.rename({path!r}, {path!r} + '.moved')",
        "os.unlink({path!r})",
    ],
)
def test_lease_blocks_no_other_call_than_open(other_process, path, descriptor, call):
    """Names and attributes change under a lease, which is why they are compared under it."""
    leases.take(descriptor)
    other_process.evaluate(call.format(path=path))

    assert leases.held(descriptor)


def test_lease_follows_a_renamed_file(other_process, path, descriptor):
    """A lease belongs to the inode: an opener of the new name waits as well."""
    leases.take(descriptor)
    os.rename(path, path + ".moved")
    other_process.send(f"os.open({path + '.moved'!r}, os.O_RDONLY)")
    wait_until(lambda: not leases.held(descriptor))
    blocked = not other_process.answers_within(0.05)
    leases.drop(descriptor)

    assert blocked
    assert other_process.receive() > 2


HOLD = (
    "globals().update(leases=__import__('brainsurgeon.files.leases', fromlist=['x']))",
    "globals().update(fd=os.open({path!r}, os.O_RDONLY))",
)


def test_holder_survives_when_its_lease_is_broken(other_process, path):
    """The signal asked for a broken lease is ignored by default."""
    holder = OtherProcess(*(step.format(path=path) for step in HOLD))
    holder.evaluate("leases.take(fd)")
    other_process.send(f"os.open({path!r}, os.O_RDONLY)")
    wait_until(lambda: holder.evaluate("leases.held(fd)") is False)
    number = holder.evaluate("fcntl.fcntl(fd, fcntl.F_GETSIG)")
    holder.evaluate("leases.drop(fd)")
    opened = other_process.receive()
    holder.kill()

    assert number == signal.SIGURG
    assert opened > 2


def test_default_signal_of_a_broken_lease_kills_the_holder(other_process, path):
    """Without F_SETSIG the kernel sends SIGIO, which kills."""
    holder = OtherProcess(*(step.format(path=path) for step in HOLD))
    holder.evaluate("fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)")
    other_process.evaluate(f"os.open({path!r}, os.O_RDONLY)")
    died_of = -holder.process.wait(20)
    holder.kill()

    assert died_of == signal.SIGIO


def test_opener_goes_on_when_the_holder_is_killed(other_process, path):
    """Killing the holder of a lease lets a waiting opener through at once."""
    holder = OtherProcess(*(step.format(path=path) for step in HOLD))
    holder.evaluate("leases.take(fd)")
    other_process.send(f"os.open({path!r}, os.O_RDONLY)")
    wait_until(lambda: holder.evaluate("leases.held(fd)") is False)
    blocked = not other_process.answers_within(0.05)
    holder.kill()

    assert blocked
    assert other_process.receive() > 2


# Only root can act as two users; the tests above cover the owner.
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_lease_on_the_file_of_another_user_is_unsupported(path):
    """A user who does not own the file gets LeaseUnsupportedError, not a refusal."""
    os.chmod(path, 0o666)
    other = OtherProcess(*(step.format(path=path) for step in HOLD), "os.setuid(65534)")
    with pytest.raises(OSError, match="denied") as refused:
        other.evaluate("leases.take(fd)")
    other.kill()

    assert refused.value.errno == errno.EACCES
    assert refused.value.filename == "LeaseUnsupportedError"


def test_lease_on_a_directory_is_unsupported_and_drop_does_nothing(tmp_path):
    """Taking a lease on a directory raises LeaseUnsupportedError; dropping it does nothing."""
    directory = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)

    with pytest.raises(leases.LeaseUnsupportedError):
        leases.take(directory)
    leases.drop(directory)
    os.close(directory)


@pytest.fixture
def pair(tmp_path):
    (tmp_path / "one").write_text("1")
    (tmp_path / "two").write_text("2")
    descriptor = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    yield tmp_path, descriptor
    os.close(descriptor)


def test_exchange_swaps_two_names(pair):
    """After the exchange, each name refers to the inode of the other."""
    directory, descriptor = pair
    inodes = (directory / "one").stat().st_ino, (directory / "two").stat().st_ino
    leases.exchange(descriptor, "one", "two")

    assert (directory / "one").read_text() == "2"
    assert (directory / "two").read_text() == "1"
    assert ((directory / "two").stat().st_ino, (directory / "one").stat().st_ino) == inodes


@pytest.mark.parametrize("missing", ["one", "two"])
def test_exchange_never_recreates_a_deleted_name(pair, missing):
    """If either name is missing, the exchange raises FileNotFoundError and changes nothing."""
    directory, descriptor = pair
    (directory / missing).unlink()
    before = {item.name: item.read_text() for item in directory.iterdir() if item.is_file()}
    with pytest.raises(FileNotFoundError):
        leases.exchange(descriptor, "one", "two")

    after = {item.name: item.read_text() for item in directory.iterdir() if item.is_file()}

    assert after == before


def test_exchange_accepts_names_that_are_not_utf8(tmp_path):
    """A name that is not UTF-8 is exchanged like any other."""
    odd = os.fsdecode(b"\xff\n\x1b[31m.jsonl")
    (tmp_path / "one").write_text("1")
    (tmp_path / odd).write_text("2")
    descriptor = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    leases.exchange(descriptor, "one", odd)
    os.close(descriptor)

    assert (tmp_path / odd).read_text() == "1"
