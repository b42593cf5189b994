"""Content of a session: sizes by kind and tool, extracted values, and next extractions."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from brainsurgeon.errors import DamagedError
from brainsurgeon.formats import codex
from brainsurgeon.lookup.entries import owned
from brainsurgeon.lookup.sessions import session_named
from brainsurgeon.lookup.values import decode
from brainsurgeon.model.entries import dotted
from brainsurgeon.model.records import Held
from brainsurgeon.model.text import iso
from brainsurgeon.planning.budget import calibrate, measure_codex
from brainsurgeon.planning.retention import expires_at
from brainsurgeon.rewrite.budget import fit_in, folding_of, fullness, weigh
from brainsurgeon.rewrite.inspect import NotIdleError, examine_to_show, records_of
from brainsurgeon.sessions.opening import failing, open_session
from brainsurgeon.sessions.reading import RefusedError

if TYPE_CHECKING:
    from brainsurgeon.config import Settings
    from brainsurgeon.lookup.sessions import Session
    from brainsurgeon.model.plans import Cut, KeptPart, Plan
    from brainsurgeon.model.records import Extraction, Records
    from brainsurgeon.model.sessions import SessionFile
    from brainsurgeon.model.turns import ArchiveRecord, Fullness, Verdict
    from brainsurgeon.rewrite.inspect import Examination
    from brainsurgeon.store import Store

PREVIEW = 80  # characters


@dataclass(frozen=True, slots=True)
class Filling:
    """Number and characters of the values of one kind and tool.

    `live_chars` counts the characters that the next request carries.
    """

    kind: str
    tool: str | None
    values: int
    chars: int
    live_chars: int


@dataclass(frozen=True, slots=True)
class Context:
    """The content of one session.

    `size` is in bytes. `state` is "idle" or the reason why the session would be deferred.
    `changed_at` is the time when its file last changed, None if the file is gone; `missed_at` is
    the time when a retention run first missed it. `deferred` is why its plan cannot be carried
    out now. `unsent` is the number of values that no request carries any more, and their
    characters. `full` is the context load, if known. `turns` has a verdict for each turn, if
    turns may be archived. `archives` are the existing archives.
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
    deferred: str | None = None
    unsent: tuple[int, int] = (0, 0)
    full: Fullness | None = None
    turns: tuple[Verdict, ...] = ()
    archives: tuple[ArchiveRecord, ...] = ()
    missed_at: float | None = None


def context(settings: Settings, store: Store | None, session: str | Session, now: float) -> Context:
    """Return the content of a session; of one whose file is gone, the values in the store.

    Writes nothing.
    """
    chosen = session_named(settings, store, session)
    if chosen.file is None:
        return _gone(chosen, records_of(settings, store, None, chosen.record, now))
    state = store.files.at(chosen.file.path) if store else None
    if codex_context := _only_read(settings, chosen, chosen.file):
        return codex_context
    with examine_to_show(settings, chosen.file, state, now) as examined:
        records = records_of(settings, store, examined.session, chosen.record, now)
        make = partial(examined.plan, records, explain=True)
        fitting = fit_in(examined, records, store, make, folding_of(examined, records), cut=True)
        planned, weighed = fitting.plan, weigh(examined, records, store)
        fingerprint = examined.session.fingerprint
        standing = set(planned.sighted)
        extracted = [
            value for value in records.extractions
            if value.id in standing and value.archive_id is None
        ]  # fmt: skip
        return Context(
            chosen.title, chosen.path, examined.format.name, fingerprint.size, _state(examined),
            _filling(planned),
            tuple(owned(store, chosen, extracted) if store else ()),
            tuple(planned.extracted), planned.gain,
            planned.forced or fitting.rules.pays(planned.gain, fingerprint.size),
            planned.kept, planned.warnings,
            fingerprint.mtime_ns / 1e9, planned.deferred, _unsent(planned), weighed.full,
            planned.turns, archives_of(store, chosen),
        )  # fmt: skip


def archives_of(store: Store | None, session: Session) -> tuple[ArchiveRecord, ...]:
    """Return the archives in a session, oldest first."""
    if store is None or session.record is None:
        return ()
    return tuple(store.archives.standing(session.record.id))


