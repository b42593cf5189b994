"""See off whoever had found the old file before the names were exchanged, and opens it after.

Both files are still leased then. What comes late is moved into the new file before anybody gets
at that, or everything is exchanged back. Exchanges in one directory are made side by side: they
share its sync and the time that has to pass, and nobody is held up for longer by that.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, NoReturn

from brainsurgeon.sessions import late_lines, leases, retire
from brainsurgeon.sessions.late_lines import CAREFULLY, inode, write
from brainsurgeon.sessions.reading import RolledBackError, read_range

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from brainsurgeon.model.sessions import End
    from brainsurgeon.sessions.late_lines import Place
    from brainsurgeon.sessions.new_file import Replacement
    from brainsurgeon.sessions.reading import OpenSession


# Seconds both leases are held after the exchange, for openers that had resolved the old name.
WAIT_FOR_OPENERS = 0.010
# Seconds such an opener gets to close the old file before everything is exchanged back.
WAIT_FOR_CLOSING = 0.5
# Seconds for which the leases are relied on: the kernel takes them away after 45 (fcntl(2)).
TRUSTED = 5.0


@dataclass(frozen=True, slots=True)
class LateOpeners:
    """Two files that have just exchanged their names, both leased.

    `new` is a descriptor of ours on the new file. `ends` are how the old and the new one ended.
    `begun` is a moment before the leases were taken, `at` one after the exchange (seconds of the
    monotonic clock).
    """

    session: OpenSession
    new: int
    place: Place
    replaced: Iterable[Replacement]
    ends: tuple[End, End]
    begun: float
    at: float

    def check_exchanged(self) -> None:
        """Exchange back and raise RolledBackError where another file had the session's name."""
        if inode(self.place.directory, self.place.temporary) != self.session.fingerprint.inode:
            self._exchange_back("the file was replaced meanwhile")

    def let_go(self) -> None:
        """Release the leases."""
        leases.drop(self.session.descriptor)
        leases.drop(self.new)

    def came(self) -> bool:
        """Check whether somebody has come late; who has is let through to the old file."""
        if leases.held(self.session.descriptor):
            return False
        leases.drop(self.session.descriptor)
        return True

    def catch(self, deadline: float, gone_by: float) -> tuple[End, End]:
        """Move over what somebody who opened the old file appends, while the new one is leased.

        He has until `deadline` (monotonic) to close it. Give how both end then. Whoever did
        anything but append has written a newer history: the old file gets its name back, and the
        new one is to be gone by `gone_by`, or stays for the next recovery.
        """
        old = self.session.descriptor
        while not leases.no_writers(old):  # a pager that came late may go on reading the old file
            if time.monotonic() > deadline:
                self._exchange_back("somebody keeps the file open", gone_by)
            time.sleep(0.0005)
        if not self._same_outside():
            self._exchange_back("the agent rewrote the file meanwhile", gone_by)
        return self._move()

    def _move(self) -> tuple[End, End]:
        """Move over what came late into the new file, which nobody else can have opened.

        Where we stood still somebody can have: then nothing is moved, and `retire` sees to it.
        """
        old, end = self.session.descriptor, self.ends[1]
        late = late_lines.tail_of(old, self.ends[0])
        if late:
            self.place.ledger.note({os.fstat(self.new).st_ino: end}, os.fstat(self.new).st_ino)
            if time.monotonic() > self.begun + TRUSTED:
                return self.ends
            try:
                write(self.new, late)
            except BaseException:
                os.ftruncate(self.new, end.size)
                raise
            os.fsync(self.new)
            os.fsync(old)  # the journal will say that it ends with these lines
        return (
            late_lines.end_of(old, self.ends[0].size + len(late)),
            late_lines.end_of(self.new, end.size + len(late)),
        )

    def _same_outside(self) -> bool:
        """Check whether both files say the same outside of what was replaced."""
        old_at = new_at = 0
        whole = self.session.fingerprint.size
        for start, end, length in [*self.replaced, (whole, whole, 0)]:
            mine = read_range(self.session.descriptor, old_at, start)
            theirs = read_range(self.new, new_at, new_at + start - old_at)
            if any(one != other for one, other in zip_longest(mine, theirs)):
                return False
            new_at += start - old_at + length
            old_at = end
        return os.fstat(self.session.descriptor).st_size >= whole

    def _exchange_back(self, why: str, gone_by: float | None = None) -> NoReturn:
        """Return the old file its name back; what was written to the new one is moved over to it.

        Where the agent has put another file in the session's place meanwhile, that one keeps the
        name, and what was written to the old one is moved over to it.
        """
        place, old = self.place, self.session.descriptor
        leases.exchange(place.directory, place.temporary, place.name)
        ours = inode(place.directory, place.temporary) == os.fstat(self.new).st_ino
        if not ours:
            leases.exchange(place.directory, place.temporary, place.name)
        os.fsync(place.directory)
        time.sleep(WAIT_FOR_OPENERS)  # for openers that had resolved the name that stood until now
        ends = self._ends_by_now() if ours else self.ends
        leases.drop(old)  # or what is moved over would wait for ourselves
        leases.drop(self.new)
        if ours:
            self._read_only()
        retire.retire(
            place, ends=ends[::-1] if ours else ends,
            leased=self.new if ours else old,
            mate=self.session.fingerprint.inode if ours else os.fstat(self.new).st_ino,
            deadline=gone_by or time.monotonic() + retire.LOOK_BACK_LONGEST, shared=ours,
        )  # fmt: skip
        raise RolledBackError(why)

    def _ends_by_now(self) -> tuple[End, End]:
        """Count what the old file was given until now as its own: the new one is leased still."""
        old, new = self.ends
        if late_lines.goes_on(self.session.descriptor, old):
            old = late_lines.end_now(self.session.descriptor)
        return old, new

    def _read_only(self) -> None:
        """Open the new file anew for reading only: it can get a lease then although others read."""
        place = self.place
        reading = os.open(place.temporary, os.O_RDONLY | CAREFULLY, dir_fd=place.directory)
        os.dup2(reading, self.new, inheritable=False)
        os.close(reading)


