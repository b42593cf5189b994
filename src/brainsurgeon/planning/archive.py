"""Fold turns: which closing entries change, into what, and what leaves the model's sight by it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING

from brainsurgeon.model.turns import MARK, NOTHING, Archive, Sent, Told, Verdict
from brainsurgeon.planning.conversation import Context, converse, turn_of
from brainsurgeon.planning.drafts import FieldRequests, Judge
from brainsurgeon.planning.tail import Frontier
from brainsurgeon.planning.turns import (
    NO_WEIGHT,
    ArchiveRules,
    Offsets,
    Weight,
    archive_text,
    decide,
    shortened,
    summary_of,
    tokens_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from brainsurgeon.formats.base import Format
    from brainsurgeon.model.entries import KeyPath, Line, Lines
    from brainsurgeon.model.records import Extraction, Records
    from brainsurgeon.model.sessions import Survey
    from brainsurgeon.planning.conversation import Conversation
    from brainsurgeon.planning.rules import Rules
    from brainsurgeon.planning.turns import Gathered


Group = list["Gathered"]


def group_rows(
    talk: Conversation, live: Sequence[Gathered], depths: Sequence[int], rules: ArchiveRules,
    form: Format, together: int,
) -> list[Group]:  # fmt: skip
    """Return the groups of turns that become one archive each.

    `depths` are those of the live turns, 0 where one stays as it is. Of a row that is longer than
    `fold_after` the oldest half becomes one, until none is; so do the oldest `together` turns, or
    as many of them as may.
    """
    groups: list[tuple[Group, int]] = []
    oldest = (live[:count] for count in range(_reach(live, together), 1, -1))
    done = next((one for one in oldest if _may(talk, one, rules, form)), [])
    if done:
        groups.append((list(done), max(depths[: len(done)]) + 1))
        live, depths = live[len(done) :], depths[len(done) :]
    for row in _rows(talk, live, depths, rules, form):
        groups += _folded(row, rules)
    return [group for group, _ in groups if len(group) > 1]


def _reach(live: Sequence[Gathered], together: int) -> int:
    """Return how many of the oldest turns may fold together at most: up to one that has to stay."""
    for count, one in enumerate(live[:together]):
        if one.held or one.dead:
            return count
        if one.broken or one.fixed:
            return count + 1
    return together


def _rows(
    talk: Conversation, live: Sequence[Gathered], depths: Sequence[int], rules: ArchiveRules,
    form: Format,
) -> list[list[tuple[Group, int]]]:  # fmt: skip
    """Return the archives that stand in a row, and could all fold once more."""
    rows: list[list[tuple[Group, int]]] = [[]]
    for one, depth in zip(live, depths, strict=True):
        before = rows[-1][-1][0] if rows[-1] else []
        if not 0 < depth < rules.depth_cap or one.held:
            rows.append([])
        elif before and not _may(talk, [*before, one], rules, form):
            rows.append([([one], depth)])
        else:
            rows[-1].append(([one], depth))
    return rows


def _folded(row: list[tuple[Group, int]], rules: ArchiveRules) -> list[tuple[Group, int]]:
    done: list[tuple[Group, int]] = []
    while len(row) > max(1, rules.fold_after):
        half = row[: max(2, len(row) // 2)]
        merged = [one for group, _ in half for one in group]
        depth = max(depth for _, depth in half) + 1
        row = row[len(half) :]
        if depth < rules.depth_cap:
            row.insert(0, (merged, depth))
        else:
            done.append((merged, depth))
    return done + row


def _may(talk: Conversation, group: Sequence[Gathered], rules: ArchiveRules, form: Format) -> bool:
    """Check whether the turns of a group follow one another and nothing holds the middle of it."""
    if form.archives != "linked" or any(one.held or one.dead for one in group):
        return False
    closing = group[-1].closing
    if closing is None or not closing.said.closes or closing.said.text_path is None:
        return False
    last = group[-1]
    inner, at = group[:-1], last.at or 0
    if any(one.broken or one.fixed for one in inner) or not last.follows(at):
        return False
    if last.fixed and last.fixed[0] < at:
        return False
    joined = all(one.prompt.said.parent == before.last for before, one in pairwise(group))
    sure = not any(talk.unsure(one, len(one.ids)) for one in inner) and not talk.unsure(last, at)
    return joined and sure and _hangs_together(group) and rules.depth_cap > 1


def _hangs_together(group: Sequence[Gathered]) -> bool:
    """Check whether no entry outside of a group names one that would leave with it."""
    first, closing = group[0].prompt, group[-1].closing
    last = closing.offset if closing else first.offset
    for one in group:
        begin = 1 if one is group[0] else 0
        end = (one.at or 0) if one is group[-1] else len(one.ids)
        if any(
            begin <= place < end and not first.offset <= offset <= last
            for place, offset, _ in one.named
        ):
            return False
    return True


def outcomes_of(said: Iterable[Told], style: str, chars: int) -> str:
    """List what several turns came to, each with its share of the characters."""
    listed = list(said)
    share = max(1, chars // max(1, len(listed)))
    outcomes = [
        shortened(one.note, share) if one.note
        else shortened(outcome_in(one.closing), share, one.missing)
        for one in listed
    ]  # fmt: skip
    if style == "paragraph":
        return "\n".join(f"- {one}" for one in outcomes)
    return json.dumps({"outcomes": outcomes}, ensure_ascii=False)


def outcome_in(text: str) -> str:
    """Return the outcome that an archive's text tells, or any other text as it is."""
    if not text.startswith(MARK):
        return text
    summary = text.partition("\n\n")[2]
    try:
        said = json.loads(summary)
    except ValueError:
        return summary
    if not isinstance(said, dict):
        return summary
    several = said.get("outcomes")
    if isinstance(several, list):
        return "; ".join(map(str, several))
    return str(said.get("outcome", summary))


