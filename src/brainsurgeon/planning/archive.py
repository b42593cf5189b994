"""Archive turns: gather them, decide which are archived, group them, and draft the edits.

Sessions have many thousand turns, and turns many thousand entries. To save memory, only the offset
and a hash are kept for each entry, and the facts of a summary only for turns that may be archived.
"""

from __future__ import annotations

import json
from array import array
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from itertools import compress, islice, pairwise, takewhile
from typing import NamedTuple

from msgspec import Struct, field
from msgspec.structs import replace

from brainsurgeon.formats.base import WRITES, Format, ParsedLine, parsed_lines
from brainsurgeon.formats.splice import offsets_of
from brainsurgeon.formats.weight import DIALECTS
from brainsurgeon.model.entries import OLD, KeyPath, placeholder_id, placeholder_in, value_at
from brainsurgeon.model.plans import Edit, Removal
from brainsurgeon.model.records import Extraction
from brainsurgeon.model.rules import ArchiveRules, Rules
from brainsurgeon.model.sessions import EDITED_AWAY, OFF_BRANCH
from brainsurgeon.model.turns import (
    LINK,
    MARK,
    NOTHING,
    Archive,
    ArchiveRecord,
    Sent,
    ToolCall,
    ToolResult,
    Turn,
    TurnStep,
    Verdict,
)
from brainsurgeon.planning.drafts import Ids, Judge
from brainsurgeon.planning.rules import EntryState
from brainsurgeon.planning.snapshot import Frontier, Snapshot
from brainsurgeon.planning.summaries import (
    SummaryFacts,
    archive_text,
    closing_facts,
    outcomes_of,
    summary_of,
)

# Characters kept of the first line of a failed result, and how many of the newest are kept.
_FINDING = 160
_FINDINGS = 5
_FILES = 20
# The greatest depth of nested archives, and the most adjacent archives that are not merged.
DEPTH_CAP = 3
FOLD_AFTER = 20
# Characters kept of an answer: enough to recognise a placeholder or an archive.
_BEGIN = 300
_LONGEST_NAME = 40
# A summary may be longer than the answer by at most this share of the removed characters.
_WORTH = 0.5


class Weight(NamedTuple):
    """The size of some entries.

    `chars` are the characters of all values, `going` those that the flat form removes. `sent` is
    their part of a request. `calls` and `messages` count tool calls and live messages.
    """

    chars: int = 0
    going: int = 0
    sent: Sent = NOTHING
    calls: int = 0
    messages: int = 0

    def plus(self, other: Weight) -> Weight:
        return Weight(
            self.chars + other.chars, self.going + other.going, self.sent + other.sent,
            self.calls + other.calls, self.messages + other.messages,
        )  # fmt: skip

    def less(self, other: Weight) -> Weight:
        return Weight(
            self.chars - other.chars, self.going - other.going, self.sent - other.sent,
            self.calls - other.calls, self.messages - other.messages,
        )  # fmt: skip


class Offsets:
    """A compact set of line offsets: archived turns may have a million of them."""

    def __init__(self, offsets: Iterable[int] = ()) -> None:
        self._sorted = array("q", offsets)
        if any(before > after for before, after in pairwise(self._sorted)):
            self._sorted = array("q", sorted(self._sorted))

    def __contains__(self, offset: object) -> bool:
        if not isinstance(offset, int):
            return False
        at = bisect_left(self._sorted, offset)
        return at < len(self._sorted) and self._sorted[at] == offset


class TurnEntry(NamedTuple):
    offset: int
    ident: str | None
    step: TurnStep


