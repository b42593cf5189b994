"""List the sessions: their sizes, what was saved, and whether they are settled or why not."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from brainsurgeon.errors import BusyError
from brainsurgeon.hosts import claude_code
from brainsurgeon.lookup.sessions import all_sessions
from brainsurgeon.rewrite.inspect import UnsettledError, examine, excluded
from brainsurgeon.sessions.reading import RefusedError
from brainsurgeon.store.files import FAILED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from brainsurgeon.config import Settings
    from brainsurgeon.lookup.sessions import Session
    from brainsurgeon.model.records import FileState
    from brainsurgeon.model.sessions import SessionFile
    from brainsurgeon.store import Store


@dataclass(frozen=True, slots=True)
class SessionSummary:
    """One session. `saved` is in bytes of the file, `state` is one word, `reason` says why.

    `started_by` is the session whose agent started this one, if it is a sub-agent's.
    """

    session: str
    path: str
    format: str | None
    size: int
    extracted: int
    saved: int
    state: str
    reason: str
    started_by: str | None = None
    agent: str = ""
    changed_at: float | None = None


LAPSED = "the relief that was asked for lapsed"
"""What is said of a session that is left alone now, for as long as it is."""
Sort = Literal["size", "saved", "age", "name"]


def sessions(
    settings: Settings, store: Store | None, now: float, *,
    agent: str | None = None, state: str | None = None, sort: Sort = "size",
) -> list[SessionSummary]:  # fmt: skip
    """List every session below the roots and every one that only the store still knows.

    Only those of one agent or in one state, where that is asked for; the largest come first, or
    what saved most, or what was silent longest.
    """
    listed = summaries(settings, store, all_sessions(settings, store), now)
    chosen = [
        one for one in listed
        if agent in (None, one.agent) and state in (None, one.state)
    ]  # fmt: skip
    return sorted(chosen, key=_ORDERS[sort])


_ORDERS: dict[Sort, Callable[[SessionSummary], tuple[float, str]]] = {
    "size": lambda one: (-one.size, one.session),
    "saved": lambda one: (-one.saved, one.session),
    "age": lambda one: (one.changed_at or 0.0, one.session),
    "name": lambda one: (0.0, one.session),
}


def summaries(
    settings: Settings, store: Store | None, known: Iterable[Session], now: float
) -> list[SessionSummary]:
    """Sum up sessions that were found already, the largest first."""
    totals = store.extractions.totals() if store else {}
    states = store.files.all() if store else {}
    lapsed = store.wishes.reliefs_lapsed() if store else {}
    listed = []
    for session in known:
        record = session.record
        stands = record.id if record and session.file else None
        extracted, saved = (0, 0) if stands is None else totals.get(stands, (0, 0))
        form = record.format if record else None
        size, state, reason = 0, "gone", "only the store still knows it"
        if session.unseen:
            state, reason = "unreadable", session.unseen
        if session.file:
            size = session.file.fingerprint.size
            seen = states.get(os.fsencode(session.path))
            form, state, reason = _state(session.file, settings, seen, now)
        if record and record.id in lapsed and state in ("gone", "skipped"):
            reason = f"{reason}; {LAPSED}"
        where = claude_code.place(session.path) if form == claude_code.FORMAT else None
        listed.append(SessionSummary(
            session.title, session.path, form, size, extracted, saved, state, reason,
            where.started_by if where else None, session.agent,
            session.file.fingerprint.mtime_ns / 1e9 if session.file else None,
        ))  # fmt: skip
    return sorted(listed, key=lambda item: (-item.size, item.session))


def _state(
    file: SessionFile, settings: Settings, seen: FileState | None, now: float
) -> tuple[str | None, str, str]:
    """Judge one file as the next scan would, without planning it."""
    form = None
    try:
        if reason := excluded(file, settings):
            return None, "skipped", reason
        with examine(settings, file, seen, now, window=0) as one:
            form = one.format.name
            one.check_settled()
    except RefusedError as why:
        return form or why.format, "skipped", str(why)
    except UnsettledError as why:
        return form, "busy", str(why)
    except BusyError as why:
        return form, "busy", str(why)
    except OSError as error:
        return None, "unreadable", error.strerror or type(error).__name__
    same = seen is not None and seen.fingerprint == file.fingerprint
    if seen and same and seen.outcome == FAILED:
        return form, "failed", seen.reason
    return form, "settled", seen.reason if seen and same else "not scanned yet"
