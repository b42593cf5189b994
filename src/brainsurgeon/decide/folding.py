"""Fold turns: which closing entries change, into what, and what leaves the model's sight by it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from brainsurgeon.decide.conversation import (
    Context,
    Gathered,
    converse,
    digest_of,
    told,
    turn_of,
)
from brainsurgeon.decide.fields import FieldWishes
from brainsurgeon.decide.judging import Judge
from brainsurgeon.decide.resume import Frontier
from brainsurgeon.decide.rows import group_rows, outcomes_of
from brainsurgeon.decide.summary import archive_text, summary_of
from brainsurgeon.decide.turns import ArchiveRules, decide, tokens_of
from brainsurgeon.model.calls import NOTHING, Sent
from brainsurgeon.model.turns import Archive, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from brainsurgeon.decide.conversation import Conversation
    from brainsurgeon.decide.rules import Rules
    from brainsurgeon.formats.base import Format
    from brainsurgeon.model.entries import KeyPath, Line, Lines
    from brainsurgeon.model.records import Extraction, Records
    from brainsurgeon.model.sessions import Survey


@dataclass(frozen=True, slots=True)
class Fold:
    """One turn that folds: the line of its closing entry, and what changes there.

    `link` is the id that its closing entry continues afterwards, and `parent` the one that it
    continues now; both are None in the flat form.
    """

    offset: int
    archive: Archive
    text_path: KeyPath
    text: str
    link: str | None = None
    parent: str | None = None


@dataclass(slots=True)
class Folds:
    """All turns that fold, by the offsets of the lines that change, and why each turn does or not.

    The entries at the offsets in `left` leave the active branch by it, those in `emptied` lose
    thinking and results whatever their length. `lighter` is what the next request carries less,
    beside what is cut.
    """

    made: dict[int, Fold] = field(default_factory=dict)
    verdicts: tuple[Verdict, ...] = ()
    left: set[int] = field(default_factory=set)
    emptied: set[int] = field(default_factory=set)
    lighter: Sent = NOTHING

    def at(self, line: Line, ident: str | None, *, hindered: bool) -> Fold | None:
        """Give the turn that folds into the entry of a line; raise where that is `hindered`."""
        fold = self.made.get(line.offset)
        if fold and hindered:
            raise FoldRefusedError(ident)
        return fold

    def concern(self, offset: int) -> bool:
        """Tell whether the line at an offset changes by it, however short it is."""
        return offset in self.made or offset in self.emptied

    @property
    def due(self) -> list[float]:
        """The moments at which time alone changes what is decided about a turn."""
        return [one.until for one in self.verdicts if one.until is not None]

    @property
    def archives(self) -> tuple[Archive, ...]:
        """What is folded, in the order of the file."""
        return tuple(self.made[offset].archive for offset in sorted(self.made))


@dataclass(frozen=True, slots=True)
class Folding:
    """What is asked of a session's turns.

    `asked` are notes by the ids of the prompts whose turns are to fold, None where nothing was
    said. `summaries` are texts that were made elsewhere, by the digests of their turns, and
    `refused` names closing entries whose lines cannot be edited with certainty. In the linked form
    the live turns that end before the newest `beyond` messages fold into one archive, whatever
    their size; 0 switches that off.
    """

    rules: ArchiveRules
    asked: Mapping[str, str | None] = field(default_factory=dict)
    summaries: Mapping[bytes, str] = field(default_factory=dict)
    refused: frozenset[str] = frozenset()
    beyond: int = 0

    @property
    def wanted(self) -> bool:
        """Tell whether any turn may fold at all."""
        return self.rules.enabled or bool(self.asked) or self.beyond > 0


NOTHING_FOLDS = Folds()
NOTHING_ASKED = Folding(ArchiveRules())


class FoldRefusedError(Exception):
    """A turn cannot fold after all: the line of its closing entry cannot be edited."""

    def __init__(self, entry_id: str | None) -> None:
        super().__init__(entry_id)
        self.entry_id = entry_id or ""


def taken_places(standing: Iterable[Extraction], fold: Fold | None) -> set[KeyPath]:
    """Give the places in an entry where an archive says something, or is about to."""
    taken = {one.path for one in standing if one.archive_id is not None}
    return taken | {fold.text_path} if fold else taken


def fold_turns(
    lines: Lines, form: Format, survey: Survey, rules: Rules, records: Records, now: float,
    folding: Folding,
) -> Folds:  # fmt: skip
    """Decide about every turn of a session; nothing folds, and nothing is read, where none may."""
    if not folding.wanted:
        return NOTHING_FOLDS
    sets = FieldWishes(records.fields, records.wishes).sets
    judge = Judge(form, survey, rules, records, sets, now, now, Frontier())
    restores = tuple(wish for wish in records.wishes if wish.action == "restore")
    archived = {one.entry_id: one for one in records.extractions
                if one.archive_id is not None and not one.links}  # fmt: skip
    context = Context(
        form, survey, folding.rules, archived, restores, rules.keep_after_restore, now
    )
    talk = converse(lines, context, judge.state)
    return _Folder(talk, form, records, folding).fold()


class _Folder:
    """Puts the decisions about all turns of one session together."""

    def __init__(
        self, talk: Conversation, form: Format, records: Records, folding: Folding
    ) -> None:
        self._talk, self._form, self._folding = talk, form, folding
        self._rules = folding.rules
        depths = {one.id: one.depth for one in records.archives}
        self._depths = {
            one.entry_id: depths.get(one.archive_id, 1)
            for one in records.extractions if one.archive_id is not None
        }  # fmt: skip
        self._live = [one for one in talk.turns if one.dead is None]
        self._after = {id(one): len(self._live) - 1 - at for at, one in enumerate(self._live)}

    def fold(self) -> Folds:
        """Decide about the turns one by one, and then about rows of archives."""
        folds = Folds()
        verdicts = [self._decide(one) for one in self._talk.turns]
        chosen = [
            one for one, verdict in zip(self._talk.turns, verdicts, strict=True) if verdict.folds
        ]
        grouped = self._rows(chosen)
        inside = {id(one) for group in grouped for one in group}
        for one in chosen:
            if id(one) not in inside:
                self._add(folds, [one])
        for group in grouped:
            self._add(folds, group)
        folds.verdicts = tuple(verdicts)
        return folds

    def _decide(self, one: Gathered) -> Verdict:
        note, asked = self._note(one)
        turn = turn_of(
            self._talk, one, self._rules, self._form, after=self._after.get(id(one), 0),
            depth=self._depth(one), asked=asked, grows=self._grows(one, note),
        )  # fmt: skip
        verdict = decide(turn, self._rules)
        if verdict.folds and turn.closing_id in self._folding.refused:
            return replace(verdict, folds=False, reason="format: its line cannot be edited")
        return verdict

    def _note(self, one: Gathered) -> tuple[str | None, bool]:
        ident = one.prompt.ident or ""
        return self._folding.asked.get(ident), ident in self._folding.asked

    def _depth(self, one: Gathered) -> int:
        closing = one.closing
        if not one.archived or closing is None:
            return 0
        return self._depths.get(closing.ident or "", 1)

    def _text(self, group: list[Gathered], note: str | None) -> str:
        """Give the text of an archive: of one turn its summary, of several their outcomes."""
        closing = group[-1].closing
        ident = (closing.ident if closing else None) or ""
        chars, style = self._rules.summary_chars, self._rules.style
        if len(group) > 1:
            said = [told(one, self._note(one)[0]) for one in group]
            return archive_text(ident, outcomes_of(said, style, chars))
        made = self._folding.summaries.get(digest_of(group[0], note))
        return archive_text(ident, made or summary_of(told(group[0], note), style, chars))

    def _grows(self, one: Gathered, note: str | None) -> int:
        closing = one.closing
        if closing is None or not one.middle:
            return 0
        return len(self._text([one], note)) - len(closing.said.text)

    def _rows(self, chosen: list[Gathered]) -> list[list[Gathered]]:
        """Give the rows of turns that fold into one archive."""
        if self._form.archives != "linked":
            return []
        folding = {id(one) for one in chosen}
        depths = [
            self._depth(one) or (1 if id(one) in folding else 0) for one in self._live
        ]  # fmt: skip
        beyond = self._folding.beyond
        together = sum(0 < beyond <= one.position for one in self._live)
        return group_rows(self._talk, self._live, depths, self._rules, self._form, together)

    def _add(self, folds: Folds, group: list[Gathered]) -> None:
        """Add what folding these turns into the last of them changes."""
        last = group[-1]
        closing, prompt = last.closing, group[0].prompt
        if closing is None or closing.said.text_path is None:
            return
        note = self._note(last)[0]
        text = self._text(group, note)
        steps = [step for one in group for step in one.steps]
        middle = steps[1 : steps.index(closing)]
        depth = max(max((self._depth(one) for one in group), default=0), len(group) > 1) + 1
        before = sum(step.chars for step in middle) + len(closing.said.text)
        archive = Archive(
            closing.ident or "", prompt.ident or "", len(middle),
            tokens_of(before, self._rules.rate), tokens_of(len(text), self._rules.rate), depth,
            self._rules.style, note, digest_of(last, note),
            takes_in=tuple(
                one.closing.ident or "" for one in group if one.closing and one.archived
            ),
        )  # fmt: skip
        linked = self._form.archives == "linked"
        folds.made[closing.offset] = Fold(
            closing.offset, archive, closing.said.text_path, text,
            prompt.ident if linked else None, closing.said.parent if linked else None,
        )  # fmt: skip
        (folds.left if linked else folds.emptied).update(step.offset for step in middle)
        gone, less = [step.sent for step in middle] if linked else [], folds.lighter
        folds.lighter = Sent(
            less.chars + sum(one.chars for one in gone) + len(closing.said.text) - len(text),
            less.pictures + sum(one.pictures for one in gone),
        )
