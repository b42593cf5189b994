"""Judge every part of an entry by the rules, and keep count of what stays and why."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

from brainsurgeon.decide.extract import (
    EntryState,
    Extract,
    Keep,
    extract,
    read_extractable,
    read_restored,
)
from brainsurgeon.model.entries import EXTRACTABLE, REDACTED, value_at
from brainsurgeon.model.plans import Amount, KeptPart
from brainsurgeon.model.sessions import OFF_BRANCH

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping

    from brainsurgeon.decide.resume import Frontier
    from brainsurgeon.decide.rules import Rules
    from brainsurgeon.formats.base import Format
    from brainsurgeon.model.entries import Entry, KeyPath, Kind, Line, Part
    from brainsurgeon.model.records import Extraction, Records, Wish
    from brainsurgeon.model.sessions import Survey

_MOST_WARNINGS = 100


class WindowTooSmallError(Exception):
    """An entry asks for a larger window (in messages) than the survey has looked at."""

    def __init__(self, window: int) -> None:
        self.window = window


class Tally:
    """Counts what stays, by kind, tool and reason, and when time alone may change that."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str | None, str], list[int]] = defaultdict(lambda: [0, 0])
        self._due: list[float] = []
        self._unsent: dict[tuple[str, str | None], list[int]] = defaultdict(lambda: [0, 0])

    def keep(self, part: Part, why: Keep) -> None:
        """Count a part that stays."""
        self.count(part.kind, part.tool, why.reason, part.chars)
        if why.until is not None:
            self.due(why.until)

    def count(self, kind: Kind, tool: str | None, reason: str, chars: int) -> None:
        """Count one value that stays."""
        counts = self._counts[kind, tool, reason]
        counts[0] += 1
        counts[1] += chars

    def never_sent(self, part: Part) -> None:
        """Count one value that no request carries, whether it stays or goes."""
        counts = self._unsent[part.kind, part.tool]
        counts[0] += 1
        counts[1] += part.chars

    def due(self, moment: float) -> None:
        """Note that a decision changes by time alone at a moment."""
        self._due.append(moment)

    @property
    def kept(self) -> tuple[KeptPart, ...]:
        """What stays, the most characters first."""
        ranked = sorted(self._counts.items(), key=lambda item: -item[1][1])
        return tuple(KeptPart(*key, *counts) for key, counts in ranked)

    @property
    def unsent(self) -> tuple[Amount, ...]:
        """What no request carries, by kind and tool."""
        return tuple(Amount(*key, *counts) for key, counts in self._unsent.items())

    @property
    def due_at(self) -> float | None:
        """The first of the moments at which a decision changes."""
        return min(self._due, default=None)


class Judge:
    """Decides about the parts of one entry after the other.

    `branches_die_at` is when an entry off the active branch counts as dead.
    """

    def __init__(
        self, form: Format, survey: Survey, rules: Rules, records: Records,
        sets: Mapping[str, Wish], now: float, branches_die_at: float, frontier: Frontier,
    ) -> None:  # fmt: skip
        self.tally, self._frontier = Tally(), frontier
        self.withheld: dict[tuple[int, KeyPath], tuple[Part, Keep, str]] = {}
        self.warnings: list[str] = []
        self._form, self._survey, self._rules = form, survey, rules
        self._sets, self._pins, self._restores = sets, records.pins, records.restores
        self._now, self._branches_die_at = now, branches_die_at

    def judge(
        self, line: Line, entry: Entry, ident: str | None, standing: Iterable[Extraction],
        doubtful: Container[KeyPath] = (), taken: Container[KeyPath] = (), *, emptied: bool = False,
    ) -> list[tuple[Part, Extract]]:  # fmt: skip
        """Give the parts of an entry that are to go; the others are counted with their reasons.

        The `doubtful` among those that stay are `withheld`: only the end will tell. At the places
        that are `taken` stands another text of ours, or is to. An `emptied` entry is one of a turn
        that folds where it stands.
        """
        parts = list(self._form.parts(entry, self._survey, line.offset))
        if not parts and ident is not None and self._forced(ident):
            forced = {**entry, EXTRACTABLE: True}
            parts = list(self._form.parts(forced, self._survey, line.offset))
        if not parts:
            return []
        here = self.state(line, entry, ident, standing)
        here = replace(here, emptied=True) if emptied else here
        going: list[tuple[Part, Extract]] = []
        told = []
        for part in parts:
            if part.dead or here.dead:
                self.tally.never_sent(part)
            if part.path in taken:
                self.tally.keep(part, Keep("archived turn"))
                continue
            decision = extract(part, value_at(entry, part.path), here, self._rules, self._now)
            told.append((part, isinstance(decision, Extract)))
            if isinstance(decision, Keep) and part.path in doubtful:
                self.withheld[line.offset, part.path] = (part, decision, ident or "")
            elif isinstance(decision, Keep):
                self.tally.keep(part, decision)
            elif line.terminated:
                going.append((part, decision))
            else:
                self.tally.keep(part, Keep("the last line has no newline yet"))
        self._frontier.judged(self._form, line, entry, here, told, self._rules, self._now)
        return going

    def _forced(self, ident: str) -> bool:
        """Tell whether an entry was forced by a command that its line does not show yet."""
        wish = self._sets.get(ident)
        return (wish.value if wish else self._pins.get(ident)) is True

    def state(
        self, line: Line, entry: Entry, ident: str | None, standing: Iterable[Extraction] = ()
    ) -> EntryState:
        """Gather what an entry, its position and the store say about cutting it."""
        override, odd = read_extractable(entry)
        stamp, unusable = read_restored(entry, self._rules, self._now)
        for warning in (odd, unusable):
            if warning and len(self.warnings) < _MOST_WARNINGS:
                self.warnings.append(f"entry {ident}: {warning}")
        if ident is not None and ident in self._sets:
            override = self._sets[ident].value
        elif override is None and EXTRACTABLE not in entry and ident is not None:
            override = self._pins.get(ident)
        if type(override) is int and override > self._survey.window:
            raise WindowTooSmallError(override)
        remembered = self._restores.get(ident) if ident else None
        latest = self._now + self._rules.keep_after_restore
        stamps = [when for when in (stamp, remembered) if when is not None and when <= latest]
        return EntryState(
            ident, self._survey.position(line.offset), override, max(stamps, default=None),
            bool(entry.get(REDACTED)), frozenset(one.stub for one in standing if one.stub),
            self._dead(line.offset),
        )  # fmt: skip

    def _dead(self, offset: int) -> str | None:
        """Say why an entry is dead; a branch left just now may be taken up again any moment."""
        why = self._survey.dead(offset)
        if why == OFF_BRANCH and self._now < self._branches_die_at:
            self.tally.due(self._branches_die_at)
            return None
        return why
