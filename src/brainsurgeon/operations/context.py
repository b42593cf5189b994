"""Content of a session: sizes by kind and tool, extracted values, and next extractions."""

import json
from typing import Any

from msgspec.structs import replace

from brainsurgeon.config import Settings
from brainsurgeon.errors import DamagedError
from brainsurgeon.formats import codex
from brainsurgeon.lookup.entries import decode, owned
from brainsurgeon.lookup.sessions import Session, session_named
from brainsurgeon.model.entries import dotted
from brainsurgeon.model.records import Extraction, Held
from brainsurgeon.model.reports import Context
from brainsurgeon.model.sessions import SessionFile
from brainsurgeon.model.text import iso
from brainsurgeon.planning.budget import calibrate, measure_codex
from brainsurgeon.planning.retention import expires_at
from brainsurgeon.rewrite.budget import fit_in, fullness, weigh
from brainsurgeon.rewrite.inspect import Examination, Planner, examine_to_show
from brainsurgeon.sessions.discovery import failing, open_session
from brainsurgeon.sessions.reading import NotIdleError, RefusedError
from brainsurgeon.store import Store

PREVIEW = 80  # characters


def context(settings: Settings, store: Store | None, session: str | Session, now: float) -> Context:
    """Return the content of a session, or the stored values if its file is gone. Writes nothing."""
    chosen = session_named(settings, store, session)
    record = chosen.record
    if chosen.file is None:
        values = (
            value for value in (store.extractions.of_session(record.id) if store and record else ())
            if value.blob_id is not None and value.archive_id is None
            and (not value.replacement or value.kind == "thinking")
        )  # fmt: skip
        return Context(
            chosen.title, chosen.path, record.format if record else "unknown", 0,
            chosen.unseen or "its file is gone", extracted=tuple(values),
            missed_at=record.missed_at if record else None,
        )  # fmt: skip
    if codex_context := _of_codex(settings, chosen, chosen.file):
        return codex_context
    with examine_to_show(settings, store, chosen.file, record, now) as examined:
        records = examined.records
        planner = Planner(examined, records, explain=True)
        fitting, (_, full) = fit_in(planner), weigh(planner)
        planned = fitting.plan
        fingerprint = examined.session.fingerprint
        standing = set(planned.met.here)
        extracted = [
            value for value in records.extractions
            if value.id in standing and value.archive_id is None
        ]  # fmt: skip
        return Context(
            chosen.title, chosen.path, examined.format.name, fingerprint.size,
            state=not_idle(examined) or "idle",
            extracted=tuple(owned(store, chosen, extracted) if store else ()),
            plan=replace(planned, deferred=planned.deferred or fitting.rules.waits or None),
            pays=planned.forced or fitting.rules.pays(planned, fingerprint.size),
            changed_at=fingerprint.mtime_ns / 1e9,
            full=full,
            archives=tuple(store.archives.standing(record.id) if store and record else ()),
        )  # fmt: skip


def _of_codex(settings: Settings, chosen: Session, file: SessionFile) -> Context | None:
    with failing(file), open_session(file) as session:
        try:
            form = session.format.name
        except RefusedError as why:
            form = why.format or ""
        if form != codex.NAME:
            return None
        measured = measure_codex(session.lines)
        line = calibrate(measured.calls, ())
        mark = session.fingerprint
        return Context(
            chosen.title, chosen.path, form, mark.size, codex.ONLY_READ,
            changed_at=mark.mtime_ns / 1e9,
            full=fullness(settings.budget_rules(), measured, line, measured.window),
        )  # fmt: skip


def not_idle(examined: Examination) -> str:
    """Return why a session is not idle, or "" if it is."""
    try:
        examined.check_idle()
    except (NotIdleError, RefusedError) as why:
        return str(why)
    return ""


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
