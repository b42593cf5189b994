"""The costs of the calls that sessions record."""

from collections import Counter
from collections.abc import Iterable

from msgspec.structs import replace

from brainsurgeon.formats.base import Format, parsed_lines
from brainsurgeon.formats.weight import DIALECTS
from brainsurgeon.model.entries import Lines
from brainsurgeon.model.reports import ModelCost
from brainsurgeon.model.text import parse_time
from brainsurgeon.model.turns import Compaction, ModelCall
from brainsurgeon.planning.cache import Prices, price_of


def cost_of(call: ModelCall, configured: Prices) -> float | None:
    """Return the dollars of a call: as recorded, else by the configured price, else None."""
    return call.dollars or price_of(call.model, configured).dollars(call)


class Spending:
    """The calls of sessions, read one after the other. Each API message counts once, by its id."""

    def __init__(self, configured: Prices) -> None:
        self._configured = configured
        self._met: set[str | None] = set()
        self._costs: dict[str | None, ModelCost] = {}
        self.compactions: list[Compaction] = []

    def read(self, lines: Lines, form: Format) -> None:
        """Add a session. The newest lines come first: only the last of a message is complete."""
        dialect, turns, found = DIALECTS[form.name], Counter[str | None](), list[Compaction]()
        models: set[str | None] = set()
        for parsed in parsed_lines(lines.backward(), form):
            step, call = form.turn_step(parsed.entry), dialect.call(parsed.entry)
            if call is not None and self._add(call):
                models.add(call.model)
                if found and not found[-1].tokens:
                    found[-1] = replace(found[-1], tokens=call.tokens + call.output)
            if dialect.renews(parsed.entry):
                found.append(Compaction(parse_time(parsed.entry.get("timestamp"))))
            if step is not None and step.role == "prompt":
                turns.update(models)
                models.clear()
        turns.update(models)
        for model, number in turns.items():
            cost = self._costs[model]
            self._costs[model] = replace(cost, turns=cost.turns + number)
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


def counts(call: ModelCall) -> bool:
    """Check whether a call was answered, and its usage recorded."""
    return call.dollars is not None or (call.tokens > 0 and call.complaint is None)


def dearest_first(listed: Iterable[ModelCost]) -> tuple[ModelCost, ...]:
    return tuple(sorted(
        listed, key=lambda one: (-one.dollars, -one.tokens_sent, one.model or "")
    ))  # fmt: skip
