"""Exchanging a session file: when it is refused, what is preserved, and that no line is lost.

Each race is forced: another process is sent into the window between the last comparison and the
exchange of the names, where the lease blocks it, and is let through afterwards.
"""

import os
import time

import msgspec.structs
import pytest

from brainsurgeon.files import exchange, leases, retire
from brainsurgeon.files.reading import RefusedError
from brainsurgeon.files.retire import Ledger, StaysError
from brainsurgeon.model.session_files import Root
from brainsurgeon.sessions.discovery import discover, open_session
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
    BusyCheck,
    append_bytes,
    directory_names,
    directory_state,
    discovered,
    replace,
    replace_by_rename,
    retire_old_file,
)


def test_exchange_puts_the_new_content_under_the_name(session, path):
    """The old file stays under the temporary name until it is removed at the end."""
    inode = path.stat().st_ino
    exchanged = replace(session)
    beside = path.with_name(TEMPORARY)

    assert path.read_bytes() == NEW
    assert (beside.read_bytes(), beside.stat().st_ino) == (OLD, inode)
    assert retire_old_file(session, exchanged) == 0
    assert directory_names(path) == [NAME]
    assert path.read_bytes() == NEW
    assert exchanged.fingerprint.size == len(NEW)


CLOSE = "os.close(fd)"


def writes(data):
    return f"os.write(fd, {data!r})"


@pytest.fixture
def late(session, path, other_process, race):
    """Return a function that sends a process to the old file right before the exchange."""

    def opens(*steps, flags=APPEND):
        race.before = lambda: race.opens(other_process, session.descriptor, path, flags, *steps)

    return opens


@pytest.fixture
def next_opener(path, second_process, race):
    """Send a process that appends a line to the new file right after the exchange."""
    steps = writes(b"{}\n"), CLOSE
    race.after = lambda: race.opens(second_process, race.leased[0], path, APPEND, *steps)
    return second_process


def hear_all(*puppets):
    """Wait until each process has opened, written and closed its file."""
    for _ in range(3):
        for other_process in puppets:
            other_process.receive()


def rewrite(path, data):
    before = os.stat(path)
    with open(path, "r+b") as handle:
        handle.write(data)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def replace_by_a_link(path):
    moved = str(path) + ".moved"
    os.rename(path, moved)
    os.symlink(moved, path)


CHANGES = {
    "grew": (lambda path: append_bytes(path, b"{}\n"), "the file changed meanwhile"),
    "shrank": (lambda path: os.truncate(path, 20), "the file changed meanwhile"),
    "rewritten in place": (lambda path: rewrite(path, OLD), "the file changed meanwhile"),
    "touched": (os.utime, "the file changed meanwhile"),
    "mode changed": (lambda path: os.chmod(path, 0o604), "the file changed meanwhile"),
    "linked": (lambda path: os.link(path, str(path) + ".x"), "the file changed meanwhile"),
    "replaced": (lambda path: replace_by_rename(path, OLD), "the file was replaced meanwhile"),
    "a link now": (replace_by_a_link, "the file was replaced meanwhile"),
    "deleted": (os.unlink, "the file was deleted meanwhile"),
}


@pytest.mark.parametrize("kind", ["session", "exclusive"])
@pytest.mark.parametrize("change", CHANGES)
def test_session_changed_since_it_was_read_is_not_replaced(request, path, change, kind):
    """Any difference since it was opened refuses the exchange, with leases and without."""
    opened = request.getfixturevalue(kind)
    act, why = CHANGES[change]
    act(path)
    before = directory_state(path)

    with pytest.raises(RefusedError, match=why):
        replace(opened)
    assert directory_state(path) == before


@pytest.mark.parametrize("change", CHANGES)
def test_session_changed_while_the_new_file_is_written_is_kept(session, path, change, monkeypatch):
    """A change while the temporary file is filled refuses the exchange like an earlier one."""
    act, why = CHANGES[change]
    read_range = exchange.read_range

    def reading(*arguments):
        if "done" not in before:
            act(path)
            before["done"] = directory_state(path)
            before["done"].pop(TEMPORARY, None)
        return read_range(*arguments)

    before = {}
    monkeypatch.setattr(exchange, "read_range", reading)

    with pytest.raises(RefusedError, match=why):
        replace(session)
    assert directory_state(path) == before["done"]


