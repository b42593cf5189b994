"""The one place that replaces a session file: what it refuses, what it keeps, what it never loses.

The races are forced: another process is sent into the window between the last comparison and the
exchange of the names, where the lease blocks it, and is let through afterwards.
"""

import os
import struct
import time

import pytest

from brainsurgeon.model import Found
from brainsurgeon.operations import recover
from brainsurgeon.operations.recover import waiting
from brainsurgeon.sessions import filling, leases, replacing, settling
from brainsurgeon.sessions.discover import Root, discover
from brainsurgeon.sessions.reading import Refused, open_session, writable
from brainsurgeon.store import extractions, journal
from conftest import dump
from workers.puppet import wait_until

TEMPORARY = ".brainsurgeon-0123456789abcdef.tmp"
NAME = "session.jsonl"
VALUE = b"v" * 3000
STUB = b"[[extracted-2]]"
OLD = b'{"id":1}\n{"id":2,"value":"' + VALUE + b'"}\n{"id":3}\n'
NEW = OLD.replace(VALUE, STUB)
SPLICES = [(OLD.index(VALUE), OLD.index(VALUE) + len(VALUE), STUB)]
LATE = b'{"id":4,"late":true}\n'
APPEND = "os.O_WRONLY | os.O_CREAT | os.O_APPEND"
REWRITE = "os.O_WRONLY | os.O_CREAT | os.O_TRUNC"
A_DAY = 86_400.0


@pytest.fixture
def path(tmp_path):
    """Give a session file in a directory of its own."""
    directory = tmp_path / "sessions"
    directory.mkdir()
    path = directory / NAME
    path.write_bytes(OLD)
    os.utime(path, ns=(1_700_000_000_123_456_789, 1_700_000_100_987_654_321))
    return path


@pytest.fixture
def session(path):
    """Give the session, opened once."""
    with open_session(found_at(path)) as opened:
        yield opened


@pytest.fixture
def unleased(monkeypatch):
    """Take leases away, as other systems and network filesystems do."""

    def take(descriptor):
        raise leases.LeaseUnsupportedError(22, "no leases here")

    monkeypatch.setattr(leases, "take", take)


def found_at(path):
    """Find the session as the walk does."""
    return next(one for one in discover([Root(str(path.parent))]) if isinstance(one, Found))


def replace(session, splices=SPLICES, gate=lambda: None, quiet_for=0.0, filled=lambda *_: None):
    """Replace the session's content."""
    return replacing.replace(session, TEMPORARY, splices, gate, quiet_for, filled)


def settle(session, done, patience=0.0):
    """Remove the old file as the end of a command does."""
    return settling.settle(
        session.directory, NAME, done.temporary, ends=done.ends, mate=done.fingerprint.inode,
        deadline=time.monotonic() + patience, leased=session.descriptor,
    )  # fmt: skip


def names(path):
    """Name what stands beside the session, the session included."""
    return sorted(os.listdir(path.parent))


class Race:
    """What happens right before and right after the names are exchanged for the first time."""

    def __init__(self, monkeypatch):
        self.before, self.after = (lambda: None), (lambda: None)
        self.exchanges = 0
        self.leased = []
        self._exchange, self._take = leases.exchange, leases.take
        monkeypatch.setattr(leases, "exchange", self._exchanging)
        monkeypatch.setattr(leases, "take", self._taking)

    def _exchanging(self, *names):
        self.exchanges += 1
        if self.exchanges > 1:
            self._exchange(*names)
            return
        self.before()
        self._exchange(*names)
        self.after()

    def _taking(self, descriptor):
        self.leased.append(descriptor)
        return self._take(descriptor)

    def opens(self, puppet, descriptor, path, flags, *steps):
        """Send a puppet into an open that the lease on `descriptor` blocks."""
        puppet.say(f"globals().update(fd=os.open({str(path)!r}, {flags}, 0o600))", *steps)
        wait_until(lambda: not leases.held(descriptor))


@pytest.fixture
def race(monkeypatch):
    """Give the window between the last comparison and the exchange."""
    return Race(monkeypatch)


@pytest.fixture
def patient(monkeypatch):
    """Let a late opener take its time, so that a busy machine changes nothing."""
    monkeypatch.setattr(replacing, "WAIT_FOR_CLOSING", 20.0)