class Calls(Struct):
    """The tool calls of a turn that is being gathered, and the `failed` ones, by tool.

    `balance` is a sum of hashes: 0 if each call with an id has exactly one result, in any order.
    """

    answered: int = 0
    balance: int = 0
    twice: bool = False
    tools: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    written: dict[str, None] = field(default_factory=dict)
    touched: dict[str, None] = field(default_factory=dict)
    _ids: set[int] = field(default_factory=set)
    _open: dict[str, str] = field(default_factory=dict)
    _early: set[str] = field(default_factory=set)

    def add(self, call: ToolCall) -> None:
        self.tools[call.tool] += 1
        files = self.written if WRITES.search(call.tool) else self.touched
        files.update(dict.fromkeys(call.files))
        if not call.call_id:
            return
        known = hash(call.call_id)
        self.twice |= known in self._ids
        self._ids.add(known)
        self.balance += known
        if call.call_id in self._early:
            self.failed[call.tool] += 1
        else:
            self._open[call.call_id] = call.tool

    def answer(self, result: ToolResult) -> None:
        self.answered += 1
        if result.finding:
            self.failures = [*self.failures, result.finding[:_FINDING]][-_FINDINGS:]
        if not result.call_id:
            return
        self.balance -= hash(result.call_id)
        tool = self._open.pop(result.call_id, None)
        if result.failed and tool is not None:
            self.failed[tool] += 1
        elif result.failed:
            self._early.add(result.call_id)

    def facts(self, closing: str, note: str | None) -> SummaryFacts:
        """Return the facts of a turn that ends with the text `closing`."""
        files = list(self.written | self.touched)
        failed = {f"{tool}!": self.failed[tool] for tool in self.tools if self.failed[tool]}
        return replace(
            closing_facts(closing), note=note, failures=tuple(self.failures),
            files=tuple(files[:_FILES]), more=len(files[_FILES:]), tools={**self.tools, **failed},
        )  # fmt: skip


# `calls` of turns that have ended, to free memory.
_ENDED = Calls()


class GatheredTurn(Struct):
    """A turn with its entries, from the prompt on.

    `closing` is its last reply, at the index `at` of its entries, whether or not it closes the
    turn. `ids` are hashes. `broken` is the index of the first entry that does not continue the
    previous one, `nameless` of the first without an id, `fixed` of the first that has to stay on
    the branch, with its kind. `behind` means that results or other messages follow the last reply.
    `named` lists references to its entries: the index of the entry, offset and id of the other
    entry. `facts` are None until the turn ends, or if it cannot be archived.
    """

    turn: Turn
    prompt: TurnEntry
    closing: TurnEntry | None = None
    at: int | None = None
    archived: bool = False
    offsets: array[int] = field(default_factory=lambda: array("q"))
    ids: array[int] = field(default_factory=lambda: array("q"))
    broken: int | None = None
    nameless: int | None = None
    fixed: tuple[int, str] | None = None
    behind: bool = False
    last: str | None = None
    named: list[tuple[int, int, str]] = field(default_factory=list)
    whole: Weight = field(default_factory=Weight)
    to_reply: Weight = field(default_factory=Weight)
    of_prompt: Weight = field(default_factory=Weight)
    calls: Calls = field(default_factory=Calls)
    called: int = 0
    failed: int = 0
    closing_chars: int = 0
    digest: blake2b = field(default_factory=lambda: blake2b(digest_size=16))
    facts: SummaryFacts | None = None

    @property
    def middle(self) -> int:
        return (len(self.offsets) if self.at is None else self.at) - 1

    @property
    def weight(self) -> Weight:
        return (self.whole if self.at is None else self.to_reply).less(self.of_prompt)

    def add(self, entry: TurnEntry, kind: str, weight: Weight) -> None:
        index, step = len(self.offsets), entry.step
        if index and step.parent != self.last and self.broken is None:
            self.broken = index
        if entry.ident is None and self.nameless is None:
            self.nameless = index
        if step.role == "fixed" and self.fixed is None:
            self.fixed = index, kind
        if index == 0:
            self.of_prompt = weight
        elif step.role == "reply":
            self.closing, self.at, self.to_reply = entry, index, self.whole
        self.behind = step.role in ("result", "aside") or (self.behind and step.role != "reply")
        self.offsets.append(entry.offset)
        self.ids.append(hash(entry.ident))
        self.last, self.whole = entry.ident, self.whole.plus(weight)
        self.digest.update(f"{entry.ident}\n".encode("utf-8", "surrogatepass"))
        for call in step.calls:
            self.calls.add(call)
        for result in step.results:
            self.calls.answer(result)

    def follows(self, last: int) -> bool:
        return self.broken is None or self.broken > last

    def end(self, note: str | None) -> None:
        """Reduce the calls to the facts of a summary."""
        text = self.closing.step.text if self.closing else ""
        self.digest.update(text.encode("utf-8", "surrogatepass"))
        self.turn.open = self._open()
        self.called, self.failed = self.calls.tools.total(), self.calls.failed.total()
        self.closing_chars = len(text)
        self.facts, self.calls = self.calls.facts(text, note), _ENDED
        self.prompt = _short(self.prompt)
        self.closing = _short(self.closing) if self.closing else None

    def _open(self) -> str | None:
        closing, calls = self.closing, self.calls
        if closing is None or not closing.step.closes or closing.step.text_path is None:
            return "its last reply does not close it"
        if self.behind:
            return "its last reply is followed by another entry"
        if calls.tools.total() != calls.answered or calls.balance:
            return "a call has no result, or more than one"
        return "a call occurs in it twice" if calls.twice else None

    def digest_of(self, note: str | None) -> bytes:
        """Return the digest of the ended turn and a note: the key of its summary in `Archiving`."""
        own = self.digest.digest() + (note or "").encode("utf-8", "surrogatepass")
        return blake2b(own, digest_size=16).digest()


