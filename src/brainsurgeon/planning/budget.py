"""Estimate the load of a session's next request, and choose the steps that relieve the session.

A session records the prompt tokens of each model call. A line fitted to the newest calls gives the
tokens per character of the entries, and the fixed tokens of system prompt and tools.
"""

import math
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from statistics import StatisticsError, correlation, linear_regression, median
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from brainsurgeon.formats.base import Format, ParsedLine
from brainsurgeon.formats.transcript import Transcript
from brainsurgeon.formats.weight import tokens_off
from brainsurgeon.model.entries import KeyPath, placeholder_token, with_value
from brainsurgeon.model.records import Extraction, Records
from brainsurgeon.model.rules import Rule, Rules, ValueIds
from brainsurgeon.model.session_files import OFF_BRANCH
from brainsurgeon.model.transcript import Entry
from brainsurgeon.model.turns import (
    BLOCK,
    BLOCKS,
    PICTURE,
    RATE,
    ArchiveForm,
    Calibration,
    ModelCall,
    Refusal,
    Sent,
)
from brainsurgeon.planning.archiving import Archiving, without_thresholds
from brainsurgeon.planning.matching import find

NEWEST = 50  # number of calls used: older ones were made with other prompts and tools
# Minimum number of calls for a line, and minimum share of their variance that the line explains.
FEWEST = 8
STRAIGHT = 0.9
# Tokens per character; a rate outside these bounds measures something else.
LOWEST, HIGHEST = 0.15, 0.8


class Sample(Struct, frozen=True):
    sent: Sent
    tokens: int


class Measure:
    def __init__(self) -> None:
        self.calls: list[Sample] = []
        self.messages = 0
        self.model: str | None = None
        self.last: ModelCall | None = None
        self.last_sent = Sent()  # the size of the prompt of the last call
        self.window: int | None = None  # as the session records it
        self.unfit: ValueIds = frozenset()  # blocks for which the next request would be refused
        self._seen = set[str | None]()
        # Maps times of extractions and archives to the size that was removed from later requests.
        self._removed: dict[float, Sent] = defaultdict(Sent)
        self.begin_anew()

    def begin_anew(self) -> None:
        self.sent = self._summary = Sent()
        self.calls.clear()

    def load(self, calibration: Calibration) -> int:
        """Return the tokens of the next request."""
        return calibration.tokens(self.sent)

    def look(
        self, entry: Entry, sent: Sent, removed: Iterable[tuple[float, Sent]] = (),
        left: float = math.inf,
    ) -> None:  # fmt: skip
        """Add an entry. `removed` are times and sizes of extracted values that earlier calls had.

        `left` is the time at which an archive took it off the active branch.
        """
        if entry.call is not None:
            self._call(entry.call)
        if entry.compacts:
            self.calls.clear()
            self.last = None  # a refusal concerned the context before it
            self.sent -= Sent(self._summary.chars)  # only the last summary is sent
            self._summary = sent
        if left == math.inf:
            self.sent += sent
            self.messages += entry.is_message
        else:
            self._removed[left] += sent
        for taken_at, size in removed:
            self._removed[min(taken_at, left)] += size

    def removed_since(self, call: ModelCall | None) -> Sent:
        """Return the size of what was removed after a call."""
        at = call.at if call and call.at is not None else math.inf
        return sum((size for when, size in self._removed.items() if when > at), Sent())

    def _call(self, call: ModelCall) -> None:
        self.model = self.model if call.aside else call.model or self.model
        if call.aside or call.end == "failed":  # the last answer or refusal still holds
            return
        self.last, self.last_sent = call, self.sent
        for at, size in self._removed.items():
            if call.at is not None and at > call.at:  # the prompt still contained it
                self.last_sent += size
        if call.tokens and (call.ident is None or call.ident not in self._seen):
            self._seen.add(call.ident)
            self.calls.append(Sample(self.last_sent, call.tokens))
            del self.calls[:-NEWEST]


