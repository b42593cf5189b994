"""List the sessions, and show the values and costs of one. Writes nothing."""

import json
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import reduce
from typing import Any

from msgspec.structs import replace

from brainsurgeon import agents
from brainsurgeon.config import Settings
from brainsurgeon.errors import BusyError, FailedError
from brainsurgeon.files.reading import RefusedError
from brainsurgeon.formats.base import strings_in
from brainsurgeon.lookup.entries import decode, entry_in, json_text, owned
from brainsurgeon.lookup.scope import started_by
from brainsurgeon.lookup.sessions import (
    Session,
    all_sessions,
    of_agent_named,
    session_among,
    session_named,
)
from brainsurgeon.model.entries import dotted
from brainsurgeon.model.plans import Amounts, Plan
from brainsurgeon.model.records import Extraction, FileState, Held, Records
from brainsurgeon.model.reports import (
    OTHER,
    Context,
    Explained,
    Filling,
    SessionCosts,
    SessionSummary,
)
from brainsurgeon.model.session_files import NotIdleError, SessionFile
from brainsurgeon.model.text import iso
from brainsurgeon.operations.pause import pauses
from brainsurgeon.operations.retention import moment
from brainsurgeon.planning import cache
from brainsurgeon.planning.calls import RecordedCalls
from brainsurgeon.planning.retention import DAYS_MISSED, expires_at
from brainsurgeon.rewrite import inspect
from brainsurgeon.rewrite.relief import plan_to_fit, weigh
from brainsurgeon.sessions.discovery import open_session, open_to_show
from brainsurgeon.store import Store
from brainsurgeon.store.catalogue import CERTAIN, FAILED
from brainsurgeon.store.extractions import Totals


def sessions(
    settings: Settings, store: Store, now: float, *,
    agent: str | None = None, state: str | None = None, sort: str = "size",
) -> list[SessionSummary]:  # fmt: skip
    """Return the sessions below the roots, and recorded sessions that were not found there."""
    every = all_sessions(settings, store)
    of_agent = every if agent is None else of_agent_named(every, agent)
    listed = summaries(settings, store, of_agent, now)
    chosen = (item for item in listed if state in (None, item.state))
    return sorted(chosen, key=_ORDERS[sort])


_ORDERS: dict[str, Callable[[SessionSummary], tuple[float, str]]] = {
    "size": lambda item: (-item.size_bytes, item.session),
    "saved": lambda item: (-item.bytes_saved, item.session),
    "age": lambda item: (item.changed_at or 0.0, item.session),
    "name": lambda item: (0.0, item.session),
}


def summaries(
    settings: Settings, store: Store, sessions: Iterable[Session], now: float
) -> list[SessionSummary]:
    totals, states = store.extractions.totals(), store.files.all()
    rules = inspect.rules_of(settings) + pauses(store, now).key()

    def summary(session: Session) -> SessionSummary:
        record = session.record
        found = totals.get(record.id) if record and session.file else None
        total = found or Totals()
        format_name = record.format if record else None
        size, state, reason = 0, "gone", "not found below the roots; only the store knows it"
        if session.unseen:
            state, reason = "unreadable", session.unseen
        if session.file:
            size = session.file.fingerprint.size
            last_scan = states.get(session.path)
            format_name, state, reason = _state(
                settings, store, session.file, last_scan, rules, now
            )
        owner = agents.agent_of(session.path, format_name).home.owner(session.path)
        return SessionSummary(
            session.title, session.path, format_name, size, total.values, total.bytes_saved, state,
            reason, owner.started_by if owner else None, session.agent,
            session.file.fingerprint.mtime_ns / 1e9 if session.file else None, total.bytes_padded,
        )  # fmt: skip

    listed = (
        reduce(_with_part, map(summary, session.parts))
        for session in sessions if not session.goes_on
    )  # fmt: skip
    return sorted(listed, key=_ORDERS["size"])


