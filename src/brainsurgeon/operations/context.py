"""What fills a session: sizes by kind and tool, what is extracted, what would go next."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from brainsurgeon.decide.retention import Held, expires_at
from brainsurgeon.errors import Damaged
from brainsurgeon.model import dotted
from brainsurgeon.operations import look
from brainsurgeon.operations.find import session_named
from brainsurgeon.operations.plan import plan
from brainsurgeon.operations.show import decode
from brainsurgeon.operations.times import iso
from brainsurgeon.sessions import quiet
from brainsurgeon.sessions.reading import Refused
from brainsurgeon.store import blobs, files

if TYPE_CHECKING:
    from brainsurgeon.config import Settings
    from brainsurgeon.model import Cut, KeptPart, Plan
    from brainsurgeon.operations.find import Session
    from brainsurgeon.store import Store
    from brainsurgeon.store.extractions import Extraction

PREVIEW = 80
"""Characters of how a value begins."""


@dataclass(frozen=True, slots=True)
class Filling:
    """How many values of one kind and tool there are, and their characters."""

    kind: str
    tool: str | None
    values: int
    chars: int


@dataclass(frozen=True, slots=True)
class Context:
    """One session, taken apart.

    `state` is settled, or why the session would be deferred. `changed_at` is when its file last
    changed, None where that is gone. Of a migrated agent nothing expires.
    """

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
    changed_at: float | None
    migrated: bool


def context(settings: Settings, store: Store | None, name: str, now: float) -> Context:
    """Take one session apart; nothing is touched.

    Of a session whose file is gone there is what the store still holds.
    """
    chosen = session_named(settings, store, name)
    if chosen.found is None:
        return _gone(settings, store, chosen)
    found = chosen.found
    with look.opened(found) as session:
        form = look.recognise(session)
        rules = settings.decision_rules()
        known = look.known(settings, store, chosen.row, now)
        survey = form.survey(session.lines, rules.window)
        planned = plan(session.lines, form, rules, known, now, survey, explain=True)
        seen = files.remembered_one(store.connection, found.path) if store else None
        first_seen = seen.first_seen if seen else now
        quietness = look.Quietness.of(found, settings, first_seen, now)
        try:
            look.check_writable(session)
            quietness.check_silence()
            quietness.check_turn(session, survey, now)
            state = "settled"
        except (look.Unsettled, Refused) as why:
            state = str(why)
    standing = set(planned.sighted)
    return Context(
        chosen.title, found.path, form.name, session.fingerprint.size, state,
        _filling(planned),
        tuple(value for value in known.extractions if value.id in standing),
        planned.extracted, planned.gain, rules.pays(planned.gain, session.fingerprint.size),
        planned.kept, planned.warnings,
        session.fingerprint.mtime_ns / 1e9, quiet.migrated(found.agent_directory),
    )  # fmt: skip


def _gone(settings: Settings, store: Store | None, chosen: Session) -> Context:
    known = look.known(settings, store, chosen.row, 0.0).extractions
    return Context(
        chosen.title, chosen.path, chosen.row.format if chosen.row else "unknown", 0,
        "its file is gone", (),
        tuple(value for value in known if value.blob_id is not None and not value.replacement),
        (), 0, False, (), (), None, quiet.migrated(chosen.agent_directory),
    )  # fmt: skip


def described(
    settings: Settings, store: Store | None, one: Context, value: Extraction, now: float,
    *, preview: bool,
) -> dict[str, Any]:  # fmt: skip
    """Describe one extracted value, when it expires and on request how it begins, for JSON."""
    held = Held(
        value.id, value.extracted_at, value.sighted_at, value.restored_at, None,
        standing=one.changed_at is not None, activity=one.changed_at or 0.0,
    )  # fmt: skip
    end = expires_at(held, settings.retention, settings.retention_standing)
    goes = end is not None and value.blob_id is not None and not one.migrated
    description = {
        "entry_id": value.entry_id,
        "path": dotted(value.path),
        "kind": value.kind,
        "tool": value.tool,
        "chars": value.chars,
        "size_bytes": value.size,
        "extracted_at": iso(value.extracted_at),
        "age_seconds": round(max(0.0, now - value.extracted_at)),
        "expires_at": iso(end[0]) if end and goes else None,
        "expired": value.blob_id is None,
    }
    return description | ({"preview": preview_of(store, value)} if preview else {})


def preview_of(store: Store | None, value: Extraction) -> str | None:
    """Give how a value begins, in one line; None where it is gone or damaged."""
    if store is None or value.blob_id is None:
        return None
    try:
        content = decode(blobs.get(store.connection, value.blob_id, value.digest))
    except Damaged:
        return None
    text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
    short = " ".join(text[: 4 * PREVIEW].split())
    return short if len(short) <= PREVIEW else short[: PREVIEW - 1] + "…"


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
