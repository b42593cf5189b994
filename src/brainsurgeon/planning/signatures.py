"""Find the signatures of thinking that a rewrite would break, and remove them.

From Claude 5.1 on, a provider signs a block of thinking together with the whole request before it.
A change of this request breaks the signature: the provider answers 400, or drops the block if the
agent asks for this. A missing block is a change, too. So a rewrite also removes the signatures
after its first change of a sent value. If one of them cannot be removed, the session is not
changed. A pristine restore keeps them.
"""

import math
import re
from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from functools import cache
from typing import TypeVar

from msgspec import Struct, field
from msgspec.structs import replace

from brainsurgeon.formats import splice
from brainsurgeon.formats.base import ParsedLine, Thoughts
from brainsurgeon.formats.weight import tokens_off
from brainsurgeon.model.entries import KeyPath, Part, parse, placeholder_id
from brainsurgeon.model.plans import Edit, FieldEdit, Removal
from brainsurgeon.model.records import Extraction
from brainsurgeon.model.rules import Rules
from brainsurgeon.model.sessions import OFF_BRANCH
from brainsurgeon.model.turns import LINK
from brainsurgeon.planning.rules import override_of
from brainsurgeon.planning.snapshot import Snapshot

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
    removal: Removal
    live: bool  # in the next request
    stays: str | None = None  # why it cannot be removed
    bound: bool = True  # changes before it make it invalid
    unsound: str | None = None  # why the provider refuses it, whatever is before it


class Signatures(Struct):
    standing: list[Signature] = field(default_factory=list)
    # Offsets of live entries with values that stay extracted.
    left: list[int] = field(default_factory=list)
    # By start of an edit: whether its entry is live, and the offset after which signatures break.
    sent: dict[int, tuple[bool, int]] = field(default_factory=dict)
    # Entries whose signed thinking should be restored, but would be invalid.
    unfit: list[str] = field(default_factory=list)


class SignatureVerdict(Struct, frozen=True):
    leave: tuple[Removal, ...] = ()
    blocked: str | None = None
    unfit: tuple[str, ...] = ()


def judge(
    signatures: Signatures, edits: Sequence[Edit], rules: Rules, *, remembers: bool, pristine: bool
) -> SignatureVerdict:
    """Decide which signatures to remove, given all planned edits.

    `pristine` restores everything, even if signatures become invalid. If the agent `remembers` (see
    `Habits`), signatures after extracted values are doubtful.
    """
    if not signatures.standing:  # most sessions: the lists below would take memory for nothing
        return SignatureVerdict(unfit=tuple(dict.fromkeys(signatures.unfit)))
    made = [(edit, *signatures.sent[edit.start]) for edit in edits if edit.start in signatures.sent]
    taken = {edit.start for edit in edits}
    here = [one for one in signatures.standing if one.removal.start not in taken]
    unfit = list(signatures.unfit)
    if pristine:
        back = _first(begin for edit, _, begin in made if not isinstance(edit, Removal))
        unfit += [one.removal.entry_id for one in here if one.live and back < one.removal.start]
        made = [change for change in made if isinstance(change[0], Removal)]
    any_change = _first(begin for *_, begin in made)
    live_change = _first(begin for _, live, begin in made if live)
    broken = [
        one for one in here
        if one.bound and (live_change if one.live else any_change) < one.removal.start
    ]  # fmt: skip
    defer = rules.signed_thinking == "defer"
    if blocking := next((one for one in broken if one.live and (defer or one.stays)), None):
        why = blocking.stays or 'signed_thinking = "defer"'
        entry = blocking.removal.entry_id or "an entry"
        return SignatureVerdict(blocked=f"signatures: the thinking of {entry} would break: {why}")
    leave = [one.removal for one in broken if one.stays is None]
    extracted = _first(signatures.left)
    if remembers and not (defer or pristine):
        doubtful = [
            one for one in here
            if one.live and one.bound and extracted < one.removal.start <= live_change
        ]  # fmt: skip
        # Their removal would certainly break one that stays behind them.
        last = max((one.removal.start for one in doubtful if one.stays), default=-1)
        leave += [
            replace(one.removal, forced=True, reason=DOUBTFUL) for one in doubtful
            if one.removal.start > last
        ]  # fmt: skip
    if rules.drop_signatures:
        going = {removal.start for removal in leave}
        refused = rules.drop_signatures == "all"
        leaving = (one.removal.start for one in here if one.live and one.unsound and not one.stays)
        broken_from = min(extracted, _first(leaving))
        stale = [
            one for one in here
            if one.live and one.removal.start not in going
            and (refused or one.unsound or (one.bound and broken_from < one.removal.start))
        ]  # fmt: skip
        leave += [
            replace(one.removal, forced=True, reason=one.unsound or STALE)
            for one in stale if one.stays is None
        ]  # fmt: skip
        unfit += [one.removal.entry_id for one in stale if one.stays]
    return SignatureVerdict(tuple(leave), None, tuple(dict.fromkeys(unfit)))


def _first(places: Iterable[int]) -> float:
    return min(places, default=math.inf)


_AnyEdit = TypeVar("_AnyEdit", bound=Edit)


