"""Where the next look at a session file may begin, and what it has to find there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from brainsurgeon.model.sessions import Fingerprint


@dataclass(frozen=True, slots=True)
class Resume:
    """What a look at a whole session file leaves to the next, which then reads the tail alone.

    Nothing in front of the line `number`, which begins at `offset`, can change its fate, however
    many lines are appended and however long one waits, as long as what stands behind it says the
    same of what stands in front of it (`cursor`). `fingerprint` is the file as it was looked at
    and `mark` a digest of bytes of it, by which one that only grew is known. `rules` are those
    that were looked with, `session_id` is the session's record and None where it had none.
    `stubs` tells whether something of ours may stand in front.
    """

    fingerprint: Fingerprint
    mark: bytes
    rules: str
    format: str
    identity: str | None
    session_id: int | None
    offset: int
    number: int
    cursor: str
    stubs: bool

    def may_go_on(self, now: Fingerprint) -> bool:
        """Tell whether a file in this state may be the same one, grown or not changed at all."""
        then = self.fingerprint
        return now == then or (now.place == then.place and now.size > then.size)
