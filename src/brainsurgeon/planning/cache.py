"""The provider's prompt cache of a session: whether it is warm, and the cost of breaking it.

A provider caches the beginning of a request for some time. A request with the same beginning pays
a fraction for it. After a change, the next request writes everything behind it again.
"""

from msgspec import Struct

from brainsurgeon.formats.transcript import Transcript
from brainsurgeon.model.plans import Plan
from brainsurgeon.model.providers import LIFE, LONG_LIFE, Price
from brainsurgeon.model.records import Records
from brainsurgeon.model.turns import ModelCall

# At this price of a read, a cache is expected to stay warm for as many calls as it has been. Where
# reads are cheaper, a wait costs less: a change must pay within fewer calls, a quarter at 0.025.
USUAL_READ = 0.1


class Break(Struct, frozen=True):
    """The effect of a plan on the prompt cache, in tokens of the next request."""

    saved: int = 0  # by unrequested removals
    # Written to the cache again because of these removals. A requested change also breaks the
    # cache, so what follows it is not counted.
    rewritten: int = 0
    load: int = 0  # tokens of the next request without the plan; 0 if unknown
    lost: int = 0  # tokens of reasoning that the provider would drop (see `reasoning`)


class Cache(Struct, frozen=True):
    """The prompt cache of a session, estimated from its recorded calls."""

    warm_until: float | None = None  # None if no cache of the next request is known
    calls: int = 0  # number of model calls since it was cold
    hour: bool = False  # it is kept for an hour
    model: str | None = None


class Usage:
    def __init__(self) -> None:
        self._last: ModelCall | None = None
        self._model: str | None = None
        self._cached = self._hour = False
        self._seen: set[str | None] = set()
        self._calls = 0

    def forget(self) -> None:
        """Forget what is cached: the next request shares no prefix with the last call."""
        self._last, self._cached, self._hour = None, False, False

    def is_same_model(self, call: ModelCall) -> bool:
        return self._last is not None and self._last.model == call.model

    def called(self, call: ModelCall) -> None:
        self._model = call.model or self._model
        if not call.tokens:
            return
        if not self.is_same_model(call):  # each model has its own cache
            self.forget()
        if call.ident is None or call.ident not in self._seen:
            self._seen.add(call.ident)
            if not call.cached or self._is_cold(call):
                self._calls = 0
            self._calls += not call.aside
        self._last = call
        self._cached |= bool(call.cached or call.written)
        if call.written:  # five minutes and an hour can mix within a session
            self._hour = call.hour

    def _is_cold(self, call: ModelCall) -> bool:
        last = self._last
        if last is None or last.at is None or call.at is None:
            return last is None
        return call.at - last.at > self._life

    @property
    def _life(self) -> float:
        return LONG_LIFE if self._hour else LIFE

    def cache(self, changed_at: float) -> Cache:
        last = self._last
        at = changed_at if last is None or last.at is None else min(last.at, changed_at)
        warm_until = at + self._life if last and self._cached else None
        return Cache(warm_until, self._calls, self._hour, self._model)


def read(
    transcript: Transcript, plan: Plan, records: Records, changed_at: float
) -> tuple[Cache, Break]:  # fmt: skip
    usage, rate, behind = Usage(), records.rate, 0
    # `front`: tokens before the first removal. `uncached`: those after the last cached prompt.
    front, uncached, changed = 0, 0, 0.0
    here = set(plan.placeholders.here)
    taken = {
        value.entry_id: value.extracted_at for value in records.extractions if value.id in here
    }
    optional = plan.optional
    start = optional[0].start if optional else 0
    end = min((edit.start for edit in plan.edits if plan.is_requested(edit)), default=None)
    # An archive edits the last answer, but changes requests from the end of the prompt on.
    closings = {removal.entry_id for removal in optional if removal.how == "archive"}
    prompts = {one.prompt_id for one in plan.archives if one.entry_id in closings}
    for index, entry in transcript.live():
        call = entry.call
        if entry.compacts or entry.switches_model:
            usage.forget()
        in_front = transcript.span(index)[1] <= start
        if call is not None:
            if call.tokens and call.written and not (call.cached and usage.is_same_model(call)):
                uncached = front  # the call found nothing in the cache
            newer = call.at is None or call.at > changed or not call.written
            if call.tokens and in_front and newer:
                uncached = 0  # the call's prompt is in the cache now
            usage.called(call)
        changed = max(changed, taken.get(entry.ident or "", 0.0))
        if in_front or end is None or transcript.offset(index) < end:
            tokens = transcript.sent(index).tokens(rate)
            front, uncached = (front + tokens, uncached + tokens) if in_front else (front, uncached)
            behind += 0 if in_front else tokens
        if entry.ident in prompts:
            start = min(start, transcript.span(index)[1] + 1)
    gone = sum(removal.tokens for removal in optional if end is None or removal.start < end)
    saved = sum(removal.tokens for removal in optional)
    return usage.cache(changed_at), Break(saved, max(0, uncached + behind - gone), plan.load)


def due(when: str, cache: Cache, change: Break, price: Price, now: float) -> float | None:
    """Return when unrequested removals may be made; None means now."""
    if when == "always" or cache.warm_until is None or cache.warm_until <= now:
        return None
    if not change.rewritten or (when == "pays" and _pays(cache, change, price)):
        return None
    return cache.warm_until


def _pays(cache: Cache, change: Break, price: Price) -> bool:
    left = change.load - change.saved
    before, after = price.of_prompt(change.load), price.of_prompt(left)
    calls = cache.calls * min(1.0, price.read / USUAL_READ)
    saved = price.read * calls * (before * change.saved + (before - after) * left)
    cost = after * change.rewritten * (price.of_write(hour=cache.hour) - price.read)
    return saved > cost + change.lost * price.redone
