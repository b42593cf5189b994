"""Replay the model calls of a session under policies of extraction, and price them.

What the provider read from its cache is taken from the recorded usage. A policy changes it by the
tokens that it removed, and by the call after an extraction, which reads nothing behind the first
change. Answers are not counted: they are the same under each policy.
"""

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType

from msgspec import Struct
from msgspec.structs import replace

from brainsurgeon.formats.base import Format, ParsedLine, parsed_lines
from brainsurgeon.formats.weight import DIALECTS, tokens_off
from brainsurgeon.model.entries import (
    OLD,
    Lines,
    placeholder_named,
    placeholder_token,
    value_at,
)
from brainsurgeon.model.records import Records
from brainsurgeon.model.reports import Bill
from brainsurgeon.model.rules import Price, Rules
from brainsurgeon.model.sessions import OFF_BRANCH, Survey
from brainsurgeon.model.text import parse_time
from brainsurgeon.model.turns import ModelCall, Savings
from brainsurgeon.planning import cache
from brainsurgeon.planning.matching import Matcher
from brainsurgeon.planning.rules import EntryState, Extract, extract
from brainsurgeon.planning.superseded import Values, superseded

# A survey for which every entry is old and before the last prompt.
_LONG_AGO = Survey(0, MappingProxyType({}), None, last_user=sys.maxsize)
_PLACEHOLDER = placeholder_named("0" * 8)


class Prompted(Struct, frozen=True):
    """A user's prompt, with its time if that is known. `messages` are those before it."""

    at: float | None
    messages: int


class Renewed(Struct, frozen=True):
    """The context begins anew: what was sent before is not sent any more."""

    at: float | None = None


class Value(Struct, frozen=True):
    """A value that the rules extract once `keep` messages follow the message `number`.

    Without it the next requests have `tokens` less. `before` are the tokens of the prompt in front
    of it. It was in fact extracted at `taken_at`, if that is not None.
    """

    number: int
    keep: int
    tokens: int
    before: int = 0
    taken_at: float | None = None


Event = Prompted | Renewed | Value | ModelCall


def history(
    lines: Lines, form: Format, survey: Survey, records: Records, rules: Rules
) -> list[Event]:
    """Return the prompts, values and calls of a session, oldest first."""
    events: list[Event] = []
    dialect, matcher = DIALECTS[form.name], Matcher(form, survey, records)
    messages, met = 0, set[str | None]()
    newer = superseded(lines, form, survey) if rules.superseded else {}
    on_branch = (line for line in lines if survey.dead(line.offset) != OFF_BRANCH)
    for parsed in parsed_lines(on_branch, form):
        entry, step, call = parsed.entry, form.turn_step(parsed.entry), dialect.call(parsed.entry)
        if dialect.renews(entry):
            events.append(Renewed())
        if step is not None and step.role == "prompt":
            events.append(Prompted(parse_time(entry.get("timestamp")), messages))
        if call is not None and call.tokens and (call.ident is None or call.ident not in met):
            met.add(call.ident)
            events.append(call)
        events += (
            Value(messages, rules.keep_recent, value.tokens, taken_at=value.extracted_at)
            for value in matcher.standing(parsed) if value.tokens
        )  # fmt: skip
        events += _values(parsed, form, rules, newer, records.rate, messages)
        messages += form.counts(entry)
    return events


def _values(
    parsed: ParsedLine, form: Format, rules: Rules, newer: Mapping[Values, str],
    rate: float, number: int,
) -> Iterator[Value]:  # fmt: skip
    for part in form.parts(parsed.entry, _LONG_AGO, parsed.offset):
        values = (parsed.ident, part.kind, form.anchor(parsed.entry, part.path))
        state = EntryState(parsed.ident, OLD, superseded=newer.get(values, ""))
        decision = extract(part, value_at(parsed.entry, part.path), state, rules, 0.0)
        if isinstance(decision, Extract) and not part.dead:
            token = part.instead or placeholder_token(_PLACEHOLDER, block=part.block)
            tokens = tokens_off(form.name, parsed.entry, part.path, token, rate)
            rule = rules.match(part)
            if tokens > 0:
                yield Value(number, rule.keep_recent if rule else rules.keep_recent, tokens)


def unpruned(events: Iterable[Event]) -> Iterator[Event]:
    """Yield the events as if nothing had been extracted, each value with the tokens before it."""
    taken: list[Value] = []
    last, raw = None, None
    for event in events:
        if isinstance(event, Renewed):
            taken.clear()
        elif isinstance(event, Value):
            event = replace(event, before=raw.tokens if raw else 0)  # noqa: PLW2901
            taken += [event] if event.taken_at is not None else []
        elif isinstance(event, ModelCall):
            gone = [value for value in taken if _was_gone(value, event)]
            broken = last is not None and not all(_was_gone(value, last) for value in gone)
            cached = event.cached + _tokens(gone, event.cached)
            if broken and raw and _is_warm(raw, event):
                cached = max(cached, raw.tokens)
            last, raw = event, sent_with(event, event.tokens + _tokens(gone), cached)
            event = raw  # noqa: PLW2901
        yield event


def _was_gone(value: Value, call: ModelCall) -> bool:
    return value.taken_at is not None and call.at is not None and value.taken_at < call.at


def _is_warm(before: ModelCall, call: ModelCall) -> bool:
    life = cache.LONG_LIFE if before.hour else cache.LIFE
    return before.at is not None and call.at is not None and call.at - before.at <= life


