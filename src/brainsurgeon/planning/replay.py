"""Compute the model calls of a session, and their costs, under different extraction policies.

A session records how many tokens each call read from the cache. Tokens that a policy removed are
subtracted. The call after an extraction reads only tokens before the change from the cache. If the
provider counts written tokens, it caches only whole prompts: the call reads the longest one that
ends before the change. Answers are the same under each policy.
"""

import json
import sys
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from heapq import heappop, heappush
from itertools import accumulate, islice
from operator import attrgetter
from statistics import linear_regression
from typing import Any, Generic, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from brainsurgeon.formats import weight
from brainsurgeon.formats.base import Format, ParsedLine
from brainsurgeon.formats.chain import Around
from brainsurgeon.formats.marks import placeholder_at
from brainsurgeon.formats.transcript import Transcript
from brainsurgeon.model.entries import (
    OLD,
    KeyPath,
    Line,
    Value,
    decode,
    placeholder_named,
    with_value,
)
from brainsurgeon.model.providers import Price
from brainsurgeon.model.records import Extraction, Records
from brainsurgeon.model.reports import Bill
from brainsurgeon.model.rules import Rules, ValueRules
from brainsurgeon.model.session_files import OFF_BRANCH
from brainsurgeon.model.transcript import Entry
from brainsurgeon.model.turns import Compaction, ModelCall, Sent
from brainsurgeon.planning import cache
from brainsurgeon.planning.calls import life_of, sent_with
from brainsurgeon.planning.matching import find
from brainsurgeon.planning.reasoning import spared
from brainsurgeon.planning.rules import LAST, EntryState, Extract, decision_on
from brainsurgeon.planning.signatures import is_bound
from brainsurgeon.planning.superseded import CallValues, superseded

_PLACEHOLDER = placeholder_named("0" * 8)
_place = attrgetter("before")
# Bounds for the ratio of recorded and estimated growth; for most prompts of the samples 0.8 to 1.4.
_LEAST, _MOST = 0.5, 1.5
_LEAST_GROWTHS = 8  # for a regression


class Prompted(Struct, frozen=True):
    at: float | None
    messages: int


class Fixed(Struct, frozen=True):
    """The tokens in each prompt that come from no entry, such as the definitions of tools."""

    tokens: int


class ReplayedValue(Struct, frozen=True):
    """A value in message `number`, which the rules extract once `keep` messages follow."""

    number: int
    keep: int
    tokens: int
    before: int = 0  # tokens of the prompt before it
    taken_at: float | None = None  # when it was extracted
    fresh: bool = False  # not extracted before the next prompt


class Thought(Struct, frozen=True):
    """The reasoning of an answer that the provider drops if anything before it changes."""

    tokens: int
    before: int = 0  # tokens of the prompt before it


Event = Fixed | Prompted | Compaction | ReplayedValue | Thought | ModelCall


class _Restored(Struct, frozen=True):
    """An entry with the originals of its extracted values, archives excepted."""

    entry: Entry
    taken: Mapping[KeyPath, Extraction]  # its restored values
    lost: Sequence[Extraction]  # those without an original


def _nothing(_: Extraction) -> None:
    return None


