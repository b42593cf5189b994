"""The one place that replaces a session file: what it refuses, what it keeps, what it never loses.

The races are forced: another process is sent into the window between the last comparison and the
exchange of the names, where the lease blocks it, and is let through afterwards.
"""

import os
import time

import msgspec.structs
import pytest

from brainsurgeon.model.sessions import Root
from brainsurgeon.sessions import exchange, leases, retire
from brainsurgeon.sessions.discovery import discover
from brainsurgeon.sessions.reading import RefusedError, open_session
from brainsurgeon.sessions.retire import Ledger, StaysError
from building.exchange import (
    APPEND,
    LATE,
    NAME,
    NEW,
    OLD,
    PLACEHOLDER,
    REWRITE,
    SPLICES,
    TEMPORARY,
    VALUE,
    Signs,
    append,
    found_at,
    names,
    replace,
    settle,
    state,
    swap,
)


def test_the_new_content_takes_the_name_the_old_file_waits(session, path):
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


def rewrite(path, data):
    before = os.stat(path)
    with open(path, "r+b") as handle:
        handle.write(data)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def turn_into_link(path):
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


@pytest.mark.parametrize("change", CHANGES)
def test_a_session_that_changed_since_it_was_read_is_left_alone(session, path, change):
    """Any difference since the session was opened is a new turn: refused, nothing of ours stays."""
    act, why = CHANGES[change]
    act(path)
    before = state(path)

    with pytest.raises(RefusedError, match=why):
        replace(session)
    assert state(path) == before


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_while_the_new_file_is_written_is_noticed(session, path, change, monkeypatch):
    """What happens while the temporary file is filled counts like what happened before."""
    act, why = CHANGES[change]
    read_range = exchange.read_range

    def reading(*arguments):
        if "done" not in before:
            act(path)
            before["done"] = state(path)
            before["done"].pop(TEMPORARY, None)
        return read_range(*arguments)

    before = {}
    monkeypatch.setattr(exchange, "read_range", reading)

    with pytest.raises(RefusedError, match=why):
        replace(session)
    assert state(path) == before["done"]


@pytest.mark.parametrize("flags", ["os.O_RDONLY", APPEND])
def test_a_session_that_somebody_has_open_is_left_alone(session, path, puppet, flags):
    """While another process has the file open, for reading even, nothing is replaced."""
    before = state(path)
    puppet.ask(f"os.open({str(path)!r}, {flags})")

    with pytest.raises(RefusedError, match="somebody has the file open"):
        replace(session)
    assert state(path) == before


def test_signs_are_read_before_the_lease_and_compared_under_it(session, path):
    """What takes time is done while everybody can open the file; under the lease it may refuse."""
    before = state(path)
    leased = []

    def reading():
        leased.append(("read", leases.held(session.descriptor)))

    def changing():
        leased.append(("compared", leases.held(session.descriptor)))
        return "changed just now"

    with pytest.raises(RefusedError, match="changed just now"):
        replace(session, signs=Signs(changing, reading))
    assert leased == [("read", False), ("compared", True)]
    assert state(path) == before


def test_an_opener_that_waits_already_is_given_way_to(session, path, puppet, race):
    """Whoever opens the file before the exchange gets it, unchanged, and nothing is replaced."""

    def gate():
        race.opens(puppet, session.descriptor, path, APPEND, f"os.write(fd, {LATE!r})")

    with pytest.raises(RefusedError, match="somebody is opening the file"):
        replace(session, signs=Signs(gate))
    puppet.hear()
    puppet.hear()

    assert race.exchanges == 0
    assert path.read_bytes() == OLD + LATE
    assert names(path) == [NAME]