def measure(
    transcript: Transcript, records: Records, parsed: Callable[[int], ParsedLine],
    original: Callable[[Extraction], Any] | None = None, measured: Measure | None = None,
) -> Measure:  # fmt: skip
    """Measure a session. Without `original`, sizes of extracted values are those recorded.

    Entries are added to `measured`, if given. `parsed` reads the line of an entry again.
    """
    form, dead = transcript.form, transcript.chain.dead
    measured, left = measured or Measure(), _archived(transcript, records)
    standing = find(transcript, records, parsed).standing
    for index, entry in enumerate(transcript.entries):
        if index in dead and index not in left:
            continue
        at, removed = left.get(index, math.inf), list[tuple[float, Sent]]()
        for value in standing.get(index, ()):
            if transcript.around(index).omits(value.kind, value.call):
                continue
            whole = original and value.archive_id is None and original(value)
            if whole:
                line = parsed(index).entry
                before = form.read(with_value(line, value.path, whole)).sent
                removed.append((value.extracted_at, before - form.read(line).sent))
            elif value.tokens or (at < math.inf and _is_sent(form, parsed(index).entry, value)):
                removed.append((value.extracted_at, _recorded(value)))
        measured.look(entry, transcript.sent(index), removed, left=at)
    return measured


def _recorded(value: Extraction) -> Sent:
    # `chars` of an archive also includes the entries that left with it.
    chars = value.chars if value.archive_id is None else value.size
    is_picture = value.block and value.kind != "thinking"
    return Sent(-len(value.sent), 1, chars) if is_picture else Sent(chars - len(value.sent))


def _is_sent(form: Format, entry: dict[str, Any], value: Extraction) -> bool:
    # The `tokens` of a value are also 0 if it was extracted after its entry left the branch.
    new = placeholder_token("x", block=value.block, block_type=form.block_type)
    return tokens_off(form, entry, value.path, new, 1.0) != 0


def _archived(transcript: Transcript, records: Records) -> dict[int, float]:
    """Return when archives took entries off the active branch, by the indexes of the entries.

    Calls before that time were made with these entries.
    """
    links = {value.entry_id: value for value in records.extractions if value.is_link}
    left: dict[int, float] = {}
    leaving: dict[str | None, float] = {}  # times by ids
    for index in reversed(range(len(transcript.entries))) if links else ():
        entry, dead = transcript.entries[index], transcript.chain.dead.get(index)
        at = leaving.get(entry.ident)
        if at and dead == OFF_BRANCH and entry.role:
            left[index] = at
            leaving[entry.parent] = max(at, leaving.get(entry.parent, at))
        link = links.get(entry.ident or "")
        if link and (dead is None or index in left):
            leaving[link.parent] = link.extracted_at
    return left


class Block(Struct, frozen=True):
    """A picture or document that is sent."""

    size: int  # bytes, as base64
    ident: str | None
    path: KeyPath

    @property
    def place(self) -> tuple[str | None, KeyPath]:
        return self.ident, self.path


def blocks_sent(transcript: Transcript) -> list[Block]:
    """Return all pictures and documents that are sent and may leave, the oldest first."""
    return [
        Block(value.chars, entry.ident, value.path)
        for index, entry in transcript.live() for value in transcript.values(index)
        if value.block and value.kind != "thinking" and not (value.dead or value.locked)
    ]  # fmt: skip


def largest_first(blocks: Iterable[Block]) -> list[Block]:
    return sorted(blocks, key=lambda block: -block.size)


