"""Decide which values count in a session: those of its agent, and those of random entry ids.

A value belongs to the agent of the session from which it was extracted. Entries of two agents may
have the same numbered id, or the same id of a tool call. So the value of another agent counts only
in an entry with the recorded id, and only if that id is random.
"""

import os
from collections.abc import Collection, Iterable
from functools import cache

from msgspec import Struct
from msgspec.structs import replace

from brainsurgeon.formats.base import Format
from brainsurgeon.model.records import Extraction, FieldRecord, SessionRecord
from brainsurgeon.store import Store


class Place(Struct, frozen=True):
    """Where a session is. `record` is its record, whose path may differ if the session moved."""

    path: str
    agent_directory: str
    record: SessionRecord | None


def of_other_agents(store: Store, place: Place, session_ids: Iterable[int]) -> frozenset[int]:
    """Return those of the sessions (ids of records) that belong to another agent."""
    is_gone, within = cache(_is_gone), place.path.removeprefix(place.agent_directory)
    own = {place.agent_directory}
    if place.record and is_gone(place.record.agent_directory):
        own.add(place.record.agent_directory)

    def is_own(row: SessionRecord) -> bool:
        directory = row.agent_directory
        if directory in own or (place.record and row.id == place.record.id):
            return True
        # Only its directory tells that a session without an id was moved.
        moved = row.path.removeprefix(directory) == within and is_gone(directory)
        return moved or os.path.realpath(directory) == place.agent_directory

    return frozenset(row.id for row in store.sessions.by_ids(session_ids) if not is_own(row))


def fields_of_entries(
    store: Store, place: Place, entries: Collection[str], form: Format
) -> tuple[FieldRecord, ...]:  # fmt: skip
    """Return the fields of a session, then those of `entries` in others (with session id 0)."""
    own = store.fields.of_session(place.record.id) if place.record else []
    known = {(one.entry_id, one.name) for one in own}
    listed = store.fields.of_entries(entries)
    others = of_other_agents(store, place, {one.session_id for one in listed})
    return (*own, *(
        replace(one, session_id=0) for one in listed
        if (one.entry_id, one.name) not in known
        and (one.session_id not in others or form.random_ids.fullmatch(one.entry_id))
    ))  # fmt: skip


def _is_gone(path: str) -> bool:
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        pass
    return False


def countable(
    values: Iterable[Extraction], others: frozenset[int], form: Format
) -> tuple[Extraction, ...]:
    """Drop the values of other agents (`others` are ids of their sessions) under numbered ids."""
    return tuple(
        value for value in values
        if value.session_id not in others or form.random_ids.fullmatch(value.entry_id)
    )  # fmt: skip
