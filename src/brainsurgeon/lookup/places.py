"""Where the files of sessions lie now: looked up once for each root, when it is first asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from brainsurgeon.model.sessions import Root
from brainsurgeon.sessions.opening import identity_of
from brainsurgeon.sessions.sighting import sessions_and_archives

if TYPE_CHECKING:
    from collections.abc import Iterable

    from brainsurgeon.model.records import SessionRecord
    from brainsurgeon.model.sessions import Place, SessionFile


class Places:
    """The session files below roots, as one walk of a command found them, by inode.

    Without `roots` it is the root of the file that is asked about.
    """

    def __init__(self, roots: Iterable[Root] = ()) -> None:
        self._roots = tuple(root.path for root in roots)
        self._below: dict[str, dict[Place, SessionFile]] = {}

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
