"""The costs of the calls that sessions record."""

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from brainsurgeon.formats.base import Format, parsed_lines
from brainsurgeon.formats.weight import DIALECTS
from brainsurgeon.model.entries import Line, Lines
from brainsurgeon.model.reports import ModelCost
from brainsurgeon.model.text import parse_time
from brainsurgeon.model.turns import Compaction, ModelCall, Spent
from brainsurgeon.planning.cache import Prices, price_of


def cost_of(call: ModelCall, configured: Prices) -> float | None:
    """Return the dollars of a call: as recorded, else by the configured price, else None."""
    return call.dollars or price_of(call.model, configured).dollars(call)


class RecordedCalls:
    """The calls of sessions, read one after the other. Each API message counts once, by its id."""

    def __init__(self, configured: Prices) -> None:
        self._configured = configured
        self._met: set[str | None] = set()
        self._costs: dict[str | None, ModelCost] = {}
        self.compactions: list[Compaction] = []
        self.stated: float | None = None

    def read(self, lines: Lines, form: Format) -> None:
        """Add a session, newest lines first: only the last line of a message has full usage."""
        dialect, turns, found = DIALECTS[form.name], Counter[str | None](), list[Compaction]()
        models: set[str | None] = set()
        for parsed in parsed_lines(lines.backward(), form):
            step, call = form.turn_step(parsed.entry), dialect.call(parsed.entry)
            if call is not None and self._add(call):
                models.add(call.model)
                if found and not found[-1].tokens:
                    found[-1] = replace(found[-1], tokens=call.tokens + call.output)
            self.stated = self.stated or dialect.stated(parsed.entry)
            if dialect.renews(parsed.entry):
                found.append(Compaction(parse_time(parsed.entry.get("timestamp"))))
            if step is not None and step.role == "prompt":
                turns.update(models)
                models.clear()
        turns.update(models)
        for model, number in turns.items():
            cost = self._costs[model]
            self._costs[model] = replace(cost, turns=(cost.turns or 0) + number)
        self.compactions += found

    def _add(self, call: ModelCall) -> bool:
        if not counts(call) or call.ident in self._met:
            return False
        self._met.update({call.ident} - {None})
        before = self._costs.get(call.model, ModelCost(call.model))
        self._costs[call.model] = before.plus(1, call, cost_of(call, self._configured))
        return True

    @property
    def models(self) -> tuple[ModelCost, ...]:
        """The models, dearest first."""
        return dearest_first(self._costs.values())


def calls_in(newest_first: Iterable[Line], form: Format) -> Iterator[tuple[int, ModelCall]]:
    """Yield digests of ids and their calls; a call with neither id nor time is left out.

    All lines of a message have the same id.
    """
    call_of = DIALECTS[form.name].call
    with_usage = (line for line in newest_first if line.raw and b'usage"' in line.raw)
    for parsed in parsed_lines(with_usage, form):
        call = call_of(parsed.entry)
        if call is None or not counts(call) or not (call.ident or call.at):
            continue
        ident = call.ident or f"{call.at} {call.model} {call.tokens} {call.output}"
        digest = hashlib.blake2b(f"{form.name} {ident}".encode(), digest_size=8).digest()
        yield int.from_bytes(digest, signed=True), call


def counts(call: ModelCall) -> bool:
    """Check whether a call was answered, and its usage recorded."""
    return call.dollars is not None or (call.tokens > 0 and call.complaint is None)


def costs_of(spent: Iterable[Spent], configured: Prices) -> tuple[ModelCost, ...]:
    """Return the costs of calls by model, dearest first."""
    costs: dict[str, ModelCost] = {}
    for one in spent:
        usage = ModelCall(
            None, one.model, one.tokens, cached=one.cached, written=one.written,
            output=one.output, dollars=one.dollars or None,
        )  # fmt: skip
        before = costs.get(one.model, ModelCost(one.model or None))
        costs[one.model] = before.plus(one.calls, usage, cost_of(usage, configured))
    return dearest_first(costs.values())


def dearest_first(listed: Iterable[ModelCost]) -> tuple[ModelCost, ...]:
    return tuple(sorted(
        listed, key=lambda one: (-one.dollars, -one.tokens_sent, one.model or "")
    ))  # fmt: skip
