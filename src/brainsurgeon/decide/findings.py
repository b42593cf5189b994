"""What the planner finds on its walk over the lines of a session."""

from __future__ import annotations

from dataclasses import dataclass, field

from brainsurgeon.model.edits import Cut, Edit, FieldEdit, Putback


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
    yet: what is wished for there waits.
    """

    sighted: list[int] = field(default_factory=list)
    restored: list[str] = field(default_factory=list)
    missed: list[tuple[str, str]] = field(default_factory=list)
    waits: set[str | None] = field(default_factory=set)