@pytest.fixture
def impatient(monkeypatch):
    """Give a late opener 50 ms to close the file."""
    monkeypatch.setattr(replacing, "WAIT_FOR_CLOSING", 0.05)


def test_the_new_content_stands_under_the_name_and_the_old_file_waits_beside_it(session, path):
    """The spliced content takes the name in one step; the old file stays until it settles."""
    inode = path.stat().st_ino
    done = replace(session)
    beside = path.with_name(TEMPORARY)

    assert path.read_bytes() == NEW
    assert (beside.read_bytes(), beside.stat().st_ino) == (OLD, inode)
    assert settle(session, done) == 0
    assert names(path) == [NAME]
    assert path.read_bytes() == NEW
    assert done.fingerprint.size == len(NEW)


def test_several_splices_at_both_ends_and_without_bytes_land_where_they_belong(session, path):
    """Splices may touch the first and the last byte, insert without removing, and remove all."""
    replace(session, [(0, 1, b"("), (5, 5, b"++"), (10, 20, b""), (len(OLD) - 1, len(OLD), b"!")])

    assert path.read_bytes() == b"(" + OLD[1:5] + b"++" + OLD[5:10] + OLD[20:-1] + b"!"


def append(path, data):
    """Append as an agent does."""
    with open(path, "ab") as handle:
        handle.write(data)


def rewrite(path, data):
    """Rewrite in place, with the modification time put back."""
    before = os.stat(path)
    with open(path, "r+b") as handle:
        handle.write(data)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def swap(path, data):
    """Replace by rename, with size and times of the old file."""
    before = os.stat(path)
    fresh = str(path) + ".fresh"
    with open(fresh, "wb") as handle:
        handle.write(data)
    os.utime(fresh, ns=(before.st_atime_ns, before.st_mtime_ns))
    os.rename(fresh, path)


def turn_into_link(path):
    """Put a symbolic link to the very file in its place."""
    moved = str(path) + ".moved"
    os.rename(path, moved)
    os.symlink(moved, path)


CHANGES = {
    "grew": (lambda path: append(path, b"{}\n"), "the file changed meanwhile"),
    "shrank": (lambda path: os.truncate(path, 20), "the file changed meanwhile"),
    "rewritten in place": (lambda path: rewrite(path, OLD), "the file changed meanwhile"),
    "touched": (os.utime, "the file changed meanwhile"),
    "mode changed": (lambda path: os.chmod(path, 0o604), "the file changed meanwhile"),
    "linked": (lambda path: os.link(path, str(path) + ".x"), "the file changed meanwhile"),
    "replaced": (lambda path: swap(path, OLD), "the file was replaced meanwhile"),
    "a link now": (turn_into_link, "the file was replaced meanwhile"),
    "deleted": (os.unlink, "the file was deleted meanwhile"),
}


def state(path):
    """Take down everything about every file beside the session."""
    taken = {}
    for name in names(path):
        beside = path.with_name(name)
        status = os.lstat(beside)
        taken[name] = (
            status.st_ino, status.st_mode, status.st_size, status.st_mtime_ns, status.st_ctime_ns,
            beside.read_bytes(),
        )  # fmt: skip
    return taken


@pytest.mark.parametrize("change", CHANGES)
def test_a_session_that_changed_since_it_was_read_is_left_alone(session, path, change):
    """Any difference since the session was opened is a new turn: refused, nothing of ours stays."""
    act, why = CHANGES[change]
    act(path)
    before = state(path)

    with pytest.raises(Refused, match=why):
        replace(session)
    assert state(path) == before


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_while_the_new_content_is_written_is_noticed_as_well(
    session, path, change, monkeypatch
):
    """What happens while the temporary file is filled counts like what happened before."""
    act, why = CHANGES[change]
    read_range = filling.read_range

    def reading(*arguments):
        if "done" not in before:
            act(path)
            before["done"] = state(path)
            before["done"].pop(TEMPORARY, None)
        return read_range(*arguments)

    before = {}
    monkeypatch.setattr(filling, "read_range", reading)

    with pytest.raises(Refused, match=why):
        replace(session)
    assert state(path) == before["done"]