def between(group: list[Gathered]) -> Iterator[int]:
    """Yield the offsets of what leaves: behind the first prompt, before the last reply."""
    for one in group:
        begin = 1 if one is group[0] else 0
        end = one.at if one is group[-1] else len(one.offsets)
        yield from one.offsets[begin:end]


def weight_between(group: list[Gathered]) -> Weight:
    """Return what those entries come to."""
    whole = NO_WEIGHT
    for one in group[:-1]:
        whole = whole.plus(one.all_of_it)
    return whole.plus(group[-1].to_reply).less(group[0].asks)


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


@dataclass(frozen=True, slots=True)
class Folds:
    """All turns that fold, by the offsets of the lines that change, and why each turn does or not.

    The entries at the offsets in `left` leave the active branch by it, those in `emptied` lose
    thinking and results whatever their length. `lighter` is what the next request carries less,
    beside what is cut.
    """

    made: dict[int, Fold] = field(default_factory=dict)
    verdicts: tuple[Verdict, ...] = ()
    left: Offsets = field(default_factory=Offsets)
    emptied: Offsets = field(default_factory=Offsets)
    lighter: Sent = NOTHING

    def at(self, line: Line, ident: str | None, *, hindered: bool) -> Fold | None:
        """Return the turn that folds into the entry of a line; raise where that is `hindered`."""
        fold = self.made.get(line.offset)
        if fold and hindered:
            raise FoldRefusedError(ident)
        return fold

    def concern(self, offset: int) -> bool:
        """Check whether the line at an offset changes by it, however short it is."""
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
        return self.rules.enabled or bool(self.asked) or self.beyond > 0


NOTHING_FOLDS = Folds()
NOTHING_ASKED = Folding(ArchiveRules())


class FoldRefusedError(Exception):
    """A turn cannot fold after all: the line of its closing entry cannot be edited."""

    def __init__(self, entry_id: str | None) -> None:
        super().__init__(entry_id)
        self.entry_id = entry_id or ""


def taken_places(standing: Iterable[Extraction], fold: Fold | None) -> set[KeyPath]:
    """Return the places in an entry where an archive says something, or is about to."""
    taken = {one.path for one in standing if one.archive_id is not None}
    return taken | {fold.text_path} if fold else taken


def fold_turns(
    lines: Lines, form: Format, survey: Survey, rules: Rules, records: Records, now: float,
    folding: Folding,
) -> Folds:  # fmt: skip
    """Decide about every turn of a session; nothing folds, and nothing is read, where none may."""
    if not folding.wanted:
        return NOTHING_FOLDS
    sets = FieldRequests(records.fields, records.requests, records.own).sets
    judge = Judge(form, survey, rules, records, sets, now, now, Frontier())
    restores = tuple(request for request in records.requests if request.action == "restore")
    archived = {one.entry_id: one for one in records.extractions
                if one.archive_id is not None and not one.links}  # fmt: skip
    context = Context(
        form, survey, folding.rules, archived, restores, rules.keep_after_restore, now,
        folding.asked, together=folding.beyond > 0,
    )  # fmt: skip
    talk = converse(lines, context, judge.state)
    return _Folder(talk, form, records, folding).fold()


