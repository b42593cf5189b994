"""Record what somebody should know of a session, once until it is over."""

from itertools import chain, islice

from brainsurgeon.config import Settings
from brainsurgeon.formats.base import parsed_lines
from brainsurgeon.lookup.sessions import find_record, note_record, update_record
from brainsurgeon.model.turns import Fullness
from brainsurgeon.planning.signals import became_too_full, last_calls
from brainsurgeon.sessions.reading import AnyOpen
from brainsurgeon.store import Store

REPEATED, PRESSURE = "repeated_tool_call", "pressure"


def notice_repeats(settings: Settings, store: Store, session: AnyOpen, now: float) -> None:
    """Record a signal if the last calls of a session are the same one, and there is none of it.

    Reads only the end of the session, whether or not it is idle.
    """
    times, form = settings.signals.repeat_threshold, session.format
    calls = last_calls(parsed_lines(session.lines.backward(), form), form)
    last = list(islice(calls, times))
    if not last or len(last) < times:
        return
    call, record = last[0], update_record(store, session) or note_record(store, session)
    before = store.events.last_signal(record.id, REPEATED)
    known = (before.facts["entry_id"], before.facts["arguments"]) if before else None
    if any((one.place, one.arguments) == known for one in chain(last, calls)):
        return
    with store.transaction():
        store.events.add(now, "signal", record.id, {
            "signal": REPEATED, "tool": call.tool, "arguments": call.arguments, "calls": times,
            "entry_id": call.place,
            "reason": f"{call.tool} was called {times} times in a row with the same arguments",
        }, None)  # fmt: skip


def notice_pressure(store: Store, session: AnyOpen, full: Fullness, now: float) -> None:
    """Record a signal if a session is too full whatever may be taken out, unless it was before."""
    record = find_record(store, session)
    if not became_too_full(full, store.calibrations.of(record.id) if record else None):
        return
    record = record or note_record(store, session)
    with store.transaction():
        store.events.add(now, "signal", record.id, {
            "signal": PRESSURE, "load_tokens": full.load, "window_tokens": full.window,
            "threshold": full.threshold, "step": full.step,
            "reason": f"{full.load:,} of {full.window:,} tokens, and nothing allowed relieves it",
        }, None)  # fmt: skip