@pytest.mark.parametrize("flags", ["os.O_RDONLY", APPEND])
def test_a_session_that_somebody_has_open_is_left_alone(session, path, puppet, flags):
    """While another process has the file open, for reading even, nothing is replaced."""
    before = state(path)
    puppet.ask(f"os.open({str(path)!r}, {flags})")

    with pytest.raises(Refused, match="somebody has the file open"):
        replace(session)
    assert state(path) == before


def test_the_gate_is_asked_under_the_lease_and_may_refuse(session, path):
    """The agent's own signs are looked at once more while nobody can open the file."""
    before = state(path)
    leased = []

    def gate():
        leased.append(leases.held(session.descriptor))
        return "locked by process 1"

    with pytest.raises(Refused, match="locked by process 1"):
        replace(session, gate=gate)
    assert leased == [True]
    assert state(path) == before


def test_an_opener_that_waits_already_is_given_way_to(session, path, puppet, race):
    """Whoever opens the file before the exchange gets it, unchanged, and nothing is replaced."""

    def gate():
        race.opens(puppet, session.descriptor, path, APPEND, f"os.write(fd, {LATE!r})")

    with pytest.raises(Refused, match="somebody is opening the file"):
        replace(session, gate=gate)
    puppet.hear()
    puppet.hear()

    assert race.exchanges == 0
    assert path.read_bytes() == OLD + LATE
    assert names(path) == [NAME]


def test_a_temporary_name_that_is_taken_is_never_used(session, path):
    """A file that stands under the temporary name, or a link there, is not written through."""
    beside = path.with_name("precious")
    beside.write_bytes(b"precious")
    os.symlink(beside, path.with_name(TEMPORARY))

    with pytest.raises(FileExistsError):
        replace(session)
    assert beside.read_bytes() == b"precious"
    assert path.read_bytes() == OLD


@pytest.mark.parametrize("mode", [0o600, 0o644, 0o660, 0o400])
def test_mode_and_times_stay(path, mode):
    """The new file has the old one's mode and times, to the nanosecond, also when settled."""
    os.chmod(path, mode)
    before = path.stat()
    with open_session(found_at(path)) as session:
        done = replace(session)
        settle(session, done)
    after = path.stat()

    assert after.st_mode == before.st_mode
    assert (after.st_atime_ns, after.st_mtime_ns) == (before.st_atime_ns, before.st_mtime_ns)
    assert (after.st_uid, after.st_gid) == (before.st_uid, before.st_gid)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_the_owner_stays_when_root_works_for_somebody(path):
    """A file of another user still belongs to that user and group after root replaced it."""
    os.chown(path, 65534, 65533)
    with open_session(found_at(path)) as session:
        replace(session)

    assert (path.stat().st_uid, path.stat().st_gid) == (65534, 65533)


def test_the_temporary_file_is_nobody_elses_from_birth(session, path, monkeypatch):
    """Before it has the session's mode, the temporary file can be read by its owner alone."""
    seen = []
    write = settling.write

    def writing(descriptor, data):
        seen.append(os.fstat(descriptor).st_mode & 0o777)
        write(descriptor, data)

    monkeypatch.setattr(settling, "write", writing)
    old = os.umask(0)
    try:
        replace(session)
    finally:
        os.umask(old)

    assert set(seen) == {0o600}


def test_extended_attributes_stay(path):
    """What somebody noted in extended attributes, and access lists, stand on the new file too."""
    access_list = struct.pack("<I", 2) + b"".join(
        struct.pack("<HHI", tag, permissions, who)
        for tag, permissions, who in [
            (1, 6, 0xFFFFFFFF), (2, 4, 12345), (4, 0, 0xFFFFFFFF), (16, 4, 0xFFFFFFFF),
            (32, 0, 0xFFFFFFFF),
        ]
    )  # fmt: skip
    try:
        os.setxattr(path, "user.note", b"mine\0")
        os.setxattr(path, "system.posix_acl_access", access_list)
    except OSError:
        # Where none can be set there are none to keep; most filesystems of Linux keep them.
        pytest.skip("this filesystem keeps no such attributes")
    before = {name: os.getxattr(path, name) for name in os.listxattr(path)}
    with open_session(found_at(path)) as session:
        replace(session)

    assert {name: os.getxattr(path, name) for name in os.listxattr(path)} == before
    assert "system.posix_acl_access" in before


