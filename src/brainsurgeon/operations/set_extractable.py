"""Set `_extractable` on an entry: pin it, force it, or give it a window of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from brainsurgeon.errors import Ambiguous, Changed, Guarded, NotFound, UsageError
from brainsurgeon.formats.base import id_named, is_made_up, is_safe, parse
from brainsurgeon.operations import look
from brainsurgeon.operations.carry_out import carry_out
from brainsurgeon.operations.find import all_sessions, file_of, session_named
from brainsurgeon.operations.operate import UNFINISHED
from brainsurgeon.sessions import quiet
from brainsurgeon.sessions.reading import Refused, open_session
from brainsurgeon.store import extractions, wishes

if TYPE_CHECKING:
    from collections.abc import Callable

    from brainsurgeon.config import Settings
    from brainsurgeon.model import Found
    from brainsurgeon.operations.find import Session
    from brainsurgeon.store import Store


LARGEST_WINDOW = 2**53
"""Beyond this JavaScript's numbers, and so agents that write the entry again, are not exact."""


@dataclass(frozen=True, slots=True)
class Set:
    """What became of the wish to set the field."""

    entry_id: str
    session: str
    value: bool | int
    pending: bool
    reason: str = ""

    def as_json(self) -> dict[str, object]:
        """Give the answer as other programs read it."""
        answer: dict[str, object] = {
            "set": True,
            "pending": self.pending,
            "entry_id": self.entry_id,
            "session": self.session,
            "extractable": self.value,
        }
        if self.reason:
            answer["why_pending" if self.pending else "unfinished"] = self.reason
        return answer


def set_extractable(
    settings: Settings, store: Store, entry: str, value: bool | int,
    *, clock: Callable[[], float], session: str | None = None,
) -> Set:  # fmt: skip
    """Note the wish, which binds every decision from now on, and carry it out where settled.

    Raise UsageError for a window beyond LARGEST_WINDOW, NotFound or Ambiguous for what is named,
    Changed where the entry is not as recorded, Guarded where the agent moved on.
    """
    if value > LARGEST_WINDOW:
        raise UsageError(f"a window of {value} messages is no number that every reader keeps")
    wanted = id_named(entry)
    chosen, ident = _where(settings, store, wanted, session)
    found = file_of(chosen)
    if quiet.migrated(found.agent_directory):
        raise Guarded(f"{chosen.title}: its agent keeps its sessions in SQLite now")
    now = clock()
    row = chosen.row
    with store.transaction() as connection:
        if row is None:
            row = extractions.note_session(connection, found, *_origin(found))
        wishes.add_set(connection, row.id, ident, value, now)
    try:
        planned, rewrite = carry_out(settings, store, found, row, (), clock)
    except look.Unsettled as why:
        return Set(ident, chosen.title, value, pending=True, reason=str(why))
    unfinished = rewrite is not None and not rewrite.finish()
    if reasons := [why for name, why in planned.missed if name == ident]:
        raise Changed(f"{chosen.title} {ident}: {reasons[0]}; the entry was left as it is")
    return Set(ident, chosen.title, value, pending=False, reason=UNFINISHED if unfinished else "")


def _origin(found: Found) -> tuple[str, str | None]:
    """Give the format of a session, and the session that it was forked from."""
    with open_session(found) as opened:
        form = look.recognise(opened)
        return form.name, form.survey(opened.lines, 0).parent


def _where(
    settings: Settings, store: Store, wanted: str, session: str | None
) -> tuple[Session, str]:
    """Find the session in whose file the entry stands, and the entry's own id."""
    listed = [session_named(settings, store, session)] if session else _known(settings, store)
    if session:
        file_of(listed[0])
    places = [(one, ident) for one in listed for ident in _ids(store, one, wanted)]
    if not places:
        raise NotFound(f"no entry {wanted!r} stands in {session or 'any session'}")
    if len(places) > 1:
        titles = [one.title for one, _ in places]
        raise Ambiguous(f"entry {wanted!r}", titles, "name the session with --session")
    return places[0]


def _known(settings: Settings, store: Store) -> list[Session]:
    return [session for session in all_sessions(settings, store) if session.found]


def _ids(store: Store, session: Session, wanted: str) -> list[str]:
    """Give the id under which the wanted entry stands in this session's file, if it does."""
    if session.found is None:
        return []
    ids = {wanted} | {
        value.entry_id
        for value in extractions.of_entry(store.connection, wanted)
        if session.row and value.session_id == session.row.id
    }
    # An id that JSON may write in more than one way, or that we made up, has no bytes to look for.
    plain = all(is_safe(ident) and not is_made_up(ident) for ident in ids)
    marks = [ident.encode() for ident in ids] if plain else [b""]
    try:
        with open_session(session.found) as opened:
            form = look.recognise(opened)
            for line in opened.lines:
                if line.raw is None or not any(mark in line.raw for mark in marks):
                    continue
                entry = parse(line.raw)
                ident = form.identity(entry, line.raw, line.number) if entry else None
                if ident in ids and ident is not None:
                    return [ident]
    except (OSError, Refused):
        return []
    return []
