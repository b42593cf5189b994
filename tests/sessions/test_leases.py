"""The facts about this kernel that the protocol stands on, each shown with real processes."""

import errno
import fcntl
import os
import signal

import pytest

from brainsurgeon.sessions import leases
from building.processes import Puppet, wait_until

# Without leases nothing is ever exchanged: what is proven here does not exist there.
pytestmark = pytest.mark.skipif(not hasattr(fcntl, "F_SETLEASE"), reason="no leases here")


@pytest.fixture(autouse=True)
def survivor():
    """Let this process outlive a lease that would be broken by the wrong signal."""
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


def test_a_read_only_descriptor_can_hold_a_write_lease(descriptor):
    """A descriptor opened for reading alone takes a write lease, holds it, and gives it back."""
    taken = leases.take(descriptor)
    held = leases.held(descriptor)
    leases.drop(descriptor)

    assert taken
    assert held
    assert not leases.held(descriptor)


@pytest.mark.parametrize("flags", ["os.O_RDONLY", "os.O_WRONLY | os.O_APPEND", "os.O_RDWR"])
def test_no_lease_while_another_process_has_the_file_open(puppet, path, descriptor, flags):
    """A lease is refused while another process has the file open in any way, and only then."""
    other = puppet.ask(f"os.open({path!r}, {flags})")
    refused = leases.take(descriptor)
    puppet.ask(f"os.close({other})")

    assert refused is False
    assert leases.take(descriptor) is True


def test_no_lease_while_another_process_maps_the_file(puppet, path, descriptor):
    """A mapping refuses the lease even when no descriptor is left."""
    other = puppet.ask(f"os.open({path!r}, os.O_RDWR)")
    puppet.ask(f"globals().update(mapped=mmap.mmap({other}, 4))")
    puppet.ask(f"os.close({other})")
    refused = leases.take(descriptor)
    puppet.ask("mapped.close()")

    assert refused is False
    assert leases.take(descriptor) is True


def test_no_lease_while_this_process_has_a_second_descriptor(path, descriptor):
    """A second descriptor of our own defeats the lease as anybody's would."""
    second = os.open(path, os.O_RDONLY)
    refused = leases.take(descriptor)
    os.close(second)

    assert refused is False
    assert leases.take(descriptor) is True


@pytest.mark.parametrize(
    "flags", ["os.O_RDONLY", "os.O_WRONLY | os.O_APPEND", "os.O_WRONLY | os.O_TRUNC"]
)
def test_an_opener_waits_and_is_let_through(puppet, path, descriptor, flags):
    """An opener is seen by the holder, waits without an error, and goes on after the drop."""
    leases.take(descriptor)
    puppet.say(f"os.open({path!r}, {flags})")
    wait_until(lambda: not leases.held(descriptor))
    blocked = not puppet.answers_within(0.1)
    size_while_waiting = os.fstat(descriptor).st_size
    leases.drop(descriptor)
    opened = puppet.hear()

    assert blocked
    assert size_while_waiting == 4
    assert opened > 2


def test_a_queued_opener_already_refuses_a_new_lease(puppet, path, descriptor):
    """Between the drop and the opener's return no lease can slip in: the open counts already."""
    leases.take(descriptor)
    puppet.say(f"os.open({path!r}, os.O_WRONLY | os.O_APPEND)")
    wait_until(lambda: not leases.held(descriptor))
    leases.drop(descriptor)
    again = leases.take(descriptor)
    other = puppet.hear()
    puppet.ask(f"os.close({other})")

    assert again is False
    assert leases.take(descriptor) is True


def test_an_opener_that_will_not_wait_is_turned_away(puppet, path, descriptor):
    """A non-blocking open of a leased file fails with EWOULDBLOCK instead of waiting."""
    leases.take(descriptor)

    with pytest.raises(BlockingIOError):
        puppet.ask(f"os.open({path!r}, os.O_RDONLY | os.O_NONBLOCK)")


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
def test_a_lease_holds_up_nothing_but_opening(puppet, path, descriptor, call):
    """Names and attributes change under a lease: that is why they are compared under it."""
    leases.take(descriptor)
    puppet.ask(call.format(path=path))

    assert leases.held(descriptor)