@pytest.mark.parametrize("flags", ["os.O_RDONLY", APPEND])
def test_session_open_in_another_process_is_not_replaced(session, path, other_process, flags):
    """A session that another process has open, even for reading only, is not replaced."""
    before = directory_state(path)
    other_process.evaluate(f"os.open({str(path)!r}, {flags})")

    with pytest.raises(RefusedError, match="another process has the file open"):
        replace(session)
    assert directory_state(path) == before


def test_signs_are_read_before_the_lease_and_compared_under_it(session, path):
    """Signs of the agent are read before the lease; a change seen under the lease refuses."""
    before = directory_state(path)
    calls = []

    def reading():
        calls.append(("read", leases.held(session.descriptor)))

    def changing():
        calls.append(("compared", leases.held(session.descriptor)))
        return "changed just now"

    with pytest.raises(RefusedError, match="changed just now"):
        replace(session, busy_check=BusyCheck(changing, reading))
    assert calls == [("read", False), ("compared", True)]
    assert directory_state(path) == before


def test_opener_before_the_exchange_gets_the_unchanged_file(session, path, other_process, race):
    """An opener that waits before the exchange refuses it, and its line is written."""

    def gate():
        race.opens(other_process, session.descriptor, path, APPEND, writes(LATE))

    with pytest.raises(RefusedError, match="the file is being opened"):
        replace(session, busy_check=BusyCheck(gate))
    other_process.receive()
    other_process.receive()

    assert race.exchanges == 0
    assert path.read_bytes() == OLD + LATE
    assert directory_names(path) == [NAME]


def test_late_line_comes_before_the_next_writer(
    session, path, other_process, late, next_opener, long_closing_wait
):
    """Nobody opens the new file before the late line of the old file has been moved there."""
    late(writes(LATE), CLOSE)
    exchanged = replace(session)
    hear_all(other_process, next_opener)
    retire_old_file(session, exchanged)

    assert path.read_bytes() == NEW + LATE + b"{}\n"


@pytest.mark.parametrize("stays_open", [False, True])
def test_order_is_kept_if_the_leases_were_taken_away(
    session, path, second_process, race, late, long_closing_wait, monkeypatch, stays_open
):
    """A late line in the old file came first, so the old file gets its name back once it can.

    While another process has the new file open, both files stay.
    """
    late(writes(LATE), CLOSE)
    only_grew = retire.only_grew

    def after_losing_the_lease(*arguments):
        monkeypatch.setattr(retire, "only_grew", only_grew)
        leases.drop(race.leased[0])
        monkeypatch.setattr(exchange, "TRUSTED", 0.0)
        time.sleep(0.02)  # the clock of files is a coarse one
        second_process.evaluate(f"globals().update(fd=os.open({str(path)!r}, {APPEND}))")
        second_process.evaluate("os.write(fd, b'{}\\n')")
        if not stays_open:
            second_process.evaluate("os.close(fd)")
        return only_grew(*arguments)

    monkeypatch.setattr(retire, "only_grew", after_losing_the_lease)
    exchanged = replace(session)
    if stays_open:
        with pytest.raises(StaysError, match="another process has the session open"):
            retire_old_file(session, exchanged)
        assert path.read_bytes() == NEW + b"{}\n"
        assert path.with_name(TEMPORARY).read_bytes() == OLD + LATE
        second_process.evaluate("os.close(fd)")
    retire_old_file(session, exchanged)

    assert path.read_bytes() == OLD + LATE + b"{}\n"
    assert directory_names(path) == [NAME]


@pytest.mark.parametrize("data", [LATE, b'{"torn":', b'\n{"id":4}', b'{"id":4}\n{"torn":'])
def test_late_bytes_are_moved_exactly_once(
    session, path, other_process, late, long_closing_wait, data
):
    """Bytes of a late opener are moved once, with or without a newline at their end."""
    late(writes(data), CLOSE)
    exchanged = replace(session)
    hear_all(other_process)
    moved = retire_old_file(session, exchanged)

    assert path.read_bytes() == NEW + data
    assert moved == 0
    assert directory_names(path) == [NAME]


