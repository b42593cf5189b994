"""Detect what signals report: repeated calls, and sessions that have become too full."""

import hashlib
import json
from collections.abc import Iterable, Iterator

from msgspec import Struct

from brainsurgeon.formats.base import Format, ParsedLine, is_made_up
from brainsurgeon.model.turns import Fullness


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
            ident = parsed.ident or ""
            # Read from the end, lines have no numbers. The rest of an id made of one stays.
            place = ident.rpartition("-")[2] if is_made_up(ident) else ident
            made = RepeatedCall(tools.get(call.call_id, "tool"), arguments, place)
            last = last or made
            if (made.tool, made.arguments) != (last.tool, last.arguments):
                return
            yield made


def became_too_full(after: Fullness, before: Fullness | None) -> bool:
    """Check whether a session is too full after a plan, and was not when it was last planned."""
    was = before is not None and before.pressure > before.threshold
    return after.pressure > after.threshold and not was