def history(
    transcript: Transcript, records: Records, rules: Rules,
    parsed: Callable[[int], ParsedLine], original: Callable[[Extraction], Any] = _nothing,
) -> list[Event]:  # fmt: skip
    """Return the events of a session. Extracted values have `taken_at`.

    `parsed` reads the line of an entry again. `original` returns an extracted value, or None if it
    is lost. Then its recorded size is used.
    """
    events: list[Event] = []
    standing = find(transcript, records, parsed).standing
    restored = {
        index: _restored(transcript, index, parsed(index), values, original)
        for index, values in standing.items()
        if transcript.chain.dead.get(index) != OFF_BRANCH
    }
    transcript = transcript.with_entries([
        restored[index].entry if index in restored else entry
        for index, entry in enumerate(transcript.entries)
    ])  # fmt: skip
    messages, met = 0, set[str | None]()
    newer = _superseded(transcript) if rules.superseded else {}
    growths: list[_Growth] = []
    last, sent, since, reasoning = None, 0, 0, None
    for index, entry in _on_branch(transcript):
        call, reasoning = entry.call, entry.reasoning or reasoning
        if entry.compacts:
            events.append(Compaction())
            last = reasoning = None
        if entry.role == "prompt":
            events.append(Prompted(entry.time, messages))
        if call is not None and call.aside and call.tokens:
            events.append(call)  # the same prompt again
        elif call is not None and call.tokens and (call.ident is None or call.ident not in met):
            values = [
                (number, event) for number, event in enumerate(events[since:], since)
                if isinstance(event, ReplayedValue)
            ]  # fmt: skip
            sent -= sum(value.tokens for _, value in values if _was_gone(value, call))
            if not met:
                events.append(Fixed(max(0, call.tokens - sent)))
            met.add(call.ident)
            if last is not None and call.tokens > last.tokens:
                sizes = [(number, value) for number, value in values if not _was_gone(value, call)]
                growths.append(_Growth(call.tokens - last.tokens, sent, sizes))
            events.append(call)
            bound = reasoning and is_bound([reasoning.model], rules.signed_models)
            if reasoning and bound and transcript.around(index).thinks:
                events.append(Thought(reasoning.tokens, call.tokens))
            reasoning = None
            last, sent, since = call, 0, len(events)
        sent += transcript.sent(index).tokens(records.rate)
        here = restored.get(index, _Restored(entry, {}, ()))
        sent += sum(value.tokens for value in here.lost)
        # As it was when the entry was new, but without what the next request omits.
        around = replace(transcript.around(index), in_last_turn=False, before_compaction=False)
        found = dict(_values(transcript.form, entry, around, rules, newer, records.rate, messages))
        events += (
            replace(value, taken_at=here.taken[path].extracted_at) if path in here.taken else value
            for path, value in found.items()
        )
        events += (
            ReplayedValue(messages, rules.keep_recent, value.tokens, taken_at=value.extracted_at)
            for value in (*here.taken.values(), *here.lost)
            if value.tokens and value.path not in found and not around.omits(value.kind, value.call)
        )
        messages += entry.is_message
    _measure(events, growths)
    return events


def _restored(
    transcript: Transcript, index: int, parsed: ParsedLine, standing: Sequence[Extraction],
    original: Callable[[Extraction], Any],
) -> _Restored:  # fmt: skip
    before, entry, taken = transcript.entries[index], parsed.entry, dict[KeyPath, Extraction]()
    for value in standing:
        whole = value.archive_id is not None or value.is_redacted
        if not whole and (content := original(value)) is not None:
            entry = with_value(entry, value.path, content)
            taken[value.path] = value
    if not taken:
        return _Restored(before, {}, standing)
    line = Line(0, parsed.offset, json.dumps(entry).encode())
    [now] = transcript.form.entries(line, before.line)
    lost = [value for value in standing if value.path not in taken]
    return _Restored(replace(now, ident=before.ident), taken, lost)


def _on_branch(transcript: Transcript) -> Iterator[tuple[int, Entry]]:
    dead = transcript.chain.dead
    listed = enumerate(transcript.entries)
    return ((index, entry) for index, entry in listed if dead.get(index) != OFF_BRANCH)


def _superseded(transcript: Transcript) -> Mapping[CallValues, int]:
    """Map superseded values to the number of the message that supersedes them."""
    numbers, messages = dict[str | None, int](), 0
    for _, entry in _on_branch(transcript):
        numbers[entry.ident] = messages
        messages += entry.is_message
    return {values: numbers[ident] for values, ident in superseded(transcript).items()}