def test_late_reader_changes_nothing(session, path, other_process, late, long_closing_wait):
    """A reader that opened the old file late reads the old content."""
    late("os.read(fd, 100000)", CLOSE, flags="os.O_RDONLY")
    exchanged = replace(session)
    other_process.receive()
    content = other_process.receive()
    retire_old_file(session, exchanged)

    assert content == OLD
    assert path.read_bytes() == NEW
    assert directory_names(path) == [NAME]


def test_late_reader_does_not_shorten_the_wait_for_a_writer(
    session, path, other_process, second_process, race, long_closing_wait, monkeypatch
):
    """The line of a writer that opens the old file after a reader did is moved, too."""
    second_process.evaluate(f"globals().update(unopened=os.open({str(path)!r}, os.O_PATH))")
    monkeypatch.setattr(exchange, "WAIT_FOR_OPENERS", 10.0)
    sleep = time.sleep

    def following(_):
        monkeypatch.setattr(time, "sleep", sleep)
        other_process.receive()
        second_process.evaluate(
            f"globals().update(fd=os.open(f'/proc/self/fd/{{unopened}}', {APPEND}))"
        )
        second_process.evaluate(f"os.write(fd, {LATE!r})")
        second_process.evaluate("os.close(fd)")
        monkeypatch.setattr(exchange, "WAIT_FOR_OPENERS", 0.0)

    race.before = lambda: race.opens(other_process, session.descriptor, path, "os.O_RDONLY")
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
def test_late_rewrite_of_the_whole_file_is_not_lost(
    session, path, other_process, late, long_closing_wait, content
):
    """An agent that rewrites its file in the window has its version in the end."""
    data = REWRITTEN[content]
    late(writes(data), CLOSE, flags=REWRITE)
    try:
        exchanged = replace(session)
    except RefusedError:
        exchanged = None
    hear_all(other_process)
    if exchanged:
        retire_old_file(session, exchanged)

    assert path.read_bytes().replace(PLACEHOLDER, VALUE) == data
    assert directory_names(path) == [NAME]


def test_late_rewrite_and_the_line_of_a_second_opener_are_kept(
    session, path, late, next_opener, long_closing_wait
):
    """The old file gets its name back, and an opener of the new one is let through within 5 s."""
    data = REWRITTEN["shorter"]
    late(writes(data), CLOSE, flags=REWRITE)
    started = time.monotonic()
    with pytest.raises(RefusedError, match="rewrote the file"):
        replace(session)
    hear_all(next_opener)

    assert path.read_bytes() == data + b"{}\n"
    assert directory_names(path) == [NAME]
    assert time.monotonic() - started < 5


def test_opener_that_keeps_the_old_file_open_gets_it_back(
    session, path, other_process, race, late, short_closing_wait
):
    """The names are exchanged back, so all that the opener writes is in the session."""
    late(writes(LATE))
    inode = path.stat().st_ino
    with pytest.raises(RefusedError, match="another process keeps the file open"):
        replace(session)
    other_process.receive()
    other_process.receive()
    other_process.evaluate("os.write(fd, b'{\"id\":5}\\n')")

    assert race.exchanges == 2
    assert path.stat().st_ino == inode
    assert path.read_bytes() == OLD + LATE + b'{"id":5}\n'
    assert directory_names(path) == [NAME]


def test_line_in_the_new_file_is_moved_when_exchanged_back(
    session, path, late, next_opener, short_closing_wait
):
    """The line of a writer that had opened the new file is moved to the old one."""
    late(writes(LATE))
    with pytest.raises(RefusedError, match="another process keeps the file open"):
        replace(session)
    hear_all(next_opener)

    assert path.read_bytes() == OLD + LATE + b"{}\n"
    assert directory_names(path) == [NAME]


def test_file_renamed_into_place_before_the_exchange_stays(session, path, race):
    """A file that an agent renames over the session last keeps its name and content."""
    race.before = lambda: replace_by_rename(path, OLD + LATE)
    with pytest.raises(RefusedError, match="the file was replaced meanwhile"):
        replace(session)

    assert race.exchanges == 2
    assert path.read_bytes() == OLD + LATE
    assert directory_names(path) == [NAME]


