"""What the planner finds on its walk over the lines of a session."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from brainsurgeon.model.edits import Cut, Edit, FieldEdit, Putback
from brainsurgeon.model.entries import FIELDS, STUB_PREFIX

if TYPE_CHECKING:
    from collections.abc import Iterator

    from brainsurgeon.decide.fields import FieldWishes

_UNSURE = "nobody can tell whether it is the entry that was recorded"
_OURS = re.compile(b"|".join(map(re.escape, (STUB_PREFIX, *(name.encode() for name in FIELDS)))))


class Ids:
    """The ids that stand in a file; where one stands twice, readers differ in which is meant."""

    def __init__(self) -> None:
        self.twice: set[str] = set()
        self._met: set[int] = set()

    def meet(self, ident: str) -> None:
        """Remember an id."""
        short = hash(ident)  # of a whole file, ids would take much room
        if short in self._met:
            self.twice.add(ident)
        self._met.add(short)

    def __contains__(self, ident: str) -> bool:
        return hash(ident) in self._met


@dataclass(slots=True)
class Draft:
    """The edits so far, by what they do, each with the id of the entry in whose line it stands."""

    cuts: list[tuple[str, Cut]] = field(default_factory=list)
    putbacks: list[tuple[str, Putback]] = field(default_factory=list)
    fields: list[tuple[str, FieldEdit]] = field(default_factory=list)

    def add(self, ident: str | None, edits: list[Edit]) -> None:
        """Take the edits of one line."""
        for edit in edits:
            if isinstance(edit, Cut):
                self.cuts.append((ident or "", edit))
            elif isinstance(edit, Putback):
                self.putbacks.append((ident or "", edit))
            else:
                self.fields.append((ident or "", edit))


@dataclass(slots=True)
class Findings:
    """What the walk over the lines finds out, beside the edits.

    `waits` are the ids of entries (None: one without an id) in a last line that has no newline
    yet: what is wished for there waits. `asked` are the extractions whose stubs stand and are to
    go, each with its entry's id; `unexplained` are stubs of ours that no record puts back.
    """

    sighted: list[int] = field(default_factory=list)
    asked: dict[int, str] = field(default_factory=dict)
    unexplained: list[tuple[str, str]] = field(default_factory=list)
    restored: list[str] = field(default_factory=list)
    missed: list[tuple[str, str]] = field(default_factory=list)
    waits: set[str | None] = field(default_factory=set)

    def left(self, back: set[int]) -> Iterator[tuple[str, str]]:
        """Say of each stub that was to go and does not, with those put `back`, why it stays."""
        reasons = dict(self.missed)
        for ident, entry_id in self.asked.items():
            if ident not in back:
                waits = "its line has no newline yet" if entry_id in self.waits else _UNSURE
                yield entry_id, reasons.get(entry_id, waits)


@dataclass(frozen=True, slots=True)
class Mentions:
    """Tells whether a short line may hold a stub or field of ours, or is one asked for."""

    asked: frozenset[str]
    fields: FieldWishes
    calls: tuple[bytes, ...]

    def __call__(self, raw: bytes, ident: str | None) -> bool:
        """Tell it of a line with these bytes and the id of its entry."""
        return (
            (ident is not None and (ident in self.asked or self.fields.speak_of(ident)))
            or _OURS.search(raw) is not None
            or any(call in raw for call in self.calls)
        )