def test_the_lease_stays_with_the_file_when_the_name_changes(puppet, path, descriptor):
    """The lease is the inode's: an opener under the new name waits as well."""
    leases.take(descriptor)
    os.rename(path, path + ".moved")
    puppet.say(f"os.open({path + '.moved'!r}, os.O_RDONLY)")
    wait_until(lambda: not leases.held(descriptor))
    blocked = not puppet.answers_within(0.05)
    leases.drop(descriptor)

    assert blocked
    assert puppet.hear() > 2


HOLD = (
    "globals().update(leases=__import__('brainsurgeon.sessions.leases', fromlist=['x']))",
    "globals().update(fd=os.open({path!r}, os.O_RDONLY))",
)


def test_the_holder_lives_when_its_lease_is_broken(puppet, path):
    """The signal for a broken lease is one that is ignored by default, so the holder lives on."""
    holder = Puppet(*(step.format(path=path) for step in HOLD))
    holder.ask("leases.take(fd)")
    puppet.say(f"os.open({path!r}, os.O_RDONLY)")
    wait_until(lambda: holder.ask("leases.held(fd)") is False)
    asked_for = holder.ask("fcntl.fcntl(fd, fcntl.F_GETSIG)")
    holder.ask("leases.drop(fd)")
    opened = puppet.hear()
    holder.kill()

    assert asked_for == signal.SIGURG
    assert opened > 2


def test_a_holder_that_asks_for_no_other_signal_is_killed(puppet, path):
    """The kernel's own choice of signal kills the holder: the reason for asking for another."""
    holder = Puppet(*(step.format(path=path) for step in HOLD))
    holder.ask("fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)")
    puppet.ask(f"os.open({path!r}, os.O_RDONLY)")
    died_of = -holder.process.wait(20)
    holder.kill()

    assert died_of == signal.SIGIO


def test_a_dead_holder_holds_nothing_up(puppet, path):
    """When the holder is killed, whoever waits for the file goes on at once."""
    holder = Puppet(*(step.format(path=path) for step in HOLD))
    holder.ask("leases.take(fd)")
    puppet.say(f"os.open({path!r}, os.O_RDONLY)")
    wait_until(lambda: holder.ask("leases.held(fd)") is False)
    blocked = not puppet.answers_within(0.05)
    holder.kill()

    assert blocked
    assert puppet.hear() > 2


# Only root can be two users at once; what the owner is told is proven for everybody.
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user_is_told_that_leases_do_not_work(path):
    """A user who does not own the file gets LeaseUnsupportedError, not a refusal to try again."""
    os.chmod(path, 0o666)
    other = Puppet(*(step.format(path=path) for step in HOLD), "os.setuid(65534)")
    with pytest.raises(OSError, match="denied") as refused:
        other.ask("leases.take(fd)")
    other.kill()

    assert refused.value.errno == errno.EACCES
    assert refused.value.filename == "LeaseUnsupportedError"


def test_what_cannot_be_leased_says_so_and_is_dropped_in_silence(tmp_path):
    """On what has no leases (a directory here) taking raises, and dropping does nothing."""
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


def test_the_exchange_swaps_two_names(pair):
    """After the exchange each name stands for the other's file, inode and all."""
    directory, descriptor = pair
    inodes = (directory / "one").stat().st_ino, (directory / "two").stat().st_ino
    leases.exchange(descriptor, "one", "two")

    assert (directory / "one").read_text() == "2"
    assert (directory / "two").read_text() == "1"
    assert ((directory / "two").stat().st_ino, (directory / "one").stat().st_ino) == inodes


@pytest.mark.parametrize("gone", ["one", "two"])
def test_the_exchange_never_brings_a_deleted_name_back(pair, gone):
    """With either name gone the exchange raises FileNotFoundError and changes nothing."""
    directory, descriptor = pair
    (directory / gone).unlink()
    before = {item.name: item.read_text() for item in directory.iterdir() if item.is_file()}
    with pytest.raises(FileNotFoundError):
        leases.exchange(descriptor, "one", "two")

    after = {item.name: item.read_text() for item in directory.iterdir() if item.is_file()}

    assert after == before


def test_the_exchange_takes_names_of_any_bytes(tmp_path):
    """A name that is not UTF-8 is exchanged like any other."""
    odd = os.fsdecode(b"\xff\n\x1b[31m.jsonl")
    (tmp_path / "one").write_text("1")
    (tmp_path / odd).write_text("2")
    descriptor = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    leases.exchange(descriptor, "one", odd)
    os.close(descriptor)

    assert (tmp_path / odd).read_text() == "1"
