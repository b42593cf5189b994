"""The catalogue of sessions: the path of each, and the placeholders in it."""

import os

from brainsurgeon.model.plans import Plan
from brainsurgeon.model.records import SessionRecord
from brainsurgeon.model.sessions import Root, SessionFile
from brainsurgeon.sessions.opening import AnyOpen, identity_of, session_at
from brainsurgeon.store import Store
from brainsurgeon.store.columns import path_text


def find(store: Store, session: AnyOpen) -> SessionRecord | None:
    """Return the row of an open session, or None. Writes nothing."""
    return find_row(store, session.file, session.identity)


def find_row(store: Store, file: SessionFile, identity: str | None) -> SessionRecord | None:
    """Return the row of a session file, or None. Writes nothing.

    That is the row with this path, unless its session id differs; else a row with the same session
    id whose session is no longer at its last known path.
    """
    record = store.sessions.fitting(file.path, identity)
    if record or identity is None:
        return record
    return next((row for row in store.sessions.of_identity(identity) if _has_left(row)), None)


def _has_left(record: SessionRecord) -> bool:
    """Check whether a session is certainly no longer at its last known path."""
    if record.displaced:
        return True
    in_database = False
    try:
        os.stat(record.path, follow_symlinks=False)
    except NotADirectoryError:
        in_database = True
    except OSError as error:
        return isinstance(error, FileNotFoundError)
    if not in_database and os.path.realpath(record.path) != record.path:
        return True  # reached through a link; links are not followed
    file = session_at([Root(record.root)], record.path)
    if not isinstance(file, SessionFile):
        return in_database and file is None
    return identity_of(file) not in (None, record.identity)  # another session took its path


def update(store: Store, session: AnyOpen) -> SessionRecord | None:
    """Return the row of an open session, updated if the session has moved."""
    record = find(store, session)
    if record and not is_current(record, session.file, session.identity):
        return note(store, session)
    return record


def note(store: Store, session: AnyOpen) -> SessionRecord:
    """Record the path of an open session, in a new row if it has none."""
    with store.transaction():
        return note_within(store, session)


def note_within(store: Store, session: AnyOpen) -> SessionRecord:
    """Like `note`, inside the caller's transaction."""
    record = find(store, session)
    return store.sessions.note(session.file, session.format.name, session.identity, record)


def is_current(record: SessionRecord, file: SessionFile, identity: str | None) -> bool:
    """Check whether a row has the current path, agent and id of a session file."""
    return (
        not record.displaced
        and (record.path, record.root) == (file.path, file.root)
        and record.agent_directory == file.agent_directory
        and (record.agent, record.name) == (path_text(file.agent), path_text(file.session))
        and identity in (None, record.identity)
    )


def record_look(
    store: Store, session: AnyOpen, record: SessionRecord | None, plan: Plan, now: float
) -> None:
    """Record the placeholders seen in an idle session, and end requests that need no edit.

    A session with placeholders gets a row. Writes nothing if the store is up to date.
    """
    placed = store.placements.of_session(record.id) if record else frozenset()
    is_new = any(ident not in placed for ident in plan.sighted)
    if not (is_new or (record and (plan.gone or plan.missing or plan.requests))):
        return
    with store.transaction():
        record = record or note_within(store, session)
        store.requests.end(plan.requests, "nothing left to do")
        store.placements.record(record.id, plan.sighted, plan.gone, plan.missing, now)
