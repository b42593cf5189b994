"""Estimate the costs of the recorded model calls of sessions under other policies."""

from collections.abc import Iterable
from contextlib import suppress
from functools import partial, reduce
from typing import Any

from msgspec.structs import replace

from brainsurgeon.config import Settings
from brainsurgeon.errors import BusyError, FailedError
from brainsurgeon.files.reading import RefusedError
from brainsurgeon.lookup.entries import decode, json_text
from brainsurgeon.lookup.sessions import Session, all_sessions, session_named
from brainsurgeon.model.providers import price_of
from brainsurgeon.model.records import Extraction
from brainsurgeon.model.reports import POLICIES, Bill, Estimate, SessionEstimate
from brainsurgeon.model.turns import ModelCall
from brainsurgeon.planning.calls import dollars_of
from brainsurgeon.planning.replay import Replay, bill, history, unpruned
from brainsurgeon.rewrite.inspect import ExaminationPlanner, examine_to_show
from brainsurgeon.rewrite.relief import weigh
from brainsurgeon.store import Store


def estimate(
    settings: Settings, store: Store, names: Iterable[str | Session], now: float,
    *, skip_busy: bool = False,
) -> Estimate:  # fmt: skip
    """Estimate the named sessions, or all if none is named. Writes nothing."""
    named = (part for name in names for part in session_named(settings, store, name).parts)
    chosen = list({(session.path, session.file is None): session for session in named}.values())
    skipped = (RefusedError, FailedError, *((BusyError,) if skip_busy or not chosen else ()))
    listed, chosen = [], chosen or all_sessions(settings, store)
    for session in chosen:
        with suppress(*skipped):
            if replayed := _replay(settings, store, session, now):
                listed.append(replayed)
    totals = {
        name: reduce(Bill.plus, (item.policies[name] for item in listed), Bill())
        for name in POLICIES
    }
    calls = sum(item.calls for item in listed)
    return Estimate(tuple(listed), calls, totals, sessions_left_out=len(chosen) - len(listed))


def _replay(
    settings: Settings, store: Store, session: Session, now: float
) -> SessionEstimate | None:
    if session.file is None:
        return None
    with examine_to_show(settings, store, session.file, session.record, now) as examined:
        original = partial(_original, store)
        _, full = weigh(ExaminationPlanner(examined, examined.records), original)
        calibrated = replace(examined.records, rate=full.calibration.rate)
        rules = examined.settings.decision_rules()
        lean = examined.settings.under("lean").decision_rules()
        recorded, recorded_lean = (
            history(
                examined.transcript, calibrated, applied, examined.session.parsed, original
            )
            for applied in (rules, lean)
        )  # fmt: skip
    calls = [event for event in recorded if isinstance(event, ModelCall)]
    if not any(call.at for call in calls):
        return None
    price, quiet = price_of(full.model, settings.price_rules()), float(settings.quiet)
    dollars, events = dollars_of(calls, price), [*unpruned(recorded)]
    policies = {
        "raw": (rules, None, events), "configured": (rules, rules.when, events),
        "lean": (lean, lean.when, [*unpruned(recorded_lean)]),
        "cold": (rules, "cold", events), "always": (rules, "always", events),
    }  # fmt: skip
    limit = full.threshold * full.window
    bills = {}
    for name, (applied, when, sent) in policies.items():
        replay = Replay(applied, when, price, quiet=quiet, full=limit)
        cost = bill(replay.run(sent), price, dollars)
        bills[name] = replace(cost, reasoning_lost=replay.reasoning_lost)
    return SessionEstimate(session.title, session.path, len(calls), bills)


def _original(store: Store, value: Extraction) -> Any:
    text = json_text(store, value)
    return None if text is None else decode(text)