def test_a_late_openers_line_is_moved_over(session, path, puppet, race, patient):
    """Who resolved the old name before the exchange writes into the old file; the line comes."""
    race.before = lambda: race.opens(
        puppet, session.descriptor, path, APPEND, f"os.write(fd, {LATE!r})", "os.close(fd)"
    )
    done = replace(session)
    for _ in range(3):
        puppet.hear()
    saved = settle(session, done)

    assert path.read_bytes() == NEW + LATE
    assert saved == 0
    assert names(path) == [NAME]


def test_a_late_openers_line_comes_before_whatever_is_written_next(
    session, path, puppet, second_puppet, race, patient
):
    """The order of the lines stays: nobody gets at the new file before the late line is there."""
    steps = "os.write(fd, {!r})", "os.close(fd)"
    race.before = lambda: race.opens(
        puppet, session.descriptor, path, APPEND, *(step.format(LATE) for step in steps)
    )
    race.after = lambda: race.opens(
        second_puppet, race.leased[0], path, APPEND, *(step.format(b"{}\n") for step in steps)
    )
    done = replace(session)
    for _ in range(3):
        puppet.hear()
        second_puppet.hear()
    settle(session, done)

    assert path.read_bytes() == NEW + LATE + b"{}\n"


def test_a_lease_broken_by_force_costs_no_line(
    session, path, puppet, second_puppet, race, patient, monkeypatch
):
    """Where the kernel took our lease away (we were frozen for too long) nothing is overwritten."""
    race.before = lambda: race.opens(
        puppet, session.descriptor, path, APPEND, f"os.write(fd, {LATE!r})", "os.close(fd)"
    )
    read_range = replacing.read_range

    taken = []

    def reading(descriptor, *places):
        if race.exchanges and not taken:
            taken.append(leases.drop(race.leased[0]))
            second_puppet.ask(f"os.write(os.open({str(path)!r}, {APPEND}), b'{{}}\\n')")
        return read_range(descriptor, *places)

    monkeypatch.setattr(replacing, "read_range", reading)
    replace(session)

    assert path.read_bytes() == NEW + b"{}\n" + LATE


@pytest.mark.parametrize("late", [b'{"torn":', b'\n{"id":4}', b'{"id":4}\n{"torn":'])
def test_a_late_line_without_an_end_comes_exactly_once(session, path, puppet, race, patient, late):
    """Bytes that do not end in a newline are moved over like all others, once."""
    race.before = lambda: race.opens(
        puppet, session.descriptor, path, APPEND, f"os.write(fd, {late!r})", "os.close(fd)"
    )
    done = replace(session)
    settle(session, done)

    assert path.read_bytes() == NEW + late


def test_a_late_opener_who_only_looks_changes_nothing(session, path, puppet, race, patient):
    """A reader that came late reads the old content and leaves no trace."""
    race.before = lambda: race.opens(
        puppet, session.descriptor, path, "os.O_RDONLY", "os.read(fd, 100000)", "os.close(fd)"
    )
    done = replace(session)
    puppet.hear()
    read = puppet.hear()
    settle(session, done)

    assert read == OLD
    assert path.read_bytes() == NEW
    assert names(path) == [NAME]


REWRITTEN = {
    "the same and a line": OLD + LATE,
    "shorter": b'{"id":1,"compacted":true}\n' + LATE,
    "longer and different": b'{"id":1,"migrated":true}\n' * 200 + LATE,
    "as long and different": OLD.replace(b'"id":3', b'"id":9'),
}


@pytest.mark.parametrize("content", REWRITTEN)
def test_a_late_opener_who_rewrites_the_whole_file_is_not_lost(
    session, path, puppet, race, patient, content
):
    """An agent that rewrites its file from memory in the window has the last word."""
    data = REWRITTEN[content]
    race.before = lambda: race.opens(
        puppet, session.descriptor, path, REWRITE, f"os.write(fd, {data!r})", "os.close(fd)"
    )
    try:
        done = replace(session)
    except Refused:
        done = None
    for _ in range(3):
        puppet.hear()
    if done:
        settle(session, done)

    assert path.read_bytes().replace(STUB, VALUE) == data
    assert names(path) == [NAME]