def _short(entry: TurnEntry) -> TurnEntry:
    step = replace(entry.step, text=entry.step.text[:_BEGIN], calls=(), results=())
    return entry._replace(step=step)


class Archiving(Struct, frozen=True):
    """The archive settings and requests of a session.

    `asked` maps the prompt ids of requested turns to their notes, or to None. `summaries` maps
    digests of turns to summaries that the configured command wrote. `refused` are closing entries
    whose lines cannot be edited with certainty. In the linked form, the live turns that end before
    the newest `beyond` messages become one archive, whatever their size; further turns are
    archived, the oldest first, until at most `most` live messages remain. 0 switches either off.
    The rules `before` apply to the newest `spared` live turns.
    """

    rules: ArchiveRules
    asked: Mapping[str, str | None] = field(default_factory=dict)
    summaries: Mapping[bytes, str] = field(default_factory=dict)
    refused: frozenset[str] = frozenset()
    beyond: int = 0
    most: int = 0
    spared: int = 0
    before: ArchiveRules = ArchiveRules()

    @property
    def joins(self) -> bool:
        """Whether turns may be archived because of the number of messages."""
        return self.beyond > 0 or self.most > 0


NOTHING_ASKED = Archiving(ArchiveRules())


def without_thresholds(rules: ArchiveRules) -> ArchiveRules:
    return replace(rules, enabled=True, token_threshold=-1)


def decide(turn: Turn, rules: ArchiveRules) -> Verdict:
    if (kept := _kept(turn, rules)) is not None:
        return Verdict(turn, archived=False, reason=kept, until=turn.until if turn.held else None)
    why = "asked for" if turn.asked else worth_archiving(turn, rules)
    return Verdict(turn, archived=why is not None, reason=why or "small")


def _kept(turn: Turn, rules: ArchiveRules) -> str | None:
    if not rules.enabled and not turn.asked:
        return "off"
    if turn.unformed:
        return f"format: {turn.unformed}"
    recent = turn.after < rules.keep_turns or turn.position < rules.keep_recent
    if recent and not turn.asked:
        return "recent"
    if turn.open or turn.closing_id is None:
        return f"open turn: {turn.open or 'it has no last answer'}"
    if turn.dead:
        return f"never sent: {turn.dead}"
    if turn.held:
        return turn.held
    if turn.referred:
        return f"referred to by {turn.referred}"
    if not turn.middle or turn.grows > turn.leaves * _WORTH:
        return "no gain"
    if turn.depth >= DEPTH_CAP:
        return f"depth {turn.depth}"
    return None


def worth_archiving(turn: Turn, rules: ArchiveRules) -> str | None:
    if turn.cut_short:
        return "it was cut short"
    if turn.tokens > rules.token_threshold:
        return f"{turn.tokens:,} tokens"
    if turn.calls >= rules.tool_call_threshold:
        return f"{turn.calls:,} calls"
    return None


