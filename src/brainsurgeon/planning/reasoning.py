"""Reasoning that its provider leaves out of requests whose earlier entries changed.

From GPT-6.2 on, OpenAI drops each item of reasoning behind a change, without an error (page "Keep
the prefix unchanged" of developers.openai.com). An item and the one behind it belong together, so
none is removed from a session. Instead, it counts as a price of the change: the model may repeat
the reasoning.
"""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

from brainsurgeon.formats.transcript import Transcript
from brainsurgeon.model.plans import Plan
from brainsurgeon.model.providers import Price
from brainsurgeon.model.records import Records
from brainsurgeon.planning.cache import Cache
from brainsurgeon.planning.calls import last_call
from brainsurgeon.planning.signatures import is_bound

# Places in a session, in order, and tokens: of reasoning at the offset of its entry, or of a value.
Placed = Sequence[tuple[int, int]]


def at_risk(transcript: Transcript, plan: Plan, records: Records, globs: Sequence[str]) -> Placed:
    """Return the reasoning that the next request contains and the provider still uses.

    Nothing before it has changed since, and the session is still with the same model.
    """
    last = last_call(transcript) if transcript.form.has_reasoning else None
    if not (last and last.model and is_bound([last.model], globs)):
        return ()
    here, changed, found = set(plan.placeholders.here), 0.0, list[tuple[int, int]]()
    taken = {
        value.entry_id: value.extracted_at for value in records.extractions if value.id in here
    }
    for index, entry in transcript.live():
        reasoning, at = entry.reasoning, entry.call.at if entry.call else entry.time
        used = transcript.chain.thinks(index, entry) and (at is None or at > changed)
        if reasoning and reasoning.model == last.model and used:
            found.append((transcript.offset(index), reasoning.tokens))
        changed = max(changed, taken.get(entry.ident or "", 0.0))
    return found


def lost(risk: Placed, start: float) -> int:
    """Return the tokens of reasoning behind a change at `start`."""
    return sum(tokens for offset, tokens in risk if offset > start)


def spared(when: str, values: Placed, risk: Placed, state: Cache, price: Price, now: float) -> int:
    """Return how many first values stay, so that the last ones save most if the cache is cold.

    The reasoning that a removal loses counts against it. Late ones lose less. None stays with a
    warm cache, nothing to lose, or another `when` than "pays".
    """
    if when != "pays" or not risk or (state.warm_until and state.warm_until > now):
        return 0
    places = [place for place, _ in risk]
    behind = [*accumulate((tokens for _, tokens in reversed(risk)), initial=0)][::-1]
    each = price.write + price.read * state.calls
    best, saved, most = len(values), 0.0, 0.0
    for number in range(len(values) - 1, -1, -1):
        place, tokens = values[number]
        saved += tokens * each
        gained = saved - behind[bisect_right(places, place)] * price.redone
        if gained > most:
            best, most = number, gained
    return best
