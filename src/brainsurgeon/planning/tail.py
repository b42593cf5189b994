"""Find the first line of a session whose fate can still change: the next look begins there.

What costs what: a look at a whole session grows with the session, and with the extractions
recorded for it. One that begins where this says grows with what was appended and with the tail
that is looked at again: the recent messages as far as the rules keep something in them, values
that were put back a short while ago, and what would go if more were to go with it.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from brainsurgeon.model.entries import OLD, value_at
from brainsurgeon.model.sessions import NO_SURVEY, Survey
from brainsurgeon.planning.rules import Extract, extract

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from brainsurgeon.formats.base import Format
    from brainsurgeon.model.entries import Entry, Line, Part
    from brainsurgeon.model.plans import Plan
    from brainsurgeon.planning.rules import EntryState, Rules


# It rises whenever the planner, or what is said here, decides otherwise of the same bytes.
VERSION = 1
# What is said of a session to an entry that many others have followed.
_LONG_AGO = Survey(0, MappingProxyType({}), None, last_user=sys.maxsize)
# So many lines that something is to go from are remembered; then the first of them counts.
_MOST_GOING = 1000


class Frontier:
    """Follows the planner over the lines, and remembers the first whose fate can still change.

    A line's fate is open where a value stays in it that would go if its entry were old, its
    protection over, or its branch dead or alive again. A line that is not terminated is open, too.
    Whatever else stays, stays for good, unless lines that are appended say something of older ones
    or something is asked for: that is for the caller to see.

    `since` is where the survey says that it has to begin; None switches everything off. With
    `remembers` the agent is one that may seal thinking in front of values cut long ago;
    `placeholders` says that some stand in front of the first line.
    """

    def __init__(
        self, since: int | None = None, *, remembers: bool = False, placeholders: bool = False
    ) -> None:
        self.placeholders, self.doubts = placeholders, placeholders and remembers
        self._since, self._remembers, self._survey = since, remembers, NO_SURVEY
        self._forget()

    def _forget(self) -> None:
        self._at: tuple[int, int] = (0, 1)
        self._open: tuple[int, int] | None = None
        self._begin: tuple[int, int] | None = None
        self._going: list[tuple[int, int]] = []
        self._dead = False

    def follow(self, lines: Iterable[Line], survey: Survey) -> Iterator[Line]:
        """Yield the lines, and know of everything said meanwhile which one it is said of."""
        self._forget()
        self._survey = survey
        for line in lines:
            self._at = (line.offset, line.number)
            if line.offset == self._since:
                self._begin = self._at
            if not line.terminated:
                self._wait()
            yield line

    def judged(
        self, form: Format, line: Line, entry: Entry, here: EntryState,
        parts: Iterable[tuple[Part, bool]], rules: Rules, now: float,
    ) -> None:  # fmt: skip
        """Hear of the parts of an entry, each with whether it is to go."""
        if self._since is None:
            return
        why = self._survey.dead(line.offset)
        self._dead |= why is not None
        if self._open:
            return
        judged = list(parts)
        if any(goes for _, goes in judged) and len(self._going) < _MOST_GOING:
            self._going.append(self._at)
        aged = why is None and here.position == OLD and here.restored_at is None
        if aged and not any(part.locked for part, _ in judged):
            return  # nothing about it can change: it was judged as if it were as old as can be
        old = replace(here, position=OLD, restored_at=None)
        later = {part.path: part for part in form.parts(entry, _LONG_AGO, line.offset)}
        for part, goes in judged:
            value, then = value_at(entry, part.path), later.get(part.path, part)
            ways = (replace(old, dead=dead) for dead in {None, why, here.dead})
            if not goes and any(isinstance(extract(then, value, way, rules, now), Extract)
                                for way in ways):  # fmt: skip
                self._wait()
                return

    def sealed(self, line: Line, *, placeholders: bool) -> None:
        """Hear that a seal stands in a line, and whether placeholders were met in front of it.

        Whether it may have been made in front of other values hangs on which entries are live.
        """
        dead = self._dead or self._survey.dead(line.offset) is not None
        if self._remembers and dead and (placeholders or self.placeholders):
            self._wait()

    def begin(self, planned: Plan) -> tuple[int, int] | None:
        """Return the offset and the number of the line with which the next look may begin.

        None where it has to look at everything: the format does not say what may reach back, or
        what is to go cannot be told line by line.
        """
        if self._begin is None:
            return None
        first = [self._begin, *([self._open] if self._open else [])]
        start = planned.edits[0].start if planned.edits else None
        if start is not None and (self._open is None or start < self._open[0]):
            before = [one for one in self._going if one[0] <= start]
            if not before:
                return None
            first.append(before[-1])
        return min(first)

    def _wait(self) -> None:
        self._open = self._open or self._at
