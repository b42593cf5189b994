"""Tell which session a file is: by what it says first, by where and as which file it lies next.

A session whose file was renamed or moved is still itself, as long as its old place does not hold
it any more. Of two files that say the same of themselves the one at the recorded path is the
session and the other a copy, which is to have records of its own. An agent's directory is no
wall for a session that was moved through it, but for a copy it is, as long as what it was copied
from is there.

Logs that name no session may all say the same of themselves, thousands of them. One in which
nothing of ours stands is told apart from those that are where they were without opening any: what
this costs does not grow with how many there are. One in which something stands is compared with
each.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from brainsurgeon.lookup.fitting import fits, fitting, is_marked, may_be_whole_again, nearest
from brainsurgeon.lookup.places import Known, Places
from brainsurgeon.model.sessions import Fingerprint, Root, SessionFile, Unreadable
from brainsurgeon.sessions.discover import siblings
from brainsurgeon.sessions.opening import identity_of, look_at

if TYPE_CHECKING:
    from collections.abc import Iterable

    from brainsurgeon.model.records import SessionRecord
    from brainsurgeon.model.sessions import Identity, Place
    from brainsurgeon.store import Store


@dataclass(frozen=True, slots=True)
class Origin:
    """What the store knows of a file: the session that it is, or the one that it was copied from.

    It is neither where nothing is known of it.
    """

    record: SessionRecord | None = None
    copied: SessionRecord | None = None


class Catalogue(Known, Protocol):
    """The sessions that are known, by what may be known of a file."""

    def at(self, path: str) -> SessionRecord | None:
        """Give the session that was last seen at a path, or None."""

    def seen_as(self, identity: Identity, place: Place) -> list[SessionRecord]:
        """Give those of `of_identity` that were last seen as one and the same file."""

    def is_shared(self, identity: Identity, record: SessionRecord | None) -> bool:
        """Tell whether any session but one says this of itself."""

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
    for one in known.seen_as(identity, file.fingerprint.place):
        numbered_alike = _may_be_numbered_alike(known, one, file, identity)
        mine = here is not None and here.identity == identity
        if here and mine and numbered_alike and _nothing_parts(store, file, [one, here]):
            return Origin()
        if numbered_alike and one.agent_directory != file.agent_directory:
            continue
        if not (identity.weak or numbered_alike) or fits(store, one, file, whole=False):
            return Origin(one)
    mine = here is not None and here.identity in (None, identity)
    if here and mine and not _lying_beside(store, known, [here], file, identity):
        alone = file.in_database or not known.is_shared(identity, here)
        if alone or not places.of(here, file.root):  # else it may be the one that lies there now
            return Origin(here)
    if not known.is_shared(identity, None):
        return Origin()
    if identity.weak and not is_marked(file):
        return _by_place(store, known, file, identity, here, places)
    return _by_content(store, known, file, identity, here, places)


def _by_place(
    store: Store, known: Catalogue, file: SessionFile, identity: Identity,
    here: SessionRecord | None, places: Places,
) -> Origin:  # fmt: skip
    """Tell whose a file is in which nothing of ours stands: no value can be put back into it.

    So it does not matter whose copy it is. It is the session that was last seen at its path, or
    one that is gone from its place and whose entries are all whole again; whoever was moved takes
    with it what was asked for in it.
    """
    if (
        here
        and here.identity == identity
        and not _lying_beside(store, known, [here], file, identity)
    ):
        return Origin(here)
    home = file.agent_directory
    gone = may_be_whole_again(store, file, places.gone(known, identity))
    for one in sorted(gone, key=lambda one: one.agent_directory != home):
        if (here and one.id == here.id) or _still_there(one, file):
            continue
        moved = places.of(one, file.root)
        elsewhere = moved is not None and moved.path != file.path
        if not elsewhere and fits(store, one, file, whole=one.agent_directory != home):
            return Origin(one)
    return Origin()


def _by_content(
    store: Store, known: Catalogue, file: SessionFile, identity: Identity,
    here: SessionRecord | None, places: Places,
) -> Origin:  # fmt: skip
    """Tell whose this file is, of several sessions that say the same of themselves.

    It is the one that was last seen at its path (`here`), unless that lies beside it now, else one
    that is gone from its place, the one that explains the most of it; but where another of the
    same agent explains more, it is a copy of that one, and where those that it may be would put
    back different values it is nobody's.
    """
    home = file.agent_directory
    others = sorted(known.of_identity(identity), key=lambda one: one.agent_directory != home)
    beside = _lying_beside(store, known, others, file, identity)
    it = here if here in others and here.id not in beside else None
    claiming, near = [it] if it else [], []
    for one in others:
        if one == here and one.id not in beside:
            continue
        ours = one.agent_directory == home
        if one != here and one.id not in beside and not _still_there(one, file):
            moved = None if file.in_database else places.of(one, file.root)
            if moved and moved.path != file.path:  # that file is it, and this one at most a copy
                ours = moved.agent_directory == home
            elif it is None and fits(store, one, file, whole=not ours):
                claiming.append(one)
                continue
        if ours or one.id in beside:
            near.append(one)
    best = nearest(store, file, [*claiming, *fitting(store, file, near)])
    return Origin(best) if best in claiming else Origin(copied=best)


def _is_at_home(here: SessionRecord, file: SessionFile, identity: Identity) -> bool:
    return here.identity in (None, identity) and here.place in (None, file.fingerprint.place)


def _seen_through_a_link(known: Catalogue, file: SessionFile) -> SessionRecord | None:
    """Find a session that only an earlier version saw, below a root that is a link now."""
    for one in known.unidentified(file.session):
        if os.path.realpath(one.path) == file.path:
            return one
    return None


def _may_be_numbered_alike(
    known: Catalogue, record: SessionRecord, file: SessionFile, identity: Identity
) -> bool:
    """Tell whether a file may merely have got the inode that a session once had.

    That session was written anew, or came back from a backup, under its old name: what stands
    there is no other session that is known.
    """
    if not _still_there(record, file):
        return False
    try:
        place = Fingerprint.of(os.stat(record.path)).place
    except OSError:
        return True
    return not known.seen_as(identity, place)


def _nothing_parts(store: Store, file: SessionFile, sessions: list[SessionRecord]) -> bool:
    """Tell whether a file may be any of these sessions, and they would put different values in."""
    return fitting(store, file, sessions) == sessions and not nearest(store, file, sessions)


def _lying_beside(
    store: Store, known: Catalogue, records: Iterable[SessionRecord], file: SessionFile,
    identity: Identity,
) -> set[int | None]:  # fmt: skip
    """Tell which sessions lie beside a file under other names, as after a rotation."""
    listed = [(one, one.place) for one in records if one.place and not file.in_database]
    wanted = {place for _, place in listed}
    there = siblings(file, wanted) if wanted else ()
    found = {one.fingerprint.place: one for one in there if identity_of(one) == identity}
    lying = ((one, found[place]) for one, place in listed if place in found)
    return {
        one.id for one, it in lying
        if not _may_be_numbered_alike(known, one, it, identity)
        or fits(store, one, it, whole=False)
    }  # fmt: skip


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
