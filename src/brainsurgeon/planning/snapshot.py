"""A session at the time of planning, and the first line for which decisions can still change."""

import sys
from collections.abc import Iterator, Sequence
from types import MappingProxyType

from msgspec import Struct
from msgspec.structs import replace

from brainsurgeon.formats.base import Format, ParsedLine
from brainsurgeon.model.entries import OLD, Line, Lines, Part, value_at
from brainsurgeon.model.plans import Plan
from brainsurgeon.model.records import Records, Request
from brainsurgeon.model.rules import Rules
from brainsurgeon.model.sessions import NO_SURVEY, Survey
from brainsurgeon.model.turns import ModelCall
from brainsurgeon.planning.rules import EntryState, Extract, extract


class Habits(Struct, frozen=True):
    # The agent can ask its provider to drop blocks with invalid signatures (`asked_to_drop`).
    drops_blocks: bool = False
    # The agent keeps a session in memory: new thinking may be signed together with values that were
    # extracted from the file long ago.
    remembers: bool = False


class Snapshot(Struct, frozen=True):
    lines: Lines
    form: Format
    survey: Survey
    records: Records
    now: float
    changed_at: float = 0.0
    # Seconds that a request to redact waits for the answer. A change of the session ends the wait.
    patience: float = 0.0
    branches_die_at: float = 0.0  # from then on, entries off the active branch are dead
    habits: Habits = Habits()

    @property
    def sets(self) -> dict[str, Request]:
        return {one.entry_id: one for one in self.records.requested("set") if one.entry_id}


# Increase this whenever the planner or this module decides differently about the same bytes.
VERSION = 6
# A survey for which every entry is old and before the last prompt.
LONG_AGO = Survey(0, MappingProxyType({}), None, last_user=sys.maxsize)


class Frontier:
    """Follows the planner over the lines, and notes the first line whose decisions may change.

    The caller must check whether appended lines or requests affect older lines. The next scan
    begins at `since` (see `Survey`) at the latest; if it is None, that scan reads all lines.
    `placeholders`: there are some before the scanned lines. `lost` of them have no stored value.
    """

    def __init__(
        self, since: int | None = None, *, remembers: bool = False, placeholders: bool = False,
        lost: int = 0,
    ) -> None:  # fmt: skip
        self.lost = lost
        self.placeholders, self.doubts = placeholders, placeholders and remembers
        self.calls: dict[int, ModelCall] | None = None  # None: the planner collects no calls
        self._since, self._remembers, self._survey = since, remembers, NO_SURVEY

    def follow(self, session: Snapshot) -> Iterator[Line]:
        """Yield the lines. `judged` and `wait` are about the line yielded last."""
        self._at: tuple[int, int] = (0, 1)
        self._open: tuple[int, int] | None = None
        self._begin: tuple[int, int] | None = None
        self._going: tuple[int, int] | None = None  # the first line with removals
        self._dead = False
        self._survey = session.survey
        for line in session.lines:
            self._at = (line.offset, line.number)
            if line.offset == self._since:
                self._begin = self._at
            if not line.terminated:
                self.wait()
            yield line

    def judged(
        self, session: Snapshot, rules: Rules, parsed: ParsedLine, here: EntryState,
        parts: Sequence[tuple[Part, bool]],
    ) -> None:  # fmt: skip
        if self._since is None:
            return
        why = self._survey.dead(parsed.offset)
        self._dead |= why is not None
        if self._open:
            return
        if any(goes for _, goes in parts):
            self._going = self._going or self._at
        stays = [part for part, goes in parts if not goes]
        aged = why is None and here.position == OLD and here.restored_at is None
        if not stays or (aged and not any(part.locked for part in stays)):
            return  # nothing can change: the values that stay were judged as old and unlocked
        old = replace(here, position=OLD, restored_at=None)
        states = [replace(old, dead=dead) for dead in {None, why, here.dead}]
        later = {part.path: part for part in session.form.parts(
            parsed.entry, LONG_AGO, parsed.offset
        )}  # fmt: skip
        for part in stays:
            value, then = value_at(parsed.entry, part.path), later.get(part.path, part)
            decisions = (extract(then, value, state, rules, session.now) for state in states)
            if any(isinstance(decision, Extract) for decision in decisions):
                self.wait()
                return

    def signed(self, offset: int, *, placeholders: bool) -> None:
        # Whether the signature is doubtful depends on which entries are live.
        dead = self._dead or self._survey.dead(offset) is not None
        if self._remembers and dead and (placeholders or self.placeholders):
            self.wait()

    def begin(self, planned: Plan) -> tuple[int, int] | None:
        """Return offset and number of the first line of the next scan; None means all lines."""
        if self._begin is None:  # it is unknown which old lines an appended line may affect
            return None
        first = [place for place in (self._begin, self._open) if place]
        start = planned.edits[0].start if planned.edits else None
        if start is not None and (self._open is None or start < self._open[0]):
            if self._going is None or self._going[0] > start:
                return None  # the removals cannot be decided line by line
            first.append(self._going)
        return min(first)

    def wait(self) -> None:
        self._open = self._open or self._at
