"""Find the signatures of thinking that a rewrite would break, and remove them.

From Claude 5.1 on, a provider signs a block of thinking together with the whole request before it.
A change of this request breaks the signature: the provider answers 400, or drops the block if the
agent asks for this. A missing block is a change, too. So a rewrite also removes the signatures
after its first change of a sent value. If one of them cannot be removed, the session is not
changed. A pristine restore keeps them.
"""

import math
import re
import sys
from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from functools import cache

from msgspec import Struct, field

from brainsurgeon.model.entries import KeyPath
from brainsurgeon.model.records import Extraction
from brainsurgeon.model.rules import Rules
from brainsurgeon.model.session_files import OFF_BRANCH
from brainsurgeon.model.transcript import Thoughts
from brainsurgeon.model.turns import LINK
from brainsurgeon.planning.snapshot import TWICE, Locks, Place, Snapshot

BROKEN = "signature broken by this rewrite"
DOUBTFUL = "its signature may have been made while earlier values were different"
STALE = "its signature does not match the entries before it"
UNFIT = "its signature would not match the entries before it"
_GPT = re.compile(r"(?<![a-z])gpt-([0-9]{1,2})(?:[-.]([0-9]{1,2}))?(?![0-9])")
_CLAUDE = re.compile(r"claude-(?:[a-z]+-)?([0-9]{1,2})(?:[-.]([0-9]{1,2}))?(?![0-9])")


def is_bound(models: Iterable[str], globs: Iterable[str], *, by_form: bool = False) -> bool:
    """Check whether a model signs thinking together with the request before it.

    Claude 5.1 and GPT-6.2 and later do, and any model whose signatures have this form. `models` are
    all names of the model. The last glob that matches any name decides; a leading `!` means no.
    """
    names = [name.lower() for name in models]
    bound = by_form or any(
        (int(match[1]), int(match[2] or 0)) >= first
        for name in names for pattern, first in ((_CLAUDE, (5, 1)), (_GPT, (6, 2)))
        if (match := pattern.search(name))
    )  # fmt: skip
    for glob in globs:
        pattern = glob.removeprefix("!").lower()
        if any(fnmatchcase(name, pattern) for name in names):
            bound = not glob.startswith("!")
    return bound


class Signature(Struct, frozen=True):
    place: Place
    entry_id: str
    chars: int
    live: bool  # in the next request
    stays: str | None = None  # why it cannot be removed
    bound: bool = True  # changes before it make it invalid
    unsound: str | None = None  # why the provider refuses it, whatever is before it


class SentChange(Struct, frozen=True):
    """A change of a sent value."""

    place: Place
    live: bool  # in the next request
    removes: bool  # it is no restoration


class Signatures(Struct):
    """The signatures of a session, and what is planned for it."""

    standing: list[Signature] = field(default_factory=list)
    changes: list[SentChange] = field(default_factory=list)
    edited: set[Place] = field(default_factory=set)  # where values are removed or restored
    # Indexes of live entries with values that stay extracted.
    still_extracted: list[int] = field(default_factory=list)
    # Entries whose signed thinking should be restored, but would be invalid.
    unfit: list[str] = field(default_factory=list)


class DroppedSignature(Struct, frozen=True):
    """A signature that a plan removes, and why."""

    signature: Signature
    reason: str
    forced: bool = False


class SignatureVerdict(Struct, frozen=True):
    dropped: tuple[DroppedSignature, ...] = ()
    blocked: str | None = None
    unfit: tuple[str, ...] = ()


