"""Tell which session a file is: by what it says first, by where and as which file it lies next.

A session whose file was renamed or moved is still itself, as long as its old place does not hold
it any more. Of two files that say the same of themselves the one at the recorded path is the
session and the other a copy, which is to have records of its own. An agent's directory is no
wall for a session that was moved through it, but for a copy it is.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from brainsurgeon.decide.belonging import holds
from brainsurgeon.model.records import Records
from brainsurgeon.model.sessions import Fingerprint, Root, Unreadable
from brainsurgeon.sessions.discover import discover_at, siblings
from brainsurgeon.sessions.reading import RefusedError, identity_of, open_session

if TYPE_CHECKING:
    from brainsurgeon.model.records import SessionRecord
    from brainsurgeon.model.sessions import Identity, SessionFile
    from brainsurgeon.store import Store


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
    store: Store, file: SessionFile, identity: Identity | None, known: Catalogue | None = None
) -> Origin:
    """Tell which session a file is, or was copied from."""
    known = known or store.sessions
    here = known.at(file.path) or _seen_through_a_link(known, file)
    if identity is None or (here and _is_at_home(here, file, identity)):
        return Origin(here)
    alike = known.of_identity(identity)
    same_file = [one for one in alike if one.place == file.fingerprint.place]
    for one in same_file:
        if not identity.weak or _holds(store, one, file, whole=False):
            return Origin(one)
    if here and here.identity in (None, identity) and not _lies_beside(here, file, identity):
        return Origin(here)
    others = sorted(alike, key=lambda one: one.agent_directory != file.agent_directory)
    for one in others:
        if here and one.id == here.id:
            continue
        elsewhere = one.agent_directory != file.agent_directory
        if not _still_there(one, file) and _holds(store, one, file, whole=elsewhere):
            return Origin(one)
    own = (one for one in others if one.agent_directory == file.agent_directory)
    copied = (one for one in own if _holds(store, one, file, whole=False))
    return Origin(copied=next(copied, None))


def _is_at_home(here: SessionRecord, file: SessionFile, identity: Identity) -> bool:
    return here.identity in (None, identity) and here.place in (None, file.fingerprint.place)


def _seen_through_a_link(known: Catalogue, file: SessionFile) -> SessionRecord | None:
    """Find a session that only an earlier version saw, below a root that is a link now."""
    for one in known.unidentified(file.session):
        if os.path.realpath(one.path) == file.path:
            return one
    return None


def _lies_beside(record: SessionRecord, file: SessionFile, identity: Identity) -> bool:
    """Tell whether the session lies beside under another name, as after a rotation."""
    return any(
        one.fingerprint.place == record.place and identity_of(one) == identity
        for one in siblings(file)
    )


def _still_there(record: SessionRecord, file: SessionFile) -> bool:
    """Tell whether a session stands where it was last seen; what cannot be told counts as yes."""
    if record.homeless:
        return False
    try:
        place = Fingerprint.of(os.stat(record.path)).place
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    if place == file.fingerprint.place:
        return False  # the same file, by its old name
    found = discover_at([Root(record.root)], record.path)
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
    except (OSError, RefusedError):
        return False