def _with_part(whole: SessionSummary, part: SessionSummary) -> SessionSummary:
    """Add an earlier file of the same session."""
    waits = whole.state == "idle" != part.state
    return replace(
        whole, size_bytes=whole.size_bytes + part.size_bytes,
        values_extracted=whole.values_extracted + part.values_extracted,
        bytes_saved=whole.bytes_saved + part.bytes_saved,
        bytes_padded=whole.bytes_padded + part.bytes_padded,
        state=part.state if waits else whole.state, reason=part.reason if waits else whole.reason,
    )  # fmt: skip


def _state(
    settings: Settings,
    store: Store,
    file: SessionFile,
    last_scan: FileState | None,
    rules: str,
    now: float,
) -> tuple[str | None, str, str]:
    format_name = None
    try:
        if reason := inspect.excluded(file, settings):
            return None, "skipped", reason
        known = last_scan and _known(file, last_scan, rules, now)
        if known and known.outcome == "skipped":
            return known.format, "skipped", known.reason
        with open_session(file) as session:
            if known and (known_form := session.forms.get(known.format or "")):
                session.form = known_form
                examined = inspect.examine_closed(settings, store, session, known, now)
            else:
                _ = session.form  # raises RefusedError if it is unknown
                inspect.check_touchable(session, settings)
                examined = inspect.examine_open(settings, store, session, now)
            format_name = examined.form.name
            examined.check_idle()
            if reason := examined.kept_in_memory():
                return format_name, "busy", reason
    except RefusedError as why:
        return format_name or why.format, "skipped", str(why)
    except (NotIdleError, BusyError) as why:
        return format_name, "busy", str(why)
    except OSError as error:
        return None, "unreadable", error.strerror or type(error).__name__
    if last_scan is None or last_scan.fingerprint != file.fingerprint:
        return format_name, "idle", "not scanned yet"
    return format_name, "failed" if last_scan.outcome == FAILED else "idle", last_scan.reason


def _known(file: SessionFile, last_scan: FileState, rules: str, now: float) -> FileState | None:
    """Return the result of the last scan if it is still valid: the session need not be read."""
    is_same = last_scan.fingerprint == file.fingerprint and last_scan.looked_at <= now
    is_due = last_scan.due_at is not None and last_scan.due_at <= now
    if not is_same or is_due or last_scan.rules != rules:
        return None
    return last_scan if last_scan.outcome in CERTAIN else None


PREVIEW = 80  # characters
LONG_TEXT = 500  # characters of a text that is listed although no rule can extract it


def context(settings: Settings, store: Store, session: str | Session, now: float) -> Context:
    """Return a session's state, extracted values and plan; without its file, its stored values."""
    chosen = session_named(settings, store, session)
    record = chosen.record
    if chosen.file is None:
        values = (
            value for value in (store.extractions.of_session(record.id) if record else ())
            if value.blob_id is not None and value.archive_id is None
            and (not value.replacement or value.kind == "thinking")
        )  # fmt: skip
        missed = record.missed_at if record else None
        return Context(
            chosen.title, chosen.path, record.format if record else "unknown", 0,
            chosen.unseen or "its file is gone", extracted=tuple(values),
            missed_at=None if missed is None else moment(store, missed, now),
        )  # fmt: skip
    with inspect.examine_to_show(settings, store, chosen.file, record, now) as examined:
        records = examined.records
        planner = inspect.ExaminationPlanner(examined, records, explain=True)
        weighed, (_, full) = plan_to_fit(planner), weigh(planner)
        planned = weighed.plan
        waits = None if planned.edits else weighed.rules.waits or None
        fingerprint = examined.session.fingerprint
        placed = set(planned.placeholders.here)
        extracted = [
            value for value in records.extractions
            if value.id in placed and value.archive_id is None
        ]  # fmt: skip
        before = [
            value for part in chosen.earlier if part.record
            for value in store.extractions.contained_in(part.record.id)
            if value.archive_id is None
        ]  # fmt: skip
        return Context(
            chosen.title, chosen.path, examined.form.name, fingerprint.size,
            state=_why_not_extracted(examined) or "idle",
            extracted=tuple(owned(store, chosen, [*before, *extracted])),
            plan=replace(planned, deferred=planned.deferred or waits),
            pays=planned.forced or weighed.rules.pays(planned, fingerprint.size),
            changed_at=fingerprint.mtime_ns / 1e9,
            full=full,
            archives=tuple(store.archives.contained_in(record.id) if record else ()),
            unreached=_unreached(examined),
        )  # fmt: skip