def _tokens(values: Iterable[Value], before: float = sys.maxsize) -> int:
    """Return the tokens of the values that stand in front of a place in the prompt."""
    return sum(value.tokens for value in values if value.before < before)


def sent_with(call: ModelCall, tokens: int, cached: int) -> ModelCall:
    """Return a call with a prompt of another size; of its new part the same share is written."""
    tokens = max(0, tokens)
    cached = min(max(0, cached), tokens)
    new = call.tokens - call.cached
    share = call.written / new if new > 0 else 1.0
    return replace(call, tokens=tokens, cached=cached, written=round((tokens - cached) * share))


class Replay:
    """A session under one policy: `when` is that of the rules, None extracts nothing.

    A scan looks at the session `quiet` seconds after each turn, and again when its cache is cold.
    From a load of `full` tokens on it is too full to wait.
    """

    def __init__(
        self, rules: Rules, when: str | None, price: Price, *, quiet: float, full: float
    ) -> None:
        self._rules, self._when, self._price = rules, when, price
        self._quiet, self._full = quiet, full
        self._waiting: list[Value] = []
        self._gone: list[Value] = []
        self._last: ModelCall | None = None
        self._usage = cache.Usage()
        self._broken: int | None = None
        self._calls: list[ModelCall] = []

    def run(self, events: Iterable[Event]) -> Sequence[ModelCall]:
        """Return the calls of the session, as they would have been."""
        for event in events:
            match event:
                case Renewed():
                    self._waiting, self._gone = [], []
                    self._usage.forget()
                case Value():
                    self._waiting.append(event)
                case Prompted():
                    self._between_turns(event)
                    self._usage.prompted()
                case ModelCall():
                    self._call(event)
        return self._calls

    def _call(self, call: ModelCall) -> None:
        # A value behind the end of the prompt left it otherwise: by a compaction or a step back.
        self._waiting = [value for value in self._waiting if value.before < call.tokens]
        self._gone = [value for value in self._gone if value.before < call.tokens]
        cached = call.cached - _tokens(self._gone, call.cached)
        if self._broken is not None:
            cached = min(cached, self._broken)
        self._calls.append(sent_with(call, call.tokens - _tokens(self._gone), cached))
        self._last, self._broken = call, None
        self._usage.called(call)

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
        due = [value for value in self._waiting if messages - value.number > value.keep]
        saved, load = _tokens(due), last.tokens + last.output - _tokens(self._gone)
        if not saved or saved / max(1, load) < self._rules.min_reclaim_share:
            return
        first = min(value.before for value in due)
        before = first - _tokens(self._gone, first)
        change = cache.Break(saved, max(0, load - before - saved))
        full = when == "pays" and load > self._full
        if not full and cache.due(when, state, change, self._price, now) is not None:
            return
        self._waiting = [value for value in self._waiting if value not in due]
        self._gone += due
        self._broken = before if self._broken is None else min(before, self._broken)


def bill(calls: Sequence[ModelCall], price: Price, dollars: float | None) -> Bill:
    """Add up the prompts of calls; `dollars` is the price of an input token, if it is known."""
    paid = sum(map(price.paid, calls))
    return Bill(
        sum(call.tokens for call in calls), sum(call.cached for call in calls), round(paid),
        None if dollars is None else paid * dollars,
    )  # fmt: skip


def dollars_of(calls: Iterable[ModelCall], price: Price) -> float | None:
    """Return the price of an input token: as configured, else as the calls record their cost."""
    if price.input is not None:
        return price.input / 1e6
    priced = [call for call in calls if call.cost]
    paid = sum(map(price.paid, priced))
    return sum(call.cost or 0.0 for call in priced) / paid if paid else None


def newest_calls(lines: Lines, form: Format) -> Iterator[ModelCall | Renewed]:
    """Yield the calls of a session, newest first, and where a new context began."""
    dialect, met = DIALECTS[form.name], set[str | None]()
    for parsed in parsed_lines(lines.backward(), form):
        call = dialect.call(parsed.entry)
        if call is not None and call.tokens and (call.ident is None or call.ident not in met):
            met.add(call.ident)
            yield call
        if dialect.renews(parsed.entry):
            yield Renewed(parse_time(parsed.entry.get("timestamp")))


def saved_by(savings: Savings, calls: Iterable[ModelCall | Renewed], price: Price) -> Savings:
    """Return the savings with further calls, less what they paid for a cache that we broke."""
    for call in calls:
        if isinstance(call, Renewed):
            until = max(call.at or 0.0, savings.until)
            savings = replace(savings, until=until, prompt=0, off=0, broken_at=None)
            continue
        cached = call.cached + (savings.off if call.cached else 0)
        at = call.at or savings.until
        life = cache.LONG_LIFE if call.hour else cache.LIFE
        if savings.broken_at is not None and at - savings.until <= life:
            cached = max(cached, savings.prompt)
        raw = sent_with(call, call.tokens + savings.off, cached)
        paid = price.paid(raw) - price.paid(call)
        dollars = dollars_of([call], price)
        known = None if dollars is None else (savings.dollars or 0.0) + dollars * paid
        savings = replace(
            savings, until=max(at, savings.until), prompt=raw.tokens, broken_at=None,
            tokens=savings.tokens + savings.off, paid=savings.paid + paid,
            dollars=savings.dollars if known is None else known,
        )  # fmt: skip
    return savings
