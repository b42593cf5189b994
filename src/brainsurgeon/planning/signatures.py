"""Seals: signed thinking that is valid only behind exactly what stood before it.

From Claude 5.1 on a provider signs a block of thinking together with the whole request before it.
A change in front of it breaks the seal: the provider answers 400, or drops the block where the
agent asked for that. So whatever changes something that is sent takes out, in the same rewrite,
every seal behind the first change, or leaves the session as it is.
"""

from __future__ import annotations

import math
import re
from array import array
from bisect import bisect_left
from collections import defaultdict
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from brainsurgeon.formats import base, splice
from brainsurgeon.formats.openclaw_tree import EMPTIED, is_hollow
from brainsurgeon.formats.splice import verify
from brainsurgeon.model.entries import EXTRACTABLE, placeholder_id, value_at
from brainsurgeon.model.plans import Cut, FieldEdit, Putback
from brainsurgeon.model.sessions import OFF_BRANCH
from brainsurgeon.model.turns import LINK, NOTHING
from brainsurgeon.model.turns import Sent as Carried

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Mapping

    from brainsurgeon.formats.base import Format, Thoughts
    from brainsurgeon.model.entries import Entry, KeyPath, Line
    from brainsurgeon.model.plans import Edit
    from brainsurgeon.model.records import Extraction, Records, Request
    from brainsurgeon.model.sessions import Survey
    from brainsurgeon.planning.rules import Rules, Unseal


BROKEN = "seal broken by this rewrite"
DOUBTFUL = "its seal may have been made in front of other values than stand there now"
HOLLOW = "a signature without what it signs"
STALE = "its seal does not fit what stands before it"
UNFIT = "its seal would not fit what stands before it"
_CLAUDE = re.compile(r"claude-(?:[a-z]+-)?([0-9]{1,2})(?:[-.]([0-9]{1,2}))?(?![0-9])")
_FIRST = (5, 1)
_UNBOUND = re.compile(r"claude-mythos-5[-.]1(?![0-9])")


@dataclass(frozen=True, slots=True)
class Habits:
    """What an agent does of itself.

    One that `drops_blocks` asks its provider to drop what no longer fits, one that `remembers`
    keeps a session in memory for as long as it runs: it may go on with values that were cut from
    the file long ago, and what it thinks then is sealed in front of those.
    """

    drops_blocks: bool = False
    remembers: bool = False


UNKNOWN_HABITS = Habits()


def is_bound(models: Iterable[str], globs: Iterable[str]) -> bool:
    """Check whether the thinking of a model, given by all its names, is sealed with its prefix.

    Claude 5.1 and later is, by its id: family, major, minor of one or two digits (eight digits are
    a date). Of the globs the last that matches decides; one with `!` says that it is not.
    """
    names = [name.lower() for name in models]
    bound = any(map(_is_bound_by_default, names))
    for glob in globs:
        pattern = glob.removeprefix("!").lower()
        if any(fnmatchcase(name, pattern) for name in names):
            bound = not glob.startswith("!")
    return bound


def _is_bound_by_default(name: str) -> bool:
    match = _CLAUDE.search(name)
    if match is None or _UNBOUND.search(name):
        return False
    return (int(match[1]), int(match[2] or 0)) >= _FIRST


@dataclass(frozen=True, slots=True)
class Seal:
    """A seal as it stands: the cut that would take it out, and what forbids that, or None.

    A `live` one is in the next request; others are only sent when their branch is taken up again.
    One that is not `bound` holds whatever stands before it. A `hollow` one signs nothing.
    """

    cut: Cut
    live: bool
    stays: str | None = None
    bound: bool = True
    hollow: bool = False


class Sent:
    """Whether entries are live, by the places in them that change: eight bytes for each."""

    def __init__(self) -> None:
        self._told = array("q")
        self._ranked = True

    def __setitem__(self, place: int, live: bool) -> None:
        self._told.append(2 * place + live)
        self._ranked = False

    def __getitem__(self, place: int) -> bool:
        at = self._find(place)
        if at is None:
            raise KeyError(place)
        return bool(self._told[at] % 2)

    def __contains__(self, place: int) -> bool:
        return self._find(place) is not None

    def _find(self, place: int) -> int | None:
        if not self._ranked:
            self._told, self._ranked = array("q", sorted(self._told)), True
        at = bisect_left(self._told, 2 * place)
        found = at < len(self._told) and self._told[at] // 2 == place
        return at if found else None


