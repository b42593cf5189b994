"""Gather the seals of a session on the planner's walk over its lines, and what may break them."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

from brainsurgeon.decide.seals import BROKEN, Seal, Seals, is_bound
from brainsurgeon.formats import base, spans
from brainsurgeon.formats.thinking import EMPTIED, is_hollow
from brainsurgeon.formats.verify import verify
from brainsurgeon.model.edits import Cut, FieldEdit
from brainsurgeon.model.entries import EXTRACTABLE, stub_id, value_at
from brainsurgeon.model.sessions import OFF_BRANCH
from brainsurgeon.model.turns import LINK

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Mapping

    from brainsurgeon.decide.rules import Rules
    from brainsurgeon.decide.seals import Habits
    from brainsurgeon.formats.base import Format, Thoughts
    from brainsurgeon.model.edits import Edit
    from brainsurgeon.model.entries import Entry, KeyPath, Line
    from brainsurgeon.model.records import Extraction, Records, Wish
    from brainsurgeon.model.sessions import Survey


class Gatherer:
    """Takes in line by line what there is to know of seals.

    `branches_live` says that what lies off the active branch may be taken up again any moment. The
    entries at the offsets in `leaving` leave it by this very rewrite.
    """

    def __init__(
        self, form: Format, survey: Survey, rules: Rules, records: Records,
        sets: Mapping[str, Wish], habits: Habits, *, branches_live: bool,
        leaving: Container[int] = (),
    ) -> None:  # fmt: skip
        self.seals = Seals()
        self._form, self._survey, self._rules = form, survey, rules
        self._sets, self._pins, self._habits = sets, records.pins, habits
        self._branches_live, self._leaving = branches_live, leaving
        self._bound: dict[tuple[str, ...], bool] = {}
        self._taken: dict[str, list[Extraction]] = defaultdict(list)
        for one in records.extractions:
            self._taken[one.entry_id].append(one)
        self._earliest, self._altered = math.inf, False

    def look(self, line: Line, raw: bytes, entry: Entry, ident: str | None) -> frozenset[KeyPath]:
        """Remember the seals of one line, and return their paths."""
        thoughts = self._form.thoughts(entry)
        if thoughts is None or not thoughts.blocks:
            return frozenset()
        bound = self._is_sealed(thoughts)
        if not bound and not self._rules.unseal:
            return frozenset()
        live, stays = self._is_live(line.offset), self._stays(line, entry, ident, thoughts)
        try:
            rest = self._form.rest(entry)
            cuts = [replace(cut, rest=rest) for cut in _cuts(line, raw, ident, thoughts)]
        except (spans.UntouchableError, RecursionError) as why:
            cuts, stays = [_nothing(line, ident)], str(why)
        self.seals.standing += [
            Seal(cut, live, stays, bound, hollow=is_hollow(value_at(entry, cut.path)))
            for cut in cuts
        ]
        return frozenset(path for path, _ in thoughts.blocks) if bound else frozenset()

    def unfit(
        self, line: Line, entry: Entry, back: Iterable[Extraction], standing: Iterable[Extraction]
    ) -> list[Extraction]:
        """Name those among the values asked for that are seals and fit no more.

        A seal that was taken out fits when everything in front of it stands as the agent wrote it,
        and stood so when the seal was made: nothing was cut there before the seal was.
        """
        wanted = list(back)
        emptied = [one for one in wanted if one.replacement == EMPTIED.decode()]
        thoughts = self._form.thoughts(entry) if emptied else None
        if thoughts is None or not self._is_sealed(thoughts):
            return []
        unsent = self.unsent(line, entry)
        left = any(one not in wanted and one.path not in unsent for one in standing)
        altered = self._altered or left
        found = [one for one in emptied if altered or self._earliest < one.extracted_at]
        self.seals.unfit += [one.entry_id for one in found]
        return found

    def unsent(self, line: Line, entry: Entry) -> set[KeyPath]:
        """Give the paths in an entry of what is never sent."""
        parts = self._form.parts(entry, self._survey, line.offset)
        return {part.path for part in parts if part.dead}

    def change(
        self, line: Line, unsent: set[KeyPath], edits: Iterable[Edit], left: Iterable[Extraction]
    ) -> None:
        """Take in what is planned for a line, and which of the cuts made earlier stay there."""
        live = self._is_live(line.offset)
        for edit in edits:
            if not isinstance(edit, FieldEdit) and edit.path not in unsent:
                self.seals.sent[edit.start] = live
                if edit.path == LINK:
                    self.seals.earlier[edit.start] = line.offset
                self._altered |= live and isinstance(edit, Cut)
        if live and any(one.path not in unsent for one in left):
            self.seals.left.append(line.offset)
            self._altered = True

    def passed(self, line: Line, ident: str | None) -> None:
        """Go on behind an entry."""
        taken = self._taken.get(ident or "")
        if taken and self._is_live(line.offset):
            self._earliest = min(self._earliest, *(one.extracted_at for one in taken))

    def _is_sealed(self, thoughts: Thoughts) -> bool:
        if thoughts.dropped_by_itself and self._habits.drops_blocks:
            return False
        if thoughts.models not in self._bound:
            self._bound[thoughts.models] = is_bound(thoughts.models, self._rules.sealed_models)
        return self._bound[thoughts.models]

    def _is_live(self, offset: int) -> bool:
        if offset in self._leaving:
            return False
        why = self._survey.dead(offset)
        return why is None or (why == OFF_BRANCH and self._branches_live)

    def _stays(self, line: Line, entry: Entry, ident: str | None, thoughts: Thoughts) -> str | None:
        """Say why the seals of a line cannot leave, or None."""
        if ident is None:
            return "it has no usable id"
        if self._is_pinned(entry, ident):
            return "it is pinned"
        if thoughts.alone:
            return "nothing else is in its message"
        if not line.terminated:
            return "the last line has no newline yet"
        if self._rules.unseal:
            return None  # it was asked for in so many words
        last_user = self._survey.last_user
        if self._survey.open_turn and (last_user is None or line.offset > last_user):
            return f"{self._survey.open_turn}, however long ago"
        return None

    def _is_pinned(self, entry: Entry, ident: str) -> bool:
        if ident in self._sets:
            return self._sets[ident].value is False
        if EXTRACTABLE in entry:
            return entry[EXTRACTABLE] is False
        return self._pins.get(ident) is False


def _cuts(line: Line, raw: bytes, ident: str | None, thoughts: Thoughts) -> Iterator[Cut]:
    """Draft what takes every seal of a line out; raise UntouchableError where that is uncertain."""
    places = spans.locate(raw, [path for path, _ in thoughts.blocks])
    cuts = [
        Cut(
            places[path][0] + line.offset, places[path][1] + line.offset, EMPTIED, ident or "",
            stub_id(ident or ""), path, "thinking", None, chars, block=True, forced=False,
            reason=BROKEN, empties=True,
        )
        for path, chars in thoughts.blocks
    ]  # fmt: skip
    verify(raw, line.offset, base.parse(raw) or {}, cuts)
    yield from cuts


def _nothing(line: Line, ident: str | None) -> Cut:
    """Stand for a seal in a line that cannot be edited."""
    return Cut(
        line.offset, line.offset, EMPTIED, ident or "", "", (), "thinking", None, 0,
        block=True, forced=False, reason=BROKEN, empties=True,
    )  # fmt: skip
