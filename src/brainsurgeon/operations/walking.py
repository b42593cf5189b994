"""Which sessions a pass has to come by: those in files, and those in databases that changed."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from brainsurgeon.sessions.discover import discover, discover_at
from brainsurgeon.sessions.row_listing import list_rows, list_rows_at, mark_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from brainsurgeon.hosts.databases import DatabaseState
    from brainsurgeon.model.sessions import Root, SessionFile, Unreadable
    from brainsurgeon.store.memory import FileMemory


class Walk:
    """One walk over the roots; `resting` counts the sessions that it did not have to yield.

    A walk over everything looks at every directory and has one stat for each file; one at named
    paths looks at these alone. `own` gives the times that we noted in databases ourselves.
    """

    def __init__(
        self, roots: Sequence[Root], memory: FileMemory, own: Callable[[], Mapping[str, int]],
        now: float,
    ) -> None:  # fmt: skip
        self._roots, self._memory, self._own, self._now = roots, memory, own, now
        self.resting = 0

    def everything(self) -> Iterator[SessionFile | Unreadable]:
        """Yield every session that may need a look; of files that rest nothing is built."""
        yield from discover(
            self._roots, format_of=self._memory.format_of, resting=self._memory,
            recorded=self._memory.recorded,
        )  # fmt: skip
        self.resting += self._memory.resting
        yield from list_rows(self._roots, self._own(), self._rests)

    def at(self, paths: Collection[str]) -> Iterator[SessionFile | Unreadable]:
        """Yield what lies at these paths: a file, a session in a database, or all those in one."""
        for path in sorted(paths):
            item = discover_at(self._roots, path, self._memory.format_of)
            if item:
                yield item
            elif _may_be_in_database(path):
                yield from list_rows_at(self._roots, path, self._own())

    def _rests(self, path: str, state: DatabaseState) -> bool:
        """Return whether a database need not be opened, and count the sessions in it then."""
        sessions = self._memory.idle(path, mark_of(state), self._now)
        self.resting += len(sessions or ())
        return sessions is not None


def _may_be_in_database(path: str) -> bool:
    """Tell whether a path is a file, or goes on behind the path of one: a session that is gone.

    Only then are the databases of all agents gone through.
    """
    while path not in ("", "/"):
        if os.path.isfile(path):
            return True
        path = os.path.dirname(path)
    return False
