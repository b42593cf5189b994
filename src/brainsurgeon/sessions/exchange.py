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

import dataclasses
import os
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from brainsurgeon.model.sessions import Fingerprint
from brainsurgeon.sessions import leases, tails, unleased
from brainsurgeon.sessions.moving import Ledger, Place, inode
from brainsurgeon.sessions.new_file import fill
from brainsurgeon.sessions.openers import LateOpeners
from brainsurgeon.sessions.reading import RefusedError, refuse_if

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from brainsurgeon.model.sessions import End, Signs
    from brainsurgeon.sessions.new_file import Splice
    from brainsurgeon.sessions.reading import OpenSession

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
    ledger: Ledger | None = None,
) -> Exchange:
    """Put the spliced content in the place of the session, or raise RefusedError with it untouched.

    `splices` are in order of offset and do not overlap. `filled` is told the inode of the new
    file and both ends once that is durable and before anything else happens, `ledger` what is
    moved over. `signs` are read before the lease, whether the agent has begun a run, and only
    compared under it. Raise RolledBackError where the session is as it was, but the new content
    stood under its name for an instant: somebody may have read it. After an OSError before the
    exchange the session is untouched and nothing of ours stands beside it; after one that comes
    later, both files are there, for `rewrite.recover`.
    """
    new = os.open(temporary, _TEMPORARY, 0o600, dir_fd=session.directory)
    try:
        try:
            replaced, end = fill(session, new, splices)
            ends = tails.end_of(session.descriptor, session.fingerprint.size), end
            filled(os.fstat(new).st_ino, ends)
            begun = time.monotonic()
            leased = _exchange(session, new, temporary, signs, quiet_for)
        except BaseException:
            _remove_unless_exchanged(session, new, temporary)
            raise
        # From here on somebody may write into either file: only `retire` removes one.
        if leased:
            place = Place(session.directory, session.file.name, temporary, ledger or Ledger())
            ends = LateOpeners(session, new, place, replaced, ends, begun).see_off()
        seen = dataclasses.replace(Fingerprint.of(os.fstat(new)), size=ends[1].size)
        return Exchange(seen, temporary, ends, time.monotonic())
    finally:
        os.close(new)


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


def _remove_unless_exchanged(session: OpenSession, new: int, temporary: str) -> None:
    """Remove the new file, unless the exchange happened: its temporary name is the old one's then.

    An error of removing it is raised: the journal must go on naming the file.
    """
    if inode(session.directory, temporary) == os.fstat(new).st_ino:
        with suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=session.directory)