class Conversation:
    """The turns of a session, oldest first, and the number of its live messages.

    `twice` are the hashes of ids that occur more than once.
    """

    def __init__(self, session: Snapshot, rules: Rules, archiving: Archiving) -> None:
        self._session, self._archiving = session, archiving
        self._form, self._keep_after_restore = session.form, rules.keep_after_restore
        self.linked = session.form.archives == "linked"
        self._archived = {value.entry_id: value for value in session.records.extractions
                          if value.archive_id is not None and not value.links}  # fmt: skip
        self._restores, self._judge = session.restores, Judge(session, rules, Frontier())
        # The entries (offset, id) that refer to an id, by its hash. The next entry of the same
        # turn, or of the same branch off the active one, is not counted as a reference.
        self._names: dict[int, list[tuple[int, str]]] = defaultdict(list)
        self.turns: list[GatheredTurn] = []
        self.messages = 0
        self._gather()

    def _gather(self) -> None:
        number, ids, aside = 0, Ids(), None
        for parsed in parsed_lines(self._session.lines, self._form):
            step = self._form.turn_step(parsed.entry) if parsed.terminated else None
            if step is None:
                continue
            turn_entry = TurnEntry(parsed.offset, parsed.ident, step)
            if parsed.ident is not None:
                ids.meet(parsed.ident)
            dead = self._session.survey.dead(parsed.offset)
            before = self.turns[-1].last if self.turns and step.role != "prompt" else None
            if self.linked:
                self._note_names(turn_entry, aside if dead == OFF_BRANCH else before)
            if dead == OFF_BRANCH:
                aside = parsed.ident
                continue
            self.messages += dead is None and self._form.counts(parsed.entry)
            if step.role == "prompt":
                self._end_turn()
                number += dead is None
                turn = Turn(number, parsed.ident or "", dead=dead)
                self.turns.append(GatheredTurn(turn, turn_entry))
            if self.turns:
                self._add(self.turns[-1], turn_entry, parsed, dead)
        self._end_turn()
        self.twice = ids.twice()
        for gathered in self.turns:
            if self._names:
                gathered.named = [
                    (index, offset, ident)
                    for index, known in enumerate(gathered.ids)
                    for offset, ident in self._names.get(known, ())
                ]
            gathered.turn.unformed = self._unformed(gathered)
            gathered.turn.referred = _referrer(gathered)

    def _note_names(self, turn_entry: TurnEntry, before: str | None) -> None:
        step = turn_entry.step
        continues = before is not None and step.parent == before
        for name in step.names if continues else (step.parent, *step.names):
            if name is not None:
                self._names[hash(name)].append((turn_entry.offset, turn_entry.ident or "an entry"))

    def _add(
        self, gathered: GatheredTurn, turn_entry: TurnEntry, parsed: ParsedLine, dead: str | None
    ) -> None:
        step, survey, entry = turn_entry.step, self._session.survey, parsed.entry
        parts = [] if dead else [
            part for part in self._form.parts(entry, survey, parsed.offset) if not part.dead
        ]  # fmt: skip
        sent = DIALECTS[self._form.name].sent(entry)
        weight = Weight(
            sum(part.chars for part in parts),
            sum(
                part.chars for part in parts
                if part.kind in ("thinking", "tool_result") and part.locked is None
            ),
            sent, len(step.calls), int(dead is None and self._form.counts(entry)),
        )  # fmt: skip
        kind = value_at(entry, ("message", "role")) or entry.get("type")
        gathered.add(turn_entry, str(kind)[:_LONGEST_NAME], weight)
        if dead and dead != EDITED_AWAY:
            gathered.turn.dead = dead
        self._hold(gathered.turn, self._judge.state(parsed))
        if step.role == "reply":
            gathered.turn.position = survey.position(parsed.offset)
            record = self._archived.get(parsed.ident or "")
            begins_so = step.text.startswith(f"{MARK}\narchive: ")
            gathered.archived = record.shows_in(entry) if record else begins_so

    def _hold(self, turn: Turn, state: EntryState) -> None:
        """Record the reason if an entry prevents its turn from being archived.

        The reason that holds longest wins.
        """
        if turn.held and turn.until is None:
            return
        ident, now = state.entry_id or "an entry", self._session.now
        if state.extractable is False:
            turn.held, turn.until = f"pinned: {ident}", None
        elif type(state.extractable) is int and state.position < state.extractable:
            turn.held, turn.until = f"pinned: inside the window of {ident}", None
        elif any(request.speaks_of(ident) for request in self._restores):
            turn.held, turn.until = f"restored: {ident} is asked for", None
        elif state.restored_at is not None:
            until = state.restored_at + self._keep_after_restore
            if now < until and until > (turn.until or 0.0):
                ago = max(0, round(now - state.restored_at))
                turn.held, turn.until = f"restored {ago} s ago: {ident}", until

    def _end_turn(self) -> None:
        """Complete the last turn. The facts of its summary are kept only if it may be archived."""
        if not self.turns:
            return
        gathered, rules, asked = self.turns[-1], self._archiving.rules, self._archiving.asked
        turn, weight, closing = gathered.turn, gathered.weight, gathered.closing
        gathered.end(asked.get(turn.prompt_id))
        if turn.dead:
            turn.position = OLD
        turn.middle = 0 if gathered.archived and not self.linked else gathered.middle
        turn.leaves = weight.chars if self.linked else weight.going
        turn.tokens = weight.sent.tokens(self._session.records.rate)
        turn.calls = weight.calls
        turn.asked = turn.prompt_id in asked
        if closing is not None:
            turn.closing_id, turn.cut_short = closing.ident, closing.step.cut_short
        if gathered.facts and closing is not None and gathered.middle:
            summary = summary_of(gathered.facts)
            turn.grows = len(archive_text(closing.ident or "", summary)) - gathered.closing_chars
        if not (
            gathered.archived or turn.asked or self._archiving.joins
            or (gathered.middle and worth_archiving(turn, rules))
        ):  # fmt: skip
            gathered.facts = None

    def _unformed(self, gathered: GatheredTurn) -> str | None:
        if self._form.archives is None:
            return "turns of such sessions cannot be archived"
        closing, at = gathered.closing, gathered.at
        if closing is None or at is None:
            return None
        if gathered.prompt.ident is None or closing.ident is None:
            return "its prompt or last answer has no usable id"
        if placeholder_in(closing.step.text):
            return "its last answer is extracted"
        if not self.linked:
            ends = {hash(gathered.prompt.ident), hash(closing.ident)}
            return "its id occurs twice" if ends & self.twice else None
        if self.is_unsure(gathered, at):
            return "an id is missing or occurs twice"
        if not gathered.follows(at):
            return "its entries do not follow one another"
        fixed = gathered.fixed
        return f"it contains a {fixed[1]}" if fixed and fixed[0] < at else None

    def is_unsure(self, gathered: GatheredTurn, last: int) -> bool:
        """Check whether an entry of a turn, up to an index, has no id or an ambiguous one."""
        if gathered.nameless is not None and gathered.nameless <= last:
            return True
        return bool(self.twice) and not self.twice.isdisjoint(gathered.ids[: last + 1])


