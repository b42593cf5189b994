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
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from brainsurgeon.model.calls import NOTHING
from brainsurgeon.model.calls import Sent as Carried
from brainsurgeon.model.edits import Cut, Putback

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from brainsurgeon.decide.rules import Unseal
    from brainsurgeon.model.edits import Edit

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
    """Tell whether the thinking of a model, given by all its names, is sealed with its prefix.

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
        """Tell from where on an edit breaks seals."""
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
    """Say why nothing of the session may be changed, or None."""
    for one in broken:
        if one.live and (defer or one.stays):
            why = one.stays or 'sealed = "defer"'
            return f"sealed: the thinking of {one.cut.entry_id or 'an entry'} would break: {why}"
    return None


def _doubtful(here: Iterable[Seal], left: float, live: float) -> Iterator[Cut]:
    """Give the seals behind what was cut earlier and before what is changed now."""
    for one in here:
        if one.bound and one.live and one.stays is None and left < one.cut.start <= live:
            yield replace(one.cut, forced=True, reason=DOUBTFUL)


def _unfit(here: Iterable[Seal], left: float) -> Iterator[Cut]:
    """Give the live seals that are hollow, and those behind what was cut earlier."""
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
            chars += edit.chars - len(edit.stub)
        elif isinstance(edit, Putback):
            chars += edit.gain
    return Carried(chars, pictures)
