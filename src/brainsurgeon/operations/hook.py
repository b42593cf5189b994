"""The line that a user of Claude Code reads when the context is too full."""

import os

from msgspec.structs import replace

from brainsurgeon.config import Settings
from brainsurgeon.model.sessions import SessionFile
from brainsurgeon.rewrite.budget import fit_in, weigh
from brainsurgeon.rewrite.inspect import Planner, examine_to_show
from brainsurgeon.sessions.discovery import discover_at
from brainsurgeon.store import Store


def advice(settings: Settings, store: Store | None, path: str, now: float) -> str | None:
    """Return how full a session's context is, and how full after a scan and a resume.

    None if it is not too full, or a scan would not help.
    """
    file = discover_at(settings.root_directories(), os.path.realpath(path))
    if not isinstance(file, SessionFile):
        return None
    record = store.sessions.at(file.path) if store else None
    with examine_to_show(settings, store, file, record, now) as examined:
        # The turn is over, though its last line may not be written yet.
        closed = replace(examined, survey=replace(examined.survey, open_turn=None))
        planner = Planner(closed, closed.records)
        measured, full = weigh(planner)
        # The process still has in memory what was extracted from its file since.
        load = max(full.load, measured.calls[-1].tokens if measured.calls else 0)
        then = full.load - fit_in(planner).plan.tokens
    if load <= full.threshold * full.window or then >= load:
        return None
    return (
        f"context {100 * load / full.window:.0f} % full; `/exit`, and after the next scan"
        f" `claude --continue` starts with {100 * then / full.window:.0f} % (brainsurgeon)"
    )
