"""What fills a session: sizes by kind and tool, what is extracted, what would go next."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from brainsurgeon.operations import look
from brainsurgeon.operations.find import file_of, session_named
from brainsurgeon.operations.plan import plan
from brainsurgeon.store import files

if TYPE_CHECKING:
    from brainsurgeon.config import Settings
    from brainsurgeon.model import Cut, KeptPart, Plan
    from brainsurgeon.store import Store
    from brainsurgeon.store.extractions import Extraction


@dataclass(frozen=True, slots=True)
class Filling:
    """How many values of one kind and tool there are, and their characters."""

    kind: str
    tool: str | None
    values: int
    chars: int


@dataclass(frozen=True, slots=True)
class Context:
    """One session, taken apart. `state` is settled, or why the session would be deferred."""

    session: str
    path: str
    format: str
    size: int
    state: str
    filling: tuple[Filling, ...]
    extracted: tuple[Extraction, ...]
    next: tuple[Cut, ...]
    gain: int
    pays: bool
    kept: tuple[KeptPart, ...]
    warnings: tuple[str, ...]


def context(settings: Settings, store: Store | None, name: str, now: float) -> Context:
    """Take one session apart; nothing is touched."""
    chosen = session_named(settings, store, name)
    found = file_of(chosen)
    with look.opened(found) as session:
        form = look.recognise(session)
        rules = settings.decision_rules()
        known = look.known(store, chosen.row, now)
        survey = form.survey(session.lines, rules.window)
        planned = plan(session.lines, form, rules, known, now, survey, explain=True)
        seen = files.remembered_one(store.connection, found.path) if store else None
        first_seen = seen.first_seen if seen else now
        quietness = look.Quietness.of(found, settings, first_seen, now)
        try:
            quietness.check_silence()
            quietness.check_turn(session, survey, now)
            state = "settled"
        except look.Unsettled as why:
            state = str(why)
    standing = set(planned.sighted)
    return Context(
        chosen.title, found.path, form.name, session.fingerprint.size, state,
        _filling(planned),
        tuple(value for value in known.extractions if value.id in standing),
        planned.extracted, planned.gain, rules.pays(planned.gain, session.fingerprint.size),
        planned.kept, planned.warnings,
    )  # fmt: skip


def _filling(planned: Plan) -> tuple[Filling, ...]:
    """Add up every value, cut and kept, by kind and tool; the largest first."""
    sums: dict[tuple[str, str | None], list[int]] = defaultdict(lambda: [0, 0])
    for part in planned.kept:
        sums[part.kind, part.tool][0] += part.values
        sums[part.kind, part.tool][1] += part.chars
    for cut in planned.extracted:
        sums[cut.kind, cut.tool][0] += 1
        sums[cut.kind, cut.tool][1] += cut.chars
    ranked = sorted(sums.items(), key=lambda item: -item[1][1])
    return tuple(Filling(kind, tool, *counts) for (kind, tool), counts in ranked)
