"""Tell which session a fork was made from: by the path that it names, and by what it holds."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from brainsurgeon.errors import BusyError
from brainsurgeon.lookup.fitting import fitting, nearest, stubs_standing_in
from brainsurgeon.lookup.places import Places
from brainsurgeon.lookup.whose import whose
from brainsurgeon.model.sessions import Root, SessionFile
from brainsurgeon.sessions.discover import siblings
from brainsurgeon.sessions.opening import identity_of, look_at, open_session, parent_said
from brainsurgeon.sessions.reading import RefusedError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from brainsurgeon.model.records import SessionRecord
    from brainsurgeon.store import Store

LONGEST_CHAIN = 16
"""So many files are read on the way through forks of forks of which nothing is known yet."""


def source_of(
    store: Store, file: SessionFile, parent: str | None, places: Places | None = None,
    *, seen: set[str] | None = None,
) -> int | None:  # fmt: skip
    """Give the record of the session that a file was forked from, or of the nearest known before.

    `parent` is the path that the file names. Its session may have moved since, unseen, and another
    may have taken the path: what the file holds decides, and where that fits sessions that would
    put back different values, it is nobody's. No file that was `seen` on the way is read again:
    sessions that exchanged their names may each name the other.
    """
    if not parent or "\0" in parent:
        return None
    seen, places = {file.path} if seen is None else seen, places or Places()
    there = _standing_at(store, file, parent, places, seen)
    beside = os.path.join(file.directory, os.path.basename(parent))
    there = there or _standing_at(store, file, beside, places, seen)
    listed = store.sessions.named(file.agent_directory, parent)
    likely = list({one.id: one for one in (there, *listed) if one}.values())
    found = fitting(store, file, likely) or fitting(store, file, _owners(store, file, places))
    source = nearest(store, file, found or likely[: len(likely) == 1])
    return source.id if source else None


def _owners(store: Store, file: SessionFile, places: Places) -> Iterator[SessionRecord]:
    """Give the sessions out of which a stub that stands in a file was cut.

    They are of its agent, or their files lie beside it now: live, or put into the archive.
    """
    cut = [store.sessions.known(one) for one in store.extractions.owners(stubs_standing_in(file))]
    foreign = {one.identity for one in cut if one.agent_directory != file.agent_directory}
    beside = set[int | None]()
    if foreign - {None}:
        there = ((one, identity_of(one)) for one in siblings(file))
        alike = [(one, said) for one, said in there if said in foreign]
        origins = (whose(store, one, said, places=places).record for one, said in alike)
        beside = {one.id for one in origins if one}
    for one in cut:
        if one.agent_directory == file.agent_directory or one.id in beside:
            yield one


def _standing_at(
    store: Store, file: SessionFile, path: str, places: Places, seen: set[str]
) -> SessionRecord | None:
    """Give the session of the same agent that stands at a path, or what that was made from."""
    if path in seen or len(seen) > LONGEST_CHAIN:
        return None
    seen.add(path)
    root = Root(file.root, file.hint, exclusive=file.exclusive)
    there = look_at([root], path)
    if not isinstance(there, SessionFile) or there.agent_directory != file.agent_directory:
        return None
    origin = whose(store, there, identity_of(there), places=places)
    if origin.record or origin.copied:
        return origin.record or origin.copied
    source = source_of(store, there, _parent_of(there), places, seen=seen)
    return None if source is None else store.sessions.known(source)


def _parent_of(file: SessionFile) -> str | None:
    try:
        with open_session(file) as session:
            return parent_said(session, session.format.survey(session.lines, 0))
    except (OSError, RefusedError, BusyError):
        return None
