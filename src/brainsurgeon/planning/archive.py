"""Archive turns: decide which ones, group them, and draft the edits of their closing entries."""

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import compress, pairwise

from msgspec import Struct, field
from msgspec.structs import replace

from brainsurgeon.formats.base import Format, ParsedLine
from brainsurgeon.formats.splice import offsets_of
from brainsurgeon.model.entries import KeyPath, placeholder_id, value_at
from brainsurgeon.model.plans import Edit, Removal
from brainsurgeon.model.records import Extraction
from brainsurgeon.model.rules import Rules
from brainsurgeon.model.turns import LINK, NOTHING, Archive, ArchiveRecord, Sent, Verdict
from brainsurgeon.planning.snapshot import Snapshot
from brainsurgeon.planning.summaries import SummaryFacts, archive_text, outcomes_of, summary_of
from brainsurgeon.planning.turns import (
    Archiving,
    Conversation,
    GatheredTurn,
    Offsets,
    TurnEntry,
    Weight,
    decide,
)

# Turns that become one archive.
_Group = list[GatheredTurn]


class Archival(Struct, frozen=True):
    """The changes to the closing entry of the turns that become one archive.

    In the linked form the closing entry continues `link` afterwards, and `parent` before; both are
    None in the flat form. `middle` is what requests carry of the entries that leave with the link.
    The turns stand in the `span` of offsets, which ends at the closing entry.
    """

    archive: Archive
    text_path: KeyPath
    text: str
    link: str | None = None
    parent: str | None = None
    span: tuple[int, int] = (0, 0)
    middle: Sent = NOTHING

    def archive_after(self, edits: Iterable[Edit]) -> Archive:
        """Return the archive with the tokens that the edits of a plan leave of its turns."""
        begin, end = self.span
        before, ident = self.archive.tokens_before, self.archive.entry_id
        less = sum(
            edit.tokens for edit in edits
            if isinstance(edit, Removal) and (begin <= edit.start < end or edit.entry_id == ident)
        )  # fmt: skip
        return replace(self.archive, tokens_after=before - less)


class Archivals(Struct, frozen=True):
    """All archives of a plan, by the offsets of their closing entries, and the verdicts on turns.

    The entries at the offsets in `left` leave the active branch, those in `emptied` lose thinking
    and results of any length.
    """

    made: dict[int, Archival] = field(default_factory=dict)
    verdicts: tuple[Verdict, ...] = ()
    left: Offsets = field(default_factory=Offsets)
    emptied: Offsets = field(default_factory=Offsets)

    def at(self, offset: int, ident: str | None, *, hindered: bool) -> Archival | None:
        """Return the archive made in this line, if any; raise ArchiveRefusedError if `hindered`."""
        archival = self.made.get(offset)
        if archival and hindered:
            raise ArchiveRefusedError(ident or "")
        return archival


class ArchiveRefusedError(Exception):
    """The line of a closing entry cannot be edited. The message is the id of the entry."""


def archive_turns(session: Snapshot, rules: Rules, archiving: Archiving) -> Archivals:
    """Decide which turns of a session are archived. Reads nothing if none may be."""
    if not (archiving.rules.enabled or archiving.asked or archiving.beyond > 0):
        return Archivals()
    return _Archiver(session, rules, archiving).archivals()