def _referrer(gathered: GatheredTurn) -> str | None:
    at = gathered.at or 0
    inside = frozenset(gathered.offsets[: at + 1] if gathered.named else ())
    outside = (
        ident for index, offset, ident in gathered.named if 0 < index < at and offset not in inside
    )
    return next(outside, None)


# Turns that become one archive.
_Group = list[GatheredTurn]


class Archival(Struct, frozen=True):
    """The changes to the closing entry of the turns that become one archive.

    In the linked form the closing entry continues `link` afterwards, and `parent` before; both are
    None in the flat form. `middle` is the part of a request that the link removes. `span` are the
    offsets of the first prompt and of the closing entry.
    """

    archive: Archive
    text_path: KeyPath
    text: str
    link: str | None = None
    parent: str | None = None
    span: tuple[int, int] = (0, 0)
    middle: Sent = NOTHING

    def archive_after(self, edits: Iterable[Edit]) -> Archive:
        begin, end = self.span
        before, ident = self.archive.tokens_before, self.archive.entry_id
        less = sum(
            edit.tokens for edit in edits
            if isinstance(edit, Removal) and (begin <= edit.start < end or edit.entry_id == ident)
        )  # fmt: skip
        return replace(self.archive, tokens_after=before - less)


class Archivals(Struct, frozen=True):
    """All archives of a plan, by the offsets of their closing entries, and the verdicts on turns.

    `left` are the offsets of entries that leave the active branch, `emptied` of entries whose
    thinking and results are removed, whatever their length. At most `most` live messages remain;
    None if that is not reached.
    """

    made: dict[int, Archival] = field(default_factory=dict)
    verdicts: tuple[Verdict, ...] = ()
    left: Offsets = field(default_factory=Offsets)
    emptied: Offsets = field(default_factory=Offsets)
    most: int | None = None

    def farthest(self, offset: int) -> int:
        """Return the largest position that the entry at an offset can have afterwards."""
        return OLD if self.most is None or offset in self.left else self.most - 1

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
    if not (archiving.rules.enabled or archiving.asked or archiving.joins):
        return Archivals()
    return _Archiver(session, rules, archiving).archivals()