def unfit_blocks(blocks: Sequence[Block], refusal: Refusal, refused: Sent, now: Sent) -> ValueIds:
    """Return the blocks without which the provider is expected to accept the request.

    `refused` and `now` are what the refused request and the next one contain. Where the refusal
    states no limit, at least the largest block leaves, and half of their bytes.
    """
    if refusal.why == BLOCK and refusal.limit:
        taken = [block for block in blocks if block.size > refusal.limit]
    elif refusal.why == BLOCKS and refusal.limit:
        # Half of the limit, so that the next picture is not refused. The oldest leave.
        over = now.pictures > refusal.limit
        taken = list(blocks[: now.pictures - refusal.limit // 2] if over else ())
    else:
        taken, left = [], now.data
        for block in largest_first(blocks):
            if left <= refused.data / 2:
                break
            taken.append(block)
            left -= block.size
    return frozenset(block.place for block in taken)


def fit(samples: Sequence[Sample]) -> Calibration | None:
    if len(samples) < FEWEST:
        return None
    across = [sample.sent.chars for sample in samples]
    up = [sample.tokens - PICTURE * sample.sent.pictures for sample in samples]
    try:
        if correlation(across, up) ** 2 < STRAIGHT:
            return None
        rate, fixed = linear_regression(across, up)
    except StatisticsError:  # all calls have the same size
        return None
    if not LOWEST <= rate <= HIGHEST:
        return None
    return _compared(Calibration(rate, fixed, len(samples), "session"), samples)


def calibrate(samples: Sequence[Sample], others: Sequence[Calibration]) -> Calibration:
    """Fit a line to the samples, else use the median of the agent's `others`, else a default."""
    if own := fit(samples):
        return own
    # The usual guess, 0.25 tokens per character, was too low.
    line = Calibration(RATE, 0.0, len(samples), "default")
    if others:
        rate, fixed = median(one.rate for one in others), median(one.fixed for one in others)
        line = Calibration(rate, fixed, len(samples), "agent")
    return _compared(line, samples)


def _compared(line: Calibration, samples: Sequence[Sample]) -> Calibration:
    errors = [
        abs(line.tokens(sample.sent) / sample.tokens - 1) for sample in samples if sample.tokens
    ]
    return replace(line, error=math.fsum(errors) / len(errors) if errors else None)


# Relief aims this far below the threshold (as a share of the window), so that it lasts.
BELOW = 0.15
HALF = 0.5  # of a refused prompt stays at most
SHORTEST = 200  # from step 1 on, values of more characters are extracted
KEPT_TURNS = 2  # step 3 lowers the key `keep_turns` to this number
# A result larger than this share of the window is extracted even if it is new (step 2).
GIANT = 0.1
# Steps: 1 shorter values, 2 giant results, 3 archive turns, 4 newer values, 5 arguments of calls, 6
# the older half of the messages, 7 half of the others. Step 3 needs linked archives. Databases have
# neither step 3, 6 nor 7: their indexes would not notice changed texts.
LINKED = (1, 2, 3, 4, 5, 6, 7)
HALVES = (6, 7)
# The steps that relief takes together. Step 0 applies the configured rules; without any step, only
# requested values are extracted.
ReliefLevel = tuple[int, ...]


def relief_levels(highest: int, archives: ArchiveForm | None) -> list[ReliefLevel]:
    left_out = (3, *HALVES) if archives is None else () if archives == "linked" else (3,)
    steps = (0, *(step for step in LINKED if step <= highest and step not in left_out))
    return [steps[:count] for count in range(len(steps) + 1)]


def rules_at(level: ReliefLevel, rules: Rules, giant: int, kept_messages: int) -> Rules:
    if not level:
        return replace(rules, rules=(), min_value_length=sys.maxsize, giant=0, max_messages=0)
    for step in level:
        match step:
            case 1:
                rules = _bounded(rules, "min_value_length", min, SHORTEST)
            case 2:
                rules = replace(rules, giant=giant)  # characters
            case 4:
                rules = _bounded(rules, "keep_recent", min, 1)
            case 5 if not any(rule.kind == "tool_call" and not rule.tools for rule in rules.rules):
                calls = Rule("tool_call", (), rules.min_value_length, rules.keep_recent)
                rules = replace(rules, rules=(*rules.rules, calls))
            case 6 | 7:
                most = _messages_kept(step, kept_messages)
                rules = replace(rules, max_messages=min(rules.max_messages or most, most))
    return rules


def _messages_kept(step: int, half: int) -> int:
    return half if step == HALVES[0] else max(1, half // 2)


def _bounded(rules: Rules, key: str, of: Callable[[int, int], int], bound: int) -> Rules:
    bounded = [replace(rule, **{key: of(getattr(rule, key), bound)}) for rule in rules.rules]
    return replace(rules, rules=tuple(bounded), **{key: of(getattr(rules, key), bound)})


def archiving_at(level: ReliefLevel, archiving: Archiving, kept_messages: int = 0) -> Archiving:
    rules, most = replace(archiving.rules, enabled=False), 0
    for step in level:
        match step:
            case 0:
                rules, most = archiving.rules, archiving.most
            case 3:
                rules = without_thresholds(rules)
                rules = replace(rules, keep_turns=min(rules.keep_turns, KEPT_TURNS))
            case 6 | 7:
                kept = _messages_kept(step, kept_messages)
                most = min(most or kept, kept)
    return replace(archiving, rules=rules, most=most)
