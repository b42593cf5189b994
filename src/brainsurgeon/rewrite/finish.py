"""The end of a rewrite: the old file goes when nobody can write into it any more.

Rewrites whose time has come together share the sync of their directory and the commit that closes
them in the journal.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.rewrite import recover
from brainsurgeon.sessions import retire
from brainsurgeon.sessions.late_lines import Place

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from brainsurgeon.model.plans import Edit
    from brainsurgeon.model.sessions import Fingerprint
    from brainsurgeon.sessions.exchange import Exchange
    from brainsurgeon.store import Store


_HURRY = 0.2
# Seconds for which a rewrite whose time has come waits for others.
_LATEST = 0.2
# How many sessions share their commits.
TOGETHER = 16
UNFINISHED = (
    "the old file stays beside the session, since somebody has it open; the next command ends it"
)


class Finishing(Protocol):
    """A session that was changed, in either medium."""

    def finish(self, *, hurry: bool = False) -> bool:
        """Clean up; return False where that has to wait."""


class Directories:
    """Descriptors of directories, which the rewrites of a group share until the last has ended."""

    def __init__(self) -> None:
        self._open: dict[tuple[int, int], int] = {}
        self._holders: Counter[tuple[int, int]] = Counter()

    def hold(self, descriptor: int, held: ExitStack) -> int:
        """Return a descriptor of the same directory, which is open for as long as this is held."""
        above = os.fstat(descriptor)
        place = above.st_dev, above.st_ino
        if place not in self._open:
            self._open[place] = os.dup(descriptor)
        self._holders[place] += 1
        held.callback(self._let_go, place)
        return self._open[place]

    def _let_go(self, place: tuple[int, int]) -> None:
        self._holders[place] -= 1
        if not self._holders[place]:
            os.close(self._open.pop(place))


@dataclass(frozen=True, slots=True)
class Rewrite:
    """A session whose file was exchanged and whose old file is not gone yet.

    It holds the session's lock, and a descriptor of its directory, until it is finished.
    All of its plan was carried out, so that nothing is `left`.
    """

    store: Store
    journal_id: int
    directory: int
    name: str
    exchanged: Exchange
    stored: int
    held: ExitStack
    done: tuple[Edit, ...] = ()
    left: str | None = None

    @property
    def fingerprint(self) -> Fingerprint:
        """The state of the session as it was left."""
        return self.exchanged.fingerprint

    @property
    def due(self) -> float:
        """When (monotonic) the old file may be looked at for the last time."""
        return self.exchanged.at + retire.LOOK_BACK

    def finish(self, *, hurry: bool = False) -> bool:
        """Wait until the rewrite is due, remove the old file, let go of the session.

        With `hurry` (the program is being stopped) nothing is waited for. Return False where the
        old file cannot go now, above all because somebody keeps it open: then it stays, the
        journal goes on naming it, and the next recovery finishes.
        """
        return finish_together([self], hurry=hurry) == []

    def remove(self, deadline: float | None) -> None:
        """Remove the old file; its directory is not synced and the journal not closed yet.

        Somebody may keep it open until `deadline` (monotonic), or until two seconds have passed.
        """
        if deadline is None:
            deadline = self.exchanged.at + retire.LOOK_BACK_LONGEST
        ledger = recover.JournalLedger(self.store, self.journal_id)
        with recover.noting_what_stays(self.store, self.journal_id):
            retire.retire(
                Place(self.directory, self.name, self.exchanged.temporary, ledger),
                ends=self.exchanged.ends, deadline=deadline, mate=self.exchanged.fingerprint.inode,
                synced=False,
            )  # fmt: skip


def finish_together(rewrites: Sequence[Rewrite], *, hurry: bool = False) -> list[Rewrite]:
    """Finish rewrites of one store as `Rewrite.finish` does; give those that have to wait."""
    with ExitStack() as held:
        for one in rewrites:
            held.push(one.held)
        try:
            deadline = time.monotonic() + _HURRY if hurry else None
            if not hurry:
                due = max((one.due for one in rewrites), default=0.0)
                time.sleep(max(0.0, due - time.monotonic()))
            return _remove(rewrites, deadline)
        except (OSError, BrainsurgeonError):
            return list(rewrites)
        except BaseException:
            with suppress(OSError, BrainsurgeonError):
                _remove(rewrites, time.monotonic() + _HURRY)
            raise


def _remove(rewrites: Sequence[Rewrite], deadline: float | None) -> list[Rewrite]:
    """Remove the old files, then close the journal; give the rewrites of which one stays."""
    gone = []
    for one in rewrites:
        with suppress(OSError, BrainsurgeonError):
            one.remove(deadline)
            gone.append(one)
    places = {}
    for one in gone:
        above = os.fstat(one.directory)
        places[above.st_dev, above.st_ino] = one.directory
    for directory in places.values():
        os.fsync(directory)
    if gone:
        store = gone[0].store
        with store.transaction():
            for one in gone:
                store.journal.close(one.journal_id)
    return [one for one in rewrites if one not in gone]


class Unfinished:
    """The rewrites of a run whose old files are not gone yet."""

    def __init__(self) -> None:
        self._waiting: list[Rewrite] = []

    def add(self, came: Iterable[Finishing | Exception]) -> None:
        """Take the sessions that were changed, of those that were to be."""
        self._waiting += [one for one in came if isinstance(one, Rewrite)]
        self._waiting.sort(key=lambda one: one.due)

    def finish_due(self) -> list[str]:
        """Finish what may be finished now, as many at once as there are; name what has to wait.

        It is asked for every file that is looked at, so it looks at no more than two that wait.
        """
        now, first = time.monotonic(), self._waiting[:TOGETHER]
        enough = len(first) == TOGETHER and first[-1].due <= now
        if not enough and not (first and first[0].due + _LATEST <= now):
            return []
        return self._finish(sum(one.due <= now for one in first), hurry=False)

    def finish_all(self, *, hurry: bool) -> list[str]:
        """Finish everything; name what has to wait for the next recovery."""
        late = []
        while self._waiting:
            late += self._finish(TOGETHER, hurry=hurry)
        return late

    def _finish(self, count: int, *, hurry: bool) -> list[str]:
        those, self._waiting = self._waiting[:count], self._waiting[count:]
        try:
            return [one.name for one in finish_together(those, hurry=hurry)]
        except BaseException:
            finish_now(self._waiting)
            raise


def finish_now(rewrites: Iterable[Finishing]) -> None:
    """Finish what can be finished at once, on the way out of a command that was told to stop."""
    for rewrite in rewrites:
        with suppress(Exception):
            rewrite.finish(hurry=True)
