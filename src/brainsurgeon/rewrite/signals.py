"""Count costs and savings. Record signals, such as repeated tool calls, refusals, high costs."""

from collections import Counter
from collections.abc import Iterable
from itertools import chain, islice, takewhile
from typing import Any

from msgspec.structs import replace

from brainsurgeon.agents import agent_at
from brainsurgeon.config import Settings
from brainsurgeon.lookup.sessions import find_record, note_record
from brainsurgeon.model.plans import Plan
from brainsurgeon.model.providers import price_of
from brainsurgeon.model.transcript import Entry
from brainsurgeon.model.turns import (
    BLOCK,
    BLOCKS,
    SIGNALS,
    SIGNATURE,
    TOO_LARGE,
    TOO_LONG,
    Compaction,
    Fullness,
    ModelCall,
    Savings,
)
from brainsurgeon.planning import calls
from brainsurgeon.rewrite.inspect import Examination
from brainsurgeon.sessions.discovery import AnyOpen
from brainsurgeon.store import Store

REPEATED, COST, REFUSED, TRUNCATED, PRESSURE, SMALL = SIGNALS
LONG_SESSION = 100  # calls with usage from which a session is long
_WHY = {
    TOO_LONG: "it is too long", TOO_LARGE: "it has too many bytes",
    SIGNATURE: "a signature is invalid", BLOCK: BLOCK, BLOCKS: f"it has {BLOCKS}",
}  # fmt: skip
_UNITS = {TOO_LARGE: "bytes", BLOCK: "bytes", BLOCKS: "blocks"}


def notice(settings: Settings, store: Store, session: AnyOpen, now: float) -> None:
    off = settings.signals.off
    if REPEATED not in off:
        _notice_repeats(settings, store, session, now)
    if COST not in off:
        _notice_costs(settings, store, session, now)
    if SMALL not in off:
        _notice_small_model(settings, store, session, now)
    _notice_answer(settings, store, session, now)


def _notice_repeats(settings: Settings, store: Store, session: AnyOpen, now: float) -> None:
    """Record one signal for a series of equal calls at the end of a session."""
    times = settings.signals.repeat_threshold
    newest = calls.last_calls(reversed(session.transcript.entries))
    last = list(islice(newest, times))
    if not last or len(last) < times:
        return
    call, record = last[0], note_record(store, session)
    before = store.events.last_signal(record.id, signal=REPEATED)
    reported = (before.facts["entry_id"], before.facts["arguments"]) if before else None
    if any((one.entry_id, one.arguments) == reported for one in chain(last, newest)):
        return
    with store.transaction():
        store.events.add(now, "signal", record.id, {
            "signal": REPEATED, "tool": call.tool, "arguments": call.arguments, "calls": times,
            "entry_id": call.entry_id,
            "reason": f"{call.tool} was called {times} times in a row with the same arguments",
        }, None)  # fmt: skip


def _notice_costs(settings: Settings, store: Store, session: AnyOpen, now: float) -> None:
    """Record a signal if a turn or session reaches its ceiling, unless it was reported already."""
    keys, prices, entries = settings.signals, settings.price_rules(), session.transcript.entries
    costs: list[tuple[str, float, float, str]] = []
    if most := keys.max_turn_cost_usd:
        place, dollars = calls.last_turn(reversed(entries), prices)
        costs.append(("turn", dollars, most, place))
    if most := keys.max_session_cost_usd:
        costs.append(("session", session_costs(settings, store, session), most, ""))
    for kind, dollars, most, place in costs:
        if dollars < most:
            continue
        record = note_record(store, session)
        before = store.events.last_signal(record.id, signal=COST, of=kind)
        known = (before.facts["entry_id"], before.facts["ceiling_dollars"]) if before else ("", 0)
        if before and known[0] == place and (kind == "turn" or known[1] >= most):
            continue
        with store.transaction():
            store.events.add(now, "signal", record.id, {
                "signal": COST, "of": kind, "cost_dollars": round(dollars, 6),
                "ceiling_dollars": most, "entry_id": place,
                "reason": f"this {kind} has cost ${dollars:,.2f}, its ceiling is ${most:,.2f}",
            }, None)  # fmt: skip


def _notice_small_model(settings: Settings, store: Store, session: AnyOpen, now: float) -> None:
    """Record one signal for a long session most of whose calls a small model answers.

    Sessions that another session started are left out: a small model may be the right one there.
    """
    entries, tier = session.transcript.entries, settings.budget_rules().tier
    newest = calls.newest_calls(reversed(entries))
    last = next((call for call in newest if isinstance(call, ModelCall)), None)
    if last is None or tier(last.model) != "small" or len(entries) < LONG_SESSION:
        return
    path = session.file.path
    owner = agent_at(path).home.owner(path)
    if owner is not None and owner.started_by:
        return
    record = find_record(store, session)
    if record and store.events.last_signal(record.id, signal=SMALL):
        return
    new = calls.spent_on(new_calls(store, session).values())
    numbers = Counter[str]()
    for spent in (*store.spending.of(path), *new):
        numbers[spent.model] += spent.calls
    small = sum(number for model, number in numbers.items() if tier(model) == "small")
    if numbers.total() < LONG_SESSION or 2 * small <= numbers.total():
        return
    record = record or note_record(store, session)
    with store.transaction():
        store.events.add(now, "signal", record.id, {
            "signal": SMALL, "model": last.model, "calls": numbers.total(), "calls_small": small,
            "reason": f"{last.model}, a small model, answers in a long session: small models "
            f"answered {small:,} of its {numbers.total():,} calls",
        }, None)  # fmt: skip