def _only_read(settings: Settings, chosen: Session, file: SessionFile) -> Context | None:
    """Return the context load of a Codex session, None for others. Codex is never changed."""
    if file.in_database:
        return None
    with failing(file), open_session(file) as session:
        try:
            form = session.format.name
        except RefusedError as why:
            form = why.format or ""
        if form != codex.NAME:
            return None
        measured = measure_codex(session.lines)
        line = calibrate(measured.calls, ())
        full = fullness(settings.budget_rules(), measured, line, measured.window)
        mark = session.fingerprint
        return Context(
            chosen.title, chosen.path, form, mark.size, codex.ONLY_READ, (), (), (), 0, False, (),
            (), mark.mtime_ns / 1e9, full=full,
        )  # fmt: skip


def _state(examined: Examination) -> str:
    try:
        examined.check_idle()
    except (NotIdleError, RefusedError) as why:
        return str(why)
    return "idle"


def _gone(chosen: Session, records: Records) -> Context:
    values = (
        value for value in records.extractions
        if value.blob_id is not None and value.archive_id is None
        and (not value.replacement or value.kind == "thinking")
    )  # fmt: skip
    return Context(
        chosen.title, chosen.path, chosen.record.format if chosen.record else "unknown", 0,
        chosen.unseen or "its file is gone", (), tuple(values),
        (), 0, False, (), (), None, missed_at=chosen.record.missed_at if chosen.record else None,
    )  # fmt: skip


def described(
    settings: Settings, store: Store | None, session: Context, value: Extraction, now: float,
    *, preview: bool,
) -> dict[str, Any]:  # fmt: skip
    """Describe one extracted value for JSON: its size, its expiry and, if asked, a preview."""
    held = Held(
        value.id, value.session_id, value.size, value.extracted_at, value.restored_at,
        activity=session.changed_at, missed_at=session.missed_at,
        unseen=session.changed_at is None and session.missed_at is None,
    )  # fmt: skip
    end = expires_at(held, settings.retention, settings.retention_standing)
    description = {
        "entry_id": value.entry_id,
        "path": dotted(value.path),
        "kind": value.kind,
        "tool": value.tool,
        "chars": value.chars,
        "size_bytes": value.size,
        "extracted_at": iso(value.extracted_at),
        "age_seconds": round(max(0.0, now - value.extracted_at)),
        "expires_at": iso(end[0]) if end and value.blob_id is not None else None,
        "expired": value.blob_id is None,
    }
    return description | ({"preview": preview_of(store, value)} if preview else {})


def preview_of(store: Store | None, value: Extraction) -> str | None:
    """Return the beginning of a value in one line; None if it has expired or is damaged."""
    if store is None or value.blob_id is None:
        return None
    try:
        content = decode(store.blobs.get(value.blob_id, value.digest))
    except DamagedError:
        return None
    text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
    short = " ".join(text[: 4 * PREVIEW].split())
    return short if len(short) <= PREVIEW else short[: PREVIEW - 1] + "…"


def _filling(planned: Plan) -> tuple[Filling, ...]:
    """Sum up all values, extracted and kept, by kind and tool, most live characters first."""
    sums: dict[tuple[str, str | None], list[int]] = defaultdict(lambda: [0, 0])
    for part in planned.kept:
        sums[part.kind, part.tool][0] += part.values
        sums[part.kind, part.tool][1] += part.chars
    for cut in planned.extracted:
        sums[cut.kind, cut.tool][0] += 1
        sums[cut.kind, cut.tool][1] += cut.chars
    unsent = {(amount.kind, amount.tool): amount.chars for amount in planned.unsent}
    filled = (
        Filling(*key, values, chars, max(0, chars - unsent.get(key, 0)))
        for key, (values, chars) in sums.items()
    )
    return tuple(sorted(filled, key=lambda filling: (-filling.live_chars, -filling.chars)))


def _unsent(planned: Plan) -> tuple[int, int]:
    amounts = planned.unsent
    return sum(amount.values for amount in amounts), sum(amount.chars for amount in amounts)