def test_a_rewriter_and_whoever_waits_behind_it_are_both_kept(
    session, path, puppet, second_puppet, race, patient
):
    """Where the old file gets its name back, who waited for the new one is not held up, or lost."""
    data = REWRITTEN["shorter"]
    race.before = lambda: race.opens(
        puppet, session.descriptor, path, REWRITE, f"os.write(fd, {data!r})", "os.close(fd)"
    )
    race.after = lambda: race.opens(
        second_puppet, race.leased[0], path, APPEND, "os.write(fd, b'{}\\n')", "os.close(fd)"
    )
    begun = time.monotonic()
    with pytest.raises(Refused, match="rewrote the file"):
        replace(session)
    for _ in range(3):
        second_puppet.hear()

    assert path.read_bytes() == data + b"{}\n"
    assert names(path) == [NAME]
    assert time.monotonic() - begun < 5


def test_an_opener_that_keeps_the_file_gets_it_back(session, path, puppet, race, impatient):
    """Who keeps the old file open has its name exchanged back: all that it writes is there."""
    race.before = lambda: race.opens(
        puppet, session.descriptor, path, APPEND, f"os.write(fd, {LATE!r})"
    )
    inode = path.stat().st_ino
    with pytest.raises(Refused, match="somebody keeps the file open"):
        replace(session)
    puppet.hear()
    puppet.hear()
    puppet.ask("os.write(fd, b'{\"id\":5}\\n')")

    assert race.exchanges == 2
    assert path.stat().st_ino == inode
    assert path.read_bytes() == OLD + LATE + b'{"id":5}\n'
    assert names(path) == [NAME]


def test_what_was_written_into_the_new_file_comes_along_when_the_old_one_is_put_back(
    session, path, puppet, second_puppet, race, impatient
):
    """A line of a second writer, who had opened the new file, is not lost by the way back."""
    race.before = lambda: race.opens(
        puppet, session.descriptor, path, APPEND, f"os.write(fd, {LATE!r})"
    )
    race.after = lambda: race.opens(
        second_puppet, race.leased[0], path, APPEND, "os.write(fd, b'{}\\n')", "os.close(fd)"
    )
    with pytest.raises(Refused, match="somebody keeps the file open"):
        replace(session)
    for _ in range(3):
        second_puppet.hear()

    assert path.read_bytes() == OLD + LATE + b"{}\n"
    assert names(path) == [NAME]


def test_a_file_put_in_place_in_the_last_moment_stays(session, path, race):
    """An agent that renames its own file into place before the exchange keeps exactly that file."""
    race.before = lambda: swap(path, OLD + LATE)
    with pytest.raises(Refused, match="the file was replaced meanwhile"):
        replace(session)

    assert race.exchanges == 2
    assert path.read_bytes() == OLD + LATE
    assert names(path) == [NAME]


def test_a_session_deleted_in_the_last_moment_stays_deleted(session, path, race):
    """A session whose name is gone when the names are exchanged never comes back."""
    race.before = lambda: os.unlink(path)
    with pytest.raises(Refused, match="the file was deleted meanwhile"):
        replace(session)

    assert names(path) == []


def test_bytes_that_come_after_the_leases_are_found_by_the_last_look(session, path, puppet):
    """Who reaches the old file only after the leases were dropped has its line moved over too."""
    done = replace(session)
    puppet.ask(f"globals().update(fd=os.open({str(path.with_name(TEMPORARY))!r}, {APPEND}))")
    puppet.ask(f"os.write(fd, {LATE!r})")
    append(path, b"{}\n")
    with pytest.raises(settling.StillOpenError):
        settle(session, done, patience=0.05)
    kept = path.with_name(TEMPORARY).read_bytes()
    puppet.ask("os.close(fd)")
    saved = settle(session, done)

    assert kept == OLD + LATE
    assert saved == len(LATE)
    assert path.read_bytes() == NEW + b"{}\n" + LATE
    assert names(path) == [NAME]


def test_bytes_that_were_moved_over_already_are_not_moved_twice(session, path):
    """Settling that was stopped between moving and removing may be done again."""
    done = replace(session)
    append(path.with_name(TEMPORARY), LATE)
    append(path, LATE + b"{}\n")
    saved = settle(session, done)

    assert saved == 0
    assert path.read_bytes() == NEW + LATE + b"{}\n"


