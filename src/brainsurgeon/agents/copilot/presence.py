"""Whether a Copilot CLI has a session open.

Its process holds an flock on `inuse.<pid>.hold` beside the session, from its start, or over ACP
from its first prompt, to its end (seen with 1.0.102). It keeps the session in memory, and opens the
file only to append to it. So a change while it is idle does no harm, but only the next process
reads it. A killed process leaves the file behind, without the lock. A lock that we took for a
moment would make the session look open to a Copilot CLI that starts meanwhile, so the kernel's list
is read. What cannot be read counts as open.
"""

import os
import re
from contextlib import suppress

from brainsurgeon.agents.agent import KNOWN_OPEN, MAYBE_OPEN, Presence
from brainsurgeon.agents.copilot.home import EVENTS, CopilotHome
from brainsurgeon.formats.base import UUID

_HOLD = re.compile(r"inuse\.[0-9]+\.hold")
_LOCKS = "/proc/locks"
# As in proc_locks(5): only the inode is compared, since some file systems have several devices.
_LOCKED = re.compile(r"^\d+: FLOCK .*:([0-9]+) 0 EOF$", re.MULTILINE)


class CopilotPresence(Presence):
    remembers = True

    def in_memory(self, path: str, now: float, abandoned_after: float) -> str | None:  # noqa: ARG002
        try:
            if not (holds := _holds(os.path.dirname(path))):
                return None
            with open(_LOCKS) as locks:
                is_open = not holds.isdisjoint(map(int, _LOCKED.findall(locks.read())))
        except OSError as error:
            return MAYBE_OPEN.format("a Copilot CLI", f"{error.filename}: {error.strerror}")
        return KNOWN_OPEN.format("Copilot CLI") if is_open else None

    def calling_session(self) -> str | None:
        # The server of a tool, and the shell of a call, have this variable.
        session = os.environ.get("COPILOT_AGENT_SESSION_ID", "")
        path = os.path.join(CopilotHome().root(), session, EVENTS)
        return path if re.fullmatch(UUID, session) and os.path.exists(path) else None


def _holds(directory: str) -> set[int]:
    """Return the inodes of the files that processes lock. Raises OSError."""
    inodes = set[int]()
    for name in os.listdir(directory):
        if _HOLD.fullmatch(name):
            # A listing may have other numbers: below a mount, or in a file system of layers.
            with suppress(FileNotFoundError):
                inodes.add(os.stat(os.path.join(directory, name)).st_ino)
    return inodes
