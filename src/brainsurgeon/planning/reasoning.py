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
from brainsurgeon.model.catalog import Price
from brainsurgeon.model.plans import Plan, Removal
from brainsurgeon.model.records import Records
from brainsurgeon.planning.cache import Cache
from brainsurgeon.planning.calls import last_call
from brainsurgeon.planning.signatures import is_bound

# Offsets of entries, and the tokens of their reasoning.
AtRisk = Sequence[tuple[int, int]]


def at_risk(transcript: Transcript, plan: Plan, records: Records, globs: Sequence[str]) -> AtRisk:
    """Return the reasoning that the next request contains and the provider still uses.

    Nothing before it has changed since, and the session is still with the same model.
    """
    last = last_call(transcript) if transcript.form.has_reasoning else None
    if not (last and last.model and is_bound([last.model], globs)):
        return ()
    here, changed, found = set(plan.sightings.here), 0.0, list[tuple[int, int]]()
    taken = {
        value.entry_id: value.extracted_at for value in records.extractions if value.id in here
    }
    for index, entry in transcript.live():
        reasoning, at = entry.reasoning, entry.call.at if entry.call else None
        used = transcript.chain.thinks(index, entry) and (at is None or at > changed)
        if reasoning and reasoning.model == last.model and used:
            found.append((transcript.offset(index), reasoning.tokens))
        changed = max(changed, taken.get(entry.ident or "", 0.0))
    return found


def lost(risk: AtRisk, start: float) -> int:
    """Return the tokens of reasoning behind a change at the offset `start`."""
    return sum(tokens for offset, tokens in risk if offset > start)


def worthwhile(
    removals: Sequence[Removal], risk: AtRisk, cache: Cache, price: Price
) -> Sequence[Removal]:
    """Return the last removals that save most, less the reasoning that they lose; cache is cold.

    Late removals lose less. Without any that is worth it, none is returned.
    """
    offsets = [offset for offset, _ in risk]
    behind = [*accumulate((tokens for _, tokens in reversed(risk)), initial=0)][::-1]
    each = price.write + price.read * cache.calls
    best, saved, most = len(removals), 0.0, 0.0
    for number in range(len(removals) - 1, -1, -1):
        saved += removals[number].tokens * each
        gained = saved - behind[bisect_right(offsets, removals[number].start)] * price.redone
        if gained > most:
            best, most = number, gained
    return removals[best:]