def _notice_answer(settings: Settings, store: Store, session: AnyOpen, now: float) -> None:
    """Record a signal if the newest answer is a refusal or cut. A series of them is one signal."""
    newest = calls.last_answers(reversed(session.transcript.entries))
    place, call = next(newest, ("", None))
    if call is None or call.end == "complete":
        return
    signal = REFUSED if call.refusal else TRUNCATED
    if signal in settings.signals.off:
        return
    record = note_record(store, session)
    before = store.events.last_signal(record.id, signal=signal)
    alike = takewhile(lambda one: one[1].end == call.end, newest)
    if before and before.facts["entry_id"] in {place, *(one for one, _ in alike)}:
        return
    facts: dict[str, Any] = {"signal": signal, "entry_id": place}
    if refusal := call.refusal:
        helps = "relieve --signatures" if refusal.why == SIGNATURE else "relieve"
        unit = _UNITS.get(refusal.why, "tokens")
        counts = {unit: refusal.count, f"limit_{unit}": refusal.limit}
        facts |= {name: count for name, count in counts.items() if count} | {
            "why": refusal.why,
            "reason": f"the provider refused the last prompt ({_WHY[refusal.why]}); "
            f"`{helps}` makes the session usable",
        }
    else:
        facts["reason"] = "the last answer was cut at its highest length"
    with store.transaction():
        store.events.add(now, "signal", record.id, facts, None)


def notice_pressure(
    settings: Settings, store: Store, session: AnyOpen, full: Fullness, now: float
) -> None:
    """Record a signal if a session is too full even after its plan (`full`)."""
    if PRESSURE in settings.signals.off:
        return
    record = find_record(store, session)
    before = store.calibrations.of(record.id) if record else None
    if not full.is_unrelieved or (before and before.is_unrelieved):
        return
    record = record or note_record(store, session)
    with store.transaction():
        store.events.add(now, "signal", record.id, {
            "signal": PRESSURE, "load_tokens": full.load, "window_tokens": full.window,
            "threshold": full.threshold, "step": full.step,
            "reason": f"{_size(full)}, and no allowed step relieves it",
        }, None)  # fmt: skip


def _size(full: Fullness) -> str:
    if full.is_too_large:
        return f"{full.bytes:,} of {full.most_bytes or 0:,} bytes"
    return f"{full.load:,} of {full.window:,} tokens"


def session_costs(
    settings: Settings, store: Store, session: AnyOpen, newest_first: Iterable[Entry] | None = None
) -> float:
    """Return the known cost of a session in dollars. Of `newest_first`, only new calls are read."""
    new = calls.spent_on(new_calls(store, session, newest_first).values())
    spent = [*store.spending.of(session.file.path), *new]
    return sum(one.cost_dollars or 0.0 for one in calls.costs_of(spent, settings.price_rules()))


def new_calls(
    store: Store, session: AnyOpen, newest_first: Iterable[Entry] | None = None
) -> dict[int, ModelCall]:
    """Return the calls whose costs are not recorded yet, by call id."""
    spending, new = store.spending, dict[int, ModelCall]()
    if newest_first is None:
        newest_first = reversed(session.transcript.entries)
    newest = calls.calls_in(newest_first, session.form)
    begun, size = spending.has_session(session.file.path), 1
    # If the session was counted before, only few calls are new: each look takes twice as many.
    while some := list(islice(newest, size) if begun else newest):
        known = spending.known(ident for ident, _ in some)
        for ident, call in some:
            if ident not in known:  # a message may have several entries; the last has all figures
                new.setdefault(ident, call)
        if known:
            break
        size *= 2
    return new


def count_calls(store: Store, session: AnyOpen) -> None:
    new = new_calls(store, session)
    store.spending.add(session.file.path, new.keys(), calls.spent_on(new.values()))


def count_savings(examined: Examination, plan: Plan) -> Savings | None:
    """Return the savings up to the newest call, or None if there is nothing new."""
    record = examined.record
    before = examined.store.savings.of(record.id) if record else None
    if before is None and not plan.placeholders.tokens and plan.tokens <= 0:
        return None
    newest = calls.newest_calls(reversed(examined.transcript.entries))
    if before is None:
        last = next((call for call in newest if isinstance(call, ModelCall)), None)
        savings = Savings(last.at or 0.0, last.tokens) if last else Savings()
    else:
        since = before.until
        later = [*takewhile(lambda one: (one.at or 0.0) > since or one == Compaction(), newest)]
        model = next((call.model for call in later if isinstance(call, ModelCall)), None)
        price = price_of(model, examined.settings.price_rules())
        savings = calls.saved_by(before, reversed(later), price)
    savings = replace(savings, off=plan.placeholders.tokens)
    return savings if savings != before or plan.edits else None