def test_a_session_deleted_after_the_exchange_stays_deleted(session, path):
    """The last look removes the old file and brings nothing back."""
    done = replace(session)
    append(path.with_name(TEMPORARY), LATE)
    path.unlink()
    settle(session, done)

    assert names(path) == []


def test_settling_twice_is_no_error(path):
    """Where the old file is gone already there is nothing to do."""
    with open_session(found_at(path)) as session:
        done = replace(session)
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    saved = [settling.settle(directory, NAME, TEMPORARY, ends=done.ends, deadline=0) for _ in "12"]
    os.close(directory)

    assert saved == [0, 0]
    assert names(path) == [NAME]


def test_without_leases_a_session_must_have_been_quiet_for_a_day(session, path, unleased):
    """Where no lease can be had, a session that was quiet for less than a day is left alone."""
    before = state(path)
    with pytest.raises(Refused, match="quiet for a day"):
        replace(session, quiet_for=A_DAY - 1)

    assert state(path) == before


def test_without_leases_a_session_quiet_for_a_day_is_replaced(session, path, unleased):
    """Where no lease can be had, a quiet session is replaced, and the old file looked at again."""
    attributes = path.stat().st_mode, path.stat().st_mtime_ns
    done = replace(session, quiet_for=A_DAY)
    beside = names(path)
    append(path.with_name(TEMPORARY), LATE)
    saved = settle(session, done)

    assert beside == [TEMPORARY, NAME]
    assert saved == len(LATE)
    assert path.read_bytes() == NEW + LATE
    assert names(path) == [NAME]
    assert path.stat().st_mode == attributes[0]


@pytest.mark.parametrize("change", CHANGES)
def test_without_leases_a_session_that_changed_is_left_alone(session, path, unleased, change):
    """The comparison is the same without leases."""
    act, why = CHANGES[change]
    act(path)
    before = state(path)

    with pytest.raises(Refused, match=why):
        replace(session, quiet_for=A_DAY)
    assert state(path) == before


def test_without_leases_a_change_in_the_last_moment_is_noticed(
    session, path, unleased, monkeypatch
):
    """The file is compared again after it got its second name, right before the rename."""
    link = os.link

    def linking(*arguments, **keywords):
        link(*arguments, **keywords)
        append(path, LATE)

    monkeypatch.setattr(os, "link", linking)
    with pytest.raises(Refused, match="the file changed meanwhile"):
        replace(session, quiet_for=A_DAY)

    assert path.read_bytes() == OLD + LATE
    assert names(path) == [NAME]


def interrupted(world, path, new=None):
    """Note a rewrite in the journal as it stands before the exchange, the new file whole or not."""
    found = found_at(path)
    with world.store.transaction() as connection:
        row = extractions.note_session(connection, found, "generic", None)
        entry = journal.begin(connection, row.id, found, TEMPORARY, journal.Note())
        if new:
            with open(path, "rb") as before, open(new, "rb") as after:
                ends = tuple(
                    settling.end_of(file.fileno(), os.fstat(file.fileno()).st_size)
                    for file in (before, after)
                )
            journal.filled(connection, entry, os.stat(new).st_ino, ends)
    return entry


HALFWAY = {
    "before the second name": (True, ("temporary",)),
    "the old file has two names": (True, ("temporary", "kept")),
    "the new file has the name": (False, ("kept",)),
    "the old file waits": (False, ("old",)),
    "nothing is left": (False, ()),
}


@pytest.mark.parametrize("stop", HALFWAY)
def test_recovery_from_each_halfway_point_without_leases(world, stop, path, unleased):
    """Whatever a crash leaves of a rename without leases, recovery leaves one whole session."""
    untouched, beside = HALFWAY[stop]
    new = path.with_name(TEMPORARY)
    new.write_bytes(NEW)
    interrupted(world, path, new)
    if "kept" in beside or "old" in beside:
        os.link(path, f"{new}.old")
    if not untouched:
        os.rename(new, path)
    if "old" in beside:
        os.rename(f"{new}.old", new)
    resolved = recover.recover(world.store)

    assert [one.what for one in resolved] == ["undone" if untouched else "finished"]
    assert path.read_bytes() == (OLD if untouched else NEW)
    assert names(path) == [NAME]
    assert path.stat().st_nlink == 1
    assert waiting(world.store) == []


