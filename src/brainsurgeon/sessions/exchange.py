"""The one place that replaces a session file.

What it owes (the numbers are those of the invariants in the README): the file is never seen
half-written and never replaced when anything about it changed since it was read (2); mode, owner
and times stay as they were (6); nothing is replaced while anybody has it open (5).

The protocol: the new content goes to a temporary file beside the session and is synced; a write
lease on both files proves that nobody has either open and makes every opener wait; the state of
the file and of its agent is compared once more; the names are exchanged and the directory synced;
an opener that had resolved the old name before the exchange lands in the old file, whose late
bytes are moved over while the new file is still leased, or everything is exchanged back; the old
file is removed later, by `retire`, when nobody has it open.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, NoReturn

from brainsurgeon.model.sessions import Fingerprint
from brainsurgeon.sessions import leases, retire, unleased
from brainsurgeon.sessions.new_file import fill
from brainsurgeon.sessions.reading import RefusedError, RolledBackError, read_range, refuse_if

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from brainsurgeon.model.sessions import End, Signs
    from brainsurgeon.sessions.new_file import Replacement, Splice
    from brainsurgeon.sessions.reading import OpenSession

WAIT_FOR_OPENERS = 0.010
"""Seconds both leases are held after the exchange, for openers that had resolved the old name."""
WAIT_FOR_CLOSING = 0.5
"""Seconds such an opener gets to close the old file before everything is exchanged back."""
_READINGS = 3
"""How often the agent's signs are read when they keep changing."""

_TEMPORARY = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Exchange:
    """A session file that was replaced: its new state, and what `retire` needs to remove the old.

    `temporary` is the name that the old file has now, `ends` are how the old and the new file
    end, with what was moved over already, `at` is when it happened (monotonic).
    """

    fingerprint: Fingerprint
    temporary: str
    ends: tuple[End, End]
    at: float


def replace(
    session: OpenSession,
    temporary: str,
    splices: Iterable[Splice],
    signs: Signs,
    quiet_for: float,
    filled: Callable[[int, tuple[End, End]], None] = lambda *_: None,
) -> Exchange:
    """Put the spliced content in the place of the session, or raise RefusedError with it untouched.

    `splices` are in order of offset and do not overlap. `filled` is told the inode of the new
    file and both ends once that is durable and before anything else happens. `signs` are
    read before the lease, whether the agent has begun a run, and only compared under it. Raise
    RolledBackError where the session is as it was, but the new content stood under its name for
    an instant: somebody may have read it.
    After an OSError before the exchange the session is untouched and nothing of ours stands beside
    it; after one that comes later, both files are there, for `rewrite.recover`.
    """
    new = os.open(temporary, _TEMPORARY, 0o600, dir_fd=session.directory)
    try:
        try:
            replaced, end = fill(session, new, splices)
            ends = retire.end_of(session.descriptor, session.fingerprint.size), end
            filled(os.fstat(new).st_ino, ends)
            leased = _exchange(session, new, temporary, signs, quiet_for)
        except BaseException:
            _remove_unless_exchanged(session, new, temporary)
            raise
        # From here on somebody may write into either file: only `retire` removes one.
        if leased:
            ends = _see_openers_off(session, new, temporary, replaced, ends)
        return Exchange(Fingerprint.of(os.fstat(new)), temporary, ends, time.monotonic())
    finally:
        os.close(new)


def _ends(session: OpenSession, new: int, old_size: int, new_size: int) -> tuple[End, End]:
    return retire.end_of(session.descriptor, old_size), retire.end_of(new, new_size)


def _exchange(
    session: OpenSession, new: int, temporary: str, signs: Signs, quiet_for: float
) -> bool:
    """Give the new file the session's name; tell whether both files are leased now."""
    try:
        _exchange_leased(session, new, temporary, signs)
    except leases.LeaseUnsupportedError:
        unleased.exchange(session, temporary, signs, quiet_for)
        return False
    return True


def _exchange_leased(session: OpenSession, new: int, temporary: str, signs: Signs) -> None:
    old = session.descriptor
    try:
        _lease_both(session, new, signs)
        refuse_if("" if leases.held(old) else "somebody is opening the file")
        try:
            leases.exchange(session.directory, temporary, session.file.name)
        except FileNotFoundError as error:
            raise RefusedError("the file was deleted meanwhile") from error
    except BaseException:
        leases.drop(old)
        leases.drop(new)
        raise


def _lease_both(session: OpenSession, new: int, signs: Signs) -> None:
    """Take both leases on a session that is as it was, and whose agent is not at work.

    Under them nothing is read that takes time, since whoever opens the file waits: the signs are
    read before, and where they changed meanwhile they are read again without the leases.
    """
    why = None
    for _ in range(_READINGS):
        refuse_if(signs.read())
        taken = leases.take(new) and leases.take(session.descriptor)
        refuse_if("" if taken else "somebody has the file open")
        refuse_if(session.differs())
        why = signs.changed()
        if why is None:
            return
        leases.drop(session.descriptor)
        leases.drop(new)
    refuse_if(why)