def see_off(those: Sequence[LateOpeners]) -> list[tuple[End, End] | Exception]:
    """Make exchanges in one directory durable, move over what came late, give the leases back.

    Give, for each, how its files end then, or the error that came of it.
    """
    seen: dict[int, tuple[End, End] | Exception] = {}
    try:
        if those:
            os.fsync(those[0].place.directory)
        came = await_openers(those)
        deadline = time.monotonic() + WAIT_FOR_CLOSING  # of all together: the next may wait, too
        gone_by = deadline + retire.LOOK_BACK_LONGEST  # as well: the others' new files are leased
        for number in came:
            seen[number] = _caught(those[number], deadline, gone_by)
        return [seen.get(number, one.ends) for number, one in enumerate(those)]
    except Exception as error:  # noqa: BLE001  it is the error of each
        return [seen.get(number, error) for number in range(len(those))]
    finally:
        for one in those:
            one.let_go()


def _caught(late: LateOpeners, deadline: float, gone_by: float) -> tuple[End, End] | Exception:
    try:
        return late.catch(deadline, gone_by)
    except Exception as error:  # noqa: BLE001  the others are seen off all the same
        return error
    finally:
        late.let_go()


def await_openers(those: Sequence[LateOpeners]) -> list[int]:
    """Hold the leases until nobody can be on the way any more; give which somebody came to.

    The leases of all others are given back.
    """
    waiting, came = dict(enumerate(those)), []
    while waiting:
        for number, one in list(waiting.items()):
            if one.came():
                came.append(number)
            elif time.monotonic() > one.at + WAIT_FOR_OPENERS:
                one.let_go()
            else:
                continue
            del waiting[number]
        if waiting:
            time.sleep(0.001)
    return came