class Gatherer:
    """Collects signatures. `leaving`: offsets of entries that new archives take off the branch."""

    def __init__(self, session: Snapshot, rules: Rules, leaving: Container[int]) -> None:
        self.signatures = Signatures()
        self._session, self._form, self._rules = session, session.form, rules
        self._sets, self._pins, self._leaving = session.sets, session.records.pins, leaving
        # Until `branches_die_at`, the user may return to an inactive branch at any moment.
        self._branches_live = session.now < session.branches_die_at
        self._is_bound = cache(
            lambda models, by_form: is_bound(models, rules.signed_models, by_form=by_form)
        )
        self._taken: dict[str, list[Extraction]] = defaultdict(list)
        for value in session.records.extractions:
            self._taken[value.entry_id].append(value)
        self._earliest, self._altered = math.inf, False

    def note_signatures(self, parsed: ParsedLine) -> frozenset[KeyPath]:
        thoughts = self._form.thoughts(parsed.entry)
        if thoughts is None or not thoughts.blocks:
            return frozenset()
        bound = self._is_signed(thoughts)
        if not bound and not self._rules.drop_signatures:
            return frozenset()
        live, stays = self._is_live(parsed.offset), self._stays(parsed, thoughts)
        try:
            rest = self._form.rest(parsed.entry)
            spans = splice.offsets_of(parsed, [path for path, _ in thoughts.blocks])
            removals = [
                _removal(parsed, spans[path], path, chars, thoughts.instead, rest)
                for path, chars in thoughts.blocks
            ]
            splice.verify(parsed.raw, parsed.offset, parse(parsed.raw) or {}, removals)
            removals = list(self.weighed(parsed, removals))
        except (splice.UntouchableError, RecursionError) as why:
            unsure = (parsed.offset, parsed.offset)
            removals, stays = [_removal(parsed, unsure, (), 0, b"")], str(why)
        self.signatures.standing += [
            Signature(removal, live, stays, bound, thoughts.unsound.get(removal.path))
            for removal in removals
        ]
        return frozenset(path for path, _ in thoughts.blocks) if bound else frozenset()

    def unfit(
        self, parsed: ParsedLine, back: list[Extraction], standing: Iterable[Extraction]
    ) -> list[Extraction]:
        # Restored thinking is certainly valid if no value before it stays extracted, or was
        # extracted earlier than the thinking.
        thoughts = self._form.thoughts(parsed.entry) if back else None
        if thoughts is None or not self._is_signed(thoughts):
            return []
        emptied = [value for value in back if value.replacement == thoughts.instead.decode()]
        unsent = self.unsent_paths(parsed)
        altered = self._altered or any(
            value not in back and value.path not in unsent for value in standing
        )
        unfit = [value for value in emptied if altered or self._earliest < value.extracted_at]
        self.signatures.unfit += [value.entry_id for value in unfit]
        return unfit

    def weighed(self, parsed: ParsedLine, edits: Iterable[_AnyEdit]) -> Iterator[_AnyEdit]:
        survey, rate = self._session.survey, self._session.records.rate
        gone = parsed.offset in self._leaving or survey.dead(parsed.offset)
        for edit in edits:
            if gone or not isinstance(edit, Removal):
                yield edit
            else:
                less = tokens_off(self._form, parsed.entry, survey, edit.path, edit.new, rate)
                yield replace(edit, tokens=edit.tokens + less)

    def unsent_paths(self, parsed: ParsedLine, parts: Iterable[Part] | None = None) -> set[KeyPath]:
        # In the record, the path of a block is one step above the path of its placeholder's text.
        if parts is None:
            parts = self._form.parts(parsed.entry, self._session.survey, parsed.offset)
        return {path for part in parts if part.dead for path in (part.path, part.path[:-1])}

    def note_edits(
        self, offset: int, unsent: set[KeyPath], edits: Iterable[Edit], left: Iterable[Extraction]
    ) -> None:
        live = self._is_live(offset)
        for edit in edits:
            if not isinstance(edit, FieldEdit) and edit.path not in unsent:
                # A change of a link breaks the signatures of its whole entry.
                self.signatures.sent[edit.start] = live, offset if edit.path == LINK else edit.start
                self._altered |= live and isinstance(edit, Removal)
        if live and any(value.path not in unsent for value in left):
            self.signatures.left.append(offset)
            self._altered = True

    def note_extracted(self, parsed: ParsedLine) -> None:
        """Note when a sent value was first extracted, for `unfit` of later entries."""
        taken = self._taken.get(parsed.ident or "")
        if taken and self._is_live(parsed.offset):
            unsent = self.unsent_paths(parsed)
            sent = (value.extracted_at for value in taken if value.path not in unsent)
            self._earliest = min((self._earliest, *sent))

    def _is_signed(self, thoughts: Thoughts) -> bool:
        if thoughts.asked_to_drop and self._session.habits.drops_blocks:
            return False
        return self._is_bound(thoughts.models, thoughts.bound)

    def _is_live(self, offset: int) -> bool:
        if offset in self._leaving:
            return False
        why = self._session.survey.dead(offset)
        return why is None or (why == OFF_BRANCH and self._branches_live)

    def _stays(self, parsed: ParsedLine, thoughts: Thoughts) -> str | None:
        if parsed.ident is None:
            return "it has no usable id"
        if override_of(parsed.entry, parsed.ident, self._sets, self._pins)[0] is False:
            return "it is pinned"
        if thoughts.only_content:
            return "nothing else is in its message"
        if not parsed.terminated:
            return "the last line has no newline yet"
        if self._rules.drop_signatures:
            return None  # this was requested explicitly
        survey = self._session.survey
        if survey.open_turn and (survey.last_user is None or parsed.offset > survey.last_user):
            return f"{survey.open_turn} (even an old open turn keeps its signatures)"
        return None


def _removal(
    parsed: ParsedLine, span: tuple[int, int], path: KeyPath, chars: int, instead: bytes,
    rest: bytes | None = None,
) -> Removal:  # fmt: skip
    ident = parsed.ident or ""
    return Removal(
        ident, placeholder_id(ident), path, "thinking", None, chars,
        block=True, anchor=None, rest=rest, tokens=0,
        start=span[0], end=span[1], new=instead, forced=False, reason=BROKEN, how="empty",
    )  # fmt: skip