def test_line_behind_a_file_renamed_into_place_is_kept(session, path, race, next_opener):
    """A line written to the new file, before the agent's file is back, is moved there."""
    race.before = lambda: replace_by_rename(path, OLD + LATE)
    with pytest.raises(RefusedError, match="the file was replaced meanwhile"):
        replace(session)

    assert path.read_bytes() == OLD + LATE + b"{}\n"
    assert directory_names(path) == [NAME]


def test_session_deleted_before_the_exchange_stays_deleted(session, path, race):
    """A session whose name is gone at the exchange is not recreated."""
    race.before = lambda: os.unlink(path)
    with pytest.raises(RefusedError, match="the file was deleted meanwhile"):
        replace(session)

    assert directory_names(path) == []


def test_session_without_leases_is_not_replaced(session, path, no_leases):
    """Without leases it is unknown whether the session is open, which the refusal says."""
    before = directory_state(path)
    with pytest.raises(RefusedError, match=r"no lease can be had here .*not `exclusive`"):
        replace(session)

    assert directory_state(path) == before


@pytest.fixture
def exclusive(path, no_leases):
    """Yield a session below an `exclusive` root on a system without leases."""
    file = next(discover([Root(str(path.parent), exclusive=True)]))
    with open_session(file) as opened:
        yield opened


def test_exclusive_session_without_leases_is_replaced(exclusive, path):
    """A line appended to the old file before its removal is moved."""
    mode = path.stat().st_mode
    exchanged = replace(exclusive)
    beside = directory_names(path)
    append_bytes(path.with_name(TEMPORARY), LATE)
    moved = retire_old_file(exclusive, exchanged)

    assert beside == [TEMPORARY, NAME]
    assert moved == len(LATE)
    assert path.read_bytes() == NEW + LATE
    assert directory_names(path) == [NAME]
    assert path.stat().st_mode == mode


def prepare_both(session, other, busy_check):
    return [
        exchange.prepare(opened, f".brainsurgeon-{number:016x}.tmp", SPLICES, busy_check, Ledger())
        for number, opened in enumerate((session, other))
    ]


def test_sessions_of_one_directory_share_a_sync(session, path, monkeypatch):
    """All signs are read before the first lease, and one sync makes all exchanges durable."""
    beside, calls = path.with_name("beside.jsonl"), []
    beside.write_bytes(OLD)
    fsync = os.fsync

    def syncing(descriptor):
        calls.append("synced")
        fsync(descriptor)

    with open_session(file_beside(path, beside)) as other:
        busy_check = BusyCheck(
            read=lambda: calls.append("read"), changed=lambda: calls.append("compared")
        )
        new = prepare_both(session, other, busy_check)
        monkeypatch.setattr(os, "fsync", syncing)
        exchange.replace(new)
        for opened in new:
            opened.close()

    assert calls == ["read", "read", "compared", "compared", "synced"]
    assert path.read_bytes() == beside.read_bytes() == NEW


def test_refused_session_does_not_stop_its_neighbour(session, path, other_process):
    """A session that another process has open stays; the one beside it is replaced."""
    beside = path.with_name("beside.jsonl")
    beside.write_bytes(OLD)
    other_process.evaluate(f"os.open({str(path)!r}, os.O_RDONLY)")

    with open_session(file_beside(path, beside)) as other:
        new = prepare_both(session, other, BusyCheck())
        exchange.replace(new)
        for opened in new:
            opened.close()

    assert isinstance(new[0].result, RefusedError)
    assert (path.read_bytes(), beside.read_bytes()) == (OLD, NEW)
    assert directory_names(path) == [".brainsurgeon-0000000000000001.tmp", "beside.jsonl", NAME]


def file_beside(path, beside):
    file = discovered(path)
    status = beside.stat()
    mark = msgspec.structs.replace(
        file.fingerprint, inode=status.st_ino, size=status.st_size,
        mtime_ns=status.st_mtime_ns, ctime_ns=status.st_ctime_ns,
    )  # fmt: skip
    return msgspec.structs.replace(file, name=beside.name, fingerprint=mark)