class _Archiver(Conversation):
    def __init__(self, session: Snapshot, rules: Rules, archiving: Archiving) -> None:
        super().__init__(session, rules, archiving)
        self._rules, self._rate = archiving.rules, session.records.rate
        self._live = [gathered for gathered in self.turns if gathered.turn.dead is None]
        known = {record.id: record for record in session.records.archives}
        self._archives = {
            value.entry_id: known[value.archive_id]
            for value in session.records.extractions if value.archive_id in known
        }  # fmt: skip

    def archivals(self) -> Archivals:
        verdicts = self._verdicts()
        chosen = list(compress(self.turns, (verdict.archived for verdict in verdicts)))
        joined, excess = self._joined(chosen) if self.linked else ([], 1)
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
                for verdict, gathered in zip(verdicts, self.turns, strict=True)
            ),
            left=middles if self.linked else Offsets(),
            emptied=Offsets() if self.linked else middles,
            most=self._archiving.most if excess <= 0 < self._archiving.most else None,
        )

    def _verdicts(self) -> list[Verdict]:
        after = {id(gathered): count for count, gathered in enumerate(reversed(self._live))}
        verdicts = []
        for gathered in self.turns:
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
        last = group[-1]
        facts = [gathered.facts or SummaryFacts("") for gathered in group]
        if len(group) > 1:
            return archive_text(last.turn.closing_id or "", outcomes_of(facts))
        made = self._archiving.summaries.get(last.digest_of(facts[0].note))
        return archive_text(last.turn.closing_id or "", made or summary_of(facts[0]))

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
        whole = weight.sent + Sent(last.closing_chars)
        archive = Archive(
            last.turn.closing_id or "", first.turn.prompt_id,
            sum(end - begin for _, begin, end in _between(group)),
            whole.tokens(self._rate), 0,
            max(*(gathered.turn.depth for gathered in group), len(group) > 1) + 1,
            note, last.digest_of(note),
            prompts=tuple(gathered.turn.prompt_id for gathered in group),
            turns=turns, calls=calls, failed=failed,
        )  # fmt: skip
        return Archival(
            archive, closing.step.text_path or (), text,
            first.prompt.ident if self.linked else None,
            closing.step.parent if self.linked else None,
            (first.prompt.offset, closing.offset),
            weight.sent if self.linked else NOTHING,
        )  # fmt: skip

    def _joined(self, chosen: _Group) -> tuple[list[_Group], int]:
        """Return groups of turns, one for each joint archive, and the messages above `most`.

        The first group are the oldest live turns that end before the newest `beyond` messages, as
        far as they may be joined. Further groups are made of the oldest turns until at most `most`
        messages remain. While more than FOLD_AFTER archives are adjacent, the older half of them is
        merged into one. `chosen` are the turns that are archived anyway.
        """
        alone = {id(gathered): _messages_between([gathered]) for gathered in chosen}
        excess = self.messages - self._archiving.most - sum(alone.values())
        first = self._before_newest()
        excess -= _saved(first, alone)
        capped, excess = self._capped(self._live[len(first) :], alone, excess)
        groups = [first, *capped] if len(first) > 1 else capped
        taken = {id(gathered) for group in groups for gathered in group}
        left = [gathered for gathered in self._live if id(gathered) not in taken]
        merged = (group for row in self._rows(left, alone) for group in self._merged(row))
        return [*groups, *(group for group in merged if len(group) > 1)], excess

    def _before_newest(self) -> _Group:
        """Return the oldest live turns that end before the newest `beyond` messages."""
        live, beyond = self._live, self._archiving.beyond
        oldest = sum(0 < beyond <= gathered.turn.position for gathered in live)
        for count, gathered in enumerate(live[:oldest]):
            if gathered.turn.held or gathered.broken or gathered.fixed:
                oldest = count + (not gathered.turn.held)
                break
        starts = (live[:count] for count in range(oldest, 1, -1))
        return next(filter(self._may_join, starts), [])

    def _capped(
        self, live: _Group, alone: Mapping[int, int], excess: int
    ) -> tuple[list[_Group], int]:
        """Return groups of the oldest turns that save `excess` messages, and how many are left.

        A turn that may not be joined stays, and the next group begins after it.
        """
        groups, begin = [], 0
        while self._archiving.most and excess > 0 and begin < len(live):
            group = [*takewhile(lambda one: not one.turn.held, islice(live, begin, None))]
            count = min(len(group), 1 + bisect_left(
                range(1, len(group)), True, key=lambda n: _saved(group[:n], alone) >= excess
            ))  # fmt: skip
            while count and not self._may_join(group[:count]):
                count //= 2
            group = group[:count]
            begin += max(1, count)
            if (saved := _saved(group, alone)) > 0:
                groups.append(group)
                excess -= saved
        return groups, excess

    def _rows(self, live: _Group, chosen: Container[int]) -> list[list[tuple[_Group, int]]]:
        """Return rows of adjacent archives that may be merged, each archive with its depth."""
        rows: list[list[tuple[_Group, int]]] = [[]]
        for gathered in live:
            depth = gathered.turn.depth or int(id(gathered) in chosen)
            if not 0 < depth < DEPTH_CAP or gathered.turn.held:
                rows.append([])
                continue
            if rows[-1] and not self._may_join([*rows[-1][-1][0], gathered]):
                rows.append([])
            rows[-1].append(([gathered], depth))
        return rows

    def _merged(self, row: list[tuple[_Group, int]]) -> list[_Group]:
        done = []
        while len(row) > max(1, FOLD_AFTER):
            half = row[: max(2, len(row) // 2)]
            merged = [gathered for group, _ in half for gathered in group]
            depth = max(depth for _, depth in half) + 1
            row = row[len(half) :]
            if depth < DEPTH_CAP:
                row.insert(0, (merged, depth))
            else:
                done.append(merged)
        return done + [group for group, _ in row]

    def _may_join(self, group: Sequence[GatheredTurn]) -> bool:
        inner, last = group[:-1], group[-1]
        closing, at = last.closing, last.at or 0
        if closing is None or not closing.step.closes or closing.step.text_path is None:
            return False
        if DEPTH_CAP <= 1 or any(gathered.turn.held for gathered in group):
            return False
        if any(gathered.broken or gathered.fixed for gathered in inner) or not last.follows(at):
            return False
        if last.fixed and last.fixed[0] < at:
            return False
        if any(gathered.prompt.step.parent != before.last for before, gathered in pairwise(group)):
            return False
        unsure = self.is_unsure
        if any(unsure(gathered, len(gathered.ids)) for gathered in inner) or unsure(last, at):
            return False
        # No entry outside the group may refer to an entry that leaves the branch.
        return not any(
            begin <= index < end and not group[0].prompt.offset <= offset <= closing.offset
            for gathered, begin, end in _between(group)
            for index, offset, _ in gathered.named
        )


def _between(group: Sequence[GatheredTurn]) -> Iterator[tuple[GatheredTurn, int, int]]:
    for gathered in group:
        end = gathered.at if gathered is group[-1] else len(gathered.offsets)
        yield gathered, int(gathered is group[0]), end or 0


def _messages_between(group: _Group) -> int:
    return _weight_between(group).messages if group else 0


def _saved(group: _Group, alone: Mapping[int, int]) -> int:
    """Return the messages that an archive of the group saves, compared with the turns `alone`."""
    return _messages_between(group) - sum(alone.get(id(gathered), 0) for gathered in group)


def _weight_between(group: _Group) -> Weight:
    weight = group[-1].to_reply
    for gathered in group[:-1]:
        weight = weight.plus(gathered.whole)
    return weight.less(group[0].of_prompt)


def _joined_verdict(verdict: Verdict, gathered: GatheredTurn, turns: int) -> Verdict:
    """Return the verdict on a turn in an archive of `turns` turns; 0 means that it is in none."""
    if verdict.archived or not turns:
        return verdict
    why = f"with {turns - 1:,} other turns" if turns > 1 else "too many messages"
    why = "taken into a larger archive" if gathered.archived else why
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
