"""Where the files of sessions lie now: looked up once for each root, when it is first asked."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from brainsurgeon.model.sessions import Fingerprint, Root
from brainsurgeon.sessions.opening import identity_of
from brainsurgeon.sessions.sighting import sessions_and_archives

if TYPE_CHECKING:
    from collections.abc import Iterable

    from brainsurgeon.model.records import SessionRecord
    from brainsurgeon.model.sessions import Identity, Place, SessionFile


class Known(Protocol):
    """The sessions that are known, by what they say of themselves."""

    def of_identity(self, identity: Identity, after: int = 0) -> list[SessionRecord]:
        """Give the sessions that say this, the newest first, of larger ids than `after`."""

    def known(self, ident: int) -> SessionRecord:
        """Give a session by the id of its record."""


@dataclass(slots=True)
class _Looked:
    """The sessions of one identity up to an id, and which of them were not in their places."""

    last: int = 0
    gone: set[int] = field(default_factory=set)


class Places:
    """The session files below roots, as one walk of a command found them, by inode.

    Without `roots` it is the root of the file that is asked about.
    """

    def __init__(self, roots: Iterable[Root] = ()) -> None:
        self._roots = tuple(root.path for root in roots)
        self._below: dict[str, dict[Place, SessionFile]] = {}
        self._looked: dict[Identity, _Looked] = {}

    def gone(self, known: Known, identity: Identity) -> list[SessionRecord]:
        """Give the sessions that say this of themselves and are not the files any more they were.

        Each is looked for once a command, at the cost of one stat. One that was in its place then
        and leaves it before the command ends is not given: at worst it is known no more once it
        was also written anew on its way, with nothing of ours in it.
        """
        looked = self._looked.setdefault(identity, _Looked())
        for one in known.of_identity(identity, after=looked.last):
            looked.last = max(looked.last, one.id or 0)
            if one.id is not None and not _stands(one):
                looked.gone.add(one.id)
        now = (known.known(ident) for ident in sorted(looked.gone, reverse=True))
        return [one for one in now if one.identity == identity and not _stands(one)]

    def of(self, record: SessionRecord, root: str) -> SessionFile | None:
        """Give the file of a session that is not where it was last seen, by its inode.

        It may have been put into the archive, and has to say of itself what the session said: an
        inode that was freed is given out again.
        """
        if record.place is None or record.homeless:
            return None
        for one in self._roots or (root,):
            found = self._files(one).get(record.place)
            if found and identity_of(found) == record.identity:
                return found
        return None

    def _files(self, root: str) -> dict[Place, SessionFile]:
        if root not in self._below:
            files = sessions_and_archives([Root(root, required=False)])
            self._below[root] = {one.fingerprint.place: one for one in files}
        return self._below[root]


def _stands(record: SessionRecord) -> bool:
    """Tell whether a session is, where it was last seen, the file that was seen; or may be."""
    if record.homeless or record.place is None:
        return False
    try:
        return Fingerprint.of(os.stat(record.path, follow_symlinks=False)).place == record.place
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