def test_recovery_gives_a_file_that_came_in_between_its_name_back(world, path):
    """Killed after exchanging a file that the agent had just renamed into place: that stands."""
    new = path.with_name(TEMPORARY)
    new.write_bytes(NEW)
    interrupted(world, path, new)
    swap(path, OLD + LATE)
    os.rename(path, f"{new}.agents")
    os.rename(new, path)
    os.rename(f"{new}.agents", new)
    recover.recover(world.store)

    assert path.read_bytes() == OLD + LATE
    assert names(path) == [NAME]
    assert waiting(world.store) == []


def test_recovery_never_takes_a_half_written_file_for_a_session(world, path):
    """Killed while the new file was written: the half goes, and nothing of it is moved anywhere."""
    interrupted(world, path)
    path.with_name(TEMPORARY).write_bytes(NEW + b"x" * 5000)
    recover.recover(world.store)

    assert path.read_bytes() == OLD
    assert names(path) == [NAME]
    assert waiting(world.store) == []


@pytest.mark.parametrize("kept_open", [False, True])
def test_recovery_moves_over_what_came_after_the_exchange(world, path, puppet, kept_open):
    """After a crash the old file's late bytes come over, once nobody has it open any more."""
    entry = interrupted(world, path)
    with open_session(found_at(path)) as session:
        replace(session, filled=lambda *new: journal.filled(world.store.connection, entry, *new))
    late = str(path.with_name(TEMPORARY))
    puppet.ask(f"globals().update(fd=os.open({late!r}, {APPEND}))")
    puppet.ask(f"os.write(fd, {LATE!r})")
    if not kept_open:
        puppet.ask("os.close(fd)")
    recover_quickly(world)
    first = names(path), waiting(world.store)
    puppet.kill()
    recover.recover(world.store)

    assert first == (([TEMPORARY, NAME], [str(path)]) if kept_open else ([NAME], []))
    assert path.read_bytes() == NEW + LATE
    assert names(path) == [NAME]
    assert waiting(world.store) == []


def recover_quickly(world):
    """Recover without the wait for whoever keeps a file open."""
    patience, recover._WAIT = recover._WAIT, 0.02
    try:
        recover.recover(world.store)
    finally:
        recover._WAIT = patience


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_a_directory_that_became_read_only_does_not_stop_the_pass(world, conversation, path):
    """An interrupted rewrite that cannot be finished now is left, and the pass goes on."""
    path.with_name(TEMPORARY).write_bytes(NEW)
    interrupted(world, path, path.with_name(TEMPORARY))
    conversation.turn("x" * 4000)
    world.put("other.jsonl", conversation.bytes())
    os.chmod(path.parent, 0o500)
    try:
        report = world.scan(keep_recent=0)
    finally:
        os.chmod(path.parent, 0o700)

    assert report.sessions_changed == 1
    assert waiting(world.store) == [str(path)]


def test_recovery_that_fails_does_not_stop_the_pass(world, conversation, path, monkeypatch):
    """When the disk refuses to finish an interrupted rewrite, the other sessions get their turn."""
    path.with_name(TEMPORARY).write_bytes(NEW)
    interrupted(world, path, path.with_name(TEMPORARY))
    conversation.turn("x" * 4000)
    world.put("other.jsonl", conversation.bytes())
    unlink = os.unlink

    def failing(name, **keywords):
        if name == TEMPORARY:
            raise OSError(30, "Read-only file system")
        unlink(name, **keywords)

    monkeypatch.setattr(os, "unlink", failing)
    report = world.scan(keep_recent=0)

    assert report.sessions_changed == 1
    assert waiting(world.store) == [str(path)]
    assert path.read_bytes() == OLD


def settled_session(world, conversation, name="one.jsonl"):
    """Put a session with something to cut into the world."""
    conversation.turn("x" * 4000)
    return world.put(name, conversation.bytes())