class _Growth(Struct, frozen=True):
    """The growth of a prompt since the one before."""

    tokens: int  # recorded
    sent: int  # estimated
    values: list[tuple[int, ReplayedValue]]  # with their event numbers


def _measure(events: list[Event], growths: Sequence[_Growth]) -> None:
    """Scale the estimated tokens of each value by the recorded growth of its prompt.

    The growth that no entry explains is about the same for each call, and is subtracted first.
    """
    sent = [growth.sent for growth in growths]
    beside = 0.0
    if len(sent) >= _LEAST_GROWTHS and min(sent) < max(sent):
        beside = linear_regression(sent, [growth.tokens for growth in growths]).intercept
    for growth in growths:
        share = min(max((growth.tokens - beside) / max(1, growth.sent), _LEAST), _MOST)
        for number, value in growth.values:
            events[number] = replace(value, tokens=round(share * value.tokens))


def _values(
    form: Format, entry: Entry, around: Around, rules: ValueRules, newer: Mapping[CallValues, int],
    rate: float, number: int,
) -> Iterator[tuple[KeyPath, ReplayedValue]]:  # fmt: skip
    for value in form.resolved(entry.values, around):
        by = newer.get((entry.ident, value.kind, value.call))
        state = EntryState(entry.ident, OLD, superseded="" if by is None else str(by))
        name = placeholder_at(entry, value.path)
        decision = decision_on(value, name, state, rules, 0.0)
        if isinstance(decision, Extract) and not value.dead:
            tokens = _saved(value).tokens(rate)
            rule = rules.match(value)
            if tokens > 0:
                keep = rule.keep_recent if rule else rules.keep_recent
                if by is not None:
                    soon = max(by - number, min(keep, LAST))
                    keep = min(keep, soon) if rule else soon
                yield (
                    value.path,
                    ReplayedValue(number, keep, tokens, fresh=value.kind == "thinking"),
                )


def _saved(value: Value) -> Sent:
    """Return by how much a request shrinks if the value is extracted."""
    if value.sent == 0:
        return Sent()
    instead = Sent(len(_PLACEHOLDER))
    if value.instead is not None:
        content = decode(value.instead)
        instead = weight.content(content if isinstance(content, list) else [content])
    return Sent(*value.size) - instead


_Item = TypeVar("_Item", bound=ReplayedValue | Thought)


class _Ordered(Generic[_Item]):
    """Values in the order in which they occur in a prompt that contains all of them."""

    def __init__(self) -> None:
        self.values: list[_Item] = []
        self._sums = [0]

    @property
    def tokens(self) -> int:
        return self._sums[-1]

    def add(self, values: Sequence[_Item]) -> None:
        # Few values are behind the first added one: only these are sorted again.
        start = bisect_left(self.values, min(map(_place, values), default=sys.maxsize), key=_place)
        self.values[start:] = sorted((*self.values[start:], *values), key=_place)
        tokens = (value.tokens for value in islice(self.values, start, None))
        self._sums[start:] = accumulate(tokens, initial=self._sums[start])

    def cut(self, tokens: int) -> None:
        self.cut_last(len(self.values) - bisect_left(self.values, tokens, key=_place))

    def cut_last(self, values: int) -> None:
        number = len(self.values) - values
        del self.values[number:], self._sums[number + 1 :]

    def in_front(self, tokens: int) -> int:
        return self._sums[bisect_left(self.values, tokens, key=_place)]

    def behind(self, tokens: int) -> int:
        return self.tokens - self.in_front(tokens + 1)

    def in_front_without(self, tokens: int) -> int:
        """Like `in_front`, but `tokens` are counted in the prompt without these values."""
        numbers = range(len(self.values))
        return self._sums[bisect_left(
            numbers, tokens, key=lambda number: self.values[number].before - self._sums[number]
        )]  # fmt: skip


