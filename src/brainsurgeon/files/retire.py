"""The end of a rewrite: move lines that were written to the old file, and remove the old file.

After an exchange, the *old* file has the temporary name, the *other* file the session's name.
"""

import errno
import hashlib
import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Self

import msgspec.structs
from msgspec import Struct, field

from brainsurgeon.files import leases
from brainsurgeon.files.reading import read_range
from brainsurgeon.model.entries import parse
from brainsurgeon.model.session_files import End

# Seconds after an exchange.
WAIT_FOR_OPENERS = 0.010  # until processes that looked up the name before have opened the old file
# When the old file is normally removed. In 54,585 exchanges, while up to 60 processes opened the
# session in a loop on two busy processors, none opened the old file later than 8 ms after it.
LOOK_BACK = 0.25
LOOK_BACK_UNLEASED = 1.0  # without leases, until writers are assumed to have closed the old file
LOOK_BACK_LONGEST = 2.0  # until when other processes may keep the old file open

# In case another program replaced a file by a link or a pipe: follow no link, wait for no pipe.
CAREFULLY = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_TO_WRITE = os.O_RDWR | os.O_APPEND | CAREFULLY


_END = 4096  # bytes of a file's end by which a file that only grew is recognised


def end_of(descriptor: int, size: int) -> End:
    last = os.pread(descriptor, min(size, _END), max(0, size - _END))
    return End(size, hashlib.blake2b(last, digest_size=16).digest())


def end_now(descriptor: int) -> End:
    return end_of(descriptor, os.fstat(descriptor).st_size)


def only_grew(descriptor: int, end: End) -> bool:
    return os.fstat(descriptor).st_size >= end.size and end_of(descriptor, end.size) == end


def tail_of(descriptor: int, end: End) -> bytes:
    return b"".join(read_range(descriptor, end.size, os.fstat(descriptor).st_size))


def moved_before(late: bytes, there: bytes, identifies: Callable[[bytes], bool]) -> int | None:
    """Return how many bytes of `late` were moved before a crash, or None if this is unknown.

    `there` are the bytes of the other file from the offset at which the move began. Its first
    lines were moved if they equal those of `late`, and each has an id. Other programs may write
    equal lines without ids.
    """
    pairs = enumerate(zip(late, there, strict=False))
    common = next((at for at, (byte, other) in pairs if byte != other), min(len(late), len(there)))
    start = late.rfind(b"\n", 0, common) + 1
    if not all(map(identifies, late[:start].splitlines())):
        return None
    # The crash may have cut a line: `there` ends in it, or another program's line follows.
    glued, behind = there[start:].split(b"\n")[0], there[common:].split(b"\n")[0]
    torn = parse(glued) is None and parse(behind) is not None
    return common if torn or common == min(len(late), len(there)) else start


class StaysError(OSError):
    """The old file keeps its temporary name for now, or for ever if `is_final`."""

    def __init__(self, why: str, *, is_final: bool = False) -> None:
        super().__init__(errno.EBUSY, why)
        self.is_final = is_final


class Ledger:
    """Records moves, so that no byte is moved twice after a crash."""

    unfinished_move: int | None = None  # inode of the file that was receiving lines at a crash

    def identifies(self, line: bytes) -> bool:  # noqa: ARG002
        """Check whether a line has an id."""
        return False

    def note(self, ends: Mapping[int, End], moving_to: int | None = None) -> None:
        """Record the ends of files by inode, and the inode of the file that will receive lines."""


class FilePair(Struct, frozen=True):
    """Two files that exchanged their names, `temporary` (old file) and `name` (other file)."""

    directory: int
    name: str
    temporary: str
    ends: tuple[End, End]  # of the old and the other file
    other_inode: int | None = None
    ledger: Ledger = field(default_factory=Ledger)

    def exchange_names(self) -> None:
        leases.exchange(self.directory, self.temporary, self.name)
        os.fsync(self.directory)

    def turned_back(self) -> Self:
        """Return the pair with the roles exchanged, after the names were exchanged back."""
        named = os.open(self.name, os.O_RDONLY | CAREFULLY, dir_fd=self.directory)
        try:
            ends, other = (self.ends[1], end_now(named)), os.fstat(named).st_ino
            return msgspec.structs.replace(self, ends=ends, other_inode=other)
        finally:
            os.close(named)