def test_a_session_with_two_names_is_skipped(world, conversation):
    """Hard links are never broken: the session is skipped with its reason and stays as it is."""
    path = settled_session(world, conversation)
    os.link(path, world.base / "second-name")
    before = state(path)
    report = world.scan(keep_recent=0)
    with open_session(found_at(path)) as session:
        why = writable(session)

    assert "hard links" in why
    assert [(one.outcome, one.reason) for one in report.sessions] == [("skipped", why)]
    assert state(path) == before


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write to everybody's files")
def test_a_file_of_another_user_is_skipped():
    """A file that belongs to somebody else is not ours to replace."""
    with open_session(
        Found("/etc", "/etc", "passwd", "a", "/etc", "auto", None)
    ) as session:  # fmt: skip
        why = writable(session)

    assert "another user" in why


def test_what_is_no_plain_file_is_never_opened(world, conversation, puppet):
    """A link, a pipe or a directory with a session's name is neither opened nor followed."""
    outside = world.base / "outside.jsonl"
    conversation.turn("x" * 4000)
    outside.write_bytes(conversation.bytes())
    os.symlink(outside, world.directory / "link.jsonl")
    os.symlink(world.base / "nowhere", world.directory / "broken.jsonl")
    os.mkfifo(world.directory / "pipe.jsonl")
    (world.directory / "directory.jsonl").mkdir()
    pipe = str(world.directory / "pipe.jsonl")
    puppet.say(f"os.open({pipe!r}, os.O_WRONLY)")
    report = world.scan(keep_recent=0)
    opened = puppet.answers_within(0.1)

    assert not opened
    assert (report.files_seen, report.failed) == (0, False)
    assert outside.read_bytes() == conversation.bytes()


@pytest.mark.parametrize("kind", ["link", "pipe", "directory"])
def test_what_became_no_plain_file_since_the_walk_is_left_alone(world, conversation, kind):
    """A session swapped for something else after it was listed is refused without waiting."""
    path = settled_session(world, conversation)
    found = found_at(path)
    path.rename(world.base / "moved.jsonl")
    if kind == "link":
        os.symlink(world.base / "moved.jsonl", path)
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.mkdir()

    with pytest.raises((Refused, OSError)), open_session(found):
        pass


def test_an_opener_who_stays_for_long_costs_no_byte(
    world, conversation, puppet, second_puppet, race, monkeypatch
):
    """A rewrite given up with both files open is finished by a later pass; every line is there."""
    path = settled_session(world, conversation)
    monkeypatch.setattr(replacing, "WAIT_FOR_CLOSING", 0.05)
    monkeypatch.setattr(settling, "LOOK_BACK_LONGEST", 0.05)
    monkeypatch.setattr(recover, "_WAIT", 0.05)
    race.before = lambda: race.opens(
        puppet, race.leased[1], path, APPEND, f"os.write(fd, {LATE!r})"
    )
    line = dump({"type": "custom", "id": "z"})
    race.after = lambda: race.opens(
        second_puppet, race.leased[0], path, APPEND, f"os.write(fd, {line!r})"
    )
    first = world.scan(keep_recent=0)
    wait_until(lambda: path.read_bytes() == conversation.bytes() + LATE)
    left = world.leftovers()
    puppet.kill()
    second_puppet.kill()
    second = world.scan(keep_recent=0, enabled=False)

    assert first.sessions_changed == 0
    assert len(left) == 1
    assert len(second.recovered) == 1
    assert path.read_bytes() == conversation.bytes() + LATE + line
    assert world.leftovers() == []


def test_an_error_after_the_exchange_leaves_nothing_beside_the_session(
    world, conversation, monkeypatch
):
    """When the disk fails right after the exchange, the same pass cleans up and says so."""
    path = settled_session(world, conversation)
    fsync, failed = os.fsync, []

    def failing(descriptor):
        if os.path.isdir(f"/proc/self/fd/{descriptor}") and not failed and world.leftovers():
            failed.append(descriptor)
            raise OSError(5, "Input/output error")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", failing)
    report = world.scan(keep_recent=0)

    assert [one.outcome for one in report.sessions] == ["failed"]
    assert b"[[extracted-" in path.read_bytes()
    assert world.leftovers() == []
    assert waiting(world.store) == []
    world.restore_all(pristine=True)
    assert path.read_bytes() == conversation.bytes()