class _Archiver:
    def __init__(self, session: Snapshot, rules: Rules, archiving: Archiving) -> None:
        self._archiving, self._rules = archiving, archiving.rules
        self._rate = session.records.rate
        self._conversation = Conversation(session, rules, archiving)
        self._turns, self._linked = self._conversation.turns, self._conversation.linked
        self._live = [gathered for gathered in self._turns if gathered.turn.dead is None]
        known = {record.id: record for record in session.records.archives}
        self._archives = {
            value.entry_id: known[value.archive_id]
            for value in session.records.extractions if value.archive_id in known
        }  # fmt: skip

    def archivals(self) -> Archivals:
        verdicts = self._verdicts()
        chosen = list(compress(self._turns, (verdict.archived for verdict in verdicts)))
        joined = self._joined({id(gathered) for gathered in chosen}) if self._linked else []
        inside = {id(gathered): len(group) for group in joined for gathered in group}
        groups = [*([gathered] for gathered in chosen if id(gathered) not in inside), *joined]
        made = {
            closing.offset: self._archival(group, closing)
            for group in groups if (closing := group[-1].closing) is not None
        }  # fmt: skip
        middles = Offsets(
            offset for group in groups for gathered, begin, end in _between(group)
            for offset in gathered.offsets[begin:end]
        )  # fmt: skip
        return Archivals(
            made,
            tuple(
                _joined_verdict(verdict, gathered, inside.get(id(gathered), 0))
                for verdict, gathered in zip(verdicts, self._turns, strict=True)
            ),
            left=middles if self._linked else Offsets(),
            emptied=Offsets() if self._linked else middles,
        )

    def _verdicts(self) -> list[Verdict]:
        after = {id(gathered): count for count, gathered in enumerate(reversed(self._live))}
        verdicts = []
        for gathered in self._turns:
            turn, record = gathered.turn, self._record(gathered)
            turn.after = after.get(id(gathered), len(self._live) + self._rules.keep_turns)
            turn.depth = (record.depth if record else 1) if gathered.archived else 0
            if self._archiving.summaries and gathered.facts and gathered.middle:
                turn.grows = len(self._text([gathered])) - gathered.closing_chars
            spared = turn.after < self._archiving.spared
            verdict = decide(turn, self._archiving.before if spared else self._rules)
            if verdict.archived and turn.closing_id in self._archiving.refused:
                verdict = Verdict(turn, archived=False, reason="format: its line cannot be edited")
            verdicts.append(verdict)
        return verdicts

    def _record(self, gathered: GatheredTurn) -> ArchiveRecord | None:
        return self._archives.get(gathered.turn.closing_id or "") if gathered.archived else None

    def _text(self, group: _Group) -> str:
        last, chars, style = group[-1], self._rules.summary_chars, self._rules.style
        facts = [gathered.facts or SummaryFacts("") for gathered in group]
        if len(group) > 1:
            return archive_text(last.turn.closing_id or "", outcomes_of(facts, style, chars))
        made = self._archiving.summaries.get(last.digest_of(facts[0].note))
        return archive_text(last.turn.closing_id or "", made or summary_of(facts[0], style, chars))

    def _archival(self, group: _Group, closing: TurnEntry) -> Archival:
        first, last = group[0], group[-1]
        note, text = last.facts.note if last.facts else None, self._text(group)
        counts = [
            (record.turns, record.calls, record.failed) if (record := self._record(gathered))
            else (1, gathered.called, gathered.failed)
            for gathered in group
        ]  # fmt: skip
        turns, calls, failed = map(sum, zip(*counts, strict=True))
        weight = _weight_between(group)
        whole = Sent(weight.sent + last.closing_chars, weight.pictures)
        archive = Archive(
            last.turn.closing_id or "", first.turn.prompt_id,
            sum(end - begin for _, begin, end in _between(group)),
            whole.tokens(self._rate), 0,
            max(*(gathered.turn.depth for gathered in group), len(group) > 1) + 1,
            self._rules.style, note, last.digest_of(note),
            prompts=tuple(gathered.turn.prompt_id for gathered in group),
            turns=turns, calls=calls, failed=failed,
        )  # fmt: skip
        return Archival(
            archive, closing.step.text_path or (), text,
            first.prompt.ident if self._linked else None,
            closing.step.parent if self._linked else None,
            (first.prompt.offset, closing.offset),
            Sent(weight.sent, weight.pictures) if self._linked else NOTHING,
        )  # fmt: skip

    def _joined(self, chosen: set[int]) -> list[_Group]:
        """Return the groups of two or more turns that become one archive each.

        The oldest live turns that end before the newest `beyond` messages are one group, or as many
        of them as may be joined. In a row of adjacent archives longer than `fold_after`, the oldest
        half is merged until the row is short enough. `chosen` are the turns (by `id`) that are
        archived anyway.
        """
        live, beyond = self._live, self._archiving.beyond
        oldest = sum(0 < beyond <= gathered.turn.position for gathered in live)
        for count, gathered in enumerate(live[:oldest]):
            if gathered.turn.held or gathered.broken or gathered.fixed:
                oldest = count + (not gathered.turn.held)
                break
        starts = (live[:count] for count in range(oldest, 1, -1))
        groups = [next(filter(self._may_join, starts), [])]
        for row in self._rows(live[len(groups[0]) :], chosen):
            groups += self._merged(row)
        return [group for group in groups if len(group) > 1]

    def _rows(self, live: _Group, chosen: set[int]) -> list[list[tuple[_Group, int]]]:
        """Return the rows of adjacent archives that could be archived again, with their depths."""
        rows: list[list[tuple[_Group, int]]] = [[]]
        for gathered in live:
            depth = gathered.turn.depth or int(id(gathered) in chosen)
            if not 0 < depth < self._rules.depth_cap or gathered.turn.held:
                rows.append([])
                continue
            if rows[-1] and not self._may_join([*rows[-1][-1][0], gathered]):
                rows.append([])
            rows[-1].append(([gathered], depth))
        return rows

    def _merged(self, row: list[tuple[_Group, int]]) -> list[_Group]:
        done = []
        while len(row) > max(1, self._rules.fold_after):
            half = row[: max(2, len(row) // 2)]
            merged = [gathered for group, _ in half for gathered in group]
            depth = max(depth for _, depth in half) + 1
            row = row[len(half) :]
            if depth < self._rules.depth_cap:
                row.insert(0, (merged, depth))
            else:
                done.append(merged)
        return done + [group for group, _ in row]

    def _may_join(self, group: Sequence[GatheredTurn]) -> bool:
        inner, last = group[:-1], group[-1]
        closing, at = last.closing, last.at or 0
        if closing is None or not closing.step.closes or closing.step.text_path is None:
            return False
        if self._rules.depth_cap <= 1 or any(gathered.turn.held for gathered in group):
            return False
        if any(gathered.broken or gathered.fixed for gathered in inner) or not last.follows(at):
            return False
        if last.fixed and last.fixed[0] < at:
            return False
        if any(gathered.prompt.step.parent != before.last for before, gathered in pairwise(group)):
            return False
        unsure = self._conversation.is_unsure
        if any(unsure(gathered, len(gathered.ids)) for gathered in inner) or unsure(last, at):
            return False
        # No entry outside the group may refer to an entry that leaves the branch with the group.
        return not any(
            begin <= index < end and not group[0].prompt.offset <= offset <= closing.offset
            for gathered, begin, end in _between(group)
            for index, offset, _ in gathered.named
        )


def _between(group: Sequence[GatheredTurn]) -> Iterator[tuple[GatheredTurn, int, int]]:
    for gathered in group:
        end = gathered.at if gathered is group[-1] else len(gathered.offsets)
        yield gathered, int(gathered is group[0]), end or 0


def _weight_between(group: _Group) -> Weight:
    weight = group[-1].to_reply
    for gathered in group[:-1]:
        weight = weight.plus(gathered.whole)
    return weight.less(group[0].of_prompt)


def _joined_verdict(verdict: Verdict, gathered: GatheredTurn, turns: int) -> Verdict:
    """Return the verdict on a turn in an archive of `turns` turns; 0 means that it is in none."""
    if verdict.archived or not turns:
        return verdict
    why = "taken into a larger archive" if gathered.archived else f"with {turns - 1:,} other turns"
    return replace(verdict, archived=True, reason=why, until=None)


def removals(
    parsed: ParsedLine, archival: Archival, form: Format, standing: Iterable[Extraction],
    rate: float,
) -> Iterator[Removal]:  # fmt: skip
    """Draft the edits that archive a turn: its last text and, in the linked form, its link."""
    ident, rest = parsed.ident or "", form.rest(parsed.entry)
    before = {value.path: value for value in standing if value.archive_id is not None}
    chars = len(str(value_at(parsed.entry, archival.text_path)))
    edits: list[tuple[KeyPath, str, str | None, int, Sent]] = [
        (archival.text_path, archival.text, None, chars, archival.middle)
    ]
    if archival.link is not None:
        edits.append((LINK, archival.link, archival.parent, 0, NOTHING))
    places = offsets_of(parsed, [path for path, *_ in edits])
    for path, new, anchor, length, middle in edits:
        taken = before.get(path)
        yield Removal(
            *places[path], json.dumps(new).encode(), ident, placeholder_id(ident), path,
            "assistant", None, (taken.chars if taken else length) + middle.chars,
            block=False, forced=True, reason="archived turn",
            anchor=taken.anchor if taken else anchor, rest=rest, archives=True,
            takes_over=taken.id if taken else None, tokens=middle.tokens(rate),
        )  # fmt: skip
