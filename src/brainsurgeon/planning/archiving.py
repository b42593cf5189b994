"""Archive turns: gather them, decide which are archived, group them, and draft the edits.

In the linked form, the prompt becomes the parent of the last answer: the entries between them leave
the active branch. In the flat form, they stay, and only their thinking and results are removed.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from itertools import compress
from operator import add, sub
from typing import Any, NamedTuple

from msgspec import Struct, field
from msgspec.structs import replace

from brainsurgeon.formats.base import WRITES, Format, ParsedLine
from brainsurgeon.formats.splice import offsets_of
from brainsurgeon.formats.transcript import Transcript
from brainsurgeon.model.entries import (
    OLD,
    JsonObject,
    KeyPath,
    decode,
    parse,
    placeholder_id,
    placeholder_in,
    value_at,
)
from brainsurgeon.model.plans import Edit, Removal
from brainsurgeon.model.records import Extraction
from brainsurgeon.model.rules import ArchiveRules, Rules
from brainsurgeon.model.session_files import EDITED_AWAY, OFF_BRANCH
from brainsurgeon.model.text import counted
from brainsurgeon.model.transcript import CallFacts, Entry, Result
from brainsurgeon.model.turns import (
    LINK,
    MARK,
    ArchiveRecord,
    PlannedArchive,
    Reason,
    Sent,
    TurnStep,
    Verdict,
)
from brainsurgeon.planning.evidence import as_bytes, shortened
from brainsurgeon.planning.rules import FITS, EntryState, state_of
from brainsurgeon.planning.snapshot import Snapshot, repeated

# Maximum size of the outcome of one turn (bytes), or of all outcomes of several (characters).
_QUOTED = 2000
# Matches any sentence. A pattern that needs the question mark would be tried at each character.
_SENTENCE = re.compile(r"[^\s.!?][^.!?\n]*\??")
_FINDING = 160  # maximum characters of a finding: the first line of a failed result
# Maximum numbers in a summary.
_QUESTIONS = 5
_FINDINGS = 5
_FILES = 20
# An archive of this depth is archived again only to reach `Archiving.most`. If more than FOLD_AFTER
# archives are adjacent, the older half is merged.
DEPTH_CAP = 3
FOLD_AFTER = 20
_LONGEST_NAME = 40
_UNSURE = "an id is missing or occurs twice"
_FITS = Reason(FITS)
OPEN_TURN, FORMAT, NEVER_SENT = "open turn", "format", "never sent"
NO_GAIN, DEPTH = "no gain", "depth"
LASTING = (FORMAT, NEVER_SENT, NO_GAIN, DEPTH)  # what keeps a turn for ever
_UNKNOWN = Reason(FORMAT, "the original of its last answer is not known")
_LOST = "[no longer available]"  # is quoted instead of an answer that has expired
# A summary may be longer than the answer by at most this share of the removed characters.
_WORTH = 0.5


class Summary(Struct, frozen=True):
    """The summary of a turn, empty if not needed. `digest` is its key in `Archiving.summaries`."""

    text: str = ""
    outcome: str = ""
    failed: int = 0
    digest: bytes = b""


def archive_text(entry_id: str, summary: str) -> str:
    return f"{MARK}\narchive: {placeholder_id(entry_id)}\n\n{summary}"


def outcomes_of(outcomes: Sequence[str]) -> str:
    share = max(1, _QUOTED // len(outcomes))
    listed = [text if len(text) <= share else f"{text[:share]}…" for text in outcomes]
    return json.dumps({"outcomes": listed}, ensure_ascii=False)


def outcome_in(text: str) -> str:
    if not text.startswith(MARK):
        return text
    summary = text.partition("\n\n")[2]
    parsed = parse(as_bytes(summary)) or {}
    outcomes = parsed.get("outcomes")
    if isinstance(outcomes, list):
        return "; ".join(_said(str(outcome)) for outcome in outcomes)
    return str(parsed.get("outcome", summary))


def _said(text: str) -> str:
    return _LOST if placeholder_in(text) else text


class Weight(NamedTuple):
    """The size of some entries in a request, and the number of live messages among them.

    The linked form removes everything in `sent`, the flat form only `going` characters.
    """

    sent: Sent = Sent()
    going: int = 0
    messages: int = 0

    def plus(self, other: Weight) -> Weight:
        return Weight(*map(add, self, other))

    def less(self, other: Weight) -> Weight:
        return Weight(*map(sub, self, other))


class Middles:
    """Ranges of indexes between the first prompt and the last answer of an archive."""

    def __init__(self, spans: Iterable[tuple[int, int]] = ()) -> None:
        self._spans = sorted(spans)

    def __contains__(self, index: Any) -> bool:
        before = bisect_left(self._spans, (index,)) - 1
        return before >= 0 and index < self._spans[before][1]


class TurnEntry(Struct, frozen=True):
    index: int
    entry: Entry
    number: int = 0  # on the active branch
    weight: Weight = Weight()  # of all entries before it, and of itself if it is a prompt

    @property
    def ident(self) -> str | None:
        return self.entry.ident


class Calls:
    """The tool calls of a turn. `read` adds what only their contents say."""

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        calls, results = list[CallFacts](), list[Result]()
        self._behind = False  # results or other messages follow the last reply
        for entry in entries:
            calls += entry.calls
            results += entry.results
            behind = self._behind and entry.role != "reply"
            self._behind = behind or entry.role in ("result", "aside")
        self.tools = Counter(call.tool for call in calls)
        self._called = {call.call_id: call.tool for call in calls if call.call_id}
        self._failed = {result.call_id for result in results if result.failed}
        made = Counter(call.call_id for call in calls if call.call_id)
        answered = Counter(result.call_id for result in results if result.call_id)
        self._answered = len(calls) == len(results) and made == answered
        self.findings: list[str] = []
        self.files: dict[str, bool] = {}  # whether each file was written

    def read(self, step: TurnStep) -> None:
        for call in step.calls:
            writes = WRITES.search(call.tool) is not None
            for file in call.files:
                self.files[file] = writes or self.files.get(file, False)
        for result in step.results:
            if result.finding:
                self.findings = [*self.findings, result.finding[:_FINDING]][-_FINDINGS:]

    def why_open(self, reply: Entry) -> str | None:
        if not reply.closes or reply.text_path is None:
            return "its last reply does not close it"
        if self._behind:
            return "its last reply is followed by another entry"
        if not self._answered:
            return "a call has no result, or more than one"
        return None

    def summary(self, answer: str, note: str | None, digest: bytes = b"") -> Summary:
        files = sorted(self.files, key=lambda file: not self.files[file])
        failed = Counter(tool for call, tool in self._called.items() if call in self._failed)
        outcome = shortened(as_bytes(note or _said(outcome_in(answer))), _QUOTED).decode()
        text = json.dumps({
            "outcome": outcome,
            "key_findings": self.findings,
            "files_touched":
                [*files[:_FILES], f"+{len(files) - _FILES}"] if len(files) > _FILES else files,
            "tools_used":
                {**self.tools, **{f"{tool}!": failed[tool] for tool in self.tools if failed[tool]}},
            "open_questions":
                [one for one in _SENTENCE.findall(answer) if one.endswith("?")][:_QUESTIONS],
        }, ensure_ascii=False)  # fmt: skip
        return Summary(text, outcome, failed.total(), digest)


class Size(Struct):
    middle: int = 0  # entries after the prompt, until the last reply; 0 if a flat archive
    tokens: int = 0  # of these entries
    calls: int = 0
    answer: int = 0  # characters of the last reply
    removed: int = 0  # characters that an archive would remove
    added: int = 0  # characters by which an archive would make the last reply longer


class Obstacles(Struct, kw_only=True, eq=False):
    malformed: str | None = None  # its ids or entries do not allow an archive
    open: str | None = None  # it is not finished
    dead: str | None = None  # no request contains it
    held: Reason | None = None  # an entry is pinned, was restored, or will be
    until: float | None = None  # when `held` ends, if it ends by itself
    referrer: str | None = None  # the id of an entry outside the turn that refers to one inside
    barred: Reason | None = None  # why no archive may end with this turn


class Turn(Obstacles, eq=False):
    number: int  # counts live turns, from 1
    prompt: TurnEntry
    closing: TurnEntry | None = None  # the last reply, even if it leaves the turn open
    requested: bool = False
    position: int = 0  # number of messages after `closing` (after the prompt if it is None)
    after: int = 0  # number of live turns that follow
    depth: int = 0  # nesting depth of the archive; 0: the turn is not archived
    record: ArchiveRecord | None = None  # of this archive
    taken: Sequence[Extraction] = ()  # what stands where an archive would stand
    size: Size = field(default_factory=Size)
    entries: list[int] = field(default_factory=list)  # indexes
    summary: Summary = Summary()

    @property
    def prompt_id(self) -> str:
        return self.prompt.ident or ""

    @property
    def closing_id(self) -> str | None:
        return self.closing.ident if self.closing else None


class Archiving(Struct, frozen=True):
    """How turns of a session are to be archived: rules, requests, and what was refused before."""

    rules: ArchiveRules
    # Returns the JSON of a stored value, None if it is lost.
    original: Callable[[Extraction], bytes | None] = lambda _: None
    requested: Mapping[str, str | None] = field(default_factory=dict)  # notes by ids of prompts
    # Summaries that the configured command wrote, by digests of turns.
    summaries: Mapping[bytes, str] = field(default_factory=dict)
    refused: frozenset[str] = frozenset()  # ids of last answers that cannot be replaced
    # If not 0, the linked form archives further turns, the oldest first, until at most this many
    # live messages remain.
    most: int = 0


NO_ARCHIVING = Archiving(ArchiveRules())


def without_thresholds(rules: ArchiveRules) -> ArchiveRules:
    return replace(rules, enabled=True, token_threshold=-1)


def decide(turn: Turn, rules: ArchiveRules) -> Verdict:
    kept = _why_kept(turn, rules)
    why = None if kept else "requested" if turn.requested else worth_archiving(turn, rules)
    if why and turn.barred:
        why, kept = None, turn.barred
    reason = Reason(why) if why else kept or Reason("small")
    return Verdict(
        turn.number, turn.prompt_id, turn.closing_id, why is not None, reason,
        turn.until, turn.size.middle, turn.size.tokens, turn.size.calls, turn.depth,
        turn.requested, turn.dead,
    )  # fmt: skip


def _why_kept(turn: Turn, rules: ArchiveRules) -> Reason | None:
    if not rules.enabled and not turn.requested:
        return Reason("off")
    if turn.malformed:
        return Reason(FORMAT, turn.malformed)
    recent = turn.after < rules.keep_turns or turn.position < rules.keep_recent
    if recent and not turn.requested:
        return Reason("recent")
    if turn.open or turn.closing_id is None:
        return Reason(OPEN_TURN, turn.open or "it has no last answer")
    if turn.dead:
        return Reason(NEVER_SENT, turn.dead)
    if turn.held:
        return turn.held
    if turn.referrer:
        return Reason(f"referred to by {turn.referrer}")
    if not turn.size.middle or turn.size.added > turn.size.removed * _WORTH:
        return Reason(NO_GAIN)
    if turn.depth >= DEPTH_CAP:
        return Reason(DEPTH, str(turn.depth))
    return None


def worth_archiving(turn: Turn, rules: ArchiveRules) -> str | None:
    if turn.closing and turn.closing.entry.cut_short:
        return "it was cut short"
    if turn.size.tokens > rules.token_threshold:
        return f"{turn.size.tokens:,} tokens"
    if turn.size.calls >= rules.tool_call_threshold:
        return f"{turn.size.calls:,} calls"
    return None


class ArchiveDraft(Struct, frozen=True):
    """One planned archive, and what its edits are made of."""

    archive: PlannedArchive
    text: str
    prompt: TurnEntry
    closing: TurnEntry
    middle: Sent

    @property
    def text_path(self) -> KeyPath:
        return self.closing.entry.text_path or ()

    @property
    def span(self) -> tuple[int, int]:
        return self.prompt.index, self.closing.index

    def archive_after(self, edits: Iterable[Edit], transcript: Transcript) -> PlannedArchive:
        begin, end = map(transcript.offset, self.span)
        before, ident = self.archive.tokens_before, self.archive.entry_id
        less = sum(
            edit.tokens for edit in edits
            if isinstance(edit, Removal) and (begin <= edit.start < end or edit.entry_id == ident)
        )  # fmt: skip
        return replace(self.archive, tokens_after=before - less)

    def removals(
        self, parsed: ParsedLine, form: Format, standing: Iterable[Extraction], rate: float
    ) -> Iterator[Removal]:
        ident, linked = parsed.ident or "", form.archives == "linked"
        stands = {LINK, *(value.path for value in standing)}
        link = {LINK: self.prompt.ident or ""} if linked else {}
        texts = {self.text_path: self.text, **link}
        places = offsets_of(parsed, texts)
        for path, new in texts.items():
            chars = 0 if path in stands else len(str(value_at(parsed.entry, path)))
            gone = self.middle if linked and path != LINK else Sent()
            yield Removal(
                ident, placeholder_id(ident), path, "assistant", None, chars + gone.bytes,
                block=False, call=None,
                parent=self.closing.entry.parent if path == LINK else None,
                rest=parsed.rest, tokens=gone.tokens(rate), start=places[path][0],
                end=places[path][1], new=json.dumps(new).encode(), forced=True,
                reason="archived turn", how="archive",
            )  # fmt: skip


class ArchiveDecisions(Struct, frozen=True):
    """Which turns of a session are archived, and what becomes of their entries."""

    drafts: dict[int, ArchiveDraft] = field(default_factory=dict)  # by the indexes of last answers
    verdicts: tuple[Verdict, ...] = ()
    leaving: Middles = field(default_factory=Middles)  # entries that leave the active branch
    emptied: Middles = field(default_factory=Middles)  # entries that lose thinking and results
    most: int | None = None  # `Archiving.most`, if that goal is reached

    def farthest(self, index: int) -> int:
        return OLD if self.most is None or index in self.leaving else self.most - 1


class ArchiveRefusedError(Exception):
    """A last answer cannot be replaced by an archive. The message is the id of its entry."""


def archive_turns(session: Snapshot, rules: Rules, archiving: Archiving) -> ArchiveDecisions:
    if not (archiving.rules.enabled or archiving.requested or archiving.most):
        return ArchiveDecisions()
    return _Archiver(session, rules, archiving).decisions()


class _Archiver:
    def __init__(self, session: Snapshot, rules: Rules, archiving: Archiving) -> None:
        self._session, self._archiving, self._rules = session, archiving, rules
        self._form, self._linked = session.form, session.form.archives == "linked"
        self._rate = session.records.rate
        self._archives = {record.id: record for record in session.records.archives}
        self._transcript, self._chain = session.transcript, session.transcript.chain
        self._restores = session.records.requested("restore")
        self._ids: list[str | None] = []  # on the active branch, by number of the entry
        self._flaws: dict[int, str] = {}  # by number of an entry: why it cannot leave the branch
        # Entries (index, id) that refer to an id. An entry's link to the one before is left out if
        # both are in one turn, or both are off the active branch.
        self._referrers: dict[str | None, list[tuple[int, str]]] = defaultdict(list)
        self._unsure: frozenset[str | None] = frozenset()  # ids that are missing or occur twice
        self._turns: list[Turn] = []
        self._total = Weight()  # of all entries so far, without those off the branch
        self._gather()
        self._check_turns()
        self._live = [turn for turn in self._turns if turn.dead is None]

    def _gather(self) -> None:
        number, ids, last, aside = 0, list[Entry](), None, None
        for index, entry in enumerate(self._transcript.entries):
            if entry.role is None or not entry.terminated:
                continue
            ids.append(entry)
            dead = self._chain.dead.get(index)
            if dead == OFF_BRANCH:
                self._note_references(index, entry, aside)
                aside = entry.ident
                continue
            begins = entry.role == "prompt"
            if begins:
                self._end_turn()
                number += dead is None
            before, self._total = self._total, self._total.plus(self._weight(index, entry, dead))
            weight = self._total if begins else before
            turn_entry = TurnEntry(index, entry, len(self._ids), weight)
            self._note_references(index, entry, None if begins else last)
            self._note_flaws(turn_entry, last)
            if begins:
                self._turns.append(Turn(number, turn_entry, dead=dead))
            if self._turns:
                self._add(self._turns[-1], turn_entry, dead)
            self._ids.append(entry.ident)
            last = entry.ident
        self._end_turn()
        self._unsure = repeated(ids) | {None}

    def _note_references(self, index: int, entry: Entry, before: str | None) -> None:
        continues = before is not None and entry.parent == before
        for name in entry.names if continues else (entry.parent, *entry.names):
            if self._linked and name is not None:
                self._referrers[name].append((index, entry.ident or "an entry"))

    def _note_flaws(self, here: TurnEntry, last: str | None) -> None:
        if self._linked and here.entry.parent != last:
            self._flaws[here.number] = "its entries do not follow one another"
        if self._linked and here.entry.role == "fixed":
            entry = self._session.parsed(here.index).entry
            kind = value_at(entry, ("message", "role")) or entry.get("type")
            self._flaws[here.number] = f"it contains a {str(kind)[:_LONGEST_NAME]}"

    def _check_turns(self) -> None:
        for turn in self._turns:
            if turn.closing:
                turn.malformed = turn.malformed or self._flaw(turn.prompt, turn.closing)
                turn.referrer = self._referrer(turn.prompt, turn.closing, branches=True)
                if (turn.closing.ident, turn.closing.entry.text_path) in self._rules.spared:
                    turn.barred = _FITS
                if turn.closing.ident in self._archiving.refused:
                    turn.barred = Reason(FORMAT, "its last answer cannot be replaced")

    def _flaw(self, prompt: TurnEntry, closing: TurnEntry) -> str | None:
        if {prompt.ident, closing.ident} & self._unsure:
            return _UNSURE
        for number in range(prompt.number + 1, closing.number + 1) if self._linked else ():
            if self._ids[number] in self._unsure:
                return _UNSURE
            if number in self._flaws:
                return self._flaws[number]
        return None

    def _referrer(self, prompt: TurnEntry, closing: TurnEntry, *, branches: bool) -> str | None:
        """With `branches`, entries off the active branch count as outside the turn."""
        for known in self._ids[prompt.number + 1 : closing.number]:
            for index, ident in self._referrers.get(known, ()):
                outside = not prompt.index <= index <= closing.index
                if outside or (branches and self._chain.dead.get(index) == OFF_BRANCH):
                    return ident
        return None

    def _weight(self, index: int, entry: Entry, dead: str | None) -> Weight:
        values = () if dead or self._linked else self._transcript.values(index)
        going = (value.chars for value in values if value.kind in ("thinking", "tool_result")
                 and value.locked is None and not value.dead)  # fmt: skip
        live = dead is None and entry.is_message
        return Weight(self._transcript.sent(index), sum(going), int(live))

    def _add(self, turn: Turn, here: TurnEntry, dead: str | None) -> None:
        turn.entries.append(here.index)
        if dead and dead != EDITED_AWAY:
            turn.dead = dead
        self._hold(turn, state_of(self._session, self._rules, here.index))
        if here.entry.role == "reply":
            turn.closing = here

    def _hold(self, turn: Turn, state: EntryState) -> None:
        """Record why an entry prevents archiving its turn. Keep the reason that lasts longest."""
        if turn.held and turn.until is None:
            return
        ident, now = state.entry_id or "an entry", self._session.now
        if state.extractable is False:
            turn.held, turn.until = Reason("pinned", ident), None
        elif type(state.extractable) is int and state.position < state.extractable:
            turn.held, turn.until = Reason("pinned", f"recent by the _extractable of {ident}"), None
        elif any(request.concerns(ident) for request in self._restores):
            turn.held, turn.until = Reason(f"a restore of {ident} is requested"), None
        elif state.restored_at is not None:
            until = state.restored_at + self._rules.keep_after_restore
            if now < until and until > (turn.until or 0.0):
                ago = max(0, round(now - state.restored_at))
                turn.held, turn.until = Reason(f"restored {ago} s ago", ident), until

    def _read_reply(self, turn: Turn, closing: TurnEntry) -> str:
        """Note what stands in place of the last reply. Return the text that the agent wrote."""
        found, entry = self._session.found, closing.entry
        standing = found.standing.get(closing.index, ())
        parsed = self._session.parsed(closing.index)
        step = self._form.read(parsed.entry).step
        if entry.text_path:
            turn.size.answer = len(str(value_at(parsed.entry, entry.text_path)))
        if any(value.replacement is None for value in standing):
            step = self._form.read(self._written(parsed, standing)).step
            turn.closing = replace(closing, entry=replace(
                entry, text_path=step.text_path, closes=step.closes, cut_short=step.cut_short,
            ))  # fmt: skip
        places = {step.text_path, *([LINK] if self._linked else [])}
        turn.taken = [value for value in standing if value.path in places]
        archive = next((value.archive_id for value in turn.taken if value.is_archive), None)
        marked = step.text.startswith(f"{MARK}\narchive: ")
        if archive or marked:
            turn.record = self._archives.get(archive or 0)
            turn.depth = turn.record.depth if turn.record else 1
        unknown = placeholder_in(step.text) or (marked and not archive)
        if unknown or any(
            value.blob_id is None or (closing.index, value.id) in found.copies
            for value in turn.taken
        ):
            turn.barred = _UNKNOWN
        if step.text_path:
            turn.size.answer = len(str(value_at(parsed.entry, step.text_path)))
        return step.text

    def _written(self, parsed: ParsedLine, standing: Iterable[Extraction]) -> JsonObject:
        entry = parse(parsed.raw) or {}
        for value in standing:
            if value.replacement is not None or not (value.block or value.kind == "assistant"):
                continue
            # A text block that stands for another kind of block is no text of the agent.
            token = b"null" if value.block else self._archiving.original(value)
            if token is not None:
                value_at(entry, value.path[:-1])[value.path[-1]] = decode(token)
        return entry

    def _end_turn(self) -> None:
        if not self._turns:
            return
        turn = self._turns[-1]
        calls = Calls(self._transcript.entries[index] for index in turn.entries)
        text = self._read_reply(turn, turn.closing) if turn.closing else ""
        prompt, closing = turn.prompt, turn.closing
        weight = (closing.weight if closing else self._total).less(prompt.weight)
        middle = (closing.number - prompt.number if closing else len(turn.entries)) - 1
        turn.size.middle = middle if self._linked or not turn.depth else 0
        turn.size.removed = weight.sent.chars if self._linked else weight.going
        turn.size.tokens = weight.sent.tokens(self._rate)
        turn.size.calls = calls.tools.total()
        turn.requested = turn.prompt_id in self._archiving.requested
        turn.open = calls.why_open(closing.entry) if closing else None
        turn.position = self._transcript.position((closing or prompt).index)
        if closing and (prompt.ident is None or closing.ident is None):
            turn.malformed = "its prompt or last answer has no usable id"
        if turn.dead:
            turn.position = turn.after = OLD
        if (
            turn.depth or turn.requested or self._archiving.most
            or (middle and worth_archiving(turn, self._archiving.rules))
        ):  # fmt: skip
            self._summarise(turn, calls, text, middle)

    def _summarise(self, turn: Turn, calls: Calls, text: str, middle: int) -> None:
        for index in turn.entries:
            entry = self._transcript.entries[index]
            if entry.calls or any(result.failed for result in entry.results):
                calls.read(self._form.read(self._session.parsed(index).entry).step)
        note = self._archiving.requested.get(turn.prompt_id)
        known = repr((turn.prompt_id, turn.closing_id, len(turn.entries), text, note))
        digest = blake2b(known.encode(), digest_size=16).digest()
        turn.summary = calls.summary(text, note, digest)
        if turn.closing:
            turn.size.added = len(self._text([turn])) - turn.size.answer if middle else 0

    def decisions(self) -> ArchiveDecisions:
        for count, turn in enumerate(reversed(self._live)):
            turn.after = count
        verdicts = [decide(turn, self._archiving.rules) for turn in self._turns]
        chosen = list(compress(self._turns, (verdict.archived for verdict in verdicts)))
        joined, excess = self._joined(chosen) if self._linked else ([], 1)
        inside = {turn: len(group) for group in joined for turn in group}
        groups = [*([turn] for turn in chosen if turn not in inside), *joined]
        drafts = {
            closing.index: self._draft(group, closing)
            for group in groups if (closing := group[-1].closing) is not None
        }  # fmt: skip
        middles = Middles(draft.span for draft in drafts.values())
        return ArchiveDecisions(
            drafts,
            tuple(
                _joined_verdict(verdict, inside.get(turn, 0))
                for verdict, turn in zip(verdicts, self._turns, strict=True)
            ),
            leaving=middles if self._linked else Middles(),
            emptied=Middles() if self._linked else middles,
            most=self._archiving.most if excess <= 0 < self._archiving.most else None,
        )

    def _text(self, group: list[Turn]) -> str:
        last = group[-1].summary
        if len(group) > 1:
            text = outcomes_of([turn.summary.outcome for turn in group])
        elif written := self._archiving.summaries.get(last.digest):
            noted = self._archiving.requested.get(group[-1].prompt_id)
            text = f"{last.outcome}\n\n{written}" if noted else written  # the outcome is the note
        else:
            text = last.text
        return archive_text(group[-1].closing_id or "", text)

    def _draft(self, group: list[Turn], closing: TurnEntry) -> ArchiveDraft:
        first, last = group[0], group[-1]
        counts = [
            (turn.record.turns, turn.record.calls, turn.record.failed)
            if turn.record
            else (1, turn.size.calls, turn.summary.failed)
            for turn in group
        ]  # fmt: skip
        turns, calls, failed = map(sum, zip(*counts, strict=True))
        sent = closing.weight.less(first.prompt.weight).sent
        archive = PlannedArchive(
            last.closing_id or "", first.prompt_id,
            closing.number - first.prompt.number - 1,
            (sent + Sent(last.size.answer)).tokens(self._rate), 0,
            max(*(turn.depth for turn in group), len(group) > 1) + 1,
            self._archiving.requested.get(last.prompt_id), turns, calls, failed,
            last.summary.digest, tuple(turn.prompt_id for turn in group),
        )  # fmt: skip
        return ArchiveDraft(archive, self._text(group), first.prompt, closing, sent)

    def _joined(self, chosen: list[Turn]) -> tuple[list[list[Turn]], int]:
        """Return groups of turns to archive, and how many messages still exceed `most`.

        The oldest turns are grouped until at most `most` messages remain. Of more than FOLD_AFTER
        adjacent archives, the older half is merged into one. `chosen` turns are archived anyway.
        """
        alone = {turn: _messages_between([turn]) for turn in chosen}
        excess = self._total.messages - self._archiving.most - sum(alone.values())
        groups: list[list[Turn]] = []
        # The newest turn keeps its prompt: it is archived alone, if at all.
        older, newest = self._live[:-1], self._live[-1:]
        joinable = (*self._adjacent(older), *self._adjacent(newest))
        for turns in joinable if self._archiving.most else ():
            enough = bisect_left(
                range(1, len(turns)), True, key=lambda count: _saved(turns[:count], alone) >= excess
            )
            group = turns[: 1 + enough]
            # A group that a relief need not archive (_FITS) is dropped below. It counts as archived
            # here, so that no other turns are archived in its place.
            saved = _saved(group, alone) if group[-1].barred in (None, _FITS) else 0
            if excess > 0 and saved > 0:
                groups.append(group)
                excess -= saved
        taken = {turn for group in groups for turn in group}
        archived = [
            turn for turn in self._live
            if turn not in taken and 0 < (turn.depth or int(turn in alone)) < DEPTH_CAP
        ]  # fmt: skip
        long = (turns for turns in self._adjacent(archived) if len(turns) > FOLD_AFTER)
        groups += [turns[: max(2, len(turns) // 2)] for turns in long]
        return [group for group in groups if not group[-1].barred], excess

    def _adjacent(self, turns: Iterable[Turn]) -> list[list[Turn]]:
        groups: list[list[Turn]] = []
        for turn in turns:
            if groups and self._may_join(groups[-1][-1], turn):
                groups[-1].append(turn)
            elif self._may_join(turn, turn):
                groups.append([turn])
        return groups

    def _may_join(self, turn: Turn, last: Turn) -> bool:
        """Check whether one archive may contain both turns: adjacent ones, or one and the same."""
        prompt, closing = turn.prompt, last.closing
        if closing is None or not closing.entry.closes or closing.entry.text_path is None:
            return False
        if last is not turn and last.prompt.number != prompt.number + len(turn.entries):
            return False
        if turn.held or last.held or self._flaw(prompt, closing):
            return False
        return self._referrer(prompt, closing, branches=False) is None


def _messages_between(group: list[Turn]) -> int:
    end = group[-1].closing
    return end.weight.less(group[0].prompt.weight).messages if end else 0


def _saved(group: list[Turn], alone: Mapping[Turn, int]) -> int:
    """Return how many more messages a joint archive removes than separate ones (`alone`)."""
    return _messages_between(group) - sum(alone.get(turn, 0) for turn in group)


def _joined_verdict(verdict: Verdict, turns: int) -> Verdict:
    """Return the verdict on a turn in a joint archive of `turns` turns (0: in none)."""
    if verdict.archived or not turns:
        return verdict
    why = f"with {counted(turns - 1, 'other turn')}" if turns > 1 else "too many messages"
    why = "taken into a larger archive" if verdict.depth else why
    return replace(verdict, archived=True, reason=why, until=None)