def test_a_late_line_comes_before_whatever_is_written_next(
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


@pytest.mark.parametrize("stays", [False, True])
def test_a_holder_that_stands_still_keeps_the_order(
    session, path, puppet, second_puppet, race, patient, monkeypatch, stays
):
    """Where the kernel took our leases away (we were frozen for too long) the order stays.

    The line in the old file came first, so that the file gets its name back; while somebody keeps
    the new one open both stay.
    """
    race.before = lambda: race.opens(
        puppet, session.descriptor, path, APPEND, f"os.write(fd, {LATE!r})", "os.close(fd)"
    )
    only_grew = retire.only_grew

    def standing_still(*arguments):
        monkeypatch.setattr(retire, "only_grew", only_grew)
        leases.drop(race.leased[0])
        monkeypatch.setattr(exchange, "TRUSTED", 0.0)
        time.sleep(0.02)  # the clock of files is a coarse one
        second_puppet.ask(f"globals().update(fd=os.open({str(path)!r}, {APPEND}))")
        second_puppet.ask("os.write(fd, b'{}\\n')")
        if not stays:
            second_puppet.ask("os.close(fd)")
        return only_grew(*arguments)

    monkeypatch.setattr(retire, "only_grew", standing_still)
    done = replace(session)
    if stays:
        with pytest.raises(StaysError, match="another process has the session open"):
            settle(session, done)
        assert path.read_bytes() == NEW + b"{}\n"
        assert path.with_name(TEMPORARY).read_bytes() == OLD + LATE
        second_puppet.ask("os.close(fd)")
    settle(session, done)

    assert path.read_bytes() == OLD + LATE + b"{}\n"
    assert names(path) == [NAME]


@pytest.mark.parametrize("late", [LATE, b'{"torn":', b'\n{"id":4}', b'{"id":4}\n{"torn":'])
def test_a_late_line_without_an_end_comes_exactly_once(session, path, puppet, race, patient, late):
    """What a late opener writes into the old file is moved over once, with a newline or without."""
    race.before = lambda: race.opens(
        puppet, session.descriptor, path, APPEND, f"os.write(fd, {late!r})", "os.close(fd)"
    )
    done = replace(session)
    for _ in range(3):
        puppet.hear()
    saved = settle(session, done)

    assert path.read_bytes() == NEW + late
    assert saved == 0
    assert names(path) == [NAME]


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


def test_a_late_reader_does_not_shorten_the_wait_for_a_late_writer(
    session, path, puppet, second_puppet, race, patient, monkeypatch
):
    """A writer that opens the old file after a reader did has its line moved before the end."""
    second_puppet.ask(f"globals().update(found=os.open({str(path)!r}, os.O_PATH))")
    monkeypatch.setattr(exchange, "WAIT_FOR_OPENERS", 10.0)
    sleep = time.sleep

    def following(_):
        monkeypatch.setattr(time, "sleep", sleep)
        puppet.hear()
        second_puppet.ask(f"globals().update(fd=os.open(f'/proc/self/fd/{{found}}', {APPEND}))")
        second_puppet.ask(f"os.write(fd, {LATE!r})")
        second_puppet.ask("os.close(fd)")
        monkeypatch.setattr(exchange, "WAIT_FOR_OPENERS", 0.0)

    race.before = lambda: race.opens(puppet, session.descriptor, path, "os.O_RDONLY")
    race.after = lambda: monkeypatch.setattr(time, "sleep", following)
    replace(session)

    assert path.read_bytes() == NEW + LATE


REWRITTEN = {
    "the same and a line": OLD + LATE,
    "shorter": b'{"id":1,"compacted":true}\n' + LATE,
    "longer and different": b'{"id":1,"migrated":true}\n' * 200 + LATE,
    "as long and different": OLD.replace(b'"id":3', b'"id":9'),
    "as long and different in front": OLD.replace(b'"id":1', b'"id":9'),
    "different in front, and a line": OLD.replace(b'"id":1', b'"id":9') + LATE,
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
    except RefusedError:
        done = None
    for _ in range(3):
        puppet.hear()
    if done:
        settle(session, done)

    assert path.read_bytes().replace(PLACEHOLDER, VALUE) == data
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
    with pytest.raises(RefusedError, match="rewrote the file"):
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
    with pytest.raises(RefusedError, match="somebody keeps the file open"):
        replace(session)
    puppet.hear()
    puppet.hear()
    puppet.ask("os.write(fd, b'{\"id\":5}\\n')")

    assert race.exchanges == 2
    assert path.stat().st_ino == inode
    assert path.read_bytes() == OLD + LATE + b'{"id":5}\n'
    assert names(path) == [NAME]


def test_lines_in_the_new_file_come_along_on_the_way_back(
    session, path, puppet, second_puppet, race, impatient
):
    """A line of a second writer, who had opened the new file, is not lost by the way back."""
    race.before = lambda: race.opens(
        puppet, session.descriptor, path, APPEND, f"os.write(fd, {LATE!r})"
    )
    race.after = lambda: race.opens(
        second_puppet, race.leased[0], path, APPEND, "os.write(fd, b'{}\\n')", "os.close(fd)"
    )
    with pytest.raises(RefusedError, match="somebody keeps the file open"):
        replace(session)
    for _ in range(3):
        second_puppet.hear()

    assert path.read_bytes() == OLD + LATE + b"{}\n"
    assert names(path) == [NAME]


def test_a_file_put_in_place_in_the_last_moment_stays(session, path, race):
    """An agent that renames its own file into place before the exchange keeps exactly that file."""
    race.before = lambda: swap(path, OLD + LATE)
    with pytest.raises(RefusedError, match="the file was replaced meanwhile"):
        replace(session)

    assert race.exchanges == 2
    assert path.read_bytes() == OLD + LATE
    assert names(path) == [NAME]


def test_a_line_behind_a_file_put_in_place_in_the_last_moment_is_kept(
    session, path, second_puppet, race
):
    """Who opens the new file before the agent's own has its name back has its line moved there."""
    race.before = lambda: swap(path, OLD + LATE)
    race.after = lambda: race.opens(
        second_puppet, race.leased[0], path, APPEND, "os.write(fd, b'{}\\n')", "os.close(fd)"
    )
    with pytest.raises(RefusedError, match="the file was replaced meanwhile"):
        replace(session)

    assert path.read_bytes() == OLD + LATE + b"{}\n"
    assert names(path) == [NAME]


def test_a_session_deleted_in_the_last_moment_stays_deleted(session, path, race):
    """A session whose name is gone when the names are exchanged never comes back."""
    race.before = lambda: os.unlink(path)
    with pytest.raises(RefusedError, match="the file was deleted meanwhile"):
        replace(session)

    assert names(path) == []


def test_without_leases_a_session_is_left_alone(session, path, unleased):
    """Where no lease can be had, nobody knows who has a session open; the reason is said."""
    before = state(path)
    with pytest.raises(RefusedError, match=r"no lease can be had here .*not `exclusive`"):
        replace(session)

    assert state(path) == before


@pytest.fixture
def exclusive(path, unleased):
    """Give a session below a root where nobody else writes, and no lease can be had."""
    found = next(discover([Root(str(path.parent), exclusive=True)]))
    with open_session(found) as opened:
        yield opened


def test_without_leases_a_session_below_an_exclusive_root_is_replaced(exclusive, path):
    """The old file is looked at again before it goes."""
    mode = path.stat().st_mode
    done = replace(exclusive)
    beside = names(path)
    append(path.with_name(TEMPORARY), LATE)
    saved = settle(exclusive, done)

    assert beside == [TEMPORARY, NAME]
    assert saved == len(LATE)
    assert path.read_bytes() == NEW + LATE
    assert names(path) == [NAME]
    assert path.stat().st_mode == mode


@pytest.mark.parametrize("change", CHANGES)
def test_without_leases_a_session_that_changed_is_left_alone(exclusive, path, change):
    """The comparison is the same without leases."""
    act, why = CHANGES[change]
    act(path)
    before = state(path)

    with pytest.raises(RefusedError, match=why):
        replace(exclusive)
    assert state(path) == before


def test_sessions_side_by_side_share_a_sync_and_no_reading(session, path, monkeypatch):
    """The signs of all are read before the first lease; one sync makes all exchanges durable."""
    beside, told = path.with_name("beside.jsonl"), []
    beside.write_bytes(OLD)
    fsync = os.fsync

    def syncing(descriptor):
        told.append("synced")
        fsync(descriptor)

    with open_session(next_to(path, beside)) as other:
        signs = Signs(read=lambda: told.append("read"), changed=lambda: told.append("compared"))
        new = [
            exchange.prepare(one, f".brainsurgeon-{number:016x}.tmp", SPLICES, signs, Ledger())
            for number, one in enumerate((session, other))
        ]
        monkeypatch.setattr(os, "fsync", syncing)
        exchange.replace(new)
        for one in new:
            one.close()

    assert told == ["read", "read", "compared", "compared", "synced"]
    assert path.read_bytes() == beside.read_bytes() == NEW


def test_one_that_is_refused_takes_no_other_along(session, path, puppet):
    """A session that somebody opens stays; the one beside it gets its new content."""
    beside = path.with_name("beside.jsonl")
    beside.write_bytes(OLD)
    puppet.ask(f"os.open({str(path)!r}, os.O_RDONLY)")

    with open_session(next_to(path, beside)) as other:
        new = [
            exchange.prepare(one, f".brainsurgeon-{number:016x}.tmp", SPLICES, Signs(), Ledger())
            for number, one in enumerate((session, other))
        ]
        exchange.replace(new)
        for one in new:
            one.close()

    assert isinstance(new[0].result, RefusedError)
    assert (path.read_bytes(), beside.read_bytes()) == (OLD, NEW)
    assert names(path) == [".brainsurgeon-0000000000000001.tmp", "beside.jsonl", NAME]


def next_to(path, beside):
    found = found_at(path)
    status = beside.stat()
    mark = msgspec.structs.replace(
        found.fingerprint, inode=status.st_ino, size=status.st_size,
        mtime_ns=status.st_mtime_ns, ctime_ns=status.st_ctime_ns,
    )  # fmt: skip
    return msgspec.structs.replace(found, name=beside.name, fingerprint=mark)
