"""Advise a user of an agent whose session is too full; stop prompts above a cost ceiling."""

import os

from brainsurgeon import agents
from brainsurgeon.config import Settings
from brainsurgeon.files.reading import OpenFile
from brainsurgeon.formats.transcript import entries_of
from brainsurgeon.model.session_files import SessionFile
from brainsurgeon.model.turns import ModelCall
from brainsurgeon.rewrite.inspect import ExaminationPlanner, examine_open, excluded, settings_for
from brainsurgeon.rewrite.relief import is_too_full, plan_to_fit, weigh
from brainsurgeon.rewrite.signals import session_costs
from brainsurgeon.sessions.discovery import discover_at, open_to_show
from brainsurgeon.store import Store


def advice(
    settings: Settings, store: Store, path: str, now: float, *, resumed: bool = False
) -> str | None:
    """Return a sentence with the load of a session now and after a scan.

    Return None if the session is unknown or not too full, or if a scan would not help. A process
    that just `resumed` the session sends the file's content. Any other still has extracted values
    in memory: it sends at least its last request and the answer again.
    """
    path = os.path.realpath(path)
    file = discover_at(settings.root_directories(), path)
    install = agents.agent_at(path).install
    if not (install and install.resume and isinstance(file, SessionFile)):
        return None
    if excluded(file, settings):
        return None
    with open_to_show(file) as session:
        settings = settings_for(settings, file)
        last = _last_call_if_full(settings, session) if isinstance(session, OpenFile) else None
        if last is None:
            return None
        examined = examine_open(settings, store, session, now, store.sessions.at(file.path))
        # The turn is over, though its last line may not be written yet.
        examined.transcript.chain.open_turn = None
        planner = ExaminationPlanner(examined, examined.records)
        _, full = weigh(planner)
        load = full.load if resumed else max(full.load, last.tokens + last.output)
        load_after = full.load - plan_to_fit(planner).plan.tokens
    if load <= full.threshold * full.window or load_after >= load:
        return None
    return (
        f"context {100 * load / full.window:.0f} % full; `/exit`, and after the next scan"
        f" `{install.resume}` starts with {100 * load_after / full.window:.0f} % (brainsurgeon)"
    )


def refusal(settings: Settings, store: Store, path: str) -> str | None:
    """Return why the next prompt must not be sent, or None: by default, every prompt is sent."""
    most = settings.signals.max_session_cost_usd
    if not (settings.signals.stop_prompts and most):
        return None
    file = discover_at(settings.root_directories(), os.path.realpath(path))
    if not isinstance(file, SessionFile) or excluded(file, settings):
        return None
    with open_to_show(file) as session:
        if not isinstance(session, OpenFile):
            return None
        newest = (entry for _, entry in entries_of(session.form, session.lines.backward()))
        dollars = session_costs(settings, store, session, newest)
    if dollars < most:
        return None
    return (
        f"this session has cost ${dollars:,.2f}, its ceiling is ${most:,.2f}: begin a new session,"
        " or raise `signals.max_session_cost_usd` (brainsurgeon)"
    )


def _last_call_if_full(settings: Settings, session: OpenFile) -> ModelCall | None:
    """Return the last call if it was refused or too full. Drop lines before a compaction."""
    last = None
    for line, entry in entries_of(session.form, session.lines.backward()):
        call = entry.call
        if last is None and call and (call.tokens or call.refusal):
            last, load = call, call.tokens + call.output
            if not (call.refusal or is_too_full(settings, session, call.model, load)):
                return None
        if entry.compacts:
            session.begin_at(line.offset, 1)
            break
    return last
