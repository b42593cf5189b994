"""What the planner finds on its walk over the lines of a session."""

from __future__ import annotations

import re
from array import array
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

from brainsurgeon.model.edits import Cut, Putback
from brainsurgeon.model.entries import FIELDS, STUB_PREFIX
from brainsurgeon.model.packed import Edits
from brainsurgeon.model.turns import MARK

if TYPE_CHECKING:
    from collections.abc import Iterator

    from brainsurgeon.decide.fields import FieldWishes
    from brainsurgeon.decide.matching import Matcher
    from brainsurgeon.model.edits import Edit

_UNSURE = "nobody can tell whether it is the entry that was recorded"
_OURS = re.compile(
    b"|".join(map(re.escape, (STUB_PREFIX, MARK.encode(), *(name.encode() for name in FIELDS))))
)


class Ids:
    """The ids that stand in a file; where one stands twice, readers differ in which is meant.

    What stands there is asked only once all of them were met.
    """

    def __init__(self) -> None:
        self._met = array("q")
        self._known: set[int] = set()

    def meet(self, ident: str) -> None:
        """Remember an id."""
        self._met.append(hash(ident))  # of a whole file, ids would take much room

    def __contains__(self, ident: str) -> bool:
        if not self._known:  # few sessions ever ask
            self._known.update(self._met)
        return hash(ident) in self._known

    def twice(self) -> Twice:
        """Tell, once all were met, which stand there more than once."""
        ranked = array("q", sorted(self._met))
        return Twice(frozenset(one for one, other in pairwise(ranked) if one == other))


@dataclass(frozen=True, slots=True)
class Twice:
    """The ids that stand more than once in a file, by their hashes."""

    hashes: frozenset[int]

    def __contains__(self, ident: str) -> bool:
        return bool(self.hashes) and hash(ident) in self.hashes


@dataclass(slots=True)
class Draft:
    """The edits so far, in the order of the file.

    `named` are the ids of entries in whose lines something goes back that is recorded of another
    id, by the places of those edits.
    """

    edits: Edits = field(default_factory=Edits)
    named: dict[int, str] = field(default_factory=dict)

    def add(self, ident: str | None, edits: list[Edit]) -> None:
        """Take the edits of one line."""
        for edit in sorted(edits, key=lambda one: (one.start, one.end)):
            if edit.entry_id != (ident or ""):
                self.named[edit.start] = ident or ""
            self.edits.add(edit)

    def sure(self, ids: Ids, twice: Twice, matcher: Matcher) -> tuple[Edits, list[Cut]]:
        """Give what still holds once the whole file is known, and the cuts that do not."""
        if not (twice.hashes or matcher.moved):
            return self.edits, []
        sure, vetoed = Edits(), []
        for edit in self.edits:
            ident = self.named.get(edit.start, edit.entry_id)
            if isinstance(edit, Putback):
                owner = matcher.moved.get(edit.extraction_id)
                if owner is None or owner not in ids or ident == owner:
                    sure.add(edit)
            elif ident not in twice:
                sure.add(edit)
            elif isinstance(edit, Cut):
                vetoed.append(edit)
        return sure, vetoed


@dataclass(slots=True)
class Findings:
    """What the walk over the lines finds out, beside the edits.

    `sighted` are the extractions that stand there; of those that are `supposed` to, the entry has
    another id than the recorded one. `waits` are the ids of entries (None: one without an id) in a
    last line that has no newline yet: what is wished for there waits. `asked` are the extractions
    whose stubs stand and are to go, each with its entry's id; `unexplained` are stubs of ours that
    no record puts back.
    """

    sighted: list[int] = field(default_factory=list)
    supposed: list[int] = field(default_factory=list)
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
