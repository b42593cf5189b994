"""Tell which session a file is: by what it says first, by where and as which file it lies next.

A session whose file was renamed or moved is still itself, as long as its old place does not hold
it any more. Of two files that say the same of themselves the one at the recorded path is the
session and the other a copy, which is to have records of its own. An agent's directory is no
wall for a session that was moved through it, but for a copy it is, as long as what it was copied
from is there.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from brainsurgeon.decide.belonging import holds
from brainsurgeon.errors import BusyError
from brainsurgeon.lookup.places import Places
from brainsurgeon.model.records import Records
from brainsurgeon.model.sessions import Fingerprint, Root, SessionFile, Unreadable
from brainsurgeon.sessions.discover import siblings
from brainsurgeon.sessions.opening import identity_of, look_at, open_session, parent_said
from brainsurgeon.sessions.reading import RefusedError, carry_on
from brainsurgeon.sessions.row_sighting import stubs_in_rows
from brainsurgeon.sessions.sighting import stubs_in

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from brainsurgeon.model.entries import KeyPath
    from brainsurgeon.model.records import SessionRecord
    from brainsurgeon.model.sessions import Identity
    from brainsurgeon.store import Store

LONGEST_CHAIN = 16
"""So many files are read on the way through forks of forks of which nothing is known yet."""


@dataclass(frozen=True, slots=True)
class Origin:
    """What the store knows of a file: the session that it is, or the one that it was copied from.

    It is neither where nothing is known of it.
    """

    record: SessionRecord | None = None
    copied: SessionRecord | None = None


class Catalogue(Protocol):
    """The sessions that are known, by what may be known of a file."""

    def at(self, path: str) -> SessionRecord | None:
        """Give the session that was last seen at a path, or None."""

    def of_identity(self, identity: Identity) -> list[SessionRecord]:
        """Give the sessions that say the same of themselves, the newest first."""

    def unidentified(self, name: str) -> list[SessionRecord]:
        """Give the sessions of a name that no program that knows identities has seen yet."""


def whose(
    store: Store, file: SessionFile, identity: Identity | None, known: Catalogue | None = None,
    places: Places | None = None,
) -> Origin:  # fmt: skip
    """Tell which session a file is, or was copied from; `places` spares a command its walks."""
    known, places = known or store.sessions, places or Places()
    here = known.at(file.path) or _seen_through_a_link(known, file)
    if identity is None or (here and _is_at_home(here, file, identity)):
        return Origin(here)
    alike = known.of_identity(identity)
    same_file = [one for one in alike if one.place == file.fingerprint.place]
    for one in same_file:
        if _only_numbered_alike(one, file, alike):
            continue
        if not identity.weak or _holds(store, one, file, whole=False):
            return Origin(one)
    mine = here is not None and here.identity in (None, identity)
    if here and mine and not _lying_beside([here], file, identity):
        alone = file.in_database or alike in ([], [here])
        if alone or not places.of(here, file.root):  # else it may be the one that lies there now
            return Origin(here)
    return _by_content(store, file, identity, alike, here, places)


def _by_content(
    store: Store, file: SessionFile, identity: Identity, alike: list[SessionRecord],
    here: SessionRecord | None, places: Places,
) -> Origin:  # fmt: skip
    """Tell whose file this is, of several sessions that say the same of themselves.

    It is the one that was last seen at its path (`here`), unless that lies beside it now, else one
    that is gone from its place; but where another of the same agent explains more of the file, it
    is a copy of that one, and where they would put back different values it is nobody's.
    """
    home = file.agent_directory
    others = sorted(alike, key=lambda one: one.agent_directory != home)
    beside = _lying_beside(others, file, identity)
    it = here if here in others and here.id not in beside else None
    near = []
    for one in others:
        if one == here and one.id not in beside:
            continue
        ours = one.agent_directory == home
        if one != here and one.id not in beside and not _still_there(one, file):
            moved = None if file.in_database else places.of(one, file.root)
            if moved and moved.path != file.path:  # that file is it, and this one at most a copy
                ours = moved.agent_directory == home
            elif it is None and _holds(store, one, file, whole=not ours):
                it = one
                continue
        if ours or one.id in beside:
            near.append(one)
    fitting = _fitting(store, file, near)
    nearest = _nearest(store, file, [it, *fitting] if it else fitting)
    return Origin(it) if it and nearest == it else Origin(copied=nearest)


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
    fitting = _fitting(store, file, likely) or _fitting(store, file, _owners(store, file, places))
    source = _nearest(store, file, fitting or likely[: len(likely) == 1])
    return source.id if source else None


def _fitting(
    store: Store, file: SessionFile, sessions: Iterable[SessionRecord]
) -> list[SessionRecord]:
    return [one for one in sessions if _holds(store, one, file, whole=False)]


def _nearest(
    store: Store, file: SessionFile, sessions: list[SessionRecord]
) -> SessionRecord | None:
    """Give the session that explains the most of a file's stubs.

    None where there is no session, and where they would put different values into the file.
    """
    if len(sessions) < 2:  # noqa: PLR2004  one alone agrees with itself
        return sessions[0] if sessions else None
    standing = _stubs_of(file)
    told: dict[tuple[str, KeyPath], bytes] = {}
    explained = []
    for session in sessions:
        family = store.extractions.of_sessions(store.sessions.family(session))
        said = {(one.stub, one.path): one.digest for one in family if one.stub in standing}
        if any(told.setdefault(place, digest) != digest for place, digest in said.items()):
            return None
        explained.append(len(said))
    return sessions[explained.index(max(explained))]


def _stubs_of(file: SessionFile) -> set[str]:
    try:
        return (stubs_in_rows if file.in_database else stubs_in)(file, carry_on)
    except OSError:
        return set()


def _owners(store: Store, file: SessionFile, places: Places) -> Iterator[SessionRecord]:
    """Give the sessions out of which a stub that stands in a file was cut.

    They are of its agent, or their files lie beside it now: live, or put into the archive.
    """
    cut = [store.sessions.known(one) for one in store.extractions.owners(_stubs_of(file))]
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


def _is_at_home(here: SessionRecord, file: SessionFile, identity: Identity) -> bool:
    return here.identity in (None, identity) and here.place in (None, file.fingerprint.place)


def _seen_through_a_link(known: Catalogue, file: SessionFile) -> SessionRecord | None:
    """Find a session that only an earlier version saw, below a root that is a link now."""
    for one in known.unidentified(file.session):
        if os.path.realpath(one.path) == file.path:
            return one
    return None


def _only_numbered_alike(
    record: SessionRecord, file: SessionFile, alike: Iterable[SessionRecord]
) -> bool:
    """Tell whether a file of another agent merely got the inode that a session once had.

    The agent wrote that session anew, under its old name: what stands there is no other session
    that is known.
    """
    if record.agent_directory == file.agent_directory or not _still_there(record, file):
        return False
    try:
        place = Fingerprint.of(os.stat(record.path)).place
    except OSError:
        return True
    return place not in {one.place for one in alike}


def _lying_beside(
    records: Iterable[SessionRecord], file: SessionFile, identity: Identity
) -> set[int | None]:
    """Tell which sessions lie beside a file under other names, as after a rotation."""
    listed = [one for one in records if one.place and not file.in_database]
    wanted = {one.place for one in listed}
    there = (one for one in siblings(file) if one.fingerprint.place in wanted) if wanted else ()
    found = {one.fingerprint.place for one in there if identity_of(one) == identity}
    return {one.id for one in listed if one.place in found}


def _still_there(record: SessionRecord, file: SessionFile) -> bool:
    """Tell whether a session stands where it was last seen; what cannot be told counts as yes."""
    if record.homeless:
        return False
    try:
        place = Fingerprint.of(os.stat(record.path)).place
    except FileNotFoundError:
        return False
    except NotADirectoryError:
        place = None  # gone, or in a database
    except OSError:
        return True
    if place == file.fingerprint.place:
        return False  # the same file, by its old name
    found = look_at([Root(record.root)], record.path)
    if found is None or isinstance(found, Unreadable):
        return found is not None
    said = identity_of(found)
    return said is None or said == record.identity


def _holds(store: Store, record: SessionRecord, file: SessionFile, *, whole: bool) -> bool:
    """Tell whether the entries of a file are as they were recorded of a session, or all of it."""
    extractions = store.extractions.of_sessions(store.sessions.family(record))
    try:
        with open_session(file) as opened:
            records = Records(tuple(extractions), own=record.id)
            return holds(opened.lines, opened.format, records, whole=whole)
    except (OSError, RefusedError, BusyError):
        return False
