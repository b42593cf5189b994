"""The costs of model calls, the savings by extractions, and repeated tool calls."""

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

from msgspec import Struct
from msgspec.structs import replace

from brainsurgeon.formats.base import Format, is_generated
from brainsurgeon.formats.transcript import Transcript
from brainsurgeon.model.providers import LIFE, LONG_LIFE, Price, Prices, price_of
from brainsurgeon.model.reports import ModelCost
from brainsurgeon.model.transcript import Entry
from brainsurgeon.model.turns import LONG, PRICED, UNPRICED, Compaction, ModelCall, Savings, Spent

# If more consecutive calls than this have no usage, reading stops: the agent records none.
MOST_UNRECORDED = 50


def cost_of(call: ModelCall, configured: Prices, calls: int = 1) -> float | None:
    """Return the cost of one call, or of a number of calls whose sums `call` holds."""
    return call.dollars or price_of(call.model, configured).dollars(call, calls)


class RecordedCalls:
    """The calls of sessions. Entries of the same API message count as one call."""

    def __init__(self) -> None:
        self._seen: set[str | None] = set()
        self._calls: list[ModelCall] = []
        self._turns = Counter[str | None]()
        self.compactions: list[Compaction] = []
        self.stated: float | None = None
        # Items of reasoning that the provider left out of the newest call of the first session.
        self.reasoning_dropped: int | None = None

    def read(self, entries: Sequence[Entry]) -> None:
        """Add a session. Only the last entry of a message has the full usage."""
        compactions = list[Compaction]()
        models: set[str | None] = set()
        for entry in reversed(entries):
            for call in _paid(entry):
                if call.ident in self._seen:
                    continue
                self._seen.update({call.ident} - {None})
                self._calls.append(call)
                if self.reasoning_dropped is None:
                    self.reasoning_dropped = entry.dropped
                models.add(call.model)
                if compactions and not (compactions[-1].tokens_before or call.aside):
                    compactions[-1] = replace(
                        compactions[-1], tokens_before=call.tokens + call.output
                    )
            self.stated = self.stated or entry.cost_so_far
            if entry.compacts:
                compactions.append(Compaction(entry.time))
            if entry.role == "prompt":
                self._turns.update(models)
                models.clear()
        self._turns.update(models)
        self.compactions += compactions

    def costs(self, configured: Prices) -> tuple[ModelCost, ...]:
        listed = _by_model(((1, call) for call in self._calls), configured)
        return tuple(replace(cost, turns_answered=self._turns[cost.model]) for cost in listed)


def calls_in(newest_first: Iterable[Entry], form: Format) -> Iterator[tuple[int, ModelCall]]:
    """Yield the calls of entries, each with a key that all entries of the call share.

    Calls without usage, or without an id and a time, are left out.
    """
    for call in chain.from_iterable(map(_paid, newest_first)):
        if call.ident or call.at:
            ident = call.ident or f"{call.at} {call.model} {call.tokens} {call.output}"
            name = f"{form.name} {ident}".encode("utf-8", "surrogatepass")
            digest = hashlib.blake2b(name, digest_size=8).digest()
            yield int.from_bytes(digest, signed=True), call


def _paid(entry: Entry) -> Iterator[ModelCall]:
    return (call for call in (entry.call, *entry.asides) if call is not None and has_usage(call))


def has_usage(call: ModelCall) -> bool:
    return call.dollars is not None or call.tokens > 0


def spent_on(calls: Iterable[ModelCall]) -> list[Spent]:
    sums: dict[tuple[str, int], Spent] = {}
    for call in calls:
        unpriced = LONG if price_of(call.model).is_above(call.tokens) else UNPRICED
        key = call.model or "", unpriced if call.dollars is None else PRICED
        sums[key] = sums.get(key, Spent(*key)).plus(call)
    return [*sums.values()]


def costs_of(spent: Iterable[Spent], configured: Prices) -> tuple[ModelCost, ...]:
    usages = (
        (one.calls, ModelCall(
            None, one.model or None, one.tokens, cached=one.cached, written=one.written,
            output=one.output, dollars=one.dollars or None,
        ))
        for one in spent
    )  # fmt: skip
    return _by_model(usages, configured)


def _by_model(usages: Iterable[tuple[int, ModelCall]], configured: Prices) -> tuple[ModelCost, ...]:
    """Return the costs by model, dearest first. Each usage is the total of a number of calls."""
    costs: dict[str | None, ModelCost] = {}
    for number, usage in usages:
        before = costs.get(usage.model, ModelCost(usage.model))
        costs[usage.model] = before.plus(number, usage, cost_of(usage, configured, number))
    return tuple(sorted(
        costs.values(),
        key=lambda cost: (-(cost.cost_dollars or 0.0), -cost.tokens_sent, cost.model or ""),
    ))  # fmt: skip