class _Folder:
    """Puts the decisions about all turns of one session together."""

    def __init__(
        self, talk: Conversation, form: Format, records: Records, folding: Folding
    ) -> None:
        self._talk, self._form, self._folding = talk, form, folding
        self._rules = folding.rules
        known = {one.id: one for one in records.archives}
        self._archives = {
            one.entry_id: known[one.archive_id]
            for one in records.extractions if one.archive_id in known
        }  # fmt: skip
        self._live = [one for one in talk.turns if one.dead is None]
        self._after = {id(one): len(self._live) - 1 - at for at, one in enumerate(self._live)}

    def fold(self) -> Folds:
        """Decide about the turns one by one, and then about rows of archives."""
        verdicts = [self._decide(one) for one in self._talk.turns]
        chosen = [
            one for one, verdict in zip(self._talk.turns, verdicts, strict=True) if verdict.folds
        ]
        grouped = self._rows(chosen)
        inside = {id(one): len(group) for group in grouped for one in group}
        groups = [*([one] for one in chosen if id(one) not in inside), *grouped]
        folds = Folds(
            made={fold.offset: fold for group in groups if (fold := self._folded(group))},
            verdicts=tuple(
                _together(verdict, one, inside.get(id(one), 1))
                for verdict, one in zip(verdicts, self._talk.turns, strict=True)
            ),
            lighter=self._lighter(groups),
        )
        middles = Offsets(offset for group in groups for offset in between(group))
        if self._form.archives == "linked":
            return replace(folds, left=middles)
        return replace(folds, emptied=middles)

    def _decide(self, one: Gathered) -> Verdict:
        note, asked = self._note(one)
        turn = turn_of(
            self._talk, one, self._rules, self._form,
            after=self._after.get(id(one), len(self._live) + self._rules.keep_turns),
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
        known = self._archives.get(closing.ident or "")
        return known.depth if known else 1

    def _counts(self, one: Gathered) -> tuple[int, int, int]:
        """Count the turns and calls of one that may be an archive already, and the failed calls."""
        ident = one.closing.ident if one.closing and one.archived else None
        known = self._archives.get(ident or "")
        return (known.turns, known.calls, known.failed) if known else (1, one.called, one.failed)

    def _text(self, group: list[Gathered], note: str | None) -> str:
        """Return the text of an archive: of one turn its summary, of several their outcomes."""
        closing = group[-1].closing
        ident = (closing.ident if closing else None) or ""
        chars, style = self._rules.summary_chars, self._rules.style
        said = [replace(one.told or Told(""), note=self._note(one)[0]) for one in group]
        if len(group) > 1:
            return archive_text(ident, outcomes_of(said, style, chars))
        made = self._folding.summaries.get(group[0].digest_of(note))
        return archive_text(ident, made or summary_of(said[0], style, chars))

    def _grows(self, one: Gathered, note: str | None) -> int:
        if not (self._folding.summaries and one.told and one.middle):
            return one.grows
        return len(self._text([one], note)) - one.closing_chars

    def _rows(self, chosen: list[Gathered]) -> list[list[Gathered]]:
        """Return the rows of turns that fold into one archive."""
        if self._form.archives != "linked":
            return []
        folding = {id(one) for one in chosen}
        depths = [
            self._depth(one) or (1 if id(one) in folding else 0) for one in self._live
        ]  # fmt: skip
        beyond = self._folding.beyond
        together = sum(0 < beyond <= one.position for one in self._live)
        return group_rows(self._talk, self._live, depths, self._rules, self._form, together)

    def _folded(self, group: list[Gathered]) -> Fold | None:
        """Return what folding these turns into the last of them changes."""
        last, prompt = group[-1], group[0].prompt
        closing = last.closing
        if closing is None or closing.said.text_path is None:
            return None
        note = self._note(last)[0]
        text = self._text(group, note)
        depth = max(max((self._depth(one) for one in group), default=0), len(group) > 1) + 1
        turns, calls, failed = zip(*map(self._counts, group), strict=True)
        before, rate = weight_between(group).chars + last.closing_chars, self._rules.rate
        archive = Archive(
            closing.ident or "", prompt.ident or "", sum(1 for _ in between(group)),
            tokens_of(before, rate), tokens_of(len(text), rate), depth,
            self._rules.style, note, last.digest_of(note),
            takes_in=tuple(
                one.closing.ident or "" for one in group if one.closing and one.archived
            ),
            prompts=tuple(one.prompt.ident or "" for one in group),
            turns=sum(turns), calls=sum(calls), failed=sum(failed),
        )  # fmt: skip
        linked = self._form.archives == "linked"
        return Fold(
            closing.offset, archive, closing.said.text_path, text,
            prompt.ident if linked else None, closing.said.parent if linked else None,
        )  # fmt: skip

    def _lighter(self, groups: list[list[Gathered]]) -> Sent:
        """Return what the next request carries less, beside what is cut."""
        chars = pictures = 0
        for group in groups:
            gone = weight_between(group) if self._form.archives == "linked" else Weight()
            text = self._text(group, self._note(group[-1])[0])
            chars += gone.sent + group[-1].closing_chars - len(text)
            pictures += gone.pictures
        return Sent(chars, pictures)


def _together(verdict: Verdict, one: Gathered, many: int) -> Verdict:
    """Say of a turn that folds with others that it does, whatever its own size."""
    if many == 1 or verdict.folds:
        return verdict
    why = "taken into a larger archive" if one.archived else f"with {many - 1:,} other turns"
    return replace(verdict, folds=True, reason=why, until=None)