def judge(
    signatures: Signatures, rules: Rules, *, remembers: bool, pristine: bool
) -> SignatureVerdict:
    """Decide which signatures to remove. Those in `edited` places are edited anyway.

    `pristine` restores everything, even if signatures become invalid. If the agent `remembers`
    (see `Habits`), signatures after extracted values are doubtful.
    """
    if not signatures.standing:  # most sessions: the lists below would take memory for nothing
        return SignatureVerdict(unfit=tuple(dict.fromkeys(signatures.unfit)))
    here = [one for one in signatures.standing if one.place not in signatures.edited]
    unfit, changes = list(signatures.unfit), signatures.changes
    if pristine:
        restored_from = _first(one.place for one in changes if not one.removes)
        unfit += [one.entry_id for one in here if one.live and restored_from < one.place]
        changes = [change for change in changes if change.removes]
    any_change = _first(change.place for change in changes)
    live_change = _first(change.place for change in changes if change.live)
    broken = [
        one for one in here if one.bound and (live_change if one.live else any_change) < one.place
    ]
    if blocking := next((one for one in broken if one.live and one.stays), None):
        entry = blocking.entry_id or "an entry"
        why = f"signatures: the thinking of {entry} would break: {blocking.stays}"
        return SignatureVerdict(blocked=why)
    dropped = [DroppedSignature(one, BROKEN) for one in broken if one.stays is None]
    live = [one for one in here if one.live]
    extracted = _first((index, ()) for index in signatures.still_extracted)
    if remembers and not pristine:
        dropped += _doubtful(live, extracted, live_change)
    if rules.drop_signatures:
        dropped_places = {one.signature.place for one in dropped}
        stale = _stale(live, dropped_places, extracted, refused=rules.drop_signatures == "all")
        dropped += [
            DroppedSignature(one, one.unsound or STALE, forced=True)
            for one in stale
            if one.stays is None
        ]
        unfit += [one.entry_id for one in stale if one.stays]
    return SignatureVerdict(tuple(dropped), None, tuple(dict.fromkeys(unfit)))


def _doubtful(
    live: Sequence[Signature], extracted: Place, live_change: Place
) -> Iterator[DroppedSignature]:
    """Yield the signatures between the first extracted value and the first change."""
    doubtful = [one for one in live if one.bound and extracted < one.place <= live_change]
    # Their removal would certainly break one that stays behind them.
    last = max((one.place for one in doubtful if one.stays), default=(-1, ()))
    return (DroppedSignature(one, DOUBTFUL, forced=True) for one in doubtful if one.place > last)


def _stale(
    live: Sequence[Signature], dropped_places: Container[Place], extracted: Place, *, refused: bool
) -> list[Signature]:
    """Return the signatures that the provider refuses: all, if it `refused` the request."""
    removable = (one.place for one in live if one.unsound and not one.stays)
    broken_from = min(extracted, _first(removable))
    return [
        one for one in live
        if one.place not in dropped_places
        and (refused or one.unsound or (one.bound and broken_from < one.place))
    ]  # fmt: skip


_NOWHERE: Place = (sys.maxsize, ())


def _first(places: Iterable[Place]) -> Place:
    return min(places, default=_NOWHERE)