def dollars_of(calls: Iterable[ModelCall], price: Price) -> float | None:
    """Return the price of an input token in dollars, recorded or known, or None."""
    priced = [call for call in calls if call.cost]
    if paid := sum(map(price.paid, priced)):
        return sum(call.cost or 0.0 for call in priced) / paid
    return None if price.input is None else price.input / 1e6


def newest_calls(newest_first: Iterable[Entry]) -> Iterator[ModelCall | Compaction]:
    seen, unrecorded = set[str | None](), 0
    for entry in newest_first:
        call = entry.call
        if call is not None and call.tokens and (call.ident is None or call.ident not in seen):
            seen.add(call.ident)
            yield call
        if call is not None and not call.aside:
            unrecorded = 0 if call.tokens else unrecorded + 1
        if unrecorded > MOST_UNRECORDED:
            return
        if entry.compacts:
            yield Compaction(entry.time)


def last_call(transcript: Transcript) -> ModelCall | None:
    calls = newest_calls(entry for _, entry in transcript.live_backward())
    last = next((one for one in calls if isinstance(one, Compaction) or not one.aside), None)
    return last if isinstance(last, ModelCall) else None


def saved_by(savings: Savings, calls: Iterable[ModelCall | Compaction], price: Price) -> Savings:
    """Add the savings of further calls, less the costs of caches that extractions broke."""
    for call in calls:
        if isinstance(call, Compaction):
            until = max(call.at or 0.0, savings.until)
            savings = replace(savings, until=until, prompt=0, off=0, broken_at=None)
            continue
        cached = call.cached + (savings.off if call.cached else 0)
        at = call.at or savings.until
        if savings.broken_at is not None and at - savings.until <= life_of(call):
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


def life_of(call: ModelCall) -> float:
    return LONG_LIFE if call.hour else LIFE


def sent_with(call: ModelCall, tokens: int, cached: int) -> ModelCall:
    """Return the call with another prompt size. As many tokens as before are behind the cache."""
    tokens = max(0, tokens)
    cached = min(max(0, cached), tokens)
    behind = max(0, call.tokens - call.cached - call.written)
    written = max(0, tokens - cached - behind) if call.written or call.tokens == call.cached else 0
    return replace(call, tokens=tokens, cached=cached, written=written)


class RepeatedCall(Struct, frozen=True):
    tool: str
    arguments: str  # a digest of tool and arguments
    entry_id: str


def last_calls(newest_first: Iterable[Entry]) -> Iterator[RepeatedCall]:
    """Yield the newest call and equal calls before it, back to a prompt or a different call."""
    last = None
    for entry in newest_first:
        if entry.role == "prompt":
            return
        for call in reversed(entry.calls):
            made = RepeatedCall(call.tool, call.digest.hex(), _stable_id(entry))
            last = last or made
            if (made.tool, made.arguments) != (last.tool, last.arguments):
                return
            yield made


def last_answers(newest_first: Iterable[Entry]) -> Iterator[tuple[str, ModelCall]]:
    """Yield the newest answers, each with its entry's id, back to one that is complete.

    Also stop at a compaction, and where a prompt has no answer: the agent may record none.
    """
    unanswered = 0
    for entry in newest_first:
        call = entry.call
        unanswered += entry.role == "prompt"
        if entry.compacts or unanswered > 1:
            return
        if call is None or call.aside:
            continue
        unanswered = 0
        if call.end != "failed":
            yield _stable_id(entry), call
            if call.end == "complete":
                return


def _stable_id(entry: Entry) -> str:
    """Return the id; if it is generated, without its line number, which may be unknown."""
    ident = entry.ident or ""
    return ident.rpartition("-")[2] if is_generated(ident) else ident


def last_turn(newest_first: Iterable[Entry], prices: Prices) -> tuple[str, float]:
    """Return the id of the last prompt, and the known cost (dollars) of the calls after it."""
    seen, dollars = set[str | None](), 0.0
    for entry in newest_first:
        if entry.role == "prompt":
            return _stable_id(entry), dollars
        for call in _paid(entry):
            if call.ident not in seen:
                seen |= {call.ident} - {None}
                dollars += cost_of(call, prices) or 0.0
    return "", dollars
