"""List the sessions: their sizes, what was saved, and whether they are settled or why not."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from brainsurgeon.operations import look
from brainsurgeon.operations.find import all_sessions
from brainsurgeon.sessions.reading import Refused, open_session
from brainsurgeon.store import extractions, files

if TYPE_CHECKING:
    from brainsurgeon.config import Settings
    from brainsurgeon.model import Found
    from brainsurgeon.store import Store


@dataclass(frozen=True, slots=True)
class Listed:
    """One session. `saved` is in bytes of the file, `state` is one word, `reason` says why."""

    session: str
    path: str
    format: str | None
    size: int
    extracted: int
    saved: int
    state: str
    reason: str


def sessions(settings: Settings, store: Store | None, now: float) -> list[Listed]:
    """List every session below the roots and every one that only the store still knows."""
    totals = extractions.totals(store.connection) if store else {}
    seen = files.remembered(store.connection) if store else {}
    listed = []
    for session in all_sessions(settings, store):
        extracted, saved = totals.get(session.row.id, (0, 0)) if session.row else (0, 0)
        form = session.row.format if session.row else None
        size, state, reason = 0, "gone", "only the store still knows it"
        if session.found:
            size = session.found.fingerprint.size
            known = seen.get(os.fsencode(session.path))
            form, state, reason = _state(session.found, settings, known, now)
        listed.append(
            Listed(session.title, session.path, form, size, extracted, saved, state, reason)
        )
    return sorted(listed, key=lambda item: (-item.size, item.session))


def _state(
    found: Found, settings: Settings, seen: files.Seen | None, now: float
) -> tuple[str | None, str, str]:
    """Judge one file as the next scan would, without planning it."""
    same = seen is not None and seen.fingerprint == found.fingerprint
    first_seen = seen.first_seen if seen and same else now
    form = None
    try:
        if reason := look.excluded(found, settings):
            return None, "skipped", reason
        quietness = look.Quietness.of(found, settings, first_seen, now)
        with open_session(found) as session:
            form = look.recognise(session)
            look.check_writable(session)
            quietness.check_silence()
            quietness.check_turn(session, form.survey(session.lines, 0), now)
    except Refused as why:
        return form.name if form else None, "skipped", str(why)
    except look.Unsettled as why:
        return form.name if form else None, "busy", str(why)
    except OSError as error:
        return None, "unreadable", error.strerror or type(error).__name__
    return form.name, "settled", seen.reason if seen and same else "not scanned yet"