class SignatureGatherer:
    """Collects signatures, entry by entry, in the file's order.

    `leaving`: indexes of entries that new archives take off the branch.
    """

    def __init__(
        self, session: Snapshot, rules: Rules, leaving: Container[int], locks: Locks
    ) -> None:  # fmt: skip
        self.signatures = Signatures()
        self._session, self._transcript, self._rules = session, session.transcript, rules
        self._leaving, self._locks = leaving, locks
        # Until `branches_die_at`, the user may return to an inactive branch at any moment.
        self._branches_live = session.now < session.branches_die_at
        self._bind = cache(
            lambda models, by_form: is_bound(models, rules.signed_models, by_form=by_form)
        )
        self._extracted: dict[str, list[Extraction]] = defaultdict(list)
        for value in session.records.extractions:
            self._extracted[value.entry_id].append(value)
        self._earliest, self._altered = math.inf, False
        # In most sessions, no change matters to any signature.
        self._matters = any(
            entry.thoughts and (rules.drop_signatures or self._is_bound(entry.thoughts))
            for entry in self._transcript.entries
        )

    def note_signatures(self, index: int) -> bool:
        """Note the signatures of an entry. Return whether they cover the request before it."""
        entry = self._transcript.entries[index]
        thoughts = entry.thoughts
        if thoughts is None or not thoughts.blocks:
            return False
        bound = self._is_bound(thoughts)
        if not bound and not self._rules.drop_signatures:
            return False
        live, stays = self._is_live(index), self._stays(index, thoughts)
        self.signatures.standing += [
            Signature(
                (index, path), entry.ident or "", chars, live,
                self._locks.get((index, path), stays), bound, thoughts.unsound.get(path),
            )
            for path, chars in thoughts.blocks
        ]  # fmt: skip
        return bound

    def note_unfit(
        self, index: int, to_restore: list[Extraction], standing: Iterable[Extraction]
    ) -> list[Extraction]:
        """Note and return the values to restore whose signatures would be invalid."""
        # Restored thinking is certainly valid if no value before it stays extracted, or was
        # extracted earlier than the thinking.
        thoughts = self._transcript.entries[index].thoughts if to_restore else None
        if thoughts is None or not self._is_bound(thoughts):
            return []
        emptied = [value for value in to_restore if value.replacement == thoughts.instead.decode()]
        unsent = self._unsent_paths(index)
        altered = self._altered or any(
            value not in to_restore and value.path not in unsent for value in standing
        )
        unfit = [value for value in emptied if altered or self._earliest < value.extracted_at]
        self.signatures.unfit += [value.entry_id for value in unfit]
        return unfit

    def _unsent_paths(self, index: int) -> set[KeyPath]:
        # In the record, the path of a block is one step above the path of its placeholder's text.
        values = self._transcript.values(index)
        return {path for value in values if value.dead for path in (value.path, value.path[:-1])}

    def note_changes(
        self, index: int, removed: Iterable[KeyPath], restored: Iterable[KeyPath],
        staying: Iterable[Extraction],
    ) -> None:  # fmt: skip
        """Note what is planned for an entry, in which extracted values are `staying`."""
        if not self._matters:
            return
        live, unsent = self._is_live(index), self._unsent_paths(index)
        for paths, removes in ((removed, True), (restored, False)):
            for path in paths:
                self.signatures.edited.add((index, path))
                if path not in unsent:
                    # A change of a link breaks the signatures of its whole entry.
                    place = (index, () if path == LINK else path)
                    self.signatures.changes.append(SentChange(place, live, removes))
                    self._altered |= live and removes
        if live and any(value.path not in unsent for value in staying):
            self.signatures.still_extracted.append(index)
            self._altered = True

    def note_extracted(self, index: int) -> None:
        """Note when a sent value was first extracted, for `note_unfit` of later entries."""
        extracted = self._extracted.get(self._transcript.entries[index].ident or "")
        if extracted and self._matters and self._is_live(index):
            unsent = self._unsent_paths(index)
            sent = (value.extracted_at for value in extracted if value.path not in unsent)
            self._earliest = min((self._earliest, *sent))

    def _is_bound(self, thoughts: Thoughts) -> bool:
        if thoughts.asked_to_drop and self._session.habits.drops_blocks:
            return False
        return self._bind(thoughts.models, thoughts.bound)

    def _is_live(self, index: int) -> bool:
        if index in self._leaving:
            return False
        why = self._transcript.chain.dead.get(index)
        return why is None or (why == OFF_BRANCH and self._branches_live)

    def _stays(self, index: int, thoughts: Thoughts) -> str | None:
        entry, chain = self._transcript.entries[index], self._transcript.chain
        if entry.ident is None:
            return "it has no usable id"
        if entry.ident in self._session.repeated:
            return TWICE
        if self._session.override(entry) is False:
            return "it is pinned"
        if thoughts.only_content:
            return "nothing else is in its message"
        if not entry.terminated:
            return "the last line has no newline yet"
        if self._rules.drop_signatures:
            return None  # this was requested explicitly
        if chain.open_turn and (chain.last_user is None or index > chain.last_user):
            return f"{chain.open_turn} (even an old open turn keeps its signatures)"
        return None