def unpruned(events: Iterable[Event]) -> Iterator[Event]:
    """Yield the events as if nothing had been extracted."""
    standing: list[tuple[float, int, ReplayedValue]] = []
    gone, raw, broken = _Ordered[ReplayedValue](), None, -1
    for number, event in enumerate(events):
        if isinstance(event, Compaction):
            standing, gone = [], _Ordered()
        elif isinstance(event, ReplayedValue):
            event = replace(event, before=raw.tokens if raw else 0)  # noqa: PLW2901
            if event.taken_at is not None:
                heappush(standing, (event.taken_at, number, event))
        elif isinstance(event, Thought):
            event = replace(event, before=raw.tokens if raw else 0)  # noqa: PLW2901
        elif isinstance(event, ModelCall):
            taken = []
            while standing and _was_gone(standing[0][-1], event):
                taken.append(heappop(standing)[-1])
            gone.add(taken)
            cached = event.cached and event.cached + gone.in_front_without(event.cached)
            if taken:
                first = min(value.before for value in taken)
                broken = first - gone.in_front(first)
            # Only the change kept the call from reading more tokens from the cache.
            if raw and _is_warm(raw, event) and event.cached <= broken:
                cached = max(cached, raw.tokens if taken else raw.cached)
            else:
                broken = -1
            raw = event = sent_with(event, event.tokens + gone.tokens, cached)  # noqa: PLW2901
        yield event


def _was_gone(value: ReplayedValue, call: ModelCall) -> bool:
    return value.taken_at is not None and call.at is not None and value.taken_at < call.at


def _is_warm(before: ModelCall, call: ModelCall) -> bool:
    return before.at is not None and call.at is not None and call.at - before.at <= life_of(before)


