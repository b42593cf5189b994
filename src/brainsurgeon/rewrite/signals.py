"""Record signals: repeated tool calls, high costs, and sessions that are too full."""

from itertools import chain, islice

from brainsurgeon.config import Settings
from brainsurgeon.formats.base import parsed_lines
from brainsurgeon.lookup.sessions import find_record, note_record
from brainsurgeon.model.turns import Fullness
from brainsurgeon.planning.calls import costs_of, last_calls, last_turn, spent_on
from brainsurgeon.rewrite.budget import new_calls
from brainsurgeon.sessions.discovery import AnyOpen
from brainsurgeon.sessions.reading import OpenSession
from brainsurgeon.store import Store

REPEATED, COST, PRESSURE = "repeated_tool_call", "cost_ceiling", "pressure"


def notice(settings: Settings, store: Store, session: AnyOpen, now: float) -> None:
    _notice_repeats(settings, store, session, now)
    _notice_costs(settings, store, session, now)


def _notice_repeats(settings: Settings, store: Store, session: AnyOpen, now: float) -> None:
    """Record a signal if the last calls of a session are equal, once for these calls."""
    times, form = settings.signals.repeat_threshold, session.format
    calls = last_calls(parsed_lines(session.lines.backward(), form), form)
    last = list(islice(calls, times))
    if not last or len(last) < times:
        return
    call, record = last[0], note_record(store, session)
    before = store.events.last_signal(record.id, signal=REPEATED)
    known = (before.facts["entry_id"], before.facts["arguments"]) if before else None
    if any((one.entry_id, one.arguments) == known for one in chain(last, calls)):
        return
    with store.transaction():
        store.events.add(now, "signal", record.id, {
            "signal": REPEATED, "tool": call.tool, "arguments": call.arguments, "calls": times,
            "entry_id": call.entry_id,
            "reason": f"{call.tool} was called {times} times in a row with the same arguments",
        }, None)  # fmt: skip


def _notice_costs(settings: Settings, store: Store, session: AnyOpen, now: float) -> None:
    """Record a signal if a turn or session reaches its ceiling, once for each turn or ceiling."""
    keys, prices, form = settings.signals, settings.price_rules(), session.format
    costs: list[tuple[str, float, float, str]] = []
    if most := keys.max_turn_cost_usd:
        # The turn may begin before the tail that is scanned.
        lines = session.lines_from(0, 1) if isinstance(session, OpenSession) else session.lines
        place, dollars = last_turn(parsed_lines(lines.backward(), form), form, prices)
        costs.append(("turn", dollars, most, place))
    if most := keys.max_session_cost_usd:
        new = spent_on(new_calls(store, session).values())
        models = costs_of([*store.spending.of(session.file.path), *new], prices)
        costs.append(("session", sum(one.dollars or 0.0 for one in models), most, ""))
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


def notice_pressure(store: Store, session: AnyOpen, full: Fullness, now: float) -> None:
    """Record a signal when a session becomes too full, and its plan does not change that."""
    record = find_record(store, session)
    before = store.calibrations.of(record.id) if record else None
    if full.pressure <= full.threshold or (before and before.pressure > before.threshold):
        return
    record = record or note_record(store, session)
    with store.transaction():
        store.events.add(now, "signal", record.id, {
            "signal": PRESSURE, "load_tokens": full.load, "window_tokens": full.window,
            "threshold": full.threshold, "step": full.step,
            "reason": f"{full.load:,} of {full.window:,} tokens, and no allowed step relieves it",
        }, None)  # fmt: skip
