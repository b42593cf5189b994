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

Several sessions of one directory may be replaced side by side. Each goes through all of this; they
share the sync of the directory and the time for which late openers are waited for. What takes time
is done before the first lease is taken, so that nobody waits for a session other than his own.
"""

from __future__ import annotations

import dataclasses
import os
import re
import secrets
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from brainsurgeon.model.sessions import Fingerprint
from brainsurgeon.sessions import late_lines, leases
from brainsurgeon.sessions.late_lines import Ledger, Place, inode
from brainsurgeon.sessions.late_openers import LateOpeners, see_off
from brainsurgeon.sessions.new_file import fill
from brainsurgeon.sessions.reading import RefusedError, refuse_if

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from brainsurgeon.model.sessions import End, Signs
    from brainsurgeon.sessions.new_file import Replacement, Splice
    from brainsurgeon.sessions.reading import OpenSession


# How often the agent's signs are read when they keep changing.
_READINGS = 3

_OPEN = "somebody has the file open"
_NO_LEASES = "no lease can be had here ({}), and its root is not `exclusive`"

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


@dataclass(slots=True)
class Successor:
    """A file with the new content of a session, whole and durable, that is to get its name.

    `descriptor` is that of the new file, `ends` are how the old and the new file end. `result` is
    what came of it: None until then.
    """

    session: OpenSession
    temporary: str
    descriptor: int
    replaced: Iterable[Replacement]
    ends: tuple[End, End]
    result: Exchange | Exception | None = None

    @property
    def inode(self) -> int:
        """The number of the new file."""
        return os.fstat(self.descriptor).st_ino

    def close(self) -> None:
        """Close the new file, once."""
        if self.descriptor >= 0:
            descriptor, self.descriptor = self.descriptor, -1
            os.close(descriptor)

    def discard(self) -> None:
        """Remove the new file, unless the exchange happened: its name is the old one's then.

        An error of removing it is raised: the journal must go on naming the file.
        """
        if inode(self.session.directory, self.temporary) == self.inode:
            with suppress(FileNotFoundError):
                os.unlink(self.temporary, dir_fd=self.session.directory)

    def drop_leases(self) -> None:
        """Release the leases on both files."""
        leases.drop(self.session.descriptor)
        leases.drop(self.descriptor)

    def exchanged(self, ends: tuple[End, End]) -> None:
        """Note that it has the session's name, and how both files end now."""
        seen = dataclasses.replace(Fingerprint.of(os.fstat(self.descriptor)), size=ends[1].size)
        self.result = Exchange(seen, self.temporary, ends, time.monotonic())

    def refused(self, why: Exception) -> None:
        """Note that it does not get the session's name; it goes."""
        self.result = why
        try:
            self.discard()
        except OSError as error:
            self.result = error


def succeed(session: OpenSession, temporary: str, splices: Iterable[Splice]) -> Successor:
    """Write the spliced content beside the session; after an error nothing of ours stands there.

    `splices` are in order of offset and do not overlap. The caller closes the successor.
    """
    new = os.open(temporary, _TEMPORARY, 0o600, dir_fd=session.directory)
    nothing = late_lines.end_of(session.descriptor, 0)
    successor = Successor(session, temporary, new, [], (nothing, nothing))
    try:
        successor.replaced, end = fill(session, new, splices)
        successor.ends = late_lines.end_of(session.descriptor, session.fingerprint.size), end
    except BaseException:
        try:
            successor.discard()
        finally:
            successor.close()
        raise
    return successor


@dataclass(frozen=True, slots=True)
class Candidate:
    """A successor with what has the last word on it.

    `signs` are read before the lease, whether the agent has begun a run, and only compared under
    it. `ledger` is told what is moved over.
    """

    successor: Successor
    signs: Signs
    ledger: Ledger = field(default_factory=Ledger)


def check_closed(session: OpenSession) -> None:
    """Raise RefusedError where somebody has a session open now; whoever opens it later may.

    It spares all that would be written for nothing; what counts is the lease of the exchange.
    Where no lease can be had, the root has to be `exclusive`.
    """
    try:
        refuse_if(_OPEN if leases.open_elsewhere(session.descriptor) else "")
    except leases.LeaseUnsupportedError as why:
        refuse_if("" if session.file.exclusive else _NO_LEASES.format(why.strerror))


def by_directory(candidates: Iterable[Candidate]) -> list[list[Candidate]]:
    """Part candidates by the directory that they stand in, in the order in which they come."""
    parted: dict[object, list[Candidate]] = {}
    for one in candidates:
        above = os.fstat(one.successor.session.directory)
        parted.setdefault((above.st_dev, above.st_ino), []).append(one)
    return list(parted.values())


