"""One session file and the moment in which it is exchanged for a new one."""

import os
import time
from contextlib import nullcontext

import msgspec.structs
import pytest

from brainsurgeon.files import exchange, leases, retire
from brainsurgeon.files.retire import Ledger
from brainsurgeon.model.session_files import Root, SessionFile
from brainsurgeon.sessions.discovery import discover, open_session
from brainsurgeon.store import journal
from building.processes import wait_until

TEMPORARY = ".brainsurgeon-0123456789abcdef.tmp"
NAME = "session.jsonl"
VALUE = b"v" * 5000
PLACEHOLDER = b"[[extracted-2]]"
OLD = b'{"id":1}\n{"id":2,"value":"' + VALUE + b'"}\n{"id":3}\n'
NEW = OLD.replace(VALUE, PLACEHOLDER)
SPLICES = [(OLD.index(VALUE), OLD.index(VALUE) + len(VALUE), PLACEHOLDER)]
LATE = b'{"id":4,"late":true}\n'
APPEND = "os.O_WRONLY | os.O_CREAT | os.O_APPEND"
REWRITE = "os.O_WRONLY | os.O_CREAT | os.O_TRUNC"


@pytest.fixture
def path(tmp_path):
    directory = tmp_path / "sessions"
    directory.mkdir()
    path = directory / NAME
    path.write_bytes(OLD)
    os.utime(path, ns=(1_700_000_000_123_456_789, 1_700_000_100_987_654_321))
    return path


@pytest.fixture
def session(path):
    with open_session(discovered(path)) as opened:
        yield opened


@pytest.fixture
def no_leases(monkeypatch):
    """Make leases unsupported, as on network filesystems."""

    def take(descriptor):
        raise leases.LeaseUnsupportedError(22, "no leases here")

    monkeypatch.setattr(leases, "take", take)


def discovered(path):
    return next(
        session
        for session in discover([Root(str(path.parent))])
        if isinstance(session, SessionFile)
    )


class BusyCheck:
    """Signs of an agent at rest; `changed` is called under the lease."""

    hold = staticmethod(lambda _new: nullcontext())

    def __init__(self, changed=lambda: None, read=lambda: None):
        self.changed, self.read = changed, read


def replace(session, splices=SPLICES, busy_check=None, filled=lambda *_: None):
    new = exchange.prepare(session, TEMPORARY, splices, busy_check or BusyCheck(), Ledger())
    try:
        filled(new.inode, new.ends)
        exchange.replace([new])
    finally:
        new.close()
    if isinstance(new.result, Exception):
        raise new.result
    return new.result


def retire_old_file(session, rewrite, patience=0.0, ledger=None):
    """Remove the old file, as a command does at its end."""
    return retire.retire(
        msgspec.structs.replace(rewrite.pair, ledger=ledger or Ledger()),
        deadline=time.monotonic() + patience, leased=session.descriptor,
    )  # fmt: skip


def directory_names(path):
    return sorted(os.listdir(path.parent))


class Race:
    """Calls `before` and `after` around the first exchange of names."""

    def __init__(self, monkeypatch):
        self.before, self.after = (lambda: None), (lambda: None)
        self.exchanges = 0
        self.leased = []
        self._exchange, self._take = leases.exchange, leases.take
        monkeypatch.setattr(exchange, "WAIT_FOR_OPENERS", retire.WAIT_FOR_OPENERS)
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
        # Checking whether a session is open takes a lease for an instant; the last one counts.
        self.leased = [*(other for other in self.leased if other != descriptor), descriptor]
        return self._take(descriptor)

    def opens(self, process, descriptor, path, flags, *steps):
        """Make another process open a file that the lease on `descriptor` blocks."""
        process.send(f"globals().update(fd=os.open({str(path)!r}, {flags}, 0o600))", *steps)
        wait_until(lambda: not leases.held(descriptor))


@pytest.fixture
def race(monkeypatch):
    """Return the hooks around the first exchange of names."""
    return Race(monkeypatch)


@pytest.fixture
def long_closing_wait(monkeypatch):
    """Wait long for late openers to close, so that a busy machine changes nothing."""
    monkeypatch.setattr(exchange, "WAIT_FOR_CLOSING", 20.0)


@pytest.fixture
def short_closing_wait(monkeypatch):
    """Wait at most 50 ms for late openers to close the file."""
    monkeypatch.setattr(exchange, "WAIT_FOR_CLOSING", 0.05)


def append_bytes(path, data):
    with open(path, "ab") as handle:
        handle.write(data)


def replace_by_rename(path, data):
    """Replace a file by rename, keeping size and times."""
    before = os.stat(path)
    fresh = str(path) + ".fresh"
    with open(fresh, "wb") as handle:
        handle.write(data)
    os.utime(fresh, ns=(before.st_atime_ns, before.st_mtime_ns))
    os.rename(fresh, path)


def directory_state(path):
    """Return status and content of each file beside the session."""
    files = {}
    for name in directory_names(path):
        beside = path.with_name(name)
        status = os.lstat(beside)
        files[name] = (
            status.st_ino, status.st_mode, status.st_size, status.st_mtime_ns, status.st_ctime_ns,
            beside.read_bytes(),
        )  # fmt: skip
    return files


def begin_interrupted_rewrite(world, path, new=None):
    """Record a rewrite in the journal as before the exchange; `new` is its finished new file."""
    session = discovered(path)
    with world.store.transaction():
        row = world.store.sessions.note(session, "generic", None)
        entry = world.store.journal.begin(row.id, session, TEMPORARY, journal.Confirmation())
        if new:
            with open(path, "rb") as before, open(new, "rb") as after:
                ends = tuple(
                    retire.end_of(file.fileno(), os.fstat(file.fileno()).st_size)
                    for file in (before, after)
                )
            world.store.journal.update(entry, new_inode=os.stat(new).st_ino, ends=ends)
    return entry
