"""List the sessions: size, savings, and whether each is idle or why not."""

from collections.abc import Callable, Iterable
from typing import Literal

from brainsurgeon.config import Settings
from brainsurgeon.errors import BusyError
from brainsurgeon.hosts import claude_code
from brainsurgeon.lookup.sessions import Session, all_sessions
from brainsurgeon.model.records import FileState
from brainsurgeon.model.reports import SessionSummary
from brainsurgeon.model.sessions import SessionFile
from brainsurgeon.rewrite.inspect import examine, excluded
from brainsurgeon.sessions.reading import NotIdleError, RefusedError
from brainsurgeon.store import Store
from brainsurgeon.store.sessions import FAILED

Sort = Literal["size", "saved", "age", "name"]


def sessions(
    settings: Settings, store: Store | None, now: float, *,
    agent: str | None = None, state: str | None = None, sort: Sort = "size",
) -> list[SessionSummary]:  # fmt: skip
    """Return the sessions below the roots and those known only to the store.

    `agent` and `state` filter. Sorted by size or savings (largest first), by age (oldest first), or
    by name.
    """
    listed = summaries(settings, store, all_sessions(settings, store), now)
    chosen = (
        item for item in listed
        if agent in (None, item.agent) and state in (None, item.state)
    )  # fmt: skip
    return sorted(chosen, key=_ORDERS[sort])


_ORDERS: dict[Sort, Callable[[SessionSummary], tuple[float, str]]] = {
    "size": lambda item: (-item.size, item.session),
    "saved": lambda item: (-item.saved, item.session),
    "age": lambda item: (item.changed_at or 0.0, item.session),
    "name": lambda item: (0.0, item.session),
}


def summaries(
    settings: Settings, store: Store | None, known: Iterable[Session], now: float
) -> list[SessionSummary]:
    """Return summaries of the given sessions, largest first."""
    totals = store.extractions.totals() if store else {}
    states = store.files.all() if store else {}
    listed = []
    for session in known:
        record = session.record
        extracted, saved = totals.get(record.id, (0, 0)) if record and session.file else (0, 0)
        form = record.format if record else None
        size, state, reason = 0, "gone", "only the store still knows it"
        if session.unseen:
            state, reason = "unreadable", session.unseen
        if session.file:
            size = session.file.fingerprint.size
            seen = states.get(session.path)
            form, state, reason = _state(settings, store, session.file, seen, now)
        where = claude_code.place(session.path) if form == claude_code.FORMAT else None
        listed.append(SessionSummary(
            session.title, session.path, form, size, extracted, saved, state, reason,
            where.started_by if where else None, session.agent,
            session.file.fingerprint.mtime_ns / 1e9 if session.file else None,
        ))  # fmt: skip
    return sorted(listed, key=_ORDERS["size"])


def _state(
    settings: Settings, store: Store | None, file: SessionFile, seen: FileState | None, now: float
) -> tuple[str | None, str, str]:
    """Return the format, the state and its reason, as the next scan would see a file."""
    form = None
    try:
        if reason := excluded(file, settings):
            return None, "skipped", reason
        with examine(settings, store, file, now, window=0) as examined:
            form = examined.format.name
            examined.check_idle()
            if held := examined.kept_in_memory():
                return form, "busy", held
    except RefusedError as why:
        return form or why.format, "skipped", str(why)
    except (NotIdleError, BusyError) as why:
        return form, "busy", str(why)
    except OSError as error:
        return None, "unreadable", error.strerror or type(error).__name__
    if seen is None or seen.fingerprint != file.fingerprint:
        return form, "idle", "not scanned yet"
    return form, "failed" if seen.outcome == FAILED else "idle", seen.reason
