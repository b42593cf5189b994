"""Detect what signals report: repeated calls, costs, sessions that have become too full."""

import hashlib
import json
from collections.abc import Iterable, Iterator

from msgspec import Struct

from brainsurgeon.formats.base import Format, ParsedLine, is_made_up
from brainsurgeon.formats.weight import DIALECTS
from brainsurgeon.model.turns import Fullness
from brainsurgeon.planning.cache import Prices
from brainsurgeon.planning.costs import cost_of, counts


class RepeatedCall(Struct, frozen=True):
    """A call of a tool: `arguments` is a digest of its literal arguments, `place` its entry."""

    tool: str
    arguments: str
    place: str


def last_calls(newest_first: Iterable[ParsedLine], form: Format) -> Iterator[RepeatedCall]:
    """Yield the calls at the end of a session that equal its last call, newest first.

    A prompt or another call ends them. Results and texts may be between them.
    """
    last = None
    for parsed in newest_first:
        step = form.turn_step(parsed.entry)
        if step and step.role == "prompt":
            return
        tools = {call.call_id: call.tool for call in step.calls} if step else {}
        for call in reversed(list(form.calls(parsed.entry))):
            literal = json.dumps(call.arguments).encode()
            arguments = hashlib.blake2b(literal, digest_size=8).hexdigest()
            made = RepeatedCall(tools.get(call.call_id, "tool"), arguments, _place(parsed))
            last = last or made
            if (made.tool, made.arguments) != (last.tool, last.arguments):
                return
            yield made


def _place(parsed: ParsedLine) -> str:
    """Return the id of an entry, without the line number if the id is made up."""
    ident = parsed.ident or ""  # read from the end, lines have no numbers
    return ident.rpartition("-")[2] if is_made_up(ident) else ident


def last_turn(
    newest_first: Iterable[ParsedLine], form: Format, prices: Prices
) -> tuple[str, float]:  # fmt: skip
    """Return the place of the last prompt, and the dollars of the known calls after it."""
    met, dollars, call_of = set[str | None](), 0.0, DIALECTS[form.name].call
    for parsed in newest_first:
        step, call = form.turn_step(parsed.entry), call_of(parsed.entry)
        if step and step.role == "prompt":
            return _place(parsed), dollars
        if call and counts(call) and call.ident not in met:
            met |= {call.ident} - {None}
            dollars += cost_of(call, prices) or 0.0
    return "", dollars


def became_too_full(after: Fullness, before: Fullness | None) -> bool:
    """Check whether a session is too full after a plan, and was not when it was last planned."""
    was = before is not None and before.pressure > before.threshold
    return after.pressure > after.threshold and not was
