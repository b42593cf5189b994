"""Set `_extractable` on an entry: pin it, force its extraction, or set its window."""

from __future__ import annotations

from typing import TYPE_CHECKING

from brainsurgeon.errors import (
    AmbiguousError,
    ChangedError,
    GuardedError,
    NotFoundError,
    UsageError,
)
from brainsurgeon.formats.base import is_made_up, parse
from brainsurgeon.lookup.sessions import all_sessions, file_of, noted, session_named
from brainsurgeon.model.entries import id_named, is_safe
from brainsurgeon.model.reports import FieldAnswer
from brainsurgeon.operations.restore import recorded
from brainsurgeon.rewrite.change import carry_out
from brainsurgeon.rewrite.finish import UNFINISHED
from brainsurgeon.rewrite.inspect import NotIdleError, moved_away
from brainsurgeon.sessions.opening import open_session
from brainsurgeon.sessions.reading import RefusedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from brainsurgeon.config import Settings
    from brainsurgeon.lookup.sessions import Session
    from brainsurgeon.store import Store


# In messages. JavaScript, and so an agent that writes the entry, is not exact above this number.
LARGEST_WINDOW = 2**53


def set_extractable(
    settings: Settings, store: Store, entry: str, value: bool | int,
    *, clock: Callable[[], float], session: str | Session | None = None,
) -> FieldAnswer:  # fmt: skip
    """Record the request, which all plans respect from now on, and set the field if possible.

    Raises UsageError for a window above LARGEST_WINDOW, NotFoundError or AmbiguousError if no
    entry or several match, ChangedError if the entry cannot be edited, GuardedError if the agent
    has moved its sessions elsewhere.
    """
    if value > LARGEST_WINDOW:
        raise UsageError(f"a window of {value} messages is no number that every reader keeps")
    wanted = id_named(entry)
    chosen, ident = _where(settings, store, wanted, session)
    file = file_of(chosen)
    if moved_away(file):
        raise GuardedError(f"{chosen.title}: its agent keeps its sessions in SQLite now")
    now = clock()
    record = recorded(noted(store, chosen))
    with store.transaction():
        store.requests.add_set(record.id, ident, value, now)
    try:
        with store.runs.run("set-extractable", now):
            planned, rewrite = carry_out(settings, store, file, record, (), clock)
    except NotIdleError as why:
        return FieldAnswer(ident, chosen.title, value, pending=True, reason=str(why))
    unfinished = rewrite is not None and not rewrite.finish()
    if reasons := [why for name, why in planned.missed if name == ident]:
        raise ChangedError(f"{chosen.title} {ident}: {reasons[0]}; the entry was left as it is")
    return FieldAnswer(
        ident, chosen.title, value, pending=False, reason=UNFINISHED if unfinished else ""
    )


def stands_in(store: Store, session: Session, entry: str) -> bool:
    """Check whether a session's file has an entry, named by its id or a whole placeholder."""
    return _id_in(store, session, id_named(entry)) is not None


def _where(
    settings: Settings, store: Store, wanted: str, session: str | Session | None
) -> tuple[Session, str]:
    """Return the session whose file has the entry, and the entry's own id."""
    if session:
        chosen = session_named(settings, store, session)
        file_of(chosen)
        listed, where = [chosen], session if isinstance(session, str) else session.path
    else:
        listed, where = all_sessions(settings, store), "any session"
    places = [
        (item, ident) for item in listed if (ident := _id_in(store, item, wanted)) is not None
    ]
    if not places:
        raise NotFoundError(f"no entry {wanted!r} stands in {where}")
    if len(places) > 1:
        titles = [item.title for item, _ in places]
        raise AmbiguousError(f"entry {wanted!r}", titles, "name the session with --session")
    return places[0]


def _id_in(store: Store, session: Session, wanted: str) -> str | None:
    """Return the id of the wanted entry in a session's file, or None."""
    if session.file is None:
        return None
    ids = {wanted} | {value.entry_id for value in store.extractions.of_entry(wanted)}
    # An id with several spellings in JSON, or one that the format derives, has no bytes to find.
    plain = all(is_safe(ident) and not is_made_up(ident) for ident in ids)
    wanted_bytes = [ident.encode() for ident in ids] if plain else [b""]
    try:
        with open_session(session.file) as opened:
            for line in opened.lines:
                if line.raw is None or not any(text in line.raw for text in wanted_bytes):
                    continue
                entry = parse(line.raw)
                ident = opened.format.identity(entry, line.raw, line.number) if entry else None
                if ident in ids:
                    return ident
    except (OSError, RefusedError):
        return None
    return None