def _see_openers_off(
    session: OpenSession,
    new: int,
    temporary: str,
    replaced: list[Replacement],
    ends: tuple[End, End],
) -> tuple[End, End]:
    """Make the exchange durable, move over what came late, and give the leases back."""
    try:
        if retire.inode(session.directory, temporary) != session.fingerprint.inode:
            _exchange_back(session, new, temporary, ends, "the file was replaced meanwhile")
        os.fsync(session.directory)
        return _catch_late_openers(session, new, temporary, replaced, ends)
    finally:
        leases.drop(session.descriptor)
        leases.drop(new)


def _catch_late_openers(
    session: OpenSession,
    new: int,
    temporary: str,
    replaced: list[Replacement],
    ends: tuple[End, End],
) -> tuple[End, End]:
    """Move over what somebody who opened the old file appends, while the new one is still leased.

    Give how both end then. Whoever did anything but append has written a newer history: the old
    file gets its name back.
    """
    old = session.descriptor
    deadline = time.monotonic() + WAIT_FOR_OPENERS
    while leases.held(old):
        if time.monotonic() > deadline:
            return ends
        time.sleep(0.001)
    leases.drop(old)
    deadline = time.monotonic() + WAIT_FOR_CLOSING
    while not leases.no_writers(old):  # a pager that came late may go on reading the old file
        if time.monotonic() > deadline:
            _exchange_back(session, new, temporary, ends, "somebody keeps the file open")
        time.sleep(0.0005)
    if not _same_outside(session, new, replaced):
        _exchange_back(session, new, temporary, ends, "the agent rewrote the file meanwhile")
    late = b"".join(read_range(old, session.fingerprint.size, os.fstat(old).st_size))
    if late:
        try:
            retire.write(new, late)
        except BaseException:
            os.ftruncate(new, ends[1].size)  # still leased: nobody has written behind it
            raise
        os.fsync(new)
    return _ends(session, new, ends[0].size + len(late), ends[1].size + len(late))


def _same_outside(session: OpenSession, new: int, replaced: list[Replacement]) -> bool:
    """Tell whether the old file still says, outside what was replaced, what the new one says."""
    old_at = new_at = 0
    whole = session.fingerprint.size
    for start, end, length in [*replaced, (whole, whole, 0)]:
        kept = read_range(session.descriptor, old_at, start)
        for mine, theirs in zip_longest(kept, read_range(new, new_at, new_at + start - old_at)):
            if mine != theirs:
                return False
        new_at += start - old_at + length
        old_at = end
    return os.fstat(session.descriptor).st_size >= whole


def _exchange_back(
    session: OpenSession, new: int, temporary: str, ends: tuple[End, End], why: str
) -> NoReturn:
    """Give the old file its name back; what was written to the new one is moved over to it.

    Where the agent has put another file in the session's place meanwhile, that one keeps the name,
    and what was written to the old one is moved over to it.
    """
    directory, name = session.directory, session.file.name
    leases.exchange(directory, temporary, name)
    ours = retire.inode(directory, temporary) == os.fstat(new).st_ino
    if not ours:
        leases.exchange(directory, temporary, name)
    os.fsync(directory)
    time.sleep(WAIT_FOR_OPENERS)  # for openers that had resolved the name that stood until now
    leases.drop(session.descriptor)  # or what is moved over would wait for ourselves
    leases.drop(new)
    if ours:
        _read_only(new, temporary, directory)
    retire.retire(
        directory, name, temporary, ends=ends[::-1] if ours else ends,
        leased=new if ours else session.descriptor,
        mate=session.fingerprint.inode if ours else os.fstat(new).st_ino,
        deadline=time.monotonic() + retire.LOOK_BACK_LONGEST,
    )  # fmt: skip
    raise RolledBackError(why)


def _read_only(new: int, temporary: str, directory: int) -> None:
    """Open the descriptor anew for reading only: it can get a lease then although others read."""
    reading = os.open(temporary, os.O_RDONLY | retire.CAREFULLY, dir_fd=directory)
    os.dup2(reading, new, inheritable=False)
    os.close(reading)


def _remove_unless_exchanged(session: OpenSession, new: int, temporary: str) -> None:
    """Remove the new file, unless the exchange happened: its temporary name is the old one's then.

    An error of removing it is raised: the journal must go on naming the file.
    """
    if retire.inode(session.directory, temporary) == os.fstat(new).st_ino:
        with suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=session.directory)
