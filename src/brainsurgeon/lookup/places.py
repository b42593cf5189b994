"""Where the files of sessions lie now: looked up once for each root, when it is first asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from brainsurgeon.model.sessions import Root, SessionFile
from brainsurgeon.sessions.discover import any_format, discover
from brainsurgeon.sessions.opening import identity_of

if TYPE_CHECKING:
    from brainsurgeon.model.records import SessionRecord
    from brainsurgeon.model.sessions import Place


class Places:
    """The session files below roots, as one walk of a command found them, by inode."""

    def __init__(self) -> None:
        self._below: dict[str, dict[Place, SessionFile]] = {}

    def of(self, record: SessionRecord, *roots: str) -> SessionFile | None:
        """Give the file of a session that is not where it was last seen, by its inode.

        It is looked for below the session's own root and below `roots`, and has to say of itself
        what the session said: an inode that was freed is given out again.
        """
        if record.place is None or record.homeless:
            return None
        for root in dict.fromkeys((record.root, *roots)):
            found = self._files(root).get(record.place)
            if found and identity_of(found) == record.identity:
                return found
        return None

    def _files(self, root: str) -> dict[Place, SessionFile]:
        if root not in self._below:
            walk = discover([Root(root, required=False)], format_of=any_format)
            files = (one for one in walk if isinstance(one, SessionFile))
            self._below[root] = {one.fingerprint.place: one for one in files}
        return self._below[root]