class Replay:
    """A session under one policy. `when` is as in Rules; with None, nothing is extracted.

    A scan looks at the session `quiet` seconds after each turn, and again when its cache is cold.
    If `when` is "pays" and the load exceeds `full` tokens, the scan extracts at once.
    """

    def __init__(
        self, rules: Rules, when: str | None, price: Price, *, quiet: float, full: float
    ) -> None:
        self._rules, self._when, self._price = rules, when, price
        self._quiet, self._full, self._fixed = quiet, full, 0
        self._recent: list[ReplayedValue] = []
        self._due, self._gone = _Ordered[ReplayedValue](), _Ordered[ReplayedValue]()
        self._last: ModelCall | None = None
        self._usage = cache.Usage()
        # Calls since the cache was cold, shortest first. No extraction has changed their prompts.
        self._warm: list[ModelCall] = []
        # Tokens before the last change, and of the shortest prompt since then.
        self._changed = (0, 0)
        self._calls: list[ModelCall] = []
        self._begun = 0
        self._reasoning = _Ordered[Thought]()
        self.reasoning_lost = 0  # tokens
        self._writes = False  # the provider counts written tokens

    def run(self, events: Iterable[Event]) -> Sequence[ModelCall]:
        for event in events:
            match event:
                case Fixed():
                    self._fixed = event.tokens
                case Compaction():
                    self._recent, self._due, self._gone = [], _Ordered(), _Ordered()
                    self._reasoning = _Ordered()
                    self._usage.forget()
                case Thought():
                    self._reasoning.add([event])
                case ReplayedValue():
                    self._recent.append(event)
                case Prompted():
                    self._between_turns(event)
                    self._begun = event.messages
                case ModelCall():
                    self._call(event)
        return self._calls

    def _call(self, call: ModelCall) -> None:
        if call.aside:  # the prompt of the last call again: the answer to that call stays
            call = replace(call, output=self._last.output if self._last else 0)
        else:  # a compaction or a step back has removed the values behind the prompt's end
            self._recent = [value for value in self._recent if value.before < call.tokens]
            self._reasoning.cut(call.tokens)
            self._due.cut(call.tokens)
            self._gone.cut(call.tokens)
        cached = self._read(call, call.cached - self._gone.in_front(call.cached))
        replayed = sent_with(call, call.tokens - self._gone.tokens, cached)
        start, end = self._changed
        self._writes |= bool(call.written)
        cacheable = replayed.cached + replayed.written if self._writes else 0
        self._changed = (start, min(end, cacheable)) if call.cached else (0, 0)
        # After a compaction or a step back, a shorter prompt is no continuation of longer ones.
        while self._warm and (not call.cached or self._warm[-1].tokens >= replayed.tokens):
            self._warm.pop()
        self._warm.append(replayed)
        self._calls.append(replayed)
        self._last = call
        self._usage.called(call)

    def _read(self, call: ModelCall, cached: int) -> int:
        start, end = self._changed
        if not start < cached < end:
            return cached
        if not call.written:
            return start
        at = bisect_right(self._warm, start, key=lambda call: call.tokens) - 1
        if at < 0 or not _is_warm(self._warm[at], call):
            return min(cached, self._fixed)
        self._warm[at] = replace(self._warm[at], at=call.at)
        return self._warm[at].tokens

    def _between_turns(self, prompt: Prompted) -> None:
        last = self._last
        if self._when is None or last is None or last.at is None or prompt.at is None:
            return
        state = self._usage.cache(last.at)
        for moment in (last.at + self._quiet, state.warm_until or last.at):
            if last.at + self._quiet <= moment <= prompt.at:
                self._scan(self._when, last, state, moment, prompt.messages)

    def _scan(
        self, when: str, last: ModelCall, state: cache.Cache, now: float, messages: int
    ) -> None:
        split: tuple[list[ReplayedValue], list[ReplayedValue]] = [], []
        for value in self._recent:
            fresh = value.fresh and value.number >= self._begun
            split[fresh or messages - value.number <= value.keep].append(value)
        due, self._recent = split
        self._due.add(due)
        load, chosen = last.tokens + last.output - self._gone.tokens, self._due.values
        if not self._is_enough(self._due.tokens, load):
            return
        if not (when == "pays" and load > self._full):
            change = self._break(chosen[0].before, self._due.tokens, load, last)
            if cache.due(when, state, change, self._price, now) is not None:
                return
            placed, risk = (
                [(one.before, one.tokens) for one in values]
                for values in (chosen, self._reasoning.values)
            )
            chosen = chosen[spared(when, placed, risk, state, self._price, now) :]
            if not self._is_enough(sum(value.tokens for value in chosen), load):
                return
        first = chosen[0].before
        before = first - self._gone.in_front(first)
        self.reasoning_lost += self._reasoning.behind(first)
        self._reasoning.cut(first + 1)
        self._gone.add(chosen)
        self._due.cut_last(len(chosen))
        del self._warm[bisect_right(self._warm, before, key=lambda call: call.tokens) :]
        self._changed = (before, sys.maxsize)

    def _is_enough(self, saved: int, load: int) -> bool:
        least = self._rules.min_reclaim
        if self._price.is_above(load) and not self._price.is_above(load - saved):
            return saved > 0
        return saved > 0 and not (isinstance(least, float) and saved / max(1, load) < least)

    def _break(self, first: int, saved: int, load: int, last: ModelCall) -> cache.Break:
        before = first - self._gone.in_front(first)
        at = bisect_right(self._warm, before, key=lambda call: call.tokens) - 1
        front = self._warm[at].tokens if at >= 0 else min(before, self._fixed)
        front = front if last.written else before
        lost = self._reasoning.behind(first)
        return cache.Break(saved, max(0, load - front - saved), load, lost)


def bill(calls: Sequence[ModelCall], price: Price, dollars: float | None) -> Bill:
    """`dollars` is the price of one input token, if it is known."""
    paid = sum(map(price.paid, calls))
    return Bill(
        sum(call.tokens for call in calls), sum(call.cached for call in calls), round(paid),
        None if dollars is None else paid * dollars,
    )  # fmt: skip