@dataclass(slots=True)
class Seals:
    """All seals of one session, gathered on the walk over its lines.

    `left` are the places (bytes from the start) of live values that stay cut, `sent` tells of the
    places of edits that change what is sent whether the entry is live. `unfit` names the entries
    whose seals went earlier, are asked for and fit no more. `earlier` gives the places from which
    on seals break where that is in front of the edit: another link changes all behind the
    entry's beginning.
    """

    standing: list[Seal] = field(default_factory=list)
    left: list[int] = field(default_factory=list)
    sent: Sent | dict[int, bool] = field(default_factory=Sent)
    unfit: list[str] = field(default_factory=list)
    earlier: dict[int, int] = field(default_factory=dict)

    def begins(self, edit: Edit) -> int:
        return self.earlier.get(edit.start, edit.start)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What becomes of the seals: which leave, or why nothing of the session may be changed.

    `unfit` are the entries whose seals do not fit what stands before them once all is done.
    """

    leave: tuple[Cut, ...] = ()
    blocked: str | None = None
    unfit: tuple[str, ...] = ()


def judge(
    seals: Seals, edits: Iterable[Edit], *, defer: bool, remembers: bool, pristine: bool,
    unseal: Unseal = "",
) -> Verdict:  # fmt: skip
    """Decide about the seals that stand, given everything else that is to be done.

    `pristine` says that everything is put back as it was, whether the seals fit it or not. `defer`
    leaves a session alone rather than break a seal in it. With `unseal` those leave as well that
    are hollow or stand behind values cut earlier, or all that are live.
    """
    if not seals.standing:
        return Verdict(unfit=tuple(dict.fromkeys(seals.unfit)))
    made = [edit for edit in edits if edit.start in seals.sent]
    taken = {edit.start for edit in made}
    here = [one for one in seals.standing if one.cut.start not in taken]
    unfit = list(seals.unfit)
    if pristine:
        back = _first(seals.begins(edit) for edit in made if not isinstance(edit, Cut))
        unfit += [one.cut.entry_id for one in here if one.live and back < one.cut.start]
        made = [edit for edit in made if isinstance(edit, Cut)]
    changes = [seals.begins(edit) for edit in made]
    live = _first(seals.begins(edit) for edit in made if seals.sent[edit.start])
    broken = [
        one for one in here
        if one.bound and (live if one.live else _first(changes)) < one.cut.start
    ]  # fmt: skip
    blocked = _blocked(broken, defer=defer)
    if blocked:
        return Verdict(blocked=blocked)
    leave = [one.cut for one in broken if one.stays is None]
    if remembers and not (defer or pristine):
        leave += _doubtful(here, _first(seals.left), live)
    if unseal:
        going = {cut.start for cut in leave}
        left = -1 if unseal == "all" else _first(seals.left)
        leave += [cut for cut in _unfit(here, left) if cut.start not in going]
    return Verdict(tuple(leave), None, tuple(dict.fromkeys(unfit)))


def _first(places: Iterable[int]) -> float:
    return min(places, default=math.inf)


def _blocked(broken: Iterable[Seal], *, defer: bool) -> str | None:
    """Return why nothing of the session may be changed, or None."""
    for one in broken:
        if one.live and (defer or one.stays):
            why = one.stays or 'sealed = "defer"'
            return f"sealed: the thinking of {one.cut.entry_id or 'an entry'} would break: {why}"
    return None


def _doubtful(here: Iterable[Seal], left: float, live: float) -> Iterator[Cut]:
    """Yield the seals behind what was cut earlier and before what is changed now."""
    for one in here:
        if one.bound and one.live and one.stays is None and left < one.cut.start <= live:
            yield replace(one.cut, forced=True, reason=DOUBTFUL)


def _unfit(here: Iterable[Seal], left: float) -> Iterator[Cut]:
    """Yield the live seals that are hollow, and those behind what was cut earlier."""
    for one in here:
        stale = one.bound and left < one.cut.start
        if one.live and one.stays is None and (one.hollow or stale):
            yield replace(one.cut, forced=True, reason=HOLLOW if one.hollow else STALE)


def lighter(
    edits: Iterable[Edit], sent: Sent | dict[int, bool], folded: Carried = NOTHING
) -> Carried:
    """Add up what the next request will not carry any more once these edits are made.

    What the edits that fold turns come to is said by `folded`: more than their own bytes.
    """
    chars, pictures = folded.chars, folded.pictures
    for edit in edits:
        if edit.start not in sent or not sent[edit.start]:
            continue
        if isinstance(edit, Cut) and edit.folds:
            continue
        if isinstance(edit, Cut) and edit.block and edit.kind != "thinking":
            pictures += 1
        elif isinstance(edit, Cut):
            chars += edit.chars - len(edit.placeholder)
        elif isinstance(edit, Putback):
            chars += edit.gain
    return Carried(chars, pictures)


class Gatherer:
    """Takes in line by line what there is to know of seals.

    `branches_live` says that what lies off the active branch may be taken up again any moment. The
    entries at the offsets in `leaving` leave it by this very rewrite.
    """

    def __init__(
        self, form: Format, survey: Survey, rules: Rules, records: Records,
        sets: Mapping[str, Request], habits: Habits, *, branches_live: bool,
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
        except (splice.UntouchableError, RecursionError) as why:
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
        """Return the paths in an entry of what is never sent."""
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
        """Return why the seals of a line cannot leave, or None."""
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
    places = splice.locate(raw, [path for path, _ in thoughts.blocks])
    cuts = [
        Cut(
            places[path][0] + line.offset, places[path][1] + line.offset, EMPTIED, ident or "",
            placeholder_id(ident or ""), path, "thinking", None, chars, block=True, forced=False,
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