def replace(candidates: Sequence[Candidate]) -> None:
    """Put each successor in the place of its session; its `result` says what came of that.

    All of them stand in one directory. The result is a RefusedError where the session is
    untouched, a RolledBackError where it is as it was, but the new content stood under its name
    for an instant: somebody may have read it. After an OSError before the exchange the session is
    untouched and nothing of ours stands beside it; after one that comes later, both files are
    there, for `rewrite.recover`.
    """
    for last in (*[False] * (_READINGS - 1), True):
        left = [one for one in candidates if one.successor.result is None]
        if left:
            _side_by_side(left, last=last)


def _side_by_side(candidates: Sequence[Candidate], *, last: bool) -> None:
    """Replace sessions of one directory; those whose agent's signs just changed get no result.

    At the `last` reading they are refused.
    """
    exchanged: list[tuple[Successor, LateOpeners]] = []
    unleased: list[tuple[Candidate, leases.LeaseUnsupportedError]] = []
    try:
        for one in [one for one in candidates if _may_begin(one)]:
            begun = time.monotonic()
            try:
                why = _exchange_leased(one)
                refuse_if(why if last else None)
            except leases.LeaseUnsupportedError as error:
                unleased.append((one, error))
                continue
            except Exception as error:  # noqa: BLE001  one refusal is not that of the others
                one.successor.refused(error)
                continue
            # From here on somebody may write into either file: only `retire` removes one.
            if why is None and (late := _look_for_another(one, begun)):
                exchanged.append((one.successor, late))
        for (successor, _), ends in zip(
            exchanged, see_off([one for _, one in exchanged]), strict=True
        ):
            if isinstance(ends, Exception):
                successor.result = ends
            else:
                successor.exchanged(ends)
    finally:
        for one in candidates:
            one.successor.drop_leases()
    for one, why_not in unleased:
        _replace_unleased(one, why_not)


def _may_begin(one: Candidate) -> bool:
    """Read the signs of the agent, which may take time: nobody is kept waiting yet.

    A container may have been given the file since it was looked at: no lease shows that.
    """
    session = one.successor.session
    try:
        refuse_if(one.signs.read())
        refuse_if(leases.obstacle(session.directory, session.file.name, at_last=True))
    except Exception as error:  # noqa: BLE001  as above
        one.successor.refused(error)
    return one.successor.result is None


def _exchange_leased(one: Candidate) -> str | None:
    """Take both leases on a session that is as it was, and exchange the names under them.

    Give why not where the agent's signs are not what was read: then there are no leases either.
    """
    successor, session = one.successor, one.successor.session
    try:
        taken = leases.take(successor.descriptor) and leases.take(session.descriptor)
        refuse_if("" if taken else _OPEN)
        refuse_if(session.differs())
        why = one.signs.changed()
        if why is None:
            refuse_if("" if leases.held(session.descriptor) else "somebody is opening the file")
            try:
                leases.exchange(session.directory, successor.temporary, session.file.name)
            except FileNotFoundError as error:
                raise RefusedError("the file was deleted meanwhile") from error
            return None
    except BaseException:
        successor.drop_leases()
        raise
    successor.drop_leases()
    return why


def _look_for_another(one: Candidate, begun: float) -> LateOpeners | None:
    """Exchange back at once where another file had the session's name by then: None."""
    successor, session = one.successor, one.successor.session
    place = Place(session.directory, session.file.name, successor.temporary, one.ledger)
    late = LateOpeners(
        session, successor.descriptor, place, successor.replaced, successor.ends, begun,
        time.monotonic(),
    )  # fmt: skip
    try:
        late.check_exchanged()
    except Exception as error:  # noqa: BLE001  as above
        successor.result = error
        return None
    return late


def _replace_unleased(one: Candidate, why: leases.LeaseUnsupportedError) -> None:
    """Compare and exchange without a lease, below a root in which nobody else writes."""
    successor, session = one.successor, one.successor.session
    try:
        refuse_if("" if session.file.exclusive else _NO_LEASES.format(why.strerror))
        refuse_if(one.signs.read() or session.differs())
        leases.exchange(session.directory, successor.temporary, session.file.name)
        os.fsync(session.directory)
    except leases.LeaseUnsupportedError as error:
        successor.refused(RefusedError(str(error.strerror)))
    except Exception as error:  # noqa: BLE001  as above
        successor.refused(error)
    else:
        successor.exchanged(successor.ends)


# The names of our own temporary files: no agent takes them for a session.
TEMPORARY = re.compile(r"\.brainsurgeon-[0-9a-f]{16}\.tmp")


def new_temporary_name() -> str:
    """Make up the name of a temporary file."""
    return f".brainsurgeon-{secrets.token_hex(8)}.tmp"


def leases_work(directory: str) -> bool:
    """Check whether leases are granted in a directory, by one on a temporary file."""
    path = os.path.join(directory, new_temporary_name())
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o600)
    try:
        return leases.take(descriptor)
    except leases.LeaseUnsupportedError:
        return False
    finally:
        os.close(descriptor)
        os.unlink(path)