def append(descriptor: int, data: bytes) -> None:
    """Append durably. A partial write is removed if no other process can have written after it."""
    size = os.fstat(descriptor).st_size
    try:
        write(descriptor, data)
    except BaseException:
        if leases.held(descriptor):
            os.ftruncate(descriptor, size)
        raise
    os.fsync(descriptor)


def write(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def inode(directory: int, name: str) -> int | None:
    try:
        return os.stat(name, dir_fd=directory, follow_symlinks=False).st_ino
    except FileNotFoundError:
        return None


def retire(
    pair: FilePair, *, deadline: float, leased: int | None = None, named_in_use: bool = False,
    after_crash: bool = False, sync: bool = True,
) -> int:  # fmt: skip
    """Remove the old file once no process can write to it; return the number of bytes moved.

    `leased` is our descriptor of the old file. With `named_in_use`, other processes may have
    `name` open, and lines of different programs may be in any order. Without `sync`, the caller
    syncs the removal before it closes the rewrite in the journal.

    Raises StaysError if, at `deadline` (monotonic), a process can still write to the old file, or
    to the other file if its lines must be moved. The error is final if waiting does not help.
    """
    # Lines appended to the old file are moved to the other file. If the old file was rewritten, or
    # (without `named_in_use`) both were appended to, the old file gets its name back. Lines of the
    # other file are then appended to it: their writers came after the exchange.
    # If the old file has changed and the other was rewritten, both stay. If the session was
    # deleted, the old file is removed. After a crash, it stays if it has changed: the session may
    # have been moved.
    old = leased
    if old is None:
        try:
            old = os.open(pair.temporary, os.O_RDONLY | CAREFULLY, dir_fd=pair.directory)
        except FileNotFoundError:
            return 0
    try:
        merge = _Merge(pair, old, pair.ends, deadline, named_in_use, after_crash)
        while True:
            has_lease = _wait_until_closed(old, deadline)
            if inode(pair.directory, pair.temporary) != os.fstat(old).st_ino:
                why = "another file has the temporary name of the old file and stays there"
                raise StaysError(why, is_final=True)
            merge.move_tail()
            if merge.exchanged_back or not (has_lease and leases.broken(old)):
                break
            leases.drop(old)  # a writer waits to open the old file: let it, and check again
        if not merge.exchanged_back:
            os.unlink(pair.temporary, dir_fd=pair.directory)
            if sync:
                os.fsync(pair.directory)
    finally:
        leases.drop(old)
        if leased is None:
            os.close(old)
    if merge.exchanged_back:
        pair = msgspec.structs.replace(pair, ends=merge.ends, other_inode=None)
        # `named_in_use`: if both files grow now, lines are moved without another exchange.
        merge.moved += retire(pair, deadline=deadline, named_in_use=True, sync=sync)
    return merge.moved


class _Merge(Struct):
    pair: FilePair
    old: int
    ends: tuple[End, End]
    deadline: float
    named_in_use: bool
    after_crash: bool
    moved: int = 0  # bytes
    exchanged_back: bool = False  # the old file got the session's name back

    def move_tail(self) -> None:
        rewritten = not only_grew(self.old, self.ends[0])
        late = b"" if rewritten else tail_of(self.old, self.ends[0])
        if not (rewritten or late):
            return
        try:
            named = os.open(self.pair.name, _TO_WRITE, dir_fd=self.pair.directory)
        except FileNotFoundError:
            if self.after_crash:
                why = "the old file was changed, but the session no longer exists"
                raise StaysError(why, is_final=True) from None
            return
        try:
            is_other = self.pair.other_inode in (None, os.fstat(named).st_ino)
            if not (is_other and only_grew(named, self.ends[1])):
                grew = "written anew" if rewritten else "appended to"
                why = f"the old file was {grew}, while the session was written anew"
                raise StaysError(why, is_final=True)
            if rewritten:
                self.pair.exchange_names()
                self.ends = self.ends[1], end_now(self.old)
                self.exchanged_back = True
                time.sleep(WAIT_FOR_OPENERS)
            else:
                self.move(named, late)
        finally:
            leases.drop(named)
            os.close(named)

    def move(self, named: int, late: bytes) -> None:
        if not self.named_in_use:  # a lease is useful, but not needed
            self._lease(named, time.monotonic() + 0.05)
        theirs = tail_of(named, self.ends[1])
        begun = self.pair.ledger.unfinished_move == os.fstat(named).st_ino
        done = moved_before(late, theirs, self.pair.ledger.identifies) if begun else 0
        if done is None:
            raise StaysError("after a crash it is unknown whether lines were moved", is_final=True)
        if theirs[done:] and late[done:] and not self.named_in_use:
            self._exchange_back(named, late, theirs_from=done)
            return
        if late[done:]:
            self.note(named, done, os.fstat(named).st_ino)
            append(named, late[done:])
        self.moved += len(late) - done
        self.ends = self.note(named, len(late))

    def _lease(self, named: int, deadline: float) -> bool:
        try:
            while not leases.take(named):
                if time.monotonic() > deadline:
                    return False
                time.sleep(0.001)
        except leases.LeaseUnsupportedError:
            return False
        return True

    def note(self, named: int, done: int, moving_to: int | None = None) -> tuple[End, End]:
        """Record the ends of both files after `done` bytes of the tail have been moved."""
        os.fsync(self.old)  # after a power cut, a lost tail would look like a rewritten file
        ends = end_of(self.old, self.ends[0].size + done), end_now(named)
        old, other = os.fstat(self.old).st_ino, os.fstat(named).st_ino
        self.pair.ledger.note({old: ends[0], other: ends[1]}, moving_to)
        return ends

    def _exchange_back(self, named: int, late: bytes, theirs_from: int) -> None:
        """Exchange the names back, and append the new lines of the other file to the old file.

        `theirs_from` is the length of the tail that was moved from the old file before a crash. The
        old file is leased during the exchange and until all lines are moved.
        """
        if not self._lease(named, self.deadline):
            raise StaysError("another process has the session open and has appended lines to it")
        moved = end_of(named, self.ends[1].size + theirs_from)
        # Drop our own lease, since it would prevent reopening the old file for writing.
        leases.drop(self.old)
        writing = os.open(self.pair.temporary, _TO_WRITE, dir_fd=self.pair.directory)
        os.dup2(writing, self.old, inheritable=False)
        os.close(writing)
        if not leases.take(self.old) or tail_of(self.old, self.ends[0]) != late:
            raise StaysError("another process is opening the old file")
        os.fsync(self.old)
        self.pair.exchange_names()
        self.exchanged_back = True
        ends = moved, end_now(self.old)
        back = msgspec.structs.replace(self, old=named, ends=ends, named_in_use=True)
        back.note(self.old, 0)
        leases.drop(named)  # processes that waited to open the other file may write to it now
        time.sleep(WAIT_FOR_OPENERS)
        _wait_until_closed(named, self.deadline)
        if theirs := tail_of(named, moved):
            back.move(self.old, theirs)
        self.ends, self.moved = back.ends, back.moved


def remove(directory: int, temporary: str) -> None:
    """Remove an incomplete new file. No other process can have written to it."""
    with suppress(FileNotFoundError):
        os.unlink(temporary, dir_fd=directory)
        os.fsync(directory)


def _wait_until_closed(descriptor: int, deadline: float) -> bool:
    """Wait until no process can write to the file. Return False if leases are not supported."""
    while True:
        try:
            if leases.no_writers(descriptor):
                return True
        except leases.LeaseUnsupportedError:
            time.sleep(max(0.0, min(LOOK_BACK_UNLEASED, deadline - time.monotonic())))
            return False
        if time.monotonic() > deadline:
            raise StaysError("another process keeps the old file open")
        time.sleep(0.001)