def why(settings: Settings, store: Store, entry: str, session: str | None, now: float) -> Explained:
    """Return the decisions on the values of an entry. Raises NotFoundError or AmbiguousError."""
    chosen, ident = entry_in(settings, store, entry, session)
    found = context(settings, store, chosen, now)
    decisions = [one for one in found.plan.decisions if one.entry_id == ident]
    return Explained(found.session, ident, found.waits, decisions)


def _unreached(examined: inspect.Examination) -> tuple[Filling, ...]:
    """Sum the long texts that are part of no value, by their keys."""
    transcript, sums, live = examined.transcript, Amounts(), Counter[str]()
    for index in range(len(transcript.entries)):
        start, end = transcript.span(index)
        if end - start < LONG_TEXT:
            continue
        parts = {value.path for value in transcript.values(index)}
        for path, text in strings_in(examined.session.parsed(index).entry):
            if len(text) < LONG_TEXT or any(path[:end] in parts for end in range(len(path) + 1)):
                continue
            key = next(step for step in reversed(path) if isinstance(step, str))
            sums.add(key, chars=len(text))
            if "content" in path and index not in transcript.chain.dead:
                live[key] += len(text)
    return tuple(
        Filling(OTHER, key, values, chars, live[key]) for (key,), (values, chars) in sums.ranked()
    )


def _why_not_extracted(examined: inspect.Examination) -> str | None:
    """Return why a scan extracts nothing now, whatever it finds."""
    excluded = inspect.excluded(examined.session.file, examined.settings)
    return excluded or why_not_idle(examined) or examined.kept_in_memory()


def why_not_idle(examined: inspect.Examination) -> str:
    try:
        examined.check_idle()
    except (NotIdleError, RefusedError) as why:
        return str(why)
    return ""


def described(
    settings: Settings, store: Store, session: Context, value: Extraction, now: float,
    *, preview: bool,
) -> dict[str, Any]:  # fmt: skip
    times = [session.changed_at, value.extracted_at, value.restored_at or 0.0]
    held = Held(
        value.id, value.session_id, value.size,
        activity=None if session.changed_at is None else max(filter(None, times)),
        missed_at=session.missed_at, days_missed=DAYS_MISSED,
        unseen=session.changed_at is None and session.missed_at is None,
    )  # fmt: skip
    end = expires_at(held, settings.terms)
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


def preview_of(store: Store, value: Extraction) -> str | None:
    if (stored := json_text(store, value)) is None:
        return None
    content = decode(stored)
    text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
    short = " ".join(text[: 4 * PREVIEW].split())
    return short if len(short) <= PREVIEW else short[: PREVIEW - 1] + "…"


def session_costs(settings: Settings, store: Store, name: str) -> SessionCosts:
    listed = all_sessions(settings, store)
    own = session_among(listed, name)
    others = [one for one in listed if one.agent_directory == own.agent_directory]
    spending, warm_until, compactions, read, dropped = RecordedCalls(), None, 0, 0, 0
    for session in (*reversed(own.parts), *started_by(own, others)):
        if (file := session.file) is None:
            continue
        with suppress(BusyError, FailedError), open_to_show(file) as opened:
            spending.read(opened.transcript.entries)
            if session.title != own.title:
                read += 1
                continue
            compactions = len(spending.compactions)
            if session is own:
                dropped = spending.reasoning_dropped or 0
                warm_until = cache.read(
                    opened.transcript, Plan(), Records(), opened.fingerprint.mtime_ns / 1e9
                )[0].warm_until
    return SessionCosts(
        spending.costs(settings.price_rules()), tuple(spending.compactions[:compactions]),
        warm_until, read, spending.stated, dropped,
    )  # fmt: skip
