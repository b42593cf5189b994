"""See to it that the store knows an open session as it lies now."""

from __future__ import annotations

from typing import TYPE_CHECKING

from brainsurgeon.lookup.parents import source_of
from brainsurgeon.lookup.sessions import parent_of, seen_as
from brainsurgeon.lookup.whose import whose
from brainsurgeon.sessions.opening import parent_said

if TYPE_CHECKING:
    from brainsurgeon.lookup.places import Places
    from brainsurgeon.model.plans import Plan
    from brainsurgeon.model.records import Records, SessionRecord
    from brainsurgeon.model.sessions import Identity, SessionFile, Survey
    from brainsurgeon.sessions.opening import AnyOpen
    from brainsurgeon.store import Store


def record_for(
    store: Store, session: AnyOpen, survey: Survey, places: Places | None = None
) -> SessionRecord | None:
    """Give what the store says of a session, as it lies now; nothing is written.

    A fork or copy that has no record yet gets one without an id; None where nothing is known.
    """
    origin = whose(store, session.file, session.identity, places=places)
    if origin.record:
        return seen_as(origin.record, session.file, session.identity)
    parent = parent_of(store, session, survey)
    copied = origin.copied
    source = copied.id if copied else source_of(store, session.file, parent, places)
    if source is None and parent is None:
        return None
    name = session.format.name
    return store.sessions.unnoted(session.file, name, parent, session.identity, source)


def noted(
    store: Store, session: AnyOpen, survey: Survey, places: Places | None = None
) -> SessionRecord | None:
    """Give what the store says of a session; one that moved, a fork and a copy are noted."""
    record = record_for(store, session, survey, places)
    if record is None and parent_said(session, survey) is None:
        return None
    if record and record.id is not None and store.sessions.known(record.id) == record:
        return record
    return note(store, session, survey, record, places)


def note(
    store: Store, session: AnyOpen, survey: Survey, record: SessionRecord | None = None,
    places: Places | None = None,
) -> SessionRecord:  # fmt: skip
    """Write down where a session lies, and make its record where it has none.

    What is not known yet is looked up once more: another process may have noted it just now.
    """
    with store.transaction():
        return note_within(store, session, survey, record, places)


def note_within(
    store: Store, session: AnyOpen, survey: Survey, record: SessionRecord | None = None,
    places: Places | None = None,
) -> SessionRecord:  # fmt: skip
    """Do as `note` does, as part of a transaction."""
    record = record or record_for(store, session, survey, places)
    parent = parent_said(session, survey) or (record.parent if record else None)
    return store.sessions.note(session.file, session.format.name, parent, session.identity, record)


def lies_where_it_did(
    store: Store, file: SessionFile, identity: Identity | None, session_id: int | None
) -> bool:
    """Tell whether nothing can have changed in whose session a file is since it was last noted.

    Without a `session_id` nothing was known of it.
    """
    here = store.sessions.at(file.path)
    if session_id is not None:
        same = here is not None and here.id == session_id
        return same and here is not None and seen_as(here, file, identity) == here
    alike = identity is not None and store.sessions.is_shared(identity, None)
    return not (here or alike or store.sessions.unidentified(file.session))


def settled(store: Store, record: SessionRecord | None, plan: Plan, now: float) -> None:
    """Close the wishes of a settled session that need no edit, and note which stubs stand."""
    if record is None or not (plan.wishes or plan.sighted or plan.gone):
        return
    with store.transaction():
        store.wishes.end(plan.wishes, "nothing left to do")
        store.extractions.sight(plan.sighted, now)
        store.extractions.stand(record.id, plan.sighted)
        store.extractions.stand_no_more(plan.gone)


def adopt(store: Store, record: SessionRecord, records: Records, plan: Plan, now: float) -> None:
    """Give a fork records of its own for what stands in it: its parent may go elsewhere."""
    if record.id is None:
        return
    going = {edit.extraction_id for edit in plan.putbacks}
    own = {one.id for one in records.extractions if one.session_id == record.id}
    others = [ident for ident in plan.sighted if ident not in own | going]
    if others:
        with store.transaction():
            store.extractions.adopt(others, record.id, now)
